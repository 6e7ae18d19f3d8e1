//! The real Kubernetes that tests run against, and the only way for a test to get it.
//!
//! [`TestEnv::get`] returns the control plane for this test process. In order of preference:
//! 1. the cluster of `FIRESTEEL_TEST_KUBECONFIG`,
//! 2. the control plane that `testenv/testenv start` started in `FIRESTEEL_TESTENV_DIR` (`./test` does this, so that all test
//!    binaries share one),
//! 3. the cluster of `KUBECONFIG`,
//! 4. a new one that ends with this process, even if the process is killed.
//!
//! If this machine cannot run one, `get` returns `None` and the test ends early; `./test` reports that in its last lines.
//! Any other failure panics: this crate is for tests only.

mod https;
mod limited;
mod namespace;

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use kube::config::{KubeConfigOptions, Kubeconfig};

pub use https::serve_https;
pub use limited::LimitedKubeconfig;
pub use namespace::TestNamespace;

/// A kubeconfig for tests.
pub const KUBECONFIG: &str = "FIRESTEEL_TEST_KUBECONFIG";
/// The directory of a running control plane.
pub const DIR: &str = "FIRESTEEL_TESTENV_DIR";
/// If set, nothing is started; the value is the reason.
pub const SKIP: &str = "FIRESTEEL_TESTENV_SKIP";
/// Exit code of `testenv` if this machine cannot run a control plane.
const UNAVAILABLE: i32 = 77;
/// Fake nodes of a control plane started here: they run pods, and drivers finish after a second.
const KWOK_NODES: &str = "2";

/// A running control plane with cluster-admin permissions.
#[derive(Debug)]
pub struct TestEnv {
    kubeconfig: PathBuf,
    /// Set for a control plane started by `testenv/testenv`; `None` for an external cluster.
    dir: Option<PathBuf>,
}

impl TestEnv {
    /// The control plane of this process, or `None` (with a line on stderr) if this machine cannot run one.
    pub fn get() -> Option<&'static TestEnv> {
        static ENV: OnceLock<Result<TestEnv, String>> = OnceLock::new();
        match ENV.get_or_init(TestEnv::find) {
            Ok(env) => Some(env),
            Err(reason) => {
                eprintln!("SKIPPED, no Kubernetes: {reason}");
                None
            }
        }
    }

    /// A separate control plane for this process, for tests that change shared state. `None` if this machine cannot run one or the
    /// tests are to be skipped.
    pub fn own() -> Option<&'static TestEnv> {
        static OWN: OnceLock<Option<TestEnv>> = OnceLock::new();
        OWN.get_or_init(TestEnv::another).as_ref()
    }

    /// Another control plane until this process ends, for a test that changes what no other may see.
    pub fn another() -> Option<TestEnv> {
        let started = match env::var_os(SKIP) {
            Some(reason) => Err(reason.to_string_lossy().into_owned()),
            None => start().map(TestEnv::started),
        };
        started.inspect_err(|reason| eprintln!("SKIPPED, no Kubernetes: {reason}")).ok()
    }

    /// The directory with the existing operator's custom resource definitions, or `None` if they cannot be fetched.
    pub fn kubeflow_crds() -> Option<PathBuf> {
        fetched("kubeflow-crds", "definitions of the existing operator")
    }

    /// Prometheus' checker of metrics and rules, or `None` if it cannot be fetched.
    pub fn promtool() -> Option<PathBuf> {
        fetched("promtool", "promtool")
    }

    /// The directory with the Gateway API's custom resource definitions, or `None` if they cannot be fetched.
    pub fn gateway_crds() -> Option<PathBuf> {
        fetched("gateway-crds", "definitions of the Gateway API")
    }

    fn find() -> Result<TestEnv, String> {
        if let Some(kubeconfig) = given(KUBECONFIG) {
            return Ok(TestEnv::outside(kubeconfig));
        }
        if let Some(dir) = given(DIR) {
            return Ok(TestEnv::started(dir));
        }
        if let Some(kubeconfig) = given("KUBECONFIG") {
            return Ok(TestEnv::outside(kubeconfig));
        }
        if let Some(reason) = env::var_os(SKIP) {
            return Err(reason.to_string_lossy().into_owned());
        }
        start().map(TestEnv::started)
    }

    fn outside(kubeconfig: PathBuf) -> TestEnv {
        TestEnv { kubeconfig, dir: None }
    }

    fn started(dir: PathBuf) -> TestEnv {
        TestEnv { kubeconfig: dir.join("kubeconfig"), dir: Some(dir) }
    }

    /// Path of the admin kubeconfig.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Path of kubectl: the matching version, or the one on `PATH` for an external cluster.
    pub fn kubectl(&self) -> PathBuf {
        self.dir.as_ref().map_or_else(|| "kubectl".into(), |dir| dir.join("bin/kubectl"))
    }

    /// The API server's audit log (JSON lines, with the bodies of writes), if it is readable here.
    pub fn audit_log(&self) -> Option<PathBuf> {
        self.dir.as_ref().map(|dir| dir.join("audit.log"))
    }

    /// Whether the cluster is external and outlives the tests.
    pub fn is_outside(&self) -> bool {
        self.dir.is_none()
    }

    /// The API server's URL, as it follows `k8s://` in a Spark master.
    pub fn server(&self) -> String {
        let config = self.read();
        let name = config.current_context.as_deref();
        let context = config
            .contexts
            .iter()
            .find(|named| Some(named.name.as_str()) == name)
            .and_then(|named| named.context.clone());
        let cluster = context.and_then(|context| config.clusters.iter().find(|named| named.name == context.cluster));
        cluster
            .and_then(|named| named.cluster.clone()?.server)
            .expect("the current context of the kubeconfig names a server")
    }

    /// A client with cluster-admin permissions. It belongs to the current runtime: create one per test.
    pub async fn client(&self) -> kube::Client {
        let config = kube::Config::from_custom_kubeconfig(self.read(), &KubeConfigOptions::default()).await;
        kube::Client::try_from(config.expect("a usable kubeconfig")).expect("a client from the kubeconfig")
    }

    fn read(&self) -> Kubeconfig {
        let path = self.kubeconfig.display();
        Kubeconfig::read_from(&self.kubeconfig).unwrap_or_else(|error| panic!("{path}: {error}"))
    }
}

/// The path that a script of `testenv/` prints, or `None` (with a line on stderr) if what it fetches is unavailable here.
fn fetched(script: &str, what: &str) -> Option<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testenv").join(script);
    let output = Command::new(&script).stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.unwrap_or_else(|error| panic!("{}: {error}", script.display()));
    match output.status.code() {
        Some(0) => Some(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())),
        Some(UNAVAILABLE) => {
            eprintln!("SKIPPED, no {what}: see above");
            None
        }
        _ => panic!("{} failed; see its output above", script.display()),
    }
}

fn given(variable: &str) -> Option<PathBuf> {
    env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Starts a control plane that ends with this process. The error says why this machine cannot run one.
fn start() -> Result<PathBuf, String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testenv/testenv");
    // Building can take minutes. Its progress goes to stderr, which the test harness does not capture for child processes.
    let child = Command::new(&script)
        .args(["start", "--kwok-nodes", KWOK_NODES, "--owner-pid", &std::process::id().to_string()])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output();
    let output = match child {
        Ok(output) => output,
        Err(error) => return Err(format!("{} does not run: {error}", script.display())),
    };
    match output.status.code() {
        Some(0) => Ok(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())),
        Some(UNAVAILABLE) => Err("testenv cannot be built or started on this machine, see its output above".into()),
        _ => panic!("testenv start failed ({}); see its output above", output.status),
    }
}
