//! `firesteel submit`: spark-submit for Kubernetes.

use crate::ExitStatus;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

pub(crate) fn main(_args: Args) -> anyhow::Result<ExitStatus> {
    anyhow::bail!("`firesteel submit` is not built yet")
}
