//! For any configuration, planning returns a plan or a one-line error, and never panics.

use std::collections::BTreeMap;

use firesteel_spark::context::{Ids, NoFiles, PlanContext, Templates};
use firesteel_spark::executor::{self, ExecutorPlan};
use firesteel_spark::{MainResource, SparkConf, Submission, driver};
use proptest::prelude::*;

use crate::executor_plan::plan_conf;

/// Keys that steps read, with families filled in.
const KEYS: &[&str] = &[
    "spark.app.name",
    "spark.archives",
    "spark.blockManager.port",
    "spark.connect.grpc.binding.port",
    "spark.driver.blockManager.port",
    "spark.driver.cores",
    "spark.driver.host",
    "spark.driver.memory",
    "spark.driver.memoryOverhead",
    "spark.driver.memoryOverheadFactor",
    "spark.driver.minMemoryOverhead",
    "spark.driver.port",
    "spark.driver.resource.gpu.amount",
    "spark.driver.resource.gpu.vendor",
    "spark.files",
    "spark.jars",
    "spark.kerberos.keytab",
    "spark.kerberos.principal",
    "spark.kubernetes.authenticate.driver.caCertFile",
    "spark.kubernetes.authenticate.driver.oauthToken",
    "spark.kubernetes.authenticate.driver.serviceAccountName",
    "spark.kubernetes.configMap.maxSize",
    "spark.kubernetes.container.image.pullPolicy",
    "spark.kubernetes.container.image.pullSecrets",
    "spark.kubernetes.driver.annotation.a",
    "spark.kubernetes.driver.label.a",
    "spark.kubernetes.driver.label.spark-role",
    "spark.kubernetes.driver.limit.cores",
    "spark.kubernetes.driver.node.selector.a",
    "spark.kubernetes.driver.pod.excludedFeatureSteps",
    "spark.kubernetes.driver.pod.featureSteps",
    "spark.kubernetes.driver.pod.name",
    "spark.kubernetes.driver.podTemplateFile",
    "spark.kubernetes.driver.request.cores",
    "spark.kubernetes.driver.secretKeyRef.A",
    "spark.kubernetes.driver.secrets.s",
    "spark.kubernetes.driver.service.ipFamilies",
    "spark.kubernetes.driver.volumes.emptyDir.v.mount.path",
    "spark.kubernetes.driver.volumes.emptyDir.v.options.sizeLimit",
    "spark.kubernetes.driver.volumes.hostPath.h.mount.path",
    "spark.kubernetes.driver.volumes.hostPath.h.mount.readOnly",
    "spark.kubernetes.driver.volumes.hostPath.h.options.path",
    "spark.kubernetes.driver.volumes.persistentVolumeClaim.p.mount.path",
    "spark.kubernetes.driver.volumes.persistentVolumeClaim.p.options.claimName",
    "spark.kubernetes.driver.volumes.persistentVolumeClaim.p.options.sizeLimit",
    "spark.kubernetes.driver.volumes.persistentVolumeClaim.p.options.storageClass",
    "spark.kubernetes.driver.volumes.x",
    "spark.kubernetes.driverEnv.E",
    "spark.kubernetes.executor.podTemplateFile",
    "spark.kubernetes.file.upload.path",
    "spark.kubernetes.hadoop.configMapName",
    "spark.kubernetes.kerberos.krb5.path",
    "spark.kubernetes.kerberos.tokenSecret.name",
    "spark.kubernetes.local.dirs.tmpfs",
    "spark.kubernetes.memoryOverheadFactor",
    "spark.kubernetes.namespace",
    "spark.kubernetes.scheduler.name",
    "spark.local.dir",
    "spark.submit.pyFiles",
    "spark.ui.port",
];

/// Keys that the executors' steps read, with families filled in.
const EXECUTOR_KEYS: &[&str] = &[
    "spark.app.name",
    "spark.authenticate",
    "spark.blockManager.port",
    "spark.decommission.enabled",
    "spark.dynamicAllocation.enabled",
    "spark.dynamicAllocation.initialExecutors",
    "spark.dynamicAllocation.maxExecutors",
    "spark.dynamicAllocation.minExecutors",
    "spark.executor.cores",
    "spark.executor.extraClassPath",
    "spark.executor.failuresValidityInterval",
    "spark.executor.instances",
    "spark.executor.maxNumFailures",
    "spark.executor.memory",
    "spark.executor.memoryOverhead",
    "spark.executor.memoryOverheadFactor",
    "spark.executor.minMemoryOverhead",
    "spark.executor.pyspark.memory",
    "spark.executor.resource.gpu.amount",
    "spark.executor.resource.gpu.vendor",
    "spark.executorEnv.E",
    "spark.executorEnv.SPARK_EXECUTOR_DIRS",
    "spark.executorEnv._SPARK_AUTH_SECRET",
    "spark.kubernetes.allocation.executor.timeout",
    "spark.kubernetes.executor.annotation.a",
    "spark.kubernetes.executor.deleteOnTermination",
    "spark.kubernetes.executor.disableConfigMap",
    "spark.kubernetes.executor.label.a",
    "spark.kubernetes.executor.label.spark-exec-id",
    "spark.kubernetes.executor.limit.cores",
    "spark.kubernetes.executor.node.selector.a",
    "spark.kubernetes.executor.pod.featureSteps",
    "spark.kubernetes.executor.podNamePrefix",
    "spark.kubernetes.executor.request.cores",
    "spark.kubernetes.executor.secretKeyRef.A",
    "spark.kubernetes.executor.secrets.s",
    "spark.kubernetes.executor.terminationGracePeriodSeconds",
    "spark.kubernetes.executor.volumes.emptyDir.v.mount.path",
    "spark.kubernetes.executor.volumes.persistentVolumeClaim.p.mount.path",
    "spark.kubernetes.executor.volumes.persistentVolumeClaim.p.options.claimName",
    "spark.kubernetes.executor.volumes.persistentVolumeClaim.p.options.sizeLimit",
    "spark.kubernetes.executor.volumes.persistentVolumeClaim.p.options.storageClass",
    "spark.memory.offHeap.enabled",
    "spark.memory.offHeap.size",
    "spark.plugins",
];

fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[0-9]{0,20}[a-zA-Z]{0,2}",
        "-?[0-9]{1,4}(\\.[0-9]{1,3})?",
        Just("true".to_owned()),
        Just(String::new()),
        "[a-z]{1,5}:[a-z]{1,5}",
        "(/[a-z]{1,4}){1,3}(,/[a-z]{1,4}){0,2}",
        "(file|local|s3a|)(:|:/|:///)?[a-z/#%]{0,12}",
        "[A-Za-z0-9{}_.-]{0,300}",
        Just("OnDemand".to_owned()),
    ]
}

fn conf() -> impl Strategy<Value = SparkConf> {
    conf_of(KEYS)
}

fn conf_of(keys: &'static [&'static str]) -> impl Strategy<Value = SparkConf> {
    let known = prop::collection::btree_map(prop::sample::select(keys).prop_map(str::to_owned), value(), 0..12);
    let unknown = prop::collection::btree_map("spark\\.[a-z.]{0,30}", value(), 0..4);
    (known, unknown, prop::bool::ANY).prop_map(|(mut conf, unknown, image)| {
        conf.extend(unknown);
        if image {
            conf.insert("spark.kubernetes.container.image".to_owned(), "apache/spark:4.1.4".to_owned());
        }
        conf
    })
}

fn main_resource() -> impl Strategy<Value = MainResource> {
    prop_oneof![
        value().prop_map(MainResource::Jar),
        value().prop_map(MainResource::Python),
        value().prop_map(MainResource::R),
        Just(MainResource::None),
    ]
}

fn plan(
    conf: SparkConf,
    main: MainResource,
    version: &str,
    env: BTreeMap<String, String>,
) -> Result<driver::DriverPlan, String> {
    let submission = Submission {
        conf,
        version: version.parse().expect("a version of ours"),
        main,
        main_class: "Main".to_owned(),
        arguments: vec![],
        proxy_user: None,
    };
    let context = PlanContext {
        ids: Ids::from_bytes(&[1; 64], 1),
        user: "me".to_owned(),
        env,
        files: &NoFiles,
        templates: Templates::default(),
    };
    driver::plan(&submission, &context).map_err(|e| e.to_string())
}

fn executors(mut conf: SparkConf, version: &str) -> Result<ExecutorPlan, String> {
    conf.insert("spark.kubernetes.container.image".to_owned(), "apache/spark:4.1.4".to_owned());
    plan_conf(conf, version, executor::Strategy::Pods).map(|(_, executors)| executors)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_conf_yields_a_plan_or_a_sentence(
        conf in conf(),
        main in main_resource(),
        version in prop::sample::select(&["3.5.9", "4.0.5", "4.1.4", "4.2.1", "4.3.0"][..]),
        local_dirs in prop::option::of(value()),
    ) {
        let env = local_dirs.map(|d| ("SPARK_LOCAL_DIRS".to_owned(), d)).into_iter().collect();
        match plan(conf.clone(), main.clone(), version, env) {
            Err(sentence) => {
                prop_assert!(sentence.split_whitespace().count() >= 4, "{sentence:?}");
            }
            Ok(plan) => {
                // The driver reads the given value, or what a step replaced it with.
                for key in conf.keys() {
                    prop_assert!(plan.properties.contains_key(key), "{key} is lost");
                }
                let spec = plan.pod.spec.expect("a planned pod has a spec");
                prop_assert_eq!(spec.restart_policy.as_deref(), Some("Never"));
                prop_assert!(plan.objects.iter().all(|o| o.metadata().namespace.as_deref() == Some(plan.namespace.as_str())));
            }
        }
    }

    #[test]
    fn any_conf_yields_executors_or_a_sentence(
        conf in conf_of(EXECUTOR_KEYS),
        version in prop::sample::select(&["3.5.9", "4.0.5", "4.1.4", "4.2.1", "4.3.0"][..]),
    ) {
        match executors(conf, version) {
            Err(sentence) => {
                prop_assert!(sentence.split_whitespace().count() >= 4, "{sentence:?}");
            }
            Ok(plan) => {
                let pod = executor::executor(&plan.template, &plan.container, 2_147_483_647, &plan.profile, &plan.name_prefix);
                prop_assert!(pod.metadata.name.is_some_and(|name| name.len() <= 253 && name.ends_with("-exec-2147483647")));
                let labels = pod.metadata.labels.unwrap_or_default();
                prop_assert_eq!(labels["spark-exec-id"].as_str(), "2147483647");
                let spec = pod.spec.expect("a planned pod has a spec");
                let host = spec.hostname.unwrap_or_default();
                prop_assert!(host.len() <= 63 && host.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-'));
                let env = spec.containers.into_iter().next_back().and_then(|c| c.env).unwrap_or_default();
                prop_assert!(env.iter().all(|v| v.name != "_SPARK_AUTH_SECRET" || v.value_from.is_some()));
                prop_assert!(env.iter().any(|v| v.name == "SPARK_EXECUTOR_ID" && v.value.as_deref() == Some("2147483647")));
                prop_assert!(plan.allocation.initial <= plan.allocation.maximum.unwrap_or(u32::MAX));
            }
        }
    }
}
