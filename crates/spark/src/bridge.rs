//! The class that Spark's driver loads so that the operator allocates its executors, and the driver's setup for it.
//!
//! The jar is built from `bridge/` (`bridge/build`), checked in, and mounted into the driver from a ConfigMap. Most settings
//! here disable API calls that the driver has no permission for.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, ConfigMapVolumeSource, Container, EnvVar, Pod, Volume, VolumeMount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::driver::DriverPlan;
use crate::names::{env, key};
use crate::pod::Object;
use crate::submission::SparkConf;

static JAR: &[u8] = include_bytes!("../bridge/firesteel-bridge.jar");
const CLASS: &str = "dev.firesteel.bridge.FiresteelAllocator";
const FILE: &str = "firesteel-bridge.jar";
/// A separate directory: nothing can be mounted below a read-only mount, and `/opt/firesteel` has other contents.
const DIRECTORY: &str = "/opt/firesteel/bridge";
const VOLUME: &str = "firesteel-bridge";
const CLASS_PATH: &str = "spark.driver.extraClassPath";

/// Settings for a driver without pod permissions.
const SWITCHES: &[(&str, &str)] = &[
    (key::ALLOCATOR, CLASS),
    (key::EXECUTOR_DISABLE_CONFIG_MAP, "true"),
    ("spark.kubernetes.executor.enableApiWatcher", "false"),
    ("spark.kubernetes.executor.enableApiPolling", "false"),
    ("spark.kubernetes.driver.service.deleteOnTermination", "false"),
    (key::DRIVER_OWNS_CLAIMS, "false"),
    // Spark only then calls the allocator's stop method. The grant decides whether pods are kept.
    (key::EXECUTOR_DELETE, "true"),
];

/// Configures a driver for executors that it does not allocate itself.
pub fn configure(conf: &mut SparkConf) {
    for (key, value) in SWITCHES {
        conf.insert((*key).to_owned(), (*value).to_owned());
    }
    let jar = format!("{DIRECTORY}/{FILE}");
    let path = match conf.get(CLASS_PATH).filter(|path| !path.is_empty()) {
        Some(path) => format!("{jar}:{path}"),
        None => jar,
    };
    conf.insert(CLASS_PATH.to_owned(), path);
}

/// Mounts the jar into a planned driver.
pub fn mount(plan: &mut DriverPlan, name: &str) {
    let runs_spark = |container: &Container| {
        container.env.iter().flatten().any(|variable: &EnvVar| variable.name == env::APPLICATION_ID)
    };
    mount_in(&mut plan.pod, name, runs_spark);
    plan.objects.push(Object::ConfigMap(ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(plan.namespace.clone()),
            ..ObjectMeta::default()
        },
        immutable: Some(true),
        binary_data: Some([(FILE.to_owned(), ByteString(JAR.to_vec()))].into()),
        ..ConfigMap::default()
    }));
}

/// Makes an executor wait, once its JVM has started, until the driver lets it in. The jar is in the ConfigMap of that name.
pub fn hold(pod: &mut Pod, container: &str, config_map: &str) {
    mount_in(pod, config_map, |each| each.name == container);
    let containers = pod.spec.iter_mut().flat_map(|spec| &mut spec.containers);
    for spark in containers.filter(|each| each.name == container) {
        let variables = spark.env.get_or_insert_default();
        let number = |variable: &EnvVar| variable.name.strip_prefix(env::JAVA_OPT_PREFIX)?.parse::<u32>().ok();
        let next = variables.iter().filter_map(number).max().map_or(0, |last| last.saturating_add(1));
        variables.push(EnvVar {
            name: format!("{}{next}", env::JAVA_OPT_PREFIX),
            value: Some(format!("-javaagent:{DIRECTORY}/{FILE}")),
            ..EnvVar::default()
        });
    }
}

/// Mounts the ConfigMap with the jar into some containers of a pod.
fn mount_in(pod: &mut Pod, config_map: &str, into: impl Fn(&Container) -> bool) {
    let spec = pod.spec.get_or_insert_default();
    spec.volumes.get_or_insert_default().push(Volume {
        name: VOLUME.to_owned(),
        config_map: Some(ConfigMapVolumeSource { name: config_map.to_owned(), ..ConfigMapVolumeSource::default() }),
        ..Volume::default()
    });
    for container in spec.containers.iter_mut().filter(|container| into(container)) {
        container.volume_mounts.get_or_insert_default().push(VolumeMount {
            name: VOLUME.to_owned(),
            mount_path: DIRECTORY.to_owned(),
            read_only: Some(true),
            ..VolumeMount::default()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_executor_gets_the_agent_as_its_last_java_option() {
        let mut pod: Pod = serde_json::from_value(serde_json::json!({"spec": {"containers": [
            {"name": "sidecar"},
            {"name": "spark", "env": [{"name": "SPARK_JAVA_OPT_9", "value": "-Da"}, {"name": "SPARK_JAVA_OPT_10", "value": "-Db"}]},
        ]}}))
        .unwrap();
        hold(&mut pod, "spark", "spark-bridge-1");
        let pod = serde_json::to_value(&pod).unwrap();
        let spark = &pod["spec"]["containers"][1];
        assert_eq!(spark["env"][2]["name"], "SPARK_JAVA_OPT_11");
        assert_eq!(spark["env"][2]["value"], "-javaagent:/opt/firesteel/bridge/firesteel-bridge.jar");
        assert_eq!(spark["volumeMounts"][0]["mountPath"], "/opt/firesteel/bridge");
        assert_eq!(pod["spec"]["volumes"][0]["configMap"]["name"], "spark-bridge-1");
        assert!(pod["spec"]["containers"][0].get("volumeMounts").is_none(), "{pod}");
    }

    #[test]
    fn the_jar_comes_first_on_the_class_path() {
        let mut conf = SparkConf::from([(CLASS_PATH.to_owned(), "/mine.jar".to_owned())]);
        configure(&mut conf);
        assert_eq!(conf[CLASS_PATH], "/opt/firesteel/bridge/firesteel-bridge.jar:/mine.jar");
        assert_eq!(conf[key::ALLOCATOR], CLASS);
        let mut conf = SparkConf::new();
        configure(&mut conf);
        assert_eq!(conf[CLASS_PATH], "/opt/firesteel/bridge/firesteel-bridge.jar");
    }

    #[test]
    fn the_jar_fits_a_config_map() {
        assert!(JAR.len() < 200 * 1024 && JAR.starts_with(b"PK"));
    }
}
