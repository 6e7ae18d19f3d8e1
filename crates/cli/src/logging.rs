//! What the program says about itself while it works, on stderr: `RUST_LOG`, else `--verbose`, else nothing but what the
//! verb prints.

use std::io;

use tracing_subscriber::EnvFilter;

/// Starts logging. Without a wish for it nothing is set up at all: that keeps start-up short and a refusal one line.
pub(crate) fn start(verbose: bool) {
    let wish = match std::env::var("RUST_LOG") {
        Ok(wish) if !wish.trim().is_empty() => wish,
        _ if verbose => "firesteel=debug,firesteel_spark=debug,kube_client=info,object_store=info,warn".to_owned(),
        _ => return,
    };
    let filter = EnvFilter::builder().parse_lossy(wish);
    // Only the first one counts: a verb that has set up its own logging keeps it.
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_target(false).try_init();
}
