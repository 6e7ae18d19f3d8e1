//! Fields that cannot take effect, each with the reason, for a condition and an event.
//!
//! Spark writes some fields of a pod after it has read the template, for drivers and executors alike. `docs/operator.md`
//! lists them all.

use firesteel_api::pod_spec::SparkPodSpec;
use firesteel_api::spark_application::SparkApplicationSpec;
use firesteel_api::validate::LOCAL_DIR_PREFIX;
use firesteel_spark::version::Line;
use k8s_openapi::api::core::v1::Container;

use crate::overlay::{DRIVER_CONTAINERS, EXECUTOR_CONTAINERS};
use crate::template;
use crate::ui::UiSettings;

/// Variables that Spark sets in every executor, after those of the template.
const EXECUTOR_VARIABLES: &[&str] = &[
    "SPARK_USER",
    "SPARK_DRIVER_URL",
    "SPARK_EXECUTOR_CORES",
    "SPARK_EXECUTOR_MEMORY",
    "SPARK_APPLICATION_ID",
    "SPARK_CONF_DIR",
    "SPARK_EXECUTOR_ID",
    "SPARK_RESOURCE_PROFILE_ID",
    "SPARK_EXECUTOR_POD_IP",
    "SPARK_EXECUTOR_POD_NAME",
    "SPARK_LOCAL_DIRS",
    "SPARK_DRIVER_POD_IP",
];

/// Every field of an application that cannot take effect, with the reason.
pub fn ineffective_fields(spec: &SparkApplicationSpec, line: Line, ui: &UiSettings) -> Vec<(String, String)> {
    let mut lost = IneffectiveFields(Vec::new());
    if ui.no_budgets && spec.driver_pod_disruption_budget == Some(true) {
        lost.0.push((
            "spec.driverPodDisruptionBudget".to_owned(),
            "the operator was started with --enable-driver-pdb=false".to_owned(),
        ));
    }
    if !ui.gateways.is_empty() {
        lost.tls_of_routes(spec);
    }
    lost.application(spec);
    lost.template("spec.driver", &spec.driver.pod, DRIVER_CONTAINERS);
    lost.template("spec.executor", &spec.executor.pod, EXECUTOR_CONTAINERS);
    lost.executor(spec);
    lost.scratch("spec.driver", &spec.driver.pod, spec, line);
    lost.scratch("spec.executor", &spec.executor.pod, spec, line);
    lost.0
}

struct IneffectiveFields(Vec<(String, String)>);

impl IneffectiveFields {
    fn add(&mut self, path: impl Into<String>, why: &str) {
        self.0.push((path.into(), why.to_owned()));
    }

    fn application(&mut self, spec: &SparkApplicationSpec) {
        if spec.failure_retries.is_some() {
            self.add("spec.failureRetries", "use restartPolicy.onFailureRetries");
        }
        if spec.retry_interval.is_some() {
            self.add("spec.retryInterval", "use restartPolicy.onFailureRetryInterval");
        }
        if spec.batch_scheduler_options.is_some() {
            self.add("spec.batchSchedulerOptions", "queues and pod groups are not created yet");
        }
    }

    fn tls_of_routes(&mut self, spec: &SparkApplicationSpec) {
        let why = "the operator creates HTTPRoutes, whose TLS is that of the Gateway's listener";
        if spec.spark_ui_options.as_ref().is_some_and(|ui| !ui.ingress_tls.is_empty()) {
            self.add("spec.sparkUIOptions.ingressTLS", why);
        }
        for (i, option) in spec.driver_ingress_options.iter().enumerate() {
            if !option.ingress_tls.is_empty() {
                self.add(format!("spec.driverIngressOptions[{i}].ingressTLS"), why);
            }
        }
    }

    fn executor(&mut self, spec: &SparkApplicationSpec) {
        let executor = &spec.executor;
        if executor.pod.memory_limit.is_some() {
            self.add(
                "spec.executor.memoryLimit",
                "Spark sets the memory limit of executors to their memory plus overhead; use memoryOverhead",
            );
        }
        let decommission =
            spec.spark_conf.get("spark.decommission.enabled").is_some_and(|v| v.trim().eq_ignore_ascii_case("true"));
        if executor.lifecycle.is_some() && decommission {
            self.add(
                "spec.executor.lifecycle",
                "with spark.decommission.enabled, Spark replaces it with its own preStop hook",
            );
        }
        for (i, variable) in executor.pod.env.iter().enumerate() {
            let name = variable.name.as_str();
            if EXECUTOR_VARIABLES.contains(&name) || name.starts_with("SPARK_JAVA_OPT_") {
                self.add(
                    format!("spec.executor.env[{i}]"),
                    &format!("Spark sets {name} in executors itself; use sparkConf[spark.executorEnv.{name}]"),
                );
            }
        }
    }

    /// Spark creates scratch space from configuration, which has no keys for some fields.
    fn scratch(&mut self, path: &str, pod: &SparkPodSpec, spec: &SparkApplicationSpec, line: Line) {
        let old = line < Line::V4_0;
        for (i, mount) in pod.volume_mounts.iter().enumerate().filter(|(_, m)| m.name.starts_with(LOCAL_DIR_PREFIX)) {
            let at = format!("{path}.volumeMounts[{i}]");
            if mount.sub_path_expr.is_some() && old {
                self.add(format!("{at}.subPathExpr"), "Spark supports it for scratch space from 4.0 on; use subPath");
            }
            if mount.mount_propagation.is_some() {
                self.add(format!("{at}.mountPropagation"), "Spark does not support it for scratch space");
            }
            if mount.recursive_read_only.is_some() {
                self.add(format!("{at}.recursiveReadOnly"), "Spark does not support it for scratch space");
            }
            let source = spec.volumes.iter().position(|v| v.name == mount.name);
            let kind = |v: usize| spec.volumes[v].host_path.as_ref().and_then(|h| h.type_.as_ref());
            if let Some(v) = source.filter(|v| old && kind(*v).is_some_and(|kind| !kind.is_empty())) {
                let field = format!("spec.volumes[{v}].hostPath.type");
                if !self.0.iter().any(|(path, _)| *path == field) {
                    self.add(field, "Spark supports it for scratch space from 4.0 on");
                }
            }
        }
    }

    fn template(&mut self, path: &str, pod: &SparkPodSpec, usual: &[&str]) {
        let Some(spec) = pod.template.as_ref().and_then(|t| t.spec.as_ref()) else { return };
        let path = format!("{path}.template.spec");
        if spec.restart_policy.as_deref().is_some_and(|p| p != "Never") {
            self.add(format!("{path}.restartPolicy"), "Spark's pods never restart; use spec.restartPolicy");
        }
        if spec.hostname.is_some() && usual == EXECUTOR_CONTAINERS {
            self.add(format!("{path}.hostname"), "Spark names executors after their pods");
        }
        let main = template::start(pod.template.as_ref(), usual).container;
        let Some(i) = spec.containers.iter().position(|c| c.name == main) else { return };
        self.container(&format!("{path}.containers[{i}]"), &spec.containers[i]);
    }

    /// What Spark writes into its own container, whatever the template says.
    fn container(&mut self, path: &str, container: &Container) {
        if container.image.is_some() {
            self.add(format!("{path}.image"), "Spark sets it itself; use spec.image");
        }
        if container.image_pull_policy.is_some() {
            self.add(format!("{path}.imagePullPolicy"), "use spec.imagePullPolicy");
        }
        let Some(resources) = &container.resources else { return };
        let set = |list: &Option<std::collections::BTreeMap<_, _>>, name: &str| {
            list.as_ref().is_some_and(|l| l.contains_key(name))
        };
        let fields = [
            ("requests.cpu", set(&resources.requests, "cpu"), "use coreRequest"),
            ("requests.memory", set(&resources.requests, "memory"), "use memory and memoryOverhead"),
            ("limits.memory", set(&resources.limits, "memory"), "use memory and memoryOverhead"),
        ];
        for (field, present, instead) in fields {
            if present {
                self.add(format!("{path}.resources.{field}"), &format!("Spark sets it itself; {instead}"));
            }
        }
    }
}
