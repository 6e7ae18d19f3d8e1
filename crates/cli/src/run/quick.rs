//! Quicker starts for a person's next run: the archive of Spark's classes, made beside the first one.
//!
//! It costs a minute of a processor, so it is made at the lowest priority while the application runs, by a process of its own.
//! If the application ends first, its success is told and what is left is waited for, because nothing may go on after
//! us; Ctrl-C gives it up. Without a terminal nobody is there who would run things again and again: a script or a CI job gets
//! no more work than it asked for.

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

/// The making of an archive. Given up when dropped.
pub(crate) struct Quickening {
    maker: Child,
}

impl Quickening {
    /// Begins for the first image that has something to gain, if somebody watches.
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
        // A group of its own: Ctrl-C on the terminal is for us to hear, and all of it can be ended at once.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        match command.spawn() {
            Ok(maker) => Some(Quickening { maker }),
            Err(error) => {
                tracing::debug!("quicker starts: {error}");
                None
            }
        }
    }

    /// Waits for its end, unless the person would rather not.
    pub(crate) async fn finish(mut self, view: &View, interrupt: &Interrupt) {
        let done = async {
            let mut told = false;
            loop {
                match self.maker.try_wait() {
                    Ok(Some(status)) => return status.success(),
                    Ok(None) if !told => {
                        view.line("Making later starts quicker, this once: it takes up to a minute, Ctrl-C skips it");
                        told = true;
                    }
                    Ok(None) => {}
                    Err(_) => return false,
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::select! {
            made = done => if made { view.line("Later starts are quicker now") },
            () = interrupt.comes() => view.line("Skipped: later starts stay as they are"),
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
