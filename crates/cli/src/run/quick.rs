//! Faster later runs: an archive of Spark's classes, created during the first run.
//!
//! It costs a minute of CPU, so a separate process creates it at the lowest priority while the application runs. If the
//! application ends first, its success is reported and the rest is waited for, because nothing may keep running after us;
//! Ctrl-C skips it. Without a terminal there is no archive: a script or CI job gets no more work than it asked for.

use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use firesteel_node::runtime::Runtimes;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::interrupt::Interrupt;
use crate::run::view::View;

const LOOK: Duration = Duration::from_millis(200);

/// The process that creates an archive. Killed when dropped.
pub(crate) struct Quickening {
    maker: Child,
}

impl Quickening {
    /// Starts for the first image without an archive, if there is a terminal.
    pub(crate) async fn begin(images: &[String], view: &View) -> Option<Self> {
        if !view.is_live() {
            return None;
        }
        let runtimes = Runtimes::new(crate::node::cache_dir().ok()?, Arc::new(|_| {}));
        let wanted = images.to_vec();
        let slow = move || wanted.into_iter().find(|image| runtimes.is_quick(image).is_ok_and(|quick| !quick));
        let image = tokio::task::spawn_blocking(slow).await.ok()??;
        let mut command = Command::new("nice");
        command.args(["-n", "19"]).arg(std::env::current_exe().ok()?).args(["local", "image", "pull", &image]);
        // A separate process group: Ctrl-C on the terminal reaches only us, and the whole group can be killed at once.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        match command.spawn() {
            Ok(maker) => Some(Quickening { maker }),
            Err(error) => {
                tracing::debug!("quicker starts: {error}");
                None
            }
        }
    }

    /// Waits until it is done or interrupted.
    pub(crate) async fn finish(mut self, view: &View, interrupt: &Interrupt) {
        let done = async {
            let mut told = false;
            loop {
                match self.maker.try_wait() {
                    Ok(Some(status)) => return status.success(),
                    Ok(None) if !told => {
                        view.line("Speeding up later starts, once; this takes up to a minute, Ctrl-C skips it");
                        told = true;
                    }
                    Ok(None) => {}
                    Err(_) => return false,
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::select! {
            made = done => if made { view.line("Later starts will be faster") },
            () = interrupt.comes() => view.line("Skipped: later starts will not be faster"),
        }
    }
}

impl Drop for Quickening {
    fn drop(&mut self) {
        if let (Ok(None), Ok(group)) = (self.maker.try_wait(), i32::try_from(self.maker.id())) {
            let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
            let _ = self.maker.wait();
        }
    }
}
