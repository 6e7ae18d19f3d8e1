//! Runs `firesteel` and reads its output.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// The program under test: the one cargo built, or `FIRESTEEL_BIN`.
pub(crate) fn binary() -> PathBuf {
    let built = option_env!("CARGO_BIN_EXE_firesteel").map(PathBuf::from);
    std::env::var_os("FIRESTEEL_BIN").map(PathBuf::from).or(built).expect("FIRESTEEL_BIN names the program under test")
}

/// The program with a clean environment: no kubeconfig, no Spark, no home.
pub(crate) fn firesteel<I: IntoIterator<Item = S>, S: AsRef<std::ffi::OsStr>>(arguments: I) -> Command {
    let mut command = Command::new(binary());
    command.args(arguments).env_clear().env("HOME", "/nonexistent").env("PATH", "/usr/bin:/bin");
    command.env("SPARK_USER", "tester").stdin(Stdio::null());
    command
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Ran {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).expect("text on stdout"),
            stderr: String::from_utf8(output.stderr).expect("text on stderr"),
        }
    }
}

impl Ran {
    /// Asserts a refusal: a non-zero exit code, nothing on stdout, one line on stderr. Returns that line.
    pub(crate) fn refusal(&self) -> &str {
        assert_ne!(self.code, Some(0), "{self:?}");
        assert_eq!(self.stdout, "", "{self:?}");
        assert_eq!(self.stderr.lines().count(), 1, "{self:?}");
        self.stderr.trim_end()
    }

    pub(crate) fn last_words(&self) -> &str {
        self.stderr.lines().last().unwrap_or_default()
    }
}

pub(crate) trait Run {
    fn run(&mut self) -> Ran;
    /// Starts it with piped output; [`finish`] reads it.
    fn start(&mut self) -> Child;
    fn kubeconfig(&mut self, path: &Path) -> &mut Self;
}

impl Run for Command {
    fn run(&mut self) -> Ran {
        self.output().expect("the program runs").into()
    }

    fn start(&mut self) -> Child {
        self.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts")
    }

    fn kubeconfig(&mut self, path: &Path) -> &mut Self {
        self.env("KUBECONFIG", path)
    }
}

pub(crate) fn finish(child: Child) -> Ran {
    child.wait_with_output().expect("the program ends").into()
}

/// `submit` arguments of a small application, with the given settings.
pub(crate) fn pi(master: &str, conf: &[(&str, &str)]) -> Vec<String> {
    let mut arguments: Vec<String> = ["submit", "--master", master, "--deploy-mode", "cluster", "--name", "pi"]
        .into_iter()
        .chain(["--class", "org.apache.spark.examples.SparkPi"])
        .map(str::to_owned)
        .collect();
    let image = ("spark.kubernetes.container.image", "apache/spark:4.1.4");
    for (key, value) in [image].iter().chain(conf) {
        arguments.extend(["--conf".to_owned(), format!("{key}={value}")]);
    }
    arguments.push("local:///opt/spark/examples/jars/spark-examples.jar".to_owned());
    arguments.push("10".to_owned());
    arguments
}
