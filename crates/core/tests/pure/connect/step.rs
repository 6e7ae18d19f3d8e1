//! Single decisions.

use std::collections::BTreeMap;

use firesteel_api::{SparkConnectSpec, SparkConnectStatus};
use firesteel_core::connect::application::fingerprint;
use firesteel_core::connect::server::ServerPod;
use firesteel_core::connect::step::{Connect, Decision, Effect, SeenService, Sight, created, step};
use firesteel_core::lifecycle::{Created, Submission};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::{UID, at, spec, with_subject};

pub(crate) const HASH: &str = "service";

pub(crate) struct World {
    pub(crate) spec: SparkConnectSpec,
    pub(crate) status: SparkConnectStatus,
    pub(crate) problem: Option<String>,
    pub(crate) seen: Sight,
}

impl World {
    pub(crate) fn new() -> World {
        let service = SeenService { uid: "s".to_owned(), hash: Some(HASH.to_owned()) };
        World {
            spec: spec(&json!({})),
            status: SparkConnectStatus::default(),
            problem: None,
            seen: Sight {
                now: at(100),
                server: None,
                confirmed: true,
                last_attempt: 0,
                services: [("lab-server".to_owned(), service)].into(),
                executors: BTreeMap::new(),
                cause: None,
            },
        }
    }

    pub(crate) fn with<T>(&self, decide: impl FnOnce(&Connect<'_>, &Sight) -> T) -> T {
        let hash = fingerprint(&self.spec);
        with_subject(&self.spec, |subject| {
            let connect = Connect {
                subject: *subject,
                spec_hash: &hash,
                service_hash: self.problem.is_none().then_some(HASH),
                generation: 2,
                deleting: false,
                status: &self.status,
                problem: self.problem.as_deref(),
            };
            decide(&connect, &self.seen)
        })
    }

    /// One step; its status is kept.
    fn step(&mut self) -> Decision {
        let decision = self.with(step);
        self.status = decision.status.clone();
        decision
    }

    /// Creates the server that a step asked for.
    fn create(&mut self, outcome: &Submission) -> Decision {
        let decision = self.step();
        let [Effect::Create { attempt }] = decision.effects[..] else { panic!("{decision:?}") };
        let decision = self.with(|connect, seen| created(connect, attempt, outcome, seen.now));
        self.status = decision.status.clone();
        if matches!(outcome, Submission::Created(_)) {
            self.see(attempt, &json!({"phase": "Pending"}));
        }
        decision
    }

    fn see(&mut self, attempt: i64, status: &Value) {
        self.seen.server = Some(ServerPod::read(&pod(attempt, &fingerprint(&self.spec), status), UID));
    }

    fn state(&self) -> &str {
        self.status.state.as_deref().unwrap_or_default()
    }

    fn ready(&self) -> (&str, &str, &str) {
        let condition = self.status.conditions.iter().find(|c| c.type_ == "ServerPodReady").unwrap();
        (&condition.status, &condition.reason, &condition.message)
    }
}

pub(crate) fn pod(attempt: i64, hash: &str, status: &Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": {
            "name": "lab-server", "namespace": "jobs", "uid": format!("pod-{attempt}"),
            "annotations": {"firesteel.dev/attempt": attempt.to_string(), "firesteel.dev/spec": hash},
            "labels": {"sparkoperator.k8s.io/submission-id": format!("id-{attempt}"), "spark-role": "connect-server"},
            "ownerReferences": [{"apiVersion": "sparkoperator.k8s.io/v1alpha1", "kind": "SparkConnect", "name": "lab", "uid": UID}],
        },
        "spec": {"containers": [{"name": "spark-kubernetes-driver"}]}, "status": status,
    }))
    .unwrap()
}

fn made() -> Submission {
    Submission::Created(Box::new(Created { pod_name: "lab-server".to_owned(), ..Created::default() }))
}

pub(crate) fn running(ready: bool) -> Value {
    json!({"phase": "Running", "podIP": "10.0.0.1",
        "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}],
        "containerStatuses": [{"name": "spark-kubernetes-driver", "image": "", "imageID": "", "ready": ready, "restartCount": 0,
            "state": {"running": {}}}]})
}

pub(crate) fn ended(code: i32, second: i64) -> Value {
    json!({"phase": "Failed", "containerStatuses": [{"name": "spark-kubernetes-driver", "image": "", "imageID": "",
        "ready": false, "restartCount": 0,
        "state": {"terminated": {"exitCode": code, "reason": "Error", "finishedAt": at(second).to_string()}}}]})
}

fn reasons(decision: &Decision) -> Vec<&str> {
    decision.events.iter().map(|event| event.reason).collect()
}

#[test]
fn a_server_is_created_waits_and_is_ready() {
    let mut world = World::new();
    let decision = world.create(&made());
    assert_eq!((world.state(), world.status.attempt), ("Provisioning", Some(1)));
    assert_eq!(reasons(&decision), ["SparkConnectServerCreated"]);
    world.seen.executors = [("running".to_owned(), 2)].into();
    world.see(1, &running(false));
    world.step();
    assert_eq!(world.state(), "Provisioning");
    assert_eq!(world.ready().2, "the server runs but does not accept connections");
    world.see(1, &running(true));
    let decision = world.step();
    assert_eq!(reasons(&decision), ["SparkConnectServerReady"]);
    assert_eq!((world.state(), world.ready().0, world.ready().1), ("Ready", "True", "ServerPodReady"));
    let server = world.status.server.clone().unwrap();
    assert_eq!(server.pod_name.as_deref(), Some("lab-server"));
    assert_eq!(server.pod_ip.as_deref(), Some("10.0.0.1"));
    assert_eq!(server.service_name.as_deref(), Some("lab-server"));
    assert_eq!(world.status.executors["running"], 2);
    assert_eq!(world.status.observed_generation, Some(2));
    // The same again changes nothing.
    world.seen.now = at(150);
    let (before, decision) = (world.status.clone(), world.step());
    assert_eq!(decision.status, before);
    assert!(decision.effects.is_empty() && decision.events.is_empty());
}

#[test]
fn nothing_is_created_on_the_word_of_a_cache() {
    let mut world = World::new();
    world.seen.confirmed = false;
    let decision = world.step();
    assert!(decision.confirm && decision.effects.is_empty());
}

#[test]
fn a_server_that_cannot_start_says_why_and_the_wait_for_the_next_one_doubles() {
    let mut world = World::new();
    world.create(&made());
    let mut waits = Vec::new();
    for attempt in 1..=8 {
        world.see(attempt, &ended(1, 100));
        world.seen.now = at(100);
        let decision = world.step();
        assert_eq!(reasons(&decision), ["SparkConnectServerFailed"]);
        assert_eq!(world.state(), "Failed");
        assert!(world.ready().2.starts_with("the server ended with exit code 1"), "{}", world.ready().2);
        waits.push(decision.wake.unwrap().as_second() - 100);
        // Nothing is done before that.
        let decision = world.step();
        assert!(decision.effects.is_empty() && decision.events.is_empty(), "{decision:?}");
        world.seen.now = decision.wake.unwrap();
        let decision = world.step();
        let uid = format!("pod-{attempt}");
        assert_eq!(decision.effects, [Effect::DeletePod { name: "lab-server".to_owned(), uid }]);
        world.seen.server = None;
        world.create(&made());
        assert_eq!(world.status.attempt, Some(attempt + 1));
    }
    assert_eq!(waits, [10, 20, 40, 80, 160, 300, 300, 300]);
    world.see(9, &running(true));
    world.step();
    assert_eq!((world.state(), world.status.failures), ("Ready", None));
}

#[test]
fn a_server_that_was_ready_and_dies_is_not_ready_and_comes_back() {
    let mut world = World::new();
    world.create(&made());
    world.see(1, &running(true));
    world.step();
    world.see(1, &running(false));
    let decision = world.step();
    assert_eq!((world.state(), reasons(&decision)), ("NotReady", vec!["SparkConnectServerNotReady"]));
    world.see(1, &ended(137, 100));
    world.step();
    assert_eq!(world.state(), "NotReady");
    assert!(world.ready().2.contains("exit code 137"), "{}", world.ready().2);
    world.seen.now = at(110);
    assert_eq!(world.step().effects.len(), 1);
    world.seen.server = None;
    let decision = world.create(&made());
    assert_eq!((world.state(), world.status.attempt), ("Provisioning", Some(2)));
    assert!(matches!(decision.effects[..], [Effect::DeleteObjects { .. }]), "{decision:?}");
}

#[test]
fn an_edit_replaces_the_server_at_once_and_an_invalid_one_does_not() {
    let mut world = World::new();
    world.create(&made());
    world.see(1, &running(true));
    world.step();
    world.problem = Some("spec.server.memory: \"lots\" is not a size".to_owned());
    world.spec = spec(&json!({"server": {"memory": "lots"}}));
    let decision = world.step();
    assert!(decision.effects.is_empty(), "{decision:?}");
    assert_eq!((world.state(), reasons(&decision)), ("Ready", vec!["SparkConnectSpecRefused"]));
    let accepted = world.status.conditions.iter().find(|c| c.type_ == "SpecAccepted").unwrap();
    assert_eq!((accepted.status.as_str(), accepted.message.as_str()), ("False", world.problem.as_deref().unwrap()));
    assert!(world.step().events.is_empty(), "said once");
    world.problem = None;
    world.spec = spec(&json!({"server": {"memory": "2g"}}));
    let decision = world.step();
    let uid = "pod-1".to_owned();
    assert_eq!(decision.effects, [Effect::DeletePod { name: "lab-server".to_owned(), uid }]);
    assert_eq!((world.state(), world.ready().1), ("Provisioning", "RollingOut"));
    let accepted = world.status.conditions.iter().find(|c| c.type_ == "SpecAccepted").unwrap();
    assert_eq!(accepted.status, "True");
}

#[test]
fn a_bad_specification_fails_without_a_server_and_recovers_when_it_is_mended() {
    let mut world = World::new();
    world.problem = Some("spec.image: no image".to_owned());
    world.seen.services.clear();
    let decision = world.step();
    assert!(decision.effects.is_empty() && decision.wake.is_none());
    assert_eq!((world.state(), world.ready().2), ("Failed", "spec.image: no image"));
    world.problem = None;
    let decision = world.step();
    assert_eq!(decision.effects, [Effect::ApplyService, Effect::Create { attempt: 1 }]);
}

#[test]
fn a_refused_server_is_tried_again_and_the_quota_is_named() {
    let mut world = World::new();
    let decision = world.create(&Submission::Refused("pods \"lab-server\" is forbidden: exceeded quota: q".to_owned()));
    assert_eq!((world.state(), world.status.attempt), ("Failed", None));
    assert!(world.ready().2.contains("ResourceQuota is exhausted"), "{}", world.ready().2);
    assert_eq!(decision.wake, Some(at(110)));
    assert!(world.step().effects.is_empty());
    world.seen.now = at(110);
    world.create(&made());
    assert_eq!((world.state(), world.status.attempt), ("Provisioning", Some(1)));
}

#[test]
fn the_pod_of_somebody_else_is_left_alone() {
    let mut world = World::new();
    let mut other = pod(1, "h", &running(true));
    other.metadata.owner_references = None;
    world.seen.server = Some(ServerPod::read(&other, UID));
    let decision = world.step();
    assert!(decision.effects.is_empty());
    assert!(world.state() == "Failed" && world.ready().2.contains("does not belong"), "{}", world.ready().2);
    assert!(world.step().events.is_empty(), "said once");
}

#[test]
fn a_pending_server_quotes_kubernetes() {
    let mut world = World::new();
    world.create(&made());
    let unschedulable = json!({"phase": "Pending", "conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available"}]});
    world.see(1, &unschedulable);
    let decision = world.step();
    assert_eq!((world.state(), world.ready().1), ("Provisioning", "Unschedulable"));
    assert!(world.ready().2.contains("0/3 nodes are available"));
    assert_eq!(reasons(&decision), ["SparkConnectServerPending"]);
    assert!(world.step().events.is_empty(), "said once");
}

#[test]
fn an_eviction_before_the_server_was_ready_is_not_its_fault() {
    let mut world = World::new();
    world.create(&made());
    world.see(1, &json!({"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}));
    world.step();
    assert_eq!(world.state(), "NotReady");
    assert!(world.ready().2.contains("low on resource"), "{}", world.ready().2);
}

#[test]
fn the_service_follows_its_name_and_its_content() {
    let mut world = World::new();
    world.create(&made());
    let old = SeenService { uid: "o".to_owned(), hash: Some(HASH.to_owned()) };
    world.seen.services = [("old".to_owned(), old)].into();
    let decision = world.step();
    let gone = Effect::DeleteService { name: "old".to_owned(), uid: "o".to_owned() };
    assert_eq!(decision.effects, [Effect::ApplyService, gone]);
    let changed = SeenService { uid: "s".to_owned(), hash: Some("other".to_owned()) };
    world.seen.services = [("lab-server".to_owned(), changed)].into();
    assert_eq!(world.step().effects, [Effect::ApplyService]);
}
