//! Sets: a ReplicaSet or a StatefulSet per resource profile creates the pods and keeps their number.
//!
//! Their executors get their ids from the driver when they start, so an id is known only once its executor registers:
//! [`identify`] finds the pod by its address. The kubelet restarts an ended container in its pod, as another executor: that
//! ends the old one. Where a restart does not help (an image that cannot be pulled, a node on which executors fail), the pod
//! is deleted, and its set creates another.
//!
//! This module decides how large each set is, which pods go first when it shrinks, and which have to be replaced. A set
//! shrinks only by pods without a registered executor.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use firesteel_api::executors::{ExecutorGrantSpec, ExecutorGrantStatus, ExecutorLedgerStatus, Strategy};
use firesteel_api::names;
use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::effects_builder::EffectsBuilder;
use super::ending::{self, Ending};
use super::nodes;
use super::pod::{ExecutorPod, Member, State};
use super::size::Size;
use crate::event_reason::executors as reason;
use crate::identity::bounded_name;
use crate::pod::Words;

/// How long no pod may have a registered executor's address: the watch may lag.
const NOWHERE: SignedDuration = SignedDuration::from_secs(10);
/// How long a set without pods may be refused new ones before the application is ended.
const REFUSED: SignedDuration = SignedDuration::from_secs(60);
/// The longest name of a set: a label of its pods holds the name and a hash.
const LONGEST_NAME: usize = 52;

/// A set of executors, as far as decisions depend on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutorSet {
    /// The resource profile, by its label.
    pub profile: String,
    pub name: String,
    pub uid: String,
    /// `spec.replicas`.
    pub replicas: u32,
    /// Of each pod, if recorded.
    pub size: Option<Size>,
    /// Created before the driver asked for its executors.
    pub early: bool,
    /// It is being deleted.
    pub leaving: bool,
    /// Why it cannot create pods, and since when.
    pub trouble: Option<Trouble>,
    /// The hash of its plan, by its annotation.
    pub plan: Option<String>,
    /// A hash of its current template.
    pub template: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    pub words: Words,
    pub since: Timestamp,
}

impl ExecutorSet {
    pub fn of_replica_set(set: &ReplicaSet) -> Self {
        let conditions = set.status.iter().flat_map(|s| s.conditions.iter().flatten());
        let is = |word: &Option<String>, text: &str| word.as_deref() == Some(text);
        let mut failures = conditions.filter(|c| is(&c.type_, "ReplicaFailure") && is(&c.status, "True"));
        let failure = failures.next();
        let trouble = failure.map(|c| Trouble {
            words: Words {
                reason: c.reason.clone().filter(|r| !r.is_empty()).unwrap_or_else(|| "ReplicaFailure".to_owned()),
                message: c.message.clone().unwrap_or_default(),
            },
            since: c.last_transition_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |t| t.0),
        });
        ExecutorSet { trouble, ..ExecutorSet::of(&set.metadata, set.spec.replicas) }
    }

    /// The status of a StatefulSet does not say why it cannot create pods.
    pub fn of_stateful_set(set: &StatefulSet) -> Self {
        ExecutorSet::of(&set.metadata, set.spec.replicas)
    }

    /// Whether a pod is one of its members.
    pub(super) fn has(&self, pod: &ExecutorPod) -> bool {
        pod.member.as_ref().is_some_and(|member| member.set == self.uid)
    }

    fn of(meta: &ObjectMeta, replicas: Option<i32>) -> Self {
        let label = meta.labels.as_ref().and_then(|l| l.get(names::LABEL_EXECUTOR_PROFILE));
        ExecutorSet {
            profile: label.cloned().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            replicas: replicas.map_or(1, |n| u32::try_from(n).unwrap_or_default()),
            size: Size::of_set(meta),
            early: meta.annotations.as_ref().is_some_and(|a| a.contains_key(names::ANNOTATION_EARLY)),
            leaving: meta.deletion_timestamp.is_some(),
            trouble: None,
            plan: meta.annotations.as_ref().and_then(|a| a.get(names::ANNOTATION_PLAN)).cloned(),
            template: String::new(),
        }
    }
}

/// A change to the metadata of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberPatch {
    pub name: String,
    pub uid: String,
    /// The executor in it from now on, or none, and how many containers have ended in it.
    pub executor: Option<(Option<u64>, u32)>,
    /// Whether it goes first when the set shrinks.
    pub cheap: Option<bool>,
}

/// Why executors cannot be members of sets, if so.
pub fn refusal(strategy: Strategy, host_network: bool) -> Option<&'static str> {
    match strategy {
        Strategy::Pods => None,
        Strategy::ReplicaSet | Strategy::StatefulSet => host_network.then_some(
            "members of a set are told apart by their addresses, which pods with hostNetwork share; use \
             spark.kubernetes.allocation.pods.allocator=firesteel, or leave hostNetwork out of the executors' template",
        ),
    }
}

/// The name of a profile's set.
pub fn name(strategy: Strategy, app_id: &str, profile: &str) -> String {
    let letter = if strategy == Strategy::StatefulSet { "s" } else { "r" };
    let fit = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let id: String = app_id.chars().map(fit).collect();
    bounded_name(&format!("spark-{letter}-{}-{profile}", id.trim_matches('-')), LONGEST_NAME)
}

/// The members of these sets, each with the executor in it, by the addresses of registered executors. Single pods are
/// returned unchanged.
pub fn identify(
    grant: &ExecutorGrantSpec,
    demand: &ExecutorGrantStatus,
    ledger: &ExecutorLedgerStatus,
    sets: &[ExecutorSet],
    mut pods: Vec<ExecutorPod>,
) -> Vec<ExecutorPod> {
    if grant.strategy == Strategy::Pods {
        return pods;
    }
    let known: HashSet<&str> = sets.iter().map(|set| set.uid.as_str()).collect();
    pods.retain(|pod| pod.member.as_ref().is_some_and(|member| known.contains(member.set.as_str())));
    let told: HashSet<u64> = ledger.losses.iter().filter_map(|l| l.id.parse().ok()).collect();
    let cut_off: HashSet<u64> = demand.disconnected.iter().filter_map(|id| id.parse().ok()).collect();
    let mut at: HashMap<&str, BTreeSet<u64>> = HashMap::new();
    for (id, address) in &demand.registered {
        if let Some(id) = id.parse().ok().filter(|id| !told.contains(id)) {
            at.entry(address).or_default().insert(id);
        }
    }
    // An address may be reused: it belongs to the live pod, or else to the last pod that had it.
    let mut latest: HashMap<String, (bool, Timestamp, String)> = HashMap::new();
    for pod in &pods {
        let Some(address) = pod.address.clone() else { continue };
        let rank = (!matches!(pod.state, State::Ended(_)), pod.created, pod.uid.clone());
        let best = latest.entry(address).or_insert_with(|| rank.clone());
        *best = rank.max(best.clone());
    }
    for pod in &mut pods {
        let Some(member) = &mut pod.member else { continue };
        let own = |address: &&String| latest.get(*address).is_some_and(|(_, _, uid)| *uid == pod.uid);
        let mut here = pod.address.as_ref().filter(own).and_then(|a| at.get(a.as_str())).cloned().unwrap_or_default();
        let ended = member.ends > member.accounted;
        let label = member.label.filter(|id| !told.contains(id));
        if !ended || member.label.is_some() {
            // One that disconnected before it was seen here may have been in another pod with this address.
            here.retain(|id| !cut_off.contains(id));
        }
        here.extend(label);
        // Ids increase, so the last one is in the pod now, unless its container is known to have ended.
        pod.id = here.last().copied().filter(|id| {
            let over = ended && (member.label == Some(*id) || (member.label.is_none() && cut_off.contains(id)));
            !over
        });
        here.retain(|id| Some(*id) != pod.id);
        member.former = here.into_iter().collect();
    }
    pods
}

impl<'a> EffectsBuilder<'a> {
    /// Checks each member: has an executor in it ended, or will none ever work there?
    pub(super) fn judge_members(&mut self) {
        let pods = self.sight.pods;
        for pod in pods {
            let Some(member) = &pod.member else { continue };
            if self.is_held(pod) || self.was_withdrawn(pod, member) {
                self.judge_held_member(pod, member);
                continue;
            }
            for id in &member.former {
                self.report_once(Some(*id), pod, &of_former(pod, member));
            }
            let accounted = self.accounted(pod, member);
            // The end of a labelled executor was reported by its id.
            let unnamed = member.label.is_none() && member.former.is_empty() && member.ends > accounted;
            if let State::Ended(end) = &pod.state {
                let ending = ending::of_end(pod, end);
                if pod.id.is_some() || unnamed {
                    let ending = if unnamed { ending.unless_done() } else { ending };
                    self.report_once(pod.id, pod, &ending);
                }
                self.account(pod, member.ends);
                self.ended.insert(pod.uid.clone());
                if pod.leaving_by.is_none() {
                    self.remove(pod, true);
                }
                continue;
            }
            if self.counted(pod) > member.ends {
                self.give_up(pod);
                continue;
            }
            if unnamed {
                if let Some(end) = &member.last {
                    self.report_once(None, pod, &ending::of_end(pod, end).unless_done());
                }
                self.account(pod, member.ends);
            }
            if let Some(ending) = self.ending(pod) {
                self.report_once(pod.id, pod, &ending);
                self.account(pod, member.ends.saturating_add(1));
                self.give_up(pod);
            }
        }
    }

    fn report_once(&mut self, id: Option<u64>, pod: &ExecutorPod, ending: &Ending) {
        if !id.is_some_and(|id| self.reported.contains(&id)) {
            self.report(id, pod.node.clone(), ending);
        }
    }

    /// How many container ends are accounted for.
    fn accounted(&self, pod: &ExecutorPod, member: &Member) -> u32 {
        self.counted(pod).max(member.accounted)
    }

    /// How many of them the ledger has counted.
    fn counted(&self, pod: &ExecutorPod) -> u32 {
        self.effects.ledger.failures.members.get(&pod.uid).copied().unwrap_or_default()
    }

    fn account(&mut self, pod: &ExecutorPod, ends: u32) {
        self.effects.ledger.failures.members.insert(pod.uid.clone(), ends);
    }

    fn give_up(&mut self, pod: &'a ExecutorPod) {
        self.ended.insert(pod.uid.clone());
        self.given_up.push(pod);
    }

    /// Reports registered executors that are in no pod.
    pub(super) fn judge_nowhere(&mut self) {
        let memory = self.sight.memory;
        let addresses: HashSet<&str> = self.sight.pods.iter().filter_map(|p| p.address.as_deref()).collect();
        let present: HashSet<u64> = self.sight.pods.iter().flat_map(ExecutorPod::ids).collect();
        let mut nowhere: Vec<u64> = self.registered.iter().copied().collect();
        nowhere.retain(|id| !present.contains(id) && !self.reported.contains(id));
        nowhere.sort_unstable();
        for id in nowhere {
            let address = self.sight.demand.registered.get(&id.to_string());
            let unknown = address.is_none_or(|address| !addresses.contains(address.as_str()));
            let cut_off = memory.disconnected_since.contains_key(&id);
            // One that was in a pod a moment ago is lost with it.
            let gone = memory.registered.contains(&id) || (cut_off && unknown);
            let since = memory.nowhere_since.get(&id).copied().unwrap_or(self.sight.now);
            let ending =
                if gone { Some(ending::of_missing()) } else { self.due((since + NOWHERE, ending::of_missing())) };
            if let Some(ending) = ending {
                self.report(Some(id), None, &ending);
            }
        }
    }

    /// Deletes members so that their sets create others: those given up, and those that fail on an avoided node. After
    /// consecutive failures this waits, as for single pods.
    pub(super) fn replace_members(&mut self) {
        let avoided = nodes::avoided(&self.effects.ledger.avoided_nodes, self.sight.now);
        let fails_there = |pod: &&ExecutorPod| {
            let failed = pod.member.as_ref().is_some_and(|m| m.ends > 0);
            let there = pod.node.as_ref().is_some_and(|node| avoided.contains(node));
            failed && there && self.is_live(pod) && !self.is_registered(pod)
        };
        let mut replaced: Vec<&ExecutorPod> = self.sight.pods.iter().filter(fails_there).collect();
        replaced.append(&mut self.given_up);
        let held = self.held_until();
        for pod in replaced {
            self.ended.insert(pod.uid.clone());
            match (pod.leaving_by, held) {
                (None, Some(at)) => self.wake(at),
                (None, None) => self.remove(pod, matches!(pod.state, State::Pending { .. })),
                // Its node does not respond; nothing will confirm its end.
                (Some(by), _) if self.sight.now > by => self.remove(pod, true),
                (Some(by), _) => self.wake(by),
            }
        }
    }

    /// Decides the size of each set.
    pub(super) fn size_sets(&mut self, wanted: &BTreeMap<String, u32>) {
        self.judge_trouble();
        let mut shrinking = Vec::new();
        for set in self.sight.sets.iter().filter(|set| !set.leaving) {
            let want = if self.is_another(set) { 0 } else { wanted.get(&set.profile).copied().unwrap_or_default() };
            let size = if want < set.replicas { self.shrink(set, want, &mut shrinking) } else { set.replicas };
            if size < set.replicas && set.early && self.admitted().is_none() {
                self.count_withdrawn(set.replicas - size);
            } else if size < set.replicas {
                self.note_withdrawal(&set.profile, want);
            }
            if size > 0 {
                self.sizes.insert(set.profile.clone(), size);
            }
        }
        self.mark_cheap(&shrinking);
        if !self.is_ready() {
            return;
        }
        let mut unused = self.unused();
        for (profile, want) in wanted {
            let set = self.sight.sets.iter().find(|set| set.profile == *profile);
            // A set that is being deleted, or whose members have another size, must be gone before it is created again.
            let have = set.map_or(0, |set| if set.leaving || self.is_another(set) { *want } else { set.replicas });
            let size = self.size(profile);
            let more = want.saturating_sub(have).min(unused.fits(&size));
            unused.take(&size, more);
            if more > 0 {
                self.ask(profile, more, have);
            }
        }
    }

    /// Whether the driver reports another size for a profile than its set's members have, or other executors than were created
    /// before it asked. Spark never changes a profile; a second SparkContext may have another default profile, when the set is
    /// empty.
    fn is_another(&self, set: &ExecutorSet) -> bool {
        let wanted = self.profiles().contains_key(&set.profile);
        let other = |size: &Size| *size != self.size(&set.profile);
        let misfit = || set.early && self.admitted().is_none() && self.misfit().is_some();
        wanted && set.replicas > 0 && (set.size.as_ref().is_some_and(other) || misfit())
    }

    /// The size a set can shrink to now. Pods to delete are added to `going`; they count only once their mark is visible,
    /// because the set's controller sees it no sooner. Pods without a node need no mark: the controller deletes them first,
    /// and sees the new size before one of them could get a node and start.
    fn shrink(&self, set: &ExecutorSet, want: u32, going: &mut Vec<&'a ExecutorPod>) -> u32 {
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let members: Vec<&ExecutorPod> = self.sight.pods.iter().filter(|pod| set.has(pod) && pod.is_live()).collect();
        if want == 0 && !members.iter().any(|pod| self.is_registered(pod)) {
            return 0;
        }
        if self.sight.grant.strategy == Strategy::StatefulSet {
            let busy = members.iter().filter(|pod| self.is_registered(pod));
            let last = busy.filter_map(|pod| pod.name.rsplit('-').next()?.parse::<u32>().ok()).max();
            return last.map_or(0, |last| last.saturating_add(1)).clamp(want, set.replicas);
        }
        let have = count(members.len());
        let unmade = set.replicas.saturating_sub(have);
        let cheap_member = |pod: &ExecutorPod| pod.member.as_ref().is_some_and(|m| m.cheap);
        let busy_and_cheap = members.iter().any(|pod| cheap_member(pod) && self.is_registered(pod));
        let mut free: Vec<&ExecutorPod> = members.into_iter().filter(|pod| !self.is_registered(pod)).collect();
        free.sort_by_key(|pod| {
            let progress = match pod.state {
                State::Ended(_) => 0,
                State::Pending { scheduled: false, .. } => 1,
                State::Pending { scheduled: true, .. } => 2,
                State::Running { .. } => 3,
            };
            (!has_no_node(pod), !cheap_member(pod), progress, Reverse(pod.created), pod.name.clone())
        });
        // Some may already be going, because of an earlier size.
        let before = have.saturating_sub(set.replicas);
        let surplus = set.replicas - want;
        let more = surplus.saturating_sub(unmade).min(count(free.len()).saturating_sub(before));
        let first = |n: u32| free.iter().take(n as usize);
        going.extend(first(before + more).copied());
        // One that registered after it was marked must lose its mark first, or it would be deleted instead of another.
        let certain = |pod: &&&ExecutorPod| has_no_node(pod) || (cheap_member(pod) && !busy_and_cheap);
        let certain = count(first(before + more).filter(certain).count());
        set.replicas - surplus.min(unmade) - certain.saturating_sub(before).min(more)
    }

    /// Marks the pods that go first, and unmarks those that stay after all.
    fn mark_cheap(&mut self, going: &[&ExecutorPod]) {
        let uids: HashSet<&str> = going.iter().map(|pod| pod.uid.as_str()).collect();
        for set in self.sight.sets {
            let members: Vec<&ExecutorPod> =
                self.sight.pods.iter().filter(|pod| set.has(pod) && pod.is_live()).collect();
            // The controller needs the marks until it has deleted its surplus.
            let settled = members.len() <= set.replicas as usize;
            for pod in members.into_iter().filter(|pod| !has_no_node(pod)) {
                let is = pod.member.as_ref().is_some_and(|m| m.cheap);
                let shall = uids.contains(pod.uid.as_str());
                if is != shall && (shall || settled) {
                    self.mark(pod).cheap = Some(shall);
                }
            }
        }
    }

    /// Labels members with the executors in them.
    pub(super) fn mark_members(&mut self) {
        for pod in self.sight.pods.iter().filter(|pod| pod.is_live()) {
            let Some(member) = &pod.member else { continue };
            if member.label != pod.id {
                self.mark(pod).executor = Some((pod.id, member.ends));
            }
        }
    }

    fn mark(&mut self, pod: &ExecutorPod) -> &mut MemberPatch {
        let marks = &mut self.effects.marks;
        let index = marks.iter().position(|mark| mark.uid == pod.uid).unwrap_or_else(|| {
            marks.push(MemberPatch { name: pod.name.clone(), uid: pod.uid.clone(), executor: None, cheap: None });
            marks.len() - 1
        });
        &mut marks[index]
    }

    /// Ends the application if its sets are permanently refused pods and none is left. A full quota is waited for.
    fn judge_trouble(&mut self) {
        if self.effects.ledger.verdict.is_some() || self.sight.pods.iter().any(|pod| self.is_live(pod)) {
            return;
        }
        let lasting = |trouble: &&Trouble| !trouble.words.message.contains("exceeded quota");
        let Some(trouble) = self.sight.sets.iter().find_map(|set| set.trouble.as_ref().filter(lasting)) else { return };
        let until = trouble.since + REFUSED;
        if self.sight.now < until {
            self.wake(until);
            return;
        }
        let message = format!("the cluster refuses executors: {}", trouble.words.message);
        self.sentence(reason::ALL_REFUSED, message);
    }
}

/// Whether a pod is not scheduled yet.
fn has_no_node(pod: &ExecutorPod) -> bool {
    matches!(pod.state, State::Pending { scheduled: false, .. })
}

/// Why an executor ended whose pod still exists.
fn of_former(pod: &ExecutorPod, member: &Member) -> Ending {
    if let State::Ended(end) = &pod.state {
        return ending::of_end(pod, end);
    }
    match &member.last {
        Some(end) if member.ends > member.accounted => ending::of_end(pod, end),
        Some(_) | None => ending::of_restarted(),
    }
}
