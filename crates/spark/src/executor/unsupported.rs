//! Settings that only Spark's own allocators support: refused if the application depends on them, otherwise reported
//! as a warning.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use super::{PlanError, Strategy};
use crate::names::{EXECUTOR_ID_PLACEHOLDER, key};
use crate::pod::settings::Settings;

/// Plugins that change executor pods from the driver, which has no permission to do so.
const PLUGINS: [&str; 2] = ["ExecutorResizePlugin", "ExecutorPVCResizePlugin"];

/// Returns an error, or warnings.
pub(super) fn check(conf: &Settings<'_>) -> Result<Vec<String>, PlanError> {
    for plugin in conf.list(key::PLUGINS) {
        if PLUGINS.iter().any(|name| plugin.rsplit('.').next() == Some(name)) {
            return Err(PlanError::Value {
                key: key::PLUGINS.to_owned(),
                value: plugin.to_owned(),
                problem: "it changes executor pods from the driver, which has no pod permissions here".to_owned(),
                remedy: format!("leave it out, or use {}=direct", key::ALLOCATOR),
            });
        }
    }
    let mut remarks = Vec::new();
    if conf.get(key::EXECUTOR_DECOMMISSION_LABEL).is_some() {
        remarks.push(format!(
            "{} has no effect: the driver, which would set the label, has no pod permissions",
            key::EXECUTOR_DECOMMISSION_LABEL
        ));
    }
    if conf.boolean(key::ALLOCATION_RECOVERY_MODE, false)? {
        remarks
            .push(format!("{} has no effect: only Spark's own allocator has that mode", key::ALLOCATION_RECOVERY_MODE));
    }
    if conf.boolean(key::DRIVER_WAITS_FOR_CLAIMS, false)? {
        remarks.push(format!(
            "{} has no effect: a new executor reuses a claim that is free, but does not wait for one",
            key::DRIVER_WAITS_FOR_CLAIMS
        ));
    }
    for (name, value) in conf.iter() {
        if value.contains(EXECUTOR_ID_PLACEHOLDER) && (name.contains(".executor.") || name.contains(".executorEnv.")) {
            remarks.push(format!("{name}: the text {EXECUTOR_ID_PLACEHOLDER} is replaced by the executor's id"));
        }
    }
    Ok(remarks)
}

/// Pods of a ReplicaSet cannot have separate claims.
pub(super) fn check_claims(claims: &[PersistentVolumeClaim], strategy: Strategy) -> Result<(), PlanError> {
    match (strategy, claims.first()) {
        (Strategy::ReplicaSet, Some(claim)) => Err(PlanError::Value {
            key: key::ALLOCATOR.to_owned(),
            value: "firesteel-replicaset".to_owned(),
            problem: format!(
                "the pods of a ReplicaSet cannot each have a PersistentVolumeClaim, such as {}",
                claim.metadata.name.as_deref().unwrap_or_default()
            ),
            remedy: "use firesteel or firesteel-statefulset, or another type of volume".to_owned(),
        }),
        _ => Ok(()),
    }
}
