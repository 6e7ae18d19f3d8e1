//! Edits of applications that reach their new executors: labels, annotations, and where executors run.
//!
//! `firesteel_core::grant::live` decides what changes; this module finds the application of a grant, and notices edits.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use firesteel_api::{ExecutorGrant, SparkApplication, defaults, names};
use firesteel_core::allocation::Note;
use firesteel_core::conf::Subject;
use firesteel_core::event_reason::executors as reason;
use firesteel_core::grant::live;
use firesteel_core::run::Attempt;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher::Event;

use super::{Allocator, Application};
use crate::pods::AppKey;
use crate::pods::allocated::AppIdKey;
use crate::relist::{Change, Relist};

/// What an application looked like when it was last planned: generation and labels.
type Looks = (Option<i64>, BTreeMap<String, String>);

fn looks(app: &SparkApplication) -> Looks {
    (app.metadata.generation, app.labels().clone())
}

/// The template that new executors of an application get.
#[derive(Debug, Default)]
pub(super) struct Current {
    planned: Option<Looks>,
    /// If it is not the granted one.
    template: Option<PodTemplateSpec>,
}

impl Current {
    /// The grant with the template that its application asks for now, and news about a change.
    pub(super) fn grant(
        &mut self,
        grant: Arc<ExecutorGrant>,
        allocator: &Allocator,
    ) -> (Arc<ExecutorGrant>, Option<Note>) {
        let Some(app) = application(&grant, allocator) else { return (grant, None) };
        let Ok(app) = &app.0 else { return (self.with_template(grant), None) };
        let looks = looks(app);
        if self.planned.as_ref() == Some(&looks) {
            return (self.with_template(grant), None);
        }
        let is_first = self.planned.is_none();
        self.planned = Some(looks);
        // What cannot be planned, or needs another run, changes nothing.
        let Some(template) = plan(app, &grant, allocator) else { return (self.with_template(grant), None) };
        let template = (template != grant.spec.template).then_some(template);
        let changes = self.template != template;
        self.template = template;
        let text = format!(
            "executors created from now on have the labels and annotations of generation {} of SparkApplication {}",
            app.metadata.generation.unwrap_or_default(),
            app.name_any()
        );
        let note = Note { warning: false, reason: reason::TEMPLATE_UPDATED, text };
        (self.with_template(grant), (changes && !is_first).then_some(note))
    }

    fn with_template(&self, grant: Arc<ExecutorGrant>) -> Arc<ExecutorGrant> {
        let Some(template) = &self.template else { return grant };
        let mut grant = Arc::unwrap_or_clone(grant);
        grant.spec.template = template.clone();
        Arc::new(grant)
    }
}

/// The application that a grant belongs to.
fn application(grant: &ExecutorGrant, allocator: &Allocator) -> Option<Arc<Application>> {
    let owner =
        grant.owner_references().iter().find(|owner| owner.kind == names::KIND && owner.controller == Some(true))?;
    let key = ObjectRef::<Application>::new(&owner.name).within(&grant.namespace()?);
    allocator.apps.get(&key).filter(|app| app.uid().as_ref() == Some(&owner.uid))
}

fn plan(app: &SparkApplication, grant: &ExecutorGrant, allocator: &Allocator) -> Option<PodTemplateSpec> {
    let number = grant.annotations().get(names::ANNOTATION_ATTEMPT)?.parse().ok()?;
    let hash = grant.annotations().get(names::ANNOTATION_SPEC)?;
    let spec = defaults::defaulted(&app.spec);
    let (name, namespace, uid) = (app.name_any(), app.namespace()?, app.uid()?);
    let subject = Subject { name: &name, namespace: &namespace, uid: &uid, labels: app.labels(), spec: &spec };
    let created = app.creation_timestamp().map_or(Timestamp::UNIX_EPOCH, |t| t.0);
    let generation = app.metadata.generation.unwrap_or_default();
    // Nothing secret is taken from the plan.
    let attempt = Attempt { number, generation, created, now: Timestamp::now(), nonce: 0 };
    live::template(&subject, attempt, &grant.spec, hash, &allocator.shared.runs)
}

/// Notices edits that concern executors, so that sets of executors follow at once.
#[derive(Default)]
pub(crate) struct Edits {
    relist: Relist,
    known: HashMap<AppKey, Looks>,
    /// Changed according to a list that is not complete yet.
    listed: Vec<AppIdKey>,
}

impl Edits {
    /// The applications that changed, by their keys among executors. The cache must have taken in the event before.
    pub(crate) fn fold(&mut self, event: &Event<Application>) -> Vec<AppIdKey> {
        match self.relist.fold(event) {
            Change::Lists => {
                self.listed.clear();
                Vec::new()
            }
            Change::InList(app) => {
                let changed = self.notice(app);
                self.listed.extend(changed);
                Vec::new()
            }
            Change::Seen(app) => self.notice(app).into_iter().collect(),
            Change::Gone(app) => {
                self.known.remove(&(app.namespace().unwrap_or_default(), app.name_any()));
                Vec::new()
            }
            Change::Listed(there) => {
                self.known.retain(|key, _| there.contains_key(key));
                std::mem::take(&mut self.listed)
            }
        }
    }

    fn notice(&mut self, app: &Application) -> Option<AppIdKey> {
        let app = app.0.as_ref().ok().filter(|app| live::allocates(&app.spec))?;
        let namespace = app.namespace()?;
        let new = looks(app);
        let before = self.known.insert((namespace.clone(), app.name_any()), new.clone());
        let id = app.status.as_ref()?.spark_application_id.clone()?;
        (before? != new).then_some((namespace, id))
    }
}
