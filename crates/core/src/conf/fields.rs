//! The fields of a SparkApplication that become Spark configuration: one table, read in both directions.
//!
//! [`super::settings`] writes the configuration row by row, and every setting remembers the field it came from;
//! [`super::Settings::path`] finds the field that caused a configuration error. If two rows write the same key, the later
//! one wins.

use std::collections::BTreeMap;
use std::fmt::Display;

use firesteel_api::names;
use firesteel_api::pod_spec::SparkPodSpec;
use firesteel_api::spark_application::{Dependencies, DynamicAllocation};
use firesteel_api::validate::LOCAL_DIR_PREFIX;
use firesteel_spark::args::Opt;
use firesteel_spark::names::{env, key, label};
use firesteel_spark::version::Line;
use k8s_openapi::api::core::v1::{Volume, VolumeMount};

use super::{Extras, Subject};
use crate::overlay::SPARK_CONF_DIR;

/// An application, as rows read it.
#[derive(Clone, Copy)]
pub(super) struct Manifest<'a> {
    pub(super) app: &'a Subject<'a>,
    pub(super) extras: &'a Extras<'a>,
}

/// One role of an application, as rows read it.
#[derive(Clone, Copy)]
pub(super) struct PodManifest<'a> {
    pub(super) manifest: Manifest<'a>,
    pub(super) pod: &'a SparkPodSpec,
    /// The name of the container that Spark runs in.
    pub(super) container: &'a str,
}

/// What a field is to `spark-submit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    /// A configuration key; one that ends in a dot is the prefix of a family.
    Key(&'static str),
    /// An option without a key.
    Option(Opt),
    /// The application's file.
    Application,
}

/// A field of the application.
pub(super) struct Field {
    /// Its path in a manifest.
    pub(super) path: &'static str,
    pub(super) target: Target,
    pub(super) parts: fn(&Manifest<'_>) -> Vec<Part>,
}

/// A field that driver and executors share.
pub(super) struct PodField {
    /// Its path in a manifest; `ROLE` is `driver` or `executor`.
    pub(super) path: &'static str,
    /// The driver's key and the executors'.
    pub(super) keys: [&'static str; 2],
    pub(super) parts: fn(&PodManifest<'_>) -> Vec<Part>,
}

/// One value of a field.
pub(super) struct Part {
    /// What follows the field's path: `[team]`, `[0].mountPath`, nothing.
    pub(super) place: String,
    /// What follows the field's key.
    pub(super) key: String,
    pub(super) value: String,
}

fn one(value: Option<impl Display>) -> Vec<Part> {
    let part = |value: String| Part { place: String::new(), key: String::new(), value };
    value.map(|value| part(value.to_string())).into_iter().collect()
}

fn each<'a>(entries: impl IntoIterator<Item = (&'a String, &'a String)>) -> Vec<Part> {
    let part = |(name, value): (&String, &String)| Part {
        place: format!("[{name}]"),
        key: name.clone(),
        value: value.clone(),
    };
    entries.into_iter().map(part).collect()
}

fn joined(list: &[String]) -> Vec<Part> {
    one(Some(list.join(",")).filter(|text| !text.is_empty()))
}

fn deps(manifest: &Manifest<'_>, list: fn(&Dependencies) -> &Vec<String>) -> Vec<Part> {
    manifest.app.spec.deps.as_ref().map(|deps| joined(list(deps))).unwrap_or_default()
}

fn dynamic<T: Display>(manifest: &Manifest<'_>, value: fn(&DynamicAllocation) -> Option<T>) -> Vec<Part> {
    one(manifest.app.spec.dynamic_allocation.as_ref().filter(|dynamic| dynamic.enabled).and_then(value))
}

/// Fields of the application as a whole, and those that only one role has.
pub(super) const FIELDS: &[Field] = &[
    // What `sparkConf` can override.
    Field {
        path: "metadata.name",
        target: Target::Key(key::DRIVER_POD_NAME),
        parts: |m| one(Some(format!("{}-driver", m.app.name))),
    },
    Field { path: "spec.sparkConf", target: Target::Key(""), parts: |m| each(&m.app.spec.spark_conf) },
    Field {
        path: "spec.hadoopConf",
        target: Target::Key(key::HADOOP_PREFIX),
        parts: |m| each(&m.app.spec.hadoop_conf),
    },
    // What it cannot.
    Field { path: "metadata.name", target: Target::Key(key::APP_NAME), parts: |m| one(Some(m.app.name)) },
    Field { path: "metadata.namespace", target: Target::Key(key::NAMESPACE), parts: |m| one(Some(m.app.namespace)) },
    Field {
        path: "spec.mainApplicationFile",
        target: Target::Application,
        parts: |m| one(m.app.spec.main_application_file.as_ref()),
    },
    Field {
        path: "spec.mainClass",
        target: Target::Option(Opt::Class),
        parts: |m| one(m.app.spec.main_class.as_ref()),
    },
    Field {
        path: "spec.proxyUser",
        target: Target::Option(Opt::ProxyUser),
        parts: |m| one(m.app.spec.proxy_user.as_ref()),
    },
    Field { path: "spec.deps.jars", target: Target::Key(key::JARS), parts: |m| deps(m, |d| &d.jars) },
    Field { path: "spec.deps.files", target: Target::Key(key::FILES), parts: |m| deps(m, |d| &d.files) },
    Field { path: "spec.deps.pyFiles", target: Target::Key(key::PY_FILES), parts: |m| deps(m, |d| &d.py_files) },
    Field { path: "spec.deps.archives", target: Target::Key(key::ARCHIVES), parts: |m| deps(m, |d| &d.archives) },
    Field { path: "spec.deps.packages", target: Target::Key(key::PACKAGES), parts: |m| deps(m, |d| &d.packages) },
    Field {
        path: "spec.deps.excludePackages",
        target: Target::Key(key::EXCLUDE_PACKAGES),
        parts: |m| deps(m, |d| &d.exclude_packages),
    },
    Field {
        path: "spec.deps.repositories",
        target: Target::Key(key::REPOSITORIES),
        parts: |m| deps(m, |d| &d.repositories),
    },
    Field { path: "spec.image", target: Target::Key(key::IMAGE), parts: |m| one(m.app.spec.image.as_ref()) },
    Field {
        path: "spec.imagePullPolicy",
        target: Target::Key(key::IMAGE_PULL_POLICY),
        parts: |m| one(m.app.spec.image_pull_policy.as_ref()),
    },
    Field {
        path: "spec.imagePullSecrets",
        target: Target::Key(key::IMAGE_PULL_SECRETS),
        parts: |m| joined(&m.app.spec.image_pull_secrets),
    },
    Field {
        path: "spec.pythonVersion",
        target: Target::Key(key::PYTHON_VERSION),
        parts: |m| one(m.app.spec.python_version.as_ref()),
    },
    Field {
        path: "spec.memoryOverheadFactor",
        target: Target::Key(key::MEMORY_OVERHEAD_FACTOR),
        parts: |m| one(m.app.spec.memory_overhead_factor.as_ref()),
    },
    Field {
        path: "spec.nodeSelector",
        target: Target::Key(key::NODE_SELECTOR_PREFIX),
        parts: |m| each(&m.app.spec.node_selector),
    },
    Field {
        path: "spec.dynamicAllocation.enabled",
        target: Target::Key(key::DYNAMIC_ALLOCATION),
        parts: |m| dynamic(m, |d| Some(d.enabled)),
    },
    Field {
        path: "spec.dynamicAllocation.initialExecutors",
        target: Target::Key(key::DYNAMIC_INITIAL),
        parts: |m| dynamic(m, |d| d.initial_executors),
    },
    Field {
        path: "spec.dynamicAllocation.minExecutors",
        target: Target::Key(key::DYNAMIC_MINIMUM),
        parts: |m| dynamic(m, |d| d.min_executors),
    },
    Field {
        path: "spec.dynamicAllocation.maxExecutors",
        target: Target::Key(key::DYNAMIC_MAXIMUM),
        parts: |m| dynamic(m, |d| d.max_executors),
    },
    Field {
        path: "spec.dynamicAllocation.shuffleTrackingEnabled",
        target: Target::Key(key::DYNAMIC_SHUFFLE_TRACKING),
        parts: |m| dynamic(m, |d| Some(d.shuffle_tracking_enabled.unwrap_or(true))),
    },
    Field {
        path: "spec.dynamicAllocation.shuffleTrackingTimeout",
        target: Target::Key(key::DYNAMIC_SHUFFLE_TRACKING_TIMEOUT),
        parts: |m| dynamic(m, |d| d.shuffle_tracking_timeout),
    },
    Field {
        path: "spec.driver.podName",
        target: Target::Key(key::DRIVER_POD_NAME),
        parts: |m| one(m.app.spec.driver.pod_name.as_ref()),
    },
    Field {
        path: "spec.driver.coreRequest",
        target: Target::Key(key::DRIVER_REQUEST_CORES),
        parts: |m| one(m.app.spec.driver.core_request.as_ref()),
    },
    Field {
        path: "spec.driver.javaOptions",
        target: Target::Key(key::DRIVER_JAVA_OPTIONS),
        parts: |m| one(m.app.spec.driver.java_options.as_ref()),
    },
    Field {
        path: "spec.driver.kubernetesMaster",
        target: Target::Key(key::DRIVER_MASTER),
        parts: |m| one(m.app.spec.driver.kubernetes_master.as_ref()),
    },
    Field {
        path: "spec.driver.serviceLabels",
        target: Target::Key(key::DRIVER_SERVICE_LABEL_PREFIX),
        parts: |m| each(&m.app.spec.driver.service_labels),
    },
    Field {
        path: "spec.driver.serviceAnnotations",
        target: Target::Key(key::DRIVER_SERVICE_ANNOTATION_PREFIX),
        parts: |m| each(&m.app.spec.driver.service_annotations),
    },
    Field {
        path: "spec.executor.instances",
        target: Target::Key(key::EXECUTOR_INSTANCES),
        parts: |m| one(m.app.spec.executor.instances),
    },
    Field {
        path: "spec.executor.coreRequest",
        target: Target::Key(key::EXECUTOR_REQUEST_CORES),
        parts: |m| one(m.app.spec.executor.core_request.as_ref()),
    },
    Field {
        path: "spec.executor.javaOptions",
        target: Target::Key(key::EXECUTOR_JAVA_OPTIONS),
        parts: |m| one(m.app.spec.executor.java_options.as_ref()),
    },
    Field {
        path: "spec.executor.deleteOnTermination",
        target: Target::Key(key::EXECUTOR_DELETE),
        parts: |m| one(m.app.spec.executor.delete_on_termination),
    },
    Field {
        path: "spec.executor.terminationGracePeriodSeconds",
        target: Target::Key(key::EXECUTOR_GRACE_PERIOD),
        // From 4.1 on, Spark overwrites the template's value.
        parts: |m| {
            let seconds = m.app.spec.executor.pod.termination_grace_period_seconds;
            one(seconds.filter(|_| m.extras.version.line() >= Line::V4_1).map(|seconds| format!("{seconds}s")))
        },
    },
];

/// Fields of both roles.
pub(super) const POD_FIELDS: &[PodField] = &[
    PodField { path: "spec.ROLE.cores", keys: [key::DRIVER_CORES, key::EXECUTOR_CORES], parts: |p| one(p.pod.cores) },
    PodField {
        path: "spec.ROLE.coreLimit",
        keys: [key::DRIVER_LIMIT_CORES, key::EXECUTOR_LIMIT_CORES],
        parts: |p| one(p.pod.core_limit.as_ref()),
    },
    PodField {
        path: "spec.ROLE.memory",
        keys: [key::DRIVER_MEMORY, key::EXECUTOR_MEMORY],
        parts: |p| one(p.pod.memory.as_ref()),
    },
    PodField {
        path: "spec.ROLE.memoryOverhead",
        keys: [key::DRIVER_MEMORY_OVERHEAD, key::EXECUTOR_MEMORY_OVERHEAD],
        parts: |p| one(p.pod.memory_overhead.as_ref()),
    },
    PodField {
        path: "spec.image",
        keys: [key::DRIVER_IMAGE, key::EXECUTOR_IMAGE],
        parts: |p| one(p.manifest.app.spec.image.as_ref()),
    },
    PodField {
        path: "spec.ROLE.image",
        keys: [key::DRIVER_IMAGE, key::EXECUTOR_IMAGE],
        parts: |p| one(p.pod.image.as_ref()),
    },
    PodField {
        path: "spec.ROLE.serviceAccount",
        keys: [key::DRIVER_SERVICE_ACCOUNT, key::EXECUTOR_SERVICE_ACCOUNT],
        parts: |p| one(p.pod.service_account.as_ref()),
    },
    PodField { path: "metadata.labels", keys: LABELS, parts: |p| each(inherited_labels(p.manifest.app.labels)) },
    PodField { path: "spec.ROLE.labels", keys: LABELS, parts: |p| each(&p.pod.labels) },
    PodField {
        path: "spec.ROLE.annotations",
        keys: [key::DRIVER_ANNOTATION_PREFIX, key::EXECUTOR_ANNOTATION_PREFIX],
        parts: |p| each(&p.pod.annotations),
    },
    PodField {
        path: "spec.ROLE.volumeMounts",
        keys: VOLUMES,
        parts: |p| scratch(p).flat_map(|scratch| mount_parts(&scratch)).collect(),
    },
    PodField { path: "spec.volumes", keys: VOLUMES, parts: |p| scratch(p).flat_map(volume_parts).collect() },
    PodField {
        path: "spec.ROLE.envSecretKeyRefs",
        keys: [key::DRIVER_SECRET_KEY_REF_PREFIX, key::EXECUTOR_SECRET_KEY_REF_PREFIX],
        parts: |p| {
            let references = p.pod.env_secret_key_refs.iter();
            let references: BTreeMap<_, _> =
                references.map(|(name, to)| (name.clone(), format!("{}:{}", to.name, to.key))).collect();
            each(&references)
        },
    },
    PodField { path: "spec.ROLE.envVars", keys: ENV, parts: |p| each(&p.pod.env_vars) },
    PodField {
        path: "spec.ROLE.secrets",
        keys: [key::DRIVER_SECRETS_PREFIX, key::EXECUTOR_SECRETS_PREFIX],
        parts: |p| {
            let part = |(i, secret): (usize, &firesteel_api::pod_spec::SecretInfo)| Part {
                place: format!("[{i}]"),
                key: secret.name.clone(),
                value: secret.path.clone(),
            };
            p.pod.secrets.iter().enumerate().map(part).collect()
        },
    },
    PodField { path: "spec.ROLE.secrets", keys: ENV, parts: |p| well_known_secrets(p.pod) },
    PodField {
        path: "spec.ROLE.template",
        keys: [key::DRIVER_TEMPLATE_CONTAINER, key::EXECUTOR_TEMPLATE_CONTAINER],
        parts: |p| one(Some(p.container)),
    },
];

/// Fields that come after all others, `sparkConf` included.
pub(super) const LAST_FIELDS: &[Field] = &[
    Field {
        path: "spec.sparkConfigMap",
        target: Target::Key(key::EXECUTOR_ENV_PREFIX),
        // Spark appends its own SPARK_CONF_DIR after the template's; only spark.executorEnv comes later.
        parts: |m| {
            let part = |_: &String| Part {
                place: String::new(),
                key: env::CONF_DIR.to_owned(),
                value: SPARK_CONF_DIR.to_owned(),
            };
            m.app.spec.spark_config_map.iter().map(part).collect()
        },
    },
    Field {
        path: "spec.monitoring",
        target: Target::Key(""),
        parts: |m| {
            let part = |(key, value): (&String, &String)| Part {
                place: String::new(),
                key: key.clone(),
                value: value.clone(),
            };
            m.extras.monitoring.iter().flat_map(|monitoring| &monitoring.conf).map(part).collect()
        },
    },
];

const ENV: [&str; 2] = [key::DRIVER_ENV_PREFIX, key::EXECUTOR_ENV_PREFIX];
const LABELS: [&str; 2] = [key::DRIVER_LABEL_PREFIX, key::EXECUTOR_LABEL_PREFIX];
const VOLUMES: [&str; 2] = [key::DRIVER_VOLUMES_PREFIX, key::EXECUTOR_VOLUMES_PREFIX];

/// Labels that pods inherit from the application: all but Kueue's and Spark's own.
fn inherited_labels(labels: &BTreeMap<String, String>) -> impl Iterator<Item = (&String, &String)> {
    let is_sparks = |name: &str| [label::VERSION, label::APP_ID, label::APP_NAME, label::ROLE].contains(&name);
    labels.iter().filter(move |(name, _)| !name.starts_with(names::KUEUE_PREFIX) && !is_sparks(name))
}

/// The variables by which programs find the well-known kinds of secrets.
fn well_known_secrets(pod: &SparkPodSpec) -> Vec<Part> {
    let variables = pod.secrets.iter().enumerate().filter_map(|(i, secret)| {
        let (name, file) = match secret.secret_type.as_str() {
            "GCPServiceAccount" => ("GOOGLE_APPLICATION_CREDENTIALS", "key.json"),
            "HadoopDelegationToken" => (env::HADOOP_TOKEN_FILE, "hadoop.token"),
            _ => return None,
        };
        let value = format!("{}/{file}", secret.path.trim_end_matches('/'));
        Some(Part { place: format!("[{i}]"), key: name.to_owned(), value })
    });
    variables.collect()
}

/// A volume that Spark uses as scratch space, and its mount.
struct Scratch<'a> {
    volume_index: usize,
    volume: &'a Volume,
    mount_index: usize,
    mount: &'a VolumeMount,
    source: ScratchSource,
}

/// Spark's view of such a volume: its kind, its options, and whether it is read-only.
struct ScratchSource {
    kind: &'static str,
    options: Vec<(&'static str, String)>,
    read_only: bool,
}

fn scratch<'a>(pod: &PodManifest<'a>) -> impl Iterator<Item = Scratch<'a>> {
    let volumes = &pod.manifest.app.spec.volumes;
    let mounts = pod.pod.volume_mounts.iter().enumerate().filter(|(_, m)| m.name.starts_with(LOCAL_DIR_PREFIX));
    mounts.filter_map(move |(mount_index, mount)| {
        let (volume_index, volume) = volumes.iter().enumerate().find(|(_, v)| v.name == mount.name)?;
        Some(Scratch { volume_index, volume, mount_index, mount, source: scratch_source(volume)? })
    })
}

fn scratch_source(volume: &Volume) -> Option<ScratchSource> {
    let mut options = Vec::new();
    let mut read_only = None;
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
        read_only = source.read_only;
        "nfs"
    } else if let Some(source) = &volume.persistent_volume_claim {
        options.push(("claimName", source.claim_name.clone()));
        read_only = source.read_only;
        "persistentVolumeClaim"
    } else {
        return None;
    };
    Some(ScratchSource { kind, options, read_only: read_only.unwrap_or_default() })
}

fn mount_parts(scratch: &Scratch<'_>) -> Vec<Part> {
    let mount = scratch.mount;
    let values = [
        ("mountPath", "path", Some(mount.mount_path.clone())),
        ("subPath", "subPath", mount.sub_path.clone()),
        ("subPathExpr", "subPathExpr", mount.sub_path_expr.clone()),
        ("readOnly", "readOnly", mount.read_only.map(|read_only| read_only.to_string())),
    ];
    let part = |(field, name, value): (&str, &str, Option<String>)| {
        Some(Part {
            place: format!("[{}].{field}", scratch.mount_index),
            key: format!("{}.{}.mount.{name}", scratch.source.kind, scratch.volume.name),
            value: value?,
        })
    };
    values.into_iter().filter_map(part).collect()
}

fn volume_parts(scratch: Scratch<'_>) -> Vec<Part> {
    let ScratchSource { kind, options, read_only } = scratch.source;
    let part = |field: &str, key: String, value: String| Part {
        place: format!("[{}].{kind}.{field}", scratch.volume_index),
        key: format!("{kind}.{}.{key}", scratch.volume.name),
        value,
    };
    let options = options.into_iter().map(|(name, value)| part(name, format!("options.{name}"), value));
    // Spark has only one key for it, that of the mount.
    let read_only = read_only.then(|| part("readOnly", "mount.readOnly".to_owned(), "true".to_owned()));
    options.chain(read_only).collect()
}
