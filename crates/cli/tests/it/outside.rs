//! Submissions with executors outside the driver: what is created, and what is refused.

use serde_json::{Value, json};

use crate::place::Place;
use crate::program::{Run as _, finish, firesteel, pi};

const ALLOCATOR: &str = "spark.kubernetes.allocation.pods.allocator";

fn items(conf: &[(&str, &str)]) -> Vec<Value> {
    let mut arguments = pi("k8s://https://192.0.2.1:6443", conf);
    arguments.splice(1..1, ["--dry-run", "-o", "json"].map(str::to_owned));
    let ran = firesteel(arguments).run();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let list: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    list["items"].as_array().expect("items").clone()
}

fn of_kind<'a>(items: &'a [Value], kind: &str) -> Vec<&'a Value> {
    items.iter().filter(|item| item["kind"] == kind).collect()
}

#[test]
fn a_grant_holds_what_the_submitter_asked_for() {
    let items = items(&[(ALLOCATOR, "firesteel"), ("spark.executor.instances", "3"), ("spark.executor.cores", "2")]);
    let (grants, pods) = (of_kind(&items, "ExecutorGrant"), of_kind(&items, "Pod"));
    let (grant, pod) = (grants[0], pods[0]);
    assert_eq!(grant["metadata"]["name"], pod["metadata"]["name"]);
    let spec = &grant["spec"];
    assert_eq!(spec["driver"]["podName"], pod["metadata"]["name"]);
    assert_eq!(spec["maximum"]["executors"], 3);
    assert_eq!(spec["maximum"]["cores"], 6);
    assert_eq!(spec["maximum"]["memoryMiB"], 3 * 1408);
    assert_eq!(spec["failures"]["maximum"], 6);
    assert_eq!(spec["template"]["spec"]["restartPolicy"], "Never");
    // The jar is shipped in a ConfigMap, and the driver is configured to use it.
    let maps = of_kind(&items, "ConfigMap");
    let jar = maps.iter().find(|map| map["binaryData"]["firesteel-bridge.jar"].is_string()).expect("the bridge");
    let mounted = pod["spec"]["volumes"].as_array().expect("volumes").iter();
    assert!(mounted.clone().any(|volume| volume["configMap"]["name"] == jar["metadata"]["name"]));
    let properties = maps.iter().find_map(|map| map["data"]["spark.properties"].as_str()).expect("properties");
    for line in [
        "spark.kubernetes.allocation.pods.allocator=dev.firesteel.bridge.FiresteelAllocator",
        "spark.driver.extraClassPath=/opt/firesteel/bridge/firesteel-bridge.jar",
        "spark.kubernetes.executor.enableApiWatcher=false",
    ] {
        assert!(properties.contains(line), "{line} is not in {properties}");
    }
}

#[test]
fn a_grant_limits_named_resources_and_the_number_of_executors_ever_made() {
    let gpu = [
        (ALLOCATOR, "firesteel"),
        ("spark.executor.instances", "3"),
        ("spark.executor.resource.gpu.amount", "2"),
        ("spark.executor.resource.gpu.vendor", "nvidia.com"),
        ("spark.kubernetes.allocation.maximum", "40"),
    ];
    let maximum = |more: &[(&str, &str)]| {
        let items = items(&[&gpu, more].concat());
        of_kind(&items, "ExecutorGrant")[0]["spec"]["maximum"].clone()
    };
    let usual = maximum(&[]);
    assert_eq!((&usual["resources"], &usual["lifetime"]), (&json!({"nvidia.com/gpu": 6}), &json!(40)));
    let chosen = maximum(&[("spark.firesteel.executors.maxResources", "nvidia.com/gpu=8, example.com/fpga=1")]);
    assert_eq!(chosen["resources"], json!({"nvidia.com/gpu": 8, "example.com/fpga": 1}));
    let wrong = [(ALLOCATOR, "firesteel"), ("spark.firesteel.executors.maxResources", "gpu")];
    let ran = firesteel(pi("k8s://https://192.0.2.1:6443", &wrong)).run();
    assert!(ran.refusal().contains("write, for example, nvidia.com/gpu=8"), "{ran:?}");
}

#[test]
fn no_secret_stands_in_a_grant() {
    let items = items(&[
        (ALLOCATOR, "firesteel"),
        ("spark.authenticate", "true"),
        ("spark.authenticate.secret", "a-secret-of-mine"),
    ]);
    let secrets = of_kind(&items, "Secret");
    assert_eq!(secrets.len(), 1);
    let encoded = secrets[0]["data"]["secret"].as_str().expect("a value");
    for item in items.iter().filter(|item| item["kind"] != "Secret") {
        assert!(!item.to_string().contains("a-secret-of-mine") && !item.to_string().contains(encoded), "{item}");
    }
    let grant = of_kind(&items, "ExecutorGrant")[0].to_string();
    let name = secrets[0]["metadata"]["name"].as_str().expect("a name");
    assert!(grant.contains(name), "executors find it by its name");
}

#[test]
fn sets_are_granted_with_members_that_start_again() {
    for (value, strategy) in
        [("replicaset", "replicaset"), ("firesteel-replicaset", "replicaset"), ("firesteel-statefulset", "statefulset")]
    {
        let items = items(&[(ALLOCATOR, value)]);
        let grant = of_kind(&items, "ExecutorGrant")[0];
        assert_eq!(grant["spec"]["strategy"], strategy);
        assert_eq!(grant["spec"]["template"]["spec"]["restartPolicy"], "Always");
    }
}

#[test]
fn what_cannot_be_had_is_refused_before_anything_is_made() {
    let volume = "spark.kubernetes.executor.volumes.persistentVolumeClaim.spark-local-dir-1";
    let setting = |name: &str| format!("{volume}.{name}");
    let (claim, mount) = (setting("options.claimName"), setting("mount.path"));
    let (class, size) = (setting("options.storageClass"), setting("options.sizeLimit"));
    let with_claims = [
        (ALLOCATOR, "replicaset"),
        (claim.as_str(), "OnDemand"),
        (class.as_str(), "fast"),
        (size.as_str(), "1Gi"),
        (mount.as_str(), "/data"),
    ];
    let dynamic = [(ALLOCATOR, "firesteel-statefulset"), ("spark.dynamicAllocation.enabled", "true")];
    let template = tempfile::Builder::new().suffix(".yaml").tempfile().expect("a file");
    std::fs::write(template.path(), "metadata: {labels: {team: a}}\n").expect("written");
    let path = template.path().display().to_string();
    let without_spec = [(ALLOCATOR, "firesteel"), ("spark.kubernetes.executor.podTemplateFile", path.as_str())];
    let cases = [
        (&with_claims[..], "PersistentVolumeClaim"),
        (&dynamic[..], "firesteel-replicaset"),
        (&without_spec[..], "it has no spec"),
    ];
    for (conf, words) in cases {
        let ran = firesteel(pi("k8s://https://192.0.2.1:6443", conf)).run();
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.refusal().contains(words), "{ran:?}");
    }
}

#[tokio::test]
async fn without_an_operator_nothing_starts_and_nothing_is_left() {
    let Some(place) = Place::new("nobody").await else { return };
    place.install_crds();
    let child = place.submission(&[(ALLOCATOR, "firesteel")]).start();
    let ran = tokio::task::spawn_blocking(|| finish(child)).await.expect("it ends");
    assert_ne!(ran.code, Some(0), "{ran:?}");
    assert!(ran.last_words().contains("no Firesteel operator answered"), "{ran:?}");
    place.empties().await;
}
