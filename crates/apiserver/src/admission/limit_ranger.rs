//! Limit ranges: default requests and limits of containers, and their minimum and maximum.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::meta;
use crate::quantity::{self, Quantity};
use crate::state::State;
use crate::status::{ApiResult, StatusError};
use crate::store::Stored;

const NOTE: &str = "kubernetes.io/limit-ranger";
const LISTS: [(&str, &str); 2] = [("containers", "container"), ("initContainers", "init container")];

type Amounts = BTreeMap<String, Quantity>;

fn ranges(state: &State, namespace: &str) -> Vec<Arc<Stored>> {
    let found = state.store.list("limitranges", Some(namespace), None, usize::MAX, None, |_| true);
    found.map(|f| f.items.into_iter().map(|(_, range)| range).collect()).unwrap_or_default()
}

fn items(range: &Value) -> Vec<Value> {
    range.pointer("/spec/limits").and_then(Value::as_array).cloned().unwrap_or_default()
}

fn amounts(holder: &Value, pointer: &str) -> Amounts {
    let given = holder.pointer(pointer).and_then(Value::as_object).into_iter().flatten();
    given.filter_map(|(name, amount)| Some((name.clone(), quantity::parse(amount.as_str()?).ok()?))).collect()
}

/// Applies a namespace's defaults to containers without requests or limits.
pub(super) fn fill(state: &State, pod: &mut Value) {
    for range in ranges(state, meta::namespace(pod)) {
        let mut notes: Vec<String> = Vec::new();
        let containers: Vec<Value> =
            items(&range.value()).into_iter().filter(|i| meta::text(i, "/type") == "Container").collect();
        for (list, what) in LISTS {
            let count = pod.pointer(&format!("/spec/{list}")).and_then(Value::as_array).map_or(0, Vec::len);
            for index in 0..count {
                let Some(container) = pod.pointer_mut(&format!("/spec/{list}/{index}")) else { continue };
                let name = meta::text(container, "/name").to_owned();
                let mut set: BTreeMap<&str, Vec<String>> = BTreeMap::new();
                for item in &containers {
                    for (from, to) in [("default", "limits"), ("defaultRequest", "requests")] {
                        for (resource, amount) in item.get(from).and_then(Value::as_object).into_iter().flatten() {
                            if container.pointer("/resources").and_then(|r| r.get(to)?.get(resource)).is_none() {
                                container["resources"][to][resource] = amount.clone();
                                set.entry(to).or_default().push(resource.clone());
                            }
                        }
                    }
                }
                for (to, word) in [("requests", "request"), ("limits", "limit")] {
                    if let Some(resources) = set.get(to) {
                        notes.push(format!("{} {word} for {what} {name}", resources.join(", ")));
                    }
                }
            }
        }
        if !notes.is_empty() {
            let annotations = meta::of(pod).entry("annotations").or_insert_with(|| json!({}));
            annotations[NOTE] = format!("LimitRanger plugin set: {}", notes.join("; ")).into();
        }
    }
}

/// The violation message, if an amount breaks a limit.
fn breach(item: &Value, what: &str, requests: &Amounts, limits: &Amounts) -> Vec<String> {
    let mut wrong = Vec::new();
    for (resource, least) in amounts(item, "/min") {
        let head = format!("minimum {resource} usage per {what} is {least}");
        match (requests.get(&resource), limits.get(&resource)) {
            (None, _) => wrong.push(format!("{head}.  No request is specified")),
            (Some(request), _) if *request < least => wrong.push(format!("{head}, but request is {request}")),
            (_, Some(limit)) if *limit < least => wrong.push(format!("{head}, but limit is {limit}")),
            _ => {}
        }
    }
    for (resource, most) in amounts(item, "/max") {
        let head = format!("maximum {resource} usage per {what} is {most}");
        match (requests.get(&resource), limits.get(&resource)) {
            (_, None) => wrong.push(format!("{head}.  No limit is specified")),
            (_, Some(limit)) if *limit > most => wrong.push(format!("{head}, but limit is {limit}")),
            (Some(request), _) if *request > most => wrong.push(format!("{head}, but request is {request}")),
            _ => {}
        }
    }
    wrong
}

fn refusal(resource: &str, name: &str, wrong: &[String]) -> ApiResult<()> {
    let why = match wrong {
        [] => return Ok(()),
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    };
    Err(StatusError::forbidden("", resource, name, &why))
}

/// Rejects a pod outside the limits of its namespace.
pub(super) fn admit(state: &State, pod: &Value) -> ApiResult<()> {
    for range in ranges(state, meta::namespace(pod)) {
        let mut wrong = Vec::new();
        for item in items(&range.value()) {
            let all: Vec<&Value> = LISTS
                .iter()
                .flat_map(|(list, _)| pod.pointer(&format!("/spec/{list}")).and_then(Value::as_array))
                .flatten()
                .collect();
            match meta::text(&item, "/type") {
                "Container" => {
                    for container in all {
                        let of = |list: &str| amounts(container, &format!("/resources/{list}"));
                        wrong.extend(breach(&item, "Container", &of("requests"), &of("limits")));
                    }
                }
                "Pod" => {
                    let (requests, limits) =
                        (super::resource_quota::total(pod, "requests"), super::resource_quota::total(pod, "limits"));
                    wrong.extend(breach(&item, "Pod", &requests, &limits));
                }
                _ => {}
            }
        }
        refusal("pods", meta::name(pod), &wrong)?;
    }
    Ok(())
}

/// Rejects a claim outside the limits of its namespace.
pub(super) fn admit_claim(state: &State, claim: &Value) -> ApiResult<()> {
    for range in ranges(state, meta::namespace(claim)) {
        let mut wrong = Vec::new();
        for item in items(&range.value()).iter().filter(|i| meta::text(i, "/type") == "PersistentVolumeClaim") {
            let requests = amounts(claim, "/spec/resources/requests");
            for (bound, word) in [("min", "minimum"), ("max", "maximum")] {
                for (resource, amount) in amounts(item, &format!("/{bound}")) {
                    let head = format!("{word} {resource} usage per PersistentVolumeClaim is {amount}");
                    match requests.get(&resource) {
                        None => wrong.push(format!("{head}.  No request is specified")),
                        Some(request)
                            if (bound == "min" && *request < amount) || (bound == "max" && *request > amount) =>
                        {
                            wrong.push(format!("{head}, but request is {request}"));
                        }
                        Some(_) => {}
                    }
                }
            }
        }
        refusal("persistentvolumeclaims", meta::name(claim), &wrong)?;
    }
    Ok(())
}
