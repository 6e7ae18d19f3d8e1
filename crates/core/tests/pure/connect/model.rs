//! Random sequences of events in the life of a SparkConnect, run through the pure decisions.
//!
//! The smallest world in which things can go wrong: one pod of one name, a cache that may lag, a cluster that may refuse, an
//! operator that may die before it writes the status, a CRD that may drop our fields.

use std::collections::BTreeSet;

use firesteel_api::{SparkConnectSpec, SparkConnectStatus};
use firesteel_core::connect::application::fingerprint;
use firesteel_core::connect::server::ServerPod;
use firesteel_core::connect::step::{Decision, Effect, created, step};
use firesteel_core::lifecycle::{Created, Submission};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::step::{World, ended, pod, running};
use super::{UID, at, spec};

#[derive(Debug, Clone, Copy)]
enum Op {
    Tick(i64),
    PodRuns(bool),
    PodEnds(i32),
    PodIsDeleted,
    PodIsGone,
    Edit(u8),
    Break(bool),
    Refuse(bool),
    CrashNext,
    LagNext,
    OperatorForgets,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        6 => (0i64..40).prop_map(Op::Tick),
        6 => any::<bool>().prop_map(Op::PodRuns),
        3 => prop_oneof![Just(0), Just(1), Just(137)].prop_map(Op::PodEnds),
        1 => Just(Op::PodIsDeleted),
        2 => Just(Op::PodIsGone),
        2 => (0u8..3).prop_map(Op::Edit),
        1 => any::<bool>().prop_map(Op::Break),
        1 => any::<bool>().prop_map(Op::Refuse),
        2 => Just(Op::CrashNext),
        2 => Just(Op::LagNext),
        1 => Just(Op::OperatorForgets),
    ];
    proptest::collection::vec(op, 1..60)
}

#[derive(Debug, Clone)]
struct ModelPod {
    attempt: i64,
    hash: String,
    status: Value,
    deleting: bool,
}

struct Model {
    now: Timestamp,
    version: u8,
    broken: bool,
    refuses: bool,
    crashes: bool,
    lags: bool,
    pruned: bool,
    pod: Option<ModelPod>,
    cached: Option<ModelPod>,
    last_attempt: i64,
    status: SparkConnectStatus,
    /// Every (attempt, hash) that was created, and how often.
    created: Vec<(i64, String)>,
    /// Pods that were running well and were deleted, with the specification at the time.
    killed: Vec<(String, String)>,
}

impl Model {
    fn spec(&self) -> SparkConnectSpec {
        spec(&json!({"sparkConf": {"version": self.version.to_string()}}))
    }

    fn seen(&self, pod: Option<&ModelPod>) -> Option<ServerPod> {
        pod.map(|model| {
            let mut pod = pod_of(model);
            if model.deleting {
                pod.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
            }
            ServerPod::read(&pod, UID)
        })
    }

    /// One pass of the operator.
    fn pass(&mut self) -> Decision {
        let mut world = World::new();
        world.spec = self.spec();
        world.status = self.status.clone();
        world.problem = self.broken.then(|| "spec.image: no image".to_owned());
        world.seen.now = self.now;
        if !std::mem::take(&mut self.lags) {
            self.cached.clone_from(&self.pod);
        }
        world.seen.confirmed = false;
        world.seen.server = self.seen(self.cached.as_ref());
        self.last_attempt = self.last_attempt.max(world.seen.server.as_ref().map_or(0, |s| s.attempt));
        world.seen.last_attempt = self.last_attempt;
        let mut decision = world.with(step);
        if decision.confirm {
            assert!(
                decision.effects.is_empty() || !decision.effects.iter().any(|e| matches!(e, Effect::Create { .. }))
            );
            world.seen.confirmed = true;
            world.seen.server = self.seen(self.pod.as_ref());
            decision = world.with(step);
        }
        let crashes = std::mem::take(&mut self.crashes);
        for effect in std::mem::take(&mut decision.effects) {
            match effect {
                Effect::DeletePod { uid, .. } => self.delete(&uid),
                Effect::Create { attempt } => {
                    let outcome = self.create(attempt);
                    world.status = decision.status.clone();
                    let next = world.with(|connect, seen| created(connect, attempt, &outcome, seen.now));
                    decision = Decision { effects: Vec::new(), ..next };
                }
                Effect::DeleteObjects { .. } | Effect::ApplyService | Effect::DeleteService { .. } => {}
            }
        }
        if !crashes {
            self.write(&decision.status);
        }
        decision
    }

    fn write(&mut self, status: &SparkConnectStatus) {
        // Times have whole seconds in the cluster.
        let mut value = serde_json::to_value(status).unwrap();
        if self.pruned {
            for field in ["attempt", "failures", "nextAttemptTime", "observedGeneration"] {
                value.as_object_mut().unwrap().remove(field);
            }
        }
        self.status = serde_json::from_value(value).unwrap();
    }

    fn delete(&mut self, uid: &str) {
        let wanted = fingerprint(&self.spec());
        if let Some(pod) = self.pod.as_mut().filter(|pod| format!("pod-{}-{}", pod.attempt, pod.hash) == uid) {
            if pod.status["phase"] == "Running" && !pod.deleting {
                self.killed.push((pod.hash.clone(), wanted));
            }
            pod.deleting = true;
        }
    }

    fn create(&mut self, attempt: i64) -> Submission {
        let hash = fingerprint(&self.spec());
        assert!(!self.broken, "created from a specification that cannot work");
        if let Some(pod) = &self.pod {
            // As `create_or_find` does: adopt what is the same, delete what is not.
            assert_eq!((pod.attempt, &pod.hash), (attempt, &hash), "another server existed");
            return Submission::Created(Box::new(Created { pod_name: "lab-server".into(), ..Created::default() }));
        }
        if self.refuses {
            return Submission::Refused("exceeded quota".to_owned());
        }
        self.created.push((attempt, hash.clone()));
        self.pod = Some(ModelPod { attempt, hash, status: json!({"phase": "Pending"}), deleting: false });
        Submission::Created(Box::new(Created { pod_name: "lab-server".into(), ..Created::default() }))
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Tick(seconds) => self.now += SignedDuration::from_secs(seconds),
            Op::PodRuns(ready) => {
                if let Some(pod) = self.pod.as_mut().filter(|pod| pod.status["phase"] != "Failed") {
                    pod.status = running(ready);
                }
            }
            Op::PodEnds(code) => {
                let now = self.now.as_second();
                if let Some(pod) = self.pod.as_mut().filter(|pod| pod.status["phase"] != "Failed") {
                    pod.status = ended(code, now);
                }
            }
            Op::PodIsDeleted => {
                if let Some(pod) = &mut self.pod {
                    pod.deleting = true;
                }
            }
            Op::PodIsGone => self.pod = self.pod.take().filter(|pod| !pod.deleting),
            Op::Edit(version) => self.version = version,
            Op::Break(broken) => self.broken = broken,
            Op::Refuse(refuses) => self.refuses = refuses,
            Op::CrashNext => self.crashes = true,
            Op::LagNext => self.lags = true,
            Op::OperatorForgets => self.last_attempt = 0,
        }
    }
}

fn pod_of(model: &ModelPod) -> k8s_openapi::api::core::v1::Pod {
    let mut pod = pod(model.attempt, &model.hash, &model.status);
    pod.metadata.uid = Some(format!("pod-{}-{}", model.attempt, model.hash));
    pod
}

proptest! {
    #[test]
    fn a_server_comes_back_from_anything_and_none_is_ended_for_nothing(ops in ops(), pruned in any::<bool>()) {
        let mut model = Model {
            now: at(1000), version: 0, broken: false, refuses: false, crashes: false, lags: false, pruned,
            pod: None, cached: None, last_attempt: 0, status: SparkConnectStatus::default(),
            created: Vec::new(), killed: Vec::new(),
        };
        for op in ops {
            model.apply(op);
            let decision = model.pass();
            // Either something is going to happen by itself, or nothing can be done before an edit.
            prop_assert!(decision.wake.is_some() || model.broken, "{decision:?}");
            prop_assert!(decision.status.state.is_some());
        }
        // A server that runs is ended only because the specification is another one.
        for (had, wanted) in &model.killed {
            prop_assert_ne!(had, wanted);
        }
        if !pruned {
            let numbers: BTreeSet<i64> = model.created.iter().map(|(attempt, _)| *attempt).collect();
            // A creation whose status was lost, and whose pod was deleted before anyone saw it, leaves its number free.
            prop_assert!(numbers.iter().max().copied().unwrap_or_default() as usize <= model.created.len());
        }
        // Left alone, with a specification that works, the server becomes ready.
        (model.broken, model.refuses, model.lags, model.crashes) = (false, false, false, false);
        for _ in 0..40 {
            let decision = model.pass();
            if let Some(pod) = &mut model.pod {
                if pod.deleting {
                    model.pod = None;
                } else if pod.status["phase"] != "Failed" {
                    pod.status = running(true);
                }
            }
            if let Some(wake) = decision.wake {
                model.now = model.now.max(wake);
            }
        }
        prop_assert_eq!(model.status.state.as_deref(), Some("Ready"));
        prop_assert_eq!(&model.pod.as_ref().unwrap().hash, &fingerprint(&model.spec()));
        // And then nothing changes any more.
        let before = model.status.clone();
        let decision = model.pass();
        prop_assert_eq!(&model.status, &before);
        prop_assert!(decision.events.is_empty());
    }
}
