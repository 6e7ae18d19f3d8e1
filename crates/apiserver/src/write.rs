//! POST, PUT and PATCH: the path of every write, whatever the kind: decode, default, admit, validate, store.

mod body;

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use serde_json::Value;

use crate::admission::{Attributes, Operation};
use crate::decode::StrictErrors;
use crate::kinds::Kind;
use crate::managed_fields;
use crate::meta;
use crate::patch::Patch;
use crate::request::{ApiRequest, FieldValidation};
use crate::response::{self, ApiResponse};
use crate::state::State;
use crate::status::{ApiResult, Cause, StatusError};
use crate::store::Stored;
use body::{
    bump_generation, check_patched, decoded, inherit_managed_fields, keep_identity, place, sent, summary, unreadable,
};

pub(crate) use body::{check_type, parse_body};

/// How often a write that lost a race is retried before it fails.
const ATTEMPTS: usize = 32;
const NAME_ATTEMPTS: usize = 8;

/// A write request, with its warnings.
pub(crate) struct Writer<'a> {
    pub(crate) state: &'a Arc<State>,
    pub(crate) req: &'a ApiRequest,
    pub(crate) warnings: Vec<String>,
    dry_run: bool,
    strictness: FieldValidation,
    /// Policies and webhooks have already run, for the subresource the change came through.
    admitted: bool,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(state: &'a Arc<State>, req: &'a ApiRequest) -> ApiResult<Self> {
        let manager = req.query.get("fieldManager");
        if manager.len() > 128 {
            return Err(StatusError::invalid(
                "meta.k8s.io",
                "PatchOptions",
                "",
                &[Cause::too_long("fieldManager", 128)],
            ));
        }
        Ok(Self {
            state,
            req,
            warnings: Vec::new(),
            dry_run: req.dry_run()?,
            strictness: req.strictness()?,
            admitted: false,
        })
    }

    /// As [`Writer::new`], for a change that has passed admission.
    pub(crate) fn admitted(state: &'a Arc<State>, req: &'a ApiRequest) -> ApiResult<Self> {
        Ok(Self { admitted: true, ..Self::new(state, req)? })
    }

    fn kind(&self) -> &'a Kind {
        &self.req.kind
    }

    fn finish(&self, mut reply: ApiResponse) -> ApiResponse {
        response::warn(&mut reply, &self.warnings);
        reply
    }

    /// The object in the body, checked against the path.
    fn decode(&mut self, body: &Bytes) -> ApiResult<Value> {
        let mut complaints = StrictErrors::new();
        let kind = self.kind();
        let object = parse_body(self.req, body, &mut complaints)?;
        if kind.custom.is_some() {
            let missing = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default().is_empty();
            if let Some(what) =
                [("kind", "Kind"), ("apiVersion", "apiVersion")].into_iter().find(|(field, _)| missing(field))
            {
                return Err(StatusError::bad_request(format!(
                    "the object provided is unrecognized (must be of type {}): Object '{}' is missing in '{}' ({})",
                    kind.kind,
                    what.1,
                    String::from_utf8_lossy(body),
                    summary(body)
                )));
            }
        }
        let object = check_type(&self.state.kinds.load(), kind, object)?;
        let object = self.conform(object, complaints)?;
        Ok(object)
    }

    /// Drops unknown fields, checks types, enforces `fieldValidation` and fills in defaults.
    fn conform(&mut self, object: Value, complaints: StrictErrors) -> ApiResult<Value> {
        let kind = self.kind();
        self.shape(object, complaints).map_err(|why| unreadable(kind, &why))
    }

    /// As [`Writer::conform`], with only the reason as error.
    fn shape(&mut self, mut object: Value, mut complaints: StrictErrors) -> Result<Value, String> {
        let kind = self.kind();
        decoded(kind, &mut object, &mut complaints)?;
        if !complaints.is_empty() {
            match self.strictness {
                FieldValidation::Ignore => {}
                FieldValidation::Warn => self.warnings.extend(complaints),
                FieldValidation::Strict => return Err(format!("strict decoding error: {}", complaints.join(", "))),
            }
        }
        crate::defaults::apply(kind, &mut object);
        Ok(object)
    }

    pub(crate) async fn create(mut self, body: &Bytes) -> ApiResult<ApiResponse> {
        let object = self.decode(body)?;
        let stored = self.create_object(object, managed_fields::ManagedFieldsOperation::Update).await?;
        Ok(self.finish(response::object(self.kind(), self.req.accepted, 201, &stored)))
    }

    pub(crate) async fn create_object(
        &mut self,
        mut object: Value,
        operation: managed_fields::ManagedFieldsOperation,
    ) -> ApiResult<Arc<Stored>> {
        let kind = self.kind();
        let namespace = &self.req.target.namespace;
        place(kind, namespace, &mut object)?;
        if !meta::resource_version(&object).is_empty() {
            return Err(StatusError::custom(500, "", "resourceVersion should not be set on objects to be created"));
        }
        crate::admission::check_namespace(self.state, kind, namespace, meta::name(&object))?;
        let generated = meta::name(&object).is_empty() && !meta::text(&object, "/metadata/generateName").is_empty();
        let base = meta::text(&object, "/metadata/generateName").to_owned();
        let _turn = crate::admission::quota_turn(self.state, kind, namespace).await;
        for attempt in 1.. {
            // Only a generated name is retried.
            let candidate = if generated {
                let mut named = object.clone();
                meta::of(&mut named).insert("name".into(), meta::generated_name(&base).into());
                named
            } else {
                std::mem::take(&mut object)
            };
            let candidate = self.prepare_new(candidate, operation).await?;
            if self.dry_run {
                if self.state.get(kind, namespace, meta::name(&candidate)).is_some() {
                    return Err(StatusError::already_exists(&kind.group, &kind.resource, meta::name(&candidate)));
                }
                return Ok(Arc::new(Stored::new(0, candidate)));
            }
            let name = meta::name(&candidate).to_owned();
            match self.state.create(kind, candidate).await {
                Ok(stored) => {
                    crate::after_write::after_write(self.state, kind, None, Some(&stored)).await;
                    return Ok(stored);
                }
                Err(failure) if failure.reason == "AlreadyExists" && generated => {
                    if attempt >= NAME_ATTEMPTS {
                        return Err(StatusError::generate_name_taken(&kind.group, &kind.resource, &name));
                    }
                }
                Err(failure) => return Err(failure),
            }
        }
        Err(StatusError::internal("no attempt was made"))
    }

    async fn prepare_new(
        &mut self,
        mut object: Value,
        operation: managed_fields::ManagedFieldsOperation,
    ) -> ApiResult<Value> {
        let kind = self.kind();
        let now = meta::now();
        {
            let metadata = meta::of(&mut object);
            metadata.insert("uid".into(), uuid::Uuid::new_v4().to_string().into());
            metadata.insert("creationTimestamp".into(), now.into());
            for field in
                ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "generation", "resourceVersion"]
            {
                metadata.remove(field);
            }
            if kind.generation || kind.custom.is_some() {
                metadata.insert("generation".into(), 1.into());
            }
        }
        if operation == managed_fields::ManagedFieldsOperation::Update {
            managed_fields::record(kind, None, &mut object, &self.req.field_manager(), "");
        }
        crate::authorization::check_escalation(self.state, &self.req.user, kind, None, &object)?;
        crate::strategy::prepare_create(self.state, kind, &mut object)?;
        crate::admission::mutate_create(self.state, self.req, &mut object)?;
        let name = meta::name(&object).to_owned();
        let causes = crate::validate::create(self.state, kind, &object);
        self.refuse_invalid(&name, &causes)?;
        let attributes = Attributes::on(self.req, Operation::Create, None, Some(&object), self.dry_run);
        crate::admission::validate(self.state, &attributes, &mut self.warnings).await?;
        crate::strategy::allocate(self.state, kind, &mut object, self.dry_run)?;
        Ok(object)
    }

    fn refuse_invalid(&self, name: &str, causes: &[Cause]) -> ApiResult<()> {
        if causes.is_empty() {
            return Ok(());
        }
        // Events are validated in the group they are stored in.
        let group = if self.kind().is("events.k8s.io", "events") { "" } else { &self.kind().group };
        Err(StatusError::invalid(group, &self.kind().kind, name, causes))
    }

    pub(crate) async fn update(mut self, body: &Bytes) -> ApiResult<ApiResponse> {
        let mut object = self.decode(body)?;
        let kind = self.kind();
        let target = &self.req.target;
        place(kind, &target.namespace, &mut object)?;
        let name = meta::name(&object);
        if name.is_empty() {
            return Err(StatusError::bad_request("name must be provided"));
        }
        if name != target.name {
            return Err(StatusError::bad_request(format!(
                "the name of the object ({name}) does not match the name on the URL ({})",
                target.name
            )));
        }
        if self.state.get(kind, &target.namespace, &target.name).is_none() {
            if target.subresource.is_empty() && crate::strategy::creates_on_update(kind) {
                let mut fresh = object;
                meta::of(&mut fresh).remove("resourceVersion");
                let stored = self.create_object(fresh, managed_fields::ManagedFieldsOperation::Update).await?;
                return Ok(self.finish(response::object(kind, self.req.accepted, 201, &stored)));
            }
            return Err(self.req.not_found());
        }
        if meta::resource_version(&object).is_empty() && !crate::strategy::unconditional_update(kind) {
            let cause = Cause::invalid("metadata.resourceVersion", &Value::from(0), "must be specified for an update");
            return Err(StatusError::invalid(&kind.group, &kind.resource, &target.name, &[cause]));
        }
        let manager = self.req.field_manager();
        let subresource = target.subresource.clone();
        let stored = self
            .change(
                |_, current| {
                    let mut next = object.clone();
                    inherit_managed_fields(current, &mut next);
                    Ok(next)
                },
                |kind, old, new| managed_fields::record(kind, Some(old), new, &manager, &subresource),
            )
            .await?;
        Ok(self.finish(response::object(kind, self.req.accepted, 200, &stored)))
    }

    pub(crate) async fn patch(mut self, body: &Bytes) -> ApiResult<ApiResponse> {
        let kind = self.kind();
        let target = &self.req.target;
        let mut complaints = StrictErrors::new();
        let patch = Patch::parse(self.req, body, &mut complaints)?;
        let manager = self.req.field_manager();
        let subresource = target.subresource.clone();
        if let Patch::Apply(applied) = patch {
            return self.apply(applied).await;
        }
        if !self.req.query.get("force").is_empty() {
            let cause = Cause::forbidden("force", "may not be specified for non-apply patch");
            return Err(StatusError::invalid("meta.k8s.io", "PatchOptions", "", &[cause]));
        }
        if self.state.get(kind, &target.namespace, &target.name).is_none() {
            return Err(self.req.not_found());
        }
        let stored = self
            .change(
                |writer, current| {
                    let shown = crate::conversion::read(kind, current);
                    let patched = patch.onto(kind, &shown)?;
                    let mut patched = check_patched(&writer.state.kinds.load(), kind, &shown, patched)?;
                    inherit_managed_fields(current, &mut patched);
                    writer.warnings.clear();
                    let shaped = writer.shape(patched, complaints.clone());
                    shaped.map_err(|why| {
                        // Recomputed, because nearly every patch is valid and needs no text.
                        let whole = patch.onto(kind, &shown).map(|mut whole| {
                            inherit_managed_fields(current, &mut whole);
                            whole.to_string()
                        });
                        let cause = Cause::invalid("patch", &whole.unwrap_or_default().into(), &why);
                        StatusError::invalid("", "", "", &[cause])
                    })
                },
                |kind, old, new| managed_fields::record(kind, Some(old), new, &manager, &subresource),
            )
            .await?;
        Ok(self.finish(response::object(kind, self.req.accepted, 200, &stored)))
    }

    /// Server-side apply.
    async fn apply(mut self, applied: Value) -> ApiResult<ApiResponse> {
        let kind = self.kind();
        let target = &self.req.target;
        let manager = self.req.query.get("fieldManager").to_owned();
        if manager.is_empty() {
            let cause = Cause::required("fieldManager", "is required for apply patch");
            return Err(StatusError::invalid("meta.k8s.io", "PatchOptions", "", &[cause]));
        }
        let force = self.req.query.flag("force")?;
        let typed = |field: &str| applied.get(field).and_then(Value::as_str).unwrap_or_default();
        if typed("apiVersion").is_empty() || typed("kind").is_empty() {
            let version = typed("apiVersion");
            let slash = if version.contains('/') { "" } else { "/" };
            return Err(StatusError::bad_request(format!(
                "invalid object type: {slash}{version}, Kind={}",
                typed("kind")
            )));
        }
        let applied = check_type(&self.state.kinds.load(), kind, applied)?;
        if applied.pointer("/metadata/managedFields").and_then(Value::as_array).is_some_and(|l| !l.is_empty()) {
            return Err(StatusError::bad_request("metadata.managedFields must be nil"));
        }
        let applied_name = meta::name(&applied);
        if !applied_name.is_empty() && applied_name != target.name {
            return Err(StatusError::bad_request(format!(
                "the name of the object ({applied_name}) does not match the name on the URL ({})",
                target.name
            )));
        }
        let mut applied = applied;
        meta::of(&mut applied).insert("name".into(), target.name.as_str().into());
        place(kind, &target.namespace, &mut applied)?;
        let mut complaints = StrictErrors::new();
        let mut checked = applied.clone();
        // Types and unknown fields are checked on what was sent; it is merged as sent, without defaults.
        let untyped = |why: &str| {
            let (slash, version) = (if kind.group.is_empty() { "/" } else { "" }, kind.api_version());
            let shown = format!("/{}; {slash}{version}, Kind={}", target.name, kind.kind);
            StatusError::custom(500, "", format!("failed to create typed patch object ({shown}): {why}"))
        };
        sent(kind, &mut checked, &mut complaints, false).map_err(|why| untyped(&why))?;
        if !complaints.is_empty() && kind.custom.is_none() {
            let undeclared: Vec<String> = complaints
                .iter()
                .map(|c| c.trim_start_matches("unknown field ").trim_matches('"'))
                .map(|path| format!(".{path}: field not declared in schema"))
                .collect();
            return Err(match undeclared.as_slice() {
                [one] => untyped(one),
                many => untyped(&format!("errors:\n  {}", many.join("\n  "))),
            });
        }
        if !complaints.is_empty() {
            match self.strictness {
                FieldValidation::Strict => {
                    return Err(StatusError::bad_request(format!("strict decoding error: {}", complaints.join(", "))));
                }
                FieldValidation::Warn => self.warnings.extend(complaints),
                FieldValidation::Ignore => {}
            }
        }
        let subresource = target.subresource.clone();
        if self.state.get(kind, &target.namespace, &target.name).is_none() {
            if !subresource.is_empty() {
                return Err(self.req.not_found());
            }
            if !meta::uid(&checked).is_empty() {
                return Err(StatusError::conflict(
                    &kind.group,
                    &kind.resource,
                    &target.name,
                    &format!(
                        "uid mismatch: the provided object specified uid {}, and no existing object was found",
                        meta::uid(&checked)
                    ),
                ));
            }
            let mut fresh = checked.clone();
            managed_fields::apply_new(kind, &mut fresh, &manager);
            let fresh = self.conform(fresh, StrictErrors::new())?;
            match self.create_object(fresh, managed_fields::ManagedFieldsOperation::Apply).await {
                Ok(stored) => return Ok(self.finish(response::object(kind, self.req.accepted, 201, &stored))),
                // Somebody was faster: apply on top of theirs.
                Err(failure) if failure.reason == "AlreadyExists" => {}
                Err(failure) => return Err(failure),
            }
        }
        let stored = self
            .change(
                |writer, current| {
                    let shown = crate::conversion::read(kind, current);
                    let merged = managed_fields::apply(kind, &shown, &checked, &manager, &subresource, force)?;
                    writer.conform(merged, StrictErrors::new())
                },
                |_, _, _| {},
            )
            .await?;
        Ok(self.finish(response::object(kind, self.req.accepted, 200, &stored)))
    }

    /// Reads, changes and stores an object. Retries conflicts unless the client set a revision.
    pub(crate) async fn change(
        &mut self,
        mut make: impl FnMut(&mut Self, &Value) -> ApiResult<Value>,
        own: impl Fn(&Kind, &Value, &mut Value),
    ) -> ApiResult<Arc<Stored>> {
        let kind = self.kind();
        let target = &self.req.target;
        for _ in 0..ATTEMPTS {
            let current = self.state.get(kind, &target.namespace, &target.name).ok_or_else(|| self.req.not_found())?;
            let old = crate::conversion::read(kind, &current.value()).into_owned();
            let mut next = make(self, &current.value())?;
            let sent = meta::resource_version(&next).to_owned();
            if !sent.is_empty() && sent != "0" && sent != meta::resource_version(&old) {
                return Err(StatusError::modified(&kind.group, &kind.resource, &target.name));
            }
            keep_identity(kind, &self.req.method, &old, &mut next)?;
            crate::authorization::check_escalation(self.state, &self.req.user, kind, Some(&old), &next)?;
            crate::strategy::prepare_update(kind, &target.subresource, &old, &mut next);
            own(kind, &old, &mut next);
            crate::admission::check_update(self.state, self.req, &old, &next)?;
            bump_generation(kind, &old, &mut next);
            let causes = crate::validate::update(self.state, kind, &target.subresource, &old, &next);
            self.refuse_invalid(&target.name, &causes)?;
            if !self.admitted {
                let attributes = Attributes::on(self.req, Operation::Update, Some(&old), Some(&next), self.dry_run);
                crate::admission::validate(self.state, &attributes, &mut self.warnings).await?;
            }
            crate::strategy::reallocate(self.state, kind, &old, &mut next, self.dry_run)?;
            if managed_fields::same_but_for_times(&old, &next) {
                return Ok(current);
            }
            if self.dry_run {
                return Ok(Arc::new(Stored::new(current.revision, next)));
            }
            let last_finalizer_gone = meta::deleting(&next)
                && meta::finalizers(&next).is_empty()
                && !crate::strategy::waits_for_more(kind, &next);
            let done = if last_finalizer_gone {
                let answer = Arc::new(Stored::new(current.revision, next));
                match self.state.remove(kind, &current).await? {
                    Some(removed) => {
                        crate::after_write::after_write(self.state, kind, Some(&removed), None).await;
                        Some(answer)
                    }
                    None => None,
                }
            } else {
                let written = self.state.replace(kind, &current, next).await?;
                if let Some(stored) = &written {
                    crate::after_write::after_write(self.state, kind, Some(&current), Some(stored)).await;
                }
                written
            };
            match done {
                Some(stored) => return Ok(stored),
                None if !sent.is_empty() && self.req.method == Method::PUT => {
                    return Err(StatusError::modified(&kind.group, &kind.resource, &target.name));
                }
                None => {}
            }
        }
        Err(StatusError::modified(&kind.group, &kind.resource, &target.name))
    }
}
