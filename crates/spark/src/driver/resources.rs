//! How much memory and which devices a driver asks for.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::settings::Settings;
use super::{Draft, PlanError, basic};
use crate::names::key;
use crate::version::Line;

const DEFAULT_MEMORY_MIB: u64 = 1024;
const MIN_OVERHEAD_MIB: u64 = 384;
const JVM_FACTOR: f64 = 0.1;
const NON_JVM_FACTOR: f64 = 0.4;

/// The overhead factor of drivers and executors that do not set their own: it is handed on to the driver.
pub(super) fn default_factor(draft: &Draft<'_>) -> Result<f64, PlanError> {
    let usual = if basic::is_non_jvm(&draft.submission.main) { NON_JVM_FACTOR } else { JVM_FACTOR };
    factor(&draft.conf, key::MEMORY_OVERHEAD_FACTOR).map(|set| set.unwrap_or(usual))
}

/// Memory of the driver container, in MiB: heap and what the JVM and others need beside it.
pub(super) fn driver_memory(draft: &Draft<'_>) -> Result<u64, PlanError> {
    let conf = &draft.conf;
    let heap = conf.mebibytes(key::DRIVER_MEMORY)?.unwrap_or(DEFAULT_MEMORY_MIB);
    let overhead = match conf.mebibytes(key::DRIVER_MEMORY_OVERHEAD)? {
        Some(overhead) => overhead,
        None => {
            let factor = match factor(conf, key::DRIVER_MEMORY_OVERHEAD_FACTOR)? {
                Some(factor) => factor,
                None => default_factor(draft)?,
            };
            let minimum = match draft.line {
                Line::V3_5 => None,
                Line::V4_0 | Line::V4_1 | Line::V4_2 | Line::V4_3 => conf.mebibytes(key::DRIVER_MIN_MEMORY_OVERHEAD)?,
            };
            ((factor * heap as f64) as u64).max(minimum.unwrap_or(MIN_OVERHEAD_MIB))
        }
    };
    heap.checked_add(overhead).ok_or_else(|| PlanError::Value {
        key: key::DRIVER_MEMORY_OVERHEAD.to_owned(),
        value: overhead.to_string(),
        problem: "driver memory and overhead together are more than can be counted".to_owned(),
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

/// `spark.driver.resource.<name>.{amount,vendor}` as device limits `<vendor>/<name>`.
pub(super) fn devices(conf: &Settings<'_>) -> Result<BTreeMap<String, Quantity>, PlanError> {
    let settings = conf.with_prefix(key::DRIVER_RESOURCE_PREFIX);
    let names = settings.keys().filter_map(|k| k.split_once('.')).map(|(name, _)| name);
    let names: std::collections::BTreeSet<&str> = names.collect();
    let mut devices = BTreeMap::new();
    for name in names {
        let part = |part: &str| format!("{}{name}.{part}", key::DRIVER_RESOURCE_PREFIX);
        let amount = conf.int(&part("amount"))?.ok_or_else(|| PlanError::Missing {
            key: part("amount"),
            remedy: format!("say how many {name} the driver needs"),
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
pub(super) fn java_double(number: f64) -> String {
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
