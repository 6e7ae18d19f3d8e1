//! Why a driver ended: from its exit code and the end of its log to a sentence, evidence and a remedy.
//!
//! Pure. The program controls its log, so it proves nothing: a suggested command names only the pod's real service
//! account and namespace, and every part of the result is bounded.

use firesteel_spark::names::CONNECT_SERVER;

use crate::pod::{Ended, OUT_OF_MEMORY, Role};

use super::exceptions::{self, Chain, Link, Weight};
use super::log::Log;

/// The maximum size of a cause, all lines together.
pub const MOST_BYTES: usize = 2048;
const MOST_OF_A_SENTENCE: usize = 700;
const MOST_OF_EVIDENCE: usize = 240;
/// How many log lines to show if there is no exception.
const LAST_LINES: usize = 8;

/// Logged once the SparkContext has stopped, whatever stopped it.
const CONSEQUENCES: [&str; 3] = [
    "Spark context stopped while waiting for backend",
    "cancelled because SparkContext was shut down",
    "Cannot call methods on a stopped SparkContext",
];

/// What is known about a driver without its log.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    pub namespace: &'a str,
    pub service_account: &'a str,
}

impl<'a> Facts<'a> {
    pub fn of(pod: &'a k8s_openapi::api::core::v1::Pod) -> Self {
        let account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.as_deref());
        Facts {
            namespace: pod.metadata.namespace.as_deref().unwrap_or_default(),
            service_account: account.unwrap_or("default"),
        }
    }
}

/// Why a driver ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    pub kind: CauseKind,
    /// Without a full stop.
    pub sentence: String,
    /// The log lines that show it.
    pub evidence: Vec<String>,
    /// What to do about it: a command or a setting.
    pub remedy: Option<String>,
}

/// Distinguishable causes of death.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CauseKind {
    /// The driver's service account lacks a permission.
    Forbidden,
    ClassNotFound,
    ModuleNotFound,
    FileNotFound,
    NoPython,
    /// The JVM heap was full; the container was not.
    HeapFull,
    ResultTooLarge,
    PortInUse,
    /// The driver cannot bind the address it was given.
    BadAddress,
    /// A host name, such as that of the driver's Service, does not resolve.
    UnknownHost,
    NoConnection,
    EventLogDirectory,
    Credentials,
    /// Executors and driver, or program and Spark, have different versions.
    VersionMismatch,
    DiskFull,
    ExecutorsLost,
    /// Any other exception.
    Exception,
    /// No exception: the program chose its exit code.
    ExitCode,
}

impl std::fmt::Display for Cause {
    /// The sentence, followed by evidence and remedy on separate lines.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut left = MOST_BYTES.saturating_sub(self.remedy.as_ref().map_or(0, |remedy| remedy.len() + 16));
        let sentence = super::cut(&self.sentence, left.min(MOST_OF_A_SENTENCE));
        f.write_str(sentence)?;
        left -= sentence.len();
        if self.kind == CauseKind::ExitCode && !self.evidence.is_empty() {
            f.write_str("\nlast lines of the driver's log:")?;
            left = left.saturating_sub(40);
        }
        for line in &self.evidence {
            let line = super::cut(line, MOST_OF_EVIDENCE);
            if line.len() + 3 > left {
                break;
            }
            left -= line.len() + 3;
            write!(f, "\n  {line}")?;
        }
        match &self.remedy {
            Some(remedy) => write!(f, "\nWhat to do: {remedy}"),
            None => Ok(()),
        }
    }
}

/// Why a driver that failed by itself ended, according to its log.
pub fn cause(ended: &Ended, log: &Log, facts: Facts<'_>) -> Option<Cause> {
    // The log does not explain a driver that was OOM-killed or terminated.
    if ended.reason == OUT_OF_MEMORY || matches!(ended.exit_code, 137 | 143) {
        return None;
    }
    let lines = log.lines();
    let mut chains = exceptions::find(lines);
    // Consequences of the SparkContext's end do not explain it.
    chains.retain(|chain| !CONSEQUENCES.iter().any(|words| chain.saying(words).is_some()));
    let heaviest = chains.iter().map(|chain| chain.weight).max();
    let chain = chains.iter().rev().find(|chain| Some(chain.weight) == heaviest);
    let fatal = chain.filter(|chain| chain.weight == Weight::Fatal);
    fatal
        .map(|chain| of_chain(chain, ended, facts))
        .or_else(|| of_line(lines, &chains, facts))
        .or_else(|| chain.filter(|chain| chain.weight >= Weight::Error).map(|chain| of_chain(chain, ended, facts)))
        .or_else(|| of_exit(ended, lines))
}

/// What a chain of exceptions says.
fn of_chain(chain: &Chain, ended: &Ended, facts: Facts<'_>) -> Cause {
    let known = [
        forbidden(chain, facts),
        address(chain),
        memory(chain),
        versions(chain),
        event_log(chain),
        credentials(chain),
        host(chain, facts),
        python(chain),
        class(chain),
        file(chain),
        disk(chain),
        executors(chain),
        connection(chain),
        exited(chain, ended),
    ];
    let found = known.into_iter().flatten().next().unwrap_or_else(|| exception(chain));
    // Where in the program it happened, if it is the program's fault.
    let told = matches!(
        found.kind,
        CauseKind::Forbidden | CauseKind::PortInUse | CauseKind::BadAddress | CauseKind::EventLogDirectory
    );
    let evidence = if told { Vec::new() } else { evidence(chain) };
    Cause { evidence, ..found }
}

fn plain(kind: CauseKind, sentence: String, remedy: &str) -> Cause {
    let remedy = (!remedy.is_empty()).then(|| remedy.to_owned());
    Cause { kind, sentence, evidence: Vec::new(), remedy }
}

/// `, at boom.py:3`.
fn at(chain: &Chain) -> String {
    match chain.own_frame() {
        Some(frame) if frame.place.contains(".py:") || !frame.function.contains('.') => format!(", at {}", frame.place),
        Some(frame) => format!(", at {} ({})", frame.place, frame.function),
        None => String::new(),
    }
}

/// The outermost exception, the innermost cause, and the nearest call in the user's program.
fn evidence(chain: &Chain) -> Vec<String> {
    let mut shown: Vec<String> = Vec::new();
    let mut show = |line: String| {
        if !line.is_empty() && !shown.contains(&line) {
            shown.push(line);
        }
    };
    let header = |link: &Link| match link.words() {
        "" => link.class.clone(),
        words => format!("{}: {words}", link.class),
    };
    if let (Some(outer), Some(inner)) = (chain.links.first(), chain.innermost()) {
        // PySpark's own exceptions only wrap another.
        if !matches!(outer.name(), "Py4JJavaError" | "PythonException") && chain.links.len() > 1 {
            show(header(outer));
        }
        if chain.links.len() > 1 || !inner.python {
            show(header(inner));
        }
    }
    if let Some(frame) = chain.own_frame() {
        show(frame.line.clone());
        if let Some(code) = &frame.code {
            show(format!("  {code}"));
        }
    }
    shown
}

/// An exception about which nothing more is known.
fn exception(chain: &Chain) -> Cause {
    let words = |link: &Link| match link.words() {
        "" => link.name().to_owned(),
        words => format!("{}: {}", link.name(), words.trim_end_matches([';', '.'])),
    };
    let sentence = match (chain.links.first(), chain.innermost()) {
        // In Python the last exception counts; what it was raised from explains it.
        (Some(outer), Some(inner))
            if outer.python && inner.python && outer.name() != "PythonException" && chain.links.len() > 1 =>
        {
            format!("{}{} (caused by {})", words(outer), at(chain), words(inner))
        }
        (_, Some(inner)) => words(inner) + &at(chain),
        _ => "an exception ended it".to_owned(),
    };
    plain(CauseKind::Exception, sentence, "")
}

/// `User "system:serviceaccount:NS:NAME" cannot VERB resource "pods" in API group "" in the namespace "NS"`.
fn forbidden(chain: &Chain, facts: Facts<'_>) -> Option<Cause> {
    let line = chain.links.iter().rev().flat_map(|link| &link.message).find(|line| refusal(line).is_some())?;
    Some(refused(&refusal(line)?, facts))
}

/// What the API server denied, in its own words.
struct Denied<'a> {
    user: &'a str,
    verb: &'a str,
    resource: &'a str,
    namespace: Option<&'a str>,
}

fn refusal(line: &str) -> Option<Denied<'_>> {
    let (_, rest) = line.split_once("User \"")?;
    let (user, rest) = rest.split_once("\" cannot ")?;
    let (verb, rest) = rest.split_once(" resource \"")?;
    let (resource, rest) = rest.split_once('"')?;
    let namespace =
        rest.split_once("in the namespace \"").and_then(|(_, rest)| rest.split_once('"')).map(|(name, _)| name);
    let word = |text: &str| !text.is_empty() && text.len() < 64 && text.bytes().all(|b| b.is_ascii_graphic());
    (word(verb) && word(resource) && namespace.is_none_or(word) && user.len() < 256).then_some(Denied {
        user,
        verb,
        resource,
        namespace,
    })
}

fn refused(refusal: &Denied<'_>, facts: Facts<'_>) -> Cause {
    let Denied { user, verb, resource, namespace } = *refusal;
    let account = user.strip_prefix("system:serviceaccount:").and_then(|user| user.split_once(':'));
    let place = namespace.map_or_else(|| "the whole cluster".to_owned(), |name| format!("`{name}`"));
    let who = match account {
        Some((home, name)) if Some(home) == namespace => format!("the driver's account `{name}`"),
        Some((home, name)) => format!("the driver's account `{name}` of namespace `{home}`"),
        None => format!("the driver's user `{user}`"),
    };
    let sentence = format!("{who} may not {verb} {resource} in {place}");
    // Only for the pod's real account: a log may say anything.
    let own = account == Some((facts.namespace, facts.service_account)) && namespace == Some(facts.namespace);
    let (home, name) = (facts.namespace, facts.service_account);
    let more = match resource.split('/').next().unwrap_or_default() {
        "executorgrants" | "executorledgers" => " --executors-outside",
        "statefulsets" => " --statefulset",
        _ => "",
    };
    let remedy = match (own, name) {
        (true, "default") => format!(
            "firesteel setup -n {home}{more} --apply creates the account `spark`; run the driver with it (spec.driver.serviceAccount: spark, or --conf spark.kubernetes.authenticate.driver.serviceAccountName=spark)"
        ),
        (true, name) => format!("firesteel setup -n {home} --service-account {name}{more} --apply"),
        (false, _) => format!("ask an administrator to grant it with a Role and a RoleBinding in {place}"),
    };
    Cause { kind: CauseKind::Forbidden, sentence, evidence: Vec::new(), remedy: Some(remedy) }
}

/// A port already in use, or an address that is not the driver's.
fn address(chain: &Chain) -> Option<Cause> {
    let words = chain.of("BindException").map(Link::words)?;
    let service = words.split_once("Service '").and_then(|(_, rest)| rest.split_once('\'')).map(|(service, _)| service);
    let key = match service {
        Some("sparkDriver") => "spark.driver.port",
        Some("SparkUI") => "spark.ui.port",
        Some(name) if name.ends_with("NettyBlockTransferService") => "spark.driver.blockManager.port",
        _ => "the port's setting",
    };
    let service = service.unwrap_or("a service");
    if words.contains("Cannot assign requested address") {
        let sentence = format!(
            "the driver cannot listen on the address it was given for {service}: it is not an address of its pod"
        );
        return Some(plain(
            CauseKind::BadAddress,
            sentence,
            "remove spark.driver.bindAddress and spark.driver.host from sparkConf: Spark's own image sets the address of the pod",
        ));
    }
    let port = words
        .split_once("starting from ")
        .map(|(_, rest)| rest.chars().take_while(char::is_ascii_digit).collect::<String>());
    let port =
        port.filter(|port| !port.is_empty() && port.len() < 6).map_or_else(String::new, |port| format!(" {port}"));
    let sentence = format!("port{port} for {service} is in use already");
    Some(plain(
        CauseKind::PortInUse,
        sentence,
        &format!("set {key} in sparkConf to a free port; drivers with hostNetwork: true share the ports of their node"),
    ))
}

fn memory(chain: &Chain) -> Option<Cause> {
    if let Some(words) = chain.saying("is bigger than spark.driver.maxResultSize") {
        let size = words.find("Total size").map_or(words, |from| &words[from..]);
        let sentence = format!("the results of a job are too large for the driver: {size}{}", at(chain));
        return Some(plain(
            CauseKind::ResultTooLarge,
            sentence,
            "write the result instead of collecting it, or raise spark.driver.maxResultSize (sparkConf) and spec.driver.memory together",
        ));
    }
    let words = chain.of("OutOfMemoryError").map(Link::words)?;
    Some(heap(words, &at(chain)))
}

fn heap(words: &str, at: &str) -> Cause {
    if words.contains("unable to create native thread") {
        let sentence = format!("the JVM could not start another thread ({words}){at}");
        return plain(
            CauseKind::HeapFull,
            sentence,
            "raise the process limit of the node or the pod, or use fewer threads",
        );
    }
    let sentence =
        format!("the JVM of the driver ran out of memory ({words}){at}; the container's own limit was not reached");
    plain(
        CauseKind::HeapFull,
        sentence,
        "raise spec.driver.memory (spark.driver.memory), or collect less into the driver",
    )
}

fn versions(chain: &Chain) -> Option<Cause> {
    let image = "use one image, and so one version of Spark, for driver and executors (spec.image, spark.kubernetes.container.image)";
    if let Some(words) =
        chain.saying("PYTHON_VERSION_MISMATCH").or_else(|| chain.saying("Python in worker has different version"))
    {
        let words = words.split_once("Python in worker").map_or(words, |(_, rest)| rest);
        let words = words.split(", PySpark").next().unwrap_or_default().trim();
        let sentence = format!("driver and executors have different versions of Python: the worker {words}");
        return Some(plain(
            CauseKind::VersionMismatch,
            sentence,
            "set spark.pyspark.python and spark.pyspark.driver.python to the same Python, or use one image for both",
        ));
    }
    if let Some(words) = chain.of("InvalidClassException").map(Link::words) {
        let class = words.split(';').next().unwrap_or_default().trim();
        let sentence = format!("driver and executors have different versions of {class} (InvalidClassException)");
        return Some(plain(CauseKind::VersionMismatch, sentence, image));
    }
    if let Some(words) = chain.of("UnsupportedClassVersionError").map(Link::words) {
        let sentence = format!("the application's jar was compiled for a newer Java than the image has: {words}");
        return Some(plain(
            CauseKind::VersionMismatch,
            sentence,
            "compile it with --release 17 or lower, or use an image with a newer Java",
        ));
    }
    let linkage = ["NoSuchMethodError", "NoSuchFieldError", "AbstractMethodError", "IncompatibleClassChangeError"];
    let link = linkage.iter().find_map(|class| chain.of(class))?;
    let sentence = format!(
        "a jar was compiled for another version of Spark, Scala or a library: {}: {}{}",
        link.name(),
        link.words(),
        at(chain)
    );
    Some(plain(
        CauseKind::VersionMismatch,
        sentence,
        "build the jar, and choose --packages and --jars, for the Spark and Scala version of the image",
    ))
}

fn event_log(chain: &Chain) -> Option<Cause> {
    let within =
        ["EventLogFileWriter", "EventLoggingListener", "EventLogFileWriters"].iter().any(|class| chain.calls(class));
    let link = chain.innermost().filter(|link| within && link.name() == "FileNotFoundException")?;
    let path = link
        .words()
        .trim_start_matches("File ")
        .split_once(" does not exist")
        .map_or(link.words(), |(path, _)| path.trim_start_matches("File "));
    let sentence = format!("the directory for event logs, {path}, does not exist");
    Some(plain(
        CauseKind::EventLogDirectory,
        sentence,
        "create it or mount a volume there, or set spark.eventLog.dir to storage that exists, such as s3a://bucket/path (or disable event logs with spark.eventLog.enabled: \"false\")",
    ))
}

fn credentials(chain: &Chain) -> Option<Cause> {
    let remedy = "give the driver's account a role for the bucket, or the driver and the executors keys from a Secret (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY by envSecretKeyRefs, spark.kubernetes.driver.secretKeyRef.*)";
    let missing = [
        "No AWS Credentials provided",
        "Unable to load credentials",
        "Unable to load AWS credentials",
        "No AuthWithAWS",
    ];
    if chain.of("NoAuthWithAWSException").is_some() || missing.iter().any(|words| chain.saying(words).is_some()) {
        return Some(plain(
            CauseKind::Credentials,
            format!("S3 cannot be used: there are no credentials{}", at(chain)),
            remedy,
        ));
    }
    let refusals = [
        ("InvalidAccessKeyId", "unknown access key"),
        ("SignatureDoesNotMatch", "the secret key does not match the access key"),
        ("ExpiredToken", "the session token has expired"),
        ("InvalidToken", "the session token is invalid"),
    ];
    for (code, meaning) in refusals {
        if chain.saying(code).is_some() {
            return Some(plain(
                CauseKind::Credentials,
                format!("S3 refused the credentials: {meaning} ({code}){}", at(chain)),
                remedy,
            ));
        }
    }
    let denied = ["Status Code: 403", "AccessDenied", "Access Denied", "AWSBadRequestException", "Forbidden"];
    let s3 = chain
        .links
        .iter()
        .any(|link| link.class.contains("s3a") || link.class.contains("amazon") || link.words().contains("s3a://"));
    if s3 && (denied.iter().any(|words| chain.saying(words).is_some()) || chain.of("AccessDeniedException").is_some()) {
        let bucket =
            chain.saying("s3a://").and_then(|line| line.find("s3a://").map(|from| &line[from..])).unwrap_or("s3a://…");
        let bucket = bucket.split([' ', ',', '"', '\'']).next().unwrap_or_default().trim_end_matches(':');
        let sentence = format!("S3 refused access to {bucket} (403){}", at(chain));
        return Some(plain(CauseKind::Credentials, sentence, remedy));
    }
    None
}

fn host(chain: &Chain, facts: Facts<'_>) -> Option<Cause> {
    let link = chain.of("UnknownHostException").or_else(|| chain.of("UnresolvedAddressException"))?;
    let host = link.words().split([':', ' ', ',']).next().unwrap_or_default();
    if host.is_empty() {
        return Some(plain(CauseKind::UnknownHost, "a host name cannot be resolved".to_owned(), ""));
    }
    let (what, remedy) = if host.starts_with("kubernetes.default") {
        ("the API server's name", "check the cluster's DNS (kubectl -n kube-system get pods -l k8s-app=kube-dns) and dnsPolicy of the pod, which is ClusterFirstWithHostNet with hostNetwork".to_owned())
    } else if host.contains("-svc.") {
        (
            "the name of the driver's service",
            format!(
                "check that the Service exists (kubectl -n {} get services) and that the cluster's DNS works",
                facts.namespace
            ),
        )
    } else {
        ("the host", "check the name in the settings and the cluster's DNS".to_owned())
    };
    Some(plain(CauseKind::UnknownHost, format!("{what} {host} is not known to DNS{}", at(chain)), &remedy))
}

fn python(chain: &Chain) -> Option<Cause> {
    if let Some(line) = chain.saying("Cannot run program \"") {
        let program = line
            .split_once("Cannot run program \"")
            .and_then(|(_, rest)| rest.split_once('"'))
            .map(|(program, _)| program)?;
        return Some(no_python(program));
    }
    let link = chain.of("ModuleNotFoundError")?;
    let module = link.words().split('\'').nth(1).unwrap_or_default();
    let sentence = format!("the Python module `{module}` is not installed{}", at(chain));
    Some(plain(
        CauseKind::ModuleNotFound,
        sentence,
        "install it in the image of driver and executors, or ship it with spec.deps.pyFiles (--py-files)",
    ))
}

fn no_python(program: &str) -> Cause {
    let name = program.rsplit('/').next().unwrap_or(program);
    if name.starts_with("python") {
        return plain(
            CauseKind::NoPython,
            format!("the image has no Python: `{program}` cannot be run"),
            "use an image with Python, such as apache/spark:<version>-python3 (spec.image), or set spark.pyspark.python to the one it has",
        );
    }
    plain(CauseKind::NoPython, format!("`{program}` cannot be run in the image"), "use an image that has it")
}

fn class(chain: &Chain) -> Option<Cause> {
    if let Some(line) = chain.saying("[DATA_SOURCE_NOT_FOUND]") {
        let source =
            line.split_once("data source: ").map_or("", |(_, rest)| rest.split(['.', ' ']).next().unwrap_or_default());
        let sentence = format!("Spark has no data source `{source}` (DATA_SOURCE_NOT_FOUND){}", at(chain));
        return Some(plain(
            CauseKind::ClassNotFound,
            sentence,
            &format!("add the package that holds it to spec.deps.packages (--packages){}", package(source)),
        ));
    }
    let link = ["ClassNotFoundException", "NoClassDefFoundError"].iter().find_map(|class| chain.of(class))?;
    let name = link.words().trim_start_matches("Class ").trim_end_matches(" not found").replace('/', ".");
    let name = name.split_whitespace().next().unwrap_or_default().to_owned();
    Some(missing_class(&name, &at(chain)))
}

/// The package of a commonly missing data source.
fn package(source: &str) -> &'static str {
    match source {
        "delta" => ": io.delta:delta-spark_<Scala version>:<version>",
        "iceberg" => ": org.apache.iceberg:iceberg-spark-runtime-<Spark version>_<Scala version>:<version>",
        "kafka" => ": org.apache.spark:spark-sql-kafka-0-10_<Scala version>:<Spark version>",
        "avro" => ": org.apache.spark:spark-avro_<Scala version>:<Spark version>",
        _ => "",
    }
}

fn missing_class(name: &str, at: &str) -> Cause {
    if name == CONNECT_SERVER {
        return plain(
            CauseKind::ClassNotFound,
            format!("the image contains no Spark Connect server: the class {name} was not found{at}"),
            "use Spark 4.0 or later, whose images contain it; for Spark 3.5 set spark.jars.packages (sparkConf) to \
             org.apache.spark:spark-connect_2.12:<Spark version>",
        );
    }
    let storage = [
        ("org.apache.hadoop.fs.s3a.", "s3a://", "org.apache.hadoop:hadoop-aws:<the image's Hadoop version>"),
        ("com.google.cloud.hadoop.", "gs://", "com.google.cloud.bigdataoss:gcs-connector:hadoop3-<version>"),
        ("org.apache.hadoop.fs.azurebfs.", "abfss://", "org.apache.hadoop:hadoop-azure:<the image's Hadoop version>"),
    ];
    if let Some((_, scheme, package)) = storage.iter().find(|(prefix, _, _)| name.starts_with(prefix)) {
        let sentence = format!("the image cannot read {scheme}: the class {name} is not in it{at}");
        return plain(
            CauseKind::ClassNotFound,
            sentence,
            &format!("add {package} to spec.deps.packages (--packages), or to the image"),
        );
    }
    plain(
        CauseKind::ClassNotFound,
        format!("the class {name} was not found{at}"),
        "check the name of the class, and that its jar is in the image or in spec.deps.jars (--jars, --packages)",
    )
}

fn file(chain: &Chain) -> Option<Cause> {
    let mount = "check the path; a path without a scheme is inside the pod: mount a volume there for driver and executors, or use object storage";
    let inner = chain
        .links
        .iter()
        .rev()
        .find(|link| link.words().contains("ath does not exist") || link.words().contains("[PATH_NOT_FOUND]"));
    if let Some(link) = inner {
        let path = link
            .words()
            .split_once("does not exist: ")
            .map_or("", |(_, rest)| rest.split(['\'', '"', ' ']).find(|p| !p.is_empty()).unwrap_or_default());
        let path = path.trim_end_matches(['.', ';', ',']);
        let sentence = format!("PATH_NOT_FOUND: the path {path} does not exist{}", at(chain));
        return Some(plain(CauseKind::FileNotFound, sentence, mount));
    }
    let link = ["FileNotFoundException", "NoSuchFileException", "FileNotFoundError"]
        .iter()
        .find_map(|class| chain.of(class))?;
    Some(plain(CauseKind::FileNotFound, format!("{}: {}{}", link.name(), link.words(), at(chain)), mount))
}

fn disk(chain: &Chain) -> Option<Cause> {
    chain.saying("No space left on device")?;
    let sentence = format!("a disk is full (No space left on device){}", at(chain));
    Some(plain(
        CauseKind::DiskFull,
        sentence,
        "give Spark larger local storage: a volume named spark-local-dir-1, or spark.kubernetes.local.dirs.tmpfs off",
    ))
}

fn executors(chain: &Chain) -> Option<Cause> {
    let line = chain.saying("ExecutorLostFailure")?;
    let reason = line.split_once("Reason: ").map_or("", |(_, rest)| rest).trim();
    let sentence = format!("a task failed too many times because its executors died: {reason}{}", at(chain));
    let memory = reason.contains("137") || reason.contains("OOM");
    let remedy = if memory {
        "raise spec.executor.memoryOverhead (spark.executor.memoryOverhead) or spec.executor.memory"
    } else {
        "see the logs of the executors, and status.executorState"
    };
    Some(plain(CauseKind::ExecutorsLost, sentence, remedy))
}

fn connection(chain: &Chain) -> Option<Cause> {
    let line = chain.saying("Connection refused").or_else(|| chain.saying("Failed to connect to "))?;
    let sentence = format!("a connection was refused: {}{}", line.trim(), at(chain));
    Some(plain(
        CauseKind::NoConnection,
        sentence,
        "check that a server is listening there and that no NetworkPolicy blocks it",
    ))
}

/// `SparkUserAppException: User application exited with 3`, which adds nothing.
fn exited(chain: &Chain, ended: &Ended) -> Option<Cause> {
    chain.of("SparkUserAppException")?;
    Some(plain(CauseKind::ExitCode, format!("the program itself ended with exit code {}", ended.exit_code), ""))
}

/// Explains log lines without an exception, last line first.
fn of_line(lines: &[String], chains: &[Chain], facts: Facts<'_>) -> Option<Cause> {
    lines.iter().rev().find_map(|line| {
        if let Some(class) = line.strip_prefix("Error: Failed to load class ") {
            let class = class.trim_end_matches('.');
            // Spark skips a missing jar and then misses the class.
            let jar = lines.iter().find_map(|line| {
                let (_, rest) = line.split_once("Local jar ")?;
                rest.split_once(" does not exist, skipping").map(|(jar, _)| jar)
            });
            return Some(match jar {
                Some(jar) => plain(
                    CauseKind::FileNotFound,
                    format!("the application's jar {jar} is not in the image, so the class {class} was not found"),
                    "check mainApplicationFile: local:// means inside the image",
                ),
                None if class == CONNECT_SERVER => missing_class(class, ""),
                None => plain(
                    CauseKind::ClassNotFound,
                    format!("the class {class} was not found in the application's jar"),
                    "check mainClass (--class): package and name as in the source, and that the jar is the right one",
                ),
            });
        }
        if let Some((_, class)) = line.split_once("Could not find or load main class ") {
            return Some(missing_class(class.split_whitespace().next().unwrap_or_default(), ""));
        }
        if let Some((_, rest)) = line.split_once(": can't open file '") {
            let file = rest.split_once('\'').map_or(rest, |(file, _)| file);
            return Some(plain(
                CauseKind::FileNotFound,
                format!("the script {file} is not in the image"),
                "check mainApplicationFile: local:// means inside the image; mount a volume, or upload the script with spark.kubernetes.file.upload.path",
            ));
        }
        let python = line.contains("python") && (line.ends_with("not found") || line.ends_with("No such file or directory"));
        if python && (line.contains("exec:") || line.contains("env:")) {
            let program = line.split([':', ' ', '\'', '‘', '’', '"']).find(|word| word.contains("python")).unwrap_or("python3");
            return Some(no_python(program));
        }
        if let Some((_, rest)) = line.split_once("java.lang.OutOfMemoryError: ")
            && (line.starts_with("Terminating due to ") || line.starts_with("Aborting due to ") || line.starts_with('#'))
        {
            return Some(heap(rest, ""));
        }
        if let Some((_, rest)) = line.split_once("Max number of executor failures (") {
            let count = rest.split(')').next().unwrap_or_default();
            return Some(executors_failed(lines, chains, count, facts));
        }
        None
    })
}

/// Executors that kept failing: another version, not permitted, or the log's line about the last one lost.
fn executors_failed(lines: &[String], chains: &[Chain], count: &str, facts: Facts<'_>) -> Cause {
    let mismatch = |chain: &Chain| versions(chain).map(|cause| Cause { evidence: evidence(chain), ..cause });
    if let Some(cause) = chains.iter().rev().find_map(mismatch) {
        return cause;
    }
    if let Some(refusal) = lines.iter().rev().find_map(|line| refusal(line)) {
        return refused(&refusal, facts);
    }
    let count = if count.len() < 6 { count } else { "too many" };
    let mut cause = plain(
        CauseKind::ExecutorsLost,
        format!("{count} executors failed, more than spark.executor.maxNumFailures allows"),
        &format!(
            "read the log of an executor (kubectl -n {} logs POD; spark.kubernetes.executor.deleteOnTermination: \"false\" keeps them)",
            facts.namespace
        ),
    );
    cause.evidence.extend(lines.iter().rev().find(|line| line.contains("Lost executor ")).cloned());
    cause
}

/// An exit code without any exception: the program chose it.
fn of_exit(ended: &Ended, lines: &[String]) -> Option<Cause> {
    if !(1..=125).contains(&ended.exit_code) || lines.iter().all(|line| line.trim().is_empty()) {
        return None;
    }
    let chatter = |line: &str| {
        line.trim().is_empty()
            || line.starts_with("+ ")
            || (exceptions::is_record(line) && (line.contains(" INFO ") || line.contains("\"level\":\"INFO\"")))
    };
    let mut last: Vec<String> = lines.iter().rev().filter(|line| !chatter(line)).take(LAST_LINES).cloned().collect();
    if last.is_empty() {
        last = lines.iter().rev().filter(|line| !line.trim().is_empty()).take(LAST_LINES).cloned().collect();
    }
    last.reverse();
    let sentence = match ended.meaning(Role::Driver).filter(|_| ended.exit_code != 1) {
        Some(meaning) => meaning,
        None => format!("the program itself ended with exit code {}; its log holds no exception", ended.exit_code),
    };
    Some(Cause { kind: CauseKind::ExitCode, sentence, evidence: last, remedy: None })
}
