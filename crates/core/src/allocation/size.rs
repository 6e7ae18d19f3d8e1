//! The size of one executor, and the total that an application may have.

use std::collections::BTreeMap;

use firesteel_api::executors::{ExecutorGrantSpec, Maximum, ProfileDemand};
use firesteel_api::names;
use firesteel_spark::executor::is_device;
use firesteel_spark::value::Quantity;
use k8s_openapi::api::core::v1::{Container, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Written;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

/// Only this profile gets the devices of the template.
const DEFAULT_PROFILE: &str = "0";

/// The resources of one executor.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Size {
    pub cores: u64,
    pub memory_mib: u64,
    /// Devices, such as `nvidia.com/gpu`.
    pub named: BTreeMap<String, u64>,
}

impl Size {
    /// The size of a profile's executors. The driver is not trusted to report the template's devices.
    pub fn of(grant: &ExecutorGrantSpec, profile: &str, demand: &ProfileDemand) -> Self {
        let size = Size::of_demand(demand);
        if profile != DEFAULT_PROFILE {
            return size;
        }
        size.with_devices_of(&Size::of_pod(grant.template.spec.as_ref(), &grant.container))
    }

    /// The size that the driver reports for a profile.
    fn of_demand(demand: &ProfileDemand) -> Self {
        let requested = demand.cpu.as_deref().map_or(0, whole);
        let devices = demand.resources.iter().filter(|(name, _)| is_device(name));
        Size {
            cores: u64::from(demand.cores).max(requested).max(1),
            memory_mib: mebibytes(&demand.memory),
            named: devices.map(|(name, amount)| (name.clone(), whole(amount))).filter(|(_, n)| *n > 0).collect(),
        }
    }

    /// The size of Spark's container in a pod.
    pub fn of_pod(spec: Option<&PodSpec>, container: &str) -> Self {
        let spark = spec.and_then(|spec| spec.containers.iter().find(|each| each.name == container));
        spark.map(Size::of_container).unwrap_or_default()
    }

    /// The size of a set's pods, recorded when the set was created.
    pub fn of_set(meta: &ObjectMeta) -> Option<Self> {
        serde_json::from_str(meta.annotations.as_ref()?.get(names::ANNOTATION_SIZE)?).ok()
    }

    fn of_container(container: &Container) -> Self {
        let none = BTreeMap::new();
        let resources = container.resources.as_ref();
        let requests = resources.and_then(|r| r.requests.as_ref()).unwrap_or(&none);
        let limits = resources.and_then(|r| r.limits.as_ref()).unwrap_or(&none);
        let amount =
            |list: &BTreeMap<String, Written>, name: &str, unit| list.get(name).map_or(0, |q| units(&q.0, unit));
        let devices = limits.iter().filter(|(name, _)| is_device(name));
        Size {
            cores: amount(requests, "cpu", 1).max(1),
            memory_mib: amount(limits, "memory", MIB).max(amount(requests, "memory", MIB)),
            named: devices.map(|(name, q)| (name.clone(), whole(&q.0))).filter(|(_, n)| *n > 0).collect(),
        }
    }

    /// The same with at least these devices.
    fn with_devices_of(mut self, other: &Size) -> Self {
        for (name, amount) in &other.named {
            let own = self.named.entry(name.clone()).or_default();
            *own = (*own).max(*amount);
        }
        self
    }
}

/// A total of executors, or its limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Amount {
    pub executors: u64,
    pub cores: u64,
    pub memory_mib: u64,
}

impl Amount {
    /// Adds `count` executors of a size.
    pub fn add(&mut self, size: &Size, count: u64) {
        let more = |sum: &mut u64, each: u64| *sum = sum.saturating_add(each.saturating_mul(count));
        more(&mut self.executors, 1);
        more(&mut self.cores, size.cores);
        more(&mut self.memory_mib, size.memory_mib);
    }

    pub fn plus(self, other: Amount) -> Amount {
        Amount {
            executors: self.executors.saturating_add(other.executors),
            cores: self.cores.saturating_add(other.cores),
            memory_mib: self.memory_mib.saturating_add(other.memory_mib),
        }
    }

    pub fn minus(self, other: Amount) -> Amount {
        Amount {
            executors: self.executors.saturating_sub(other.executors),
            cores: self.cores.saturating_sub(other.cores),
            memory_mib: self.memory_mib.saturating_sub(other.memory_mib),
        }
    }

    /// How many executors of a size fit.
    pub fn fits(&self, size: &Size) -> u64 {
        let share = |left: u64, each: u64| left.checked_div(each).unwrap_or(u64::MAX);
        self.executors.min(share(self.cores, size.cores)).min(share(self.memory_mib, size.memory_mib))
    }
}

/// For people: `5000 executors, 20000 cores and 80Ti of memory`.
impl std::fmt::Display for Amount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (mut memory, mut unit) = (self.memory_mib, "Mi");
        for larger in ["Gi", "Ti"] {
            if memory >= 1024 && memory % 1024 == 0 {
                (memory, unit) = (memory / 1024, larger);
            }
        }
        write!(f, "{} executors, {} cores and {memory}{unit} of memory", self.executors, self.cores)
    }
}

/// What is left of a maximum.
#[derive(Debug, Clone)]
pub struct Allowance {
    executors: u64,
    cores: u64,
    memory_mib: u64,
    /// Absent: any number of any device.
    named: Option<BTreeMap<String, u64>>,
}

impl Allowance {
    pub fn of(maximum: &Maximum) -> Self {
        Allowance {
            executors: maximum.executors.map_or(u64::MAX, u64::from),
            cores: maximum.cores.unwrap_or(u64::MAX),
            memory_mib: maximum.memory_mib.unwrap_or(u64::MAX),
            named: maximum.resources.clone(),
        }
    }

    /// The same, and no more than this.
    #[must_use]
    pub fn within(mut self, limit: &Amount) -> Self {
        self.executors = self.executors.min(limit.executors);
        self.cores = self.cores.min(limit.cores);
        self.memory_mib = self.memory_mib.min(limit.memory_mib);
        self
    }

    /// How many executors of a size still fit.
    pub fn fits(&self, size: &Size) -> u32 {
        let share = |left: u64, each: u64| left.checked_div(each).unwrap_or(u64::MAX);
        let named = self.named.iter().flat_map(|left| {
            size.named.iter().map(move |(name, each)| share(left.get(name).copied().unwrap_or_default(), *each))
        });
        let most = self.executors.min(share(self.cores, size.cores)).min(share(self.memory_mib, size.memory_mib));
        u32::try_from(named.fold(most, u64::min)).unwrap_or(u32::MAX)
    }

    /// Subtracts `count` executors of a size.
    pub fn take(&mut self, size: &Size, count: u32) {
        let count = u64::from(count);
        let less = |left: &mut u64, each: u64| {
            if *left != u64::MAX {
                *left = left.saturating_sub(each.saturating_mul(count));
            }
        };
        less(&mut self.executors, 1);
        less(&mut self.cores, size.cores);
        less(&mut self.memory_mib, size.memory_mib);
        for (name, each) in &size.named {
            if let Some(left) = self.named.as_mut().and_then(|left| left.get_mut(name)) {
                *left = left.saturating_sub(each.saturating_mul(count));
            }
        }
    }
}

const MIB: u32 = 1 << 20;

/// A memory quantity in MiB, rounded up; 0 if it is not a quantity.
pub(crate) fn mebibytes(text: &str) -> u64 {
    units(text, MIB)
}

/// A quantity as a whole number, rounded up; 0 if it is not a quantity.
pub(crate) fn whole(text: &str) -> u64 {
    units(text, 1)
}

fn units(text: &str, unit: u32) -> u64 {
    text.parse::<Quantity>().map_or(0, |quantity| u64::try_from(quantity.in_units_of(unit)).unwrap_or_default())
}
