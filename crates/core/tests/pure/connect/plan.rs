//! The objects of one server.

use firesteel_api::validate::Problem;
use firesteel_core::connect::application::{fingerprint, problems};
use firesteel_core::connect::plan::{Plan, plan};
use firesteel_core::run::Attempt;
use firesteel_spark::driver::Object;
use k8s_openapi::api::core::v1::{Container, Service};
use serde_json::{Value, json};

use super::{at, spec, with_subject};

fn try_plan(patch: &Value) -> Result<Plan, Problem> {
    let created = at(1_700_000_000);
    let attempt = Attempt { number: 3, generation: 7, created, now: created, nonce: 7 };
    with_subject(&spec(patch), |subject| plan(subject, attempt, "https://kubernetes.default.svc"))
}

fn planned(patch: &Value) -> Plan {
    try_plan(patch).unwrap()
}

fn server(plan: &Plan) -> &Container {
    let containers = &plan.run.pod.spec.as_ref().unwrap().containers;
    containers.iter().find(|c| c.startup_probe.is_some()).unwrap()
}

fn properties(plan: &Plan) -> String {
    let maps = plan.run.objects.iter().filter_map(|object| match object {
        Object::ConfigMap(map) => map.data.as_ref(),
        _ => None,
    });
    maps.filter_map(|data| data.get("spark.properties").cloned()).next().unwrap()
}

fn headless(plan: &Plan) -> &Service {
    let mut services = plan.run.objects.iter().filter_map(|object| match object {
        Object::Service(service) => Some(service),
        _ => None,
    });
    services.next_back().unwrap()
}

/// Everything but the jar of the bridge.
fn yaml(plan: &Plan) -> String {
    let mut values = vec![serde_json::to_value(&plan.run.pod).unwrap(), serde_json::to_value(&plan.service).unwrap()];
    values.extend(plan.run.objects.iter().map(|object| object.to_value().unwrap()));
    values.extend(plan.run.grant.iter().map(|grant| serde_json::to_value(grant).unwrap()));
    for value in &mut values {
        if let Some(binary) = value.get_mut("binaryData") {
            *binary = json!("…");
        }
    }
    serde_json::to_string_pretty(&values).unwrap()
}

#[test]
fn a_server_is_a_driver_with_a_role_probes_and_a_service() {
    insta::assert_snapshot!(yaml(&planned(&json!({}))));
}

#[test]
fn with_our_allocator_a_server_has_a_grant_and_no_pod_permissions() {
    let conf = json!({"spark.kubernetes.allocation.pods.allocator": "firesteel"});
    let dynamic = json!({"enabled": true, "minExecutors": 0, "maxExecutors": 5});
    let plan = planned(&json!({"sparkConf": conf, "executor": {"instances": 0}, "dynamicAllocation": dynamic}));
    let grant = plan.run.grant.as_ref().unwrap();
    assert_eq!(grant.metadata.name.as_deref(), Some("lab-server"));
    assert_eq!(grant.spec.maximum.executors, Some(5));
    assert!(grant.spec.dynamic);
    assert_eq!(grant.spec.driver.submission_id.as_deref(), Some(plan.run.submission_id.as_str()));
    let labels = grant.spec.template.metadata.as_ref().unwrap().labels.as_ref().unwrap();
    assert_eq!(labels["sparkoperator.k8s.io/connect-name"], "lab");
    insta::assert_snapshot!(yaml(&plan));
}

#[test]
fn nothing_of_a_server_looks_like_an_application() {
    let plan = planned(&json!({}));
    let text = yaml(&plan);
    assert!(!text.contains("sparkoperator.k8s.io/app-name"), "{text}");
    let owners = plan.run.pod.metadata.owner_references.as_ref().unwrap();
    assert_eq!((owners[0].kind.as_str(), owners[0].controller), ("SparkConnect", Some(true)));
    for object in &plan.run.objects {
        assert_eq!(object.metadata().owner_references.as_ref().unwrap()[0].uid, super::UID);
    }
}

#[test]
fn executors_find_a_server_that_is_not_ready_yet() {
    let plan = planned(&json!({}));
    let spec = headless(&plan).spec.as_ref().unwrap();
    assert_eq!(spec.publish_not_ready_addresses, Some(true));
    let labels = plan.run.pod.metadata.labels.as_ref().unwrap();
    for (name, value) in spec.selector.as_ref().unwrap() {
        assert_eq!(labels.get(name), Some(value), "{name}");
    }
    let name = headless(&plan).metadata.name.as_ref().unwrap();
    assert!(properties(&plan).contains(&format!("spark.driver.host={name}.jobs.svc")), "{}", properties(&plan));
}

#[test]
fn without_executors_queries_run_in_the_server_itself() {
    for patch in [
        json!({"executor": {"instances": 0}, "server": {"cores": 3}}),
        json!({"executor": {}, "sparkConf": {"spark.executor.instances": "0", "spark.driver.cores": "3"}}),
    ] {
        let plan = planned(&patch);
        let args = server(&plan).args.as_ref().unwrap();
        assert_eq!(args[..4], ["driver", "--master", "local[3]", "--properties-file"], "{args:?}");
        assert!(!properties(&plan).contains("spark.executor.instances"), "{}", properties(&plan));
    }
    // With dynamic allocation none is just the beginning.
    let plan = planned(&json!({"executor": {"instances": 0}, "dynamicAllocation": {"enabled": true}}));
    assert_eq!(server(&plan).args.as_ref().unwrap()[1], "--properties-file");
    // The allocator has nothing to do.
    let conf = json!({"spark.kubernetes.allocation.pods.allocator": "firesteel"});
    assert!(planned(&json!({"executor": {"instances": 0}, "sparkConf": conf})).run.grant.is_none());
}

#[test]
fn a_template_may_have_an_empty_list_of_containers() {
    let template = json!({"spec": {"containers": [], "serviceAccountName": "spark", "tolerations": [{"key": "a", "operator": "Exists"}]}});
    let plan = planned(&json!({"server": {"template": template}, "executor": {"instances": 1, "template": template}}));
    let spec = plan.run.pod.spec.as_ref().unwrap();
    assert_eq!(spec.containers.len(), 1);
    assert_eq!(spec.containers[0].name, "spark-kubernetes-driver");
    assert_eq!(spec.service_account_name.as_deref(), Some("spark"));
    assert_eq!(spec.tolerations.as_ref().unwrap().len(), 1);
}

#[test]
fn what_a_template_says_about_probes_image_and_resources_is_kept() {
    let container = json!({
        "name": "main", "image": "mine:4.1.4", "readinessProbe": {"grpc": {"port": 15002}},
        "resources": {"requests": {"cpu": "2"}, "limits": {"memory": "3Gi"}},
    });
    let template = json!({"spec": {"containers": [container]}});
    let plan = planned(&json!({"image": null, "server": {"template": template, "memory": "1g"},
        "executor": {"template": {"spec": {"containers": [{"name": "e", "image": "executors:4.1.4"}]}}}}));
    let server = server(&plan);
    assert_eq!((server.name.as_str(), server.image.as_deref()), ("main", Some("mine:4.1.4")));
    assert!(server.readiness_probe.as_ref().unwrap().grpc.is_some());
    let resources = serde_json::to_value(&server.resources).unwrap();
    assert_eq!(resources, json!({"requests": {"cpu": "2"}, "limits": {"memory": "3Gi"}}));
    assert!(properties(&plan).contains("spark.kubernetes.executor.container.image=executors\\:4.1.4"));
}

#[test]
fn the_version_comes_from_the_image_if_it_is_not_given() {
    let plan = planned(&json!({"sparkVersion": "", "image": "apache/spark:4.0.1"}));
    assert_eq!(plan.run.pod.metadata.labels.as_ref().unwrap()["spark-version"], "4.0.1");
    // Spark 4.0 does not open the port by itself.
    assert!(server(&plan).ports.as_ref().unwrap().iter().any(|p| p.container_port == 15002));
    let problem = try_plan(&json!({"sparkVersion": "", "image": "mine:latest"})).unwrap_err();
    assert_eq!(problem.path, "spec.sparkVersion");
}

#[test]
fn the_port_is_the_one_that_is_configured() {
    let plan = planned(&json!({"sparkConf": {"spark.connect.grpc.binding.port": "15009"}}));
    assert_eq!(plan.port, 15009);
    let port = |service: &Service| {
        let ports = service.spec.clone().unwrap().ports.unwrap();
        ports.into_iter().find(|p| p.name.as_deref() == Some("spark-connect-server")).unwrap().port
    };
    assert_eq!(port(&plan.service), 15009);
    let probe = server(&plan).startup_probe.clone().unwrap().tcp_socket.unwrap().port;
    assert_eq!(serde_json::to_value(probe).unwrap(), json!(15009));
}

#[test]
fn d20_a_service_in_the_specification_keeps_its_ports() {
    let service = json!({
        "metadata": {"name": "mine", "labels": {"a": "b"}, "annotations": {"c": "d"}},
        "spec": {"type": "LoadBalancer", "selector": {"app": "other"},
            "ports": [{"port": 443, "targetPort": 15002}, {"name": "web-ui", "port": 80, "targetPort": 4040}]},
    });
    let planned = planned(&json!({"server": {"service": service}}));
    let (meta, spec) = (&planned.service.metadata, planned.service.spec.as_ref().unwrap());
    assert_eq!(meta.name.as_deref(), Some("mine"));
    assert_eq!(meta.labels.as_ref().unwrap()["a"], "b");
    assert_eq!(meta.annotations.as_ref().unwrap()["c"], "d");
    assert_eq!(spec.type_.as_deref(), Some("LoadBalancer"));
    assert_eq!(spec.selector.as_ref().unwrap()["spark-role"], "connect-server");
    assert!(!spec.selector.as_ref().unwrap().contains_key("app"));
    let ports: Vec<_> = spec.ports.iter().flatten().map(|p| (p.name.clone().unwrap(), p.port)).collect();
    let named = |name: &str, port: i32| (name.to_owned(), port);
    assert_eq!(
        ports,
        [named("port-443", 443), named("web-ui", 80), named("driver-rpc", 7078), named("blockmanager", 7079)]
    );
}

#[test]
fn the_service_changes_without_a_new_server_and_everything_else_with_one() {
    let hash = |patch: Value| fingerprint(&spec(&patch));
    let first = hash(json!({}));
    assert_eq!(first, hash(json!({"server": {"service": {"metadata": {"name": "other"}}}})));
    assert_eq!(first, hash(json!({"server": {"template": null}, "hadoopConf": {}})));
    for patch in [
        json!({"image": "apache/spark:4.1.3"}),
        json!({"sparkConf": {"a": "b"}}),
        json!({"server": {"memory": "2g"}}),
        json!({"executor": {"instances": 3}}),
        json!({"executor": {"instances": 0}}),
        json!({"dynamicAllocation": {"enabled": true}}),
        json!({"server": {"template": {"spec": {"containers": [], "priorityClassName": "high"}}}}),
    ] {
        assert_ne!(first, hash(patch.clone()), "{patch}");
    }
    assert_ne!(hash(json!({"executor": {"instances": 0}})), hash(json!({"executor": {"instances": 1}})));
}

#[test]
fn what_a_person_reads_about_a_bad_specification() {
    let mut text = String::new();
    for patch in [
        json!({"image": null}),
        json!({"sparkVersion": "four"}),
        json!({"server": {"memory": "lots"}}),
        json!({"executor": {"instances": -1}}),
        json!({"server": {"cores": 0}}),
        json!({"dynamicAllocation": {"enabled": true, "minExecutors": 5, "maxExecutors": 2}}),
        json!({"sparkConf": {"spark.connect.grpc.binding.port": "0"}}),
        json!({"sparkConf": {"spark.master": "local"}}),
        json!({"sparkConf": {"spark.kubernetes.authenticate.driver.serviceAccountName": "me"}}),
        json!({"sparkConf": {"spark.driver.memoryOverhead": "some"}}),
        json!({"sparkConf": {"spark.jars": "/home/me/a.jar"}}),
        json!({"server": {"service": {"spec": {"type": "ExternalName", "externalName": "a.b"}}}}),
    ] {
        let found = with_subject(&spec(&patch), problems);
        let found: Vec<String> = match found.is_empty() {
            true => vec![try_plan(&patch).err().map_or_else(|| "nothing".to_owned(), |p| p.to_string())],
            false => found.iter().map(ToString::to_string).collect(),
        };
        text += &format!("{patch}\n  {}\n", found.join("\n  "));
    }
    assert!(!text.contains("spec.driver"), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn a_name_leaves_room_for_that_of_the_service() {
    let labels = std::collections::BTreeMap::new();
    let spec = spec(&json!({}));
    let of = |name: &str| {
        let subject = firesteel_core::connect::Subject { name, namespace: "n", uid: "u", labels: &labels, spec: &spec };
        problems(&subject).into_iter().map(|p| p.to_string()).collect::<Vec<_>>()
    };
    assert!(of(&"a".repeat(56)).is_empty());
    assert!(of(&"a".repeat(57))[0].contains("longer than 56 characters"));
    assert!(of("Lab")[0].starts_with("metadata.name: "));
}
