//! Random sequences of events in an application's life, run through the pure life cycle.
//!
//! The smallest world in which things can go wrong: one driver pod, a cache that may lag, a cluster that may reject, an
//! operator that may die before it writes the status.

use std::collections::BTreeSet;

use firesteel_api::{SparkApplicationSpec, SparkApplicationStatus};
use firesteel_core::identity;
use firesteel_core::lifecycle::{
    App, Created, Decision, Effect, Limits, Observation, Seen, Submission, step, submitted,
};
use firesteel_core::phase::Phase;
use firesteel_core::pod::{DriverPod, Ended, PodPhase};
use firesteel_core::recall::recall;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use crate::lifecycle::{UID, at, driver, with_app};

/// Status fields that the existing operator's CRD lacks.
const PRUNED: [&str; 8] = [
    "attempt",
    "conditions",
    "executorCounts",
    "observedGeneration",
    "runFailures",
    "specHash",
    "stateTimes",
    "submissionFailures",
];

#[derive(Debug, Clone)]
enum Op {
    Tick(i64),
    PodRuns,
    PodEnds(i32),
    PodIsUnknown,
    PodIsDeletedByHand,
    PodVanishes { seen: bool },
    Edit(u8),
    Break(bool),
    Suspend(bool),
    Ttl(Option<i64>),
    Refuse(bool),
    Hinder(bool),
    CrashNext,
    LagNext,
    OperatorForgets,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        6 => (0i64..40).prop_map(Op::Tick),
        4 => Just(Op::PodRuns),
        4 => prop_oneof![Just(0), Just(1), Just(137)].prop_map(Op::PodEnds),
        1 => Just(Op::PodIsUnknown),
        1 => Just(Op::PodIsDeletedByHand),
        1 => any::<bool>().prop_map(|seen| Op::PodVanishes { seen }),
        1 => (0u8..4).prop_map(Op::Edit),
        1 => any::<bool>().prop_map(Op::Break),
        2 => any::<bool>().prop_map(Op::Suspend),
        1 => proptest::option::of(0i64..20).prop_map(Op::Ttl),
        1 => any::<bool>().prop_map(Op::Refuse),
        1 => any::<bool>().prop_map(Op::Hinder),
        2 => Just(Op::CrashNext),
        2 => Just(Op::LagNext),
        1 => Just(Op::OperatorForgets),
    ];
    proptest::collection::vec(op, 1..80)
}

fn policy() -> impl Strategy<Value = serde_json::Value> {
    let kind = prop_oneof![Just("Never"), Just("OnFailure"), Just("Always")];
    (kind, 0i32..3, 0i32..3, 1i64..8).prop_map(|(kind, runs, submissions, interval)| {
        serde_json::json!({
            "type": kind, "onFailureRetries": runs, "onSubmissionFailureRetries": submissions,
            "onFailureRetryInterval": interval, "onSubmissionFailureRetryInterval": interval,
        })
    })
}

struct World {
    spec: SparkApplicationSpec,
    generation: i64,
    status: SparkApplicationStatus,
    pod: Option<DriverPod>,
    /// What the operator's cache shows.
    cached: Option<DriverPod>,
    tombstone: Option<DriverPod>,
    /// The specification is invalid.
    broken: bool,
    refuse: bool,
    hinder: bool,
    /// Since when, and how often.
    hindered: Option<(Timestamp, u32)>,
    crash: bool,
    lag: u8,
    now: Timestamp,
    pods_made: i64,
    gone: bool,
    /// Attempts for which a pod was created.
    attempts: BTreeSet<String>,
    /// Attempts that a status reported as submitted.
    recorded: BTreeSet<String>,
    /// Attempts whose pod vanished before any status recorded it.
    unrecorded: BTreeSet<String>,
    /// The API server keeps only the status fields of the existing operator's CRD.
    prunes: bool,
    /// What was kept of the last status, and the complete one while the operator lives.
    whole: Option<(SparkApplicationStatus, SparkApplicationStatus)>,
    /// The status as the operator reads it.
    read: SparkApplicationStatus,
    runs_since_edit: i32,
    refusals_in_a_row: i32,
    resumes_since_edit: i32,
}

impl World {
    fn new(policy: &serde_json::Value, prunes: bool) -> Self {
        let spec = serde_json::from_value(serde_json::json!({
            "type": "Scala", "sparkVersion": "4.1.4", "image": "i", "mainClass": "M",
            "mainApplicationFile": "local:///a.jar", "restartPolicy": policy, "driver": {}, "executor": {},
        }));
        World {
            spec: spec.unwrap(),
            generation: 1,
            status: SparkApplicationStatus::default(),
            pod: None,
            cached: None,
            tombstone: None,
            broken: false,
            refuse: false,
            hinder: false,
            hindered: None,
            crash: false,
            lag: 0,
            now: at(0),
            pods_made: 0,
            gone: false,
            attempts: BTreeSet::new(),
            recorded: BTreeSet::new(),
            unrecorded: BTreeSet::new(),
            prunes,
            whole: None,
            read: SparkApplicationStatus::default(),
            runs_since_edit: 0,
            refusals_in_a_row: 0,
            resumes_since_edit: 0,
        }
    }

    fn observe(&self, confirmed: bool) -> Observation {
        let pod = if confirmed { &self.pod } else { &self.cached };
        let driver = match pod {
            Some(pod) => Seen::Present(pod.clone()),
            None => Seen::Absent { last: self.tombstone.clone() },
        };
        Observation { confirmed, ..Observation::of(driver, self.now) }
    }

    fn with_app<T>(&self, f: impl FnOnce(&App<'_>) -> T) -> T {
        let (spec_hash, generation) = (&*self.hash(), self.generation);
        let problem = self.broken.then_some("spec: no");
        with_app(&self.spec, &self.read, |app| f(&App { spec_hash, generation, problem, ..*app }))
    }

    /// Only the arguments change here.
    fn hash(&self) -> String {
        self.spec.arguments.join(",") + if self.broken { "broken" } else { "" }
    }

    fn phase(&self) -> Phase {
        Phase::read(&self.status, self.now)
    }

    /// One pass of the operator.
    fn reconcile(&mut self) -> Result<(), TestCaseError> {
        if self.gone {
            return Ok(());
        }
        let before = self.phase();
        let whole = self.whole.as_ref().filter(|(kept, _)| *kept == self.status);
        self.read = match whole {
            Some((_, whole)) => whole.clone(),
            None => recall(&self.status, UID, &self.observe(false).driver),
        };
        let known_generation = self.read.observed_generation;
        let mut decision = self.with_app(|app| step(app, &self.observe(false), &Limits::default()));
        if decision.confirm_drivers {
            decision = self.with_app(|app| step(app, &self.observe(true), &Limits::default()));
            prop_assert!(!decision.confirm_drivers, "asked twice");
        }
        let submits = decision.effects.iter().any(|e| matches!(e, Effect::Submit { .. }));
        let after = Phase::read(&decision.status, self.now);
        if !after.is_terminal() {
            prop_assert!(decision.wake.is_some() || submits, "nothing wakes {after:?}");
        }
        let succeeded = |pod: &&DriverPod| {
            pod.submission_id == self.status.submission_id && pod.ended.as_ref().is_some_and(|end| end.exit_code == 0)
        };
        if before.has_driver() && self.pod.as_ref().is_some_and(|pod| succeeded(&pod)) {
            let fails = matches!(after, Phase::Failing { .. } | Phase::Failed { .. });
            prop_assert!(!fails, "a success was turned into a failure: {:?}", decision.status.application_state);
        }
        if before.is_terminal() && known_generation == Some(self.generation) {
            prop_assert_eq!(before.word(), after.word(), "a terminal state was left");
            prop_assert!(!submits, "a terminal state submitted");
        }
        let ends = |effect: &Effect| {
            let running = self.pod.as_ref().filter(|pod| pod.submission_id == self.status.submission_id);
            running.is_some_and(|pod| matches!(effect, Effect::DeleteDriver { uid, .. } if *uid == pod.uid))
        };
        if self.broken && before.has_driver() && self.spec.suspend != Some(true) {
            prop_assert!(!decision.effects.iter().any(ends), "an edit that cannot work ended a run");
        }
        let decision = self.act(decision)?;
        if std::mem::take(&mut self.crash) {
            self.whole = None;
            return Ok(());
        }
        let resumed = before == Phase::Suspended && Phase::read(&decision.status, self.now) == Phase::Resuming;
        self.resumes_since_edit += i32::from(resumed);
        let mut kept = serde_json::to_value(&decision.status).unwrap();
        let whole = serde_json::from_value(kept.clone()).unwrap();
        if self.prunes {
            kept.as_object_mut().unwrap().retain(|field, _| !PRUNED.contains(&field.as_str()));
        }
        self.status = serde_json::from_value(kept).unwrap();
        self.whole = Some((self.status.clone(), whole));
        if self.phase().has_driver() {
            self.recorded.extend(self.status.submission_id.clone());
        }
        Ok(())
    }

    fn act(&mut self, decision: Decision) -> Result<Decision, TestCaseError> {
        let mut result = decision.clone();
        for effect in decision.effects {
            match effect {
                Effect::DeleteDriver { uid, .. } => {
                    if let Some(pod) = self.pod.as_mut().filter(|p| p.uid == uid) {
                        pod.deleting = true;
                    }
                }
                Effect::Submit { attempt } => {
                    let outcome = self.submit(attempt)?;
                    result = self.with_app(|app| submitted(app, attempt, &outcome, self.now));
                }
                Effect::DeleteApplication => self.gone = true,
                Effect::DeleteExecutors { .. }
                | Effect::DeleteObjects { .. }
                | Effect::Expose
                | Effect::DeleteExposure(_) => {}
            }
        }
        Ok(result)
    }

    fn submit(&mut self, attempt: i64) -> Result<Submission, TestCaseError> {
        let id = identity::submission_id(UID, attempt);
        let hash = self.hash();
        if self.hinder {
            let (since, times) = self.hindered.unwrap_or((self.now, 0));
            self.hindered = Some((since, times + 1));
            return Ok(Submission::Hindered { why: "no answer".to_owned(), since, times: times + 1 });
        }
        self.hindered = None;
        if self.refuse {
            self.refusals_in_a_row += 1;
            return Ok(Submission::Refused("no".to_owned()));
        }
        match &self.pod {
            Some(pod)
                if pod.submission_id.as_ref() == Some(&id)
                    && pod.spec_hash.as_ref() == Some(&hash)
                    && !pod.deleting => {}
            Some(_) => {
                if let Some(pod) = self.pod.as_mut() {
                    pod.deleting = true;
                }
                return Ok(Submission::InTheWay);
            }
            None => {
                let first = self.attempts.insert(id.clone());
                prop_assert!(first || self.unrecorded.contains(&id), "attempt {attempt} was submitted twice");
                self.runs_since_edit += 1;
                self.refusals_in_a_row = 0;
                self.pods_made += 1;
                self.pod = Some(DriverPod {
                    uid: format!("pod-{}", self.pods_made),
                    submission_id: Some(id),
                    spec_hash: Some(hash),
                    generation: Some(self.generation),
                    app_id: Some(format!("spark-{attempt}")),
                    created: Some(self.now),
                    ..driver(PodPhase::Pending)
                });
            }
        }
        Ok(Submission::Created(Box::new(Created { pod_name: "pi-driver".to_owned(), ..Created::default() })))
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Tick(seconds) => {
                self.now = self.now.checked_add(SignedDuration::from_secs(*seconds)).unwrap();
                // Deleted pods are gone by now.
                if self.pod.as_ref().is_some_and(|p| p.deleting) {
                    self.remove(true);
                }
            }
            Op::PodRuns => {
                if let Some(pod) = self.pod.as_mut().filter(|p| p.phase == PodPhase::Pending) {
                    pod.phase = PodPhase::Running;
                }
            }
            Op::PodEnds(code) => {
                if let Some(pod) = self.pod.as_mut().filter(|p| p.ended.is_none()) {
                    pod.phase = if *code == 0 { PodPhase::Succeeded } else { PodPhase::Failed };
                    pod.ended = Some(Ended {
                        exit_code: *code,
                        signal: None,
                        reason: String::new(),
                        message: String::new(),
                        at: Some(self.now),
                    });
                }
            }
            Op::PodIsUnknown => {
                if let Some(pod) = self.pod.as_mut().filter(|p| p.phase == PodPhase::Running) {
                    pod.phase = PodPhase::Unknown;
                }
            }
            Op::PodIsDeletedByHand => {
                if let Some(pod) = self.pod.as_mut() {
                    pod.deleting = true;
                }
            }
            Op::PodVanishes { seen } => self.remove(*seen),
            Op::Edit(n) => {
                let arguments = vec![n.to_string()];
                if self.spec.arguments != arguments {
                    self.spec.arguments = arguments;
                    self.generation += 1;
                    self.runs_since_edit = 0;
                    self.refusals_in_a_row = 0;
                    self.resumes_since_edit = 0;
                }
            }
            Op::Break(broken) => {
                if self.broken != *broken {
                    self.broken = *broken;
                    self.generation += 1;
                    self.runs_since_edit = 0;
                    self.refusals_in_a_row = 0;
                    self.resumes_since_edit = 0;
                }
            }
            Op::Suspend(suspend) => {
                if self.spec.suspend != Some(*suspend) {
                    self.spec.suspend = Some(*suspend);
                    self.generation += 1;
                }
            }
            Op::Ttl(ttl) => {
                self.spec.time_to_live_seconds = *ttl;
                self.generation += 1;
            }
            Op::Refuse(refuse) => self.refuse = *refuse,
            Op::Hinder(hinder) => self.hinder = *hinder,
            Op::CrashNext => self.crash = true,
            Op::LagNext => self.lag = 8,
            Op::OperatorForgets => {
                self.tombstone = None;
                self.whole = None;
            }
        }
        match self.lag.checked_sub(1) {
            Some(left) => self.lag = left,
            None => self.cached = self.pod.clone(),
        }
    }

    fn remove(&mut self, seen: bool) {
        let Some(pod) = self.pod.take() else { return };
        let unrecorded = pod.submission_id.clone().filter(|id| !self.recorded.contains(id));
        self.unrecorded.extend(unrecorded);
        self.tombstone = Some(pod).filter(|_| seen);
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let policy = self.spec.restart_policy.as_ref().unwrap();
        let kind = policy.type_.as_deref().unwrap();
        let budget = match kind {
            "Never" => Some((1, 1)),
            "OnFailure" => {
                Some((policy.on_failure_retries.unwrap() + 1, policy.on_submission_failure_retries.unwrap() + 1))
            }
            _ => None,
        };
        if let Some((runs, submissions)) = budget {
            // A pod that vanished unrecorded is recreated; a run ended by suspending is not a failure.
            let allowed = runs + self.resumes_since_edit + i32::try_from(self.unrecorded.len()).unwrap();
            prop_assert!(self.runs_since_edit <= allowed, "{} runs, budget {allowed}", self.runs_since_edit);
            prop_assert!(self.status.submission_failures.unwrap_or(0) <= submissions);
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_keeps_the_promises(policy in policy(), prunes in any::<bool>(), ops in ops()) {
        let mut world = World::new(&policy, prunes);
        world.reconcile()?;
        for op in &ops {
            world.apply(op);
            world.reconcile()?;
            world.check()?;
        }
    }

    #[test]
    fn an_application_left_alone_settles_whatever_happened_before(policy in policy(), prunes in any::<bool>(), ops in ops()) {
        prop_assume!(policy["type"] != "Always");
        let mut world = World::new(&policy, prunes);
        world.reconcile()?;
        for op in &ops {
            world.apply(op);
            world.reconcile()?;
        }
        for op in [Op::Suspend(false), Op::Refuse(false), Op::Hinder(false), Op::Break(false)] {
            world.apply(&op);
        }
        for _ in 0..60 {
            for op in [Op::Tick(30), Op::PodRuns, Op::PodEnds(0)] {
                world.apply(&op);
                world.reconcile()?;
            }
        }
        prop_assert!(world.gone || world.phase().is_terminal(), "stuck in {:?}", world.phase());
    }
}
