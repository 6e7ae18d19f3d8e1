//! The Node object and its heartbeats.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{
    DaemonEndpoint, Node, NodeAddress, NodeCondition, NodeDaemonEndpoints, NodeStatus, NodeSystemInfo,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference, Time};
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};

use super::AgentError;
use super::eviction::Pressure;

pub(crate) const LEASE_NAMESPACE: &str = "kube-node-lease";
const LEASE_SECONDS: i32 = 40;
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(10);
/// Identifies the agent that serves a node: two agents would start every pod twice.
const AGENT_ANNOTATION: &str = "firesteel.dev/agent";

/// The resources this machine offers to pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capacity {
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    pub pods: u32,
    pub storage_bytes: u64,
}

impl Capacity {
    /// All of the machine's resources.
    pub fn of_this_machine(data_dir: &Path) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kilobytes = meminfo
            .lines()
            .find_map(|l| l.strip_prefix("MemTotal:")?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
        let disk = nix::sys::statvfs::statvfs(data_dir).map_or(0, |s| s.blocks() * s.fragment_size());
        Self {
            cpu_milli: cores * 1000,
            memory_bytes: kilobytes.unwrap_or(1 << 20) * 1024,
            pods: 250,
            storage_bytes: disk,
        }
    }

    fn quantities(&self) -> BTreeMap<String, Quantity> {
        let cpu = if self.cpu_milli.is_multiple_of(1000) {
            (self.cpu_milli / 1000).to_string()
        } else {
            format!("{}m", self.cpu_milli)
        };
        [
            ("cpu", cpu),
            ("memory", format!("{}Ki", self.memory_bytes / 1024)),
            ("pods", self.pods.to_string()),
            ("ephemeral-storage", format!("{}Ki", self.storage_bytes / 1024)),
        ]
        .map(|(k, v)| (k.to_owned(), Quantity(v)))
        .into()
    }
}

/// What the node reports about itself.
#[derive(Debug, Clone)]
pub(crate) struct Description {
    pub(crate) name: String,
    pub(crate) identity: String,
    pub(crate) address: String,
    pub(crate) port: i32,
    pub(crate) capacity: Capacity,
    pub(crate) labels: BTreeMap<String, String>,
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn node(d: &Description) -> Node {
    let mut labels = d.labels.clone();
    for (key, value) in [
        ("kubernetes.io/hostname", d.name.as_str()),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", architecture()),
        ("firesteel.dev/node", "process"),
    ] {
        labels.insert(key.to_owned(), value.to_owned());
    }
    let annotations = BTreeMap::from([(AGENT_ANNOTATION.to_owned(), d.identity.clone())]);
    Node {
        metadata: ObjectMeta {
            name: Some(d.name.clone()),
            labels: Some(labels),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        },
        ..Node::default()
    }
}

/// The node's own health.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readiness {
    Ready,
    Stopped,
}

fn status(d: &Description, ready: Readiness, pressure: Pressure, old: &[NodeCondition], now: Timestamp) -> NodeStatus {
    let seconds = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let condition = |kind: &str, value: bool, reason: &str, message: &str| {
        let status = if value { "True" } else { "False" };
        let since =
            old.iter().find(|c| c.type_ == kind && c.status == status).and_then(|c| c.last_transition_time.clone());
        NodeCondition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_heartbeat_time: Some(Time(seconds)),
            last_transition_time: Some(since.unwrap_or(Time(seconds))),
        }
    };
    let read = |path: &str| fs::read_to_string(path).map(|t| t.trim().to_owned()).unwrap_or_default();
    let system = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let system = system
        .lines()
        .find_map(|l| l.strip_prefix("PRETTY_NAME="))
        .map(|n| n.trim_matches('"').to_owned())
        .unwrap_or_default();
    let version = format!("v{}-firesteel", env!("CARGO_PKG_VERSION"));
    NodeStatus {
        capacity: Some(d.capacity.quantities()),
        allocatable: Some(d.capacity.quantities()),
        conditions: Some(vec![
            if pressure.memory {
                condition(
                    "MemoryPressure",
                    true,
                    "KubeletHasInsufficientMemory",
                    "kubelet has insufficient memory available",
                )
            } else {
                condition(
                    "MemoryPressure",
                    false,
                    "KubeletHasSufficientMemory",
                    "kubelet has sufficient memory available",
                )
            },
            if pressure.disk {
                condition("DiskPressure", true, "KubeletHasDiskPressure", "kubelet has disk pressure")
            } else {
                condition("DiskPressure", false, "KubeletHasNoDiskPressure", "kubelet has no disk pressure")
            },
            condition("PIDPressure", false, "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
            match ready {
                Readiness::Ready => condition("Ready", true, "KubeletReady", "pods run as processes of this machine"),
                Readiness::Stopped => condition("Ready", false, "KubeletNotReady", "node is shutting down"),
            },
        ]),
        addresses: Some(vec![
            NodeAddress { type_: "InternalIP".to_owned(), address: d.address.clone() },
            NodeAddress { type_: "Hostname".to_owned(), address: d.name.clone() },
        ]),
        daemon_endpoints: Some(NodeDaemonEndpoints { kubelet_endpoint: Some(DaemonEndpoint { port: d.port }) }),
        node_info: Some(NodeSystemInfo {
            architecture: architecture().to_owned(),
            operating_system: "linux".to_owned(),
            kernel_version: read("/proc/sys/kernel/osrelease"),
            machine_id: read("/etc/machine-id"),
            boot_id: read("/proc/sys/kernel/random/boot_id"),
            os_image: system,
            container_runtime_version: format!("firesteel://{}", env!("CARGO_PKG_VERSION")),
            kubelet_version: version.clone(),
            kube_proxy_version: version,
            ..NodeSystemInfo::default()
        }),
        ..NodeStatus::default()
    }
}

/// Creates or takes over the Node. Fails if another agent serves it.
pub(crate) async fn register(client: &Client, d: &Description) -> Result<Node, AgentError> {
    let nodes: Api<Node> = Api::all(client.clone());
    let said = |step: &'static str| {
        let name = d.name.clone();
        move |source: kube::Error| AgentError::Api { step, object: format!("node {name}"), source: Box::new(source) }
    };
    let existing = nodes.get_opt(&d.name).await.map_err(said("reading"))?;
    let wanted = node(d);
    let registered = match existing {
        None => nodes.create(&PostParams::default(), &wanted).await.map_err(said("creating"))?,
        Some(old) => {
            let other =
                old.metadata.annotations.as_ref().and_then(|a| a.get(AGENT_ANNOTATION)).filter(|a| **a != d.identity);
            if let Some(other) = other
                && lease_is_fresh(client, &d.name).await
            {
                return Err(AgentError::Served { node: d.name.clone(), agent: other.clone() });
            }
            let patch = serde_json::json!({"metadata": {"labels": wanted.metadata.labels, "annotations": wanted.metadata.annotations}});
            nodes.patch(&d.name, &PatchParams::default(), &Patch::Merge(patch)).await.map_err(said("updating"))?
        }
    };
    report(client, d, Readiness::Ready, Pressure::default()).await.map_err(said("updating"))?;
    Ok(registered)
}

async fn lease_is_fresh(client: &Client, name: &str) -> bool {
    let leases: Api<Lease> = Api::namespaced(client.clone(), LEASE_NAMESPACE);
    let renewed = leases.get_opt(name).await.ok().flatten().and_then(|l| l.spec?.renew_time);
    renewed.is_some_and(|t| Timestamp::now().duration_since(t.0) < SignedDuration::from_secs(i64::from(LEASE_SECONDS)))
}

/// Writes the node's status.
pub(crate) async fn report(
    client: &Client,
    d: &Description,
    ready: Readiness,
    pressure: Pressure,
) -> Result<(), kube::Error> {
    let nodes: Api<Node> = Api::all(client.clone());
    let now = nodes.get(&d.name).await?;
    let old = now.status.and_then(|s| s.conditions).unwrap_or_default();
    let mut new = status(d, ready, pressure, &old, Timestamp::now());
    // Conditions owned by others (network, for example) are kept.
    let ours: Vec<String> = new.conditions.iter().flatten().map(|c| c.type_.clone()).collect();
    new.conditions.iter_mut().for_each(|c| c.extend(old.iter().filter(|o| !ours.contains(&o.type_)).cloned()));
    nodes
        .patch_status(&d.name, &PatchParams::default(), &Patch::Merge(serde_json::json!({"status": new})))
        .await
        .map(|_| ())
}

/// Renews the node's lease.
pub(crate) async fn renew(client: &Client, d: &Description, uid: Option<&str>) -> Result<(), kube::Error> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), LEASE_NAMESPACE);
    let now = MicroTime(Timestamp::now());
    let patch = serde_json::json!({"spec": {"holderIdentity": d.name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": now}});
    match leases.patch(&d.name, &PatchParams::default(), &Patch::Merge(patch)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() => {
            let owner = uid.map(|uid| {
                vec![OwnerReference {
                    api_version: "v1".to_owned(),
                    kind: "Node".to_owned(),
                    name: d.name.clone(),
                    uid: uid.to_owned(),
                    ..OwnerReference::default()
                }]
            });
            let lease = Lease {
                metadata: ObjectMeta {
                    name: Some(d.name.clone()),
                    namespace: Some(LEASE_NAMESPACE.to_owned()),
                    owner_references: owner,
                    ..ObjectMeta::default()
                },
                spec: Some(LeaseSpec {
                    holder_identity: Some(d.name.clone()),
                    lease_duration_seconds: Some(LEASE_SECONDS),
                    renew_time: Some(now),
                    ..LeaseSpec::default()
                }),
            };
            leases.create(&PostParams::default(), &lease).await.map(|_| ())
        }
        Err(error) => Err(error),
    }
}
