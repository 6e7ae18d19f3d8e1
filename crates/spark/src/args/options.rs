//! The table of command-line options: flag, value, help text and effect.
//!
//! The parser, `firesteel submit --help` and the reference are all generated from this table.

use super::Opt;

/// One option of `firesteel submit`.
#[derive(Debug, Clone, Copy)]
pub struct OptionSpec {
    /// As written, dashes included.
    pub flag: &'static str,
    pub short: Option<char>,
    /// Placeholder for the value in the help text; a switch has none.
    pub value: Option<&'static str>,
    pub help: &'static str,
    /// Firesteel's own: `spark-submit` does not have it.
    pub own: bool,
    pub hidden: bool,
    pub(super) word: Word,
}

/// What an option does to [`super::RawArgs`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    Opt(Opt),
    /// Sets this key, as `--conf KEY=VALUE` does.
    Key(&'static str),
    Conf,
    Kill,
    Status,
    Supervise,
    Verbose,
    LoadSparkDefaults,
    Help,
    Version,
    UsageError,
    Output,
    SparkVersion,
    DryRun,
    Explain,
    ExitZero,
}

/// Every option, in the order in which help lists them.
pub const OPTIONS: &[OptionSpec] = &[
    opt(Opt::Master, "URL", "API server to submit to: k8s://https://HOST:PORT"),
    opt(
        Opt::DeployMode,
        "MODE",
        "`cluster` runs the driver in a pod; `client` hands over to the real spark-submit [default: client]",
    ),
    opt(Opt::Class, "NAME", "Main class of a Java or Scala application"),
    opt(Opt::Name, "NAME", "Name of the application"),
    takes("--conf", "KEY=VALUE", "Any Spark setting; may be repeated", Word::Conf).short('c'),
    opt(Opt::PropertiesFile, "FILE", "Read settings from this file instead of conf/spark-defaults.conf"),
    switch(
        "--load-spark-defaults",
        "With --properties-file, read conf/spark-defaults.conf as well",
        Word::LoadSparkDefaults,
    ),
    opt(Opt::Jars, "LIST", "Comma-separated jars for driver and executors"),
    opt(Opt::PyFiles, "LIST", "Comma-separated .py, .zip and .egg files for PYTHONPATH"),
    opt(Opt::Files, "LIST", "Comma-separated files for the working directory of each executor"),
    opt(Opt::Archives, "LIST", "Comma-separated archives, unpacked into the working directory of each executor"),
    opt(Opt::Packages, "LIST", "Comma-separated Maven coordinates, resolved by the driver"),
    opt(Opt::ExcludePackages, "LIST", "Comma-separated groupId:artifactId pairs to leave out of --packages"),
    opt(Opt::Repositories, "LIST", "Comma-separated Maven repositories to search for --packages"),
    takes("--driver-memory", "MEM", "Driver heap [default: 1g]", Word::Key("spark.driver.memory")),
    opt(Opt::DriverCores, "N", "Driver cores [default: 1]"),
    takes(
        "--driver-java-options",
        "OPTIONS",
        "Extra JVM options for the driver",
        Word::Key("spark.driver.extraJavaOptions"),
    ),
    takes(
        "--driver-library-path",
        "PATH",
        "Extra library path for the driver",
        Word::Key("spark.driver.extraLibraryPath"),
    ),
    takes("--driver-class-path", "PATH", "Extra class path for the driver", Word::Key("spark.driver.extraClassPath")),
    takes(
        "--driver-default-class-path",
        "PATH",
        "Class path for the driver, before --driver-class-path [Spark 4.0 and later]",
        Word::Key("spark.driver.defaultExtraClassPath"),
    ),
    opt(Opt::ExecutorMemory, "MEM", "Heap of each executor [default: 1g]"),
    opt(Opt::ExecutorCores, "N", "Cores of each executor [default: 1]"),
    opt(Opt::NumExecutors, "N", "Number of executors [default: 2]"),
    opt(Opt::Principal, "PRINCIPAL", "Kerberos principal; needs --keytab"),
    opt(Opt::Keytab, "FILE", "Keytab of the principal, shipped to the driver in a Secret"),
    opt(Opt::ProxyUser, "NAME", "User to impersonate"),
    takes(
        "--status",
        "ID",
        "Print the state of drivers, by NAMESPACE:POD; a trailing * matches any ending",
        Word::Status,
    ),
    takes("--kill", "ID", "Delete drivers, by NAMESPACE:POD; a trailing * matches any ending", Word::Kill),
    switch("--verbose", "Print the effective settings, and log more", Word::Verbose).short('v'),
    switch("--help", "Print this help", Word::Help).short('h'),
    switch("--version", "Print the version", Word::Version),
    opt(Opt::Queue, "NAME", "Accepted for compatibility; no effect on Kubernetes").hide(),
    opt(Opt::TotalExecutorCores, "N", "Accepted for compatibility; no effect on Kubernetes").hide(),
    switch("--supervise", "Accepted for compatibility; no effect on Kubernetes", Word::Supervise).hide(),
    opt(Opt::Remote, "URL", "Spark Connect server; cannot be combined with --master or --deploy-mode").hide(),
    switch("--usage-error", "Print this help and fail", Word::UsageError).hide(),
    switch("--dry-run", "Print the objects that would be created; needs no cluster", Word::DryRun).own(),
    takes("--output", "FORMAT", "Format to print in: json or yaml [default: yaml]", Word::Output).short('o').own(),
    switch("--explain", "Print every setting and where it came from; create nothing", Word::Explain).own(),
    takes(
        "--spark-version",
        "VERSION",
        "Spark version in the image [default: from the image's tag, else from SPARK_HOME]",
        Word::SparkVersion,
    )
    .own(),
    switch("--exit-zero", "Exit with 0 even if the driver fails, as spark-submit does", Word::ExitZero).own(),
];

const fn opt(opt: Opt, value: &'static str, help: &'static str) -> OptionSpec {
    takes(opt.flag(), value, help, Word::Opt(opt))
}

const fn takes(flag: &'static str, value: &'static str, help: &'static str, word: Word) -> OptionSpec {
    OptionSpec { value: Some(value), ..switch(flag, help, word) }
}

const fn switch(flag: &'static str, help: &'static str, word: Word) -> OptionSpec {
    OptionSpec { flag, short: None, value: None, help, own: false, hidden: false, word }
}

impl OptionSpec {
    const fn short(self, short: char) -> Self {
        OptionSpec { short: Some(short), ..self }
    }

    const fn own(self) -> Self {
        OptionSpec { own: true, ..self }
    }

    const fn hide(self) -> Self {
        OptionSpec { hidden: true, ..self }
    }

    /// Whether a word on the command line names this option.
    pub(super) fn is_named(&self, name: &str) -> bool {
        let is_short = |short: char| name.strip_prefix('-').is_some_and(|rest| rest.chars().eq([short]));
        self.flag == name || self.short.is_some_and(is_short)
    }
}
