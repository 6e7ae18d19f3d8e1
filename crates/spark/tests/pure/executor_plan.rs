//! What a plan of executors decides beyond Spark's own pods: secrets, strategies, refusals.

use std::collections::BTreeMap;

use firesteel_spark::context::{Ids, NoFiles, PlanContext, Templates};
use firesteel_spark::driver::{self, DriverPlan};
use firesteel_spark::executor::{self, ExecutorPlan, Strategy};
use firesteel_spark::{MainResource, SparkConf, Submission};

fn conf(settings: &[(&str, &str)]) -> SparkConf {
    let image = ("spark.kubernetes.container.image", "apache/spark:4.1.4");
    settings.iter().chain([&image]).map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

/// Driver and executors of an application that consists only of its configuration.
pub(crate) fn plan_conf(
    conf: SparkConf,
    version: &str,
    strategy: Strategy,
) -> Result<(DriverPlan, ExecutorPlan), String> {
    let submission = Submission {
        conf,
        version: version.parse().unwrap(),
        main: MainResource::None,
        main_class: "Main".to_owned(),
        arguments: vec![],
        proxy_user: None,
    };
    let ids = Ids::from_bytes(&[1; 64], 1);
    let context = PlanContext {
        ids,
        user: "me".to_owned(),
        env: BTreeMap::new(),
        files: &NoFiles,
        templates: Templates::default(),
    };
    let driver = driver::plan(&submission, &context).map_err(|e| e.to_string())?;
    let executors = executor::plan(&submission, &context, &driver, strategy).map_err(|e| e.to_string())?;
    Ok((driver, executors))
}

fn plan(settings: &[(&str, &str)], strategy: Strategy) -> Result<ExecutorPlan, String> {
    plan_conf(conf(settings), "4.1.4", strategy).map(|(_, executors)| executors)
}

fn refusal(settings: &[(&str, &str)], strategy: Strategy) -> String {
    let sentence = plan(settings, strategy).expect_err("no plan");
    assert!(!sentence.contains('\n'), "{sentence}");
    sentence
}

#[test]
fn the_shared_secret_is_a_file_of_the_driver_and_a_variable_of_executors_and_stands_in_no_pod() {
    let mut conf = conf(&[("spark.authenticate", "true"), ("spark.authenticate.secret", "hush-hush")]);
    let secret = executor::authenticate(&mut conf, "spark-auth-1", "default", "unused").unwrap().unwrap();
    let data = secret.data.unwrap();
    assert_eq!((&data["secret"].0[..], &data["encoded"].0[..]), (&b"hush-hush"[..], &b"aHVzaC1odXNo"[..]));
    let (driver, executors) = plan_conf(conf, "4.1.4", Strategy::Pods).unwrap();
    let spec = driver.pod.spec.as_ref().unwrap();
    let volume = spec.volumes.as_ref().unwrap().iter().find(|v| v.name == "spark-auth-1-volume").unwrap();
    assert_eq!(volume.secret.as_ref().unwrap().secret_name.as_deref(), Some("spark-auth-1"));
    let mounts = spec.containers[0].volume_mounts.as_ref().unwrap();
    assert!(mounts.iter().any(|m| m.name == volume.name && m.mount_path == "/mnt/secrets/spark-auth"));
    let pod = executor::executor(&executors.template, &executors.container, 1, &executors.profile, "p");
    let env = pod.spec.as_ref().unwrap().containers[0].env.clone().unwrap();
    let variable = env.into_iter().find(|v| v.name == "_SPARK_AUTH_SECRET").unwrap();
    let reference = variable.value_from.unwrap().secret_key_ref.unwrap();
    assert_eq!((reference.name.as_str(), reference.key.as_str(), variable.value), ("spark-auth-1", "encoded", None));
    for pod in [&driver.pod, &executors.template, &pod] {
        let text = serde_json::to_string(pod).unwrap();
        assert!(!text.contains("hush-hush") && !text.contains("aHVzaC1odXNo"), "{text}");
    }
    assert_eq!(driver.properties["spark.authenticate.secret.file"], "/mnt/secrets/spark-auth/secret");
    assert!(!driver.properties.values().any(|value| value.contains("hush-hush")));
}

#[test]
fn a_secret_among_the_executors_variables_is_left_out() {
    let executors = plan(&[("spark.executorEnv._SPARK_AUTH_SECRET", "hush-hush")], Strategy::Pods).unwrap();
    assert!(!serde_json::to_string(&executors.template).unwrap().contains("hush-hush"));
    assert!(executors.warnings[0].contains("_SPARK_AUTH_SECRET is ignored"));
}

#[test]
fn containers_start_again_in_sets_only() {
    let policy = |strategy| plan(&[], strategy).unwrap().template.spec.unwrap().restart_policy.unwrap();
    assert_eq!(policy(Strategy::Pods), "Never");
    assert_eq!(policy(Strategy::ReplicaSet), "Always");
    assert_eq!(policy(Strategy::StatefulSet), "Always");
}

#[test]
fn the_allocators_name_is_the_strategy() {
    let named = |name| Strategy::of(&conf(&[("spark.kubernetes.allocation.pods.allocator", name)]));
    assert_eq!(named("firesteel"), Some(Strategy::Pods));
    assert_eq!(named("replicaset"), Some(Strategy::ReplicaSet));
    assert_eq!(named("firesteel-replicaset"), Some(Strategy::ReplicaSet));
    assert_eq!(named("firesteel-statefulset"), Some(Strategy::StatefulSet));
    for name in ["direct", "statefulset", "deployment", "com.example.Allocator"] {
        assert_eq!(named(name), None, "{name} is Spark's");
    }
    assert_eq!(Strategy::of(&SparkConf::new()), None);
}

const CLAIM: [(&str, &str); 4] = [
    ("spark.kubernetes.executor.volumes.persistentVolumeClaim.d.mount.path", "/d"),
    ("spark.kubernetes.executor.volumes.persistentVolumeClaim.d.options.claimName", "OnDemand"),
    ("spark.kubernetes.executor.volumes.persistentVolumeClaim.d.options.storageClass", "fast"),
    ("spark.kubernetes.executor.volumes.persistentVolumeClaim.d.options.sizeLimit", "1Gi"),
];

#[test]
fn claims_are_reused_unless_the_settings_say_otherwise() {
    let reuse = |more: &[(&str, &str)]| plan(&[&CLAIM, more].concat(), Strategy::Pods).unwrap().reuse_claims;
    assert!(reuse(&[]));
    assert!(!reuse(&[("spark.kubernetes.driver.reusePersistentVolumeClaim", "false")]));
    assert!(!reuse(&[("spark.kubernetes.driver.ownPersistentVolumeClaim", "false")]));
    assert!(!plan(&[], Strategy::Pods).unwrap().reuse_claims, "there are none");
}

#[test]
fn what_cannot_be_honoured_is_refused_in_a_sentence() {
    let steps = [("spark.kubernetes.executor.pod.featureSteps", "com.example.Step")];
    assert!(refusal(&steps, Strategy::Pods).contains("spark.kubernetes.executor.podTemplateFile"));
    let resize = [("spark.plugins", "a.B,org.apache.spark.scheduler.cluster.k8s.ExecutorResizePlugin")];
    assert!(refusal(&resize, Strategy::Pods).contains("no pod permissions"));
    assert!(refusal(&CLAIM, Strategy::ReplicaSet).contains("ReplicaSet"));
    assert!(plan(&CLAIM, Strategy::StatefulSet).is_ok());
    let long = "a".repeat(238);
    let prefix = refusal(&[("spark.kubernetes.executor.podNamePrefix", &long)], Strategy::Pods);
    assert!(prefix.contains("at most 237"), "{prefix}");
    assert!(plan(&[("spark.kubernetes.executor.podNamePrefix", &long[1..])], Strategy::Pods).is_ok());
    for (settings, culprit) in [
        ([("spark.kubernetes.executor.podNamePrefix", "Not_DNS")], "spark.kubernetes.executor.podNamePrefix=Not_DNS"),
        ([("spark.blockManager.port", "80")], "spark.blockManager.port=80"),
        ([("spark.executor.cores", "0")], "spark.executor.cores=0"),
        ([("spark.executor.memory", "lots")], "spark.executor.memory"),
        ([("spark.memory.offHeap.enabled", "true")], "spark.memory.offHeap.size=0"),
        ([("spark.executor.resource.gpu.amount", "1")], "spark.executor.resource.gpu.vendor is not set"),
        ([("spark.kubernetes.executor.limit.cores", "500m")], "spark.executor.cores=1"),
        ([("spark.kubernetes.executor.label.spark-exec-id", "7")], "spark.kubernetes.executor.label.spark-exec-id=7"),
    ] {
        let sentence = refusal(&settings, Strategy::Pods);
        assert!(sentence.starts_with(culprit), "{sentence}");
    }
}

#[test]
fn remarks_tell_what_has_no_effect() {
    let remarks = plan(
        &[
            ("spark.kubernetes.executor.decommissionLabel", "leaving"),
            ("spark.kubernetes.executor.label.mine", "xEXECIDx"),
            ("spark.executorEnv.1BAD", "x"),
            ("spark.kubernetes.driver.waitToReusePersistentVolumeClaim", "true"),
        ],
        Strategy::Pods,
    )
    .unwrap()
    .warnings;
    assert_eq!(remarks.len(), 4, "{remarks:?}");
}
