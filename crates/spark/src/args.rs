//! Parses a `spark-submit` command line, without interpreting it.
//!
//! Real `spark-submit` parses twice: the launcher reads every option, rewrites some of them as `--conf`, and hands a
//! reordered line to `SparkSubmit`. [`parse`] does both in one pass. Two consequences: the four `--driver-*` options
//! that set JVM properties compete with `--conf` by position (the last one wins), and an unknown option is an error
//! anywhere before the primary resource.
//!
//! Firesteel's own options may appear anywhere before the primary resource. Files, the environment and Spark versions
//! are handled in [`crate::submission`].

mod options;

use std::collections::BTreeMap;
use std::fmt;

use self::options::Word;
pub use self::options::{OPTIONS, OptionSpec};
use crate::names::CONNECT_SERVER;
use crate::submission::Origin;
use crate::version::{SparkVersion, VersionError};

/// A `spark-submit` option that takes a value and is not rewritten as `--conf`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Opt {
    Archives,
    Class,
    DeployMode,
    DriverCores,
    ExcludePackages,
    ExecutorCores,
    ExecutorMemory,
    Files,
    Jars,
    Keytab,
    Master,
    Name,
    NumExecutors,
    Packages,
    Principal,
    PropertiesFile,
    ProxyUser,
    PyFiles,
    Queue,
    Remote,
    Repositories,
    TotalExecutorCores,
}

impl Opt {
    /// The option as written on the command line.
    pub const fn flag(self) -> &'static str {
        match self {
            Opt::Archives => "--archives",
            Opt::Class => "--class",
            Opt::DeployMode => "--deploy-mode",
            Opt::DriverCores => "--driver-cores",
            Opt::ExcludePackages => "--exclude-packages",
            Opt::ExecutorCores => "--executor-cores",
            Opt::ExecutorMemory => "--executor-memory",
            Opt::Files => "--files",
            Opt::Jars => "--jars",
            Opt::Keytab => "--keytab",
            Opt::Master => "--master",
            Opt::Name => "--name",
            Opt::NumExecutors => "--num-executors",
            Opt::Packages => "--packages",
            Opt::Principal => "--principal",
            Opt::PropertiesFile => "--properties-file",
            Opt::ProxyUser => "--proxy-user",
            Opt::PyFiles => "--py-files",
            Opt::Queue => "--queue",
            Opt::Remote => "--remote",
            Opt::Repositories => "--repositories",
            Opt::TotalExecutorCores => "--total-executor-cores",
        }
    }
}

impl fmt::Display for Opt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.flag())
    }
}

/// Main classes whose options may be mixed with `spark-submit`'s, and the primary resource they imply.
const SPECIAL_CLASSES: [(&str, &str); 4] = [
    ("org.apache.spark.repl.Main", "spark-shell"),
    ("org.apache.spark.sql.hive.thriftserver.SparkSQLCLIDriver", "spark-internal"),
    ("org.apache.spark.sql.hive.thriftserver.HiveThriftServer2", "spark-internal"),
    (CONNECT_SERVER, "spark-internal"),
];

const EXAMPLE_PREFIX: &str = "org.apache.spark.examples.";

/// What the command line asks for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Action {
    #[default]
    Submit,
    /// `--kill ID`
    Kill(String),
    /// `--status ID`
    Status(String),
    /// `--version`
    Version,
    /// `--help`, with exit code 0.
    Help,
    /// `--usage-error` or no argument at all: the same text, with an exit code other than 0.
    UsageError,
}

/// Output format of `--dry-run` and the read-only commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Output {
    #[default]
    Yaml,
    Json,
}

/// Firesteel's own options.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OwnOptions {
    /// `--dry-run`: print the objects, create nothing.
    pub dry_run: bool,
    /// `-o`, `--output`.
    pub output: Option<Output>,
    /// `--spark-version`.
    pub spark_version: Option<SparkVersion>,
    /// The image to use if no setting names one; not a command-line option.
    pub image: Option<String>,
    /// The main class may be the Spark Connect server, because a controller looks after it; not a command-line option.
    pub connect_server: bool,
    /// `--explain`: print where each setting came from.
    pub explain: bool,
    /// `--exit-zero`: exit 0 even if the driver fails, as `spark-submit` does.
    pub exit_zero: bool,
}

/// One `KEY=VALUE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfArg {
    pub key: String,
    pub value: String,
    /// `--conf`, an option that the launcher rewrites, such as `--driver-memory`, or a field of a SparkApplication.
    pub origin: Origin,
}

/// What was written on the command line.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RawArgs {
    pub action: Action,
    pub own: OwnOptions,
    /// Options with a value; the last occurrence wins.
    pub options: BTreeMap<Opt, String>,
    /// `--conf` and its shorthand options, in order; the last value of each key wins.
    pub settings: Vec<ConfArg>,
    pub supervise: bool,
    pub verbose: bool,
    pub load_spark_defaults: bool,
    /// `run-example`: the primary resource is the examples jar, the class is in [`Opt::Class`].
    pub example: bool,
    /// The primary resource, as written.
    pub resource: Option<String>,
    /// Everything after it, untouched.
    pub arguments: Vec<String>,
}

impl RawArgs {
    pub fn option(&self, opt: Opt) -> Option<&str> {
        self.options.get(&opt).map(String::as_str)
    }
}

/// Why a command line cannot be parsed. Each message names the option and says what to write.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArgsError {
    #[error("option {0} needs a value")]
    MissingValue(String),
    #[error("unknown option {option}{}; `--help` lists them all", did_you_mean(.suggestion.as_ref()))]
    UnknownOption { option: String, suggestion: Option<&'static str> },
    #[error("--conf {0} has no `=`; write --conf KEY=VALUE")]
    ConfWithoutEquals(String),
    #[error(
        "--deploy-mode {0} is neither `client` nor `cluster`; write --deploy-mode cluster to run the driver in a pod"
    )]
    DeployMode(String),
    #[error("{0} and {1} cannot be given together; run them one after the other")]
    TwoActions(&'static str, &'static str),
    #[error("--output {0} is not a format; write -o json or -o yaml")]
    Output(String),
    #[error("--spark-version: {0}")]
    SparkVersion(#[from] VersionError),
    #[error("{0} takes no value; write it on its own")]
    SwitchWithValue(&'static str),
}

fn did_you_mean(suggestion: Option<&&'static str>) -> String {
    suggestion.map(|s| format!(" (did you mean {s}?)")).unwrap_or_default()
}

/// Reads a command line, without the program's name.
pub fn parse(argv: &[String]) -> Result<RawArgs, ArgsError> {
    if argv.is_empty() {
        return Ok(RawArgs { action: Action::UsageError, ..RawArgs::default() });
    }
    let mut parser = Parser::default();
    let rest = match argv[0].as_str() {
        "run-example" => {
            parser.args.example = true;
            &argv[1..]
        }
        _ => argv,
    };
    let mut at = 0;
    while at < rest.len() {
        let (name, inline) = split(&rest[at]);
        let used = match OPTIONS.iter().find(|option| option.is_named(name)) {
            Some(option) if option.value.is_none() => {
                parser.switch(option, inline)?;
                1
            }
            Some(option) => {
                let (value, used) = match inline {
                    Some(value) => (value, 1),
                    None => {
                        let value = rest.get(at + 1).ok_or_else(|| ArgsError::MissingValue(name.to_owned()))?;
                        (value.as_str(), 2)
                    }
                };
                parser.option(option, value)?;
                used
            }
            None => {
                if parser.unknown(name)? {
                    parser.args.arguments.extend_from_slice(&rest[at + 1..]);
                    break;
                }
                1
            }
        };
        at += used;
    }
    Ok(parser.finish())
}

/// Splits `--opt=value` as the launcher does: at the first `=`, both sides non-empty. `-o=json` is Firesteel's addition.
fn split(word: &str) -> (&str, Option<&str>) {
    match word.split_once('=') {
        // The launcher's pattern requires at least one character between the dashes and the `=`, and does not match a
        // value that contains a line break.
        Some((name, value))
            if (name.starts_with("--")
                && name.len() > 2
                && !value.contains(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}'])
                || name == "-o")
                && !value.is_empty() =>
        {
            (name, Some(value))
        }
        _ => (word, None),
    }
}

#[derive(Debug, Default)]
struct Parser {
    args: RawArgs,
    /// A special class was named: unknown words are its arguments and parsing continues.
    mixed: bool,
    /// `--help`, `--usage-error` or `--version`, whichever came first.
    terminal: Option<Action>,
}

impl Parser {
    fn option(&mut self, option: &OptionSpec, value: &str) -> Result<(), ArgsError> {
        let args = &mut self.args;
        let flag = option.flag;
        match option.word {
            Word::Opt(opt) => {
                if opt == Opt::DeployMode && !matches!(value, "client" | "cluster") {
                    return Err(ArgsError::DeployMode(value.to_owned()));
                }
                if opt == Opt::Class
                    && let Some((_, resource)) = SPECIAL_CLASSES.iter().find(|(class, _)| *class == value)
                {
                    self.mixed = true;
                    args.resource = Some((*resource).to_owned());
                }
                args.options.insert(opt, value.to_owned());
            }
            Word::Key(key) => {
                let origin = Origin::Flag(flag);
                args.settings.push(ConfArg { key: key.to_owned(), value: value.to_owned(), origin });
            }
            Word::Conf => {
                let (key, value) =
                    value.split_once('=').ok_or_else(|| ArgsError::ConfWithoutEquals(value.to_owned()))?;
                args.settings.push(ConfArg { key: key.to_owned(), value: value.to_owned(), origin: Origin::Conf });
            }
            Word::Kill => self.act(Action::Kill(value.to_owned()), flag)?,
            Word::Status => self.act(Action::Status(value.to_owned()), flag)?,
            Word::Output => {
                args.own.output = Some(match value {
                    "json" => Output::Json,
                    "yaml" => Output::Yaml,
                    other => return Err(ArgsError::Output(other.to_owned())),
                });
            }
            Word::SparkVersion => args.own.spark_version = Some(value.parse()?),
            Word::Supervise
            | Word::Verbose
            | Word::LoadSparkDefaults
            | Word::Help
            | Word::Version
            | Word::UsageError
            | Word::DryRun
            | Word::Explain
            | Word::ExitZero => {}
        }
        Ok(())
    }

    fn act(&mut self, action: Action, flag: &'static str) -> Result<(), ArgsError> {
        match &self.args.action {
            Action::Submit => self.args.action = action,
            Action::Kill(_) => return Err(ArgsError::TwoActions("--kill", flag)),
            Action::Status(_) | Action::Version | Action::Help | Action::UsageError => {
                return Err(ArgsError::TwoActions("--status", flag));
            }
        }
        Ok(())
    }

    /// Spark ignores the value of a switch written with `=`. Firesteel's switches refuse it: `--dry-run=false` must not mean true.
    fn switch(&mut self, option: &OptionSpec, value: Option<&str>) -> Result<(), ArgsError> {
        if option.own && value.is_some() {
            return Err(ArgsError::SwitchWithValue(option.flag));
        }
        match option.word {
            Word::DryRun => self.args.own.dry_run = true,
            Word::Explain => self.args.own.explain = true,
            Word::ExitZero => self.args.own.exit_zero = true,
            Word::Supervise => self.args.supervise = true,
            Word::Verbose => self.args.verbose = true,
            Word::LoadSparkDefaults => self.args.load_spark_defaults = true,
            Word::Help => {
                self.terminal.get_or_insert(Action::Help);
            }
            Word::Version => {
                self.terminal.get_or_insert(Action::Version);
            }
            Word::UsageError => {
                self.terminal.get_or_insert(Action::UsageError);
            }
            Word::Opt(_)
            | Word::Key(_)
            | Word::Conf
            | Word::Kill
            | Word::Status
            | Word::Output
            | Word::SparkVersion => {}
        }
        Ok(())
    }

    /// Handles a word that is not an option. Returns true if parsing ends here and the rest are application arguments.
    fn unknown(&mut self, word: &str) -> Result<bool, ArgsError> {
        if self.mixed {
            self.args.arguments.push(word.to_owned());
            return Ok(false);
        }
        if self.args.example && !word.starts_with('-') {
            let class =
                if word.starts_with(EXAMPLE_PREFIX) { word.to_owned() } else { format!("{EXAMPLE_PREFIX}{word}") };
            self.args.options.insert(Opt::Class, class);
            return Ok(true);
        }
        if word.starts_with('-') {
            let suggestion = crate::registry::nearest(word, OPTIONS.iter().map(|option| option.flag), 3);
            return Err(ArgsError::UnknownOption { option: word.to_owned(), suggestion });
        }
        self.args.resource = Some(word.to_owned());
        Ok(true)
    }

    fn finish(mut self) -> RawArgs {
        if let Some(terminal) = self.terminal {
            self.args.action = terminal;
        }
        self.args
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    fn read(line: &str) -> RawArgs {
        parse(&words(line)).unwrap()
    }

    fn refusal(line: &str) -> String {
        parse(&words(line)).unwrap_err().to_string()
    }

    #[test]
    fn the_first_word_that_is_no_option_is_the_application_and_the_rest_are_its_arguments() {
        let args = read("--master k8s://h --class a.B app.jar --class x --help -o");
        assert_eq!(args.resource.as_deref(), Some("app.jar"));
        assert_eq!(args.arguments, ["--class", "x", "--help", "-o"]);
        assert_eq!(args.option(Opt::Class), Some("a.B"));
        assert_eq!(args.action, Action::Submit);
    }

    #[test]
    fn a_value_may_follow_an_equals_sign() {
        let args = read("--master=k8s://h --name=a=b --conf=spark.x=y=z app.jar");
        assert_eq!(args.option(Opt::Master), Some("k8s://h"));
        assert_eq!(args.option(Opt::Name), Some("a=b"));
        assert_eq!(args.settings, [ConfArg { key: "spark.x".into(), value: "y=z".into(), origin: Origin::Conf }]);
        // An empty value is not split off: the whole word is then an unknown option.
        assert!(refusal("--name= app.jar").starts_with("unknown option --name="));
    }

    #[test]
    fn a_value_may_look_like_an_option() {
        assert_eq!(read("--name --class app.jar").option(Opt::Name), Some("--class"));
        assert_eq!(read("--driver-java-options -Dx=1 app.jar").settings[0].value, "-Dx=1");
    }

    #[test]
    fn every_option_takes_a_value_and_the_last_one_counts() {
        for option in OPTIONS {
            let Word::Opt(opt) = option.word else { continue };
            let value = |n: &str| if opt == Opt::DeployMode { "cluster".to_owned() } else { n.to_owned() };
            let argv = [opt.flag().to_owned(), value("1"), opt.flag().to_owned(), value("2"), "app.jar".to_owned()];
            let args = parse(&argv).unwrap();
            assert_eq!(args.option(opt), Some(value("2").as_str()));
            let message = parse(&argv[..1]).unwrap_err().to_string();
            assert_eq!(message, format!("option {opt} needs a value"));
        }
    }

    #[test]
    fn options_that_set_driver_properties_keep_their_place_among_conf() {
        let args = read(
            "--conf spark.driver.memory=1g --driver-memory 2g --driver-class-path c --driver-library-path l \
             --driver-default-class-path d -c spark.driver.memory=3g app.jar",
        );
        let seen: Vec<_> =
            args.settings.iter().map(|s| (s.key.as_str(), s.value.as_str(), s.origin.to_string())).collect();
        let seen: Vec<_> = seen.iter().map(|(key, value, origin)| (*key, *value, origin.as_str())).collect();
        assert_eq!(
            seen,
            [
                ("spark.driver.memory", "1g", "--conf"),
                ("spark.driver.memory", "2g", "--driver-memory"),
                ("spark.driver.extraClassPath", "c", "--driver-class-path"),
                ("spark.driver.extraLibraryPath", "l", "--driver-library-path"),
                ("spark.driver.defaultExtraClassPath", "d", "--driver-default-class-path"),
                ("spark.driver.memory", "3g", "--conf"),
            ]
        );
    }

    #[test]
    fn switches_take_no_value_and_spark_drops_one_that_is_given() {
        let args = read("-v --supervise=yes --load-spark-defaults app.jar");
        assert!(args.verbose && args.supervise && args.load_spark_defaults);
        assert_eq!(args.resource.as_deref(), Some("app.jar"));
    }

    #[test]
    fn our_own_options_stand_anywhere_before_the_application() {
        let args =
            read("--dry-run --master k8s://h -o json --spark-version 4.1.4 --explain --exit-zero app.jar --dry-run");
        let own = &args.own;
        assert!(own.dry_run && own.explain && own.exit_zero);
        assert_eq!(own.output, Some(Output::Json));
        assert_eq!(own.spark_version.as_ref().map(SparkVersion::as_str), Some("4.1.4"));
        assert_eq!(args.arguments, ["--dry-run"]);
        for line in ["--output=yaml app.jar", "--output yaml app.jar", "-o=yaml app.jar"] {
            assert_eq!(read(line).own.output, Some(Output::Yaml), "{line}");
        }
    }

    #[test]
    fn actions_are_recognised() {
        assert_eq!(read("--kill ns:pod --master k8s://h").action, Action::Kill("ns:pod".into()));
        assert_eq!(read("--master k8s://h --status pod*").action, Action::Status("pod*".into()));
        assert_eq!(read("--version").action, Action::Version);
        assert_eq!(read("-h").action, Action::Help);
        assert_eq!(read("--usage-error").action, Action::UsageError);
        assert_eq!(read("--master k8s://h --help app.jar").action, Action::Help);
        assert_eq!(parse(&[]).unwrap().action, Action::UsageError);
    }

    #[test]
    fn run_example_takes_a_class_instead_of_an_application() {
        let args = read("run-example --master k8s://h SparkPi 10 --x");
        assert!(args.example);
        assert_eq!(args.option(Opt::Class), Some("org.apache.spark.examples.SparkPi"));
        assert_eq!(args.arguments, ["10", "--x"]);
        let full = read("run-example org.apache.spark.examples.SparkPi");
        assert_eq!(full.option(Opt::Class), Some("org.apache.spark.examples.SparkPi"));
    }

    #[test]
    fn shell_classes_mix_their_arguments_with_options() {
        let args = read("--class org.apache.spark.repl.Main -i x.scala --master k8s://h");
        assert_eq!(args.resource.as_deref(), Some("spark-shell"));
        assert_eq!(args.arguments, ["-i", "x.scala"]);
        assert_eq!(args.option(Opt::Master), Some("k8s://h"));
    }

    #[test]
    fn refusals_name_the_option_and_the_remedy() {
        for (line, message) in [
            ("--bogus app.jar", "unknown option --bogus; `--help` lists them all"),
            ("--maser k8s://h app.jar", "unknown option --maser (did you mean --master?); `--help` lists them all"),
            ("--bogus=1 app.jar", "unknown option --bogus; `--help` lists them all"),
            ("--name", "option --name needs a value"),
            ("--conf spark.x app.jar", "--conf spark.x has no `=`; write --conf KEY=VALUE"),
            (
                "--deploy-mode clusters app.jar",
                "--deploy-mode clusters is neither `client` nor `cluster`; write --deploy-mode cluster to run the driver \
                 in a pod",
            ),
            ("--kill a --status b", "--kill and --status cannot be given together; run them one after the other"),
            ("-o xml app.jar", "--output xml is not a format; write -o json or -o yaml"),
            ("--dry-run=false app.jar", "--dry-run takes no value; write it on its own"),
            (
                "--spark-version four app.jar",
                "--spark-version: `four` is not a Spark version; write it as 4.1.4 or 4.1",
            ),
        ] {
            assert_eq!(refusal(line), message);
        }
    }

    proptest! {
        #[test]
        fn parsing_never_panics(argv in proptest::collection::vec(any::<String>(), 0..12)) {
            let _ = parse(&argv);
        }

        #[test]
        fn options_in_any_order_never_panic(
            argv in proptest::collection::vec(
                prop_oneof![
                    proptest::sample::select(OPTIONS.iter().map(|option| option.flag).collect::<Vec<_>>()).prop_map(str::to_owned),
                    proptest::sample::select(vec!["-c", "-o", "-h", "-v", "run-example", "=", "--=", "a=b", "json", ""])
                        .prop_map(str::to_owned),
                    "[a-z=.-]{0,8}",
                ],
                0..10,
            )
        ) {
            if let Err(error) = parse(&argv) {
                let message = error.to_string();
                prop_assert!(!message.is_empty());
            }
        }

        #[test]
        fn arguments_of_the_application_are_untouched(rest in proptest::collection::vec(any::<String>(), 0..8)) {
            let mut argv = words("--master k8s://h app.jar");
            argv.extend(rest.iter().cloned());
            prop_assert_eq!(parse(&argv).unwrap().arguments, rest);
        }
    }
}
