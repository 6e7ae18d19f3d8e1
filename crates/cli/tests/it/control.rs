//! `--status` and `--kill` on a real API server.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::place::{NO_WAIT, NOWHERE, Place};
use crate::program::{Run as _, firesteel};

async fn driver(place: &Place, name: &str) {
    let ran = place.submission(&[NO_WAIT, NOWHERE, ("spark.kubernetes.driver.pod.name", name)]).run();
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

#[tokio::test]
async fn status_tells_the_fields_of_the_driver() {
    let Some(place) = Place::new("status").await else { return };
    driver(&place, "one").await;
    let ran = place.control("--status", &format!("{}:one", place.name()));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let pod = place.the_pod().await;
    for line in [
        "Application status (driver):".to_owned(),
        "\t pod name: one".to_owned(),
        format!("\t namespace: {}", place.name()),
        format!("\t pod uid: {}", pod.uid().expect("a uid")),
        "\t service account name: default".to_owned(),
        "\t node name: N/A".to_owned(),
        "\t phase: Pending".to_owned(),
        "\t container status: N/A".to_owned(),
    ] {
        assert!(ran.stdout.lines().any(|told| told == line), "{line:?} is missing in {}", ran.stdout);
    }
    assert_eq!(ran.stderr, "");
}

#[tokio::test]
async fn status_as_json_is_the_pod_and_of_a_glob_a_list() {
    let Some(place) = Place::new("statusjson").await else { return };
    driver(&place, "one").await;
    driver(&place, "two").await;
    let read = |id: &str| -> Value {
        let id = format!("{}:{id}", place.name());
        let arguments = ["submit", "--status", &id, "--master", &place.master(), "-o", "json"];
        let ran = firesteel(arguments).kubeconfig(place.env.kubeconfig()).run();
        serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
    };
    assert_eq!(read("one")["metadata"]["name"], "one");
    let list = read("*");
    assert_eq!((list["kind"].as_str(), list["items"].as_array().map(Vec::len)), (Some("List"), Some(2)));
}

#[tokio::test]
async fn kill_removes_the_driver_and_what_it_owns() {
    let Some(place) = Place::new("kill").await else { return };
    driver(&place, "one").await;
    let ran = place.control("--kill", &format!("{}:one", place.name()));
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), ""), "{ran:?}");
    assert!(ran.stderr.starts_with(&format!("Killed {}:one (application spark-", place.name())), "{ran:?}");
    place.empties().await;
}

#[tokio::test]
async fn glob_kills_the_drivers_it_covers_and_no_other_pod() {
    let Some(place) = Place::new("glob").await else { return };
    for name in ["etl-1", "etl-2", "other"] {
        driver(&place, name).await;
    }
    let spec = json!({ "containers": [{ "name": "c", "image": "i" }], "nodeSelector": { "test": "nowhere" } });
    place.create::<Pod>(json!({ "metadata": { "name": "etl-not-spark" }, "spec": spec })).await;
    let ran = place.control("--kill", &format!("{}:etl-*", place.name()));
    assert_eq!((ran.code, ran.stderr.lines().count()), (Some(0), 2), "{ran:?}");
    let pods = place.pods().list(&Default::default()).await.expect("pods").items;
    let left: Vec<_> =
        pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).map(ResourceExt::name_any).collect();
    assert_eq!(left, ["etl-not-spark", "other"]);
    let ran = place.control("--kill", &format!("{}:etl-not-spark", place.name()));
    assert!(ran.refusal().contains("is not a Spark driver"), "{ran:?}");
}

#[tokio::test]
async fn absent_driver_is_a_failure_that_says_so() {
    let Some(place) = Place::new("absent").await else { return };
    let here = place.name();
    for verb in ["--status", "--kill"] {
        let ran = place.control(verb, &format!("{here}:no-such"));
        assert_eq!(ran.refusal(), format!("firesteel: Application not found: there is no driver pod {here}/no-such"));
        let ran = place.control(verb, &format!("{here}:no-such*"));
        let expected = format!("firesteel: No applications found: namespace {here} has no driver pod no-such*");
        assert_eq!(ran.refusal(), expected);
    }
}

#[tokio::test]
async fn id_without_namespace_means_that_of_the_kubeconfig() {
    let Some(place) = Place::new("context").await else { return };
    driver(&place, "one").await;
    let limited = place.limited(&["pods"], &["get", "delete"]).await;
    let arguments = ["submit", "--kill", "one", "--master", &place.master()];
    let ran = firesteel(arguments).kubeconfig(limited.path()).run();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    place.empties().await;
}
