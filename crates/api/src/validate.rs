//! Validation of a SparkApplication. Pure; admission and the controller call the same function, so a manifest is refused
//! with the same message with or without a webhook.
//!
//! [`embedded`] checks the Kubernetes objects inside a specification. Errors that only planning can find (names too long,
//! conflicting volumes …) are reported by the plan.

pub mod embedded;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use firesteel_spark::SparkVersion;
use firesteel_spark::value::{self, Quantity};

use crate::defaults::defaulted;
use crate::names::{DRIVER_CONTAINERS, EXECUTOR_CONTAINERS};
use crate::pod_spec::SparkPodSpec;
use crate::spark_application::{RestartPolicy, SparkApplicationSpec};

/// One error and its field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Path of the field, such as `spec.driver.memory`.
    pub path: String,
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

/// Configuration keys that only typed fields or the operator may set.
pub const DENIED_KEYS: [(&str, &str); 14] = [
    ("spark.master", "the operator knows the API server"),
    ("spark.kubernetes.driver.master", "use spec.driver.kubernetesMaster"),
    ("spark.kubernetes.container.image", "use spec.image"),
    ("spark.kubernetes.driver.container.image", "use spec.driver.image"),
    ("spark.kubernetes.executor.container.image", "use spec.executor.image"),
    ("spark.kubernetes.authenticate.driver.serviceAccountName", "use spec.driver.serviceAccount"),
    ("spark.kubernetes.authenticate.executor.serviceAccountName", "use spec.executor.serviceAccount"),
    ("spark.kubernetes.authenticate.oauthToken", "use spec.driver.serviceAccount"),
    ("spark.kubernetes.authenticate.oauthTokenFile", "use spec.driver.serviceAccount"),
    ("spark.kubernetes.authenticate.driver.oauthToken", "use spec.driver.serviceAccount"),
    ("spark.kubernetes.authenticate.driver.oauthTokenFile", "use spec.driver.serviceAccount"),
    ("spark.kubernetes.authenticate.executor.oauthToken", "use spec.executor.serviceAccount"),
    ("spark.kubernetes.authenticate.executor.oauthTokenFile", "use spec.executor.serviceAccount"),
    ("spark.kubernetes.authenticate.submission.oauthToken", "the operator has its own credentials"),
];

/// Messages shared with the rules in the custom resource definitions.
pub(crate) const NAME: &str =
    "is not a DNS label: use at most 63 lower case letters, digits and dashes, a letter first";
pub(crate) const NO_IMAGE: &str = "no image: set spec.image, or an image for each role";
pub(crate) const NO_MAIN_FILE: &str =
    "is missing: give the jar, Python or R file to run, such as local:///opt/app/main.jar";
pub(crate) const NO_MAIN_CLASS: &str = "is missing: a {} application needs the class to start";
pub(crate) const ONE_SELECTOR: &str = "cannot be combined with spec.nodeSelector; use one of them";
pub(crate) const TOO_MANY: &str = "must not be more than maxExecutors";
/// Also for the fields of a schedule, which are checked with its time zones.
pub const NOT_NEGATIVE: &str = "must not be negative";
pub const POLICIES: &str = "is not one of Allow, Forbid, Replace";

/// Prefix of the names of volumes that Spark uses as scratch space.
pub const LOCAL_DIR_PREFIX: &str = "spark-local-dir-";

/// Everything that is wrong with an application, in the order of its fields.
pub fn problems(name: &str, namespace: &str, spec: &SparkApplicationSpec) -> Vec<Problem> {
    let spec = &defaulted(spec);
    let mut found = Found::default();
    found.name(name);
    found.one_of("spec.type", &spec.type_, &["Java", "Python", "Scala", "R"]);
    match spec.mode.as_deref() {
        Some("cluster") | None => {}
        Some("client") => {
            found.add("spec.mode", "the driver would run inside the operator; write cluster");
        }
        Some(other) => found.one_of("spec.mode", other, &["cluster"]),
    }
    found.version(spec);
    found.image(spec);
    found.main(spec);
    found.conf(spec, namespace);
    found.optional_number("spec.memoryOverheadFactor", spec.memory_overhead_factor.as_deref());
    if let Some(version) = &spec.python_version {
        found.one_of("spec.pythonVersion", version, &["2", "3"]);
    }
    found.restart(spec.restart_policy.as_ref());
    found.executors(spec);
    found.selectors(spec);
    found.volumes("spec.volumes", &spec.volumes);
    let (driver, executor) = (&spec.driver, &spec.executor);
    found.role("spec.driver", &driver.pod, driver.core_request.as_deref(), spec, DRIVER_CONTAINERS);
    found.role("spec.executor", &executor.pod, executor.core_request.as_deref(), spec, EXECUTOR_CONTAINERS);
    found.ingresses(spec);
    found.monitoring(spec);
    if spec.time_to_live_seconds.is_some_and(|ttl| ttl < 0) {
        found.add("spec.timeToLiveSeconds", NOT_NEGATIVE);
    }
    found.0
}

#[derive(Default)]
struct Found(Vec<Problem>);

impl Found {
    fn add(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.0.push(Problem { path: path.into(), message: message.into() });
    }

    fn one_of(&mut self, path: &str, word: &str, words: &[&str]) {
        if !words.contains(&word) {
            self.add(path, format!("{word:?} is not one of {}", words.join(", ")));
        }
    }

    fn name(&mut self, name: &str) {
        let label = name.len() <= 63
            && name.bytes().next().is_some_and(|c| c.is_ascii_lowercase())
            && name.bytes().last().is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
            && name.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-');
        if !label {
            self.add("metadata.name", format!("{name:?} {NAME}"));
        }
    }

    fn version(&mut self, spec: &SparkApplicationSpec) {
        if let Err(error) = spec.spark_version.parse::<SparkVersion>() {
            self.add("spec.sparkVersion", error.to_string());
        }
    }

    fn image(&mut self, spec: &SparkApplicationSpec) {
        for (path, role) in [("spec.driver.image", &spec.driver.pod), ("spec.executor.image", &spec.executor.pod)] {
            if spec.image.as_deref().unwrap_or_default().is_empty()
                && role.image.as_deref().unwrap_or_default().is_empty()
            {
                self.add(path, NO_IMAGE);
            }
        }
    }

    fn main(&mut self, spec: &SparkApplicationSpec) {
        let path = "spec.mainApplicationFile";
        let Some(file) = spec.main_application_file.as_deref().filter(|f| !f.is_empty()) else {
            self.add(path, NO_MAIN_FILE);
            return;
        };
        self.remote(path, file);
        if matches!(spec.type_.as_str(), "Java" | "Scala") && spec.main_class.as_deref().unwrap_or_default().is_empty()
        {
            self.add("spec.mainClass", NO_MAIN_CLASS.replace("{}", &spec.type_));
        }
        if let Some(deps) = &spec.deps {
            let lists = [
                ("jars", &deps.jars),
                ("files", &deps.files),
                ("pyFiles", &deps.py_files),
                ("archives", &deps.archives),
            ];
            for (name, list) in lists {
                for (i, file) in list.iter().enumerate() {
                    self.remote(&format!("spec.deps.{name}[{i}]"), file);
                }
            }
        }
    }

    /// Files must be reachable from the driver: the operator ships nothing.
    fn remote(&mut self, path: &str, uri: &str) {
        if uri == "spark-internal" {
            return;
        }
        let scheme = uri.split_once(':').map(|(scheme, _)| scheme).filter(|s| !s.contains('/'));
        if scheme.is_none_or(|s| s == "file") {
            self.add(
                path,
                format!("{uri:?} would have to be uploaded from the operator; write local://{} for a file inside the image, or a URI the driver can read", uri.trim_start_matches("file://")),
            );
        }
    }

    fn conf(&mut self, spec: &SparkApplicationSpec, namespace: &str) {
        for (key, instead) in DENIED_KEYS {
            if spec.spark_conf.contains_key(key) {
                self.add(format!("spec.sparkConf[{key}]"), format!("must not be set; {instead}"));
            }
        }
        if let Some(other) = spec.spark_conf.get("spark.kubernetes.namespace").filter(|n| *n != namespace) {
            self.add(
                "spec.sparkConf[spark.kubernetes.namespace]",
                format!("{other:?} differs from the application's namespace {namespace:?}"),
            );
        }
    }

    fn restart(&mut self, policy: Option<&RestartPolicy>) {
        let Some(policy) = policy else { return };
        if let Some(kind) = &policy.type_ {
            self.one_of("spec.restartPolicy.type", kind, &["Never", "Always", "OnFailure"]);
        }
        let counts = [
            ("onFailureRetries", policy.on_failure_retries),
            ("onSubmissionFailureRetries", policy.on_submission_failure_retries),
        ];
        for (name, count) in counts {
            if count.is_some_and(|n| n < 0) {
                self.add(format!("spec.restartPolicy.{name}"), "must not be negative");
            }
        }
        let intervals = [
            ("onFailureRetryInterval", policy.on_failure_retry_interval),
            ("onSubmissionFailureRetryInterval", policy.on_submission_failure_retry_interval),
        ];
        for (name, seconds) in intervals {
            if seconds.is_some_and(|s| s < 1) {
                self.add(format!("spec.restartPolicy.{name}"), "must be at least 1 second");
            }
        }
    }

    fn executors(&mut self, spec: &SparkApplicationSpec) {
        if spec.executor.instances.is_some_and(|n| n < 1) {
            self.add("spec.executor.instances", "must be at least 1");
        }
        let Some(dynamic) = spec.dynamic_allocation.as_ref().filter(|d| d.enabled) else { return };
        let (least, most) = (dynamic.min_executors, dynamic.max_executors);
        if let (Some(least), Some(most)) = (least, most)
            && least > most
        {
            self.add("spec.dynamicAllocation.minExecutors", TOO_MANY);
        }
        if let (Some(first), Some(most)) = (dynamic.initial_executors, most)
            && first > most
        {
            self.add("spec.dynamicAllocation.initialExecutors", TOO_MANY);
        }
        for (name, n) in
            [("minExecutors", least), ("maxExecutors", most), ("initialExecutors", dynamic.initial_executors)]
        {
            if n.is_some_and(|n| n < 0) {
                self.add(format!("spec.dynamicAllocation.{name}"), "must not be negative");
            }
        }
    }

    fn selectors(&mut self, spec: &SparkApplicationSpec) {
        if spec.node_selector.is_empty() {
            return;
        }
        for (path, role) in [("spec.driver", &spec.driver.pod), ("spec.executor", &spec.executor.pod)] {
            if !role.node_selector.is_empty() {
                self.add(format!("{path}.nodeSelector"), ONE_SELECTOR);
            }
        }
    }

    /// `usual` are the names that Spark's container may have.
    fn role(
        &mut self,
        path: &str,
        pod: &SparkPodSpec,
        core_request: Option<&str>,
        spec: &SparkApplicationSpec,
        usual: &[&str],
    ) {
        if pod.cores.is_some_and(|c| c < 1) {
            self.add(format!("{path}.cores"), "must be at least 1");
        }
        for (name, text) in [("memory", &pod.memory), ("memoryOverhead", &pod.memory_overhead)] {
            if let Some(text) = text
                && value::memory_mib(text).is_err()
            {
                self.add(format!("{path}.{name}"), format!("{text:?} is not a size; write one such as 512m or 2g"));
            }
        }
        if let Some(text) = &pod.memory_limit
            && memory_quantity(text).is_none()
        {
            self.add(format!("{path}.memoryLimit"), format!("{text:?} is not a size; write one such as 2g or 2Gi"));
        }
        for (name, text) in [("coreLimit", pod.core_limit.as_deref()), ("coreRequest", core_request)] {
            if let Some(text) = text
                && text.parse::<Quantity>().is_err()
            {
                self.add(
                    format!("{path}.{name}"),
                    format!("{text:?} is not an amount of CPU; write cores such as 1, 0.5 or 500m"),
                );
            }
        }
        if let Some(gpu) = &pod.gpu {
            if gpu.name.is_empty() {
                self.add(format!("{path}.gpu.name"), "is missing: name the resource, such as nvidia.com/gpu");
            }
            if gpu.quantity < 1 {
                self.add(format!("{path}.gpu.quantity"), "must be at least 1");
            }
        }
        self.mounts(path, pod, spec);
        self.others(path, &pod.sidecars, &pod.init_containers, usual);
        self.tolerations(&format!("{path}.tolerations"), &pod.tolerations);
        if let Some(template) = &pod.template {
            self.template(&format!("{path}.template"), template, usual);
        }
    }

    fn mounts(&mut self, path: &str, pod: &SparkPodSpec, spec: &SparkApplicationSpec) {
        let mut volumes: BTreeMap<&str, bool> = BTreeMap::new();
        for volume in &spec.volumes {
            let scratch = volume.empty_dir.is_some()
                || volume.host_path.is_some()
                || volume.nfs.is_some()
                || volume.persistent_volume_claim.is_some();
            volumes.insert(&volume.name, scratch);
        }
        let template = pod.template.iter().filter_map(|t| t.spec.as_ref()).flat_map(|s| s.volumes.iter().flatten());
        let in_template: BTreeSet<&str> = template.map(|v| v.name.as_str()).collect();
        for (i, mount) in pod.volume_mounts.iter().enumerate() {
            let at = format!("{path}.volumeMounts[{i}]");
            match volumes.get(mount.name.as_str()) {
                None if in_template.contains(mount.name.as_str()) => {}
                None => self.add(format!("{at}.name"), format!("spec.volumes has no volume {:?}", mount.name)),
                Some(false) if mount.name.starts_with(LOCAL_DIR_PREFIX) => self.add(
                    format!("{at}.name"),
                    format!("{:?} cannot be scratch space: only emptyDir, hostPath, nfs and persistentVolumeClaim volumes can", mount.name),
                ),
                Some(_) => {}
            }
            if mount.mount_path.is_empty() {
                self.add(format!("{at}.mountPath"), "is missing");
            }
        }
    }

    fn ingresses(&mut self, spec: &SparkApplicationSpec) {
        if let Some(ui) = &spec.spark_ui_options {
            let at = "spec.sparkUIOptions";
            if let Some(port) = ui.service_port.filter(|port| !is_port(*port)) {
                self.add(format!("{at}.servicePort"), format!("{port} is not a port"));
            }
            self.service(at, ui.service_port_name.as_deref(), ui.service_type.as_deref());
            self.labels(&format!("{at}.serviceLabels"), &ui.service_labels);
            self.annotations(&format!("{at}.serviceAnnotations"), &ui.service_annotations);
            self.annotations(&format!("{at}.ingressAnnotations"), &ui.ingress_annotations);
        }
        let mut ports = BTreeSet::new();
        let mut urls = BTreeSet::new();
        for (i, ingress) in spec.driver_ingress_options.iter().enumerate() {
            let at = format!("spec.driverIngressOptions[{i}]");
            if !is_port(ingress.service_port) {
                self.add(format!("{at}.servicePort"), format!("{} is not a port", ingress.service_port));
            } else if !ports.insert(ingress.service_port) {
                self.add(format!("{at}.servicePort"), format!("{} is used twice", ingress.service_port));
            }
            self.service(&at, Some(&ingress.service_port_name), ingress.service_type.as_deref());
            self.labels(&format!("{at}.serviceLabels"), &ingress.service_labels);
            self.annotations(&format!("{at}.serviceAnnotations"), &ingress.service_annotations);
            self.annotations(&format!("{at}.ingressAnnotations"), &ingress.ingress_annotations);
            if ingress.ingress_url_format.is_empty() {
                self.add(format!("{at}.ingressURLFormat"), "is missing");
            } else if !urls.insert(&ingress.ingress_url_format) {
                self.add(format!("{at}.ingressURLFormat"), format!("{:?} is used twice", ingress.ingress_url_format));
            } else if let Err(problem) = url_format(&ingress.ingress_url_format) {
                self.add(format!("{at}.ingressURLFormat"), problem);
            }
        }
    }

    /// What a Service would be refused for.
    fn service(&mut self, at: &str, port_name: Option<&str>, kind: Option<&str>) {
        if let Some(name) = port_name.filter(|name| !name.is_empty() && !is_dns_label(name)) {
            let message = format!("{name:?} is not a port name: use at most 63 lower case letters, digits and dashes");
            self.add(format!("{at}.servicePortName"), message);
        }
        if let Some(kind) = kind {
            self.one_of(&format!("{at}.serviceType"), kind, &["ClusterIP", "NodePort", "LoadBalancer"]);
        }
    }

    fn labels(&mut self, at: &str, labels: &BTreeMap<String, String>) {
        for (name, value) in labels {
            if !is_qualified_name(name) {
                self.add(at, format!("{name:?} is not the name of a label"));
            } else if !value.is_empty() && !is_name_part(value) {
                self.add(
                    format!("{at}[{name}]"),
                    format!("{value:?} is not the value of a label: use at most 63 letters, digits, dashes, dots and underscores, with a letter or digit at both ends"),
                );
            }
        }
    }

    fn annotations(&mut self, at: &str, annotations: &BTreeMap<String, String>) {
        for name in annotations.keys().filter(|name| !is_qualified_name(&name.to_ascii_lowercase())) {
            self.add(at, format!("{name:?} is not the name of an annotation"));
        }
    }

    fn monitoring(&mut self, spec: &SparkApplicationSpec) {
        let Some(prometheus) = spec.monitoring.as_ref().and_then(|m| m.prometheus.as_ref()) else { return };
        if prometheus.port.is_some_and(|p| !(1024..=49151).contains(&p)) {
            self.add("spec.monitoring.prometheus.port", "must be between 1024 and 49151");
        }
        if prometheus.jmx_exporter_jar.is_empty() {
            self.add("spec.monitoring.prometheus.jmxExporterJar", "is missing");
        }
    }

    fn optional_number(&mut self, path: &str, text: Option<&str>) {
        if let Some(text) = text
            && !text.trim().parse::<f64>().is_ok_and(|n| n.is_finite() && n >= 0.0)
        {
            self.add(path, format!("{text:?} is not a number; write one such as 0.1"));
        }
    }
}

fn is_port(port: i32) -> bool {
    (1..=65535).contains(&port)
}

fn is_dns_label(text: &str) -> bool {
    let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.len() <= 63
        && text.bytes().all(|c| inner(c) || c == b'-')
        && text.bytes().next().is_some_and(inner)
        && text.bytes().last().is_some_and(inner)
}

/// The value of a label, or the last part of its name.
fn is_name_part(text: &str) -> bool {
    text.len() <= 63
        && text.bytes().all(|c| c.is_ascii_alphanumeric() || b"-_.".contains(&c))
        && text.bytes().next().is_some_and(|c| c.is_ascii_alphanumeric())
        && text.bytes().last().is_some_and(|c| c.is_ascii_alphanumeric())
}

/// The name of a label or annotation, with or without a domain.
fn is_qualified_name(text: &str) -> bool {
    match text.split_once('/') {
        Some((domain, name)) => domain.len() <= 253 && domain.split('.').all(is_dns_label) && is_name_part(name),
        None => is_name_part(text),
    }
}

/// Variables in a URL format.
const URL_VARIABLES: [&str; 3] = ["$appName", "$appNamespace", "$appId"];

/// Whether a URL format gives an address that an Ingress or an HTTPRoute can serve: a host name or none, then a path.
pub fn url_format(format: &str) -> Result<(), String> {
    let mut sample = String::new();
    let mut rest = format;
    while let Some((before, after)) = rest.split_once("{{") {
        let (variable, tail) = after.split_once("}}").ok_or_else(|| format!("{format:?} has no }}}} after {{{{"))?;
        if !URL_VARIABLES.contains(&variable.trim()) {
            let known = URL_VARIABLES.map(|name| format!("{{{{{name}}}}}")).join(", ");
            return Err(format!("{{{{{variable}}}}} in {format:?} is not one of {known}"));
        }
        sample = sample + before + "a";
        rest = tail;
    }
    sample += rest;
    let address = sample.split_once("://").map_or(sample.as_str(), |(_, address)| address);
    let (host, path) = address.split_once('/').unwrap_or((address, ""));
    let name = host.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok()).map_or(host, |(name, _)| name);
    let labels = name.strip_prefix("*.").unwrap_or(name);
    if !name.is_empty() && !labels.split('.').all(is_dns_label) {
        return Err(format!("the host in {format:?} is not a DNS name"));
    }
    if path.bytes().any(|c| c.is_ascii_whitespace() || c.is_ascii_control()) {
        return Err(format!("the path in {format:?} has a space in it"));
    }
    Ok(())
}

/// A container memory limit as a Kubernetes quantity: Java's sizes (`2g`, `512m`) are powers of two, anything else must
/// already be a quantity.
pub fn memory_quantity(text: &str) -> Option<String> {
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "b" => Some(""),
        "k" | "kb" => Some("Ki"),
        "m" | "mb" => Some("Mi"),
        "g" | "gb" => Some("Gi"),
        "t" | "tb" => Some("Ti"),
        "p" | "pb" => Some("Pi"),
        _ => None,
    };
    let quantity = match unit {
        Some(unit) => format!("{digits}{unit}"),
        None => text.to_owned(),
    };
    (!digits.is_empty() && quantity.parse::<Quantity>().is_ok()).then_some(quantity)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn sentences(patch: &Value) -> Vec<String> {
        let mut base = json!({
            "type": "Scala", "sparkVersion": "4.1.4", "image": "apache/spark:4.1.4", "mainClass": "a.B",
            "mainApplicationFile": "local:///a.jar", "driver": {}, "executor": {},
        });
        for (name, value) in patch.as_object().unwrap() {
            base[name] = value.clone();
        }
        let spec = serde_json::from_value(base).unwrap();
        problems("app", "team", &spec).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_plain_application_has_no_problems() {
        assert_eq!(sentences(&json!({})), Vec::<String>::new());
    }

    /// An application with one more port, which is valid except for the patch.
    fn options(patch: &Value) -> Value {
        let mut option = json!({
            "servicePort": 8080, "servicePortName": "web-1", "serviceType": "NodePort", "ingressURLFormat": "h.example/{{$appName}}",
            "serviceLabels": {"example.org/team": "A_1"}, "ingressAnnotations": {"nginx.ingress.kubernetes.io/X-y": "any thing"},
        });
        for (name, value) in patch.as_object().unwrap() {
            option[name] = value.clone();
        }
        json!({"driverIngressOptions": [option]})
    }

    #[test]
    fn ports_of_a_driver_may_be_exposed_as_kubernetes_allows() {
        assert_eq!(sentences(&options(&json!({}))), Vec::<String>::new());
        for format in
            ["{{$appName}}.x.org", "https://x.org:8443/{{ $appNamespace }}/{{$appId}}", "*.x.org", "/{{$appName}}"]
        {
            assert_eq!(url_format(format), Ok(()), "{format}");
        }
    }

    #[test]
    fn each_problem_names_its_field() {
        let cases = [
            (json!({"type": "Cobol"}), "spec.type: "),
            (json!({"mode": "client"}), "spec.mode: "),
            (json!({"sparkVersion": "two"}), "spec.sparkVersion: "),
            (json!({"image": ""}), "spec.driver.image: "),
            (json!({"mainApplicationFile": null}), "spec.mainApplicationFile: is missing"),
            (json!({"mainApplicationFile": "/a.jar"}), "spec.mainApplicationFile: "),
            (json!({"mainClass": null}), "spec.mainClass: "),
            (json!({"deps": {"jars": ["file:///x.jar"]}}), "spec.deps.jars[0]: "),
            (json!({"sparkConf": {"spark.master": "x"}}), "spec.sparkConf[spark.master]: "),
            (json!({"sparkConf": {"spark.kubernetes.namespace": "x"}}), "spec.sparkConf[spark.kubernetes.namespace]: "),
            (json!({"memoryOverheadFactor": "much"}), "spec.memoryOverheadFactor: "),
            (json!({"driver": {"memory": "lots"}}), "spec.driver.memory: "),
            (json!({"executor": {"memoryOverhead": "1 x"}}), "spec.executor.memoryOverhead: "),
            (json!({"driver": {"memoryLimit": "2 gib"}}), "spec.driver.memoryLimit: "),
            (json!({"driver": {"coreLimit": "one"}}), "spec.driver.coreLimit: "),
            (json!({"executor": {"coreRequest": "x"}}), "spec.executor.coreRequest: "),
            (json!({"executor": {"gpu": {"name": "", "quantity": 1}}}), "spec.executor.gpu.name: "),
            (
                json!({"driver": {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}}),
                "spec.driver.volumeMounts[0].name: ",
            ),
            (
                json!({"volumes": [{"name": "spark-local-dir-1", "configMap": {"name": "c"}}],
                       "executor": {"volumeMounts": [{"name": "spark-local-dir-1", "mountPath": "/v"}]}}),
                "spec.executor.volumeMounts[0].name: ",
            ),
            (json!({"nodeSelector": {"a": "b"}, "driver": {"nodeSelector": {"a": "c"}}}), "spec.driver.nodeSelector: "),
            (json!({"restartPolicy": {"type": "Sometimes"}}), "spec.restartPolicy.type: "),
            (json!({"restartPolicy": {"onFailureRetries": -1}}), "spec.restartPolicy.onFailureRetries: "),
            (options(&json!({"servicePort": 0})), "spec.driverIngressOptions[0].servicePort: "),
            (options(&json!({"servicePortName": "No Name"})), "spec.driverIngressOptions[0].servicePortName: "),
            (options(&json!({"serviceType": "ExternalName"})), "spec.driverIngressOptions[0].serviceType: "),
            (options(&json!({"serviceLabels": {"a b": "c"}})), "spec.driverIngressOptions[0].serviceLabels: "),
            (options(&json!({"serviceLabels": {"a": "b c"}})), "spec.driverIngressOptions[0].serviceLabels[a]: "),
            (options(&json!({"serviceAnnotations": {"/x": ""}})), "spec.driverIngressOptions[0].serviceAnnotations: "),
            (
                options(&json!({"ingressAnnotations": {"a/b/c": ""}})),
                "spec.driverIngressOptions[0].ingressAnnotations: ",
            ),
            (options(&json!({"ingressURLFormat": ""})), "spec.driverIngressOptions[0].ingressURLFormat: is missing"),
            (
                options(&json!({"ingressURLFormat": "{{$app}}.x"})),
                "spec.driverIngressOptions[0].ingressURLFormat: {{$app}} in",
            ),
            (
                options(&json!({"ingressURLFormat": "under_score/x"})),
                "spec.driverIngressOptions[0].ingressURLFormat: the host in",
            ),
            (json!({"sparkUIOptions": {"servicePort": 70000}}), "spec.sparkUIOptions.servicePort: "),
            (json!({"sparkUIOptions": {"serviceType": "Open"}}), "spec.sparkUIOptions.serviceType: "),
            (json!({"sparkUIOptions": {"serviceLabels": {"a": "-"}}}), "spec.sparkUIOptions.serviceLabels[a]: "),
            (
                json!({"dynamicAllocation": {"enabled": true, "minExecutors": 3, "maxExecutors": 2}}),
                "spec.dynamicAllocation.minExecutors: ",
            ),
        ];
        for (patch, expected) in cases {
            let found = sentences(&patch);
            assert!(found.iter().any(|s| s.starts_with(expected)), "{patch}: {found:?}");
        }
    }

    #[test]
    fn d12_memory_limits_take_java_sizes_as_powers_of_two() {
        assert_eq!(memory_quantity("2g").as_deref(), Some("2Gi"));
        assert_eq!(memory_quantity("512m").as_deref(), Some("512Mi"));
        assert_eq!(memory_quantity("1024").as_deref(), Some("1024"));
        assert_eq!(memory_quantity("2Gi").as_deref(), Some("2Gi"));
        assert_eq!(memory_quantity("g"), None);
    }

    #[test]
    fn names_must_be_dns_labels() {
        let spec = SparkApplicationSpec::default();
        let name_is_bad = |name: &str| problems(name, "n", &spec).iter().any(|p| p.path == "metadata.name");
        assert!(!name_is_bad("pi-1"));
        for bad in ["1pi", "Pi", "a.b", "-a", "a-", "", &"a".repeat(64)] {
            assert!(name_is_bad(bad), "{bad}");
        }
    }
}
