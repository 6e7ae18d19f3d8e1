//! Kubernetes objects inside a specification: pod templates, containers, volumes, tolerations. The definition leaves their
//! schema open, so nothing else checks them before a pod is created.
//!
//! Only what an API server would certainly refuse is a problem. What Spark overwrites in its own container (image, name, CPU,
//! memory) is not checked here; what depends on other fields, such as mounts, is checked on the finished pod by the plan.

use std::collections::BTreeSet;

use firesteel_spark::object_name::{MAX_LABEL, is_dns_label, is_label_value, is_qualified_name};
use firesteel_spark::value::Quantity;
use k8s_openapi::api::core::v1::{
    Container, PodSpec, PodTemplateSpec, ResourceRequirements, Service, Toleration, Volume,
};
use serde_json::Value;

use super::Found;

const NAME: &str = "use at most 63 lower case letters, digits and dashes";
const PROTOCOLS: [&str; 3] = ["TCP", "UDP", "SCTP"];

/// Whether a container is the one that Spark runs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Runs {
    Spark,
    Something,
}

impl Found {
    /// A pod template. `usual` are the names that Spark's container may have; in a template without any of them, Spark runs in
    /// the first container.
    pub(super) fn template(&mut self, path: &str, template: &PodTemplateSpec, usual: &[&str]) {
        let metadata = template.metadata.iter();
        for (name, value) in metadata.clone().flat_map(|meta| meta.labels.iter().flatten()) {
            self.label(&format!("{path}.metadata.labels"), name, value);
        }
        for (name, _) in metadata.flat_map(|meta| meta.annotations.iter().flatten()) {
            if !is_qualified_name(&name.to_lowercase()) {
                let message = "is not a valid annotation name; write it as name or domain/name";
                self.add(format!("{path}.metadata.annotations[{name}]"), message);
            }
        }
        if let Some(spec) = &template.spec {
            self.pod(&format!("{path}.spec"), spec, usual);
        }
    }

    fn pod(&mut self, path: &str, spec: &PodSpec, usual: &[&str]) {
        self.volumes(&format!("{path}.volumes"), spec.volumes.as_deref().unwrap_or_default());
        let at = usual.iter().find_map(|name| spec.containers.iter().position(|c| c.name == *name)).unwrap_or(0);
        let mut names = BTreeSet::new();
        let containers = spec.containers.iter().enumerate().map(|(i, container)| {
            let runs = if i == at { Runs::Spark } else { Runs::Something };
            (format!("{path}.containers[{i}]"), container, runs)
        });
        let first = spec.init_containers.iter().flatten().enumerate();
        let first = first.map(|(i, container)| (format!("{path}.initContainers[{i}]"), container, Runs::Something));
        for (at, container, runs) in containers.chain(first) {
            self.container(&at, container, runs);
            if !container.name.is_empty() && !names.insert(&container.name) {
                self.add(format!("{at}.name"), format!("{:?} is used twice; rename one of them", container.name));
            }
        }
        self.tolerations(&format!("{path}.tolerations"), spec.tolerations.as_deref().unwrap_or_default());
        for (name, value) in spec.node_selector.iter().flatten() {
            self.label(&format!("{path}.nodeSelector"), name, value);
        }
        if let Some(policy) = spec.dns_policy.as_deref() {
            let policies = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
            self.one_of(&format!("{path}.dnsPolicy"), policy, &policies);
        }
        if spec.active_deadline_seconds.is_some_and(|seconds| seconds < 1) {
            self.add(format!("{path}.activeDeadlineSeconds"), "must be at least 1");
        }
        if spec.termination_grace_period_seconds.is_some_and(|seconds| seconds < 0) {
            self.add(format!("{path}.terminationGracePeriodSeconds"), super::NOT_NEGATIVE);
        }
    }

    /// Containers beside Spark's: sidecars and init containers.
    pub(super) fn others(&mut self, path: &str, sidecars: &[Container], first: &[Container], usual: &[&str]) {
        for (i, container) in sidecars.iter().enumerate() {
            let at = format!("{path}.sidecars[{i}]");
            self.container(&at, container, Runs::Something);
            if usual.contains(&container.name.as_str()) {
                self.add(format!("{at}.name"), format!("{:?} is Spark's own container; use another", container.name));
            }
        }
        for (i, container) in first.iter().enumerate() {
            let at = format!("{path}.initContainers[{i}]");
            self.container(&at, container, Runs::Something);
            if sidecars.iter().any(|other| other.name == container.name) {
                self.add(format!("{at}.name"), format!("{:?} is also a sidecar; rename one of them", container.name));
            }
        }
    }

    fn container(&mut self, path: &str, container: &Container, runs: Runs) {
        let name = container.name.as_str();
        match (name.is_empty(), runs) {
            (true, Runs::Spark) => {}
            (true, Runs::Something) => self.add(format!("{path}.name"), "is missing: name the container"),
            (false, _) if name.len() > MAX_LABEL || !is_dns_label(name) => {
                self.add(format!("{path}.name"), format!("{name:?} is not a container name; {NAME}"));
            }
            (false, _) => {}
        }
        let image = container.image.as_deref().unwrap_or_default();
        if image != image.trim() {
            self.add(format!("{path}.image"), format!("{image:?} must not begin or end with a space"));
        } else if image.is_empty() && runs == Runs::Something {
            self.add(format!("{path}.image"), "is missing: give the image to run");
        }
        if let Some(policy) = container.image_pull_policy.as_deref() {
            self.one_of(&format!("{path}.imagePullPolicy"), policy, &["Always", "Never", "IfNotPresent"]);
        }
        for (i, port) in container.ports.iter().flatten().enumerate() {
            let at = format!("{path}.ports[{i}]");
            if !(1..=65535).contains(&port.container_port) {
                let message = format!("{} is not a port; write a number from 1 to 65535", port.container_port);
                self.add(format!("{at}.containerPort"), message);
            }
            if let Some(protocol) = port.protocol.as_deref() {
                self.one_of(&format!("{at}.protocol"), protocol, &PROTOCOLS);
            }
        }
        for (i, variable) in container.env.iter().flatten().enumerate() {
            let at = format!("{path}.env[{i}]");
            if variable.name.is_empty() || variable.name.contains('=') {
                self.add(format!("{at}.name"), format!("{:?} is not the name of a variable", variable.name));
            }
            if variable.value_from.is_some() && !variable.value.as_deref().unwrap_or_default().is_empty() {
                self.add(format!("{at}.valueFrom"), "cannot be combined with value; use one of them");
            }
        }
        for (i, mount) in container.volume_mounts.iter().flatten().enumerate() {
            if mount.mount_path.is_empty() {
                self.add(format!("{path}.volumeMounts[{i}].mountPath"), "is missing");
            }
        }
        if let Some(resources) = &container.resources {
            self.resources(&format!("{path}.resources"), resources, runs);
        }
    }

    fn resources(&mut self, path: &str, resources: &ResourceRequirements, runs: Runs) {
        // Spark sets these itself, and so does not read what the template says.
        let overwritten = |name: &str| runs == Runs::Spark && matches!(name, "cpu" | "memory");
        let lists = [("requests", &resources.requests), ("limits", &resources.limits)];
        for (list, amounts) in lists {
            for (name, amount) in amounts.iter().flatten().filter(|(name, _)| !overwritten(name)) {
                if !amount.0.parse::<Quantity>().is_ok_and(|amount| !amount.is_negative()) {
                    let message = format!("{:?} is not an amount; write one such as 500m, 2 or 1Gi", amount.0);
                    self.add(format!("{path}.{list}[{name}]"), message);
                }
            }
        }
        for (name, request) in resources.requests.iter().flatten().filter(|(name, _)| !overwritten(name)) {
            let Some(limit) = resources.limits.as_ref().and_then(|limits| limits.get(name)) else { continue };
            if let (Ok(wanted), Ok(most)) = (request.0.parse::<Quantity>(), limit.0.parse::<Quantity>())
                && wanted > most
            {
                let message =
                    format!("{} is more than the limit of {}; lower it, or raise the limit", request.0, limit.0);
                self.add(format!("{path}.requests[{name}]"), message);
            }
        }
    }

    pub(super) fn volumes(&mut self, path: &str, volumes: &[Volume]) {
        let mut names = BTreeSet::new();
        for (i, volume) in volumes.iter().enumerate() {
            let at = format!("{path}[{i}]");
            if volume.name.len() > MAX_LABEL || !is_dns_label(&volume.name) {
                self.add(format!("{at}.name"), format!("{:?} is not a volume name; {NAME}", volume.name));
            } else if !names.insert(&volume.name) {
                self.add(format!("{at}.name"), format!("{:?} is used twice; rename one of them", volume.name));
            }
            let fields = serde_json::to_value(volume).unwrap_or_default();
            let sources: Vec<&String> =
                fields.as_object().into_iter().flatten().map(|(name, _)| name).filter(|name| *name != "name").collect();
            if let [first, second, ..] = sources[..] {
                self.add(at, format!("has the sources {first} and {second}; a volume has one"));
            }
        }
    }

    pub(super) fn tolerations(&mut self, path: &str, tolerations: &[Toleration]) {
        for (i, toleration) in tolerations.iter().enumerate() {
            let at = format!("{path}[{i}]");
            let (key, operator) = (toleration.key.as_deref(), toleration.operator.as_deref().unwrap_or_default());
            match operator {
                "" | "Equal" | "Exists" | "Lt" | "Gt" => {}
                other => self.one_of(&format!("{at}.operator"), other, &["Equal", "Exists"]),
            }
            if key.unwrap_or_default().is_empty() && operator != "Exists" {
                self.add(format!("{at}.operator"), "must be Exists if there is no key, to tolerate every taint");
            }
            if let Some(effect) = toleration.effect.as_deref().filter(|effect| !effect.is_empty()) {
                self.one_of(&format!("{at}.effect"), effect, &["NoSchedule", "PreferNoSchedule", "NoExecute"]);
            }
        }
    }

    fn label(&mut self, path: &str, name: &str, value: &str) {
        if !is_qualified_name(name) {
            self.add(format!("{path}[{name}]"), "is not a valid label name; write it as name or domain/name");
        } else if !is_label_value(value) {
            let message = format!(
                "{value:?} is not a label value; use at most 63 letters, digits, '-', '_' and '.', the first and last a letter or digit"
            );
            self.add(format!("{path}[{name}]"), message);
        }
    }
}

/// What is wrong with a Service in a specification.
pub fn service(path: &str, service: &Service) -> Vec<super::Problem> {
    let mut found = Found::default();
    for (name, value) in service.metadata.labels.iter().flatten() {
        found.label(&format!("{path}.metadata.labels"), name, value);
    }
    if let Some(name) = service.metadata.name.as_deref().filter(|name| !name.is_empty())
        && (name.len() > MAX_LABEL || !is_dns_label(name) || name.starts_with(|first: char| first.is_ascii_digit()))
    {
        found.add(format!("{path}.metadata.name"), format!("{name:?} is not a Service name; {NAME}, a letter first"));
    }
    let Some(spec) = &service.spec else { return found.0 };
    if let Some(kind) = spec.type_.as_deref() {
        found.one_of(&format!("{path}.spec.type"), kind, &["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"]);
    }
    let mut names = BTreeSet::new();
    for (i, port) in spec.ports.iter().flatten().enumerate() {
        let at = format!("{path}.spec.ports[{i}]");
        if !(1..=65535).contains(&port.port) {
            found.add(format!("{at}.port"), format!("{} is not a port; write a number from 1 to 65535", port.port));
        }
        if let Some(protocol) = port.protocol.as_deref() {
            found.one_of(&format!("{at}.protocol"), protocol, &PROTOCOLS);
        }
        let name = port.name.as_deref().unwrap_or_default();
        if !name.is_empty() && (name.len() > MAX_LABEL || !is_dns_label(name)) {
            found.add(format!("{at}.name"), format!("{name:?} is not a port name; {NAME}"));
        } else if !name.is_empty() && !names.insert(name) {
            found.add(format!("{at}.name"), format!("{name:?} is used twice; rename one of them"));
        }
    }
    found.0
}

/// Paths of the fields of `given` that `read` does not have: they were not understood, and have no effect. Empty values do not
/// count.
pub fn unknown(given: &Value, read: &Value, path: &str, found: &mut Vec<String>) {
    let says_nothing = |value: &Value| match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Number(number) => number.as_i64() == Some(0),
        Value::Bool(true) => false,
    };
    match (given, read) {
        (Value::Object(given), Value::Object(read)) => {
            for (name, value) in given {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                match read.get(name) {
                    Some(read) => unknown(value, read, &path, found),
                    None if says_nothing(value) => {}
                    None => found.push(path),
                }
            }
        }
        (Value::Array(given), Value::Array(read)) => {
            for (i, (given, read)) in given.iter().zip(read).enumerate() {
                unknown(given, read, &format!("{path}[{i}]"), found);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::Problem;
    use serde_json::json;

    fn sentences(template: Value) -> Vec<String> {
        let mut found = Found::default();
        found.template(
            "spec.driver.template",
            &serde_json::from_value(template).unwrap(),
            &["spark-kubernetes-driver"],
        );
        found.0.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_template_that_spark_completes_has_no_problems() {
        let template = json!({
            "metadata": {"labels": {"team": "a", "example.org/part": "x_1"}, "annotations": {"Example.org/Note": "any text"}},
            "spec": {
                "volumes": [{"name": "scratch", "emptyDir": {}}, {"name": "bare"}],
                "tolerations": [{"operator": "Exists"}, {"key": "a", "value": "b", "effect": "NoSchedule"}],
                "containers": [
                    {"name": "spark-kubernetes-driver", "resources": {"requests": {"memory": "1g"}}},
                    {"name": "log", "image": "log:1", "ports": [{"containerPort": 80}],
                     "env": [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
                     "volumeMounts": [{"name": "scratch", "mountPath": "/s"}], "resources": {"limits": {"cpu": 1}}},
                ],
            },
        });
        assert_eq!(sentences(template), [""; 0]);
        assert_eq!(sentences(json!({"spec": {"containers": [{"name": ""}]}})), [""; 0], "Spark names its container");
    }

    #[test]
    fn each_problem_of_a_template_has_its_path() {
        let beside =
            |container: Value| json!({"spec": {"containers": [{"name": "spark-kubernetes-driver"}, container]}});
        let cases = [
            (json!({"metadata": {"labels": {"a": "b c"}}}), "metadata.labels[a]"),
            (json!({"metadata": {"labels": {"a b": "c"}}}), "metadata.labels[a b]"),
            (json!({"metadata": {"annotations": {"a b": "c"}}}), "metadata.annotations[a b]"),
            (beside(json!({"name": "x"})), "spec.containers[1].image"),
            (beside(json!({"name": "", "image": "i"})), "spec.containers[1].name"),
            (beside(json!({"name": "X", "image": "i"})), "spec.containers[1].name"),
            (beside(json!({"name": "x", "image": " i"})), "spec.containers[1].image"),
            (beside(json!({"name": "spark-kubernetes-driver", "image": "i"})), "spec.containers[1].name"),
            (
                beside(json!({"name": "x", "image": "i", "imagePullPolicy": "Maybe"})),
                "spec.containers[1].imagePullPolicy",
            ),
            (
                beside(json!({"name": "x", "image": "i", "ports": [{"containerPort": 0}]})),
                "spec.containers[1].ports[0].containerPort",
            ),
            (
                beside(json!({"name": "x", "image": "i", "ports": [{"containerPort": 1, "protocol": "tcp"}]})),
                "spec.containers[1].ports[0].protocol",
            ),
            (beside(json!({"name": "x", "image": "i", "env": [{"name": ""}]})), "spec.containers[1].env[0].name"),
            (
                beside(json!({"name": "x", "image": "i", "env": [{"name": "A", "value": "1", "valueFrom": {}}]})),
                "spec.containers[1].env[0].valueFrom",
            ),
            (
                beside(json!({"name": "x", "image": "i", "volumeMounts": [{"name": "v", "mountPath": ""}]})),
                "spec.containers[1].volumeMounts[0].mountPath",
            ),
            (
                beside(json!({"name": "x", "image": "i", "resources": {"limits": {"memory": "1g"}}})),
                "spec.containers[1].resources.limits[memory]",
            ),
            (
                beside(
                    json!({"name": "x", "image": "i", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}),
                ),
                "spec.containers[1].resources.requests[cpu]",
            ),
            (json!({"spec": {"containers": [], "volumes": [{"name": "V"}]}}), "spec.volumes[0].name"),
            (json!({"spec": {"containers": [], "volumes": [{"name": "v"}, {"name": "v"}]}}), "spec.volumes[1].name"),
            (
                json!({"spec": {"containers": [], "volumes": [{"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}]}}),
                "spec.volumes[0]",
            ),
            (
                json!({"spec": {"containers": [], "tolerations": [{"key": "a", "operator": "Is"}]}}),
                "spec.tolerations[0].operator",
            ),
            (json!({"spec": {"containers": [], "tolerations": [{"value": "a"}]}}), "spec.tolerations[0].operator"),
            (
                json!({"spec": {"containers": [], "tolerations": [{"operator": "Exists", "effect": "Never"}]}}),
                "spec.tolerations[0].effect",
            ),
            (json!({"spec": {"containers": [], "nodeSelector": {"a": "b c"}}}), "spec.nodeSelector[a]"),
            (json!({"spec": {"containers": [], "dnsPolicy": "Mine"}}), "spec.dnsPolicy"),
            (json!({"spec": {"containers": [], "activeDeadlineSeconds": 0}}), "spec.activeDeadlineSeconds"),
        ];
        for (template, field) in cases {
            let found = sentences(template.clone());
            let expected = format!("spec.driver.template.{field}: ");
            assert!(found.len() == 1 && found[0].starts_with(&expected), "{template}: {found:?}");
        }
    }

    #[test]
    fn each_problem_of_a_service_has_its_path() {
        let paths = |given: Value| -> Vec<String> {
            let problems = service("spec.server.service", &serde_json::from_value(given).unwrap());
            problems.into_iter().map(|Problem { path, .. }| path.replace("spec.server.service.", "")).collect()
        };
        assert_eq!(paths(json!({"spec": {"type": "NodePort", "ports": [{"port": 15002, "name": "a"}]}})), [""; 0]);
        assert_eq!(paths(json!({"metadata": {"name": "1a"}})), ["metadata.name"]);
        assert_eq!(paths(json!({"metadata": {"labels": {"a": "b c"}}})), ["metadata.labels[a]"]);
        assert_eq!(paths(json!({"spec": {"type": "Public"}})), ["spec.type"]);
        let ports = json!({"spec": {"ports": [{"port": 0}, {"port": 1, "protocol": "x"}, {"port": 2, "name": "A"}]}});
        assert_eq!(paths(ports), ["spec.ports[0].port", "spec.ports[1].protocol", "spec.ports[2].name"]);
    }

    #[test]
    fn fields_that_nobody_knows_are_found_and_empty_ones_are_not() {
        let given = json!({"a": 1, "b": {"c": [{"d": 1, "typo": "x"}], "gone": []}, "more": {"x": 1}, "off": false});
        let read = json!({"a": 1, "b": {"c": [{"d": 1}]}});
        let mut found = Vec::new();
        unknown(&given, &read, "", &mut found);
        assert_eq!(found, ["b.c[0].typo", "more"]);
    }
}
