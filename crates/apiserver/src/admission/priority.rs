//! Sets a pod's priority from its priority class.

use serde_json::Value;

use crate::meta;
use crate::state::State;
use crate::status::{ApiResult, StatusError};

pub(super) fn admit(state: &State, pod: &mut Value) -> ApiResult<()> {
    const TABLE: &str = "priorityclasses.scheduling.k8s.io";
    let pod_name = meta::name(pod).to_owned();
    let named = meta::text(pod, "/spec/priorityClassName").to_owned();
    let class = if named.is_empty() {
        state
            .store
            .list(TABLE, None, None, usize::MAX, None, |c| c.value().get("globalDefault").is_some_and(|g| g == true))
            .ok()
            .and_then(|found| found.items.into_iter().next().map(|(_, class)| class))
    } else {
        let found = state.store.get(TABLE, "", &named);
        if found.is_none() {
            return Err(StatusError::forbidden(
                "",
                "pods",
                &pod_name,
                &format!("no PriorityClass with name {named} was found"),
            ));
        }
        found
    };
    let class = class.map(|stored| stored.value());
    let value = class.as_ref().and_then(|c| c.get("value")).and_then(Value::as_i64).unwrap_or_default();
    let policy = class
        .as_ref()
        .map(|c| meta::text(c, "/preemptionPolicy").to_owned())
        .filter(|p| !p.is_empty())
        .unwrap_or_else(|| "PreemptLowerPriority".into());
    let spec = meta::child(pod, "spec");
    if let Some(given) = spec.get("priority").and_then(Value::as_i64)
        && given != value
    {
        return Err(StatusError::forbidden(
            "",
            "pods",
            &pod_name,
            &format!(
                "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed {value} from the given PriorityClass name"
            ),
        ));
    }
    spec.insert("priority".into(), value.into());
    if !spec.contains_key("preemptionPolicy") {
        spec.insert("preemptionPolicy".into(), policy.into());
    }
    if let Some(class) = class
        && named.is_empty()
    {
        spec.insert("priorityClassName".into(), meta::name(&class).into());
    }
    Ok(())
}
