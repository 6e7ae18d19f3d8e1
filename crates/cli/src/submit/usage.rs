//! What `firesteel submit --help` says.

pub(crate) fn version() -> String {
    format!("firesteel {}, submitting for Spark 3.5 to 4.3", env!("CARGO_PKG_VERSION"))
}

pub(crate) const TEXT: &str = "\
Submit a Spark application to Kubernetes, as spark-submit does, without a JVM.

Usage: firesteel submit [OPTIONS] <app jar | python file | R file> [app arguments]
       firesteel submit --status <NAMESPACE:POD | NAMESPACE:PREFIX*> --master <URL>
       firesteel submit --kill   <NAMESPACE:POD | NAMESPACE:PREFIX*> --master <URL>
       firesteel submit run-example [OPTIONS] <example class> [example arguments]

Options of spark-submit:
  --master URL                 k8s://https://HOST:PORT
  --deploy-mode MODE           cluster (here) or client (handed to the real spark-submit) [default: client]
  --class NAME                 Main class, for Java and Scala
  --name NAME                  Name of the application
  --conf, -c KEY=VALUE         Any Spark setting
  --properties-file FILE       Settings from a file, instead of conf/spark-defaults.conf
  --load-spark-defaults        Read conf/spark-defaults.conf too when --properties-file is given
  --jars, --py-files, --files, --archives LIST
                               Files for the application, comma-separated
  --packages, --exclude-packages, --repositories LIST
                               Maven coordinates that the driver resolves
  --driver-memory MEM          Memory of the driver [default: 1g]
  --driver-cores N             Cores of the driver [default: 1]
  --driver-java-options, --driver-library-path, --driver-class-path, --driver-default-class-path
  --executor-memory MEM        Memory of each executor [default: 1g]
  --executor-cores N           Cores of each executor [default: 1]
  --num-executors N            How many executors [default: 2]
  --principal, --keytab        Kerberos
  --proxy-user NAME            User to impersonate
  --status ID, --kill ID       Look at or delete drivers that exist; a * at the end stands for any ending
  --verbose, -v                Say more
  --help, -h                   This text
  --version                    The version

Own options, anywhere before the application:
  --dry-run                    Print the objects that would be created; needs no cluster
  -o, --output json|yaml       How to print [default: yaml]
  --explain                    Print every setting and where it came from; create nothing
  --spark-version V            Version of Spark in the image [default: from the image's tag, else SPARK_HOME]
  --exit-zero                  Exit with 0 whatever becomes of the driver, as spark-submit does

The exit code is the driver's. 1: the request could not be carried out. 2: wrong input. 3: the driver never started.
Local files go to spark.kubernetes.file.upload.path (s3a://, gs://, abfss://, file://).
";
