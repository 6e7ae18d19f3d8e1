//! DELETE of objects and collections: preconditions, grace periods, finalizers and propagation.

use std::sync::Arc;

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::admission::{Attributes, Operation};
use crate::get::SelectionPredicate;
use crate::kinds::Kind;
use crate::meta;
use crate::request::ApiRequest;
use crate::response::{self, ApiResponse, Page};
use crate::state::State;
use crate::status::{ApiResult, Cause, StatusError};
use crate::store::Stored;

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Propagation {
    Background,
    Foreground,
    Orphan,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct DeleteOptions {
    grace: Option<i64>,
    propagation: Option<Propagation>,
    /// The deprecated `orphanDependents: false` was set.
    cascade_asked: bool,
    uid: Option<String>,
    resource_version: Option<String>,
    dry_run: bool,
}

impl DeleteOptions {
    pub(crate) fn parse(req: &ApiRequest, body: &Bytes) -> ApiResult<Self> {
        let value = if body.is_empty() { json!({}) } else { crate::write::parse_body(req, body, &mut Vec::new())? };
        let mut value = value;
        if let Some(schema) = crate::schema::built_in("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions") {
            crate::decode::conform(schema, "DeleteOptions", &mut value, &mut Vec::new(), true)
                .map_err(StatusError::bad_request)?;
        }
        let mut options = Self { dry_run: req.dry_run()?, ..Self::default() };
        options.grace = match value.get("gracePeriodSeconds").and_then(Value::as_i64) {
            Some(grace) => Some(grace),
            None => req.query.number("gracePeriodSeconds")?,
        };
        let mut policy = value.get("propagationPolicy").and_then(Value::as_str).unwrap_or_default().to_owned();
        if policy.is_empty() {
            req.query.get("propagationPolicy").clone_into(&mut policy);
        }
        options.propagation = match policy.as_str() {
            "" => match value.get("orphanDependents").and_then(Value::as_bool) {
                Some(true) => Some(Propagation::Orphan),
                Some(false) => {
                    options.cascade_asked = true;
                    Some(Propagation::Background)
                }
                None => None,
            },
            "Background" => Some(Propagation::Background),
            "Foreground" => Some(Propagation::Foreground),
            "Orphan" => Some(Propagation::Orphan),
            other => {
                return Err(StatusError::invalid(
                    "meta.k8s.io",
                    "DeleteOptions",
                    "",
                    &[Cause::unsupported(
                        "propagationPolicy",
                        &other.into(),
                        &["Foreground", "Background", "Orphan", "nil"],
                    )],
                ));
            }
        };
        let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        options.uid = text("/preconditions/uid");
        options.resource_version = text("/preconditions/resourceVersion");
        if value.get("dryRun").and_then(Value::as_array).is_some_and(|l| l.iter().any(|v| v == "All")) {
            options.dry_run = true;
        }
        Ok(options)
    }

    /// Unconditional background deletion.
    fn plain() -> Self {
        Self::default()
    }

    pub(crate) fn in_dry_run(mut self, dry_run: bool) -> Self {
        self.dry_run |= dry_run;
        self
    }

    pub(crate) fn from_eviction(eviction: &Value) -> Self {
        let options = eviction.get("deleteOptions");
        Self {
            grace: options.and_then(|o| o.get("gracePeriodSeconds")).and_then(Value::as_i64),
            uid: options.and_then(|o| o.pointer("/preconditions/uid")).and_then(Value::as_str).map(str::to_owned),
            dry_run: options.and_then(|o| o.get("dryRun")).and_then(Value::as_array).is_some_and(|l| !l.is_empty()),
            ..Self::default()
        }
    }
}

/// The result of a deletion.
pub(crate) enum Deletion {
    /// The object is gone; this was its last state.
    Removed(Arc<Stored>),
    /// The object is marked for deletion.
    Marked(Arc<Stored>),
}

pub(crate) async fn delete(state: &Arc<State>, req: &ApiRequest, body: &Bytes) -> ApiResult<ApiResponse> {
    let options = DeleteOptions::parse(req, body)?;
    let kind = &req.kind;
    let deletion = delete_object(state, Some(req), kind, &req.target.namespace, &req.target.name, &options).await?;
    Ok(match deletion {
        Deletion::Marked(stored) => {
            let code = if options.cascade_asked { 202 } else { 200 };
            response::object(kind, req.accepted, code, &stored)
        }
        Deletion::Removed(stored) if returns_object(kind) => response::object(kind, req.accepted, 200, &stored),
        Deletion::Removed(stored) => {
            let status =
                crate::status::deleted(&kind.group, &kind.resource, &req.target.name, meta::uid(&stored.value()));
            response::value(Some(req.accepted), 200, &status)
        }
    })
}

/// Kinds whose DELETE returns the object instead of a Status.
fn returns_object(kind: &Kind) -> bool {
    matches!(
        (&*kind.group, &*kind.resource),
        (
            "",
            "pods"
                | "services"
                | "serviceaccounts"
                | "persistentvolumes"
                | "persistentvolumeclaims"
                | "resourcequotas"
                | "namespaces"
                | "podtemplates"
        ) | ("storage.k8s.io", "storageclasses" | "csidrivers" | "csinodes" | "volumeattachments")
    )
}

pub(crate) async fn delete_collection(state: &Arc<State>, req: &ApiRequest, body: &Bytes) -> ApiResult<ApiResponse> {
    let options = DeleteOptions::parse(req, body)?;
    let filter = SelectionPredicate::parse(req)?;
    let snapshot = state
        .store
        .list(&req.kind.table, filter.namespace.as_deref(), None, usize::MAX, None, |s| filter.matches(s))
        .map_err(|_| StatusError::internal("the newest state is always there"))?;
    let mut deleted = Vec::new();
    for ((namespace, name), _) in snapshot.items {
        match delete_object(state, Some(req), &req.kind, &namespace, &name, &options).await {
            Ok(Deletion::Removed(stored) | Deletion::Marked(stored)) => deleted.push(stored),
            Err(failure) if failure.code == 404 => {}
            Err(failure) => return Err(failure),
        }
    }
    let page = Page { items: &deleted, revision: state.store.revision(), next: "", remaining: 0 };
    response::list(&req.kind, req.accepted, crate::table::Include::Metadata, &page)
}

/// Deletes one object. `admit` is the request to run admission for; `None` if that has been done.
pub(crate) async fn delete_object(
    state: &Arc<State>,
    admit: Option<&ApiRequest>,
    kind: &Kind,
    namespace: &str,
    name: &str,
    options: &DeleteOptions,
) -> ApiResult<Deletion> {
    let absent = || StatusError::not_found(&kind.group, &kind.resource, name);
    // Retries only after losing a race, and then somebody else made progress.
    loop {
        let current = state.get(kind, namespace, name).ok_or_else(absent)?;
        check_preconditions(kind, name, &current.value(), options)?;
        crate::admission::refuse_deletion(kind, name)?;
        if let Some(req) = admit {
            let value = current.value();
            let old = crate::conversion::read(kind, &value);
            let attributes =
                Attributes { namespace, ..Attributes::on(req, Operation::Delete, Some(&old), None, options.dry_run) };
            crate::admission::validate(state, &attributes, &mut Vec::new()).await?;
        }
        let Some(marked) = mark(kind, &current.value(), options) else {
            let last = last_state(kind, &current.value());
            if options.dry_run {
                return Ok(Deletion::Removed(Arc::new(Stored::new(current.revision, last))));
            }
            match state.remove_as(kind, &current, last).await? {
                Some(removed) => {
                    crate::after_write::after_write(state, kind, Some(&removed), None).await;
                    return Ok(Deletion::Removed(removed));
                }
                None => continue,
            }
        };
        if marked == *current.value() {
            return Ok(Deletion::Marked(current));
        }
        if options.dry_run {
            return Ok(Deletion::Marked(Arc::new(Stored::new(current.revision, marked))));
        }
        if let Some(stored) = state.replace(kind, &current, marked).await? {
            crate::after_write::after_write(state, kind, Some(&current), Some(&stored)).await;
            return Ok(Deletion::Marked(stored));
        }
    }
}

fn check_preconditions(kind: &Kind, name: &str, current: &Value, options: &DeleteOptions) -> ApiResult<()> {
    if let Some(uid) = &options.uid
        && uid != meta::uid(current)
    {
        return Err(StatusError::conflict(
            &kind.group,
            &kind.kind,
            name,
            &format!(
                "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been deleted and then recreated",
                meta::uid(current)
            ),
        ));
    }
    if let Some(version) = &options.resource_version
        && version != meta::resource_version(current)
    {
        return Err(StatusError::conflict(
            &kind.group,
            &kind.kind,
            name,
            &format!(
                "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({}). The object might have been modified",
                meta::resource_version(current)
            ),
        ));
    }
    Ok(())
}

/// The terminating object; `None` if it can be removed at once.
fn mark(kind: &Kind, current: &Value, options: &DeleteOptions) -> Option<Value> {
    let finalizers = deletion_finalizers(kind, current, options);
    let grace = grace_period(kind, current, options.grace);
    let namespace_busy = kind.is("", "namespaces")
        && current.pointer("/spec/finalizers").and_then(Value::as_array).is_some_and(|f| !f.is_empty());
    let already = meta::deleting(current);
    if finalizers.is_empty() && grace == 0 && !namespace_busy {
        return None;
    }
    let mut next = current.clone();
    let metadata = meta::of(&mut next);
    if finalizers.is_empty() {
        metadata.remove("finalizers");
    } else {
        metadata.insert("finalizers".into(), finalizers.into());
    }
    let period = metadata.get("deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or_default();
    if !already || grace < period {
        let end = if already && grace == 0 {
            Timestamp::now()
        } else {
            Timestamp::now().checked_add(SignedDuration::from_secs(grace)).unwrap_or(Timestamp::MAX)
        };
        metadata.insert("deletionTimestamp".into(), meta::seconds(end).into());
        metadata.insert("deletionGracePeriodSeconds".into(), grace.into());
        if let Some(generation) = metadata.get("generation").and_then(Value::as_i64).filter(|g| *g > 0 && !already) {
            metadata.insert("generation".into(), (generation + 1).into());
        }
    }
    if kind.is("", "namespaces") {
        meta::child(&mut next, "status").insert("phase".into(), "Terminating".into());
    }
    Some(next)
}

/// The last state of an object that is removed at once: a pod's grace period is zero.
fn last_state(kind: &Kind, current: &Value) -> Value {
    let mut last = current.clone();
    if kind.is("", "pods") {
        let first = !meta::deleting(current);
        let metadata = meta::of(&mut last);
        metadata.insert("deletionTimestamp".into(), meta::now().into());
        metadata.insert("deletionGracePeriodSeconds".into(), 0.into());
        if let Some(generation) = metadata.get("generation").and_then(Value::as_i64).filter(|g| first && *g > 0) {
            metadata.insert("generation".into(), (generation + 1).into());
        }
    }
    last
}

/// The grace period of an assigned pod; everything else is deleted immediately.
fn grace_period(kind: &Kind, current: &Value, req: Option<i64>) -> i64 {
    if !kind.is("", "pods") {
        return 0;
    }
    let own = current.pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(30);
    let period = match req {
        Some(given) if given < 0 => 1,
        Some(given) => given,
        None => own,
    };
    let unbound = meta::text(current, "/spec/nodeName").is_empty();
    let over = matches!(meta::text(current, "/status/phase"), "Succeeded" | "Failed");
    if unbound || over { 0 } else { period }
}

fn deletion_finalizers(kind: &Kind, current: &Value, options: &DeleteOptions) -> Vec<String> {
    let held: Vec<String> = meta::finalizers(current).into_iter().map(str::to_owned).collect();
    let orphaned_by_default = kind.is("batch", "jobs") || kind.is("", "replicationcontrollers");
    let (orphan, foreground) = match options.propagation {
        Some(Propagation::Orphan) => (true, false),
        Some(Propagation::Foreground) => (false, true),
        Some(Propagation::Background) => (false, false),
        None if held.iter().any(|f| f == ORPHAN) => (true, false),
        None if held.iter().any(|f| f == FOREGROUND) => (false, true),
        None => (orphaned_by_default, false),
    };
    let mut finalizers: Vec<String> = held.into_iter().filter(|f| f != ORPHAN && f != FOREGROUND).collect();
    if orphan {
        finalizers.push(ORPHAN.into());
    }
    if foreground {
        finalizers.push(FOREGROUND.into());
    }
    finalizers
}

/// Deletes an object on the server's behalf: no admission, background propagation.
pub(crate) async fn delete_plainly(state: &Arc<State>, kind: &Kind, stored: &Arc<Stored>) {
    let options = DeleteOptions::plain();
    let result = match mark(kind, &stored.value(), &options) {
        Some(marked) => state.replace(kind, stored, marked).await,
        None => state.remove(kind, stored).await,
    };
    if let Err(failure) = result {
        tracing::warn!(why = failure.message, "an instance of a custom resource was not deleted");
    }
}
