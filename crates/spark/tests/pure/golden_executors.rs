//! Compares the executors we plan with those that real Spark's allocators created: every case of `tests/golden/executors/`
//! is planned as at submission, completed with what only its driver could know, and compared with the captured objects.
//!
//! For the default profile, only these variables are taken from the captured pods: the driver's address, the JVM options,
//! and `PYTHONHASHSEED`, which PySpark adds. Everything else must come from the plan.

use std::path::{Path, PathBuf};

use firesteel_spark::executor::{self, ExecutorPlan, Strategy};
use serde_json::{Value, json};

use crate::golden::{normalize, plan, resolve};

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden")
}

/// Version, name and content of every case.
fn cases() -> Vec<(String, String, Value)> {
    let mut cases = Vec::new();
    for version in std::fs::read_dir(golden().join("executors")).unwrap() {
        let directory = version.unwrap().path();
        let version = directory.file_name().unwrap().to_str().unwrap().to_owned();
        for case in std::fs::read_dir(&directory).unwrap() {
            let path = case.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            cases.push((version.clone(), name, serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap()));
        }
    }
    cases.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
    cases
}

fn inputs() -> String {
    golden().join("inputs").canonicalize().unwrap().to_str().unwrap().to_owned()
}

/// The arguments of a case. Older captures ran in client mode and recorded their settings only.
fn arguments(version: &str, case: &Value) -> Vec<String> {
    let mut argv = vec!["--spark-version".to_owned(), version.to_owned()];
    let text = |value: &Value| value.as_str().unwrap().replace("<INPUTS>", &inputs());
    if let Some(given) = case["argv"].as_array() {
        argv.extend(given.iter().map(text));
        return argv;
    }
    argv.extend(["--master", "k8s://https://127.0.0.1:6443", "--deploy-mode", "cluster"].map(str::to_owned));
    argv.extend(["--name", "ramp", "--class", "Main"].map(str::to_owned));
    for setting in case["conf"].as_array().unwrap() {
        argv.extend(["--conf".to_owned(), text(setting)]);
    }
    argv.push("spark-internal".to_owned());
    argv
}

fn strategy(argv: &[String]) -> Strategy {
    let is = |name: &str| argv.contains(&format!("spark.kubernetes.allocation.pods.allocator={name}"));
    if is("statefulset") { Strategy::StatefulSet } else { Strategy::Pods }
}

fn planned(version: &str, case: &Value) -> Result<(ExecutorPlan, Strategy), String> {
    let argv = arguments(version, case);
    let (submission, context, driver) = plan::plan(&argv, resolve::environment(case, &inputs()))?;
    let strategy = strategy(&argv);
    let plan = executor::plan(&submission, &context, &driver, strategy).map_err(|e| e.to_string())?;
    Ok((plan, strategy))
}

/// Whether only a running driver knows this variable.
fn of_the_driver(name: &str) -> bool {
    name.starts_with("SPARK_JAVA_OPT_") || ["SPARK_DRIVER_URL", "SPARK_DRIVER_POD_IP", "PYTHONHASHSEED"].contains(&name)
}

/// What the driver reported for the pod with this specification. Sizes of other profiles than the default are known only to
/// the driver; the rest comes from the plan.
fn told(plan: &ExecutorPlan, id: &str, spec: &Value) -> executor::Profile {
    let containers = spec["containers"].as_array().unwrap();
    let spark = containers.iter().find(|c| c["name"] == json!(plan.container)).unwrap();
    let default = id == "0";
    let variables = spark["env"].as_array().unwrap().iter();
    let env = variables
        .filter_map(|v| Some((v["name"].as_str()?.to_owned(), v["value"].as_str()?.to_owned())))
        .filter(|(name, _)| of_the_driver(name) || (!default && SIZES.contains(&name.as_str())))
        .collect();
    if default {
        return executor::Profile { env, ..plan.profile.clone() };
    }
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let limits = spark["resources"]["limits"].as_object().unwrap();
    executor::Profile {
        id: id.parse().unwrap(),
        cpu: text(&spark["resources"]["requests"]["cpu"]),
        cpu_limit: limits.get("cpu").map(text),
        memory: text(&limits["memory"]),
        resources: limits.iter().filter(|(name, _)| name.contains('/')).map(|(k, v)| (k.clone(), text(v))).collect(),
        env,
        ..executor::Profile::default()
    }
}

/// Variables that follow from a profile's sizes.
const SIZES: [&str; 2] = ["SPARK_EXECUTOR_CORES", "SPARK_EXECUTOR_MEMORY"];

/// Our objects for those of the capture.
fn ours(plan: &ExecutorPlan, strategy: Strategy, captured: &[Value]) -> Vec<Value> {
    let mut objects = Vec::new();
    for object in captured {
        match (object["kind"].as_str().unwrap(), strategy) {
            ("Pod", Strategy::Pods) => {
                let id = object["metadata"]["labels"]["spark-exec-id"].as_str().unwrap();
                let labels = &object["metadata"]["labels"];
                let profile = told(plan, labels["spark-exec-resourceprofile-id"].as_str().unwrap(), &object["spec"]);
                let pod = executor::executor(&plan.template, &plan.container, id, &profile, &plan.name_prefix);
                objects.push(serde_json::to_value(pod).unwrap());
                objects.extend(executor::claims(&plan.claims, id).iter().map(|c| serde_json::to_value(c).unwrap()));
            }
            ("StatefulSet", Strategy::StatefulSet) => {
                let profile = told(plan, "0", &object["spec"]["template"]["spec"]);
                let mut template = executor::member(&plan.template, &plan.container, &profile, strategy);
                let claims = executor::claim_templates(&mut template, &plan.claims);
                objects.push(as_pod(&serde_json::to_value(template).unwrap()));
                objects.extend(claims.iter().map(|claim| serde_json::to_value(claim).unwrap()));
            }
            _ => {}
        }
    }
    objects.extend(plan.config_map.as_ref().map(|map| serde_json::to_value(map).unwrap()));
    normalize::objects(&objects, &inputs())
}

fn as_pod(template: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"], "spec": template["spec"]})
}

/// The captured objects that a plan covers: of a StatefulSet its templates, not the pods and claims its controller created.
fn theirs(strategy: Strategy, captured: &[Value]) -> Vec<Value> {
    let of_controller = |kind: &Value| strategy != Strategy::Pods && (kind == "Pod" || kind == "PersistentVolumeClaim");
    let mut objects = Vec::new();
    for object in captured.iter().filter(|object| !of_controller(&object["kind"])) {
        if object["kind"] == "StatefulSet" {
            objects.push(as_pod(&object["spec"]["template"]));
            objects.extend(object["spec"]["volumeClaimTemplates"].as_array().into_iter().flatten().cloned());
        } else {
            objects.push(object.clone());
        }
    }
    for object in &mut objects {
        // The creator of the executors decides their owner.
        object["metadata"].as_object_mut().unwrap().remove("ownerReferences");
    }
    normalize::golden(&objects)
}

#[test]
fn every_golden_executor_is_planned_as_spark_makes_it() {
    let cases = cases();
    let mut wrong = Vec::new();
    for (version, name, case) in &cases {
        let captured = case["objects"].as_array().unwrap();
        let difference = match planned(version, case) {
            Ok((plan, strategy)) => normalize::diff(&theirs(strategy, captured), &ours(&plan, strategy, captured)),
            Err(refusal) => Some(format!("Spark takes it, we refuse: {refusal}")),
        };
        wrong.extend(difference.map(|difference| format!("== {version}/{name}\n{difference}")));
    }
    assert!(cases.len() >= 150, "only {} cases found", cases.len());
    assert!(wrong.is_empty(), "{} of {} cases differ:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

/// The JVM options and the driver's port in a pod, with the application's id and the executor's as the captures have them.
fn startup(pod: &Value, container: &str, app_id: &str) -> (Vec<String>, String) {
    let containers = pod["spec"]["containers"].as_array().unwrap();
    let spark = containers.iter().find(|c| c["name"] == json!(container)).unwrap();
    let variables = spark["env"].as_array().unwrap().iter();
    let recorded = |text: &str| text.replace(app_id, "<APP_ID>").replace(&inputs(), "<INPUTS>");
    let literal = |v: &Value| Some((v["name"].as_str()?.to_owned(), recorded(v["value"].as_str()?)));
    let (mut options, mut port) = (Vec::new(), String::new());
    for (name, value) in variables.filter_map(literal) {
        if name.starts_with("SPARK_JAVA_OPT_") {
            options.push(value);
        } else if name == "SPARK_DRIVER_URL" {
            port = value.rsplit(':').next().unwrap().to_owned();
        }
    }
    options.sort();
    (options, port)
}

#[test]
fn every_golden_executor_is_forecast_as_its_driver_reports_it() {
    let mut compared = 0;
    // Older captures ran in client mode, where ports are random.
    for (version, name, case) in cases().into_iter().filter(|(_, _, case)| case["argv"].is_array()) {
        let (plan, strategy) = planned(&version, &case).unwrap();
        let pods = case["objects"].as_array().unwrap().iter().filter(|object| object["kind"] == "Pod");
        let default = |pod: &&Value| pod["metadata"]["labels"]["spark-exec-resourceprofile-id"] == "0";
        let Some(captured) = pods.filter(default).find(|_| strategy == Strategy::Pods) else { continue };
        let Some(forecast) = &plan.forecast else {
            // The driver's own address is set for executors, and it is known to the running driver only.
            assert!(name.contains("driver-pod-ip"), "{version}/{name} has no forecast");
            continue;
        };
        let id = captured["metadata"]["labels"]["spark-exec-id"].as_str().unwrap();
        let ours = executor::executor(&plan.template, &plan.container, id, forecast, &plan.name_prefix);
        let app_id = &plan.template.metadata.labels.as_ref().unwrap()["spark-app-selector"];
        let ours = startup(&serde_json::to_value(ours).unwrap(), &plan.container, app_id);
        assert_eq!(ours, startup(captured, &plan.container, app_id), "{version}/{name}");
        compared += 1;
    }
    assert!(compared >= 150, "only {compared} executors compared");
}
