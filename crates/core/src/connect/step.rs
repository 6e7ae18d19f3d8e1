//! What follows for a SparkConnect from what is seen of its server: the next status and the effects.
//!
//! [`step`] decides; when it asks for a server to be created, the outcome goes into [`created`]. Effects are carried out
//! before the status is written, and the operator may die in between, so every effect is idempotent: the next step finds
//! the server that was created by its name and adopts it.
//!
//! Invariants: no second server is created while one exists, not even one that is being deleted; a server that runs is
//! deleted only if the specification changed to one that can be planned; pods of others are never touched; a failed server
//! is replaced after a wait that doubles, and that wait is the only reason to leave a SparkConnect without a server.

use std::collections::BTreeMap;

use firesteel_api::SparkConnectStatus;
use firesteel_api::connect::ConnectServerStatus;
use firesteel_api::names::{CONDITION_SERVER_POD_READY, CONDITION_SPEC_ACCEPTED};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::Subject;
use super::application::in_terms_of_servers;
use super::server::{NOT_READY, READY, ServerPod};
use crate::conditions::{self, Holds};
use crate::diagnosis::{self, Cause};
use crate::event_reason::connect as reason;
use crate::lifecycle::{Event, Submission};

/// The wait after a first failure; it doubles with each further one.
const FIRST_WAIT: SignedDuration = SignedDuration::from_secs(10);
const LONGEST_WAIT: SignedDuration = SignedDuration::from_mins(5);
/// How soon to look again while something is being deleted, and if nothing is expected to happen.
const SOON: SignedDuration = SignedDuration::from_secs(1);
const IDLE: SignedDuration = SignedDuration::from_mins(5);

/// States that clients poll. These strings appear only here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Nothing has been done yet.
    New,
    /// The server is being created, or starts.
    Provisioning,
    /// The server accepts connections.
    Ready,
    /// The server was ready and is not any more; it recovers or is replaced.
    NotReady,
    /// The specification cannot work, or the last server ended before it was ready. The latter is tried again.
    Failed,
}

impl State {
    /// An unknown string of another operator counts as new.
    pub fn read(status: &SparkConnectStatus) -> State {
        match status.state.as_deref() {
            Some("Provisioning") => State::Provisioning,
            Some("Ready") => State::Ready,
            Some("NotReady") => State::NotReady,
            Some("Failed") => State::Failed,
            Some(_) | None => State::New,
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            State::New => "",
            State::Provisioning => "Provisioning",
            State::Ready => "Ready",
            State::NotReady => "NotReady",
            State::Failed => "Failed",
        }
    }
}

/// The desired SparkConnect.
#[derive(Debug, Clone, Copy)]
pub struct Connect<'a> {
    pub subject: Subject<'a>,
    /// [`super::application::fingerprint`] of the specification.
    pub spec_hash: &'a str,
    /// [`super::service::hash`] of the planned Service, if there is a plan.
    pub service_hash: Option<&'a str>,
    pub generation: i64,
    pub deleting: bool,
    pub status: &'a SparkConnectStatus,
    /// What is wrong with the specification, if anything: a message that names the field.
    pub problem: Option<&'a str>,
}

/// The observed state of the cluster.
#[derive(Debug, Clone)]
pub struct Sight {
    pub now: Timestamp,
    /// The pod with the name of the server.
    pub server: Option<ServerPod>,
    /// Whether that was read from the API server rather than from a cache that may lag.
    pub confirmed: bool,
    /// The highest number of a server that this operator remembers: the cluster's CRD may not keep it.
    pub last_attempt: i64,
    /// Services for clients of this SparkConnect, by name, with uid and hash.
    pub services: BTreeMap<String, SeenService>,
    /// Executor pods by phase, in lower case.
    pub executors: BTreeMap<String, i32>,
    /// Why the server ended, according to its log.
    pub cause: Option<Cause>,
}

/// A Service for clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenService {
    pub uid: String,
    pub hash: Option<String>,
}

/// An effect. All of them are idempotent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Create or update the Service for clients.
    ApplyService,
    /// Delete a Service for clients that has an earlier name.
    DeleteService { name: String, uid: String },
    /// Create all objects of this server or adopt existing ones, then call [`created`].
    Create { attempt: i64 },
    /// Delete the server pod with this uid.
    DeletePod { name: String, uid: String },
    /// Delete the objects of all servers but this one.
    DeleteObjects { keep: String },
}

/// The outcome of a step.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    pub status: SparkConnectStatus,
    pub effects: Vec<Effect>,
    pub events: Vec<Event>,
    /// When to look again, if nothing happens before.
    pub wake: Option<Timestamp>,
    /// Read the server pod from the API server and decide again.
    pub confirm: bool,
}

/// Decides what follows from an observation.
pub fn step(connect: &Connect<'_>, seen: &Sight) -> Decision {
    let mut builder = Builder::new(connect, seen.now);
    if connect.deleting {
        // Everything is owned by the object and garbage-collected with it.
        return builder.decision;
    }
    builder.accept();
    builder.decision.status.executors.clone_from(&seen.executors);
    if connect.problem.is_none() {
        builder.services(&seen.services);
    }
    match &seen.server {
        None => builder.without_server(seen),
        Some(server) if !server.is_ours => builder.blocked(server),
        Some(server) => builder.with_server(server, seen),
    }
    builder.finish()
}

/// Decides what follows from the creation of server number `attempt`.
pub fn created(connect: &Connect<'_>, attempt: i64, outcome: &Submission, now: Timestamp) -> Decision {
    let mut builder = Builder::new(connect, now);
    builder.accept();
    match outcome {
        Submission::InTheWay => {
            builder.not_ready(State::Provisioning, NOT_READY, "the previous server is being deleted");
            builder.wake_in(SOON);
        }
        Submission::Hindered { why, .. } => {
            let message = format!("the cluster does not create the server, and is asked again: {why}");
            builder.not_ready(State::Provisioning, "ServerPodHindered", &message);
            builder.event(true, reason::SERVER_RETRIED, message);
            builder.wake_in(FIRST_WAIT);
        }
        Submission::Refused(why) | Submission::Impossible(why) => {
            let why = in_terms_of_servers(&diagnosis::refusal(why));
            builder.fail("ServerPodRefused", &format!("the cluster refused the server: {why}"), now, true);
        }
        Submission::Created(created) => {
            builder.adopt(attempt, &created.pod_name);
            builder.not_ready(State::Provisioning, NOT_READY, "the server pod is starting");
            builder.event(false, reason::SERVER_CREATED, format!("created server pod {}", created.pod_name));
            if !created.remarks.is_empty() {
                let note = in_terms_of_servers(&created.remarks.join("; "));
                builder.event(true, reason::REMARK, note);
            }
            if attempt > 1 {
                let keep = crate::identity::submission_id(connect.subject.uid, attempt);
                builder.decision.effects.push(Effect::DeleteObjects { keep });
            }
            builder.wake_in(IDLE);
        }
    }
    builder.finish()
}

/// The part of a status that the existing operator's CRD has.
fn theirs(status: &SparkConnectStatus) -> SparkConnectStatus {
    let mut status = status.clone();
    (status.observed_generation, status.attempt) = (None, None);
    (status.failures, status.next_attempt_time) = (None, None);
    status
}

struct Builder<'a> {
    connect: &'a Connect<'a>,
    now: Timestamp,
    was: State,
    decision: Decision,
}

impl<'a> Builder<'a> {
    fn new(connect: &'a Connect<'a>, now: Timestamp) -> Self {
        Builder {
            connect,
            now,
            was: State::read(connect.status),
            decision: Decision {
                status: connect.status.clone(),
                effects: Vec::new(),
                events: Vec::new(),
                wake: None,
                confirm: false,
            },
        }
    }

    fn finish(mut self) -> Decision {
        let status = &mut self.decision.status;
        status.observed_generation = Some(self.connect.generation);
        // Nothing but a change is worth a write. The existing operator's CRD does not keep our own fields.
        status.last_update_time.clone_from(&self.connect.status.last_update_time);
        if theirs(status) != theirs(self.connect.status) {
            status.last_update_time = Some(Time(self.now));
        }
        self.decision
    }

    fn event(&mut self, warning: bool, reason: &'static str, note: String) {
        self.decision.events.push(Event { warning, reason, note });
    }

    fn wake_at(&mut self, at: Timestamp) {
        self.decision.wake = Some(self.decision.wake.map_or(at, |wake| wake.min(at)));
    }

    fn wake_in(&mut self, wait: SignedDuration) {
        self.wake_at(self.now.checked_add(wait).unwrap_or(Timestamp::MAX));
    }

    fn condition(&mut self, kind: &str, holds: bool, reason: &str, message: &str) {
        let status = if holds { "True" } else { "False" };
        let holds = Holds { kind, status, reason, message };
        conditions::set(&mut self.decision.status.conditions, &holds, self.connect.generation, self.now);
    }

    /// Whether the specification can be carried out, as a condition; a change is also an event.
    fn accept(&mut self) {
        let known = |kind: &str| self.connect.status.conditions.iter().find(|condition| condition.type_ == kind);
        let before =
            known(CONDITION_SPEC_ACCEPTED).map(|condition| (condition.status.clone(), condition.message.clone()));
        match self.connect.problem {
            None => self.condition(CONDITION_SPEC_ACCEPTED, true, "Accepted", ""),
            Some(problem) => {
                self.condition(CONDITION_SPEC_ACCEPTED, false, "Invalid", problem);
                let now = conditions::find(&self.decision.status.conditions, CONDITION_SPEC_ACCEPTED);
                let repeated = now.is_some_and(|now| before == Some((now.status.clone(), now.message.clone())));
                if !repeated {
                    self.event(true, reason::SPEC_REFUSED, problem.to_owned());
                }
            }
        }
    }

    /// The Service for clients has the planned name and content.
    fn services(&mut self, seen: &BTreeMap<String, SeenService>) {
        let name = self.connect.subject.service_name();
        let is_current = seen.get(&name).is_some_and(|service| service.hash.as_deref() == self.connect.service_hash);
        if !is_current {
            self.decision.effects.push(Effect::ApplyService);
        }
        for (other, service) in seen.iter().filter(|(other, _)| **other != name) {
            self.decision.effects.push(Effect::DeleteService { name: other.clone(), uid: service.uid.clone() });
        }
        let server = self.decision.status.server.get_or_insert_default();
        server.service_name = Some(name);
    }

    fn without_server(&mut self, seen: &Sight) {
        let status = &mut self.decision.status;
        let server = status.server.get_or_insert_default();
        (server.pod_name, server.pod_ip) = (None, None);
        if let Some(problem) = self.connect.problem {
            self.decision.status.next_attempt_time = None;
            self.not_ready(State::Failed, "Invalid", problem);
            return;
        }
        let due = status.next_attempt_time.as_ref().map(|time| time.0);
        if let Some(due) = due.filter(|due| *due > self.now) {
            self.wake_at(due);
            return;
        }
        if !seen.confirmed {
            self.decision.confirm = true;
            return;
        }
        // A server that was ready is gone: someone deleted its pod, or its node is gone.
        if matches!(self.was, State::Ready | State::NotReady) && due.is_none() {
            let note = format!("server pod {} no longer exists; it is created again", self.connect.subject.pod_name());
            self.event(true, reason::SERVER_GONE, note);
        }
        let attempt = self.connect.status.attempt.unwrap_or_default().max(seen.last_attempt).max(0).saturating_add(1);
        self.decision.effects.push(Effect::Create { attempt });
        self.wake_in(SOON);
    }

    /// A pod of someone else has the name of the server.
    fn blocked(&mut self, server: &ServerPod) {
        let name = &server.pod.name;
        let message = format!(
            "a pod named {name} exists and does not belong to this SparkConnect; delete it, or choose another name for \
             the SparkConnect"
        );
        if self.was != State::Failed {
            self.event(true, reason::SERVER_FAILED, message.clone());
        }
        self.not_ready(State::Failed, "NameTaken", &message);
        self.wake_in(FIRST_WAIT);
    }

    fn with_server(&mut self, server: &ServerPod, seen: &Sight) {
        let name = &server.pod.name;
        let known = self.connect.status.attempt;
        // Created by an operator that died before it wrote the status. If the cluster's CRD does not keep the number, a state
        // tells that the server is known.
        if known.map_or(self.was == State::New, |known| known != server.attempt) {
            if server.attempt > 1 {
                self.decision.effects.push(Effect::DeleteObjects { keep: server.submission_id.clone() });
            }
            self.adopt(server.attempt, name);
            if self.was != State::New {
                self.was = State::Provisioning;
            }
        }
        let status = self.decision.status.server.get_or_insert_default();
        status.pod_name = Some(name.clone());
        status.pod_ip.clone_from(&server.ip);
        let edited = server.spec_hash.as_deref() != Some(self.connect.spec_hash);
        if server.pod.deleting {
            let state = if edited { State::Provisioning } else { self.falling() };
            self.not_ready(state, "ServerPodTerminating", "the server pod is being deleted; a new one follows");
            self.wake_in(SOON);
        } else if edited && self.connect.problem.is_none() {
            self.decision.status.failures = None;
            self.decision.status.next_attempt_time = None;
            self.delete(server);
            let message = "the specification changed: the server is being replaced";
            self.not_ready(State::Provisioning, "RollingOut", message);
            self.event(false, reason::ROLLED_OUT, format!("{message}; clients must reconnect"));
        } else if let Some(words) = server.last_words(seen.cause.as_ref()) {
            self.ended(server, &words);
        } else if server.is_ready {
            self.ready(server);
        } else {
            self.waits(server);
        }
    }

    fn ready(&mut self, server: &ServerPod) {
        self.enter(State::Ready);
        self.decision.status.failures = None;
        self.decision.status.next_attempt_time = None;
        self.condition(CONDITION_SERVER_POD_READY, true, READY, "the server accepts connections");
        if self.was != State::Ready {
            self.event(false, reason::SERVER_READY, format!("server pod {} is ready", server.pod.name));
        }
        self.wake_in(IDLE);
    }

    fn waits(&mut self, server: &ServerPod) {
        let (word, message) = server.progress();
        let state = self.falling();
        let had = conditions::find(&self.connect.status.conditions, CONDITION_SERVER_POD_READY);
        let is_new = had.is_none_or(|had| had.reason != conditions::reason(&word));
        if is_new && word != NOT_READY {
            self.event(true, reason::SERVER_PENDING, message.clone());
        }
        if state == State::NotReady && self.was == State::Ready {
            self.event(true, reason::SERVER_NOT_READY, message.clone());
        }
        self.not_ready(state, &word, &message);
        self.wake_in(IDLE);
    }

    /// The state of a server that is not ready: one that was ready before has lost that.
    fn falling(&self) -> State {
        match self.was {
            State::Ready | State::NotReady => State::NotReady,
            State::New | State::Provisioning | State::Failed => State::Provisioning,
        }
    }

    fn ended(&mut self, server: &ServerPod, words: &str) {
        let due = self.decision.status.next_attempt_time.as_ref().map(|time| time.0);
        let counted = due.is_some() && matches!(self.was, State::Failed | State::NotReady);
        if !counted {
            let at = server.ended_at().unwrap_or(self.now);
            let was_ready = matches!(self.was, State::Ready | State::NotReady);
            self.fail("ServerPodFailed", words, at, !was_ready && !server.was_taken());
        }
        let Some(due) = self.decision.status.next_attempt_time.as_ref().map(|time| time.0) else { return };
        if self.connect.problem.is_some() {
            // The end of a server stays visible until there is a specification for the next one.
            return;
        }
        if due <= self.now {
            self.delete(server);
        } else {
            self.wake_at(due);
        }
    }

    /// A server failed at `at`; the next one follows after a wait. `before_ready`: it never accepted a connection.
    fn fail(&mut self, reason: &str, why: &str, at: Timestamp, before_ready: bool) {
        let failures = self.connect.status.failures.unwrap_or_default().max(0).saturating_add(1);
        let doublings = u32::try_from(failures - 1).unwrap_or_default().min(10);
        let wait = FIRST_WAIT.saturating_mul(1 << doublings).min(LONGEST_WAIT);
        let due = at.checked_add(wait).unwrap_or(Timestamp::MAX);
        self.decision.status.failures = Some(failures);
        self.decision.status.next_attempt_time = Some(Time(due));
        let first = why.split_once('\n').map_or(why, |(first, _)| first);
        let next = format!("the next server starts {} s after this failure, number {failures}", wait.as_secs());
        let state = if before_ready { State::Failed } else { State::NotReady };
        self.not_ready(state, reason, &why.replacen(first, &format!("{first}; {next}"), 1));
        self.event(true, crate::event_reason::connect::SERVER_FAILED, why.to_owned());
        self.wake_at(due);
    }

    fn delete(&mut self, server: &ServerPod) {
        let (name, uid) = (server.pod.name.clone(), server.pod.uid.clone());
        self.decision.effects.push(Effect::DeletePod { name, uid });
        self.wake_in(SOON);
    }

    /// Server number `attempt` exists.
    fn adopt(&mut self, attempt: i64, pod: &str) {
        let status = &mut self.decision.status;
        status.attempt = Some(attempt);
        status.next_attempt_time = None;
        status.start_time.get_or_insert(Time(self.now));
        let server = status.server.get_or_insert_default();
        *server = ConnectServerStatus { pod_name: Some(pod.to_owned()), pod_ip: None, ..server.clone() };
    }

    fn enter(&mut self, state: State) {
        self.decision.status.state = Some(state.word().to_owned());
    }

    fn not_ready(&mut self, state: State, reason: &str, message: &str) {
        self.enter(state);
        self.condition(CONDITION_SERVER_POD_READY, false, reason, message);
    }
}
