//! Prepares the runtimes behind images up front, so that a first run shows the download.

use std::sync::Arc;

use firesteel_node::runtime::{Progress, Runtimes};

use crate::interrupt::Interrupt;
use crate::run::view::View;

/// Makes sure that the runtime of each image is on this machine. Failures are left to the node, which reports them as a kubelet
/// would.
///
/// Ctrl-C does not wait for a download: the next run resumes it.
pub(crate) async fn provide(images: Vec<String>, view: &View, interrupt: &Interrupt) {
    let Ok(cache) = crate::node::cache_dir() else { return };
    let shown = view.clone();
    let tell = move |progress: &Progress| shown.download(&progress.what, progress.done, progress.total);
    let runtimes = Arc::new(Runtimes::new(cache, Arc::new(tell)));
    for image in images {
        let runtimes = Arc::clone(&runtimes);
        let name = image.clone();
        let prepared = tokio::task::spawn_blocking(move || runtimes.prepare(&name));
        let prepared = tokio::select! {
            prepared = prepared => prepared,
            () = interrupt.comes() => return,
        };
        match prepared {
            Ok(Ok(())) => {}
            Ok(Err(error)) => view.line(&format!("Warning: {image}: {error}")),
            Err(error) => tracing::debug!("runtime of {image}: {error}"),
        }
    }
}
