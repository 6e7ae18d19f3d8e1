//! `firesteel shim`: the process that owns one pod. Not for people.

use crate::ExitStatus;

#[derive(Debug, clap::Args)]
pub(crate) struct ShimArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

pub(crate) fn main(args: &ShimArgs) -> anyhow::Result<ExitStatus> {
    let words: Vec<&str> = args.words.iter().map(String::as_str).collect();
    Ok(match firesteel_node::shim::main(&words) {
        0 => ExitStatus::Success,
        code => ExitStatus::Driver(code),
    })
}
