//! Each typed field of an application, checked in the driver pod and in the executors' template.

use std::collections::BTreeMap;

use firesteel_api::validate::Problem;
use firesteel_api::{SparkApplicationSpec, defaults, names};
use firesteel_core::conf::Subject;
use firesteel_core::run::{Attempt, Run, RunSettings, exposure, plan};
use firesteel_core::template::start;
use firesteel_core::ui::UiSettings;
use firesteel_spark::driver::Object;
use k8s_openapi::api::core::v1::{ConfigMap, Container, Pod};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

fn try_run(patch: &Value) -> Result<Run, Problem> {
    run_with(patch, &RunSettings::default())
}

fn run_with(patch: &Value, settings: &RunSettings) -> Result<Run, Problem> {
    let created = Timestamp::from_second(1_700_000_000).unwrap();
    let attempt = Attempt { number: 1, generation: 1, created, now: created, nonce: 7 };
    with_app(patch, |app| plan(app, attempt, settings))
}

fn with_app<T>(patch: &Value, test: impl FnOnce(&Subject<'_>) -> T) -> T {
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
    test(&Subject { name: "pi", namespace: "jobs", uid: "uid-1", labels: &labels, spec: &spec })
}

fn run(patch: &Value) -> Run {
    try_run(patch).unwrap()
}

/// Driver pod and executor template of an application with `fields` in both roles.
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

/// One row of `fields.json`: a field, a value for it, and where that shows. The same table is checked against the pods
/// that real Spark creates (`crates/cli/tests/it/applications`).
struct Row(Value);

impl Row {
    fn all() -> Vec<Row> {
        let rows: Vec<Value> = serde_json::from_str(include_str!("pods/fields.json")).unwrap();
        rows.into_iter().map(Row).collect()
    }

    fn field(&self) -> &str {
        self.0["field"].as_str().unwrap()
    }

    fn roles(&self) -> Vec<&str> {
        self.0["roles"].as_array().unwrap().iter().map(|r| r.as_str().unwrap()).collect()
    }

    fn run(&self) -> Run {
        let mut patch = if self.0["spec"].is_object() { self.0["spec"].clone() } else { json!({}) };
        for role in self.roles() {
            patch[role] = if self.0["with"].is_object() { self.0["with"].clone() } else { json!({}) };
            patch[role][self.field()] = self.0["value"].clone();
        }
        run(&patch)
    }

    fn expectations(&self, of: &str) -> Vec<(String, Value)> {
        let entries = self.0[of].as_object().into_iter().flatten();
        entries.map(|(k, v)| (k.clone(), v.clone())).collect()
    }

    fn check_pod(&self, what: &str, pod: &Pod, main: &str, of: &str) {
        let at = pod.spec.as_ref().unwrap().containers.iter().position(|c| c.name == main).unwrap();
        let pod = serde_json::to_value(pod).unwrap();
        for (pointer, expected) in self.expectations(of) {
            let got = pod.pointer(&pointer.replace("MAIN", &at.to_string())).unwrap_or(&Value::Null);
            assert!(holds(got, &expected), "{}: {what} {pointer}: {got} is not {expected}", self.field());
        }
    }

    fn check(&self) {
        let run = self.run();
        let field = self.field();
        for role in self.roles() {
            for (key, value) in self.expectations("conf") {
                let key = match key.strip_prefix("EXECUTOR ") {
                    Some(key) if role == "executor" => key.to_owned(),
                    Some(_) => continue,
                    None => key.replace("ROLE", role),
                };
                assert_eq!(json!(property(&run, &key)), value, "{field}: {key}");
            }
        }
        if self.roles().contains(&"driver") {
            for of in ["pod", "driver", "alone"] {
                self.check_pod("driver", &run.pod, names::DRIVER_CONTAINER, of);
            }
        }
        if self.roles().contains(&"executor") {
            let template = executor_template(&run).unwrap();
            // Spark itself applies what goes through its configuration.
            let of = if self.0["conf"].is_object() { "template" } else { "pod" };
            self.check_pod("executor template", &template, names::EXECUTOR_CONTAINER, of);
        }
        let service = run.objects.iter().find_map(|object| match object {
            Object::Service(service) => Some(serde_json::to_value(service).unwrap()),
            _ => None,
        });
        for (pointer, expected) in self.expectations("service") {
            assert_eq!(service.as_ref().unwrap().pointer(&pointer), Some(&expected), "{field}");
        }
        let lost: Vec<Value> = run.lost.iter().map(|(path, _)| json!(path)).collect();
        assert_eq!(lost, self.0["lost"].as_array().cloned().unwrap_or_default(), "{field}");
        assert_eq!(run.warnings, Vec::<String>::new(), "{field}: the operator's own settings cause no warnings");
    }
}

/// A list must contain an expected object, or all objects of an expected list; anything else must be equal.
fn holds(got: &Value, expected: &Value) -> bool {
    match (got, expected) {
        (Value::Array(items), Value::Object(_)) => items.iter().any(|item| contains(item, expected)),
        (Value::Array(items), Value::Array(all)) => all.iter().all(|e| items.iter().any(|item| contains(item, e))),
        _ => got == expected,
    }
}

/// Everything expected must exist; fields filled in by a server or by Spark may exist too.
fn contains(got: &Value, expected: &Value) -> bool {
    match (got, expected) {
        (Value::Object(got), Value::Object(expected)) => {
            expected.iter().all(|(name, value)| got.get(name).is_some_and(|g| contains(g, value)))
        }
        (Value::Array(got), Value::Array(expected)) => {
            got.len() == expected.len() && got.iter().zip(expected).all(|(g, e)| contains(g, e))
        }
        _ => got == expected,
    }
}

#[test]
fn every_field_of_both_roles_reaches_its_pod() {
    for row in Row::all() {
        row.check();
    }
}

#[test]
fn the_table_of_fields_is_complete() {
    let crd = &firesteel_api::crds::manifests()[0];
    for role in ["driver", "executor"] {
        let pointer = format!("/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/{role}/properties");
        let rows = Row::all();
        for field in crd.pointer(&pointer).unwrap().as_object().unwrap().keys() {
            let shown = rows.iter().any(|row| row.field() == field && row.roles().contains(&role));
            assert!(shown, "spec.{role}.{field} is not in the table");
        }
    }
}

#[test]
fn fields_that_have_no_effect_are_named() {
    let template = |name: &str| {
        json!({"spec": {"restartPolicy": "Always", "hostname": "h", "containers": [
            {"name": "other"}, {"name": name, "image": "i", "resources": {"limits": {"memory": "1Gi", "x/y": "1"}, "requests": {"cpu": "1"}}}]}})
    };
    let run = run(&json!({
        "failureRetries": 3, "retryInterval": 1, "batchSchedulerOptions": {"queue": "q"},
        "sparkConf": {"spark.decommission.enabled": "true"},
        "driver": {"template": template("spark-kubernetes-driver")},
        "executor": {
            "memoryLimit": "3g", "lifecycle": {"preStop": {"exec": {"command": ["true"]}}},
            "env": [{"name": "A", "value": "1"}, {"name": "SPARK_USER", "value": "me"}],
            "template": template("spark-kubernetes-executor"),
        },
    }));
    let mut paths: Vec<&str> = run.lost.iter().map(|(path, _)| path.as_str()).collect();
    paths.sort_unstable();
    assert_eq!(
        paths,
        [
            "spec.batchSchedulerOptions",
            "spec.driver.template.spec.containers[1].image",
            "spec.driver.template.spec.containers[1].resources.limits.memory",
            "spec.driver.template.spec.containers[1].resources.requests.cpu",
            "spec.driver.template.spec.restartPolicy",
            "spec.executor.env[1]",
            "spec.executor.lifecycle",
            "spec.executor.memoryLimit",
            "spec.executor.template.spec.containers[1].image",
            "spec.executor.template.spec.containers[1].resources.limits.memory",
            "spec.executor.template.spec.containers[1].resources.requests.cpu",
            "spec.executor.template.spec.hostname",
            "spec.executor.template.spec.restartPolicy",
            "spec.failureRetries",
            "spec.retryInterval",
        ]
    );
}

#[test]
fn unsupported_scratch_space_settings_are_named() {
    let mount =
        json!({"name": "spark-local-dir-1", "mountPath": "/s", "subPathExpr": "$(A)", "mountPropagation": "None"});
    let spec = |version: &str| {
        json!({"sparkVersion": version, "driver": {"volumeMounts": [mount]}, "executor": {"volumeMounts": [mount]},
            "volumes": [{"name": "spark-local-dir-1", "hostPath": {"path": "/h", "type": "Directory"}}]})
    };
    let paths = |version: &str| -> Vec<String> { run(&spec(version)).lost.into_iter().map(|(path, _)| path).collect() };
    let propagation =
        ["spec.driver.volumeMounts[0].mountPropagation", "spec.executor.volumeMounts[0].mountPropagation"];
    assert_eq!(paths("4.1.4"), propagation);
    assert_eq!(
        paths("3.5.7"),
        [
            "spec.driver.volumeMounts[0].subPathExpr",
            propagation[0],
            "spec.volumes[0].hostPath.type",
            "spec.executor.volumeMounts[0].subPathExpr",
            propagation[1],
        ]
    );
}

#[test]
fn fields_of_the_application_reach_the_plan() {
    let run = run(&json!({
        "imagePullPolicy": "Always", "imagePullSecrets": ["a", "b"], "pythonVersion": "3", "memoryOverheadFactor": "0.3",
        "hadoopConf": {"fs.x": "y"}, "nodeSelector": {"pool": "spark"}, "proxyUser": "someone", "arguments": ["1", "two words"],
        "deps": {
            "jars": ["local:///a.jar", "https://x/b.jar"], "files": ["https://x/f"], "pyFiles": ["https://x/p.py"],
            "archives": ["https://x/z.zip"], "packages": ["g:a:1"], "excludePackages": ["g:b"], "repositories": ["https://r"],
        },
        "dynamicAllocation": {"enabled": true, "initialExecutors": 2, "minExecutors": 1, "maxExecutors": 5, "shuffleTrackingTimeout": 9},
    }));
    let main = container(&run.pod, names::DRIVER_CONTAINER);
    assert_eq!(main.image_pull_policy.as_deref(), Some("Always"));
    let spec = run.pod.spec.as_ref().unwrap();
    assert_eq!(spec.image_pull_secrets.as_ref().unwrap().len(), 2);
    assert_eq!(spec.node_selector.as_ref().unwrap()["pool"], "spark");
    let args = main.args.as_ref().unwrap();
    assert_eq!(args[args.len() - 2..], ["1", "two words"]);
    assert!(args.windows(2).any(|pair| pair == ["--proxy-user", "someone"]), "{args:?}");
    for (key, value) in [
        ("spark.kubernetes.container.image.pullPolicy", "Always"),
        ("spark.kubernetes.container.image.pullSecrets", "a,b"),
        ("spark.kubernetes.memoryOverheadFactor", "0.3"),
        ("spark.hadoop.fs.x", "y"),
        ("spark.kubernetes.node.selector.pool", "spark"),
        ("spark.jars", "local:///a.jar,https://x/b.jar,local:///opt/app.jar"),
        ("spark.files", "https://x/f"),
        ("spark.archives", "https://x/z.zip"),
        ("spark.jars.packages", "g:a:1"),
        ("spark.jars.excludes", "g:b"),
        ("spark.jars.repositories", "https://r"),
        ("spark.dynamicAllocation.enabled", "true"),
        ("spark.dynamicAllocation.initialExecutors", "2"),
        ("spark.dynamicAllocation.minExecutors", "1"),
        ("spark.dynamicAllocation.maxExecutors", "5"),
        ("spark.dynamicAllocation.shuffleTracking.enabled", "true"),
        ("spark.dynamicAllocation.shuffleTracking.timeout", "9"),
    ] {
        assert_eq!(property(&run, key), value, "{key}");
    }
}

#[test]
fn a_budget_belongs_to_the_application() {
    let exposure = with_app(&json!({"driverPodDisruptionBudget": true}), |app| {
        exposure(app, "spark-1", "sub", &RunSettings::default())
    });
    let budget = exposure.budget.unwrap();
    assert_eq!(budget.metadata.name.as_deref(), Some("pi-driver"));
    assert_eq!(budget.metadata.owner_references.unwrap()[0].uid, "uid-1");
}

#[test]
fn a_ui_served_under_a_path_knows_its_base() {
    let url_format = "https://spark.example/{{$appNamespace}}/{{$appName}}".to_owned();
    let settings =
        RunSettings { ui: UiSettings { service: true, url_format, ..UiSettings::default() }, ..RunSettings::default() };
    let run = run_with(&json!({}), &settings).unwrap();
    assert_eq!(property(&run, "spark.ui.proxyBase"), "/jobs/pi");
    assert_eq!(property(&run, "spark.ui.proxyRedirectUri"), "/");
    let exposure = with_app(&json!({}), |app| exposure(app, "spark-1", "sub", &settings));
    let ingress = serde_json::to_value(&exposure.ingresses[0]).unwrap();
    assert_eq!(ingress["spec"]["rules"][0]["host"], "spark.example");
    assert_eq!(ingress["spec"]["rules"][0]["http"]["paths"][0]["path"], "/jobs/pi(/|$)(.*)");
    assert_eq!(exposure.web_url.as_deref(), Some("https://spark.example/jobs/pi"));
}

/// Asserts the value of a field of both pods, by JSON pointer. `MAIN` stands for the index of Spark's container.
fn shows(fields: &Value, pointer: &str, expected: &Value) {
    shows_with(&json!({}), fields, pointer, expected);
}

fn shows_with(spec: &Value, fields: &Value, pointer: &str, expected: &Value) {
    for (pod, main) in both_with(spec, fields) {
        let at = pod.spec.as_ref().unwrap().containers.iter().position(|c| c.name == main).unwrap();
        let value = serde_json::to_value(&pod).unwrap();
        let pointer = pointer.replace("MAIN", &at.to_string());
        let got = value.pointer(&pointer).unwrap_or(&Value::Null);
        assert!(holds(got, expected), "{main} {pointer}: {got} is not {expected}");
    }
}

#[test]
fn d13_a_scheduler_reaches_both_pods() {
    shows_with(&json!({}), &json!({"schedulerName": "volcano"}), "/spec/schedulerName", &json!("volcano"));
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
    assert!(run.objects.len() >= 3);
    for object in &mut run.objects {
        let meta = object.metadata_mut();
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

/// The data of the exporter's ConfigMap.
fn exporter_files(run: &Run) -> Option<BTreeMap<String, String>> {
    run.objects.iter().find_map(|object| match object {
        Object::ConfigMap(map) if map.metadata.name.as_deref() == Some("pi-prom-conf") => map.data.clone(),
        _ => None,
    })
}

#[test]
fn the_jmx_exporter_is_wired_as_the_existing_operator_wires_it() {
    let run = run(&json!({"monitoring": {"exposeDriverMetrics": true, "exposeExecutorMetrics": true,
        "prometheus": {"jmxExporterJar": "/x.jar"}}}));
    let files = exporter_files(&run).unwrap();
    assert!(files["metrics.properties"].contains("*.sink.jmx.class=org.apache.spark.metrics.sink.JmxSink"));
    assert!(files["metrics.properties"].contains("driver.source.jvm.class=org.apache.spark.metrics.source.JvmSource"));
    for name in ["spark_driver_", "spark_executor_", "spark_streaming_driver_", "spark_structured_streaming_driver_"] {
        assert!(files["prometheus.yaml"].contains(&format!("name: {name}$")), "{name}");
    }
    for label in ["app_namespace", "app_id", "executor_id", "query_name"] {
        assert!(files["prometheus.yaml"].contains(&format!("{label}: $")), "{label}");
    }
    assert_eq!(property(&run, "spark.metrics.conf"), "/etc/metrics/conf/metrics.properties");
    assert_eq!(property(&run, "spark.metrics.namespace"), "jobs.pi");
    let agent = "-javaagent:/x.jar=8090:/etc/metrics/conf/prometheus.yaml";
    assert!(property(&run, "spark.executor.extraJavaOptions").contains(agent));
    let template = executor_template(&run).unwrap();
    for (pod, name) in [(&run.pod, names::DRIVER_CONTAINER), (&template, names::EXECUTOR_CONTAINER)] {
        let main = container(pod, name);
        let ports = main.ports.iter().flatten();
        let port: Vec<_> = ports.filter(|p| p.name.as_deref() == Some("jmx-exporter")).collect();
        assert_eq!((port[0].container_port, port[0].protocol.as_deref()), (8090, Some("TCP")), "{name}");
        let mounts = main.volume_mounts.iter().flatten();
        assert_eq!(mounts.filter(|m| m.mount_path == "/etc/metrics/conf").count(), 1, "{name}");
    }
    for (key, value) in [("scrape", "true"), ("port", "8090"), ("path", "/metrics")] {
        assert_eq!(run.pod.metadata.annotations.as_ref().unwrap()[&format!("prometheus.io/{key}")], value);
        assert_eq!(property(&run, &format!("spark.kubernetes.executor.annotation.prometheus.io/{key}")), value);
    }
}

#[test]
fn files_of_the_image_replace_those_of_the_exporter() {
    let given = run(&json!({"monitoring": {"exposeDriverMetrics": true, "exposeExecutorMetrics": false,
        "metricsPropertiesFile": "/m.properties",
        "prometheus": {"jmxExporterJar": "/x.jar", "port": 9999, "portName": "jmx", "configFile": "/c.yaml"}}}));
    assert_eq!(property(&given, "spark.metrics.conf"), "/m.properties");
    assert!(property(&given, "spark.driver.extraJavaOptions").ends_with("-javaagent:/x.jar=9999:/c.yaml"));
    assert!(exporter_files(&given).is_none());
    let written = run(&json!({"monitoring": {"exposeDriverMetrics": true, "exposeExecutorMetrics": false,
        "metricsProperties": "a=b", "prometheus": {"jmxExporterJar": "/x.jar", "configuration": "rules: []"}}}));
    let files = exporter_files(&written).unwrap();
    assert_eq!((files["metrics.properties"].as_str(), files["prometheus.yaml"].as_str()), ("a=b", "rules: []"));
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
    let sentence = |patch: Value| try_run(&patch).unwrap_err().to_string();
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
            Object::ConfigMap(map) => map.data.as_ref()?.get("spark.properties").cloned(),
            _ => None,
        })
        .unwrap();
    let properties = firesteel_spark::properties::parse(&text).unwrap();
    properties.into_iter().find(|(k, _)| k == key).map(|(_, v)| v).unwrap_or_default()
}

/// The executor template of a run, as the driver will read it: from the ConfigMap that its pod mounts.
fn executor_template(run: &Run) -> Option<Pod> {
    let volumes = run.pod.spec.as_ref()?.volumes.as_ref()?;
    let source = volumes.iter().find(|v| v.name == "pod-template-volume")?.config_map.as_ref()?;
    let item = &source.items.as_ref()?[0];
    assert_eq!(item.path, "pod-spec-template.yml");
    run.objects.iter().find_map(|object| match object {
        Object::ConfigMap(ConfigMap { data: Some(data), metadata, .. })
            if metadata.name.as_deref() == Some(source.name.as_str()) =>
        {
            serde_json::from_str(data.get(&item.key)?).ok()
        }
        _ => None,
    })
}

#[test]
fn configuration_and_template_share_one_config_map_unless_they_are_too_long_for_one() {
    let maps = |run: &Run| run.objects.iter().filter(|object| matches!(object, Object::ConfigMap(_))).count();
    let small = run(&json!({}));
    assert_eq!(maps(&small), 1);
    assert!(executor_template(&small).is_some());
    assert_eq!(
        property(&small, "spark.kubernetes.executor.podTemplateFile"),
        "/opt/spark/pod-template/pod-spec-template.yml"
    );
    let mounted = small.pod.spec.as_ref().unwrap().volumes.as_ref().unwrap();
    let conf = mounted.iter().find(|v| v.name == "spark-conf-volume-driver").unwrap();
    let items = conf.config_map.as_ref().unwrap().items.as_ref().unwrap();
    assert_eq!(items.iter().map(|i| i.path.as_str()).collect::<Vec<_>>(), ["spark.properties"]);
    let long = "x".repeat(600_000);
    let env = json!([{"name": "LONG", "value": "y".repeat(500_000)}]);
    let template = json!({"spec": {"containers": [{"name": names::EXECUTOR_CONTAINER, "env": env}]}});
    let large = run(&json!({"sparkConf": {"spark.long": long}, "executor": {"template": template}}));
    assert_eq!(maps(&large), 2);
    assert!(executor_template(&large).is_some());
}
