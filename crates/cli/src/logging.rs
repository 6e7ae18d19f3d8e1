//! Logging to stderr, coloured only on a terminal.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

/// For verbs that end: `RUST_LOG`, else `--verbose`, else no logging. Without either, nothing is set up, which keeps start-up
/// short and an error one line.
pub(crate) fn start(verbose: bool) {
    match wish() {
        Some(wish) => install(&wish, false),
        None if verbose => {
            install("firesteel=debug,firesteel_spark=debug,kube_client=info,object_store=info,warn", false);
        }
        None => {}
    }
}

/// For long-running verbs: `RUST_LOG`, else `usual`.
pub(crate) fn serve(usual: &str, json: bool) {
    install(wish().as_deref().unwrap_or(usual), json);
}

fn wish() -> Option<String> {
    std::env::var("RUST_LOG").ok().filter(|wish| !wish.trim().is_empty())
}

fn install(filter: &str, json: bool) {
    let builder = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::builder().parse_lossy(filter))
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .with_target(false);
    // Only the first call takes effect: a verb that has set up logging keeps it.
    let _ = if json { builder.json().try_init() } else { builder.try_init() };
}
