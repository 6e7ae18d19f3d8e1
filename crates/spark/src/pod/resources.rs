//! CPU, memory and devices that a pod requests.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::role::Role;
use super::settings::Settings;
use super::{Draft, PlanError};
use crate::names::key;
use crate::submission::MainResource;
use crate::version::Line;

const DEFAULT_MEMORY_MIB: u64 = 1024;
const MIN_OVERHEAD_MIB: u64 = 384;
const JVM_FACTOR: f64 = 0.1;
const NON_JVM_FACTOR: f64 = 0.4;

/// Sets the container's requests and limits; a template's other resources stay.
pub(crate) fn apply(draft: &mut Draft<'_>, memory_mib: u64) -> Result<(), PlanError> {
    let request = match draft.conf.get(draft.role.request_cores) {
        Some(cores) => cores.to_owned(),
        None => cores(draft)?.to_string(),
    };
    let memory = Quantity(format!("{memory_mib}Mi"));
    let limit = draft.conf.get(draft.role.limit_cores).map(|cores| Quantity(cores.to_owned()));
    let devices = devices(&draft.conf, draft.role)?;
    let resources = draft.container.resources.get_or_insert_default();
    let requests = resources.requests.get_or_insert_default();
    requests.insert("cpu".to_owned(), Quantity(request));
    requests.insert("memory".to_owned(), memory.clone());
    let limits = resources.limits.get_or_insert_default();
    limits.extend(limit.map(|limit| ("cpu".to_owned(), limit)));
    limits.insert("memory".to_owned(), memory);
    limits.extend(devices);
    Ok(())
}

/// How many cores Spark uses in the pod.
pub(crate) fn cores(draft: &Draft<'_>) -> Result<i32, PlanError> {
    draft.conf.int(draft.role.cores).map(|cores| cores.unwrap_or(1))
}

/// The overhead factor of drivers and executors that do not set their own; passed to the driver.
pub(crate) fn default_factor(draft: &Draft<'_>) -> Result<f64, PlanError> {
    let usual = if is_non_jvm(&draft.submission.main) { NON_JVM_FACTOR } else { JVM_FACTOR };
    factor(&draft.conf, key::MEMORY_OVERHEAD_FACTOR).map(|set| set.unwrap_or(usual))
}

/// Whether the application is Python or R, which need more memory outside the JVM.
fn is_non_jvm(main: &MainResource) -> bool {
    match main {
        MainResource::Python(_) | MainResource::R(_) => true,
        MainResource::Jar(_) | MainResource::None => false,
    }
}

/// The heap, in MiB.
pub(crate) fn heap(draft: &Draft<'_>) -> Result<u64, PlanError> {
    draft.conf.mebibytes(draft.role.memory).map(|heap| heap.unwrap_or(DEFAULT_MEMORY_MIB))
}

/// Memory of the container, in MiB: heap and overhead.
pub(crate) fn heap_and_overhead(draft: &Draft<'_>) -> Result<u64, PlanError> {
    let (conf, role) = (&draft.conf, draft.role);
    let heap = heap(draft)?;
    let overhead = match conf.mebibytes(role.memory_overhead)? {
        Some(overhead) => overhead,
        None => {
            let factor = match factor(conf, role.memory_overhead_factor)? {
                Some(factor) => factor,
                None => default_factor(draft)?,
            };
            let minimum = match draft.line {
                Line::V3_5 => None,
                Line::V4_0 | Line::V4_1 | Line::V4_2 | Line::V4_3 => conf.mebibytes(role.min_memory_overhead)?,
            };
            ((factor * heap as f64) as u64).max(minimum.unwrap_or(MIN_OVERHEAD_MIB))
        }
    };
    add(heap, overhead, role.memory_overhead, role)
}

/// Adds the memory that the setting `key` asks for.
pub(crate) fn add(memory: u64, more: u64, key: &str, role: &Role) -> Result<u64, PlanError> {
    memory.checked_add(more).ok_or_else(|| PlanError::Value {
        key: key.to_owned(),
        value: more.to_string(),
        problem: format!("the total memory of the {} is too large", role.word),
        remedy: "ask for less".to_owned(),
    })
}

fn factor(conf: &Settings<'_>, key: &str) -> Result<Option<f64>, PlanError> {
    match conf.double(key)? {
        Some(factor) if !(factor >= 0.0 && factor.is_finite()) => Err(PlanError::Value {
            key: key.to_owned(),
            value: factor.to_string(),
            problem: "a factor cannot be negative".to_owned(),
            remedy: "write a number such as 0.4".to_owned(),
        }),
        factor => Ok(factor),
    }
}

/// `spark.{driver,executor}.resource.<name>.{amount,vendor}` as device limits `<vendor>/<name>`.
pub(crate) fn devices(conf: &Settings<'_>, role: &Role) -> Result<BTreeMap<String, Quantity>, PlanError> {
    let settings = conf.with_prefix(role.resource_prefix);
    let names = settings.keys().filter_map(|k| k.split_once('.')).map(|(name, _)| name);
    let names: std::collections::BTreeSet<&str> = names.collect();
    let mut devices = BTreeMap::new();
    for name in names {
        let part = |part: &str| format!("{}{name}.{part}", role.resource_prefix);
        let amount = conf.int(&part("amount"))?.ok_or_else(|| PlanError::Missing {
            key: part("amount"),
            remedy: format!("set how many {name} the {} needs", role.word),
        })?;
        if amount <= 0 {
            continue;
        }
        let vendor = conf.get(&part("vendor")).ok_or_else(|| PlanError::Missing {
            key: part("vendor"),
            remedy: format!("give the domain of the device plugin that offers {name}, such as nvidia.com"),
        })?;
        devices.insert(format!("{vendor}/{name}"), Quantity(amount.to_string()));
    }
    Ok(devices)
}

/// A number as Java writes it: `0.1`, `1.0`, `1.0E-5`.
pub(crate) fn java_double(number: f64) -> String {
    let magnitude = number.abs();
    if number == 0.0 || (1e-3..1e7).contains(&magnitude) {
        return format!("{number:?}");
    }
    let text = format!("{number:e}");
    match text.split_once('e') {
        Some((mantissa, exponent)) if !mantissa.contains('.') => format!("{mantissa}.0E{exponent}"),
        Some((mantissa, exponent)) => format!("{mantissa}E{exponent}"),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_java_does() {
        for (number, text) in
            [(0.1, "0.1"), (1.0, "1.0"), (0.0, "0.0"), (0.001, "0.001"), (1e-5, "1.0E-5"), (1.5e9, "1.5E9")]
        {
            assert_eq!(java_double(number), text);
        }
    }
}
