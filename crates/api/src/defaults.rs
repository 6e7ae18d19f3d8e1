//! Defaults of omitted fields. Pure and idempotent; nothing is written back to the cluster.

use serde_json::Value;

use crate::spark_application::SparkApplicationSpec;

/// Default seconds between retries.
pub const RETRY_INTERVAL_SECONDS: i64 = 5;

/// The specification with every default filled in.
pub fn defaulted(spec: &SparkApplicationSpec) -> SparkApplicationSpec {
    let mut spec = spec.clone();
    if spec.type_.is_empty() {
        "Scala".clone_into(&mut spec.type_);
    }
    spec.mode.get_or_insert_with(|| "cluster".to_owned());

    let policy = spec.restart_policy.get_or_insert_default();
    let kind = policy.type_.get_or_insert_with(|| "Never".to_owned());
    if kind != "Never" {
        policy.on_failure_retry_interval.get_or_insert(RETRY_INTERVAL_SECONDS);
        policy.on_submission_failure_retry_interval.get_or_insert(RETRY_INTERVAL_SECONDS);
    }

    let conf = &spec.spark_conf;
    let unset = |key: &str| !conf.contains_key(key);
    if unset("spark.driver.cores") {
        spec.driver.pod.cores.get_or_insert(1);
    }
    if unset("spark.driver.memory") {
        spec.driver.pod.memory.get_or_insert_with(|| "1g".to_owned());
    }
    if unset("spark.executor.cores") {
        spec.executor.pod.cores.get_or_insert(1);
    }
    if unset("spark.executor.memory") {
        spec.executor.pod.memory.get_or_insert_with(|| "1g".to_owned());
    }
    if unset("spark.executor.instances") && !dynamic_allocation(&spec) {
        spec.executor.instances.get_or_insert(1);
    }
    if let Some(dynamic) = spec.dynamic_allocation.as_mut().filter(|d| d.enabled) {
        dynamic.shuffle_tracking_enabled.get_or_insert(true);
    }
    spec
}

/// Whether dynamic allocation is on, by the typed field or by configuration.
pub fn dynamic_allocation(spec: &SparkApplicationSpec) -> bool {
    match &spec.dynamic_allocation {
        Some(dynamic) if dynamic.enabled => true,
        Some(_) | None => spec
            .spark_conf
            .get("spark.dynamicAllocation.enabled")
            .is_some_and(|v| v.trim().eq_ignore_ascii_case("true")),
    }
}

/// The part of a specification that a run depends on, in canonical form: defaults filled in, empty values removed,
/// and without `suspend` and `timeToLiveSeconds`, because changing them never restarts a run.
pub fn canonical(spec: &SparkApplicationSpec) -> Value {
    let mut spec = defaulted(spec);
    spec.suspend = None;
    spec.time_to_live_seconds = None;
    // These two fields have no effect.
    spec.failure_retries = None;
    spec.retry_interval = None;
    prune(serde_json::to_value(&spec).unwrap_or_default()).unwrap_or_default()
}

fn prune(value: Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::Array(items) if items.is_empty() => None,
        Value::Object(fields) => {
            let kept: serde_json::Map<_, _> =
                fields.into_iter().filter_map(|(name, value)| Some((name, prune(value)?))).collect();
            if kept.is_empty() { None } else { Some(Value::Object(kept)) }
        }
        // Empty elements of a list are kept: `env: [{…}]` keeps its length.
        Value::Array(items) => {
            Some(Value::Array(items.into_iter().map(|item| prune(item).unwrap_or_default()).collect()))
        }
        other => Some(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(value: Value) -> SparkApplicationSpec {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn defaults_are_filled_in_once() {
        let once = defaulted(&spec(serde_json::json!({"restartPolicy": {"type": "OnFailure"}})));
        assert_eq!(once.type_, "Scala");
        assert_eq!(once.mode.as_deref(), Some("cluster"));
        assert_eq!(once.driver.pod.cores, Some(1));
        assert_eq!(once.executor.pod.memory.as_deref(), Some("1g"));
        assert_eq!(once.executor.instances, Some(1));
        assert_eq!(once.restart_policy.as_ref().unwrap().on_failure_retry_interval, Some(5));
        assert_eq!(defaulted(&once), once);
    }

    #[test]
    fn d7_dynamic_allocation_in_spark_conf_leaves_instances_unset() {
        let spec = spec(serde_json::json!({"sparkConf": {"spark.dynamicAllocation.enabled": "true"}}));
        assert_eq!(defaulted(&spec).executor.instances, None);
    }

    #[test]
    fn d8_an_undefaulted_manifest_equals_its_defaulted_self() {
        let bare = spec(serde_json::json!({"type": "Scala", "sparkVersion": "4.1.4", "driver": {"env": []}}));
        assert_eq!(canonical(&bare), canonical(&defaulted(&bare)));
    }

    #[test]
    fn suspend_and_ttl_are_no_part_of_what_a_run_depends_on() {
        let a = spec(serde_json::json!({"sparkVersion": "4.1.4"}));
        let b = spec(serde_json::json!({"sparkVersion": "4.1.4", "suspend": true, "timeToLiveSeconds": 9}));
        let c = spec(serde_json::json!({"sparkVersion": "4.1.4", "arguments": ["1"]}));
        assert_eq!(canonical(&a), canonical(&b));
        assert_ne!(canonical(&a), canonical(&c));
    }
}
