//! `firesteel node`: the node agent as a process.

use crate::ExitStatus;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
}

pub(crate) fn main(_args: Args) -> anyhow::Result<ExitStatus> {
    anyhow::bail!("`firesteel node` is not built yet")
}
