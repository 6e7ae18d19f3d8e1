//! A plan as one Kubernetes `List`, ready for `kubectl create -f -`: what a submission would create, without creating it.
//!
//! Every object names its namespace. There are no owner references (the pod has no uid yet) and no scheduling gate (nobody
//! would lift it).

use firesteel_api::ExecutorGrant;
use firesteel_spark::driver::{DriverPlan, Object};
use serde_json::{Value, json};

pub(crate) fn list(plan: &DriverPlan, grant: Option<&ExecutorGrant>) -> anyhow::Result<Value> {
    let mut pod = plan.pod.clone();
    pod.metadata.namespace = Some(plan.namespace.clone());
    // Before the pod, so that its files exist when it starts.
    let mut items = plan.objects.iter().map(Object::to_value).collect::<Result<Vec<_>, _>>()?;
    items.extend(grant.map(serde_json::to_value).transpose()?);
    items.push(serde_json::to_value(&pod)?);
    Ok(json!({ "apiVersion": "v1", "kind": "List", "metadata": {}, "items": items }))
}
