//! `firesteel crds`: the custom resource definitions as YAML.

use crate::ExitStatus;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
}

pub(crate) fn main(_args: Args) -> anyhow::Result<ExitStatus> {
    anyhow::bail!("`firesteel crds` is not built yet")
}
