//! `firesteel setup`.

use std::process::Command;

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
fn drivers_without_rights_on_pods_can_have_a_policy_that_keeps_them_apart() {
    let outside = ["setup", "-n", "etl", "-o", "json", "--executors-outside"];
    let kinds = |more: &[&str]| {
        let ran = firesteel(outside.iter().chain(more)).run();
        let list: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
        let items = list["items"].as_array().expect("items").clone();
        items.iter().map(|item| item["kind"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    let usual = ["ServiceAccount", "Role", "RoleBinding"];
    assert_eq!(kinds(&[]), usual);
    let policy = ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"];
    assert_eq!(kinds(&["--admission-policy"]), [&usual[..], &policy].concat());
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
async fn without_rights_or_namespace_it_says_so() {
    let Some(place) = Place::new("setupno").await else { return };
    let powerless = place.namespace.powerless("nobody").await;
    let ran = firesteel(["setup", "-n", place.name(), "--apply"]).kubeconfig(powerless.path()).run();
    let start =
        format!("firesteel: you may not set up namespace {}: let an administrator run this command", place.name());
    assert!(ran.refusal().starts_with(&start), "{ran:?}");
    let ran = firesteel(["setup", "-n", "no-such-namespace", "--apply"]).kubeconfig(place.env.kubeconfig()).run();
    assert!(ran.refusal().contains("there is no namespace no-such-namespace"), "{ran:?}");
}
