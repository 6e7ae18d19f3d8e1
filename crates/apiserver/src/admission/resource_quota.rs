//! Resource quotas for pods: their count and their resources.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::meta;
use crate::quantity::{self, Quantity};
use crate::state::State;
use crate::status::{ApiResult, StatusError};
use crate::store::Stored;

type Usage = BTreeMap<String, Quantity>;

fn quotas(state: &State, namespace: &str) -> Vec<Arc<Stored>> {
    state
        .store
        .list("resourcequotas", Some(namespace), None, usize::MAX, None, |_| true)
        .map(|found| found.items.into_iter().map(|(_, quota)| quota).collect())
        .unwrap_or_default()
}

pub(super) fn has_any(state: &State, namespace: &str) -> bool {
    !quotas(state, namespace).is_empty()
}

fn add(usage: &mut Usage, name: &str, amount: Quantity) {
    let slot = usage.entry(name.to_owned()).or_insert(Quantity::ZERO);
    *slot = slot.plus(amount);
}

/// A pod's total requests or limits: its containers and sidecars, or a single init container if that is more, plus overhead.
pub(super) fn total(pod: &Value, list: &str) -> Usage {
    let of = |container: &Value| -> Vec<(String, Quantity)> {
        let amounts = container.pointer(&format!("/resources/{list}")).and_then(Value::as_object);
        let parsed = |(name, amount): (&String, &Value)| Some((name.clone(), quantity::parse(amount.as_str()?).ok()?));
        amounts.into_iter().flatten().filter_map(parsed).collect()
    };
    let containers = |field: &str| pod.pointer(field).and_then(Value::as_array).into_iter().flatten();
    let (mut sum, mut staying, mut most) = (Usage::new(), Usage::new(), Usage::new());
    for container in containers("/spec/containers") {
        of(container).into_iter().for_each(|(name, amount)| add(&mut sum, &name, amount));
    }
    for container in containers("/spec/initContainers") {
        let stays = meta::text(container, "/restartPolicy") == "Always";
        for (name, amount) in of(container) {
            let beside = staying.get(&name).copied().unwrap_or(Quantity::ZERO).plus(amount);
            if stays {
                add(&mut sum, &name, amount);
                staying.insert(name.clone(), beside);
            }
            let slot = most.entry(name).or_insert(Quantity::ZERO);
            if *slot < beside {
                *slot = beside;
            }
        }
    }
    for (name, amount) in most {
        let slot = sum.entry(name).or_insert(Quantity::ZERO);
        if *slot < amount {
            *slot = amount;
        }
    }
    for (name, amount) in pod.pointer("/spec/overhead").and_then(Value::as_object).into_iter().flatten() {
        if let (Some(amount), true) =
            (amount.as_str().and_then(|a| quantity::parse(a).ok()), list == "requests" || sum.contains_key(name))
        {
            add(&mut sum, name, amount);
        }
    }
    sum
}

/// What a pod adds to a quota.
fn usage_of(pod: &Value) -> Usage {
    let mut usage = Usage::new();
    if let Ok(one) = quantity::parse("1") {
        add(&mut usage, "pods", one);
        add(&mut usage, "count/pods", one);
    }
    for (list, prefix) in [("requests", "requests."), ("limits", "limits.")] {
        for (resource, amount) in total(pod, list) {
            add(&mut usage, &format!("{prefix}{resource}"), amount);
            if list == "requests" && matches!(resource.as_str(), "cpu" | "memory" | "ephemeral-storage") {
                add(&mut usage, &resource, amount);
            }
        }
    }
    usage
}

/// Whether a quota applies to a pod: all of its scopes must match.
fn counts(quota: &Value, pod: &Value) -> bool {
    let scopes = quota.pointer("/spec/scopes").and_then(Value::as_array).into_iter().flatten();
    let named = scopes.filter_map(Value::as_str).all(|scope| in_scope(scope, pod));
    let terms = quota.pointer("/spec/scopeSelector/matchExpressions").and_then(Value::as_array).into_iter().flatten();
    named
        && terms.into_iter().all(|term| {
            let scope = meta::text(term, "/scopeName");
            if scope != "PriorityClass" {
                return in_scope(scope, pod);
            }
            let class = meta::text(pod, "/spec/priorityClassName");
            let listed = term.get("values").and_then(Value::as_array).into_iter().flatten().any(|v| v == class);
            match meta::text(term, "/operator") {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => !class.is_empty(),
                _ => class.is_empty(),
            }
        })
}

fn in_scope(scope: &str, pod: &Value) -> bool {
    let ends = pod.pointer("/spec/activeDeadlineSeconds").is_some();
    let best_effort = crate::pods::qos_class(pod) == "BestEffort";
    match scope {
        "Terminating" => ends,
        "NotTerminating" => !ends,
        "BestEffort" => best_effort,
        "NotBestEffort" => !best_effort,
        "PriorityClass" => !meta::text(pod, "/spec/priorityClassName").is_empty(),
        _ => true,
    }
}

fn is_over(pod: &Value) -> bool {
    matches!(meta::text(pod, "/status/phase"), "Succeeded" | "Failed")
}

/// The usage of a quota by all non-terminal pods of a namespace.
fn used(state: &State, namespace: &str, quota: &Value) -> Usage {
    let counted = |pod: &Stored| !is_over(&pod.value()) && counts(quota, &pod.value());
    let pods = state.store.list("pods", Some(namespace), None, usize::MAX, None, counted);
    let mut total = Usage::new();
    for (_, pod) in pods.map(|found| found.items).unwrap_or_default() {
        for (name, amount) in usage_of(&pod.value()) {
            add(&mut total, &name, amount);
        }
    }
    total
}

/// The limits of a quota that concern pods.
fn limits(quota: &Value) -> Vec<(String, Quantity)> {
    let hard = quota.pointer("/spec/hard").and_then(Value::as_object);
    hard.into_iter()
        .flatten()
        .filter(|(name, _)| {
            matches!(name.as_str(), "pods" | "count/pods" | "cpu" | "memory" | "ephemeral-storage")
                || name.starts_with("requests.") && *name != "requests.storage"
                || name.starts_with("limits.")
        })
        .filter_map(|(name, amount)| Some((name.clone(), quantity::parse(amount.as_str()?).ok()?)))
        .collect()
}

/// Rejects a pod that exceeds a quota.
pub(super) fn admit(state: &State, pod: &Value) -> ApiResult<()> {
    let namespace = meta::namespace(pod);
    let quotas = quotas(state, namespace);
    if quotas.is_empty() {
        return Ok(());
    }
    let wanted = usage_of(pod);
    for quota in quotas {
        let quota = quota.value();
        if !counts(&quota, pod) {
            continue;
        }
        let before = used(state, namespace, &quota);
        let name = meta::name(&quota);
        let limits = limits(&quota);
        let missing: Vec<String> =
            limits.iter().filter(|(r, _)| !wanted.contains_key(r)).map(|(r, _)| r.clone()).collect();
        if !missing.is_empty() {
            let containers = crate::pods::container_names(pod).join(",");
            let each: Vec<String> = missing.iter().map(|r| format!("{r} for: {containers}")).collect();
            let why = format!("failed quota: {name}: must specify {}", each.join("; "));
            return Err(StatusError::forbidden("", "pods", meta::name(pod), &why));
        }
        let zero = Quantity::ZERO;
        let full: Vec<&(String, Quantity)> = limits
            .iter()
            .filter(|(resource, limit)| before.get(resource).copied().unwrap_or(zero).plus(wanted[resource]) > *limit)
            .collect();
        if !full.is_empty() {
            let told = |amount: &dyn Fn(&str, &Quantity) -> String| -> String {
                full.iter().map(|(r, limit)| format!("{r}={}", amount(r, limit))).collect::<Vec<_>>().join(",")
            };
            let why = format!(
                "exceeded quota: {name}, requested: {}, used: {}, limited: {}",
                told(&|r, _| wanted[r].to_string()),
                told(&|r, _| before.get(r).copied().unwrap_or(zero).to_string()),
                told(&|_, limit| limit.to_string())
            );
            return Err(StatusError::forbidden("", "pods", meta::name(pod), &why));
        }
    }
    Ok(())
}

/// Updates the usage in the status of a namespace's quotas.
pub(crate) async fn recount(state: &Arc<State>, namespace: &str) {
    let quotas = quotas(state, namespace);
    if quotas.is_empty() {
        return;
    }
    let Some(kind) = state.kinds.load().find("", "v1", "resourcequotas") else { return };
    for mut quota in quotas {
        loop {
            let now = used(state, namespace, &quota.value());
            let hard = quota.value().pointer("/spec/hard").cloned().unwrap_or_else(|| json!({}));
            let counted: serde_json::Map<String, Value> = limits(&quota.value())
                .into_iter()
                .map(|(name, _)| (name.clone(), now.get(&name).map_or("0".to_owned(), ToString::to_string).into()))
                .collect();
            let mut next = Value::clone(&quota.value());
            next["status"] = json!({"hard": hard, "used": counted});
            if next == *quota.value() || !matches!(state.replace(&kind, &quota, next).await, Ok(None)) {
                break;
            }
            match state.get(&kind, namespace, meta::name(&quota.value())) {
                Some(newer) => quota = newer,
                None => break,
            }
        }
    }
}
