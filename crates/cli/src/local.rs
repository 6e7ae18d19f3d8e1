//! `firesteel local`: the local cluster as a whole.
//!
//! The cluster is a daemon (this same binary, the hidden verb `daemon`) that serves the API, runs the controllers and
//! supervises the node and the operator. It guards against accidents, not attackers: pods are processes on this machine.

mod parts;
mod report;

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Subcommand;
use firesteel_local::cluster::{self, Launch, Up};
use firesteel_local::daemon;
use firesteel_local::home::Home;

use crate::ExitStatus;
use crate::exit::BadInput;
use crate::output::{Format, Printer};

#[derive(Debug, clap::Args)]
pub(crate) struct LocalArgs {
    /// Data directory of the cluster [default: $XDG_DATA_HOME/firesteel]
    #[arg(long, global = true, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    #[command(subcommand)]
    verb: LocalVerb,
}

#[derive(Debug, Subcommand)]
enum LocalVerb {
    /// Start the cluster, and return when it is ready
    Up {
        /// Stay in this terminal until Ctrl-C instead of running in the background
        #[arg(long)]
        foreground: bool,
        /// Port of the API server on 127.0.0.1 [default: the last one used, else a free one]
        #[arg(long, value_name = "P")]
        port: Option<u16>,
    },
    /// Stop the cluster and every process it started
    Down,
    /// Show the cluster and its components
    Status {
        /// Output format
        #[arg(short, long, value_enum)]
        output: Option<Format>,
    },
    /// Print a self-contained kubeconfig for the cluster
    Kubeconfig,
    /// Print the log of a component: daemon, node or operator
    Logs {
        /// Component to print
        #[arg(default_value = "daemon")]
        component: String,
        /// Keep printing as the log grows
        #[arg(short, long)]
        follow: bool,
    },
    /// Stop the cluster and delete everything it stored
    Reset,
    /// Manage images: list, add, remove, pull and save them
    Image(crate::image::ImageArgs),
    /// Serve the cluster (started by `up`)
    #[command(hide = true)]
    Daemon {
        #[arg(long)]
        port: Option<u16>,
    },
}

/// The given data directory, else the default.
pub(crate) fn home(data_dir: Option<PathBuf>) -> anyhow::Result<Home> {
    let none = || {
        BadInput(
            "HOME is not set, so there is no place for the cluster's data: name a directory with --data-dir".to_owned(),
        )
    };
    match data_dir {
        Some(directory) => Ok(Home::at(std::path::absolute(&directory).unwrap_or(directory))),
        None => Ok(Home::usual(|name| std::env::var_os(name)).ok_or_else(none)?),
    }
}

pub(crate) fn main(args: LocalArgs) -> anyhow::Result<ExitStatus> {
    let printer = Printer;
    let mut home = home(args.data_dir)?;
    match args.verb {
        LocalVerb::Up { foreground: true, port } => {
            log_to_stderr();
            serve(home, port)
        }
        LocalVerb::Daemon { port } => {
            log_to_stderr();
            serve(home, port)
        }
        LocalVerb::Up { foreground: false, port } => {
            let up = bring_up(&mut home, port, |says| printer.talk(says))?;
            let url = up.status.url.unwrap_or_default();
            let state = if up.was_running { "was already running" } else { "is ready" };
            printer.talk(format_args!("The local cluster {state} at {url}"));
            printer.talk(format_args!("Next: export KUBECONFIG={}", home.kubeconfig().display()));
            Ok(ExitStatus::Success)
        }
        LocalVerb::Down => {
            let ended = cluster::down(&mut home)?;
            printer.talk(if ended { "The local cluster is down" } else { "No local cluster was running" });
            Ok(ExitStatus::Success)
        }
        LocalVerb::Reset => {
            cluster::reset(&mut home)?;
            printer.talk(format_args!("The local cluster is down, and {} was emptied", home.root().display()));
            Ok(ExitStatus::Success)
        }
        LocalVerb::Image(args) => crate::image::main(args),
        LocalVerb::Status { output } => report::status(&home, output, printer),
        LocalVerb::Kubeconfig => {
            let path = home.kubeconfig();
            let none = || {
                format!("there is no local cluster in {}: start one with `firesteel local up`", home.root().display())
            };
            printer.data(std::fs::read_to_string(&path).with_context(none)?)?;
            Ok(ExitStatus::Success)
        }
        LocalVerb::Logs { component, follow } => logs(&home, &component, follow, printer),
    }
}

/// Starts the cluster as a daemon unless it is running.
pub(crate) fn bring_up(home: &mut Home, port: Option<u16>, tell: impl FnMut(&str)) -> anyhow::Result<Up> {
    let executable = std::env::current_exe().context("find this program's own file")?;
    let mut arguments: Vec<OsString> = vec!["local".into(), "daemon".into(), "--data-dir".into(), home.root().into()];
    if let Some(port) = port {
        arguments.extend(["--port".into(), port.to_string().into()]);
    }
    Ok(cluster::up(home, &Launch { executable, arguments, port }, tell)?)
}

fn serve(mut home: Home, port: Option<u16>) -> anyhow::Result<ExitStatus> {
    home.prepare()?;
    let plan = parts::plan(&home, port)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(daemon::run(home, plan));
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome.map(|()| ExitStatus::Success)
}

fn log_to_stderr() {
    crate::logging::serve("firesteel=info,firesteel_local=info,firesteel_apiserver=info,warn", false);
}

fn logs(home: &Home, component: &str, follow: bool, printer: Printer) -> anyhow::Result<ExitStatus> {
    let path = home.log(component);
    if component.contains('/') || !path.exists() {
        let known = std::fs::read_dir(home.root().join("logs")).map(|entries| {
            let name = |e: std::io::Result<std::fs::DirEntry>| {
                Some(e.ok()?.path().file_stem()?.to_string_lossy().into_owned())
            };
            let mut names: Vec<String> = entries.filter_map(name).collect();
            names.sort();
            names.join(", ")
        });
        let known = known.ok().filter(|k| !k.is_empty()).unwrap_or_else(|| "none".to_owned());
        return Err(BadInput(format!("there is no log for `{component}`; available: {known}")).into());
    }
    let mut reader = BufReader::new(std::fs::File::open(&path).with_context(|| path.display().to_string())?);
    let mut line = String::new();
    loop {
        line.clear();
        if reader.read_line(&mut line)? > 0 {
            printer.data(&line)?;
        } else if follow {
            std::thread::sleep(Duration::from_millis(100));
            // A truncated log is read from the start.
            if std::fs::metadata(&path).is_ok_and(|m| m.len() < reader.stream_position().unwrap_or(0)) {
                reader.seek(SeekFrom::Start(0))?;
            }
        } else {
            return Ok(ExitStatus::Success);
        }
    }
}
