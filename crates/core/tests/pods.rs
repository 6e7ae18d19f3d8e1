//! Each typed field of an application, shown in the driver pod and in the template executors are made from.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use firesteel_api::{SparkApplicationSpec, defaults, names};
use firesteel_core::conf::Subject;
use firesteel_core::run::{Attempt, Refusal, Run, RunSettings, executor_template, plan};
use firesteel_core::template::start;
use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

fn try_run(patch: &Value) -> Result<Run, Refusal> {
    let mut spec = json!({
        "type": "Scala", "sparkVersion": "4.1.4", "image": "apache/spark:4.1.4", "mainClass": "org.example.Main",
        "mainApplicationFile": "local:///opt/app.jar", "driver": {}, "executor": {},
    });
    for (name, value) in patch.as_object().unwrap() {
        spec[name] = value.clone();
    }
    let spec: SparkApplicationSpec = serde_json::from_value(spec).unwrap();
    let spec = defaults::defaulted(&spec);
    let labels =
        BTreeMap::from([("team".to_owned(), "a".to_owned()), ("kueue.x-k8s.io/queue-name".to_owned(), "q".to_owned())]);
    let app = Subject { name: "pi", namespace: "jobs", uid: "uid-1", labels: &labels, spec: &spec };
    let created = Timestamp::from_second(1_700_000_000).unwrap();
    plan(&app, Attempt { number: 1, created, now: created, nonce: 7 }, &RunSettings::default())
}

fn run(patch: &Value) -> Run {
    try_run(patch).unwrap()
}

/// Driver pod and executor template of an application whose both roles have `fields`.
fn both(fields: &Value) -> [(Pod, &'static str); 2] {
    both_with(&json!({}), fields)
}

fn both_with(spec: &Value, fields: &Value) -> [(Pod, &'static str); 2] {
    let mut patch = spec.clone();
    patch["driver"] = fields.clone();
    patch["executor"] = fields.clone();
    let run = run(&patch);
    let template = executor_template(&run).unwrap();
    [(run.pod, names::DRIVER_CONTAINER), (template, names::EXECUTOR_CONTAINER)]
}

fn container<'a>(pod: &'a Pod, name: &str) -> &'a Container {
    pod.spec.as_ref().unwrap().containers.iter().find(|c| c.name == name).unwrap()
}

/// Asserts that a field of both pods has a value, by JSON pointer. `MAIN` stands for the index of Spark's container.
fn shows(fields: &Value, pointer: &str, expected: &Value) {
    shows_with(&json!({}), fields, pointer, expected);
}

fn shows_with(spec: &Value, fields: &Value, pointer: &str, expected: &Value) {
    for (pod, main) in both_with(spec, fields) {
        let at = pod.spec.as_ref().unwrap().containers.iter().position(|c| c.name == main).unwrap();
        let value = serde_json::to_value(&pod).unwrap();
        let pointer = pointer.replace("MAIN", &at.to_string());
        let got = value.pointer(&pointer).unwrap_or(&Value::Null);
        let holds = match (got, expected) {
            (Value::Array(items), Value::Object(_)) => items.contains(expected),
            _ => got == expected,
        };
        assert!(holds, "{main} {pointer}: {got} is not {expected}");
    }
}

#[test]
fn affinity() {
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "k", "operator": "Exists"}]}]}}});
    shows(&json!({"affinity": affinity}), "/spec/affinity", &affinity);
}

#[test]
fn tolerations() {
    let toleration = json!({"key": "spot", "operator": "Exists", "effect": "NoSchedule"});
    shows(&json!({"tolerations": [toleration]}), "/spec/tolerations", &toleration);
}

#[test]
fn node_selector() {
    shows(&json!({"nodeSelector": {"disk": "ssd"}}), "/spec/nodeSelector", &json!({"disk": "ssd"}));
}

#[test]
fn scheduler_name_and_batch_scheduler() {
    shows(&json!({"schedulerName": "mine"}), "/spec/schedulerName", &json!("mine"));
    shows_with(
        &json!({"batchScheduler": "volcano"}),
        &json!({"schedulerName": "mine"}),
        "/spec/schedulerName",
        &json!("volcano"),
    );
}

#[test]
fn security_contexts() {
    shows(&json!({"podSecurityContext": {"runAsUser": 185}}), "/spec/securityContext", &json!({"runAsUser": 185}));
    shows(
        &json!({"securityContext": {"privileged": false}}),
        "/spec/containers/MAIN/securityContext",
        &json!({"privileged": false}),
    );
}

#[test]
fn environment() {
    let variable = json!({"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}});
    shows(&json!({"env": [variable]}), "/spec/containers/MAIN/env", &variable);
    let source = json!({"secretRef": {"name": "s", "optional": true}});
    shows(&json!({"envFrom": [source]}), "/spec/containers/MAIN/envFrom", &source);
}

#[test]
fn env_replaces_what_spark_set_in_the_driver() {
    let run = run(&json!({"driver": {"env": [{"name": "SPARK_USER", "value": "me"}]}}));
    let env = container(&run.pod, names::DRIVER_CONTAINER).env.clone().unwrap();
    let users: Vec<_> = env.iter().filter(|v| v.name == "SPARK_USER").collect();
    assert_eq!(users.len(), 1);
    assert_eq!(users[0].value.as_deref(), Some("me"));
}

#[test]
fn volumes_and_mounts() {
    let volumes = json!([
        {"name": "data", "persistentVolumeClaim": {"claimName": "c"}},
        {"name": "unused", "emptyDir": {}},
    ]);
    let mounts = json!({"volumeMounts": [{"name": "data", "mountPath": "/data", "subPath": "x"}]});
    let spec = json!({"volumes": volumes});
    shows_with(&spec, &mounts, "/spec/volumes", &volumes[0]);
    shows_with(
        &spec,
        &mounts,
        "/spec/containers/MAIN/volumeMounts",
        &json!({"name": "data", "mountPath": "/data", "subPath": "x"}),
    );
    for (pod, _) in both_with(&spec, &mounts) {
        assert!(!pod.spec.unwrap().volumes.unwrap().iter().any(|v| v.name == "unused"));
    }
}

#[test]
fn local_dirs_become_spark_configuration() {
    let run = run(&json!({
        "volumes": [{"name": "spark-local-dir-1", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}],
        "driver": {"volumeMounts": [{"name": "spark-local-dir-1", "mountPath": "/tmp/spark"}]},
        "executor": {"volumeMounts": [{"name": "spark-local-dir-1", "mountPath": "/tmp/spark"}]},
    }));
    let spec = run.pod.spec.as_ref().unwrap();
    let volume = spec.volumes.as_ref().unwrap().iter().find(|v| v.name == "spark-local-dir-1").unwrap();
    assert_eq!(volume.empty_dir.as_ref().unwrap().medium.as_deref(), Some("Memory"));
    assert_eq!(property(&run, "spark.kubernetes.executor.volumes.emptyDir.spark-local-dir-1.options.sizeLimit"), "1Gi");
}

#[test]
fn config_maps() {
    let fields = json!({"configMaps": [{"name": "my.conf", "path": "/c"}]});
    shows(&fields, "/spec/volumes", &json!({"name": "my-conf-vol", "configMap": {"name": "my.conf"}}));
    shows(
        &fields,
        "/spec/containers/MAIN/volumeMounts",
        &json!({"name": "my-conf-vol", "mountPath": "/c", "readOnly": true}),
    );
}

#[test]
fn spark_and_hadoop_config_maps() {
    let spec = json!({"sparkConfigMap": "s", "hadoopConfigMap": "h"});
    let mount = |name: &str, path: &str| json!({"name": name, "mountPath": path, "readOnly": true});
    shows_with(
        &spec,
        &json!({}),
        "/spec/containers/MAIN/volumeMounts",
        &mount("spark-configmap-volume", "/etc/spark/conf"),
    );
    shows_with(
        &spec,
        &json!({}),
        "/spec/containers/MAIN/volumeMounts",
        &mount("hadoop-configmap-volume", "/etc/hadoop/conf"),
    );
    shows_with(
        &spec,
        &json!({}),
        "/spec/containers/MAIN/env",
        &json!({"name": "HADOOP_CONF_DIR", "value": "/etc/hadoop/conf"}),
    );
    assert_eq!(property(&run(&spec), "spark.executorEnv.SPARK_CONF_DIR"), "/etc/spark/conf");
}

#[test]
fn secrets_by_kind() {
    let secret = json!([{"name": "gcp", "path": "/mnt/gcp", "secretType": "GCPServiceAccount"}]);
    let run = run(&json!({"driver": {"secrets": secret}, "executor": {"secrets": secret}}));
    let main = container(&run.pod, names::DRIVER_CONTAINER);
    let env = main.env.as_ref().unwrap().iter().find(|v| v.name == "GOOGLE_APPLICATION_CREDENTIALS").unwrap();
    assert_eq!(env.value.as_deref(), Some("/mnt/gcp/key.json"));
    assert!(main.volume_mounts.as_ref().unwrap().iter().any(|m| m.mount_path == "/mnt/gcp"));
    assert_eq!(property(&run, "spark.kubernetes.executor.secrets.gcp"), "/mnt/gcp");
    assert_eq!(property(&run, "spark.executorEnv.GOOGLE_APPLICATION_CREDENTIALS"), "/mnt/gcp/key.json");
}

#[test]
fn deprecated_environment_fields() {
    let fields = json!({"envVars": {"A": "1"}, "envSecretKeyRefs": {"P": {"name": "s", "key": "k"}}});
    let run = run(&json!({"driver": fields, "executor": fields}));
    let env = container(&run.pod, names::DRIVER_CONTAINER).env.clone().unwrap();
    assert!(env.iter().any(|v| v.name == "A" && v.value.as_deref() == Some("1")));
    assert!(env.iter().any(|v| v.name == "P" && v.value_from.is_some()));
    assert_eq!(property(&run, "spark.executorEnv.A"), "1");
    assert_eq!(property(&run, "spark.kubernetes.executor.secretKeyRef.P"), "s:k");
}

#[test]
fn sidecars_and_init_containers() {
    let fields =
        json!({"sidecars": [{"name": "side", "image": "s"}], "initContainers": [{"name": "init", "image": "i"}]});
    for (pod, main) in both(&fields) {
        let spec = pod.spec.unwrap();
        let names: Vec<_> = spec.containers.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names, [main, "side"]);
        assert_eq!(spec.init_containers.unwrap()[0].name, "init");
    }
}

#[test]
fn gpu_and_memory_limit() {
    let fields = json!({"gpu": {"name": "nvidia.com/gpu", "quantity": 2}, "memoryLimit": "3g"});
    shows(&fields, "/spec/containers/MAIN/resources/limits/nvidia.com~1gpu", &json!("2"));
    shows(&fields, "/spec/containers/MAIN/resources/limits/memory", &json!("3Gi"));
    let run = run(&json!({"driver": fields, "executor": fields}));
    assert_eq!(run.lost.iter().map(|(path, _)| path.as_str()).collect::<Vec<_>>(), ["spec.executor.memoryLimit"]);
}

#[test]
fn network() {
    let fields = json!({
        "hostNetwork": true, "dnsConfig": {"nameservers": ["1.1.1.1"]},
        "hostAliases": [{"ip": "1.2.3.4", "hostnames": ["h"]}],
    });
    shows(&fields, "/spec/hostNetwork", &json!(true));
    shows(&fields, "/spec/dnsPolicy", &json!("ClusterFirstWithHostNet"));
    shows(&fields, "/spec/dnsConfig", &json!({"nameservers": ["1.1.1.1"]}));
    shows(&fields, "/spec/hostAliases", &json!({"ip": "1.2.3.4", "hostnames": ["h"]}));
}

#[test]
fn life_of_the_pod() {
    let fields = json!({
        "terminationGracePeriodSeconds": 7, "shareProcessNamespace": true, "priorityClassName": "high",
        "lifecycle": {"preStop": {"exec": {"command": ["true"]}}},
        "ports": [{"name": "extra", "protocol": "TCP", "containerPort": 9000}],
    });
    shows(&fields, "/spec/terminationGracePeriodSeconds", &json!(7));
    shows(&fields, "/spec/shareProcessNamespace", &json!(true));
    shows(&fields, "/spec/priorityClassName", &json!("high"));
    shows(&fields, "/spec/containers/MAIN/lifecycle", &fields["lifecycle"]);
    shows(&fields, "/spec/containers/MAIN/ports", &json!({"name": "extra", "protocol": "TCP", "containerPort": 9000}));
    let run = run(&json!({"executor": fields}));
    assert_eq!(property(&run, "spark.kubernetes.executor.terminationGracePeriodSeconds"), "7s");
}

#[test]
fn service_links_are_off() {
    shows(&json!({}), "/spec/enableServiceLinks", &json!(false));
}

#[test]
fn typed_fields_win_over_spark_conf() {
    let run = run(&json!({
        "sparkConf": {"spark.driver.memory": "9g", "spark.executor.instances": "9"},
        "driver": {"memory": "2g"}, "executor": {"instances": 3},
    }));
    assert_eq!(property(&run, "spark.driver.memory"), "2g");
    assert_eq!(property(&run, "spark.executor.instances"), "3");
}

#[test]
fn d19_operator_labels_cannot_be_overridden() {
    let evil = json!({names::LABEL_APP_NAME: "evil", names::LABEL_SUBMISSION_ID: "evil"});
    let run = run(&json!({
        "driver": {"labels": evil, "template": {"metadata": {"labels": evil}}},
        "executor": {"labels": evil},
    }));
    let labels = run.pod.metadata.labels.clone().unwrap();
    assert_eq!(labels[names::LABEL_APP_NAME], "pi");
    assert_eq!(labels[names::LABEL_SUBMISSION_ID], run.submission_id);
    assert_eq!(labels[names::LABEL_LAUNCHED_BY], "true");
    let key = format!("spark.kubernetes.executor.label.{}", names::LABEL_APP_NAME);
    assert_eq!(property(&run, &key), "pi");
}

#[test]
fn labels_of_the_application_reach_its_pods_but_kueues_do_not() {
    let run = run(&json!({}));
    let labels = run.pod.metadata.labels.clone().unwrap();
    assert_eq!(labels["team"], "a");
    assert!(!labels.keys().any(|k| k.starts_with("kueue.x-k8s.io/")));
    assert_eq!(property(&run, "spark.kubernetes.executor.label.team"), "a");
}

#[test]
fn everything_is_owned_by_the_application() {
    let mut run = run(&json!({"monitoring": {"exposeDriverMetrics": true, "exposeExecutorMetrics": true,
        "prometheus": {"jmxExporterJar": "/x.jar"}}}));
    let owner = |meta: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta| {
        let owner = &meta.owner_references.as_ref().unwrap()[0];
        (owner.kind.clone(), owner.uid.clone(), owner.controller)
    };
    let expected = ("SparkApplication".to_owned(), "uid-1".to_owned(), Some(true));
    assert_eq!(owner(&run.pod.metadata), expected);
    assert!(run.objects.len() >= 4);
    for object in &mut run.objects {
        let meta = firesteel_core::run::metadata(object);
        assert_eq!(owner(meta), expected);
        assert_eq!(meta.labels.as_ref().unwrap()[names::LABEL_APP_NAME], "pi");
        assert_eq!(meta.namespace.as_deref(), Some("jobs"));
    }
    let template = executor_template(&run).unwrap();
    assert_eq!(owner(&template.metadata).2, Some(false));
}

#[test]
fn monitoring() {
    let run = run(&json!({
        "driver": {"javaOptions": "-Da=b"},
        "monitoring": {"exposeDriverMetrics": true, "exposeExecutorMetrics": false, "prometheus": {"jmxExporterJar": "/x.jar"}},
    }));
    assert_eq!(
        property(&run, "spark.driver.extraJavaOptions"),
        "-Da=b -javaagent:/x.jar=8090:/etc/metrics/conf/prometheus.yaml"
    );
    let main = container(&run.pod, names::DRIVER_CONTAINER);
    assert!(main.ports.as_ref().unwrap().iter().any(|p| p.name.as_deref() == Some("jmx-exporter")));
    assert_eq!(run.pod.metadata.annotations.as_ref().unwrap()["prometheus.io/port"], "8090");
    let template = executor_template(&run).unwrap();
    assert!(container(&template, names::EXECUTOR_CONTAINER).ports.is_none());
}

#[test]
fn templates_are_merged_with_typed_fields() {
    let template = json!({
        "metadata": {"annotations": {"t": "1"}},
        "spec": {
            "tolerations": [{"key": "a", "operator": "Exists"}],
            "containers": [
                {"name": "other", "image": "o"},
                {"name": "spark-kubernetes-driver", "env": [{"name": "T", "value": "1"}]},
            ],
        },
    });
    let run = run(&json!({"driver": {"template": template, "tolerations": [{"key": "b", "operator": "Exists"}]}}));
    let spec = run.pod.spec.as_ref().unwrap();
    assert_eq!(spec.tolerations.as_ref().unwrap().len(), 2);
    assert_eq!(run.pod.metadata.annotations.as_ref().unwrap()["t"], "1");
    assert!(container(&run.pod, names::DRIVER_CONTAINER).env.as_ref().unwrap().iter().any(|v| v.name == "T"));
    assert!(spec.containers.iter().any(|c| c.name == "other"));
}

#[test]
fn a_template_without_sparks_container_lends_its_first() {
    let template: k8s_openapi::api::core::v1::PodTemplateSpec =
        serde_json::from_value(json!({"spec": {"containers": [{"name": "main"}, {"name": "b"}]}})).unwrap();
    assert_eq!(start(Some(&template), &["spark-kubernetes-executor"]).container, "main");
    let run = run(&json!({"executor": {"template": template}}));
    assert_eq!(property(&run, "spark.kubernetes.executor.podTemplateContainerName"), "main");
}

#[test]
fn complaints_name_the_field() {
    let sentence = |patch: Value| try_run(&patch).unwrap_err().0;
    let reserved = sentence(json!({"driver": {"labels": {"spark-role": "x"}}}));
    assert!(reserved.starts_with("spec.driver.labels[spark-role]: "), "{reserved}");
    let limit = sentence(json!({"driver": {"cores": 4, "coreLimit": "1"}}));
    assert!(limit.starts_with("spec.driver."), "{limit}");
    let heap = sentence(json!({"driver": {"javaOptions": "-Xmx3g"}}));
    assert!(heap.starts_with("spec.driver.javaOptions: "), "{heap}");
    let local = sentence(json!({"deps": {"jars": ["/a.jar"]}}));
    assert!(local.contains("/a.jar"), "{local}");
}

#[test]
fn python_applications_run_their_file() {
    let run = run(
        &json!({"type": "Python", "mainClass": null, "mainApplicationFile": "local:///opt/pi.py", "arguments": ["10"]}),
    );
    let args = container(&run.pod, names::DRIVER_CONTAINER).args.clone().unwrap();
    assert_eq!(args[args.len() - 2..], ["local:///opt/pi.py", "10"]);
}

/// A property as the driver will read it.
fn property(run: &Run, key: &str) -> String {
    let text = run
        .objects
        .iter()
        .find_map(|object| match object {
            firesteel_spark::driver::Object::ConfigMap(map) => map.data.as_ref()?.get("spark.properties").cloned(),
            _ => None,
        })
        .unwrap();
    let properties = firesteel_spark::properties::parse(&text).unwrap();
    properties.into_iter().find(|(k, _)| k == key).map(|(_, v)| v).unwrap_or_default()
}
