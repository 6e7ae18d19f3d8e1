//! What may be stored, and what fits the quotas of a namespace.

use firesteel_api::validate::Problem;
use firesteel_core::admission::{Answer, Kind, Question, Settings, review, sentence};
use firesteel_core::footprint::Footprint;
use firesteel_core::quota::{self, Against, Namespace};
use firesteel_core::run::RunSettings;
use firesteel_core::schedule::Zones;
use jiff::Timestamp;
use serde_json::{Value, json};

fn merge(target: &mut Value, patch: &Value) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            for (name, value) in patch {
                if value.is_null() {
                    target.remove(name);
                } else {
                    merge(target.entry(name.clone()).or_insert(Value::Null), value);
                }
            }
        }
        (target, patch) => *target = patch.clone(),
    }
}

fn application(patch: &Value) -> Value {
    let mut spec = json!({
        "type": "Scala", "sparkVersion": "4.1.4", "image": "apache/spark:4.1.4", "mainClass": "org.example.Main",
        "mainApplicationFile": "local:///opt/app.jar", "driver": {}, "executor": {"instances": 2},
    });
    merge(&mut spec, patch);
    spec
}

fn schedule(patch: &Value) -> Value {
    let mut spec = json!({"schedule": "@daily", "template": application(&json!({}))});
    merge(&mut spec, patch);
    spec
}

fn connect(patch: &Value) -> Value {
    let mut spec = json!({
        "sparkVersion": "4.1.4", "image": "apache/spark:4.1.4", "server": {}, "executor": {"instances": 2},
    });
    merge(&mut spec, patch);
    spec
}

fn ask_about(kind: Kind, name: &str, spec: &Value, old: Option<&Value>) -> Answer {
    let object = json!({"metadata": {"name": name, "namespace": "team", "uid": "u"}, "spec": spec});
    let old = old.map(|spec| json!({"metadata": {"name": name}, "spec": spec}));
    let question = Question { kind, name, namespace: "team", object: &object, old: old.as_ref() };
    let (runs, zones) = (RunSettings::default(), Zones::bundled());
    review(&question, &Settings { runs: &runs, zones: &zones, now: Timestamp::UNIX_EPOCH })
}

fn ask(kind: Kind, spec: &Value) -> Answer {
    ask_about(kind, "pi", spec, None)
}

fn refused(kind: Kind, spec: &Value) -> Vec<String> {
    match ask(kind, spec) {
        Answer::Refused(problems) => problems.iter().map(ToString::to_string).collect(),
        Answer::Allowed { .. } => Vec::new(),
    }
}

#[test]
fn good_objects_of_every_kind_are_allowed_without_a_word() {
    for (kind, spec) in [
        (Kind::Application, application(&json!({}))),
        (Kind::Schedule, schedule(&json!({"timeZone": "Europe/Berlin"}))),
        (Kind::Connect, connect(&json!({"server": {"service": {"spec": {"type": "NodePort"}}}}))),
    ] {
        let Answer::Allowed { warnings, needs } = ask(kind, &spec) else { panic!("{kind:?}: {:?}", ask(kind, &spec)) };
        assert_eq!((warnings.len(), needs.is_some()), (0, true), "{kind:?}: {warnings:?}");
    }
}

#[test]
fn what_cannot_work_is_refused_with_its_field() {
    let template = |container: Value| json!({"spec": {"containers": [{"name": "spark-kubernetes-driver"}, container]}});
    let cases = [
        (Kind::Application, json!({"type": "Cobol"}), "spec.type"),
        (Kind::Application, json!({"sparkConf": {"spark.master": "x"}}), "spec.sparkConf[spark.master]"),
        (
            Kind::Application,
            json!({"sparkConf": {"spark.kubernetes.namespace": "other"}}),
            "spec.sparkConf[spark.kubernetes.namespace]",
        ),
        (
            Kind::Application,
            json!({"driver": {"template": {"spec": {"containers": [{"name": "a", "image": 3}]}}}}),
            "spec.driver.template.spec.containers[0].image",
        ),
        (
            Kind::Application,
            json!({"driver": {"template": template(json!({"name": "log"}))}}),
            "spec.driver.template.spec.containers[1].image",
        ),
        (
            Kind::Application,
            json!({"driver": {"template": template(json!({"name": "log", "image": "i", "volumeMounts": [
                {"name": "nowhere", "mountPath": "/x"}]}))}}),
            "spec.driver.template.spec.containers[1].volumeMounts[0].name",
        ),
        (
            Kind::Application,
            json!({"executor": {"sidecars": [{"name": "log", "image": "i", "volumeMounts": [
                {"name": "nowhere", "mountPath": "/x"}]}]}}),
            "spec.executor.sidecars[0].volumeMounts[0].name",
        ),
        (Kind::Application, json!({"driver": {"sidecars": [{"name": "a"}]}}), "spec.driver.sidecars[0].image"),
        (
            Kind::Application,
            json!({"executor": {"sidecars": [{"name": "spark-kubernetes-executor", "image": "i"}]}}),
            "spec.executor.sidecars[0].name",
        ),
        (Kind::Application, json!({"volumes": [{"name": "V"}]}), "spec.volumes[0].name"),
        (
            Kind::Application,
            json!({"driver": {"tolerations": [{"value": "x"}]}}),
            "spec.driver.tolerations[0].operator",
        ),
        (Kind::Application, json!({"driver": {"labels": {"a": "not a label"}}}), "spec.driver.labels[a]"),
        (
            Kind::Application,
            json!({"driverIngressOptions": [
                {"servicePort": 80, "servicePortName": "a", "ingressURLFormat": "a"},
                {"servicePort": 80, "servicePortName": "b", "ingressURLFormat": "b"}]}),
            "spec.driverIngressOptions[1].servicePort",
        ),
        (Kind::Schedule, json!({"schedule": "61 * * * *"}), "spec.schedule"),
        (Kind::Schedule, json!({"timeZone": "Europe/Atlantis"}), "spec.timeZone"),
        (Kind::Schedule, json!({"template": {"sparkVersion": "two"}}), "spec.template.sparkVersion"),
        (
            Kind::Schedule,
            json!({"template": {"driver": {"template": {"spec": {"containers": [{"image": 3}]}}}}}),
            "spec.template.driver.template.spec.containers[0].image",
        ),
        (
            Kind::Schedule,
            json!({"template": {"driver": {"labels": {"a": "not a label"}}}}),
            "spec.template.driver.labels[a]",
        ),
        (Kind::Connect, json!({"server": {"memory": "lots"}}), "spec.server.memory"),
        (Kind::Connect, json!({"sparkConf": {"spark.master": "x"}}), "spec.sparkConf[spark.master]"),
        (
            Kind::Connect,
            json!({"server": {"template": {"spec": {"containers": [{"name": "a", "ports": "none"}]}}}}),
            "spec.server.template.spec.containers[0].ports",
        ),
        (
            Kind::Connect,
            json!({"executor": {"template": {"spec": {"containers": [{"name": "a"}, {"name": "b"}]}}}}),
            "spec.executor.template.spec.containers[1].image",
        ),
        (
            Kind::Connect,
            json!({"server": {"service": {"spec": {"ports": [{"port": 99999}]}}}}),
            "spec.server.service.spec.ports[0].port",
        ),
        (
            Kind::Connect,
            json!({"server": {"service": {"spec": {"type": "ExternalName"}}}}),
            "spec.server.service.spec.type",
        ),
    ];
    for (kind, patch, field) in cases {
        let spec = match kind {
            Kind::Application => application(&patch),
            Kind::Schedule => schedule(&patch),
            Kind::Connect => connect(&patch),
        };
        let found = refused(kind, &spec);
        assert!(found.len() == 1 && found[0].starts_with(&format!("{field}: ")), "{kind:?} {patch}: {found:?}");
    }
}

#[test]
fn names_are_checked() {
    let answer = ask_about(Kind::Application, "1pi", &application(&json!({})), None);
    assert!(matches!(&answer, Answer::Refused(problems) if problems[0].path == "metadata.name"), "{answer:?}");
    let long = "a".repeat(57);
    let answer = ask_about(Kind::Connect, &long, &connect(&json!({})), None);
    assert!(matches!(&answer, Answer::Refused(problems) if problems[0].path == "metadata.name"), "{answer:?}");
}

#[test]
fn edits_that_change_nothing_or_only_stop_are_always_allowed() {
    let bad = application(&json!({"type": "Cobol"}));
    let unasked = Answer::Allowed { warnings: Vec::new(), needs: None };
    assert_eq!(ask_about(Kind::Application, "pi", &bad, Some(&bad)), unasked);
    let stopped = application(&json!({"type": "Cobol", "suspend": true}));
    assert_eq!(ask_about(Kind::Application, "pi", &stopped, Some(&bad)), unasked);
    assert!(matches!(ask_about(Kind::Application, "pi", &bad, Some(&stopped)), Answer::Refused(_)));
    let changed = application(&json!({"type": "Cobol", "arguments": ["1"]}));
    assert!(matches!(ask_about(Kind::Application, "pi", &changed, Some(&bad)), Answer::Refused(_)));
    let object = json!({"metadata": {"name": "pi", "deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": changed});
    let old = json!({"spec": bad});
    let (runs, zones) = (RunSettings::default(), Zones::bundled());
    let question =
        Question { kind: Kind::Application, name: "pi", namespace: "team", object: &object, old: Some(&old) };
    let settings = Settings { runs: &runs, zones: &zones, now: Timestamp::UNIX_EPOCH };
    assert_eq!(review(&question, &settings), unasked, "it is being deleted");
}

#[test]
fn what_has_no_effect_is_a_warning() {
    let template = json!({"spec": {"containers": [{"name": "a", "imagee": "x"}], "hostnetwork": true}});
    let spec = application(&json!({"driver": {"template": template}, "sparkConf": {"spark.excutor.cores": "1"}}));
    let Answer::Allowed { warnings, .. } = ask(Kind::Application, &spec) else { panic!("refused") };
    let has = |words: &str| assert!(warnings.iter().any(|warning| warning.contains(words)), "{words}: {warnings:?}");
    has("\"spec.driver.template.spec.containers[0].imagee\"");
    has("\"spec.driver.template.spec.hostnetwork\"");
    let spec = application(&json!({"executor": {"labels": {"a": "not a label"}}}));
    let Answer::Allowed { warnings, .. } = ask(Kind::Application, &spec) else { panic!("refused") };
    assert!(warnings[0].starts_with("executors cannot be created like this: "), "{warnings:?}");
}

#[test]
fn anything_that_is_not_a_specification_is_refused_and_never_a_panic() {
    for kind in Kind::ALL {
        for spec in [json!(null), json!(3), json!("text"), json!([]), json!({}), json!({"driver": 3, "template": [1]})]
        {
            assert!(matches!(ask(kind, &spec), Answer::Refused(_)), "{kind:?} {spec}");
        }
    }
}

#[test]
fn a_long_list_of_problems_is_cut() {
    let problems: Vec<Problem> =
        (0..12).map(|i| Problem { path: format!("spec.a[{i}]"), message: "is wrong".to_owned() }).collect();
    assert!(sentence(&problems).ends_with("spec.a[9]: is wrong; and 2 more"));
}

fn needs(kind: Kind, spec: &Value) -> (Footprint, Against) {
    match ask(kind, spec) {
        Answer::Allowed { needs: Some(needs), .. } => needs,
        other => panic!("{kind:?} {spec}: {other:?}"),
    }
}

fn quota(hard: &Value, used: &Value, more: &Value) -> Value {
    let mut spec = json!({"hard": hard});
    merge(&mut spec, more);
    json!({"metadata": {"name": "q"}, "spec": spec, "status": {"hard": hard, "used": used}})
}

fn namespace(quotas: &[Value]) -> Namespace {
    Namespace {
        quotas: quotas.iter().map(|quota| serde_json::from_value(quota.clone()).unwrap()).collect(),
        ..Namespace::default()
    }
}

fn over(kind: Kind, spec: &Value, namespace: &Namespace) -> Vec<String> {
    let (needs, against) = needs(kind, spec);
    quota::problems(&needs, namespace, against).iter().map(ToString::to_string).collect()
}

/// What an application needs, by the name that a quota gives it: one less is too little, and exactly that is enough.
#[test]
fn d11_every_amount_is_counted_once() {
    let gpu = json!({"name": "nvidia.com/gpu", "quantity": 2});
    let sidecar = json!([{"name": "log", "image": "i", "resources": {
        "requests": {"cpu": "250m", "memory": "128Mi"}, "limits": {"cpu": "1", "memory": "256Mi"}}}]);
    let dynamic = json!({"enabled": true, "initialExecutors": 1, "minExecutors": 1, "maxExecutors": 5});
    let claim = "spark.kubernetes.executor.volumes.persistentVolumeClaim.spark-local-dir-1";
    let claims = json!({"sparkConf": {
        format!("{claim}.mount.path"): "/data", format!("{claim}.options.claimName"): "OnDemand",
        format!("{claim}.options.sizeLimit"): "10Gi", format!("{claim}.options.storageClass"): "fast"}});
    let cases = [
        // 1g and at least 384 MiB of overhead, for each of three pods.
        (json!({}), "requests.memory", "4224Mi"),
        (json!({}), "memory", "4224Mi"),
        (json!({}), "limits.memory", "4224Mi"),
        (json!({}), "requests.cpu", "3"),
        (json!({}), "cpu", "3"),
        (json!({}), "pods", "3"),
        (json!({}), "count/pods", "3"),
        // 10 % of 10g is more than the least overhead.
        (json!({"driver": {"memory": "10g"}}), "requests.memory", "14080Mi"),
        (
            json!({"memoryOverheadFactor": "0.5", "driver": {"memory": "2g"}, "executor": {"memory": "4g"}}),
            "requests.memory",
            "15Gi",
        ),
        (json!({"executor": {"memoryOverhead": "1g"}}), "requests.memory", "5504Mi"),
        // Python has 40 % of overhead, and memory of its own.
        (
            json!({"type": "Python", "mainApplicationFile": "local:///a.py", "executor": {"memory": "10g"}}),
            "requests.memory",
            "30105Mi",
        ),
        (
            json!({"type": "Python", "mainApplicationFile": "local:///a.py", "sparkConf": {"spark.executor.pyspark.memory": "1g"}}),
            "requests.memory",
            "6347Mi",
        ),
        (
            json!({"sparkConf": {"spark.memory.offHeap.enabled": "true", "spark.memory.offHeap.size": "1g"}}),
            "requests.memory",
            "6272Mi",
        ),
        (json!({"driver": {"cores": 2, "coreRequest": "500m"}, "executor": {"cores": 4}}), "requests.cpu", "8500m"),
        (json!({"driver": {"coreLimit": "2"}, "executor": {"coreLimit": "1500m"}}), "limits.cpu", "5"),
        (json!({"driver": {"memoryLimit": "3g"}}), "limits.memory", "5888Mi"),
        // By the maximum, not by what it starts with.
        (json!({"executor": {"instances": null}, "dynamicAllocation": dynamic}), "pods", "6"),
        (json!({"executor": {"instances": null}, "dynamicAllocation": dynamic}), "requests.memory", "8448Mi"),
        (
            json!({"executor": {"instances": null}, "sparkConf": {
            "spark.dynamicAllocation.enabled": "true", "spark.dynamicAllocation.maxExecutors": "7"}}),
            "requests.cpu",
            "8",
        ),
        (json!({"driver": {"sidecars": sidecar}}), "requests.cpu", "3250m"),
        (json!({"driver": {"sidecars": sidecar}}), "limits.memory", "4480Mi"),
        (
            json!({"executor": {"initContainers": [{"name": "first", "image": "i", "resources": {"requests": {"cpu": "3"}}}]}}),
            "requests.cpu",
            "7",
        ),
        (json!({"driver": {"gpu": gpu}}), "requests.nvidia.com/gpu", "2"),
        (
            json!({"sparkConf": {"spark.executor.resource.gpu.amount": "1", "spark.executor.resource.gpu.vendor": "nvidia.com"}}),
            "requests.nvidia.com/gpu",
            "2",
        ),
        // With executors outside the driver, too.
        (
            json!({"sparkConf": {"spark.kubernetes.allocation.pods.allocator": "firesteel"}}),
            "requests.memory",
            "4224Mi",
        ),
        (claims.clone(), "persistentvolumeclaims", "2"),
        (claims, "requests.storage", "20Gi"),
        // The driver's Service and that of its web UI.
        (json!({}), "services", "2"),
    ];
    for (patch, resource, amount) in cases {
        let spec = application(&patch);
        let with = |hard: &str| namespace(&[quota(&json!({resource: hard}), &json!({resource: "0"}), &json!({}))]);
        assert_eq!(over(Kind::Application, &spec, &with(amount)), [""; 0], "{patch} {resource}");
        let least: firesteel_spark::value::Quantity = amount.parse().unwrap();
        let step = if amount.ends_with('i') { "1" } else { "1m" };
        let less = least.minus(step.parse().unwrap()).to_string();
        let found = over(Kind::Application, &spec, &with(&less));
        assert_eq!(found.len(), 1, "{patch} {resource} {less}");
        assert!(found[0].contains(&format!("ResourceQuota \"q\": {resource} needed {amount}")), "{found:?}");
    }
}

#[test]
fn the_message_names_quota_resource_needed_used_and_hard() {
    let hard = json!({"requests.memory": "16Gi", "pods": "100"});
    let used = json!({"requests.memory": "13Gi", "pods": "2"});
    let found = over(Kind::Application, &application(&json!({})), &namespace(&[quota(&hard, &used, &json!({}))]));
    assert_eq!(
        found,
        [
            "spec.executor.instances: exceeds ResourceQuota \"q\": requests.memory needed 4224Mi (driver 1408Mi, 2 executors \
          1408Mi each), used 13Gi, hard 16Gi; request less, or raise the quota"
        ]
    );
    let used = json!({"requests.memory": "15Gi"});
    let found = over(Kind::Application, &application(&json!({})), &namespace(&[quota(&hard, &used, &json!({}))]));
    assert!(found[0].starts_with("spec.driver: "), "not even the driver fits: {found:?}");
}

#[test]
fn scopes_decide_which_pods_count() {
    let scopes = |scopes: &[&str]| json!({"scopes": scopes});
    let term = |operator: &str, values: Value| {
        json!({"scopeSelector": {"matchExpressions": [
            {"scopeName": "PriorityClass", "operator": operator, "values": values}]}})
    };
    let plain = application(&json!({}));
    let important = application(&json!({"driver": {"priorityClassName": "high"}}));
    let timed = application(&json!({"driver": {"template": {"spec": {
        "activeDeadlineSeconds": 60, "containers": [{"name": "spark-kubernetes-driver"}]}}}}));
    let cases = [
        (&plain, scopes(&[]), 3),
        (&plain, scopes(&["NotTerminating"]), 3),
        (&plain, scopes(&["Terminating"]), 0),
        (&timed, scopes(&["Terminating"]), 1),
        (&timed, scopes(&["NotTerminating"]), 2),
        (&plain, scopes(&["BestEffort"]), 0),
        (&plain, scopes(&["NotBestEffort"]), 3),
        (&plain, scopes(&["PriorityClass"]), 0),
        (&important, term("In", json!(["high", "low"])), 1),
        (&important, term("NotIn", json!(["high"])), 2),
        (&important, term("Exists", json!(null)), 1),
        (&important, term("DoesNotExist", json!(null)), 2),
        (&plain, scopes(&["CrossNamespacePodAffinity"]), 0),
    ];
    for (spec, scope, pods) in cases {
        let of = |hard: i32| namespace(&[quota(&json!({"pods": hard.to_string()}), &json!({}), &scope)]);
        assert_eq!(over(Kind::Application, spec, &of(pods)), [""; 0], "{scope}");
        assert_eq!(over(Kind::Application, spec, &of(pods - 1)).len(), usize::from(pods > 0), "{scope}");
    }
}

#[test]
fn requests_left_open_come_from_limit_ranges() {
    let sidecar = json!({"driver": {"sidecars": [{"name": "log", "image": "i"}]}});
    let range = json!({"metadata": {"name": "r"}, "spec": {"limits": [
        {"type": "Container", "default": {"cpu": "2"}, "defaultRequest": {"cpu": "1"}}]}});
    let mut namespace = namespace(&[quota(&json!({"requests.cpu": "3", "limits.cpu": "7"}), &json!({}), &json!({}))]);
    assert_eq!(
        over(Kind::Application, &application(&sidecar), &namespace),
        [""; 0],
        "nothing is known about the sidecar"
    );
    namespace.limit_ranges = vec![serde_json::from_value(range).unwrap()];
    let found = over(Kind::Application, &application(&sidecar), &namespace);
    assert!(found[0].contains("limits.cpu needed 8") && found[1].contains("requests.cpu needed 4"), "{found:?}");
}

#[test]
fn pods_that_an_edit_replaces_are_not_counted_against_it() {
    let pod = |phase: &str| {
        json!({"metadata": {"name": "p"}, "status": {"phase": phase}, "spec": {"containers": [
            {"name": "c", "resources": {"requests": {"memory": "1408Mi"}}}]}})
    };
    let hard = json!({"requests.memory": "6Gi"});
    let mut namespace = namespace(&[quota(&hard, &json!({"requests.memory": "4Gi"}), &json!({}))]);
    assert_eq!(over(Kind::Application, &application(&json!({})), &namespace).len(), 1);
    let pods = [pod("Running"), pod("Pending"), pod("Succeeded")];
    namespace.replaced = pods.into_iter().map(|pod| serde_json::from_value(pod).unwrap()).collect();
    assert_eq!(over(Kind::Application, &application(&json!({})), &namespace), [""; 0]);
    namespace.replaced.remove(0);
    assert_eq!(over(Kind::Application, &application(&json!({})), &namespace).len(), 1, "one that ended takes nothing");
}

#[test]
fn a_schedule_must_fit_the_whole_quota_and_a_server_what_is_left() {
    let (hard, used) = (json!({"pods": "3"}), json!({"pods": "1"}));
    let full = namespace(&[quota(&hard, &used, &json!({}))]);
    assert_eq!(over(Kind::Schedule, &schedule(&json!({})), &full), [""; 0]);
    let found = over(Kind::Schedule, &schedule(&json!({"template": {"executor": {"instances": 3}}})), &full);
    assert_eq!(
        found,
        [
            "spec.template.executor.instances: exceeds ResourceQuota \"q\": pods needed 4 (driver 1, 3 executors 1 each), hard \
          3; request less, or raise the quota"
        ]
    );
    let found = over(Kind::Connect, &connect(&json!({})), &full);
    assert!(found[0].contains("pods needed 3 (server 1, 2 executors 1 each), used 1, hard 3"), "{found:?}");
    assert_eq!(over(Kind::Connect, &connect(&json!({"executor": {"instances": 0}})), &full), [""; 0]);
}

#[test]
fn without_a_maximum_the_first_executors_count_and_a_remark_says_so() {
    let spec = application(
        &json!({"executor": {"instances": null}, "dynamicAllocation": {"enabled": true, "initialExecutors": 2}}),
    );
    let (needs, _) = needs(Kind::Application, &spec);
    assert_eq!(needs.pods[1].count, 2);
    assert!(needs.remarks[0].starts_with("spec.dynamicAllocation.maxExecutors is not set"), "{:?}", needs.remarks);
}

#[test]
fn what_is_suspended_needs_nothing_until_it_resumes() {
    let (held, free) = (application(&json!({"suspend": true})), application(&json!({"suspend": false})));
    assert!(matches!(ask(Kind::Application, &held), Answer::Allowed { needs: None, .. }));
    let resumed = ask_about(Kind::Application, "pi", &free, Some(&held));
    assert!(matches!(resumed, Answer::Allowed { needs: Some(_), .. }));
}
