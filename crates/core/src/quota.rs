//! Whether a run fits the ResourceQuotas of its namespace: every pod with everything it will request, each amount once.
//!
//! A quota counts only the pods that match its scopes, and what the namespace uses already, except the pods of the run that an
//! edit replaces. Requests that a pod leaves open are those that the namespace's LimitRanges fill in. The API server still
//! enforces quotas when pods are created; this says so before the first one exists.

use std::collections::BTreeMap;

use firesteel_api::validate::Problem;
use firesteel_spark::value::Quantity;
use k8s_openapi::api::core::v1::{
    Container, LimitRange, LimitRangeItem, Pod, PodAffinityTerm, PodSpec, ResourceQuota,
    ScopedResourceSelectorRequirement,
};
use k8s_openapi::apimachinery::pkg::api::resource;

use crate::footprint::{Footprint, PodGroup};

type Amounts = BTreeMap<String, Quantity>;

/// Resources that quotas may name without `requests.`.
const BARE: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// What a namespace has.
#[derive(Debug, Clone, Default)]
pub struct Namespace {
    pub quotas: Vec<ResourceQuota>,
    pub limit_ranges: Vec<LimitRange>,
    /// Pods of the run that this one replaces.
    pub replaced: Vec<Pod>,
}

/// What a run has to fit into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Against {
    /// What is left of a quota: the run starts now.
    Free,
    /// The quota as a whole: the run starts at another time.
    Hard,
}

/// Everything that does not fit, quota by quota.
pub fn problems(needs: &Footprint, namespace: &Namespace, against: Against) -> Vec<Problem> {
    let mut quotas: Vec<&ResourceQuota> = namespace.quotas.iter().collect();
    quotas.sort_by_key(|quota| quota.metadata.name.clone());
    quotas.into_iter().flat_map(|quota| of_quota(needs, namespace, quota, against)).collect()
}

fn of_quota(needs: &Footprint, namespace: &Namespace, quota: &ResourceQuota, against: Against) -> Vec<Problem> {
    let status = quota.status.as_ref();
    let in_spec = quota.spec.as_ref().and_then(|spec| spec.hard.as_ref());
    let Some(hard) = status.and_then(|status| status.hard.as_ref()).or(in_spec) else { return Vec::new() };
    let filled = |spec: &PodSpec| fill_in(spec, &namespace.limit_ranges);
    let groups: Vec<(&PodGroup, Amounts)> = needs
        .pods
        .iter()
        .filter(|group| group.count > 0)
        .map(|group| (group, filled(&group.spec)))
        .filter(|(_, spec)| counts(quota, spec))
        .map(|(group, spec)| (group, usage(&spec)))
        .collect();
    // They are stored, so defaults have been filled in.
    let replaced: Vec<Amounts> = namespace
        .replaced
        .iter()
        .filter(|pod| !matches!(pod.status.as_ref().and_then(|s| s.phase.as_deref()), Some("Succeeded" | "Failed")))
        .filter_map(|pod| pod.spec.as_ref())
        .filter(|spec| counts(quota, spec))
        .map(usage)
        .collect();
    let mut found = Vec::new();
    for (resource, limit) in hard {
        let Ok(limit) = limit.0.parse::<Quantity>() else { continue };
        let of_pods: Vec<(&PodGroup, Quantity)> =
            groups.iter().filter_map(|(group, each)| Some((*group, *each.get(resource)?))).collect();
        let of_objects = needs.objects.get(resource).copied().filter(|_| !is_scoped(quota));
        let needed = of_pods
            .iter()
            .map(|(group, each)| each.times(group.count))
            .chain(of_objects)
            .fold(Quantity::ZERO, Quantity::plus);
        if needed == Quantity::ZERO {
            continue;
        }
        let used = match against {
            Against::Hard => Quantity::ZERO,
            Against::Free => {
                let used = status.and_then(|status| status.used.as_ref()?.get(resource)?.0.parse().ok());
                let replaced = replaced.iter().filter_map(|each| each.get(resource).copied());
                let left = replaced.fold(used.unwrap_or(Quantity::ZERO), Quantity::minus);
                left.max(Quantity::ZERO)
            }
        };
        if used.plus(needed) <= limit {
            continue;
        }
        let name = quota.metadata.name.as_deref().unwrap_or_default();
        let uses = match against {
            Against::Hard => String::new(),
            Against::Free => format!(", used {used}"),
        };
        found.push(Problem {
            path: blamed(&of_pods, used, limit),
            message: format!(
                "exceeds ResourceQuota {name:?}: {resource} needed {needed}{}{uses}, hard {limit}; request less, or raise the quota",
                parts(&of_pods)
            ),
        });
    }
    found
}

/// The field to change: the driver's, if not even the driver fits.
fn blamed(groups: &[(&PodGroup, Quantity)], used: Quantity, limit: Quantity) -> String {
    let mut sum = used;
    for (group, each) in groups {
        sum = sum.plus(each.times(group.count));
        if sum > limit {
            return group.path.clone();
        }
    }
    "spec".to_owned()
}

/// What each kind of pod needs.
fn parts(groups: &[(&PodGroup, Quantity)]) -> String {
    let words = groups.iter().map(|(group, each)| match (group.role, group.count) {
        ("executor", 1) => format!("1 executor {each}"),
        ("executor", count) => format!("{count} executors {each} each"),
        (role, _) => format!("{role} {each}"),
    });
    let words: Vec<String> = words.collect();
    if words.is_empty() { String::new() } else { format!(" ({})", words.join(", ")) }
}

fn is_scoped(quota: &ResourceQuota) -> bool {
    let spec = quota.spec.as_ref();
    spec.is_some_and(|spec| spec.scopes.iter().flatten().next().is_some() || spec.scope_selector.is_some())
}

/// Whether a quota applies to a pod: all of its scopes must match.
fn counts(quota: &ResourceQuota, pod: &PodSpec) -> bool {
    let Some(spec) = &quota.spec else { return false };
    let terms = spec.scope_selector.iter().flat_map(|selector| selector.match_expressions.iter().flatten());
    spec.scopes.iter().flatten().all(|scope| in_scope(scope, pod)) && terms.into_iter().all(|term| matches(term, pod))
}

fn matches(term: &ScopedResourceSelectorRequirement, pod: &PodSpec) -> bool {
    if term.scope_name != "PriorityClass" {
        return in_scope(&term.scope_name, pod);
    }
    let class = pod.priority_class_name.as_deref().unwrap_or_default();
    let listed = term.values.iter().flatten().any(|value| value == class);
    match term.operator.as_str() {
        "In" => listed,
        "NotIn" => !listed,
        "Exists" => !class.is_empty(),
        _ => class.is_empty(),
    }
}

fn in_scope(scope: &str, pod: &PodSpec) -> bool {
    let ends = pod.active_deadline_seconds.is_some();
    match scope {
        "Terminating" => ends,
        "NotTerminating" => !ends,
        "BestEffort" => is_best_effort(pod),
        "NotBestEffort" => !is_best_effort(pod),
        "PriorityClass" => !pod.priority_class_name.as_deref().unwrap_or_default().is_empty(),
        "CrossNamespacePodAffinity" => crosses_namespaces(pod),
        // Scopes of other objects.
        _ => false,
    }
}

fn is_best_effort(pod: &PodSpec) -> bool {
    let containers = pod.containers.iter().chain(pod.init_containers.iter().flatten());
    !containers.filter_map(|container| container.resources.as_ref()).any(|resources| {
        let lists = resources.requests.iter().flatten().chain(resources.limits.iter().flatten());
        lists.into_iter().any(|(name, amount)| {
            matches!(name.as_str(), "cpu" | "memory") && amount.0.parse::<Quantity>().is_ok_and(|q| q > Quantity::ZERO)
        })
    })
}

fn crosses_namespaces(pod: &PodSpec) -> bool {
    let Some(affinity) = &pod.affinity else { return false };
    let mut terms: Vec<&PodAffinityTerm> = Vec::new();
    if let Some(near) = &affinity.pod_affinity {
        terms.extend(near.required_during_scheduling_ignored_during_execution.iter().flatten());
        let weighted = near.preferred_during_scheduling_ignored_during_execution.iter().flatten();
        terms.extend(weighted.map(|term| &term.pod_affinity_term));
    }
    if let Some(apart) = &affinity.pod_anti_affinity {
        terms.extend(apart.required_during_scheduling_ignored_during_execution.iter().flatten());
        let weighted = apart.preferred_during_scheduling_ignored_during_execution.iter().flatten();
        terms.extend(weighted.map(|term| &term.pod_affinity_term));
    }
    terms.iter().any(|term| term.namespace_selector.is_some() || term.namespaces.iter().flatten().next().is_some())
}

/// A pod as it will be stored: a limit is also a request, and what is open after that comes from LimitRanges.
fn fill_in(spec: &PodSpec, limit_ranges: &[LimitRange]) -> PodSpec {
    let mut spec = spec.clone();
    let items: Vec<&LimitRangeItem> = limit_ranges
        .iter()
        .filter_map(|range| range.spec.as_ref())
        .flat_map(|spec| &spec.limits)
        .filter(|item| item.type_ == "Container")
        .collect();
    let containers = spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten());
    for container in containers {
        let resources = container.resources.get_or_insert_default();
        let limits = resources.limits.get_or_insert_default();
        let requests = resources.requests.get_or_insert_default();
        for (name, amount) in limits.iter() {
            requests.entry(name.clone()).or_insert_with(|| amount.clone());
        }
        for item in &items {
            let defaults = |list: &Option<BTreeMap<String, resource::Quantity>>| list.clone().unwrap_or_default();
            for (name, amount) in defaults(&item.default) {
                limits.entry(name).or_insert(amount);
            }
            for (name, amount) in defaults(&item.default_request) {
                requests.entry(name).or_insert(amount);
            }
        }
    }
    spec
}

/// What a pod adds to a quota, by the quota's names.
fn usage(pod: &PodSpec) -> Amounts {
    let mut usage = Amounts::new();
    for name in ["pods", "count/pods"] {
        usage.insert(name.to_owned(), Quantity::from(1));
    }
    for (name, amount) in total(pod, |container| container.resources.as_ref()?.requests.as_ref(), true) {
        if BARE.contains(&name.as_str()) || name.starts_with("hugepages-") {
            usage.insert(name.clone(), amount);
        }
        usage.insert(format!("requests.{name}"), amount);
    }
    for (name, amount) in total(pod, |container| container.resources.as_ref()?.limits.as_ref(), false) {
        usage.insert(format!("limits.{name}"), amount);
    }
    usage
}

/// A pod's requests or limits: its containers and sidecars, or a single init container if that is more, plus overhead.
fn total(
    pod: &PodSpec,
    list: fn(&Container) -> Option<&BTreeMap<String, resource::Quantity>>,
    is_requests: bool,
) -> Amounts {
    let of = |container: &Container| -> Vec<(String, Quantity)> {
        let amounts = list(container).into_iter().flatten();
        amounts.filter_map(|(name, amount)| Some((name.clone(), amount.0.parse().ok()?))).collect()
    };
    let (mut sum, mut staying, mut most) = (Amounts::new(), Amounts::new(), Amounts::new());
    for container in &pod.containers {
        of(container).into_iter().for_each(|(name, amount)| add(&mut sum, &name, amount));
    }
    for container in pod.init_containers.iter().flatten() {
        let stays = container.restart_policy.as_deref() == Some("Always");
        for (name, amount) in of(container) {
            let beside = staying.get(&name).copied().unwrap_or(Quantity::ZERO).plus(amount);
            if stays {
                add(&mut sum, &name, amount);
                staying.insert(name.clone(), beside);
            }
            let slot = most.entry(name).or_insert(Quantity::ZERO);
            *slot = (*slot).max(beside);
        }
    }
    for (name, amount) in most {
        let slot = sum.entry(name).or_insert(Quantity::ZERO);
        *slot = (*slot).max(amount);
    }
    for (name, amount) in pod.overhead.iter().flatten() {
        if let (Ok(amount), true) = (amount.0.parse(), is_requests || sum.contains_key(name)) {
            add(&mut sum, name, amount);
        }
    }
    sum
}

fn add(amounts: &mut Amounts, name: &str, amount: Quantity) {
    let slot = amounts.entry(name.to_owned()).or_insert(Quantity::ZERO);
    *slot = slot.plus(amount);
}
