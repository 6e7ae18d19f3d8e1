//! `firesteel local image`: which directories stand for images on this machine.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Subcommand;
use firesteel_node::runtime::{Progress, RuntimeError, Runtimes};

use crate::ExitStatus;
use crate::exit::BadInput;
use crate::output::Printer;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where Spark runtimes are kept [default: ~/.cache/firesteel]
    #[arg(long, value_name = "DIR")]
    runtime_dir: Option<PathBuf>,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Make an image mean a directory: a Spark directory or a root file system
    Add {
        #[arg(value_name = "REF")]
        reference: String,
        dir: PathBuf,
    },
    /// Forget what an image means
    Remove {
        #[arg(value_name = "REF")]
        reference: String,
    },
    /// Print the images that were added and their directories
    List,
    /// Provision the runtime of an image now, so that its first pod need not wait
    Pull {
        #[arg(value_name = "REF")]
        reference: String,
    },
}

pub(crate) fn main(args: Args) -> anyhow::Result<ExitStatus> {
    let cache = match args.runtime_dir {
        Some(dir) => std::path::absolute(dir)?,
        None => crate::node::cache_dir()?,
    };
    let runtimes = Runtimes::new(cache, Arc::new(tell));
    let printer = Printer;
    match args.verb {
        Verb::Add { reference, dir } => {
            runtimes.mappings().add(&reference, &dir).map_err(as_input)?;
            // A directory that cannot be an image is found out now, not by the first pod.
            if let Err(error) = runtimes.prepare(&reference) {
                runtimes.mappings().remove(&reference)?;
                return Err(as_input(error));
            }
        }
        Verb::Remove { reference } => {
            if !runtimes.mappings().remove(&reference)? {
                return Err(BadInput(format!("no image {reference} was added")).into());
            }
        }
        Verb::List => {
            let all = runtimes.mappings().read()?;
            let lines: Vec<String> =
                all.iter().map(|(reference, dir)| format!("{reference}\t{}", dir.display())).collect();
            if !lines.is_empty() {
                printer.data(lines.join("\n"))?;
            }
        }
        Verb::Pull { reference } => runtimes.prepare(&reference).map_err(as_input)?,
    }
    Ok(ExitStatus::Success)
}

fn as_input(error: RuntimeError) -> anyhow::Error {
    match error {
        RuntimeError::Image(_) | RuntimeError::Mapping(_) => BadInput(error.to_string()).into(),
        other => other.into(),
    }
}

fn tell(progress: &Progress) {
    use std::io::IsTerminal as _;
    if std::io::stderr().is_terminal() {
        let percent =
            progress.total.filter(|t| *t > 0).map_or(String::new(), |t| format!(" {} %", progress.done * 100 / t));
        eprint!("\r{}{percent}   ", progress.what);
    }
}
