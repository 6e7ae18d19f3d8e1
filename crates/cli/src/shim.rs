//! `firesteel shim`: the process that owns one pod. Not for people.

use crate::ExitStatus;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
}

pub(crate) fn main(_args: Args) -> anyhow::Result<ExitStatus> {
    anyhow::bail!("`firesteel shim` is not built yet")
}
