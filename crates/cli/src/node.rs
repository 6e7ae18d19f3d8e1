//! `firesteel node`: runs the node agent.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use anyhow::Context as _;
use firesteel_node::runtime::Progress;
use firesteel_node::{AgentOptions, Capacity, OnStop};
use tokio_util::sync::CancellationToken;

use crate::ExitStatus;
use crate::exit::BadInput;

#[derive(Debug, clap::Args)]
pub(crate) struct NodeArgs {
    /// Kubeconfig of the cluster to join [default: $KUBECONFIG, else ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Name of the node [default: the host name]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Directory for pods, their logs and exit codes
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
    /// Directory of Spark runtimes [default: ~/.cache/firesteel]
    #[arg(long, value_name = "DIR")]
    runtime_dir: Option<PathBuf>,
    /// Port of the node's own API on 127.0.0.1 [default: a free one]
    #[arg(long, value_name = "P", default_value_t = 0, hide_default_value = true)]
    port: u16,
    /// CPUs to offer to pods [default: all of this machine]; a higher number overcommits them
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=4096))]
    cpus: Option<u64>,
    /// Label of the node; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE")]
    labels: Vec<String>,
    /// Stop all pods when the agent stops, instead of leaving them for the next agent
    #[arg(long)]
    end_pods: bool,
}

pub(crate) fn main(args: NodeArgs) -> anyhow::Result<ExitStatus> {
    crate::logging::serve("firesteel_node=info,firesteel=info,warn", false);
    let labels = args.labels.iter().map(|l| label(l)).collect::<Result<BTreeMap<_, _>, _>>()?;
    let program = std::env::current_exe().context("find this program's own file")?;
    let data_dir = std::path::absolute(&args.data_dir).context("find the data directory")?;
    std::fs::create_dir_all(&data_dir).with_context(|| format!("create {}", data_dir.display()))?;
    let capacity = args.cpus.map(|cpus| Capacity { cpu_milli: cpus * 1000, ..Capacity::of_this_machine(&data_dir) });
    let options = AgentOptions {
        name: match args.name {
            Some(name) => name,
            None => {
                nix::unistd::gethostname().context("find the name of this machine")?.to_string_lossy().to_lowercase()
            }
        },
        data_dir,
        cache_dir: match args.runtime_dir {
            Some(dir) => std::path::absolute(dir).context("find the runtime directory")?,
            None => cache_dir()?,
        },
        shim: vec![program.into(), "shim".into()],
        labels,
        capacity,
        port: args.port,
        on_stop: if args.end_pods { OnStop::EndPods } else { OnStop::LeavePods },
        progress: log_progress(),
    };
    let runtime = tokio::runtime::Runtime::new().context("start the runtime")?;
    runtime.block_on(async {
        let config = config(args.kubeconfig).await?;
        let stop = CancellationToken::new();
        stop_on_signal(stop.clone())?;
        firesteel_node::run(config, options, stop).await?;
        Ok(ExitStatus::Success)
    })
}

/// The default directory of runtimes.
pub(crate) fn cache_dir() -> anyhow::Result<PathBuf> {
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|p| p.is_absolute());
    let base = base.or_else(|| std::env::var_os("HOME").map(|h| PathBuf::from(h).join(".cache")));
    Ok(base.context("neither XDG_CACHE_HOME nor HOME is set: name a directory with --runtime-dir")?.join("firesteel"))
}

fn label(text: &str) -> Result<(String, String), BadInput> {
    let pair = text.split_once('=').filter(|(key, _)| !key.is_empty());
    pair.map(|(k, v)| (k.to_owned(), v.to_owned())).ok_or_else(|| BadInput(format!("--label {text} is not KEY=VALUE")))
}

async fn config(path: Option<PathBuf>) -> anyhow::Result<kube::Config> {
    let Some(path) = path else { return kube::Config::infer().await.context("find the cluster") };
    let kubeconfig =
        kube::config::Kubeconfig::read_from(&path).map_err(|e| BadInput(format!("{}: {e}", path.display())))?;
    let options = kube::config::KubeConfigOptions::default();
    kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.with_context(|| format!("use {}", path.display()))
}

fn stop_on_signal(stop: CancellationToken) -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate()).context("listen for signals")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listen for signals")?;
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        stop.cancel();
    });
    Ok(())
}

/// Logs progress in steps of 10 %: the agent has no terminal.
fn log_progress() -> firesteel_node::runtime::OnProgress {
    let last = Mutex::new((String::new(), 0_u64));
    Arc::new(move |progress: &Progress| {
        let tenth = progress.total.filter(|t| *t > 0).map_or(0, |total| progress.done * 10 / total);
        let Ok(mut last) = last.lock() else { return };
        if last.0 != progress.what || last.1 != tenth {
            *last = (progress.what.clone(), tenth);
            tracing::info!("{}: {}0 %", progress.what, tenth);
        }
    })
}
