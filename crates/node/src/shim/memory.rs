//! A container's memory and CPU limits: cgroups where they are writable, polling otherwise.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::unistd::Pid;

use crate::shim::process::family;

const V1: &str = "/sys/fs/cgroup";

/// How a container's memory limit is enforced.
#[derive(Debug)]
pub(crate) enum Limit {
    None,
    /// The kernel kills; the cgroups are removed with the container.
    Group {
        memory: PathBuf,
        others: Vec<PathBuf>,
        kill_count: PathBuf,
    },
    /// No cgroup: poll the usage and kill.
    Watch {
        bytes: u64,
    },
}

impl Limit {
    /// Applies limits to a process that has not started anything yet.
    pub(crate) fn apply(pid: Pid, memory: Option<u64>, cpu: Option<u64>, name: &str) -> Self {
        let cpu_group = cpu.and_then(|milli| cpu_v1(pid, milli, name).ok());
        let Some(bytes) = memory else {
            return match cpu_group {
                Some(dir) => Self::Group { kill_count: PathBuf::new(), memory: PathBuf::new(), others: vec![dir] },
                None => Self::None,
            };
        };
        match memory_v1(pid, bytes, name).or_else(|_| memory_v2(pid, bytes, cpu, name)) {
            Ok((memory, kill_count)) => Self::Group { memory, others: cpu_group.into_iter().collect(), kill_count },
            Err(_) => Self::Watch { bytes },
        }
    }

    /// Whether the kernel OOM-killed a process of the container.
    pub(crate) fn kernel_killed(&self) -> bool {
        let Self::Group { kill_count, .. } = self else { return false };
        let text = fs::read_to_string(kill_count).unwrap_or_default();
        text.lines().any(|line| line.strip_prefix("oom_kill ").is_some_and(|n| n.trim() != "0"))
    }

    /// Whether a polled container exceeds its limit.
    pub(crate) fn passed(&self, first: Pid) -> bool {
        match self {
            Self::Watch { bytes } => resident(first) > *bytes,
            Self::None | Self::Group { .. } => false,
        }
    }

    pub(crate) fn is_watched(&self) -> bool {
        matches!(self, Self::Watch { .. })
    }

    /// Removes the cgroups; their processes are gone.
    pub(crate) fn release(&self) {
        if let Self::Group { memory, others, .. } = self {
            for dir in others.iter().chain([memory]).filter(|d| !d.as_os_str().is_empty()) {
                let _ = fs::remove_dir(dir);
            }
        }
    }
}

fn memory_v1(pid: Pid, bytes: u64, name: &str) -> io::Result<(PathBuf, PathBuf)> {
    let dir = Path::new(V1).join("memory").join("firesteel").join(name);
    if !Path::new(V1).join("memory/memory.limit_in_bytes").exists() {
        return Err(io::ErrorKind::NotFound.into());
    }
    fs::create_dir_all(&dir)?;
    fs::write(dir.join("memory.limit_in_bytes"), bytes.to_string())?;
    fs::write(dir.join("cgroup.procs"), pid.to_string())?;
    let count = dir.join("memory.oom_control");
    Ok((dir, count))
}

fn memory_v2(pid: Pid, bytes: u64, cpu: Option<u64>, name: &str) -> io::Result<(PathBuf, PathBuf)> {
    // Controllers can be delegated only at the root or in a delegated subtree; elsewhere this fails and the caller polls.
    let own = fs::read_to_string("/proc/self/cgroup")?;
    let own = own.lines().find_map(|l| l.strip_prefix("0::")).ok_or(io::ErrorKind::NotFound)?;
    let controllers = fs::read_to_string(Path::new(V1).join("cgroup.controllers"))?;
    if !controllers.split_whitespace().any(|c| c == "memory") {
        return Err(io::ErrorKind::NotFound.into());
    }
    let delegated = Path::new(V1).join(own.trim_start_matches('/'));
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for base in [PathBuf::from(V1), delegated.parent().map(Path::to_path_buf).unwrap_or_default(), delegated] {
        match memory_v2_at(&base, pid, bytes, cpu, name) {
            Ok(done) => return Ok(done),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn memory_v2_at(base: &Path, pid: Pid, bytes: u64, cpu: Option<u64>, name: &str) -> io::Result<(PathBuf, PathBuf)> {
    let parent = base.join("firesteel");
    let dir = parent.join(name);
    fs::create_dir_all(&dir)?;
    for level in [base, &parent] {
        for controller in ["+memory", "+cpu"] {
            let _ = fs::write(level.join("cgroup.subtree_control"), controller);
        }
    }
    fs::write(dir.join("memory.max"), bytes.to_string())?;
    let _ = fs::write(dir.join("memory.swap.max"), "0");
    if let Some(milli) = cpu {
        let _ = fs::write(dir.join("cpu.max"), format!("{} 100000", milli.max(10) * 100));
    }
    fs::write(dir.join("cgroup.procs"), pid.to_string())?;
    let count = dir.join("memory.events");
    Ok((dir, count))
}

fn cpu_v1(pid: Pid, milli: u64, name: &str) -> io::Result<PathBuf> {
    if !Path::new(V1).join("cpu/cpu.shares").exists() {
        return Err(io::ErrorKind::NotFound.into());
    }
    let dir = Path::new(V1).join("cpu").join("firesteel").join(name);
    fs::create_dir_all(&dir)?;
    fs::write(dir.join("cpu.cfs_period_us"), "100000")?;
    fs::write(dir.join("cpu.cfs_quota_us"), (milli.max(10) * 100).to_string())?;
    fs::write(dir.join("cgroup.procs"), pid.to_string())?;
    Ok(dir)
}

/// The memory of a container's processes. Shared pages count proportionally, so forked workers do not count twice.
pub(crate) fn resident(first: Pid) -> u64 {
    family(first).into_iter().map(proportional).sum()
}

fn proportional(pid: Pid) -> u64 {
    let dir = Path::new("/proc").join(pid.to_string());
    let kilobytes = |text: &str, key: &str| -> Option<u64> {
        text.lines().find_map(|l| l.strip_prefix(key))?.trim().trim_end_matches("kB").trim().parse().ok()
    };
    fs::read_to_string(dir.join("smaps_rollup"))
        .ok()
        .and_then(|text| kilobytes(&text, "Pss:"))
        .or_else(|| fs::read_to_string(dir.join("status")).ok().and_then(|text| kilobytes(&text, "VmRSS:")))
        .unwrap_or(0)
        * 1024
}
