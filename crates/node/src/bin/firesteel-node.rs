//! The standalone node agent that this crate's tests start.

use std::process::ExitCode;
use std::sync::Arc;

use firesteel_node::{AgentOptions, OnStop};
use tokio_util::sync::CancellationToken;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["shim", rest @ ..] => ExitCode::from(firesteel_node::shim::main(rest)),
        ["agent", name, data_dir, cache_dir] => agent(name, data_dir, cache_dir, OnStop::LeavePods),
        ["agent", name, data_dir, cache_dir, "--end-pods"] => agent(name, data_dir, cache_dir, OnStop::EndPods),
        ["provision", cache_dir, image] => provision(cache_dir, image),
        _ => {
            eprintln!(
                "usage: firesteel-node agent NAME DATA_DIR CACHE_DIR [--end-pods] | provision CACHE_DIR IMAGE | shim …"
            );
            ExitCode::from(2)
        }
    }
}

fn provision(cache_dir: &str, image: &str) -> ExitCode {
    let progress =
        Arc::new(|p: &firesteel_node::runtime::Progress| eprintln!("{}: {} of {:?}", p.what, p.done, p.total));
    match firesteel_node::runtime::Runtimes::new(cache_dir, progress).prepare(image) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs an agent against the cluster of `KUBECONFIG` until SIGTERM.
fn agent(name: &str, data_dir: &str, cache_dir: &str, on_stop: OnStop) -> ExitCode {
    let outcome = tokio::runtime::Runtime::new().map_err(|e| e.to_string()).and_then(|runtime| {
        runtime.block_on(async {
            let config = kube::Config::infer().await.map_err(|e| e.to_string())?;
            let program = std::env::current_exe().map_err(|e| e.to_string())?;
            let options = AgentOptions {
                name: name.to_owned(),
                data_dir: data_dir.into(),
                cache_dir: cache_dir.into(),
                shim: vec![program.into(), "shim".into()],
                labels: Default::default(),
                capacity: None,
                port: 0,
                on_stop,
                progress: Arc::new(|_| {}),
            };
            let stop = CancellationToken::new();
            let stopping = stop.clone();
            let mut terminate =
                tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).map_err(|e| e.to_string())?;
            tokio::spawn(async move {
                terminate.recv().await;
                stopping.cancel();
            });
            firesteel_node::run(config, options, stop).await.map_err(|e| e.to_string())
        })
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
