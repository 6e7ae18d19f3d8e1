//! A container's environment, command and arguments. Pure.
//!
//! The order is a kubelet's: image, Services, `envFrom`, `env`. Later values override earlier ones, and `$(NAME)` in `env` refers to
//! variables defined before.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, EnvVarSource, ObjectFieldSelector, Pod, ResourceFieldSelector};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::objects::{ObjectKind, Objects};

/// Facts about a pod that are not in its object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PodFacts {
    pub(crate) pod_ip: String,
    pub(crate) host_ip: String,
    /// The node's allocatable milli-cores and bytes, for containers without limits.
    pub(crate) node_cpu: u64,
    pub(crate) node_memory: u64,
}

/// A container that cannot be configured yet, in a kubelet's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EnvError {
    #[error("{kind} \"{name}\" not found")]
    NoObject { kind: &'static str, name: String },
    #[error("couldn't find key {key} in {kind} {namespace}/{name}")]
    NoKey { kind: &'static str, namespace: String, name: String, key: String },
    #[error("unsupported fieldPath: {0}")]
    Field(String),
    #[error("unsupported container resource: {0}")]
    Resource(String),
}

type Variables = Vec<(String, String)>;

/// A container's variables, in order of definition.
pub(crate) fn variables(
    pod: &Pod,
    container: &Container,
    base: &[(String, String)],
    facts: &PodFacts,
    objects: &Objects,
) -> Result<Variables, EnvError> {
    let mut all: Variables = Vec::new();
    for (name, value) in base {
        set(&mut all, name, value.clone());
    }
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    for source in container.env_from.iter().flatten() {
        let prefix = source.prefix.clone().unwrap_or_default();
        let map = source.config_map_ref.as_ref().map(|r| (ObjectKind::ConfigMap, &r.name, r.optional));
        let secret = source.secret_ref.as_ref().map(|r| (ObjectKind::Secret, &r.name, r.optional));
        for (holder, name, optional) in [map, secret].into_iter().flatten() {
            match objects.texts(holder, name) {
                Some(values) => {
                    for (key, value) in values {
                        set(&mut all, &format!("{prefix}{key}"), value);
                    }
                }
                None if optional == Some(true) => {}
                None => return Err(EnvError::NoObject { kind: holder.lower(), name: name.clone() }),
            }
        }
    }
    for variable in container.env.iter().flatten() {
        let value = match (&variable.value, &variable.value_from) {
            (_, Some(source)) => match look_up(pod, container, source, facts, objects, &namespace)? {
                Some(value) => value,
                None => continue,
            },
            (Some(value), None) => expand(value, &all),
            (None, None) => String::new(),
        };
        set(&mut all, &variable.name, value);
    }
    Ok(all)
}

fn set(all: &mut Variables, name: &str, value: String) {
    match all.iter_mut().find(|(n, _)| n == name) {
        Some((_, old)) => *old = value,
        None => all.push((name.to_owned(), value)),
    }
}

/// The value of a source; `None` if it is optional and missing.
fn look_up(
    pod: &Pod,
    container: &Container,
    source: &EnvVarSource,
    facts: &PodFacts,
    objects: &Objects,
    namespace: &str,
) -> Result<Option<String>, EnvError> {
    let map = source.config_map_key_ref.as_ref().map(|r| (ObjectKind::ConfigMap, &r.name, &r.key, r.optional));
    let secret = source.secret_key_ref.as_ref().map(|r| (ObjectKind::Secret, &r.name, &r.key, r.optional));
    if let Some((holder, name, key, optional)) = map.or(secret) {
        let optional = optional == Some(true);
        let Some(mut values) = objects.texts(holder, name) else {
            let missing = EnvError::NoObject { kind: holder.lower(), name: name.clone() };
            return if optional { Ok(None) } else { Err(missing) };
        };
        return match values.remove(key) {
            None if !optional => Err(EnvError::NoKey {
                kind: holder.proper(),
                namespace: namespace.to_owned(),
                name: name.clone(),
                key: key.clone(),
            }),
            found => Ok(found),
        };
    }
    if let Some(field) = &source.field_ref {
        return field_value(pod, field, facts).map(Some);
    }
    if let Some(field) = &source.resource_field_ref {
        return resource_value(pod, container, field, facts).map(Some);
    }
    Ok(Some(String::new()))
}

/// A pod field (downward API).
pub(crate) fn field_value(pod: &Pod, selector: &ObjectFieldSelector, facts: &PodFacts) -> Result<String, EnvError> {
    let meta = &pod.metadata;
    let spec = pod.spec.as_ref();
    let path = selector.field_path.as_str();
    let listed = |map: &Option<BTreeMap<String, String>>| {
        map.iter().flatten().map(|(k, v)| format!("{k}={v:?}")).collect::<Vec<_>>().join("\n")
    };
    let keyed = |prefix: &str, map: &Option<BTreeMap<String, String>>| -> Option<String> {
        let key = path.strip_prefix(prefix)?.strip_prefix("['")?.strip_suffix("']")?;
        Some(map.as_ref().and_then(|m| m.get(key)).cloned().unwrap_or_default())
    };
    Ok(match path {
        "metadata.name" => meta.name.clone().unwrap_or_default(),
        "metadata.namespace" => meta.namespace.clone().unwrap_or_default(),
        "metadata.uid" => meta.uid.clone().unwrap_or_default(),
        "metadata.labels" => listed(&meta.labels),
        "metadata.annotations" => listed(&meta.annotations),
        "spec.nodeName" => spec.and_then(|s| s.node_name.clone()).unwrap_or_default(),
        "spec.serviceAccountName" => spec.and_then(|s| s.service_account_name.clone()).unwrap_or_default(),
        "status.podIP" | "status.podIPs" => facts.pod_ip.clone(),
        "status.hostIP" | "status.hostIPs" => facts.host_ip.clone(),
        other => keyed("metadata.labels", &meta.labels)
            .or_else(|| keyed("metadata.annotations", &meta.annotations))
            .ok_or_else(|| EnvError::Field(other.to_owned()))?,
    })
}

/// A container's request or limit (downward API); without a limit, the node's allocatable amount.
pub(crate) fn resource_value(
    pod: &Pod,
    container: &Container,
    selector: &ResourceFieldSelector,
    facts: &PodFacts,
) -> Result<String, EnvError> {
    let named = selector.container_name.as_deref().filter(|n| !n.is_empty() && *n != container.name);
    let spec = pod.spec.as_ref();
    let container = match named {
        None => container,
        Some(name) => {
            let all = spec.into_iter().flat_map(|s| s.containers.iter().chain(s.init_containers.iter().flatten()));
            all.into_iter().find(|c| c.name == name).ok_or_else(|| EnvError::Resource(selector.resource.clone()))?
        }
    };
    let (kind, name) =
        selector.resource.split_once('.').ok_or_else(|| EnvError::Resource(selector.resource.clone()))?;
    let resources = container.resources.as_ref();
    let declared = match kind {
        "limits" => resources.and_then(|r| r.limits.as_ref()).and_then(|l| l.get(name)),
        "requests" => resources.and_then(|r| r.requests.as_ref()).and_then(|l| l.get(name)),
        _ => return Err(EnvError::Resource(selector.resource.clone())),
    };
    let in_milli = name == "cpu";
    let node = match (kind, name) {
        ("limits", "cpu") => Quantity(format!("{}m", facts.node_cpu)),
        ("limits", "memory") => Quantity(facts.node_memory.to_string()),
        _ => Quantity("0".to_owned()),
    };
    let quantity = declared.unwrap_or(&node);
    let one = Quantity("1".to_owned());
    let divisor = selector.divisor.as_ref().filter(|d| !d.0.is_empty() && d.0 != "0").unwrap_or(&one);
    let read = |q: &Quantity| if in_milli { firesteel_quantity::milli(q) } else { firesteel_quantity::whole(q) };
    match (read(quantity), read(divisor)) {
        (Some(value), Some(divisor)) if divisor > 0 => Ok(value.div_ceil(divisor).to_string()),
        _ => Err(EnvError::Resource(selector.resource.clone())),
    }
}

/// Expands `$(NAME)` to a known variable; `$$` escapes a dollar sign, and unknown names are left unchanged.
pub(crate) fn expand(text: &str, variables: &[(String, String)]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix('(').and_then(|r| r.split_once(')')) {
            match variables.iter().find(|(n, _)| n == name) {
                Some((_, value)) => out.push_str(value),
                None => out.push_str(&format!("$({name})")),
            }
            rest = after;
        } else {
            out.push('$');
        }
    }
    out.push_str(rest);
    out
}

/// The command line: the container's command and arguments, or the image's.
pub(crate) fn command(
    container: &Container,
    entrypoint: &[String],
    arguments: &[String],
    variables: &[(String, String)],
) -> Vec<String> {
    let given = |words: &Option<Vec<String>>| {
        words.clone().filter(|w| !w.is_empty()).map(|w| w.iter().map(|x| expand(x, variables)).collect::<Vec<_>>())
    };
    match (given(&container.command), given(&container.args)) {
        (Some(command), args) => command.into_iter().chain(args.into_iter().flatten()).collect(),
        (None, Some(args)) => entrypoint.iter().cloned().chain(args).collect(),
        (None, None) => entrypoint.iter().chain(arguments).cloned().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{ConfigMap, Secret};

    fn pod() -> Pod {
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u", "labels": {"a/b": "c"}},
            "spec": {"nodeName": "node", "containers": [{
                "name": "c",
                "command": ["run", "$(A)"], "args": ["$$(A)", "$(NO)"],
                "resources": {"limits": {"cpu": "1500m", "memory": "1Gi"}},
                "envFrom": [{"configMapRef": {"name": "m"}, "prefix": "M_"}, {"secretRef": {"name": "gone", "optional": true}}],
                "env": [
                    {"name": "A", "value": "1"},
                    {"name": "B", "value": "$(A)-$(M_k)-$(C)"},
                    {"name": "C", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a/b']"}}},
                    {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                    {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
                    {"name": "MEM", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
                    {"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                    {"name": "NONE", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "zz", "optional": true}}}
                ]}]}
        }))
        .expect("a pod")
    }

    fn objects() -> Objects {
        let map: ConfigMap = serde_json::from_value(serde_json::json!({"data": {"k": "v"}})).expect("a map");
        let secret: Secret = serde_json::from_value(serde_json::json!({"data": {"k": "c2VjcmV0"}})).expect("a secret");
        Objects {
            config_maps: BTreeMap::from([("m".to_owned(), map)]),
            secrets: BTreeMap::from([("s".to_owned(), secret)]),
        }
    }

    #[test]
    fn variables_come_from_everywhere_and_refer_to_earlier_ones() {
        let pod = pod();
        let container = &pod.spec.as_ref().expect("spec").containers[0];
        let facts = PodFacts { pod_ip: "127.9.1.1".to_owned(), ..PodFacts::default() };
        let all =
            variables(&pod, container, &[("A".to_owned(), "0".to_owned())], &facts, &objects()).expect("variables");
        let get = |n: &str| all.iter().find(|(k, _)| k == n).map(|(_, v)| v.as_str());
        assert_eq!(get("A"), Some("1"));
        assert_eq!(get("B"), Some("1-v-$(C)"), "C stands after B");
        assert_eq!(get("C"), Some("c"));
        assert_eq!(get("IP"), Some("127.9.1.1"));
        assert_eq!(get("CPU"), Some("2"), "rounded up");
        assert_eq!(get("MEM"), Some("1024"));
        assert_eq!(get("S"), Some("secret"));
        assert_eq!(get("NONE"), None);
        assert_eq!(command(container, &["x".to_owned()], &[], &all), ["run", "1", "$(A)", "$(NO)"]);
    }

    #[test]
    fn what_is_missing_is_named_as_a_kubelet_names_it() {
        let pod = pod();
        let container = &pod.spec.as_ref().expect("spec").containers[0];
        let mut some = objects();
        some.secrets.get_mut("s").expect("secret").data = None;
        let error = variables(&pod, container, &[], &PodFacts::default(), &some).expect_err("no key");
        assert_eq!(error.to_string(), "couldn't find key k in Secret n/s");
        some.config_maps.clear();
        let error = variables(&pod, container, &[], &PodFacts::default(), &some).expect_err("no map");
        assert_eq!(error.to_string(), "configmap \"m\" not found");
    }

    #[test]
    fn arguments_alone_go_to_the_entry_point_of_the_image() {
        let container = Container { args: Some(vec!["driver".to_owned()]), ..Container::default() };
        assert_eq!(command(&container, &["/e".to_owned()], &["z".to_owned()], &[]), ["/e", "driver"]);
        let container = Container::default();
        assert_eq!(command(&container, &["/e".to_owned()], &["z".to_owned()], &[]), ["/e", "z"]);
    }
}
