//! The eviction manager: evicts pods when the node or a pod's limits are exhausted, as a kubelet does.
//!
//! A pod is evicted if it exceeds its disk limits (`sizeLimit` of an emptyDir, `ephemeral-storage`), or if the node runs low on
//! memory or disk. The node's thresholds are lower than a kubelet's: on a workstation, a disk that is 90 % full is not an
//! emergency. [`choose`] and [`overstep`] are pure.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use nix::unistd::Pid;

use super::node::{self, Description, Readiness};
use super::{PodEntry, Shared, apart, lock, shim_connection};
use crate::lifecycle::TerminationByKubelet;
use crate::shim::memory;
use crate::shim_protocol::{ContainerState, PodDir};

const EVERY: Duration = Duration::from_secs(5);
/// The same as a kubelet's `memory.available<100Mi`.
const LEAST_MEMORY: u64 = 100 << 20;
/// Disk pressure starts below this, or below a twentieth of a small disk.
const LEAST_DISK: u64 = 512 << 20;

/// The resources the node is short of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Pressure {
    pub(crate) memory: bool,
    pub(crate) disk: bool,
}

/// A pod's usage and request of one resource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Usage {
    uid: String,
    used: u64,
    requested: u64,
    priority: i32,
}

/// Eviction order: pods above their request first, then by lower priority, then by excess.
fn choose(pods: &[Usage]) -> Option<&Usage> {
    pods.iter().filter(|p| p.used > 0).min_by_key(|p| {
        let above = i128::from(p.used) - i128::from(p.requested);
        (above <= 0, p.priority, -above)
    })
}

/// A pod's disk usage: by emptyDir, by container, and in memory-backed volumes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Written {
    volumes: BTreeMap<String, u64>,
    containers: BTreeMap<String, u64>,
}

/// The first limit a pod exceeds, in a kubelet's words.
fn overstep(pod: &Pod, written: &Written) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    for volume in spec.volumes.iter().flatten() {
        let limit = volume.empty_dir.as_ref().and_then(|e| e.size_limit.as_ref());
        if let Some(limit) = limit
            && firesteel_quantity::whole(limit)
                .is_some_and(|most| most > 0 && written.volumes.get(&volume.name) > Some(&most))
        {
            return Some(format!("Usage of EmptyDir volume \"{}\" exceeds the limit \"{}\". ", volume.name, limit.0));
        }
    }
    let mut total = Some(0_u64);
    for container in &spec.containers {
        let limit =
            container.resources.as_ref().and_then(|r| r.limits.as_ref()).and_then(|l| l.get("ephemeral-storage"));
        let Some(limit) = limit else {
            total = None;
            continue;
        };
        let most = firesteel_quantity::whole(limit).unwrap_or(u64::MAX);
        if written.containers.get(&container.name) > Some(&most) {
            return Some(format!(
                "Container {} exceeded its local ephemeral storage limit \"{}\". ",
                container.name, limit.0
            ));
        }
        total = total.map(|t| t.saturating_add(most));
    }
    let on_disk = |name: &String| {
        let volume = spec.volumes.iter().flatten().find(|v| &v.name == name);
        volume.and_then(|v| v.empty_dir.as_ref()).is_some_and(|e| e.medium.as_deref() != Some("Memory"))
    };
    let volumes: u64 = written.volumes.iter().filter(|(name, _)| on_disk(name)).map(|(_, bytes)| bytes).sum();
    let all = volumes + written.containers.values().sum::<u64>();
    total.filter(|most| all > *most).map(|most| {
        format!("Pod ephemeral local storage usage exceeds the total limit of containers {}. ", readable(most))
    })
}

fn readable(bytes: u64) -> String {
    [("Gi", 30), ("Mi", 20), ("Ki", 10)]
        .into_iter()
        .find(|(_, shift)| bytes >= 1 << shift && bytes.trailing_zeros() >= *shift)
        .map_or_else(|| bytes.to_string(), |(unit, shift)| format!("{}{unit}", bytes >> shift))
}

fn has_limits(pod: &Pod) -> bool {
    pod.spec.as_ref().is_some_and(|s| {
        s.volumes.iter().flatten().any(|v| v.empty_dir.as_ref().is_some_and(|e| e.size_limit.is_some()))
            || s.containers.iter().any(|c| {
                c.resources
                    .as_ref()
                    .and_then(|r| r.limits.as_ref())
                    .is_some_and(|l| l.contains_key("ephemeral-storage"))
            })
    })
}

/// Checks periodically and evicts.
pub(super) async fn watch(shared: Arc<Shared>, description: Description) {
    loop {
        tokio::time::sleep(EVERY).await;
        let pods: Vec<(String, PodEntry)> =
            lock(&shared.pods).iter().filter(|(_, e)| !*e.over.borrow()).map(|(u, e)| (u.clone(), e.clone())).collect();
        let data_dir = shared.options.data_dir.clone();
        let Ok((pressure, evictions)) = apart(move || look(&data_dir, &pods)).await else {
            continue;
        };
        for (uid, order) in evictions {
            tracing::warn!(%uid, "evicting a pod: {}", order.message);
            if let Some(entry) = lock(&shared.pods).get(&uid) {
                entry.orders.send_replace(Some(order));
            }
        }
        let changed = std::mem::replace(&mut *lock(&shared.pressure), pressure) != pressure;
        if changed && let Err(error) = node::report(&shared.client, &description, Readiness::Ready, pressure).await {
            tracing::warn!(%error, "could not write the node's status");
        }
    }
}

fn look(data_dir: &Path, pods: &[(String, PodEntry)]) -> (Pressure, Vec<(String, TerminationByKubelet)>) {
    let mut evictions = Vec::new();
    for (uid, entry) in pods {
        let pod = Arc::clone(&entry.view.borrow().pod);
        if has_limits(&pod)
            && let Some(why) = overstep(&pod, &written(&PodDir::new(data_dir, uid), &pod))
        {
            evictions.push((uid.clone(), TerminationByKubelet::evict(why, false)));
        }
    }
    let (memory, disk) = (available_memory(), available_disk(data_dir));
    let pressure = Pressure {
        memory: memory.is_some_and(|left| left < LEAST_MEMORY),
        disk: disk.is_some_and(|(left, least)| left < least),
    };
    // One at a time: that may free enough.
    if evictions.is_empty() && pressure.memory {
        evictions.extend(evict_one(data_dir, pods, "memory", memory.unwrap_or(0), LEAST_MEMORY));
    }
    if evictions.is_empty()
        && let Some((left, least)) = disk.filter(|_| pressure.disk)
    {
        evictions.extend(evict_one(data_dir, pods, "ephemeral-storage", left, least));
    }
    (pressure, evictions)
}

fn evict_one(
    data_dir: &Path,
    pods: &[(String, PodEntry)],
    resource: &'static str,
    left: u64,
    least: u64,
) -> Option<(String, TerminationByKubelet)> {
    let usages: Vec<Usage> = pods
        .iter()
        .map(|(uid, entry)| {
            let (pod, dir) = (Arc::clone(&entry.view.borrow().pod), PodDir::new(data_dir, uid));
            let used = if resource == "memory" { memory_of(&dir) } else { disk_of(&dir) };
            let priority = pod.spec.as_ref().and_then(|s| s.priority).unwrap_or(0);
            Usage { uid: uid.clone(), used, requested: requested(&pod, resource), priority }
        })
        .collect();
    let victim = choose(&usages)?;
    let name = pods.iter().find(|(uid, _)| *uid == victim.uid).map(|(_, e)| e.name.clone()).unwrap_or_default();
    let mut message = format!(
        "The node was low on resource: {resource}. Threshold quantity: {}, available: {}Ki. ",
        readable(least),
        left / 1024
    );
    if victim.used > victim.requested {
        let (used, asked) = (victim.used / 1024, readable(victim.requested));
        message.push_str(&format!(
            "Pod {name} was using {used}Ki, request is {asked}, has larger consumption of {resource}. "
        ));
    }
    Some((victim.uid.clone(), TerminationByKubelet::evict(message, true)))
}

fn requested(pod: &Pod, resource: &str) -> u64 {
    let containers = pod.spec.iter().flat_map(|s| s.containers.iter());
    let requests = containers.filter_map(|c| c.resources.as_ref()?.requests.as_ref()?.get(resource));
    requests.filter_map(firesteel_quantity::whole).sum()
}

fn memory_of(dir: &PodDir) -> u64 {
    let record = shim_connection::recorded(dir);
    let running = record.containers.values().filter_map(|c| match c.state {
        ContainerState::Running { pid, .. } => Some(Pid::from_raw(pid)),
        ContainerState::Starting | ContainerState::Exited(_) => None,
    });
    running.map(memory::resident).sum()
}

fn disk_of(dir: &PodDir) -> u64 {
    size_of(dir.path())
}

fn written(dir: &PodDir, pod: &Pod) -> Written {
    let mut written = Written::default();
    let Some(spec) = pod.spec.as_ref() else { return written };
    for volume in spec.volumes.iter().flatten() {
        let Some(source) = &volume.empty_dir else { continue };
        let memory = source.medium.as_deref() == Some("Memory");
        let place = if memory { dir.memory() } else { dir.volumes() };
        written.volumes.insert(volume.name.clone(), size_of(&place.join(&volume.name)));
    }
    for container in &spec.containers {
        written.containers.insert(container.name.clone(), size_of(&dir.container(&container.name)));
    }
    written
}

/// The size of a directory tree, without crossing file systems: mounts are not the container's own data.
fn size_of(path: &Path) -> u64 {
    fn add(path: &Path, device: u64, depth: u32) -> u64 {
        let Ok(meta) = fs::symlink_metadata(path) else { return 0 };
        if meta.dev() != device || depth > 64 {
            return 0;
        }
        let own = meta.blocks() * 512;
        if !meta.is_dir() {
            return own;
        }
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        own + entries.map(|e| add(&e.path(), device, depth + 1)).sum::<u64>()
    }
    fs::symlink_metadata(path).map_or(0, |meta| add(path, meta.dev(), 0))
}

fn available_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kb| kb * 1024)
}

/// Free disk space, and how much has to stay free.
fn available_disk(data_dir: &Path) -> Option<(u64, u64)> {
    let stat = nix::sys::statvfs::statvfs(data_dir).ok()?;
    let total = stat.blocks() * stat.fragment_size();
    Some((stat.blocks_available() * stat.fragment_size(), LEAST_DISK.min(total / 20)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_uses_more_than_asked_for_goes_first() {
        let pod = |uid: &str, used, requested, priority| Usage { uid: uid.to_owned(), used, requested, priority };
        let modest = pod("modest", 900, 1000, 0);
        let greedy = pod("greedy", 500, 100, 0);
        let greedier = pod("greedier", 600, 100, 0);
        let important = pod("important", 5000, 0, 1000);
        let of = |all: &[Usage]| choose(all).map(|u| u.uid.clone());
        assert_eq!(of(&[modest.clone(), greedy.clone(), greedier, important]), Some("greedier".to_owned()));
        assert_eq!(of(&[modest.clone(), greedy]), Some("greedy".to_owned()));
        assert_eq!(of(&[modest]), Some("modest".to_owned()), "somebody has to go");
        assert_eq!(of(&[pod("idle", 0, 0, 0)]), None, "it has nothing to give back");
    }

    #[test]
    fn a_limit_that_is_passed_is_named() {
        let pod: Pod = serde_json::from_value(serde_json::json!({"spec": {
            "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}, {"name": "w", "emptyDir": {}}],
            "containers": [{"name": "c", "resources": {"limits": {"ephemeral-storage": "2Mi"}}}]
        }}))
        .expect("a pod");
        let written = |v: u64, w: u64, c: u64| Written {
            volumes: [("v".to_owned(), v), ("w".to_owned(), w)].into(),
            containers: [("c".to_owned(), c)].into(),
        };
        assert_eq!(overstep(&pod, &written(1 << 20, 0, 0)), None, "at the limit is within it");
        let said = |v, w, c| overstep(&pod, &written(v, w, c)).unwrap_or_default();
        assert_eq!(said(1_100_000, 0, 0), "Usage of EmptyDir volume \"v\" exceeds the limit \"1Mi\". ");
        assert_eq!(said(0, 0, 3 << 20), "Container c exceeded its local ephemeral storage limit \"2Mi\". ");
        assert_eq!(
            said(0, 2 << 20, 1 << 20),
            "Pod ephemeral local storage usage exceeds the total limit of containers 2Mi. "
        );
        assert!(has_limits(&pod));
    }
}
