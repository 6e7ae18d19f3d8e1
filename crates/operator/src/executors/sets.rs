//! ReplicaSets and StatefulSets of executors: what is known of them, and every change made to them and their members.
//!
//! A set's name derives from its application and profile, its owner is the driver pod, and an annotation says what it was
//! made from: whoever comes after a crash finds the same set and goes on with it.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use firesteel_api::executors::{ExecutorGrantSpec, ProfileDemand, Strategy};
use firesteel_api::{ExecutorGrant, names};
use firesteel_core::allocation::nodes;
use firesteel_core::allocation::sets::{ExecutorSet, Mark, name};
use firesteel_core::allocation::size::{Amount, Size};
use firesteel_core::identity::digest;
use firesteel_core::pod::DriverPod;
use firesteel_spark::executor;
use futures::StreamExt;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::index::{AppKey, Index};
use super::writes::{Refusal, mark, owner, profile_of, template};
use crate::error::{Class, During, Error, class};
use crate::writes::delete;

/// Members that are marked at the same time.
const PARALLEL: usize = 16;
/// After this long without being seen, a mark is made again.
const UNSEEN: Duration = Duration::from_secs(5);
/// What a pod that is to go first costs; others cost nothing.
const CHEAP: &str = "-1000";

/// A kind of set.
pub(super) trait Set:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned + Send + Sync + 'static
{
    const STRATEGY: Strategy;
    fn read(&self) -> ExecutorSet;
    fn template(&self) -> Result<Value, serde_json::Error>;
}

impl Set for ReplicaSet {
    const STRATEGY: Strategy = Strategy::ReplicaSet;

    fn read(&self) -> ExecutorSet {
        ExecutorSet::of_replica_set(self)
    }

    fn template(&self) -> Result<Value, serde_json::Error> {
        serde_json::to_value(&self.spec.template)
    }
}

impl Set for StatefulSet {
    const STRATEGY: Strategy = Strategy::StatefulSet;

    fn read(&self) -> ExecutorSet {
        ExecutorSet::of_stateful_set(self)
    }

    fn template(&self) -> Result<Value, serde_json::Error> {
        serde_json::to_value(&self.spec.template)
    }
}

/// One set.
#[derive(Debug, Clone)]
pub(super) struct Known {
    pub(super) set: ExecutorSet,
    strategy: Strategy,
    /// The driver pod it belongs to.
    owner: Option<String>,
    /// Grows with every change of its specification.
    generation: i64,
    /// What it was made from, by its annotation.
    plan: Option<String>,
    /// A hash of its template as it is.
    template: String,
}

type Apps = HashMap<AppKey, BTreeMap<String, Known>>;

/// All sets.
#[derive(Debug, Default)]
pub(super) struct Sets {
    apps: Mutex<Apps>,
    replica_sets: Mutex<Listing>,
    stateful_sets: Mutex<Listing>,
}

/// How far the listing of a kind is.
#[derive(Debug, Default)]
struct Listing {
    done: bool,
    /// This operator may not list them.
    forbidden: bool,
    found: Apps,
}

/// What is remembered of the writes of one application.
#[derive(Debug, Default)]
pub(super) struct Written {
    /// Marks by the uid of their pods, and when.
    marks: HashMap<String, (Mark, Instant)>,
    /// By profile: what a set's template was made from, and what the cluster made of it.
    templates: HashMap<String, (String, String)>,
}

/// Keeps track of one kind of sets.
pub(super) async fn follow<K: Set>(sets: &Sets, api: Api<K>, touched: &impl Fn(Vec<AppKey>)) {
    let config = watcher::Config::default().labels(names::LABEL_ALLOCATOR);
    let mut events = watch(api, config).default_backoff().boxed();
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => touched(sets.apply(event)),
            Err(watcher::Error::InitialListFailed(kube::Error::Api(status))) if status.code == 403 => {
                // An operator that may not see any makes none.
                sets.listing::<K>().forbidden = true;
                tracing::debug!("{} may not be listed", K::plural(&()));
            }
            Err(error) => tracing::warn!(%error, "the watch of {} is interrupted", K::plural(&())),
        }
    }
}

impl Sets {
    fn listing<K: Set>(&self) -> MutexGuard<'_, Listing> {
        lock(match K::STRATEGY {
            Strategy::StatefulSet => &self.stateful_sets,
            Strategy::ReplicaSet | Strategy::Pods => &self.replica_sets,
        })
    }

    /// Takes one event of a watch in and gives the applications it concerns.
    fn apply<K: Set>(&self, event: Event<K>) -> Vec<AppKey> {
        match event {
            Event::Init => {
                self.listing::<K>().found.clear();
                Vec::new()
            }
            Event::InitApply(set) => {
                put(&mut self.listing::<K>().found, &set);
                Vec::new()
            }
            Event::InitDone => {
                let mut listing = self.listing::<K>();
                listing.done = true;
                let found = std::mem::take(&mut listing.found);
                drop(listing);
                let mut apps = lock(&self.apps);
                let mut touched: Vec<AppKey> = apps.keys().chain(found.keys()).cloned().collect();
                for known in apps.values_mut() {
                    known.retain(|_, each| each.strategy != K::STRATEGY);
                }
                for (key, sets) in found {
                    apps.entry(key).or_default().extend(sets);
                }
                apps.retain(|_, sets| !sets.is_empty());
                touched.sort_unstable();
                touched.dedup();
                touched
            }
            Event::Apply(set) => put(&mut lock(&self.apps), &set).into_iter().collect(),
            Event::Delete(set) => {
                let Some(key) = key(set.meta()) else { return Vec::new() };
                let mut apps = lock(&self.apps);
                if let Some(sets) = apps.get_mut(&key) {
                    sets.retain(|_, each| Some(&each.set.uid) != set.meta().uid.as_ref());
                    if sets.is_empty() {
                        apps.remove(&key);
                    }
                }
                vec![key]
            }
        }
    }

    /// The sets of one driver; `None` before they were listed.
    pub(super) fn of(&self, strategy: Strategy, key: &AppKey, driver: Option<&str>) -> Option<Vec<Known>> {
        let listed = match strategy {
            Strategy::Pods => return Some(Vec::new()),
            Strategy::ReplicaSet => lock(&self.replica_sets).done,
            Strategy::StatefulSet => lock(&self.stateful_sets).done,
        };
        if !listed {
            return None;
        }
        let ours = |each: &&Known| each.strategy == strategy && driver.is_some() && each.owner.as_deref() == driver;
        Some(lock(&self.apps).get(key).into_iter().flat_map(BTreeMap::values).filter(ours).cloned().collect())
    }

    /// Whether all sets are known that this operator may see.
    pub(super) fn listed(&self) -> bool {
        [&self.replica_sets, &self.stateful_sets].into_iter().all(|kind| {
            let listing = lock(kind);
            listing.done || listing.forbidden
        })
    }

    /// Adds what the pods take that sets of a namespace have yet to make.
    pub(super) fn add_unmade(&self, index: &Index, namespace: &str, used: &mut HashMap<AppKey, Amount>) {
        let apps = lock(&self.apps);
        if apps.is_empty() {
            return;
        }
        let made = index.members();
        for (key, sets) in apps.iter().filter(|(key, _)| key.0 == namespace) {
            for known in sets.values().filter(|known| !known.set.leaving) {
                let made = made.get(&known.set.uid).copied().unwrap_or_default();
                let unmade = (known.set.replicas as usize).saturating_sub(made);
                let size = known.set.size.clone().unwrap_or_default();
                used.entry(key.clone()).or_default().add(&size, u64::try_from(unmade).unwrap_or(u64::MAX));
            }
        }
    }

    /// Pods that sets have yet to make: of all applications that count, and of this one.
    pub(super) fn unmade(&self, index: &Index, own: &AppKey, counts: impl Fn(&AppKey) -> bool) -> (usize, usize) {
        let apps = lock(&self.apps);
        if apps.is_empty() {
            return (0, 0);
        }
        let made = index.members();
        let missing = |known: &Known| {
            (known.set.replicas as usize).saturating_sub(made.get(&known.set.uid).copied().unwrap_or_default())
        };
        let own = apps.get(own).into_iter().flat_map(BTreeMap::values).map(missing).sum();
        let all = apps.iter().filter(|(key, _)| counts(key)).flat_map(|(_, sets)| sets.values()).map(missing).sum();
        (all, own)
    }

    /// Makes the sets what they are to be: `sizes` by profile, and none besides.
    #[expect(clippy::too_many_arguments, reason = "all of one pass")]
    pub(super) async fn carry_out(
        &self,
        client: &Client,
        grant: &ExecutorGrant,
        driver: Option<&DriverPod>,
        sizes: &BTreeMap<String, u32>,
        avoided: &[String],
        known: &[Known],
        written: &mut Written,
    ) -> Result<(), Refusal> {
        let namespace = grant.namespace().unwrap_or_default();
        let kind = match grant.spec.strategy {
            Strategy::StatefulSet => ApiResource::erase::<StatefulSet>(&()),
            Strategy::ReplicaSet | Strategy::Pods => ApiResource::erase::<ReplicaSet>(&()),
        };
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &kind);
        let needless = |each: &&Known| !each.set.leaving && !sizes.contains_key(&each.set.profile);
        for each in known.iter().filter(needless) {
            let what = format!("{} {}", kind.kind, each.set.name);
            delete(&api, &each.set.name, Some(each.set.uid.clone()), false)
                .await
                .map_err(|error| Refusal::of(&error, &what))?;
        }
        let Some(driver) = driver else { return Ok(()) };
        for (profile, size) in sizes {
            let profiles = grant.status.as_ref().map(|status| &status.profiles);
            let found = known.iter().find(|each| each.set.profile == *profile && !each.set.leaving);
            let Some(demand) = profiles.and_then(|profiles| profiles.get(profile)) else {
                // Nobody wants more of them; it shrinks as far as it can.
                if let Some(found) = found.filter(|found| found.set.replicas > *size) {
                    let what = format!("{} {}", kind.kind, found.set.name);
                    change(&api, &found.set.name, &resize(*size), &what).await?;
                }
                continue;
            };
            let plan = SetPlan::new(&grant.spec, driver, profile, demand, avoided);
            let what = format!("{} {}", kind.kind, plan.name);
            let made = match found {
                None => self.create(&api, &plan, *size).await?,
                Some(found) => {
                    // What someone did to the set of an operator before this one cannot be seen; writing it again changes
                    // nothing if nobody did anything.
                    let edited = written
                        .templates
                        .get(profile)
                        .is_none_or(|(plan, as_made)| found.plan.as_ref() == Some(plan) && found.template != *as_made);
                    let Some(patch) = plan.patch(found, *size, edited) else { continue };
                    change(&api, &found.set.name, &patch, &what).await?
                }
            };
            if let Some(made) = made {
                let template = self.remember(grant.spec.strategy, made);
                written.templates.extend(template.map(|as_made| (profile.clone(), (plan.hash.clone(), as_made))));
            }
        }
        Ok(())
    }

    /// Creates a set, or finds the one that an earlier try made.
    async fn create(
        &self,
        api: &Api<DynamicObject>,
        plan: &SetPlan,
        size: u32,
    ) -> Result<Option<DynamicObject>, Refusal> {
        let what = format!("{} {}", plan.kind, plan.name);
        let object: DynamicObject = serde_json::from_value(plan.object(size))
            .map_err(|error| Refusal::Final(format!("{what} cannot be written: {error}")))?;
        match api.create(&PostParams::default(), &object).await {
            Ok(made) => Ok(Some(made)),
            Err(error) if class(&error) == Class::Exists => {
                let found = api.get_opt(&plan.name).await.map_err(|error| Refusal::of(&error, &what))?;
                let Some(found) = found else { return Ok(None) };
                let ours = found.owner_references().iter().any(|owner| owner.uid == plan.owner);
                if ours {
                    // Its news come with the watch, and the next pass looks at it again.
                    return Ok(None);
                }
                Err(Refusal::Final(format!("{what} exists already and does not belong to this driver")))
            }
            Err(error) => Err(Refusal::of(&error, &what)),
        }
    }

    /// Takes in what a write gave back; gives the hash of the template as the cluster has it.
    fn remember(&self, strategy: Strategy, made: DynamicObject) -> Option<String> {
        let name = made.name_any();
        let mut apps = lock(&self.apps);
        let key = match strategy {
            Strategy::StatefulSet => put(&mut apps, &made.try_parse::<StatefulSet>().ok()?),
            Strategy::ReplicaSet | Strategy::Pods => put(&mut apps, &made.try_parse::<ReplicaSet>().ok()?),
        }?;
        Some(apps.get(&key)?.get(&name)?.template.clone())
    }
}

/// Labels members with their executors, and marks those that go first.
pub(super) async fn mark_members(
    client: &Client,
    namespace: &str,
    written: &mut Written,
    marks: &[Mark],
) -> Result<(), Error> {
    let now = Instant::now();
    written.marks.retain(|_, (_, at)| now.duration_since(*at) < UNSEEN);
    let fresh = |mark: &&Mark| written.marks.get(&mark.uid).is_none_or(|(before, _)| before != *mark);
    let fresh: Vec<Mark> = marks.iter().filter(fresh).cloned().collect();
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let writes = fresh.into_iter().map(|mark| {
        let api = api.clone();
        async move {
            let patch = Patch::Merge(patch_of(&mark));
            match api.patch_metadata(&mark.name, &PatchParams::default(), &patch).await {
                Ok(_) => Ok(mark),
                // Gone, or another one of that name by now.
                Err(error) if matches!(class(&error), Class::Missing | Class::Conflict) => Ok(mark),
                Err(error) => Err(error).during(|| format!("label pod {}", mark.name)),
            }
        }
    });
    let outcomes: Vec<Result<Mark, Error>> = futures::stream::iter(writes).buffer_unordered(PARALLEL).collect().await;
    let mut outcome = Ok(());
    for each in outcomes {
        match each {
            Ok(mark) => {
                written.marks.insert(mark.uid.clone(), (mark, now));
            }
            Err(error) => outcome = Err(error),
        }
    }
    outcome
}

/// Another size, and nothing else.
fn resize(size: u32) -> Patch<Value> {
    Patch::Merge(json!({"spec": {"replicas": size}}))
}

/// Changes a set; `None` if it is not there any more.
async fn change(
    api: &Api<DynamicObject>,
    name: &str,
    patch: &Patch<Value>,
    what: &str,
) -> Result<Option<DynamicObject>, Refusal> {
    match api.patch(name, &PatchParams::default(), patch).await {
        Ok(made) => Ok(Some(made)),
        // Deleted meanwhile; the watch will tell.
        Err(error) if matches!(class(&error), Class::Missing | Class::Conflict) => Ok(None),
        Err(error) => Err(Refusal::of(&error, what)),
    }
}

fn patch_of(mark: &Mark) -> Value {
    let mut patch = json!({"metadata": {"uid": mark.uid}});
    if let Some((id, ended)) = mark.executor {
        // Without an executor it is again what its template says.
        let label = id.map_or_else(|| "EXECID".to_owned(), |id| id.to_string());
        patch["metadata"]["labels"][names::LABEL_EXECUTOR_ID] = json!(label);
        patch["metadata"]["annotations"][names::ANNOTATION_ACCOUNTED] = json!(ended.to_string());
    }
    if let Some(cheap) = mark.cheap {
        patch["metadata"]["annotations"][names::ANNOTATION_DELETION_COST] = json!(cheap.then_some(CHEAP));
    }
    patch
}

/// What a set is to be, but for its size.
struct SetPlan {
    kind: &'static str,
    name: String,
    /// The uid of the driver pod.
    owner: String,
    hash: String,
    /// What each of its executors takes.
    size: Size,
    template: Value,
    object: Value,
}

impl SetPlan {
    fn new(
        spec: &ExecutorGrantSpec,
        driver: &DriverPod,
        profile: &str,
        demand: &ProfileDemand,
        avoided: &[String],
    ) -> Self {
        let stateful = spec.strategy == Strategy::StatefulSet;
        let of_spark = if stateful { executor::Strategy::StatefulSet } else { executor::Strategy::ReplicaSet };
        let mut pod = template(spec);
        nodes::keep_away(&mut pod, avoided);
        let mut member = executor::member(&pod, &spec.container, &profile_of(profile, demand), of_spark);
        let given = member.metadata.take().unwrap_or_default();
        let mut meta = ObjectMeta { labels: given.labels, annotations: given.annotations, ..ObjectMeta::default() };
        mark(&mut meta, spec);
        member.metadata = Some(meta);
        let claims = if stateful { claims(spec, &mut member) } else { Vec::new() };
        let labels = json!({
            names::LABEL_APP_SELECTOR: spec.app_id, names::LABEL_ROLE: "executor", names::LABEL_EXECUTOR_PROFILE: profile,
        });
        let mut all = labels.clone();
        all[names::LABEL_ALLOCATOR] = json!("firesteel");
        let template = json!(member);
        let hash = digest(&json!([template, claims]));
        let name = name(spec.strategy, &spec.app_id, profile);
        let kind = if stateful { "StatefulSet" } else { "ReplicaSet" };
        let size = Size::of(spec, profile, demand);
        let mut object = json!({
            "apiVersion": "apps/v1", "kind": kind,
            "metadata": {
                "name": name, "labels": all,
                "annotations": {names::ANNOTATION_PLAN: hash, names::ANNOTATION_SIZE: json!(size).to_string()},
                "ownerReferences": [owner(driver)],
            },
            "spec": {"selector": {"matchLabels": labels}, "template": template},
        });
        if stateful {
            let spec = &mut object["spec"];
            spec["podManagementPolicy"] = json!("Parallel");
            // Another template is for new pods; those that work are left alone.
            spec["updateStrategy"] = json!({"type": "OnDelete"});
            if !claims.is_empty() {
                spec["volumeClaimTemplates"] = json!(claims);
                spec["persistentVolumeClaimRetentionPolicy"] = json!({"whenDeleted": "Delete", "whenScaled": "Retain"});
            }
        }
        SetPlan { kind, name, owner: driver.uid.clone(), hash, size, template, object }
    }

    fn object(&self, size: u32) -> Value {
        let mut object = self.object.clone();
        object["spec"]["replicas"] = json!(size);
        object
    }

    /// What has to change in a set; `None` if nothing has to.
    fn patch(&self, found: &Known, size: u32, edited: bool) -> Option<Patch<Value>> {
        let same = found.plan.as_deref() == Some(self.hash.as_str()) && !edited;
        // Its members would be replaced by others of another size, beside those that stay: it has to be gone first.
        let another = found.set.replicas > 0 && found.set.size.as_ref().is_some_and(|size| *size != self.size);
        if same || another {
            return (found.set.replicas != size).then(|| resize(size));
        }
        let pointer = |name: &str| name.replace('~', "~0").replace('/', "~1");
        let (plan, each) = (pointer(names::ANNOTATION_PLAN), pointer(names::ANNOTATION_SIZE));
        // As a whole: what the old template had and this one has not must go.
        let changes = json!([
            {"op": "add", "path": "/spec/replicas", "value": size},
            {"op": "replace", "path": "/spec/template", "value": self.template},
            {"op": "add", "path": format!("/metadata/annotations/{plan}"), "value": self.hash},
            {"op": "add", "path": format!("/metadata/annotations/{each}"), "value": json!(self.size).to_string()},
        ]);
        serde_json::from_value(changes).ok().map(Patch::Json)
    }
}

/// The claims of a StatefulSet's members, found again by the application's label.
fn claims(spec: &ExecutorGrantSpec, member: &mut PodTemplateSpec) -> Vec<PersistentVolumeClaim> {
    let granted: Vec<PersistentVolumeClaim> = spec
        .claims
        .iter()
        .map(|claim| {
            let mut labels = claim.labels.clone();
            labels.insert(names::LABEL_APP_SELECTOR.to_owned(), spec.app_id.clone());
            PersistentVolumeClaim {
                metadata: ObjectMeta {
                    name: Some(claim.name.clone()),
                    labels: Some(labels),
                    annotations: Some(claim.annotations.clone()).filter(|a| !a.is_empty()),
                    ..ObjectMeta::default()
                },
                spec: Some(claim.spec.clone()),
                ..PersistentVolumeClaim::default()
            }
        })
        .collect();
    executor::claim_templates(member, &granted)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn key(meta: &ObjectMeta) -> Option<AppKey> {
    let app = meta.labels.as_ref()?.get(names::LABEL_APP_SELECTOR)?;
    Some((meta.namespace.clone()?, app.clone()))
}

/// Takes a set in, unless a newer state of it is known.
fn put<K: Set>(apps: &mut Apps, set: &K) -> Option<AppKey> {
    let meta = set.meta();
    let key = key(meta)?;
    let read = set.read();
    let sets = apps.entry(key.clone()).or_default();
    let generation = meta.generation.unwrap_or_default();
    let before = sets.get(&read.name).filter(|before| before.set.uid == read.uid);
    if before.is_some_and(|before| before.generation > generation) {
        return Some(key);
    }
    let template = match before.filter(|before| before.generation == generation) {
        Some(before) => before.template.clone(),
        None => set.template().map(|template| digest(&template)).unwrap_or_default(),
    };
    let mut owners = meta.owner_references.iter().flatten();
    let known = Known {
        strategy: K::STRATEGY,
        owner: owners.find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.clone()),
        generation,
        plan: meta.annotations.as_ref().and_then(|a| a.get(names::ANNOTATION_PLAN)).cloned(),
        template,
        set: read,
    };
    sets.insert(known.set.name.clone(), known);
    Some(key)
}
