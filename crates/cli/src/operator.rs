//! `firesteel operator`: the controllers as a process.

use crate::ExitStatus;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
}

pub(crate) fn main(_args: Args) -> anyhow::Result<ExitStatus> {
    anyhow::bail!("`firesteel operator` is not built yet")
}
