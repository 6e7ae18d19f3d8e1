//! The processes of a local cluster besides the daemon: node and operator.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use anyhow::Context;
use firesteel_local::daemon::{Part, Plan, Ready};
use firesteel_local::home::Home;
use firesteel_local::supervisor::Program;

/// The name of the one node.
pub(crate) const NODE: &str = "local";

pub(crate) fn plan(home: &Home, port: Option<u16>) -> anyhow::Result<Plan> {
    let executable = std::env::current_exe().context("find this program's own file")?;
    let part = |name: &str, more: &[OsString], ready: Ready| {
        let mut arguments: Vec<OsString> = vec![name.into(), "--kubeconfig".into(), home.kubeconfig().into()];
        arguments.extend_from_slice(more);
        let program = Program { name: name.to_owned(), executable: executable.clone(), arguments, log: home.log(name) };
        Part { program, ready }
    };
    let node = part(
        "node",
        &[
            "--name".into(),
            NODE.into(),
            "--data-dir".into(),
            home.node().into(),
            "--cpus".into(),
            offered_cpus().to_string().into(),
            "--end-pods".into(),
        ],
        Ready::Node(NODE.to_owned()),
    );
    let health = free_address().context("find a free port for the operator")?;
    let operator = part(
        "operator",
        &["--health-probe-bind-address".into(), health.to_string().into()],
        Ready::Http { address: health, path: "/readyz".to_owned() },
    );
    let mut objects = firesteel_api::crds::manifests();
    objects.extend(firesteel_api::policy::manifests());
    Ok(Plan { port, objects, parts: vec![node, operator] })
}

/// Manifests request CPUs sized for a real cluster. Here pods are processes that share this machine, so CPUs are overcommitted:
/// applications start on a laptop too, only slower.
fn offered_cpus() -> usize {
    const FEW: usize = 8;
    const SHARED_BY: usize = 4;
    std::thread::available_parallelism().map_or(FEW, |cpus| FEW.max(cpus.get() * SHARED_BY))
}

/// A local address that nothing listens on right now.
fn free_address() -> std::io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_cluster_has_the_policy_that_keeps_drivers_apart() {
        let plan = plan(&Home::at("/nowhere".into()), None).unwrap();
        for policy in firesteel_api::policy::manifests() {
            assert!(plan.objects.contains(&policy), "{policy}");
        }
    }
}
