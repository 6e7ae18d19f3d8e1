//! The files behind images, made before they are needed, so that a first run shows what takes so long.

use std::sync::Arc;

use firesteel_node::runtime::{Progress, Runtimes};

use crate::interrupt::Interrupt;
use crate::run::view::View;

/// Makes sure that the runtime of each image is on this machine. What cannot be had is left to the node, which says so
/// as a kubelet would.
///
/// Ctrl-C does not wait for a download: the part that is there is used the next time.
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
