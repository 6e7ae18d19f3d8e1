//! The text of `firesteel submit --help`, generated from the parser's table.

use clap::{Arg, ArgAction, Command};
use firesteel_spark::args::{OPTIONS, OptionSpec};

const USAGE: &str = "firesteel submit [OPTIONS] <APPLICATION> [ARGUMENTS]
       firesteel submit --status <NAMESPACE:POD> --master <URL>
       firesteel submit --kill <NAMESPACE:POD> --master <URL>
       firesteel submit run-example [OPTIONS] <CLASS> [ARGUMENTS]";

const AFTER: &str = "\
APPLICATION is a jar, a Python file or an R file. Local files are uploaded to spark.kubernetes.file.upload.path (s3a://, gs://, \
abfss:// or file://); local:///PATH names a file inside the image.

The exit code is the driver's. 1: the request failed. 2: the input is wrong. 3: the driver never started.";

pub(crate) fn version() -> String {
    format!("firesteel {}, submitting for Spark 3.5 to 4.3", env!("CARGO_PKG_VERSION"))
}

pub(crate) fn text() -> String {
    command().render_help().to_string()
}

/// The command line as a clap command, for the help text only: clap cannot parse as spark-submit does.
pub(crate) fn command() -> Command {
    let command = Command::new("submit")
        .about("Submit a Spark application to Kubernetes as spark-submit does, without a JVM")
        .override_usage(USAGE)
        .after_help(AFTER)
        // With less, each option would take two lines, because the longest leaves too little room.
        .term_width(120)
        .disable_help_flag(true);
    OPTIONS.iter().fold(command, |command, option| command.arg(argument(option)))
}

fn argument(option: &OptionSpec) -> Arg {
    let heading = if option.own { "Firesteel's own options" } else { "spark-submit options" };
    let name = option.flag.trim_start_matches('-');
    let argument = Arg::new(name).long(name).help(option.help).help_heading(heading).hide(option.hidden);
    let argument = match option.short {
        Some(short) => argument.short(short),
        None => argument,
    };
    match option.value {
        Some(value) => argument.value_name(value),
        None => argument.action(ArgAction::SetTrue),
    }
}
