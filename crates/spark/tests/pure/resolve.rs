//! From a command line to a submission: one table per rule of `spark-submit`, with an environment and files made up for
//! it. The expectations were observed in real Spark (3.5.9 to 4.3.0) unless a test says that we differ.

use std::collections::BTreeMap;
use std::io;

use firesteel_spark::submission::{Control, Effective, Origin, ResolveContext, Resolved, VersionFrom, resolve};
use firesteel_spark::version::Line;
use firesteel_spark::{Files, MainResource, args};
use proptest::prelude::*;

/// Files by absolute path.
#[derive(Default)]
struct Memory(BTreeMap<String, Vec<u8>>);

impl Memory {
    fn with(files: &[(&str, &str)]) -> Self {
        Memory(files.iter().map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec())).collect())
    }
}

impl Files for Memory {
    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        let path = path.strip_prefix("file:").unwrap_or(path);
        self.0.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn list(&self, dir: &str) -> io::Result<Vec<(String, u64)>> {
        let prefix = format!("{}/", dir.trim_end_matches('/'));
        let below: Vec<_> =
            self.0.iter().filter_map(|(path, text)| Some((path.strip_prefix(&prefix)?, text))).collect();
        if below.is_empty() {
            return Err(io::ErrorKind::NotFound.into());
        }
        let plain = below.into_iter().filter(|(name, _)| !name.contains('/'));
        Ok(plain.map(|(name, text)| (name.to_owned(), text.len() as u64)).collect())
    }
}

struct World {
    env: BTreeMap<String, String>,
    files: Memory,
}

impl World {
    fn empty() -> Self {
        World { env: BTreeMap::new(), files: Memory::default() }
    }

    fn env(mut self, name: &str, value: &str) -> Self {
        self.env.insert(name.to_owned(), value.to_owned());
        self
    }

    fn files(mut self, files: &[(&str, &str)]) -> Self {
        self.files = Memory::with(files);
        self
    }

    fn resolve(&self, argv: &[&str]) -> Result<Resolved, String> {
        let argv: Vec<String> = argv.iter().map(|a| (*a).to_owned()).collect();
        let raw = args::parse(&argv).map_err(|e| e.to_string())?;
        let context = ResolveContext { env: &self.env, files: &self.files, cwd: "/w", now_ms: 1_700_000_000_000 };
        resolve(&raw, context).map_err(|e| e.to_string())
    }

    fn submit(&self, argv: &[&str]) -> Effective {
        match self.resolve(argv) {
            Ok(Resolved::Submit(effective)) => *effective,
            other => panic!("{argv:?} gave {other:?}"),
        }
    }

    fn refusal(&self, argv: &[&str]) -> String {
        match self.resolve(argv) {
            Err(message) => message,
            other => panic!("{argv:?} gave {other:?}"),
        }
    }
}

const JAR: &str = "local:///opt/app.jar";

/// Options that make a complete command line, then the given ones, then the application.
fn base<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let mut argv = vec!["--master", "k8s://https://h:6443", "--deploy-mode", "cluster", "--class", "a.Main"];
    argv.extend(more);
    argv.push(JAR);
    argv
}

fn conf(effective: &Effective) -> BTreeMap<&str, &str> {
    effective.submission.conf.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect()
}

#[test]
fn the_keys_that_spark_always_writes_are_written() {
    let effective = World::empty().submit(&base(&[]));
    let expected = BTreeMap::from([
        ("spark.app.name", "a.Main"),
        ("spark.app.submitTime", "1700000000000"),
        ("spark.jars", JAR),
        ("spark.master", "k8s://https://h:6443"),
        ("spark.submit.deployMode", "cluster"),
        ("spark.submit.pyFiles", ""),
    ]);
    assert_eq!(conf(&effective), expected);
    assert_eq!(effective.submission.main, MainResource::Jar(JAR.to_owned()));
    assert_eq!(effective.submission.main_class, "a.Main");
    assert!(effective.warnings.is_empty());
}

#[test]
fn a_given_submit_time_stays_and_a_given_driver_host_goes() {
    let effective = World::empty().submit(&base(&["-c", "spark.app.submitTime=5", "-c", "spark.driver.host=h"]));
    assert_eq!(conf(&effective)["spark.app.submitTime"], "5");
    assert!(!conf(&effective).contains_key("spark.driver.host"));
}

#[test]
fn options_become_keys_and_win_over_conf() {
    for (option, key) in [
        ("--executor-memory", "spark.executor.memory"),
        ("--executor-cores", "spark.executor.cores"),
        ("--num-executors", "spark.executor.instances"),
        ("--driver-cores", "spark.driver.cores"),
        ("--principal", "spark.kerberos.principal"),
        ("--packages", "spark.jars.packages"),
        ("--exclude-packages", "spark.jars.excludes"),
        ("--repositories", "spark.jars.repositories"),
        ("--name", "spark.app.name"),
    ] {
        let setting = format!("{key}=7");
        for argv in
            [base(&[option, "3"]), base(&[option, "3", "--conf", &setting]), base(&["-c", &setting, option, "3"])]
        {
            let effective = World::empty().submit(&argv);
            assert_eq!(conf(&effective)[key], "3", "{argv:?}");
            assert!(matches!(effective.provenance[key], Origin::Flag(flag) if flag == option));
        }
        let effective = World::empty().submit(&base(&["--conf", &setting]));
        assert_eq!(conf(&effective)[key], "7");
        assert_eq!(effective.provenance[key], Origin::Conf);
    }
}

#[test]
fn options_that_spark_s_launcher_rewrites_compete_with_conf_by_position() {
    for (option, key) in [
        ("--driver-memory", "spark.driver.memory"),
        ("--driver-class-path", "spark.driver.extraClassPath"),
        ("--driver-java-options", "spark.driver.extraJavaOptions"),
        ("--driver-library-path", "spark.driver.extraLibraryPath"),
    ] {
        let setting = format!("{key}=7g");
        let last = |argv: &[&str]| conf(&World::empty().submit(&base(argv)))[key].to_owned();
        assert_eq!(last(&[option, "3g", "--conf", &setting]), "7g");
        assert_eq!(last(&["--conf", &setting, option, "3g"]), "3g");
    }
}

#[test]
fn conf_wins_over_files_and_files_win_over_the_environment() {
    let world = World::empty()
        .env("SPARK_CONF_DIR", "/conf")
        .env("SPARK_EXECUTOR_MEMORY", "9g")
        .env("SPARK_EXECUTOR_CORES", "9")
        .files(&[
            ("/w/my.properties", "spark.a file\nspark.b file\nspark.executor.memory 2g\n"),
            ("/conf/spark-defaults.conf", "spark.a defaults\nspark.c defaults\n"),
        ]);
    let given = world.submit(&base(&["--properties-file", "my.properties", "--conf", "spark.b=conf"]));
    let seen = conf(&given);
    assert_eq!((seen["spark.a"], seen["spark.b"]), ("file", "conf"));
    assert_eq!(seen["spark.executor.memory"], "2g");
    assert_eq!(seen["spark.executor.cores"], "9");
    assert!(!seen.contains_key("spark.c"), "spark-defaults.conf is not read beside --properties-file");
    assert_eq!(given.provenance["spark.a"], Origin::PropertiesFile("my.properties".to_owned()));
    assert_eq!(given.provenance["spark.executor.cores"], Origin::Environment("SPARK_EXECUTOR_CORES"));

    let both = world.submit(&base(&["--properties-file", "my.properties", "--load-spark-defaults"]));
    assert_eq!((conf(&both)["spark.a"], conf(&both)["spark.c"]), ("file", "defaults"));
    let defaults = world.submit(&base(&[]));
    assert_eq!(conf(&defaults)["spark.a"], "defaults");
    assert_eq!(defaults.provenance["spark.a"], Origin::Defaults("/conf/spark-defaults.conf".to_owned()));
}

#[test]
fn spark_home_has_defaults_too_unless_a_conf_dir_is_given() {
    let files = [("/home/conf/spark-defaults.conf", "spark.a home"), ("/conf/x", "")];
    let home = World::empty().env("SPARK_HOME", "/home").files(&files);
    assert_eq!(conf(&home.submit(&base(&[])))["spark.a"], "home");
    let dir = home.env("SPARK_CONF_DIR", "/conf");
    assert!(!conf(&dir.submit(&base(&[]))).contains_key("spark.a"));
}

#[test]
fn a_script_that_spark_would_run_first_is_pointed_out() {
    let world = World::empty().env("SPARK_CONF_DIR", "/conf").files(&[("/conf/spark-env.sh", "export MASTER=k8s://h")]);
    assert_eq!(
        world.submit(&base(&[])).warnings,
        ["/conf/spark-env.sh is not run: set the variables that this submission needs in the environment"]
    );
}

#[test]
fn master_and_deploy_mode_come_from_anywhere() {
    let world = World::empty().env("MASTER", "k8s://m").env("DEPLOY_MODE", "cluster");
    let effective = world.submit(&["--class", "a.Main", JAR]);
    assert_eq!(conf(&effective)["spark.master"], "k8s://https://m");
    assert_eq!(effective.provenance["spark.master"], Origin::Environment("MASTER"));
    let conf_first = world.submit(&["--class", "a.Main", "--conf", "spark.master=k8s://c", JAR]);
    assert_eq!(conf(&conf_first)["spark.master"], "k8s://https://c");
    assert_eq!(World::empty().resolve(&["--master", "k8s://h", "--class", "a", JAR]), Ok(Resolved::Client));
    assert_eq!(world.resolve(&["--deploy-mode", "client", JAR]), Ok(Resolved::Client));
}

#[test]
fn keys_outside_spark_are_dropped_with_a_warning() {
    let effective = World::empty().submit(&base(&["--conf", "foo=1", "--conf", "sparky.x=1"]));
    assert!(!conf(&effective).contains_key("foo"));
    assert_eq!(
        effective.warnings,
        [
            "foo (from --conf) is ignored: Spark only accepts keys that start with `spark.`",
            "sparky.x (from --conf) is ignored: Spark only accepts keys that start with `spark.`",
        ]
    );
}

#[test]
fn the_name_falls_back_to_class_and_file() {
    let name = |argv: &[&str]| conf(&World::empty().submit(argv))["spark.app.name"].to_owned();
    let cluster = ["--master", "k8s://h", "--deploy-mode", "cluster"];
    let with = |more: &[&'static str]| name(&[&cluster[..], more].concat());
    assert_eq!(with(&["--name", "n", "--conf", "spark.app.name=c", "app.py"]), "n");
    assert_eq!(with(&["--conf", "spark.app.name=c", "app.py"]), "c");
    assert_eq!(with(&["--class", "a.Main", JAR]), "a.Main");
    assert_eq!(with(&["local:///opt/dir/app.py"]), "app.py");
    assert_eq!(with(&["dir/my app.py"]), "my%20app.py");
}

#[test]
fn the_kind_of_application_follows_its_suffix() {
    let main = |resource: &'static str| {
        let argv = ["--master", "k8s://h", "--deploy-mode", "cluster", "--class", "a.Main", resource, "1"];
        let submission = World::empty().submit(&argv).submission;
        assert_eq!(submission.arguments, ["1"]);
        (submission.main.clone(), submission.main_class.clone(), submission.conf.get("spark.jars").cloned())
    };
    let python = "org.apache.spark.deploy.PythonRunner".to_owned();
    assert_eq!(main("app.py"), (MainResource::Python("file:/w/app.py".into()), python, None));
    let r = "org.apache.spark.deploy.RRunner".to_owned();
    assert_eq!(main("local:///a.R"), (MainResource::R("local:///a.R".into()), r, None));
    let java = "a.Main".to_owned();
    assert_eq!(
        main("s3a://b/a.jar"),
        (MainResource::Jar("s3a://b/a.jar".into()), java.clone(), Some("s3a://b/a.jar".into()))
    );
    assert_eq!(main("spark-internal"), (MainResource::None, java, Some(String::new())));
}

#[test]
fn file_lists_become_uris_and_the_application_stands_last_among_the_jars() {
    let world = World::empty().files(&[("/w/a.jar", ""), ("/w/b.jar", ""), ("/w/m.py", "")]);
    let seen = world.submit(&base(&[
        "--jars",
        "*.jar",
        "--files",
        "x y,local:///f",
        "--archives",
        "e.tgz#env",
        "--py-files",
        "m.py,n.py",
    ]));
    let seen = conf(&seen);
    assert_eq!(seen["spark.jars"], format!("file:/w/a.jar,file:/w/b.jar,{JAR}"));
    assert_eq!(seen["spark.files"], "file:/w/x%20y,local:///f");
    assert_eq!(seen["spark.archives"], "file:/w/e.tgz#env");
    assert_eq!(seen["spark.submit.pyFiles"], "file:///w/m.py,file:/w/n.py");
    let keys = world.submit(&base(&["--conf", "spark.jars= a.jar , b.jar", "--conf", "spark.submit.pyFiles=m.py, q"]));
    assert_eq!(conf(&keys)["spark.jars"], format!("file:///w/a.jar,file:///w/b.jar,{JAR}"));
    assert_eq!(conf(&keys)["spark.submit.pyFiles"], "file:///w/m.py,file:/w/q");
}

#[test]
fn a_glob_that_finds_nothing_is_dropped_with_a_warning() {
    let effective = World::empty().submit(&base(&["--files", "none*"]));
    assert_eq!(conf(&effective)["spark.files"], "");
    assert_eq!(
        effective.warnings,
        ["spark.files (from --files): file:/w/none* is ignored: no regular file found there"]
    );
}

#[test]
fn run_example_runs_the_examples_of_the_image_or_of_spark_home() {
    let argv = ["run-example", "--master", "k8s://h", "--deploy-mode", "cluster", "SparkPi", "10"];
    let image = World::empty().submit(&argv).submission;
    let jar = "local:///opt/spark/examples/jars/spark-examples.jar";
    assert_eq!(image.main, MainResource::Jar(jar.to_owned()));
    assert_eq!(image.conf["spark.jars"], jar);
    assert_eq!(image.main_class, "org.apache.spark.examples.SparkPi");
    let dir = "/home/examples/jars";
    let world = World::empty()
        .env("SPARK_HOME", "/home")
        .files(&[(&format!("{dir}/scopt.jar"), ""), (&format!("{dir}/spark-examples_2.13.jar"), "")]);
    let home = world.submit(&argv).submission;
    assert_eq!(home.main, MainResource::Jar(format!("file:{dir}/spark-examples_2.13.jar")));
    assert_eq!(
        home.conf["spark.jars"],
        format!("file://{dir}/scopt.jar,file://{dir}/spark-examples_2.13.jar,file:{dir}/spark-examples_2.13.jar")
    );
}

#[test]
fn the_version_comes_from_the_option_the_image_or_the_spark_on_this_machine() {
    let home = World::empty().env("SPARK_HOME", "/home/").files(&[
        ("/home/RELEASE", "Spark 4.0.2 (git revision 1) built for Hadoop 3.4.1\n"),
        ("/home/jars/spark-core_2.13-4.2.1.jar", ""),
    ]);
    let package = World::empty()
        .env("SPARK_HOME", "home")
        .files(&[("/w/home/jars/scala-library-2.13.18.jar", ""), ("/w/home/jars/spark-core_2.13-4.2.1.jar", "")]);
    let told = |world: &World, more: &[&str]| {
        let effective = world.submit(&base(more));
        assert!(effective.warnings.is_empty(), "{:?}", effective.warnings);
        (effective.submission.version.to_string(), effective.version_from)
    };
    let version = |more: &[&str]| told(&home, more);
    let image = "spark.kubernetes.container.image=apache/spark:3.5.9";
    let driver = "spark.kubernetes.driver.container.image=apache/spark:4.1.4-scala";
    assert_eq!(version(&["--conf", image]), ("3.5.9".into(), VersionFrom::ImageTag));
    assert_eq!(version(&["--conf", image, "--conf", driver]), ("4.1.4".into(), VersionFrom::ImageTag));
    assert_eq!(version(&["--conf", image, "--spark-version", "4.0.5"]), ("4.0.5".into(), VersionFrom::Flag));
    let latest = "spark.kubernetes.container.image=apache/spark:latest";
    assert_eq!(version(&["--conf", latest]), ("4.0.2".into(), VersionFrom::SparkHome));
    assert_eq!(told(&package, &["--conf", latest]), ("4.2.1".into(), VersionFrom::SparkHome));
}

#[test]
fn an_image_that_tells_no_version_is_planned_for_the_oldest_spark_that_knows_the_settings() {
    let assumed = |image: &str, more: &[&str]| {
        let image = format!("spark.kubernetes.container.image={image}");
        let mut argv = vec!["--conf", &image];
        argv.extend(more);
        let effective = World::empty().env("SPARK_HOME", "/nothing-there").submit(&base(&argv));
        assert_eq!(effective.version_from, VersionFrom::Assumed);
        assert!(effective.submission.version.is_assumed());
        (effective.submission.version.line(), effective.warnings.join("; "))
    };
    for image in ["apache/spark:latest", "team/etl:2026.01.15", "team/etl@sha256:0123", "host:5000/spark"] {
        let (line, warning) = assumed(image, &[]);
        assert_eq!(line, Line::V3_5);
        assert_eq!(
            warning,
            format!(
                "the Spark version in {image} is unknown: planning for Spark 3.5, the oldest line that supports the \
                 settings; add --spark-version, such as --spark-version 4.3.0"
            )
        );
    }
    let (line, warning) = assumed("apache/spark:3.4.1", &[]);
    let said = "apache/spark:3.4.1 is Spark 3.4.1, older than any version Firesteel supports: planning for Spark 3.5";
    assert_eq!((line, warning.as_str()), (Line::V3_5, said));
    let needs = |more: &[&str]| assumed("spark:latest", more).0;
    assert_eq!(needs(&["--load-spark-defaults"]), Line::V4_0);
    assert_eq!(needs(&["--conf", "spark.kubernetes.executor.useDriverPodIP=true"]), Line::V4_1);
    assert_eq!(needs(&["--driver-memory", "1Gi"]), Line::V4_2);
}

#[test]
fn a_reference_to_a_version_that_nothing_tells_is_refused() {
    let image = ["--conf", "spark.kubernetes.container.image=apache/spark:{{SPARK_VERSION}}"];
    assert_eq!(
        World::empty().refusal(&base(&image)),
        "spark.kubernetes.container.image=apache/spark:{{SPARK_VERSION}}: the version to put in place of \
         {{SPARK_VERSION}} is unknown; add --spark-version, or set SPARK_HOME"
    );
    let jar = "/home/jars/spark-core_2.13-4.2.1.jar";
    let home = World::empty().env("SPARK_HOME", "/home").files(&[(jar, "")]).submit(&base(&image));
    assert_eq!(home.submission.version.to_string(), "4.2.1");
}

#[test]
fn options_without_effect_on_kubernetes_are_pointed_out() {
    let effective = World::empty().submit(&base(&["--supervise", "--queue", "q", "--total-executor-cores", "4"]));
    assert_eq!(
        effective.warnings,
        [
            "--supervise has no effect on Kubernetes",
            "--queue has no effect on Kubernetes",
            "--total-executor-cores has no effect on Kubernetes",
        ]
    );
    assert!(!conf(&effective).contains_key("spark.cores.max"));
}

#[test]
fn every_key_has_an_origin_and_every_origin_a_key() {
    let world = World::empty().env("SPARK_DRIVER_MEMORY", "2g");
    let effective = world.submit(&base(&["--jars", "x.jar", "--conf", "foo=1", "--conf", "spark.driver.host=h"]));
    let keys: Vec<_> = effective.submission.conf.keys().collect();
    let origins: Vec<_> = effective.provenance.keys().collect();
    assert_eq!(keys, origins);
}

#[test]
fn kill_and_status_need_a_master_and_keep_the_configuration() {
    let world = World::empty();
    let control = |argv: &[&str]| match world.resolve(argv) {
        Ok(Resolved::Kill(control) | Resolved::Status(control)) => control,
        other => panic!("{other:?}"),
    };
    let kill = control(&["--kill", "ns:p*", "--master", "k8s://h", "--conf", "spark.kubernetes.context=c"]);
    let conf = BTreeMap::from([("spark.kubernetes.context", "c"), ("spark.master", "k8s://https://h")]);
    let conf = conf.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
    assert_eq!(kill, Control { id: "ns:p*".into(), conf, warnings: vec![] });
    assert_eq!(world.refusal(&["--status", "p"]), "no master is given; write --master k8s://https://HOST:PORT");
    assert!(world.refusal(&["--status", "p", "--master", "yarn"]).contains("k8s://"));
}

#[test]
fn refusals_are_one_sentence_with_a_remedy() {
    let world = World::empty().files(&[("/w/bad.properties", "spark.x=\\u12"), ("/w/no.jar", "no jar")]);
    let cluster = ["--master", "k8s://h", "--deploy-mode", "cluster"];
    let bare = |more: &[&'static str]| [&cluster[..], more].concat();
    let refused: Vec<(Vec<&str>, &str)> = vec![
        (bare(&["--class", "a"]), "the application is missing; write its jar, Python or R file after the options"),
        (
            vec!["--deploy-mode", "cluster", "--class", "a", JAR],
            "no master is given; write --master k8s://https://HOST:PORT",
        ),
        (
            base(&["--conf", "spark.driver.memory=1x"]),
            "spark.driver.memory (from --conf): `1x` is not a size; write 512m or 2g",
        ),
        (
            base(&["--driver-memory", "0"]),
            "spark.driver.memory (from --driver-memory): the memory must be greater than zero, but is `0`; write 512m \
             or 2g",
        ),
        (
            base(&["--executor-memory", "1.5g"]),
            "spark.executor.memory (from --executor-memory): `1.5g` has a fraction, which Spark refuses; write a whole \
             number of a smaller unit, such as 1536m for 1.5g",
        ),
        (
            base(&["--driver-cores", "abc"]),
            "spark.driver.cores (from --driver-cores): `abc` is not a positive whole number; write 1 or more",
        ),
        (
            base(&["--conf", "spark.executor.instances=0"]),
            "spark.executor.instances (from --conf): `0` is not a positive whole number; write 1 or more, or set \
             spark.dynamicAllocation.enabled=true",
        ),
        (
            base(&["--total-executor-cores", "x"]),
            "spark.cores.max (from --total-executor-cores): `x` is not a positive whole number; write 1 or more",
        ),
        (
            base(&["--proxy-user", "u", "--principal", "p"]),
            "--proxy-user cannot be combined with --principal (or spark.kerberos.principal); give only one of them",
        ),
        (
            base(&["--remote", "sc://h"]),
            "--remote (or spark.remote) cannot be combined with a master or a deploy mode; remove one of them",
        ),
        (bare(&["spark-shell"]), "a shell (spark-shell) cannot run in cluster mode; use --deploy-mode client"),
        (
            bare(&["--class", "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2", "spark-internal"]),
            "the Spark Thrift server cannot run in cluster mode; use --deploy-mode client",
        ),
        (
            bare(&[JAR]),
            "the main class of local:///opt/app.jar is not known (the jar is inside the image); give it with --class",
        ),
        (
            bare(&["no.jar"]),
            "the main class of file:/w/no.jar is not known (it is not a valid jar); give it with --class",
        ),
        (
            bare(&["missing.jar"]),
            "the main class of file:/w/missing.jar is not known (no such file); give it with --class",
        ),
        (
            base(&["--properties-file", "none"]),
            "the properties file none cannot be read (no such file); check the path",
        ),
        (
            base(&["--properties-file", "bad.properties"]),
            "the properties file bad.properties: `\\u12` is not a unicode escape; write \\u and four hexadecimal \
             digits, or double the backslash",
        ),
        (
            base(&["--conf", "spark.kubernetes.driver.pod.featureSteps=a.B"]),
            "spark.kubernetes.driver.pod.featureSteps=a.B names Java classes that only a JVM can run; remove it and \
             use a pod template (spark.kubernetes.driver.podTemplateFile), or submit with Spark's own spark-submit",
        ),
        (
            base(&["--spark-version", "3.5.9", "--load-spark-defaults"]),
            "--load-spark-defaults does not exist in Spark 3.5.9; it was added in Spark 4.0",
        ),
        (
            base(&["--spark-version", "4.1.4", "--driver-memory", "1Gi"]),
            "spark.driver.memory (from --driver-memory): `1Gi` has a suffix that Spark only accepts since 4.2; leave \
             out the i, as in 512m or 2g",
        ),
        (
            base(&["--driver-java-options", "-Xmx1g"]),
            "spark.driver.extraJavaOptions (from --driver-java-options): the heap size is set by spark.driver.memory; \
             remove the -Xmx from `-Xmx1g` and use --driver-memory",
        ),
        (
            base(&["--principal", "p", "--keytab", "none.keytab"]),
            "the keytab none.keytab does not exist; check spark.kerberos.keytab or --keytab",
        ),
        (
            base(&["--files", "local:///a b"]),
            "spark.files (from --files): `local:///a b` is not a valid URI; percent-encode spaces (%20) and other \
             special characters",
        ),
        (
            vec!["--master", "k8s://h", "--conf", "spark.submit.deployMode=clusters", "--class", "a", JAR],
            "spark.submit.deployMode (from --conf): `clusters` is neither `client` nor `cluster`; write --deploy-mode \
             cluster to run the driver in a pod",
        ),
    ];
    for (argv, message) in refused {
        assert_eq!(world.refusal(&argv), message, "{argv:?}");
    }
}

#[test]
fn dynamic_allocation_allows_no_executors_at_first() {
    let more = ["--num-executors", "0", "--conf", "spark.dynamicAllocation.enabled=TRUE"];
    assert_eq!(conf(&World::empty().submit(&base(&more)))["spark.executor.instances"], "0");
}

#[test]
fn older_kerberos_keys_count() {
    let world = World::empty();
    let more = ["--conf", "spark.yarn.principal=p", "--conf", "spark.yarn.keytab=local:///k"];
    let effective = world.submit(&base(&more));
    assert_eq!(conf(&effective)["spark.kerberos.principal"], "p");
    assert_eq!(conf(&effective)["spark.kerberos.keytab"], "local:///k");
}

proptest! {
    #[test]
    fn any_command_line_resolves_or_gets_one_sentence(
        settings in proptest::collection::vec(("[a-z.]{0,6}|spark\\.(jars|files|master|driver\\.memory|executor\\.cores)", "\\PC{0,12}"), 0..5),
        resource in "\\PC{1,10}",
    ) {
        let mut argv: Vec<String> =
            ["--master", "k8s://h", "--deploy-mode", "cluster", "--class", "a"].map(str::to_owned).to_vec();
        for (key, value) in settings {
            argv.extend(["--conf".to_owned(), format!("{key}={value}")]);
        }
        argv.push(resource);
        let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
        if let Err(message) = World::empty().resolve(&argv) {
            prop_assert!(!message.is_empty());
            prop_assert!(!message.contains('\n'));
        }
    }
}
