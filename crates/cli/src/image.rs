//! `firesteel local image`: the images of this machine and the directories behind them.

use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use clap::Subcommand;
use firesteel_node::runtime::{Compression, Progress, RuntimeError, Runtimes, Save};

use crate::ExitStatus;
use crate::exit::BadInput;
use crate::output::Printer;

#[derive(Debug, clap::Args)]
pub(crate) struct ImageArgs {
    /// Directory of Spark runtimes [default: ~/.cache/firesteel]
    #[arg(long, value_name = "DIR")]
    runtime_dir: Option<PathBuf>,
    #[command(subcommand)]
    verb: ImageVerb,
}

#[derive(Debug, Subcommand)]
enum ImageVerb {
    /// Register a directory as an image: a Spark directory or a root file system
    Add {
        /// Name of the image
        #[arg(value_name = "REF")]
        reference: String,
        /// Its directory
        dir: PathBuf,
    },
    /// Unregister an image; its directory stays
    Remove {
        /// Name of the image
        #[arg(value_name = "REF")]
        reference: String,
    },
    /// List registered images and their directories
    List,
    /// Prepare an image now, so that its first pod does not wait and all pods start faster
    Pull {
        /// Name of the image
        #[arg(value_name = "REF")]
        reference: String,
        /// Skip the class archive for faster starts, which takes a minute and 200 MB
        #[arg(long)]
        no_quick_starts: bool,
    },
    /// Save an image as an OCI archive, for a real cluster
    #[command(after_help = "Examples:\n  firesteel local image save apache/spark:4.1.4 spark.tar\n  \
                            docker load -i spark.tar\n  ctr --namespace k8s.io images import spark.tar")]
    Save {
        /// Name of the image
        #[arg(value_name = "REF")]
        reference: String,
        /// File to write; replaced if it exists
        file: PathBuf,
        /// Name of the image in the archive [default: REF]
        #[arg(long, value_name = "REF")]
        name: Option<String>,
        /// Root file system to put Spark on, with bash and Java, instead of Debian packages
        #[arg(long, value_name = "DIR")]
        base: Option<PathBuf>,
        /// Compression of layers
        #[arg(long, value_enum, default_value = "gzip")]
        compression: Packing,
    },
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Packing {
    Gzip,
    None,
}

pub(crate) fn main(args: ImageArgs) -> anyhow::Result<ExitStatus> {
    let cache = match args.runtime_dir {
        Some(dir) => std::path::absolute(dir)?,
        None => crate::node::cache_dir()?,
    };
    let reporter = Arc::new(ProgressReporter::default());
    let progress_reporter = Arc::clone(&reporter);
    let runtimes = Runtimes::new(cache, Arc::new(move |progress| progress_reporter.report(progress)));
    let printer = Printer;
    match args.verb {
        ImageVerb::Add { reference, dir } => {
            runtimes.mappings().add(&reference, &dir).map_err(as_input)?;
            // Reject a directory that cannot be an image now, not when the first pod starts.
            if let Err(error) = runtimes.prepare(&reference) {
                runtimes.mappings().remove(&reference)?;
                return Err(as_input(error));
            }
        }
        ImageVerb::Remove { reference } => {
            if !runtimes.mappings().remove(&reference)? {
                return Err(BadInput(format!("no image {reference} is registered")).into());
            }
        }
        ImageVerb::List => {
            let all = runtimes.mappings().read()?;
            let lines: Vec<String> =
                all.iter().map(|(reference, dir)| format!("{reference}\t{}", dir.display())).collect();
            if !lines.is_empty() {
                printer.data(lines.join("\n"))?;
            }
        }
        ImageVerb::Pull { reference, no_quick_starts } => {
            runtimes.prepare(&reference).map_err(as_input)?;
            // Optional: Spark runs without it.
            if !no_quick_starts && let Err(error) = runtimes.quicken(&reference) {
                reporter.end();
                printer.warn(format_args!("{reference} will not start faster: {error}"));
            }
        }
        ImageVerb::Save { reference, file, name, base, compression } => {
            if file.is_dir() {
                return Err(BadInput(format!("{} is a directory: name a file to write", file.display())).into());
            }
            let compression = match compression {
                Packing::Gzip => Compression::Gzip,
                Packing::None => Compression::None,
            };
            let save = Save { file: &file, name: name.as_deref(), base: base.as_deref(), compression };
            let saved = runtimes.save(&reference, &save);
            reporter.end();
            let saved = saved.map_err(as_input)?;
            let megabytes = saved.bytes / 1_000_000;
            printer.talk(format_args!("Wrote {} to {} ({megabytes} MB, {})", saved.name, file.display(), saved.digest));
        }
    }
    reporter.end();
    Ok(ExitStatus::Success)
}

fn as_input(error: RuntimeError) -> anyhow::Error {
    match error {
        RuntimeError::Image(_) | RuntimeError::Mapping(_) => BadInput(error.to_string()).into(),
        other => other.into(),
    }
}

/// Shows progress: on a terminal in one changing line, otherwise in one line per step.
#[derive(Default)]
struct ProgressReporter {
    last: Mutex<String>,
}

impl ProgressReporter {
    fn report(&self, progress: &Progress) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if std::io::stderr().is_terminal() {
            let line = match progress.total.filter(|t| *t > 0) {
                Some(total) => format!("{} {} %", progress.what, progress.done * 100 / total),
                None if progress.done > 0 => format!("{} {} MB", progress.what, progress.done / 1_000_000),
                None => progress.what.clone(),
            };
            if *last != line {
                // Return to the start of the line and clear it.
                let _ = std::io::stderr().write_all(format!("\r\x1b[K{line}").as_bytes());
                *last = line;
            }
        } else if *last != progress.what {
            Printer.talk(&progress.what);
            last.clone_from(&progress.what);
        }
    }

    /// Clears the line for further output.
    fn end(&self) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if !last.is_empty() && std::io::stderr().is_terminal() {
            let _ = std::io::stderr().write_all(b"\r\x1b[K");
        }
        last.clear();
    }
}
