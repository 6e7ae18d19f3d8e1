//! How many executors an application may have, and when it has lost too many.

use std::time::Duration;

use super::{PlanError, Strategy};
use crate::names::key;
use crate::pod::settings::Settings;
use crate::value::TimeUnit;
use crate::version::Line;

/// The default number of executors at the start.
const DEFAULT_INSTANCES: u32 = 2;
/// The minimum for the default number of failures that end an application.
const LEAST_FAILURES: u32 = 3;
/// Spark's value for "no limit".
const UNLIMITED: u32 = i32::MAX as u32;
/// How long a pod may take to start running, by default.
const DEFAULT_START: Duration = Duration::from_secs(600);

/// The settings for the number of executors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocation {
    /// Whether Spark changes the number while the application runs.
    pub dynamic: bool,
    /// How many executors the application starts with.
    pub initial: u32,
    /// How far Spark may scale down; the same as `initial` without dynamic allocation.
    pub minimum: u32,
    /// How many executors there may be at a time; `None`: no limit.
    pub maximum: Option<u32>,
    /// How many pods may ever be created for it [4.1]; `None`: no limit.
    pub lifetime: Option<u32>,
    /// The application is ended after this many executors failed because of it.
    pub max_failures: u32,
    /// How long a failure counts; `None`: forever.
    pub failure_window: Option<Duration>,
    /// Whether failed pods are kept for debugging.
    pub keep_failed: bool,
    /// How long a pod may take to start running.
    pub start: Duration,
}

impl Allocation {
    /// Reads the settings, with Spark's defaults and refusals.
    pub(crate) fn read(conf: &Settings<'_>, strategy: Strategy) -> Result<Self, PlanError> {
        let dynamic = conf.boolean(key::DYNAMIC_ALLOCATION, false)?;
        if dynamic && strategy == Strategy::StatefulSet {
            return Err(PlanError::Value {
                key: key::ALLOCATOR.to_owned(),
                value: "firesteel-statefulset".to_owned(),
                problem: format!(
                    "a StatefulSet always removes its last pod, even a busy one, so it cannot be combined with {}=true",
                    key::DYNAMIC_ALLOCATION
                ),
                remedy: "use firesteel or firesteel-replicaset".to_owned(),
            });
        }
        let instances = count(conf, key::EXECUTOR_INSTANCES)?;
        let most = count(conf, key::DYNAMIC_MAXIMUM)?.unwrap_or(UNLIMITED);
        let (minimum, initial, maximum) = if dynamic {
            let minimum = count(conf, key::DYNAMIC_MINIMUM)?.unwrap_or(0);
            // Spark starts with the largest of the three.
            let initial =
                count(conf, key::DYNAMIC_INITIAL)?.unwrap_or(minimum).max(minimum).max(instances.unwrap_or(0));
            within(conf, minimum, initial, most)?;
            (minimum, initial, most)
        } else {
            let instances = instances.unwrap_or(DEFAULT_INSTANCES);
            if instances == 0 {
                return Err(refuse(key::EXECUTOR_INSTANCES, 0, "an application needs executors", "write 1 or more"));
            }
            (instances, instances, instances)
        };
        // Without dynamic allocation, Spark counts an unset number as 0 here, not as its default.
        let counted = if dynamic { most } else { instances.unwrap_or(0) };
        let usual = if counted > UNLIMITED / 2 { UNLIMITED } else { LEAST_FAILURES.max(2 * counted) };
        Ok(Allocation {
            dynamic,
            initial,
            minimum,
            maximum: Some(maximum).filter(|most| *most != UNLIMITED),
            lifetime: if conf.line() >= Line::V4_1 {
                count(conf, key::ALLOCATION_MAXIMUM)?.filter(|most| *most != UNLIMITED)
            } else {
                None
            },
            max_failures: count(conf, key::EXECUTOR_MAX_FAILURES)?.unwrap_or(usual),
            failure_window: duration(conf, key::EXECUTOR_FAILURE_WINDOW)?,
            keep_failed: !conf.boolean(key::EXECUTOR_DELETE, true)?,
            start: duration(conf, key::ALLOCATION_TIMEOUT)?.unwrap_or(DEFAULT_START),
        })
    }
}

fn within(conf: &Settings<'_>, minimum: u32, initial: u32, most: u32) -> Result<(), PlanError> {
    if most == 0 {
        return Err(refuse(key::DYNAMIC_MAXIMUM, 0, "an application needs executors", "write 1 or more"));
    }
    if minimum > most {
        let problem = format!("more than {}={most}", key::DYNAMIC_MAXIMUM);
        return Err(refuse(key::DYNAMIC_MINIMUM, minimum, &problem, "lower it, or raise the other"));
    }
    if initial > most {
        let given = [key::DYNAMIC_INITIAL, key::EXECUTOR_INSTANCES].into_iter();
        let key = given.max_by_key(|key| count(conf, key).ok().flatten()).unwrap_or(key::DYNAMIC_INITIAL);
        let problem = format!("more than {}={most}", key::DYNAMIC_MAXIMUM);
        return Err(refuse(key, initial, &problem, "lower it, or raise the other"));
    }
    Ok(())
}

fn refuse(key: &str, value: u32, problem: &str, remedy: &str) -> PlanError {
    PlanError::Value {
        key: key.to_owned(),
        value: value.to_string(),
        problem: problem.to_owned(),
        remedy: remedy.to_owned(),
    }
}

/// A non-negative number.
fn count(conf: &Settings<'_>, key: &str) -> Result<Option<u32>, PlanError> {
    let Some(number) = conf.int(key)? else { return Ok(None) };
    u32::try_from(number).map(Some).map_err(|_| PlanError::Value {
        key: key.to_owned(),
        value: number.to_string(),
        problem: "must not be negative".to_owned(),
        remedy: "write 0 or more, or leave it out".to_owned(),
    })
}

/// A time; negative means `None`, as in Spark.
fn duration(conf: &Settings<'_>, key: &str) -> Result<Option<Duration>, PlanError> {
    let milliseconds = conf.time(key, TimeUnit::Milliseconds)?;
    Ok(milliseconds.and_then(|time| u64::try_from(time).ok()).map(Duration::from_millis))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::submission::SparkConf;

    fn read(pairs: &[(&str, &str)], strategy: Strategy) -> Result<Allocation, String> {
        let conf: SparkConf = pairs.iter().map(|(k, v)| (format!("spark.{k}"), (*v).to_owned())).collect();
        Allocation::read(&Settings::new(&conf, &conf, Line::V4_1), strategy).map_err(|e| e.to_string())
    }

    fn pods(pairs: &[(&str, &str)]) -> Allocation {
        read(pairs, Strategy::Pods).unwrap()
    }

    #[test]
    fn defaults_are_sparks() {
        let two = pods(&[]);
        assert_eq!((two.initial, two.maximum, two.max_failures, two.failure_window), (2, Some(2), 3, None));
        assert!(!two.keep_failed && !two.dynamic);
        assert_eq!(two.start, Duration::from_secs(600));
        let ten = pods(&[("executor.instances", "10")]);
        assert_eq!((ten.initial, ten.maximum, ten.max_failures), (10, Some(10), 20));
        let dynamic = pods(&[("dynamicAllocation.enabled", "true")]);
        assert_eq!((dynamic.initial, dynamic.minimum, dynamic.maximum, dynamic.max_failures), (0, 0, None, UNLIMITED));
    }

    #[test]
    fn dynamic_allocation_starts_with_the_largest_number() {
        let given = [
            ("dynamicAllocation.enabled", "true"),
            ("dynamicAllocation.minExecutors", "2"),
            ("dynamicAllocation.initialExecutors", "1"),
            ("dynamicAllocation.maxExecutors", "6"),
            ("executor.instances", "4"),
        ];
        let dynamic = pods(&given);
        assert_eq!((dynamic.initial, dynamic.minimum, dynamic.maximum), (4, 2, Some(6)));
        assert_eq!(dynamic.max_failures, 12);
    }

    #[test]
    fn failures_can_be_forgotten_after_a_while() {
        let given = [("executor.failuresValidityInterval", "1h"), ("executor.maxNumFailures", "7")];
        assert_eq!(pods(&given).failure_window, Some(Duration::from_secs(3600)));
        assert_eq!(pods(&given).max_failures, 7);
        assert_eq!(
            pods(&[("executor.failuresValidityInterval", "1500")]).failure_window,
            Some(Duration::from_millis(1500))
        );
        assert!(pods(&[("kubernetes.executor.deleteOnTermination", "false")]).keep_failed);
    }

    #[test]
    fn numbers_that_cannot_be_are_refused_by_name() {
        let dynamic = ("dynamicAllocation.enabled", "true");
        for (pairs, key) in [
            (vec![("executor.instances", "0")], "spark.executor.instances=0"),
            (vec![("executor.instances", "-1")], "spark.executor.instances=-1"),
            (vec![("executor.instances", "x")], "spark.executor.instances"),
            (vec![dynamic, ("dynamicAllocation.maxExecutors", "0")], "spark.dynamicAllocation.maxExecutors=0"),
            (
                vec![dynamic, ("dynamicAllocation.maxExecutors", "1"), ("dynamicAllocation.minExecutors", "2")],
                "spark.dynamicAllocation.minExecutors=2",
            ),
            (
                vec![dynamic, ("dynamicAllocation.maxExecutors", "1"), ("executor.instances", "2")],
                "spark.executor.instances=2",
            ),
        ] {
            let refusal = read(&pairs, Strategy::Pods).unwrap_err();
            assert!(refusal.starts_with(key), "{refusal}");
        }
        assert!(read(&[dynamic], Strategy::StatefulSet).unwrap_err().contains("StatefulSet"));
        assert!(read(&[dynamic], Strategy::ReplicaSet).is_ok());
    }
}
