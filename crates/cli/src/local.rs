//! `firesteel local`: the local cluster as a whole.

use crate::ExitStatus;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
}

pub(crate) fn main(_args: Args) -> anyhow::Result<ExitStatus> {
    anyhow::bail!("`firesteel local` is not built yet")
}
