//! Executors of one application: how many to start, which to withdraw, which were lost and why.
//!
//! [`demand`] reads the grant, the driver's demand, the ledger and the observed pods, and says how many executors to create.
//! The caller finds out how many of them may be created now, and [`step`] turns that into [`Effects`]: everything to write.
//! The caller writes the ledger first and then performs the rest, so that a crash in between neither reuses an id nor hides
//! a loss. What cannot be observed in the cluster (creations in flight, recent registrations, refusals) is [`Memory`];
//! losing it costs time, never correctness.
//!
//! - [`pod`] is the view of a pod, [`ending`] explains why it ended, and [`memory`] is what is remembered;
//! - `draft` builds a decision: `singles` for pods that the operator creates one by one, [`sets`] for pods that a ReplicaSet
//!   or a StatefulSet creates;
//! - `clamp` keeps demand within the grant, [`size`] adds it up, and `flapping` slows down demand that keeps changing;
//! - [`early`] looks after executors created before the driver asks for them;
//! - `failures` reacts to failures and refusals, [`nodes`] remembers nodes on which executors fail;
//! - [`creation`] and [`set_plan`] build the pods, claims and sets.
//!
//! [`crate::fair`] shares capacity between applications, and [`crate::grant`] decides which grants are accepted.

mod clamp;
pub mod creation;
pub mod early;
mod effects_builder;
pub mod ending;
mod failures;
mod flapping;
pub mod memory;
pub mod nodes;
pub mod pod;
pub mod set_plan;
pub mod sets;
mod singles;
pub mod size;

use std::collections::{BTreeMap, BTreeSet};

use firesteel_api::executors::{ExecutorGrantSpec, ExecutorGrantStatus, ExecutorLedgerStatus, ProfileDemand, Strategy};
use k8s_openapi::jiff::Timestamp;

use creation::Creation;
use early::DriverPlace;
use effects_builder::EffectsBuilder;
use memory::Memory;
use pod::{ExecutorPod, Flight, Stage};
use set_plan::SetWrite;
use sets::{ExecutorSet, MemberPatch};
use size::{Amount, Size};
pub(crate) use size::{mebibytes, whole};

/// True while as many executors run as are wanted.
pub const CONDITION_SATISFIED: &str = "Satisfied";
/// False while the driver asks for more than it was granted.
pub const CONDITION_WITHIN_MAXIMUM: &str = "WithinMaximum";
/// The most losses the ledger keeps: a driver with more unseen ones is not reading them.
pub const MOST_LOSSES: u64 = 1000;

/// The state of a grant's driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Driver {
    /// Not seen yet, or not running yet.
    Starting,
    Running,
    /// Ended, deleted, or replaced by another pod.
    Ended,
}

/// Everything a decision depends on.
#[derive(Debug, Clone, Copy)]
pub struct Sight<'a> {
    pub namespace: &'a str,
    pub grant: &'a ExecutorGrantSpec,
    pub demand: &'a ExecutorGrantStatus,
    /// What is wanted before the driver has reported anything, even while it starts.
    pub early: Option<&'a BTreeMap<String, ProfileDemand>>,
    /// Executors that may exist by now, if a queue admits fewer than are wanted.
    pub admitted: Option<u32>,
    /// Has the driver's uid once the driver was seen.
    pub ledger: &'a ExecutorLedgerStatus,
    pub driver: Driver,
    pub place: DriverPlace<'a>,
    /// With sets: as returned by [`sets::identify`].
    pub pods: &'a [ExecutorPod],
    pub sets: &'a [ExecutorSet],
    /// Executors being created, until their pods are seen.
    pub in_flight: &'a BTreeMap<u64, Flight>,
    pub memory: &'a Memory,
    /// The operator's limit per application, whatever the grant says.
    pub limit: Amount,
    /// The operator's limit for all applications of the namespace together.
    pub namespace_limit: Amount,
    pub now: Timestamp,
}

impl Sight<'_> {
    /// Creations not yet sent to the API server, newest first.
    fn queued(&self) -> impl Iterator<Item = u64> {
        self.in_flight.iter().rev().filter(|(_, flight)| flight.stage == Stage::Queued).map(|(id, _)| *id)
    }
}

/// What an application would like to create now.
#[derive(Debug)]
pub struct Demand<'a> {
    builder: EffectsBuilder<'a>,
    wanted: BTreeMap<String, u32>,
}

/// A request for executors of one profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    pub profile: String,
    /// Of each.
    pub size: Size,
    pub count: u32,
    /// How many of the profile exist or are being created.
    have: u32,
}

/// How much of the request may be created now.
#[derive(Debug, Clone, Default)]
pub struct Slots {
    /// How many the namespace has room for, per request; `None` if that was not determined.
    pub namespace: Option<Vec<u32>>,
    /// How many in all.
    pub most: u32,
    /// When to request the rest.
    pub again: Option<Timestamp>,
    /// Claims of the application that exist, if [`Demand::needs_claims`].
    pub claims: Option<BTreeSet<String>>,
}

/// What to write, in this order.
#[derive(Debug, Clone, Default)]
pub struct Effects {
    pub ledger: ExecutorLedgerStatus,
    /// Only counts have changed: it need not be written in this pass.
    pub ledger_may_wait: bool,
    /// Creations no longer wanted, unless already sent to the API server.
    pub cancel: Vec<u64>,
    pub notes: Vec<Note>,
    /// Members of sets to label.
    pub marks: Vec<MemberPatch>,
    pub sets: Vec<SetWrite>,
    /// Ended pods to keep, marked inactive.
    pub retire: Vec<String>,
    /// Pods to delete.
    pub remove: Vec<Removal>,
    pub create: Vec<Creation>,
    /// Delete the application's claims.
    pub remove_claims: bool,
    /// The application has ended: nothing of it is needed any more.
    pub over: bool,
    /// Claims that exist after this; `None` if they have to be listed again.
    pub claims: Option<BTreeSet<String>>,
    /// When to look again even if nothing happens.
    pub wake: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removal {
    pub name: String,
    pub uid: String,
    /// Without a grace period, which nothing in the pod could use.
    pub at_once: bool,
}

/// News for users, published as an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    pub warning: bool,
    pub reason: &'static str,
    pub text: String,
}

/// Why a grant cannot be served, if so.
pub fn refusal(grant: &ExecutorGrantSpec) -> Option<String> {
    let containers = grant.template.spec.iter().flat_map(|s| &s.containers);
    if !containers.clone().any(|c| c.name == grant.container) {
        return Some(format!("spec.template has no container named {}, the one Spark runs in", grant.container));
    }
    if grant.strategy == Strategy::StatefulSet && grant.dynamic {
        return Some(
            "a StatefulSet removes its pods by number, busy or not, so it cannot follow dynamic allocation; use \
             spark.kubernetes.allocation.pods.allocator=firesteel or firesteel-replicaset"
                .to_owned(),
        );
    }
    if grant.strategy == Strategy::ReplicaSet && !grant.claims.is_empty() {
        return Some(
            "the members of a ReplicaSet cannot have a PersistentVolumeClaim each; use \
             spark.kubernetes.allocation.pods.allocator=firesteel or firesteel-statefulset"
                .to_owned(),
        );
    }
    let shared = grant.template.spec.as_ref().and_then(|spec| spec.host_network).unwrap_or_default();
    sets::refusal(grant.strategy, shared).map(str::to_owned)
}

/// Decides everything but creations, and says what it would like to create. Pure.
pub fn demand<'a>(sight: &'a Sight<'a>) -> Demand<'a> {
    let mut builder = EffectsBuilder::new(sight);
    if sight.driver == Driver::Ended || sight.demand.stopped {
        builder.end();
        return Demand { builder, wanted: BTreeMap::new() };
    }
    match sight.grant.strategy {
        Strategy::Pods => {
            builder.judge();
            builder.judge_missing();
        }
        Strategy::ReplicaSet | Strategy::StatefulSet => {
            builder.judge_members();
            builder.judge_nowhere();
        }
    }
    builder.guard_early();
    builder.follow_failures();
    builder.follow_refusal();
    builder.follow_nodes();
    let wanted = builder.clamp();
    match sight.grant.strategy {
        Strategy::Pods => {
            builder.withdraw_misfits();
            builder.balance(&wanted);
        }
        Strategy::ReplicaSet | Strategy::StatefulSet => {
            builder.replace_members();
            builder.size_sets(&wanted);
            builder.mark_members();
        }
    }
    builder.admit_early(&wanted);
    builder.hold_back();
    Demand { builder, wanted }
}

impl Demand<'_> {
    /// In the order in which slots are assigned.
    pub fn asked(&self) -> &[Asked] {
        &self.builder.asked
    }

    /// Whether the claims of the application have to be listed: new executors may take some over.
    pub fn needs_claims(&self) -> bool {
        let grant = self.builder.sight.grant;
        let creates = grant.strategy == Strategy::Pods && !self.asked().is_empty();
        grant.reuse_claims && creates && self.builder.known_claims().is_none()
    }
}

/// Completes the decision with the slots that were found. Pure.
pub fn step(demand: Demand<'_>, slots: &Slots) -> Effects {
    let Demand { mut builder, wanted } = demand;
    builder.take(slots);
    match builder.sight.grant.strategy {
        Strategy::Pods => builder.create(slots),
        Strategy::ReplicaSet | Strategy::StatefulSet => builder.write_sets(),
    }
    builder.skip_sent();
    builder.finish(&wanted)
}
