//! The class that Spark's driver loads so that the operator allocates its executors, and the driver's setup for it.
//!
//! The jar is built from `bridge/` (`bridge/build`), checked in, and mounted into the driver from a ConfigMap. Most settings
//! here disable API calls that the driver has no permission for.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, ConfigMapVolumeSource, Volume, VolumeMount};
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
    let spec = plan.pod.spec.get_or_insert_default();
    spec.volumes.get_or_insert_default().push(Volume {
        name: VOLUME.to_owned(),
        config_map: Some(ConfigMapVolumeSource { name: name.to_owned(), ..ConfigMapVolumeSource::default() }),
        ..Volume::default()
    });
    let runs_spark = |variables: &Vec<_>| {
        variables.iter().any(|v: &k8s_openapi::api::core::v1::EnvVar| v.name == env::APPLICATION_ID)
    };
    for container in spec.containers.iter_mut().filter(|c| c.env.as_ref().is_some_and(runs_spark)) {
        container.volume_mounts.get_or_insert_default().push(VolumeMount {
            name: VOLUME.to_owned(),
            mount_path: DIRECTORY.to_owned(),
            read_only: Some(true),
            ..VolumeMount::default()
        });
    }
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

#[cfg(test)]
mod tests {
    use super::*;

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
