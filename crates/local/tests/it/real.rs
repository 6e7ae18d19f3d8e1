//! The real kube-apiserver, with kube-controller-manager and kube-scheduler stopped (SIGSTOP) so that only our controllers act.

use std::path::PathBuf;
use std::process::Command;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

pub(crate) struct Plane {
    directory: tempfile::TempDir,
    script: PathBuf,
}

impl Plane {
    /// Starts one. `FIRESTEEL_TESTENV_SKIP=1` skips it.
    pub(crate) fn start() -> Option<Self> {
        if std::env::var_os("FIRESTEEL_TESTENV_SKIP").is_some() {
            eprintln!("skipped: FIRESTEEL_TESTENV_SKIP is set");
            return None;
        }
        let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testenv/testenv");
        let directory = tempfile::tempdir().expect("a directory");
        let started = Command::new(&script)
            .args(["start", "--owner-pid", &std::process::id().to_string(), "--dir"])
            .arg(directory.path().join("plane"))
            .status()
            .expect("testenv runs");
        assert!(started.success(), "testenv start failed; FIRESTEEL_TESTENV_SKIP=1 does without the real API server");
        let plane = Plane { directory, script };
        let env = std::fs::read(plane.dir().join("env.json")).expect("env.json");
        let env: serde_json::Value = serde_json::from_slice(&env).expect("env.json is JSON");
        for component in ["kube-controller-manager", "kube-scheduler"] {
            let pid = env["components"][component].as_i64().expect("a pid");
            let held = Command::new("kill").args(["-STOP", &pid.to_string()]).status().expect("kill runs");
            assert!(held.success(), "{component} is held");
        }
        Some(plane)
    }

    fn dir(&self) -> PathBuf {
        self.directory.path().join("plane")
    }

    pub(crate) async fn client(&self) -> Client {
        let file = Kubeconfig::read_from(self.dir().join("kubeconfig")).expect("kubeconfig");
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.expect("config");
        Client::try_from(config).expect("client")
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        let _ = Command::new(&self.script).args(["stop", "--dir"]).arg(self.dir()).status();
    }
}
