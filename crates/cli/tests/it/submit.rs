//! Submitting to a real API server.

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, ResourceQuota, Service};
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use serde_json::json;

use crate::place::{NO_WAIT, NOWHERE, Place, gates};
use crate::program::{Run as _, firesteel, pi};

#[tokio::test]
async fn objects_are_owned_by_the_driver_and_its_gate_is_lifted() {
    let Some(place) = Place::new("submit").await else { return };
    let ran = place.submission(&[NO_WAIT, NOWHERE]).run();
    assert_eq!(ran.code, Some(0), "{ran:?}");

    let pod = place.the_pod().await;
    assert_eq!(gates(&pod), [""; 0]);
    assert_eq!(ran.stdout, format!("{}:{}\n", place.name(), pod.name_any()));
    let status = format!("firesteel submit --status {}:{} --master {}", place.name(), pod.name_any(), place.master());
    assert_eq!(ran.last_words(), format!("Next: {status}"));
    let app = pod.labels()["spark-app-selector"].clone();
    assert!(ran.stderr.contains(&format!("Deployed Spark application pi with application ID {app} ")), "{ran:?}");

    let all = ListParams::default();
    let services: Api<Service> = Api::namespaced(place.client.clone(), place.name());
    let maps: Api<ConfigMap> = Api::namespaced(place.client.clone(), place.name());
    let services = services.list(&all).await.expect("services").items;
    let maps = maps.list(&all).await.expect("config maps").items;
    let map = maps.iter().find(|map| map.name_any().starts_with("spark-drv-")).expect("the driver's ConfigMap");
    assert_eq!(services.len(), 1);
    for owners in [services[0].owner_references(), map.owner_references()] {
        assert_eq!(owners.len(), 1);
        let owner = &owners[0];
        assert_eq!(
            (owner.api_version.as_str(), owner.kind.as_str(), owner.name.as_str()),
            ("v1", "Pod", &*pod.name_any())
        );
        assert_eq!(
            (Some(&owner.uid), owner.controller, owner.block_owner_deletion),
            (pod.uid().as_ref(), Some(true), None)
        );
    }
}

#[tokio::test]
async fn every_kind_of_object_is_created_and_owned() {
    let Some(place) = Place::new("kinds").await else { return };
    let volume = "spark.kubernetes.driver.volumes.persistentVolumeClaim.data";
    let volume_keys = ["mount.path", "options.claimName", "options.storageClass", "options.sizeLimit"];
    let volume_keys = volume_keys.map(|key| format!("{volume}.{key}"));
    let mut conf = vec![NO_WAIT, NOWHERE, ("spark.kubernetes.container.image", "apache/spark:4.2.0")];
    conf.push(("spark.kubernetes.authenticate.driver.oauthToken", "t"));
    conf.extend(volume_keys.iter().map(String::as_str).zip(["/data", "OnDemand", "fast", "1Gi"]));
    let ran = place.submission(&conf).run();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let kinds = "configmaps,services,secrets,persistentvolumeclaims,networkpolicies";
    let output = std::process::Command::new(place.env.kubectl())
        .args(["get", kinds, "-n", place.name(), "-o", "json"])
        .env("KUBECONFIG", place.env.kubeconfig())
        .output()
        .expect("kubectl runs");
    let list: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let uid = place.the_pod().await.uid().expect("a uid");
    let items = list["items"].as_array().expect("items").iter();
    let owned = items.filter(|item| item["metadata"]["ownerReferences"][0]["uid"] == uid.as_str());
    let mut kinds: Vec<_> = owned.map(|item| item["kind"].as_str().expect("a kind")).collect();
    kinds.sort_unstable();
    assert_eq!(kinds, ["ConfigMap", "NetworkPolicy", "PersistentVolumeClaim", "Secret", "Service"]);
}

#[tokio::test]
async fn gate_of_somebody_else_stays() {
    let Some(place) = Place::new("gates").await else { return };
    let template = tempfile::Builder::new().suffix(".yaml").tempfile().expect("a file");
    std::fs::write(template.path(), "spec:\n  schedulingGates:\n  - name: example.com/hold\n").expect("written");
    let path = template.path().display().to_string();
    let ran = place.submission(&[NO_WAIT, ("spark.kubernetes.driver.podTemplateFile", &path)]).run();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(gates(&place.the_pod().await), ["example.com/hold"]);
}

#[tokio::test]
async fn volume_claim_that_exists_is_used_and_stays_whose_it_was() {
    let Some(place) = Place::new("claim").await else { return };
    let spec = json!({ "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } });
    place.create::<PersistentVolumeClaim>(json!({ "metadata": { "name": "mine" }, "spec": spec })).await;
    let volume = "spark.kubernetes.driver.volumes.persistentVolumeClaim.data";
    let keys = ["mount.path", "options.claimName", "options.storageClass", "options.sizeLimit"];
    let keys = keys.map(|key| format!("{volume}.{key}"));
    let mut conf = vec![NO_WAIT, NOWHERE];
    conf.extend(keys.iter().map(String::as_str).zip(["/data", "mine", "fast", "1Gi"]));
    let ran = place.submission(&conf).run();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(place.client.clone(), place.name());
    assert_eq!(claims.get("mine").await.expect("the claim").owner_references(), []);
}

#[tokio::test]
async fn node_in_the_template_means_no_gate() {
    let Some(place) = Place::new("placed").await else { return };
    let template = tempfile::Builder::new().suffix(".yaml").tempfile().expect("a file");
    std::fs::write(template.path(), "spec:\n  nodeName: no-such-node\n").expect("written");
    let path = template.path().display().to_string();
    let ran = place.submission(&[NO_WAIT, ("spark.kubernetes.driver.podTemplateFile", &path)]).run();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(place.contents().await.len(), 3);
}

#[tokio::test]
async fn scheduler_that_ignores_gates_means_no_gate_and_no_patch() {
    let Some(place) = Place::new("volcano").await else { return };
    // Without permission to patch, a gate would have caused the warning about Spark's order.
    let limited = place.limited(&["pods", "services", "configmaps"], &["create", "get", "delete"]).await;
    let conf = [NO_WAIT, ("spark.kubernetes.driver.scheduler.name", "volcano")];
    let ran = place.submission(&conf).kubeconfig(limited.path()).run();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(!ran.stderr.contains("Warning"), "{ran:?}");
    assert_eq!(place.contents().await.len(), 3);
}

#[tokio::test]
async fn without_the_right_to_patch_pods_it_goes_in_sparks_order() {
    let Some(place) = Place::new("nopatch").await else { return };
    let limited = place.limited(&["pods", "services", "configmaps"], &["create", "get", "delete"]).await;
    let ran = place.submission(&[NO_WAIT, NOWHERE]).kubeconfig(limited.path()).run();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stderr.contains("Warning: patching pods is forbidden"), "{ran:?}");
    let pod = place.the_pod().await;
    assert_eq!(gates(&pod), [""; 0]);
    assert_eq!(place.contents().await.len(), 3);
    let services: Api<Service> = Api::namespaced(place.client.clone(), place.name());
    let service = services.list(&ListParams::default()).await.expect("services").items.remove(0);
    assert_eq!(Some(&service.owner_references()[0].uid), pod.uid().as_ref());
}

#[tokio::test]
async fn pod_of_the_same_name_is_left_alone_and_named() {
    let Some(place) = Place::new("conflict").await else { return };
    let conf = [NO_WAIT, NOWHERE, ("spark.kubernetes.driver.pod.name", "mine")];
    assert_eq!(place.submission(&conf).run().code, Some(0));
    let (before, first) = (place.contents().await, place.the_pod().await);
    let ran = place.submission(&conf).run();
    let app = &first.labels()["spark-app-selector"];
    let here = place.name();
    assert_eq!(
        ran.refusal(),
        format!(
            "firesteel: pod {here}/mine already exists: it is the driver of application {app} (Pending); remove it with `firesteel submit --kill {here}:mine --master …`, or choose another spark.kubernetes.driver.pod.name"
        )
    );
    assert_eq!(place.contents().await, before);
    assert_eq!(place.the_pod().await.uid(), first.uid());
}

#[tokio::test]
async fn pod_that_is_no_driver_is_named_too() {
    let Some(place) = Place::new("stranger").await else { return };
    let spec = json!({ "containers": [{ "name": "c", "image": "i" }], "nodeSelector": { "test": "nowhere" } });
    place.create::<Pod>(json!({ "metadata": { "name": "mine" }, "spec": spec })).await;
    let ran = place.submission(&[NO_WAIT, ("spark.kubernetes.driver.pod.name", "mine")]).run();
    let here = place.name();
    assert!(ran.refusal().contains(&format!("pod {here}/mine already exists and is not a Spark driver")), "{ran:?}");
    assert_eq!(place.contents().await, ["pod/mine"]);
}

#[tokio::test]
async fn forbidden_names_the_setup_command_and_leaves_nothing() {
    let Some(place) = Place::new("forbidden").await else { return };
    let powerless = place.namespace.powerless("nobody").await;
    let ran = place.submission(&[NO_WAIT]).kubeconfig(powerless.path()).run();
    let here = place.name();
    assert_eq!(
        ran.refusal(),
        format!(
            "firesteel: system:serviceaccount:{here}:nobody may not create pods in namespace {here}: `firesteel setup -n {here}` prints the permissions needed"
        )
    );
    assert_eq!(place.contents().await, [""; 0]);
}

#[tokio::test]
async fn forbidden_object_beside_the_pod_removes_the_pod_again() {
    let Some(place) = Place::new("noservice").await else { return };
    let limited = place.limited(&["pods", "configmaps"], &["create", "get", "delete", "patch"]).await;
    let ran = place.submission(&[NO_WAIT]).kubeconfig(limited.path()).run();
    assert!(ran.refusal().contains("may not create services in namespace"), "{ran:?}");
    place.empties().await;
}

#[tokio::test]
async fn what_may_not_be_removed_again_is_named() {
    let Some(place) = Place::new("nodelete").await else { return };
    let limited = place.limited(&["pods", "configmaps"], &["create", "get"]).await;
    let ran = place.submission(&[NO_WAIT]).kubeconfig(limited.path()).run();
    assert!(ran.refusal().contains("what was created could not be removed: pod pi-"), "{ran:?}");
    assert!(ran.refusal().contains("kubectl delete pod -n"), "{ran:?}");
    assert_eq!(gates(&place.the_pod().await), ["firesteel.dev/objects"]);
}

#[tokio::test]
async fn missing_namespace_is_named() {
    let Some(place) = Place::new("missing").await else { return };
    let arguments = pi(&place.master(), &[NO_WAIT, ("spark.kubernetes.namespace", "no-such-namespace")]);
    let ran = firesteel(arguments).kubeconfig(place.env.kubeconfig()).run();
    assert_eq!(
        ran.refusal(),
        "firesteel: there is no namespace no-such-namespace: create it with `firesteel setup -n no-such-namespace --create-namespace --apply`, or name another with spark.kubernetes.namespace"
    );
}

#[tokio::test]
async fn missing_service_account_names_the_setup_command() {
    let Some(place) = Place::new("account").await else { return };
    let ran = place.submission(&[NO_WAIT, ("spark.kubernetes.authenticate.driver.serviceAccountName", "etl")]).run();
    let here = place.name();
    assert!(ran.refusal().contains(&format!("`firesteel setup -n {here} --service-account etl --apply`")), "{ran:?}");
    assert_eq!(place.contents().await, [""; 0]);
}

#[tokio::test]
async fn quota_is_told_in_its_own_words_and_leaves_nothing() {
    for (kind, hard) in [("pod", json!({ "pods": "0" })), ("service", json!({ "services": "0" }))] {
        let Some(place) = Place::new("quota").await else { return };
        place.create::<ResourceQuota>(json!({ "metadata": { "name": "tight" }, "spec": { "hard": hard } })).await;
        // A quota takes effect once its controller has processed it.
        let quotas: Api<ResourceQuota> = Api::namespaced(place.client.clone(), place.name());
        for _ in 0..100 {
            let status = quotas.get("tight").await.expect("the quota").status;
            if status.is_some_and(|status| status.hard.is_some()) {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        let ran = place.submission(&[NO_WAIT]).run();
        let line = ran.refusal();
        assert!(line.starts_with(&format!("firesteel: {kind} ")), "{line}");
        assert!(line.contains("exceeded quota: tight") && line.contains("have the quota raised"), "{line}");
        place.empties().await;
    }
}

#[tokio::test]
async fn invalid_object_is_refused_by_the_server_in_one_line() {
    let Some(place) = Place::new("invalid").await else { return };
    let template = tempfile::Builder::new().suffix(".yaml").tempfile().expect("a file");
    std::fs::write(template.path(), "spec:\n  dnsPolicy: Sometimes\n").expect("written");
    let path = template.path().display().to_string();
    let ran = place.submission(&[NO_WAIT, ("spark.kubernetes.driver.podTemplateFile", &path)]).run();
    assert!(ran.refusal().contains(" is not valid: ") && ran.refusal().contains("dnsPolicy"), "{ran:?}");
    assert_eq!(place.contents().await, [""; 0]);
}
