//! The server as a separate process that can be killed.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use kube::Client;

use crate::client::client_of;

pub(crate) struct Process {
    child: Child,
    kubeconfig: PathBuf,
}

fn command(kubeconfig: &Path, data: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_firesteel-apiserver"));
    command.arg("--kubeconfig").arg(kubeconfig).arg("--data-dir").arg(data).stdin(Stdio::null());
    command
}

impl Process {
    /// Starts a server on `data` and waits until it responds.
    pub(crate) fn start(data: &Path) -> Self {
        let kubeconfig = data.with_extension("kubeconfig");
        let mut child = command(&kubeconfig, data).stdout(Stdio::piped()).spawn().expect("the server starts");
        let mut url = String::new();
        let words = child.stdout.take().expect("its words");
        BufReader::new(words).read_line(&mut url).expect("its URL");
        assert!(url.starts_with("https://"), "the server did not become ready: {url:?}");
        Self { child, kubeconfig }
    }

    /// The error output and exit code of a server that cannot start on `data`.
    pub(crate) fn refused(data: &Path) -> (Option<i32>, String) {
        let kubeconfig = data.with_extension("refused");
        let mut child = command(&kubeconfig, data).stderr(Stdio::piped()).spawn().expect("a process");
        let mut words = String::new();
        child.stderr.take().expect("its words").read_to_string(&mut words).expect("text");
        (child.wait().expect("an end").code(), words)
    }

    pub(crate) async fn client(&self) -> Client {
        client_of(&std::fs::read_to_string(&self.kubeconfig).expect("kubeconfig")).await
    }

    /// SIGKILL: nothing is flushed.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("kill");
        self.child.wait().expect("an end");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
