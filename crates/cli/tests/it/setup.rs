//! `firesteel setup`.

use std::process::Command;
use std::time::Duration;

use firesteel_api::ExecutorGrant;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::Client;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::json;

use crate::place::Place;
use crate::program::{Run as _, firesteel};

#[test]
fn printed_manifests_are_exactly_what_drivers_need() {
    let ran = firesteel(["setup", "-n", "etl", "--service-account", "spark"]).run();
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    insta::assert_snapshot!(ran.stdout);
}

#[test]
fn json_is_one_list_and_extras_only_on_demand() {
    let ran = firesteel(["setup", "-n", "etl", "-o", "json", "--create-namespace", "--statefulset"]).run();
    let list: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let kinds: Vec<_> = list["items"].as_array().expect("items").iter().map(|item| item["kind"].clone()).collect();
    assert_eq!(kinds, ["Namespace", "ServiceAccount", "Role", "RoleBinding"]);
    assert!(ran.stdout.contains("statefulsets"));
}

#[test]
fn drivers_without_rights_on_pods_come_with_the_policy_that_keeps_them_apart() {
    let outside = ["setup", "-n", "etl", "-o", "json", "--executors-outside"];
    let kinds = |more: &[&str]| {
        let ran = firesteel(outside.iter().chain(more)).run();
        let list: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
        let items = list["items"].as_array().expect("items").clone();
        items.iter().map(|item| item["kind"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    let usual = ["ServiceAccount", "Role", "RoleBinding"];
    let policy = ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"];
    assert_eq!(kinds(&[]), [&usual[..], &policy].concat());
    assert_eq!(kinds(&["--without-admission-policy"]), usual);
}

#[test]
fn the_definitions_come_with_the_policy_too_unless_it_is_left_out() {
    let names = |more: &[&str]| firesteel(["crds", "-o", "name"].iter().chain(more)).run().stdout;
    let policy = "validatingadmissionpolicy.admissionregistration.k8s.io/firesteel-executor-grants\n\
                  validatingadmissionpolicybinding.admissionregistration.k8s.io/firesteel-executor-grants\n";
    let definitions = names(&["--without-admission-policy"]);
    assert!(definitions.contains("customresourcedefinition.apiextensions.k8s.io/executorgrants.firesteel.dev\n"));
    assert_eq!(names(&[]), format!("{definitions}{policy}"));
}

#[test]
fn wrong_names_are_refused() {
    let ran = firesteel(["setup", "-n", "Not_A_Name"]).run();
    assert!(ran.refusal().starts_with("firesteel: --namespace Not_A_Name: "), "{ran:?}");
}

#[tokio::test]
async fn applied_twice_it_gives_drivers_their_rights_and_no_others() {
    let Some(place) = Place::new("setup").await else { return };
    for _ in 0..2 {
        let ran = firesteel(["setup", "-n", place.name(), "--service-account", "etl", "--apply"])
            .kubeconfig(place.env.kubeconfig())
            .run();
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), ""), "{ran:?}");
    }
    let account = format!("system:serviceaccount:{}:etl", place.name());
    let may = |verb: &str, resource: &str| {
        let asked = Command::new(place.env.kubectl())
            .args(["auth", "can-i", verb, resource, "--as", &account, "-n", place.name()])
            .env("KUBECONFIG", place.env.kubeconfig())
            .output();
        asked.expect("kubectl runs").status.success()
    };
    for _ in 0..50 {
        if may("create", "pods") {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    for (verb, resource) in
        [("create", "pods"), ("deletecollection", "pods"), ("watch", "pods"), ("create", "configmaps")]
    {
        assert!(may(verb, resource), "{verb} {resource}");
    }
    for (verb, resource) in
        [("get", "secrets"), ("create", "services"), ("create", "statefulsets"), ("create", "rolebindings")]
    {
        assert!(!may(verb, resource), "{verb} {resource}");
    }
}

#[tokio::test]
async fn applied_it_keeps_drivers_of_one_account_from_each_others_executors() {
    let Some(place) = Place::new("setupapart").await else { return };
    place.install_crds();
    let words = ["setup", "-n", place.name(), "--service-account", "etl", "--executors-outside", "--apply"];
    // An up-to-date policy is not written again, so users who may only read it can set up namespaces, too.
    for words_of_it in [&["applied", "already exists"][..], &["already exists"]] {
        let ran = firesteel(words).kubeconfig(place.env.kubeconfig()).run();
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), ""), "{ran:?}");
        for kind in ["validatingadmissionpolicy", "validatingadmissionpolicybinding"] {
            let said = |words: &&str| ran.stderr.contains(&format!("{kind} firesteel-executor-grants {words}\n"));
            assert!(words_of_it.iter().any(said), "{ran:?}");
        }
    }
    let mut pods = Vec::new();
    for name in ["mine", "other"] {
        let container = json!({"name": "spark-kubernetes-driver", "image": "spark"});
        let spec = json!({"serviceAccountName": "etl", "nodeSelector": {"no": "where"}, "containers": [container]});
        place.create::<Pod>(json!({"metadata": {"name": name}, "spec": spec})).await;
        let pod = place.pods().get(name).await.expect("the pod");
        let grant = json!({
            "driver": {"podName": name, "podUid": pod.metadata.uid}, "appId": name, "strategy": "pods",
            "namePrefix": name, "container": "c", "template": {"spec": {"containers": [{"name": "c", "image": "spark"}]}},
            "maximum": {"executors": 1}, "failures": {"maximum": 1, "windowSeconds": 60},
        });
        let meta = json!({"name": name});
        place.create::<ExecutorGrant>(json!({"apiVersion": "firesteel.dev/v1alpha1", "kind": "ExecutorGrant", "metadata": meta, "spec": grant})).await;
        pods.push(pod);
    }
    let driver = place.namespace.kubeconfig_in(&pods[0], "etl").await.client().await;
    let anyone = place.namespace.kubeconfig_for("etl").await.client().await;
    let publish = async |client: &Client, grant: &str| {
        let grants: Api<ExecutorGrant> = Api::namespaced(client.clone(), place.name());
        let patch = Patch::Merge(json!({"status": {"lossSeen": 1}}));
        match grants.patch_status(grant, &PatchParams::default(), &patch).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) => Err(status.message),
            Err(other) => panic!("{other}"),
        }
    };
    // Role and policy take a moment to take effect.
    let refusal = "a driver may write the status of its own ExecutorGrant only";
    for _ in 0..300 {
        let (own, others) = (publish(&driver, "mine").await, publish(&driver, "other").await);
        if own.is_ok() && others.is_err() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    publish(&driver, "mine").await.expect("a driver may write its own grant");
    let refused = publish(&driver, "other").await.expect_err("but no other");
    assert!(refused.contains(refusal), "{refused}");
    let refused = publish(&anyone, "mine").await.expect_err("only the driver's pod may write it");
    assert!(refused.contains(refusal), "{refused}");
    let pods: Api<Pod> = Api::namespaced(driver, place.name());
    assert!(pods.list(&ListParams::default()).await.is_err(), "it has no pod permissions");
}

#[tokio::test]
async fn who_may_not_install_the_policy_hears_who_may_and_what_is_left_to_do() {
    let Some(place) = Place::new("setupadmin").await else { return };
    place.install_crds();
    // A namespace administrator without cluster-wide permissions.
    let rights = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    let metadata = json!({"name": "admin"});
    place.create::<Role>(json!({"metadata": metadata, "rules": rights})).await;
    let role_ref = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "admin"});
    let subjects = json!([{"kind": "ServiceAccount", "name": "admin", "namespace": place.name()}]);
    place.create::<RoleBinding>(json!({"metadata": metadata, "roleRef": role_ref, "subjects": subjects})).await;
    place.create::<ServiceAccount>(json!({"metadata": metadata})).await;
    let admin = place.namespace.kubeconfig_for("admin").await;
    let setup = |more: &[&str]| {
        let words = ["setup", "-n", place.name(), "--executors-outside", "--apply"];
        firesteel(words.iter().chain(more)).kubeconfig(admin.path()).run()
    };
    // The role takes a moment to take effect.
    for _ in 0..50 {
        if !setup(&[]).last_words().contains("you lack permission to set up namespace") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let ran = setup(&[]);
    let told = "you lack permission to install the cluster-wide admission policy firesteel-executor-grants: ask an administrator to run `firesteel crds | kubectl apply --server-side -f -`, or add --without-admission-policy";
    assert!(ran.code == Some(1) && ran.last_words().contains(told), "{ran:?}");
    assert!(ran.stderr.contains("rolebinding spark-driver applied"), "{ran:?}");
    let ran = setup(&["--without-admission-policy"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

#[tokio::test]
async fn without_rights_or_namespace_it_says_so() {
    let Some(place) = Place::new("setupno").await else { return };
    let powerless = place.namespace.powerless("nobody").await;
    let ran = firesteel(["setup", "-n", place.name(), "--apply"]).kubeconfig(powerless.path()).run();
    let start = format!(
        "firesteel: you lack permission to set up namespace {}: ask an administrator to run this command",
        place.name()
    );
    assert!(ran.refusal().starts_with(&start), "{ran:?}");
    let ran = firesteel(["setup", "-n", "no-such-namespace", "--apply"]).kubeconfig(place.env.kubeconfig()).run();
    assert!(ran.refusal().contains("there is no namespace no-such-namespace: add --create-namespace"), "{ran:?}");
}
