//! From the fields of a SparkApplication to Spark configuration.
//!
//! The result is what `spark-submit` would have been given; the same resolution as for a command line follows. Each key
//! remembers the field it came from, so that a complaint about the key can name the field.

use std::collections::BTreeMap;

use firesteel_api::names;
use firesteel_api::pod_spec::SparkPodSpec;
use firesteel_api::spark_application::SparkApplicationSpec;
use firesteel_api::validate::LOCAL_DIR_PREFIX;
use firesteel_spark::args::{Opt, RawArgs, Setting};
use firesteel_spark::version::Line;
use firesteel_spark::{SparkVersion, names::label};
use k8s_openapi::api::core::v1::{Volume, VolumeMount};

use crate::monitoring::Monitoring;

/// The application around a specification.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    pub name: &'a str,
    pub namespace: &'a str,
    pub uid: &'a str,
    pub labels: &'a BTreeMap<String, String>,
    /// With defaults filled in.
    pub spec: &'a SparkApplicationSpec,
}

impl Subject<'_> {
    /// The name of the driver pod.
    pub fn driver_pod_name(&self) -> String {
        let conf = || self.spec.spark_conf.get("spark.kubernetes.driver.pod.name").cloned();
        self.spec.driver.pod_name.clone().or_else(conf).unwrap_or_else(|| format!("{}-driver", self.name))
    }
}

/// Settings in order, and the field each key came from.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    pub(crate) args: RawArgs,
    pub(crate) origins: BTreeMap<String, String>,
}

impl Settings {
    /// Later settings win, as on a command line.
    fn set(&mut self, key: impl Into<String>, value: impl Into<String>, path: impl Into<String>) {
        let key = key.into();
        self.origins.insert(key.clone(), path.into());
        self.args.settings.push(Setting { key, value: value.into(), flag: "--conf" });
    }

    fn maybe(&mut self, key: &str, value: Option<&impl ToString>, path: &str) {
        if let Some(value) = value {
            self.set(key, value.to_string(), path);
        }
    }

    fn flag(&mut self, opt: Opt, value: String) {
        if !value.is_empty() {
            self.args.options.insert(opt, value);
        }
    }

    /// The field behind a sentence about configuration: the longest key that the sentence mentions.
    pub(crate) fn blame(&self, sentence: &str) -> Option<&str> {
        self.origins
            .iter()
            .filter(|(key, _)| sentence.contains(key.as_str()))
            .max_by_key(|(key, _)| key.len())
            .map(|(_, path)| path.as_str())
    }
}

/// Where rendered pod templates stand for the plan to read.
pub(crate) const DRIVER_TEMPLATE: &str = "/firesteel/driver-pod-template.json";
pub(crate) const EXECUTOR_TEMPLATE: &str = "/firesteel/executor-pod-template.json";

/// What the mapping takes besides the application.
pub(crate) struct Extras<'a> {
    pub(crate) submission_id: &'a str,
    /// The API server, as after `k8s://`.
    pub(crate) master: &'a str,
    pub(crate) version: &'a SparkVersion,
    pub(crate) driver_container: &'a str,
    pub(crate) executor_container: &'a str,
    pub(crate) monitoring: Option<&'a Monitoring>,
    /// The path below which an ingress serves the driver's page.
    pub(crate) proxy_base: Option<&'a str>,
}

/// The command line that stands for the application. Typed fields come after `sparkConf`, so they win.
pub(crate) fn settings(app: &Subject<'_>, extras: &Extras<'_>) -> Settings {
    let spec = app.spec;
    let mut out = Settings::default();
    out.flag(Opt::Master, format!("k8s://{}", extras.master));
    out.flag(Opt::DeployMode, "cluster".to_owned());
    out.flag(Opt::Name, app.name.to_owned());
    out.flag(Opt::Class, spec.main_class.clone().unwrap_or_default());
    out.flag(Opt::ProxyUser, spec.proxy_user.clone().unwrap_or_default());
    if let Some(deps) = &spec.deps {
        out.flag(Opt::Jars, deps.jars.join(","));
        out.flag(Opt::Files, deps.files.join(","));
        out.flag(Opt::PyFiles, deps.py_files.join(","));
        out.flag(Opt::Packages, deps.packages.join(","));
        out.flag(Opt::ExcludePackages, deps.exclude_packages.join(","));
        out.flag(Opt::Repositories, deps.repositories.join(","));
        out.flag(Opt::Archives, deps.archives.join(","));
    }
    out.args.own.spark_version = Some(extras.version.clone());
    out.args.resource.clone_from(&spec.main_application_file);
    out.args.arguments.clone_from(&spec.arguments);

    for (key, value) in &spec.spark_conf {
        out.set(key, value, format!("spec.sparkConf[{key}]"));
    }
    for (key, value) in &spec.hadoop_conf {
        out.set(format!("spark.hadoop.{key}"), value, format!("spec.hadoopConf[{key}]"));
    }
    out.set("spark.kubernetes.namespace", app.namespace, "metadata.namespace");
    out.set("spark.kubernetes.submission.waitAppCompletion", "false", "spec");
    out.set("spark.kubernetes.driver.pod.name", app.driver_pod_name(), "spec.driver.podName");
    out.maybe("spark.kubernetes.container.image", spec.image.as_ref(), "spec.image");
    out.maybe("spark.kubernetes.container.image.pullPolicy", spec.image_pull_policy.as_ref(), "spec.imagePullPolicy");
    if !spec.image_pull_secrets.is_empty() {
        let secrets = spec.image_pull_secrets.join(",");
        out.set("spark.kubernetes.container.image.pullSecrets", secrets, "spec.imagePullSecrets");
    }
    out.maybe("spark.kubernetes.pyspark.pythonVersion", spec.python_version.as_ref(), "spec.pythonVersion");
    out.maybe(
        "spark.kubernetes.memoryOverheadFactor",
        spec.memory_overhead_factor.as_ref(),
        "spec.memoryOverheadFactor",
    );
    for (key, value) in &spec.node_selector {
        out.set(format!("spark.kubernetes.node.selector.{key}"), value, format!("spec.nodeSelector[{key}]"));
    }
    out.dynamic_allocation(spec);
    out.driver(app, extras);
    out.executor(app, extras);
    out.ui(spec, extras);
    if let Some(monitoring) = extras.monitoring {
        for (key, value) in &monitoring.conf {
            out.set(key, value, "spec.monitoring");
        }
    }
    out
}

impl Settings {
    fn dynamic_allocation(&mut self, spec: &SparkApplicationSpec) {
        let Some(dynamic) = spec.dynamic_allocation.as_ref().filter(|d| d.enabled) else { return };
        let path = "spec.dynamicAllocation";
        self.set("spark.dynamicAllocation.enabled", "true", format!("{path}.enabled"));
        let numbers = [
            ("initialExecutors", dynamic.initial_executors),
            ("minExecutors", dynamic.min_executors),
            ("maxExecutors", dynamic.max_executors),
        ];
        for (name, number) in numbers {
            self.maybe(&format!("spark.dynamicAllocation.{name}"), number.as_ref(), &format!("{path}.{name}"));
        }
        let tracking = dynamic.shuffle_tracking_enabled.unwrap_or(true);
        self.set(
            "spark.dynamicAllocation.shuffleTracking.enabled",
            tracking.to_string(),
            format!("{path}.shuffleTrackingEnabled"),
        );
        self.maybe(
            "spark.dynamicAllocation.shuffleTracking.timeout",
            dynamic.shuffle_tracking_timeout.as_ref(),
            &format!("{path}.shuffleTrackingTimeout"),
        );
    }

    fn driver(&mut self, app: &Subject<'_>, extras: &Extras<'_>) {
        let driver = &app.spec.driver;
        self.maybe("spark.driver.cores", driver.pod.cores.as_ref(), "spec.driver.cores");
        self.maybe("spark.kubernetes.driver.request.cores", driver.core_request.as_ref(), "spec.driver.coreRequest");
        self.maybe("spark.driver.memory", driver.pod.memory.as_ref(), "spec.driver.memory");
        self.maybe("spark.driver.memoryOverhead", driver.pod.memory_overhead.as_ref(), "spec.driver.memoryOverhead");
        let options = extras.monitoring.and_then(|m| m.driver_java_option.as_deref());
        self.java_options(
            "spark.driver.extraJavaOptions",
            driver.java_options.as_deref(),
            options,
            "spec.driver.javaOptions",
            app.spec,
        );
        self.maybe("spark.kubernetes.driver.master", driver.kubernetes_master.as_ref(), "spec.driver.kubernetesMaster");
        for (key, value) in &driver.service_labels {
            self.set(
                format!("spark.kubernetes.driver.service.label.{key}"),
                value,
                format!("spec.driver.serviceLabels[{key}]"),
            );
        }
        for (key, value) in &driver.service_annotations {
            self.set(
                format!("spark.kubernetes.driver.service.annotation.{key}"),
                value,
                format!("spec.driver.serviceAnnotations[{key}]"),
            );
        }
        self.role("driver", &driver.pod, app, extras);
        for (key, value) in &driver.pod.env_vars {
            self.set(format!("spark.kubernetes.driverEnv.{key}"), value, format!("spec.driver.envVars[{key}]"));
        }
        self.secrets("driver", "spark.kubernetes.driverEnv.", &driver.pod);
        self.set("spark.kubernetes.driver.podTemplateFile", DRIVER_TEMPLATE, "spec.driver.template");
        self.set("spark.kubernetes.driver.podTemplateContainerName", extras.driver_container, "spec.driver.template");
    }

    fn executor(&mut self, app: &Subject<'_>, extras: &Extras<'_>) {
        let executor = &app.spec.executor;
        self.maybe("spark.executor.instances", executor.instances.as_ref(), "spec.executor.instances");
        self.maybe("spark.executor.cores", executor.pod.cores.as_ref(), "spec.executor.cores");
        self.maybe(
            "spark.kubernetes.executor.request.cores",
            executor.core_request.as_ref(),
            "spec.executor.coreRequest",
        );
        self.maybe("spark.executor.memory", executor.pod.memory.as_ref(), "spec.executor.memory");
        self.maybe(
            "spark.executor.memoryOverhead",
            executor.pod.memory_overhead.as_ref(),
            "spec.executor.memoryOverhead",
        );
        let options = extras.monitoring.and_then(|m| m.executor_java_option.as_deref());
        self.java_options(
            "spark.executor.extraJavaOptions",
            executor.java_options.as_deref(),
            options,
            "spec.executor.javaOptions",
            app.spec,
        );
        self.maybe(
            "spark.kubernetes.executor.deleteOnTermination",
            executor.delete_on_termination.as_ref(),
            "spec.executor.deleteOnTermination",
        );
        // From 4.1 on Spark writes its own value over the template's.
        if let Some(seconds) =
            executor.pod.termination_grace_period_seconds.filter(|_| extras.version.line() >= Line::V4_1)
        {
            self.set(
                "spark.kubernetes.executor.terminationGracePeriodSeconds",
                format!("{seconds}s"),
                "spec.executor.terminationGracePeriodSeconds",
            );
        }
        self.role("executor", &executor.pod, app, extras);
        for (key, value) in &executor.pod.env_vars {
            self.set(format!("spark.executorEnv.{key}"), value, format!("spec.executor.envVars[{key}]"));
        }
        if app.spec.spark_config_map.is_some() {
            // Spark appends its own SPARK_CONF_DIR to what the template has; only spark.executorEnv comes after it.
            self.set("spark.executorEnv.SPARK_CONF_DIR", crate::overlay::SPARK_CONF_DIR, "spec.sparkConfigMap");
        }
        self.secrets("executor", "spark.executorEnv.", &executor.pod);
        self.set("spark.kubernetes.executor.podTemplateFile", EXECUTOR_TEMPLATE, "spec.executor.template");
        self.set(
            "spark.kubernetes.executor.podTemplateContainerName",
            extras.executor_container,
            "spec.executor.template",
        );
    }

    /// What driver and executors have under the same names.
    fn role(&mut self, role: &str, pod: &SparkPodSpec, app: &Subject<'_>, extras: &Extras<'_>) {
        let path = format!("spec.{role}");
        let key = |rest: &str| format!("spark.kubernetes.{role}.{rest}");
        self.maybe(&key("container.image"), pod.image.as_ref().or(app.spec.image.as_ref()), &format!("{path}.image"));
        self.maybe(&key("limit.cores"), pod.core_limit.as_ref(), &format!("{path}.coreLimit"));
        self.maybe(
            &format!("spark.kubernetes.authenticate.{role}.serviceAccountName"),
            pod.service_account.as_ref(),
            &format!("{path}.serviceAccount"),
        );
        for (name, value) in app.labels {
            let theirs = name.starts_with(names::KUEUE_PREFIX)
                || [label::VERSION, label::APP_ID, label::APP_NAME, label::ROLE].contains(&name.as_str());
            if !theirs {
                self.set(key(&format!("label.{name}")), value, format!("metadata.labels[{name}]"));
            }
        }
        for (name, value) in &pod.labels {
            self.set(key(&format!("label.{name}")), value, format!("{path}.labels[{name}]"));
        }
        for (name, value) in &pod.annotations {
            self.set(key(&format!("annotation.{name}")), value, format!("{path}.annotations[{name}]"));
        }
        // Last, so that nobody overrides them.
        for (name, value) in operator_labels(app.name, extras.submission_id) {
            self.set(key(&format!("label.{name}")), value, "metadata");
        }
        for mount in pod.volume_mounts.iter().filter(|m| m.name.starts_with(LOCAL_DIR_PREFIX)) {
            if let Some(volume) = app.spec.volumes.iter().find(|v| v.name == mount.name) {
                self.local_dir(role, volume, mount);
            }
        }
        for (name, reference) in &pod.env_secret_key_refs {
            self.set(
                key(&format!("secretKeyRef.{name}")),
                format!("{}:{}", reference.name, reference.key),
                format!("{path}.envSecretKeyRefs[{name}]"),
            );
        }
    }

    /// Secrets, and the variables by which programs find the well-known kinds.
    fn secrets(&mut self, role: &str, env: &str, pod: &SparkPodSpec) {
        for (i, secret) in pod.secrets.iter().enumerate() {
            let path = format!("spec.{role}.secrets[{i}]");
            self.set(format!("spark.kubernetes.{role}.secrets.{}", secret.name), &secret.path, path.clone());
            let well_known = match secret.secret_type.as_str() {
                "GCPServiceAccount" => Some(("GOOGLE_APPLICATION_CREDENTIALS", "key.json")),
                "HadoopDelegationToken" => Some(("HADOOP_TOKEN_FILE_LOCATION", "hadoop.token")),
                _ => None,
            };
            if let Some((name, file)) = well_known {
                self.set(format!("{env}{name}"), format!("{}/{file}", secret.path.trim_end_matches('/')), path);
            }
        }
    }

    /// A volume that Spark uses as scratch space.
    fn local_dir(&mut self, role: &str, volume: &Volume, mount: &VolumeMount) {
        let mut options: Vec<(&str, String)> = Vec::new();
        // Spark has one word for it: that of the mount.
        let mut read_only = mount.read_only;
        let kind = if let Some(source) = &volume.empty_dir {
            options.extend(source.size_limit.as_ref().map(|s| ("sizeLimit", s.0.clone())));
            options.extend(source.medium.clone().map(|m| ("medium", m)));
            "emptyDir"
        } else if let Some(source) = &volume.host_path {
            options.push(("path", source.path.clone()));
            options.extend(source.type_.clone().map(|t| ("type", t)));
            "hostPath"
        } else if let Some(source) = &volume.nfs {
            options.push(("path", source.path.clone()));
            options.push(("server", source.server.clone()));
            read_only = source.read_only.filter(|r| *r).or(read_only);
            "nfs"
        } else if let Some(source) = &volume.persistent_volume_claim {
            options.push(("claimName", source.claim_name.clone()));
            read_only = source.read_only.filter(|r| *r).or(read_only);
            "persistentVolumeClaim"
        } else {
            return;
        };
        let path = format!("spec.{role}.volumeMounts");
        let prefix = format!("spark.kubernetes.{role}.volumes.{kind}.{}", volume.name);
        self.set(format!("{prefix}.mount.path"), &mount.mount_path, path.clone());
        self.maybe(&format!("{prefix}.mount.subPath"), mount.sub_path.as_ref(), &path);
        self.maybe(&format!("{prefix}.mount.subPathExpr"), mount.sub_path_expr.as_ref(), &path);
        self.maybe(&format!("{prefix}.mount.readOnly"), read_only.as_ref(), &path);
        for (name, value) in options {
            self.set(format!("{prefix}.options.{name}"), value, "spec.volumes");
        }
    }

    fn java_options(
        &mut self,
        key: &str,
        typed: Option<&str>,
        agent: Option<&str>,
        path: &str,
        spec: &SparkApplicationSpec,
    ) {
        if typed.is_none() && agent.is_none() {
            return;
        }
        let base = typed.or_else(|| spec.spark_conf.get(key).map(String::as_str));
        let words: Vec<&str> = base.into_iter().chain(agent).filter(|w| !w.is_empty()).collect();
        self.set(key, words.join(" "), path);
    }

    fn ui(&mut self, spec: &SparkApplicationSpec, extras: &Extras<'_>) {
        let Some(base) = extras.proxy_base else { return };
        if !spec.spark_conf.contains_key("spark.ui.proxyBase") {
            self.set("spark.ui.proxyBase", base, "spec.sparkUIOptions");
        }
        if !spec.spark_conf.contains_key("spark.ui.proxyRedirectUri") {
            self.set("spark.ui.proxyRedirectUri", "/", "spec.sparkUIOptions");
        }
    }
}

/// Labels by which the operator finds what it made.
pub fn operator_labels(app_name: &str, submission_id: &str) -> [(String, String); 3] {
    [
        (names::LABEL_APP_NAME.to_owned(), app_name.to_owned()),
        (names::LABEL_LAUNCHED_BY.to_owned(), "true".to_owned()),
        (names::LABEL_SUBMISSION_ID.to_owned(), submission_id.to_owned()),
    ]
}
