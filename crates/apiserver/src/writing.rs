//! POST, PUT and PATCH: the road every write takes, whatever the kind: decode, default, admit, validate, store.

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use serde_json::Value;

use crate::admission::{Act, Operation};
use crate::answer::{self, Reply};
use crate::decode::Complaints;
use crate::kinds::{Kind, Kinds};
use crate::managed;
use crate::meta;
use crate::patch::Patch;
use crate::request::{Asked, Strictness};
use crate::state::State;
use crate::status::{Cause, Failure, Outcome};
use crate::store::Stored;

/// How often a write that lost a race is tried again before the client hears of it.
const ATTEMPTS: usize = 32;
const NAME_ATTEMPTS: usize = 8;

/// A request that writes, with the warnings gathered on its way.
pub(crate) struct Writer<'a> {
    pub(crate) state: &'a Arc<State>,
    pub(crate) asked: &'a Asked,
    pub(crate) warnings: Vec<String>,
    dry_run: bool,
    strictness: Strictness,
    /// Policies and webhooks have been asked already, about the subresource the change came through.
    admitted: bool,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(state: &'a Arc<State>, asked: &'a Asked) -> Outcome<Self> {
        let manager = asked.query.get("fieldManager");
        if manager.len() > 128 {
            return Err(Failure::invalid("meta.k8s.io", "PatchOptions", "", &[Cause::too_long("fieldManager", 128)]));
        }
        Ok(Self {
            state,
            asked,
            warnings: Vec::new(),
            dry_run: asked.dry_run()?,
            strictness: asked.strictness()?,
            admitted: false,
        })
    }

    /// As [`Writer::new`], for a change that admission has agreed to.
    pub(crate) fn admitted(state: &'a Arc<State>, asked: &'a Asked) -> Outcome<Self> {
        Ok(Self { admitted: true, ..Self::new(state, asked)? })
    }

    fn kind(&self) -> &'a Kind {
        &self.asked.kind
    }

    fn finish(&self, mut reply: Reply) -> Reply {
        answer::warn(&mut reply, &self.warnings);
        reply
    }

    /// The object in the body, checked against the path.
    fn decode(&mut self, body: &Bytes) -> Outcome<Value> {
        let mut complaints = Complaints::new();
        let kind = self.kind();
        let object = parse_body(self.asked, body, &mut complaints)?;
        if kind.custom.is_some() {
            let missing = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default().is_empty();
            if let Some(what) =
                [("kind", "Kind"), ("apiVersion", "apiVersion")].into_iter().find(|(field, _)| missing(field))
            {
                return Err(Failure::bad_request(format!(
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

    /// Unknown fields go, types are checked, strictness is honoured, defaults are filled in.
    fn conform(&mut self, object: Value, complaints: Complaints) -> Outcome<Value> {
        let kind = self.kind();
        self.shape(object, complaints).map_err(|why| unreadable(kind, &why))
    }

    /// As [`Writer::conform`]; the error is only why.
    fn shape(&mut self, mut object: Value, mut complaints: Complaints) -> Result<Value, String> {
        let kind = self.kind();
        decoded(kind, &mut object, &mut complaints)?;
        if !complaints.is_empty() {
            match self.strictness {
                Strictness::Ignore => {}
                Strictness::Warn => self.warnings.extend(complaints),
                Strictness::Strict => return Err(format!("strict decoding error: {}", complaints.join(", "))),
            }
        }
        crate::defaults::apply(kind, &mut object);
        Ok(object)
    }

    pub(crate) async fn create(mut self, body: &Bytes) -> Outcome<Reply> {
        let object = self.decode(body)?;
        let stored = self.create_object(object, managed::Operation::Update).await?;
        Ok(self.finish(answer::object(self.kind(), self.asked.accepted, 201, &stored)))
    }

    pub(crate) async fn create_object(
        &mut self,
        mut object: Value,
        operation: managed::Operation,
    ) -> Outcome<Arc<Stored>> {
        let kind = self.kind();
        let namespace = &self.asked.target.namespace;
        place(kind, namespace, &mut object)?;
        if !meta::resource_version(&object).is_empty() {
            return Err(Failure::custom(500, "", "resourceVersion should not be set on objects to be created"));
        }
        crate::admission::check_namespace(self.state, kind, namespace, meta::name(&object))?;
        let generated = meta::name(&object).is_empty() && !meta::text(&object, "/metadata/generateName").is_empty();
        let base = meta::text(&object, "/metadata/generateName").to_owned();
        let _turn = crate::admission::quota_turn(self.state, kind, namespace).await;
        for attempt in 1.. {
            // Only a generated name is tried more than once.
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
                    return Err(Failure::already_exists(&kind.group, &kind.resource, meta::name(&candidate)));
                }
                return Ok(Arc::new(Stored::new(0, candidate)));
            }
            let name = meta::name(&candidate).to_owned();
            match self.state.create(kind, candidate).await {
                Ok(stored) => {
                    crate::effects::after_write(self.state, kind, None, Some(&stored)).await;
                    return Ok(stored);
                }
                Err(failure) if failure.reason == "AlreadyExists" && generated => {
                    if attempt >= NAME_ATTEMPTS {
                        return Err(Failure::generate_name_taken(&kind.group, &kind.resource, &name));
                    }
                }
                Err(failure) => return Err(failure),
            }
        }
        Err(Failure::internal("no attempt was made"))
    }

    async fn prepare_new(&mut self, mut object: Value, operation: managed::Operation) -> Outcome<Value> {
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
        if operation == managed::Operation::Update {
            managed::record(kind, None, &mut object, &self.asked.field_manager(), "");
        }
        crate::authorization::check_escalation(self.state, &self.asked.user, kind, None, &object)?;
        crate::strategy::prepare_create(self.state, kind, &mut object)?;
        crate::admission::mutate_create(self.state, self.asked, &mut object)?;
        let name = meta::name(&object).to_owned();
        let causes = crate::validate::create(self.state, kind, &object);
        self.refuse_invalid(&name, &causes)?;
        let act = Act::on(self.asked, Operation::Create, None, Some(&object), self.dry_run);
        crate::admission::validate(self.state, &act, &mut self.warnings).await?;
        crate::strategy::allocate(self.state, kind, &mut object, self.dry_run)?;
        Ok(object)
    }

    fn refuse_invalid(&self, name: &str, causes: &[Cause]) -> Outcome<()> {
        if causes.is_empty() {
            return Ok(());
        }
        Err(Failure::invalid(&self.kind().group, &self.kind().kind, name, causes))
    }

    pub(crate) async fn update(mut self, body: &Bytes) -> Outcome<Reply> {
        let mut object = self.decode(body)?;
        let kind = self.kind();
        let target = &self.asked.target;
        place(kind, &target.namespace, &mut object)?;
        let name = meta::name(&object);
        if name.is_empty() {
            return Err(Failure::bad_request("name must be provided"));
        }
        if name != target.name {
            return Err(Failure::bad_request(format!(
                "the name of the object ({name}) does not match the name on the URL ({})",
                target.name
            )));
        }
        if self.state.get(kind, &target.namespace, &target.name).is_none() {
            if target.subresource.is_empty() && crate::strategy::creates_on_update(kind) {
                let mut fresh = object;
                meta::of(&mut fresh).remove("resourceVersion");
                let stored = self.create_object(fresh, managed::Operation::Update).await?;
                return Ok(self.finish(answer::object(kind, self.asked.accepted, 201, &stored)));
            }
            return Err(self.asked.not_found());
        }
        if meta::resource_version(&object).is_empty() && !crate::strategy::unconditional_update(kind) {
            let cause = Cause::invalid("metadata.resourceVersion", &Value::from(0), "must be specified for an update");
            return Err(Failure::invalid(&kind.group, &kind.resource, &target.name, &[cause]));
        }
        let manager = self.asked.field_manager();
        let subresource = target.subresource.clone();
        let stored = self
            .change(
                |_, current| {
                    let mut next = object.clone();
                    inherit_managed_fields(current, &mut next);
                    Ok(next)
                },
                |kind, old, new| managed::record(kind, Some(old), new, &manager, &subresource),
            )
            .await?;
        Ok(self.finish(answer::object(kind, self.asked.accepted, 200, &stored)))
    }

    pub(crate) async fn patch(mut self, body: &Bytes) -> Outcome<Reply> {
        let kind = self.kind();
        let target = &self.asked.target;
        let mut complaints = Complaints::new();
        let patch = Patch::parse(self.asked, body, &mut complaints)?;
        let manager = self.asked.field_manager();
        let subresource = target.subresource.clone();
        if let Patch::Apply(applied) = patch {
            return self.apply(applied).await;
        }
        if !self.asked.query.get("force").is_empty() {
            let cause = Cause::forbidden("force", "may not be specified for non-apply patch");
            return Err(Failure::invalid("meta.k8s.io", "PatchOptions", "", &[cause]));
        }
        if self.state.get(kind, &target.namespace, &target.name).is_none() {
            return Err(self.asked.not_found());
        }
        let stored = self
            .change(
                |writer, current| {
                    let shown = crate::versions::read(kind, current);
                    let patched = patch.onto(kind, &shown)?;
                    let mut patched = check_patched(&writer.state.kinds.load(), kind, &shown, patched)?;
                    inherit_managed_fields(current, &mut patched);
                    writer.warnings.clear();
                    let shaped = writer.shape(patched, complaints.clone());
                    shaped.map_err(|why| {
                        // Made again, because nearly every patch is fine and needs no text of the whole.
                        let whole = patch.onto(kind, &shown).map(|mut whole| {
                            inherit_managed_fields(current, &mut whole);
                            whole.to_string()
                        });
                        let cause = Cause::invalid("patch", &whole.unwrap_or_default().into(), &why);
                        Failure::invalid("", "", "", &[cause])
                    })
                },
                |kind, old, new| managed::record(kind, Some(old), new, &manager, &subresource),
            )
            .await?;
        Ok(self.finish(answer::object(kind, self.asked.accepted, 200, &stored)))
    }

    /// Server-side apply.
    async fn apply(mut self, applied: Value) -> Outcome<Reply> {
        let kind = self.kind();
        let target = &self.asked.target;
        let manager = self.asked.query.get("fieldManager").to_owned();
        if manager.is_empty() {
            let cause = Cause::required("fieldManager", "is required for apply patch");
            return Err(Failure::invalid("meta.k8s.io", "PatchOptions", "", &[cause]));
        }
        let force = self.asked.query.flag("force")?;
        let typed = |field: &str| applied.get(field).and_then(Value::as_str).unwrap_or_default();
        if typed("apiVersion").is_empty() || typed("kind").is_empty() {
            let version = typed("apiVersion");
            let slash = if version.contains('/') { "" } else { "/" };
            return Err(Failure::bad_request(format!("invalid object type: {slash}{version}, Kind={}", typed("kind"))));
        }
        let applied = check_type(&self.state.kinds.load(), kind, applied)?;
        if applied.pointer("/metadata/managedFields").and_then(Value::as_array).is_some_and(|l| !l.is_empty()) {
            return Err(Failure::bad_request("metadata.managedFields must be nil"));
        }
        let applied_name = meta::name(&applied);
        if !applied_name.is_empty() && applied_name != target.name {
            return Err(Failure::bad_request(format!(
                "the name of the object ({applied_name}) does not match the name on the URL ({})",
                target.name
            )));
        }
        let mut applied = applied;
        meta::of(&mut applied).insert("name".into(), target.name.as_str().into());
        place(kind, &target.namespace, &mut applied)?;
        let mut complaints = Complaints::new();
        let mut checked = applied.clone();
        // Types and unknown fields are checked on what was sent; it is merged as sent, without defaults.
        let untyped = |why: &str| {
            let (slash, version) = (if kind.group.is_empty() { "/" } else { "" }, kind.api_version());
            let shown = format!("/{}; {slash}{version}, Kind={}", target.name, kind.kind);
            Failure::custom(500, "", format!("failed to create typed patch object ({shown}): {why}"))
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
                Strictness::Strict => {
                    return Err(Failure::bad_request(format!("strict decoding error: {}", complaints.join(", "))));
                }
                Strictness::Warn => self.warnings.extend(complaints),
                Strictness::Ignore => {}
            }
        }
        let subresource = target.subresource.clone();
        if self.state.get(kind, &target.namespace, &target.name).is_none() {
            if !subresource.is_empty() {
                return Err(self.asked.not_found());
            }
            if !meta::uid(&checked).is_empty() {
                return Err(Failure::conflict(
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
            managed::apply_new(kind, &mut fresh, &manager);
            let fresh = self.conform(fresh, Complaints::new())?;
            match self.create_object(fresh, managed::Operation::Apply).await {
                Ok(stored) => return Ok(self.finish(answer::object(kind, self.asked.accepted, 201, &stored))),
                // Somebody was quicker: apply onto theirs.
                Err(failure) if failure.reason == "AlreadyExists" => {}
                Err(failure) => return Err(failure),
            }
        }
        let stored = self
            .change(
                |writer, current| {
                    let shown = crate::versions::read(kind, current);
                    let merged = managed::apply(kind, &shown, &checked, &manager, &subresource, force)?;
                    writer.conform(merged, Complaints::new())
                },
                |_, _, _| {},
            )
            .await?;
        Ok(self.finish(answer::object(kind, self.asked.accepted, 200, &stored)))
    }

    /// Reads, changes and stores an object, again if someone else was quicker and the client did not name a revision.
    pub(crate) async fn change(
        &mut self,
        mut make: impl FnMut(&mut Self, &Value) -> Outcome<Value>,
        own: impl Fn(&Kind, &Value, &mut Value),
    ) -> Outcome<Arc<Stored>> {
        let kind = self.kind();
        let target = &self.asked.target;
        for _ in 0..ATTEMPTS {
            let current =
                self.state.get(kind, &target.namespace, &target.name).ok_or_else(|| self.asked.not_found())?;
            let old = crate::versions::read(kind, &current.value()).into_owned();
            let mut next = make(self, &current.value())?;
            let sent = meta::resource_version(&next).to_owned();
            if !sent.is_empty() && sent != "0" && sent != meta::resource_version(&old) {
                return Err(Failure::modified(&kind.group, &kind.resource, &target.name));
            }
            keep_identity(kind, &self.asked.method, &old, &mut next)?;
            crate::authorization::check_escalation(self.state, &self.asked.user, kind, Some(&old), &next)?;
            crate::strategy::prepare_update(kind, &target.subresource, &old, &mut next);
            own(kind, &old, &mut next);
            crate::admission::mutate_update(self.state, self.asked, &old, &mut next)?;
            bump_generation(kind, &old, &mut next);
            let causes = crate::validate::update(self.state, kind, &target.subresource, &old, &next);
            self.refuse_invalid(&target.name, &causes)?;
            if !self.admitted {
                let act = Act::on(self.asked, Operation::Update, Some(&old), Some(&next), self.dry_run);
                crate::admission::validate(self.state, &act, &mut self.warnings).await?;
            }
            crate::strategy::reallocate(self.state, kind, &old, &mut next, self.dry_run)?;
            if managed::same_but_for_times(&old, &next) {
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
                        crate::effects::after_write(self.state, kind, Some(&removed), None).await;
                        Some(answer)
                    }
                    None => None,
                }
            } else {
                let written = self.state.replace(kind, &current, next).await?;
                if let Some(stored) = &written {
                    crate::effects::after_write(self.state, kind, Some(&current), Some(stored)).await;
                }
                written
            };
            match done {
                Some(stored) => return Ok(stored),
                None if !sent.is_empty() && self.asked.method == Method::PUT => {
                    return Err(Failure::modified(&kind.group, &kind.resource, &target.name));
                }
                None => {}
            }
        }
        Err(Failure::modified(&kind.group, &kind.resource, &target.name))
    }
}

/// Parses a body by its media type.
pub(crate) fn parse_body(asked: &Asked, body: &Bytes, complaints: &mut Complaints) -> Outcome<Value> {
    let parsed = match asked.media_type.as_str() {
        "" | "application/json" => crate::decode::json(body, complaints)
            .map_err(|e| format!("couldn't get version/kind; json parse error: {e}")),
        "application/yaml" => crate::decode::yaml(body, complaints),
        "application/vnd.kubernetes.protobuf" => crate::protobuf::decode(body),
        _ => {
            return Err(Failure::unsupported_media_type(
                "application/json, application/yaml, application/vnd.kubernetes.protobuf",
            ));
        }
    };
    let value = parsed.map_err(|why| {
        Failure::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): {why} ({})",
            asked.kind.kind,
            summary(body)
        ))
    })?;
    if value.is_object() {
        return Ok(value);
    }
    let found = match value {
        Value::Array(_) => "array",
        Value::String(_) => "string",
        Value::Number(_) => "number",
        Value::Bool(_) => "bool",
        _ => return Ok(serde_json::json!({})),
    };
    Err(Failure::bad_request(format!(
        "the object provided is unrecognized (must be of type {}): couldn't get version/kind; json parse error: json: cannot unmarshal {found} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }} ({})",
        asked.kind.kind,
        summary(body)
    )))
}

/// The start of a body as error messages show it.
fn summary(body: &[u8]) -> String {
    const LONGEST: usize = 30;
    if body.is_empty() {
        return "<empty>".into();
    }
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let shown = &body[..body.len().min(LONGEST)];
    let text = if body[0] == b'{' { String::from_utf8_lossy(shown).into_owned() } else { hex(shown) };
    if body.len() > LONGEST { format!("{text} ...") } else { text }
}

/// `apiVersion` and `kind` must be those of the path; built-in kinds may leave them out.
pub(crate) fn check_type(kinds: &Kinds, kind: &Kind, mut object: Value) -> Outcome<Value> {
    let version = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    let found = object.get("kind").and_then(Value::as_str).unwrap_or_default();
    let expected = kind.api_version();
    let given = if version.is_empty() { expected.as_str() } else { version };
    let named = if found.is_empty() { &*kind.kind } else { found };
    if kind.custom.is_none() && (named != &*kind.kind || given != expected) {
        let known = kinds.iter().find(|k| *k.kind == *named && k.api_version() == given);
        let why = match known {
            Some(other) => {
                let package = |group: &str| match group.split('.').next() {
                    Some("") | None => "core".to_owned(),
                    Some(word) => word.to_owned(),
                };
                format!(
                    "converting ({}.{named}) to ({}.{}): unknown conversion",
                    other.version,
                    package(&kind.group),
                    kind.kind
                )
            }
            None => {
                format!("no kind {named:?} is registered for version {given:?} in scheme \"pkg/runtime/scheme.go:111\"")
            }
        };
        return Err(Failure::bad_request(format!(
            "{named} in version {:?} cannot be handled as a {}: {why}",
            given.rsplit('/').next().unwrap_or_default(),
            kind.kind
        )));
    }
    if !found.is_empty() && found != &*kind.kind {
        let cause = Cause::invalid("kind", &found.into(), &format!("must be {}", kind.kind));
        return Err(Failure::invalid(&kind.group, found, meta::name(&object), &[cause]));
    }
    if !version.is_empty() && version != expected {
        return Err(Failure::bad_request(format!(
            "the API version in the data ({version}) does not match the expected API version ({expected})"
        )));
    }
    object["apiVersion"] = expected.into();
    object["kind"] = (*kind.kind).into();
    Ok(object)
}

/// Decoding of what was sent: unknown fields removed, types checked. No defaults.
fn sent(kind: &Kind, object: &mut Value, complaints: &mut Complaints, tidy: bool) -> Result<(), String> {
    if let Some(custom) = &kind.custom {
        custom.prune(object, complaints);
        return Ok(());
    }
    let Some(schema) = kind.schema.and_then(crate::schema::built_in) else { return Ok(()) };
    crate::decode::conform(schema, &kind.kind, object, complaints, tidy)
}

fn decoded(kind: &Kind, object: &mut Value, complaints: &mut Complaints) -> Result<(), String> {
    sent(kind, object, complaints, true)?;
    if let Some(custom) = &kind.custom {
        custom.fill_defaults(object);
    } else if let Some(schema) = kind.schema.and_then(crate::schema::built_in) {
        crate::decode::fill(schema, object);
    }
    Ok(())
}

fn unreadable(kind: &Kind, why: &str) -> Box<Failure> {
    Failure::bad_request(format!(
        "{} in version {:?} cannot be handled as a {}: {why}",
        kind.kind, &*kind.version, kind.kind
    ))
}

/// The namespace of the path is the namespace of the object.
fn place(kind: &Kind, namespace: &str, object: &mut Value) -> Outcome<()> {
    let given = meta::namespace(object);
    if !kind.namespaced {
        if !given.is_empty() {
            return Err(Failure::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        meta::of(object).remove("namespace");
        return Ok(());
    }
    if !given.is_empty() && given != namespace {
        return Err(Failure::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    meta::of(object).insert("namespace".into(), namespace.into());
    Ok(())
}

fn check_patched(kinds: &Kinds, kind: &Kind, old: &Value, patched: Value) -> Outcome<Value> {
    if !patched.is_object() {
        return Err(Failure::bad_request("the patched object is not an object"));
    }
    let patched = check_type(kinds, kind, patched)?;
    if meta::name(&patched) != meta::name(old) {
        return Err(Failure::bad_request(format!(
            "the name of the object ({}) does not match the name on the URL ({})",
            meta::name(&patched),
            meta::name(old)
        )));
    }
    let mut patched = patched;
    if meta::namespace(&patched).is_empty() && !meta::namespace(old).is_empty() {
        meta::of(&mut patched).insert("namespace".into(), meta::namespace(old).into());
    }
    if meta::namespace(&patched) != meta::namespace(old) {
        return Err(Failure::bad_request("the namespace of the object does not match the namespace on the URL"));
    }
    Ok(patched)
}

/// What no update may change, or only in certain ways.
fn keep_identity(kind: &Kind, method: &Method, old: &Value, next: &mut Value) -> Outcome<()> {
    let sent_uid = meta::uid(next);
    if !sent_uid.is_empty() && sent_uid != meta::uid(old) {
        if method != Method::PUT {
            let cause = Cause::invalid("metadata.uid", &sent_uid.into(), "field is immutable");
            return Err(Failure::invalid(&kind.group, &kind.kind, meta::name(old), &[cause.clone(), cause]));
        }
        return Err(Failure::conflict(
            &kind.group,
            &kind.resource,
            meta::name(old),
            &format!("Precondition failed: UID in precondition: {sent_uid}, UID in object meta: {}", meta::uid(old)),
        ));
    }
    let metadata = meta::of(next);
    for field in [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "resourceVersion",
        "selfLink",
        "generateName",
    ] {
        match old.get("metadata").and_then(|m| m.get(field)) {
            Some(value) => metadata.insert(field.into(), value.clone()),
            None => metadata.remove(field),
        };
    }
    Ok(())
}

/// A client that sends no managedFields means to leave them as they are; an empty list resets them.
fn inherit_managed_fields(current: &Value, next: &mut Value) {
    if next.pointer("/metadata/managedFields").is_none()
        && let Some(fields) = current.pointer("/metadata/managedFields")
    {
        meta::of(next).insert("managedFields".into(), fields.clone());
    }
}

fn bump_generation(kind: &Kind, old: &Value, next: &mut Value) {
    if !kind.generation && kind.custom.is_none() {
        return;
    }
    let status_apart = kind.status || kind.custom.is_none();
    let (Some(before), Some(after)) = (old.as_object(), next.as_object()) else { return };
    let relevant = |key: &String| key != "metadata" && !(status_apart && key == "status");
    let changed = before.iter().filter(|(k, _)| relevant(k)).ne(after.iter().filter(|(k, _)| relevant(k)));
    if changed {
        let generation = meta::generation(old) + 1;
        meta::of(next).insert("generation".into(), generation.into());
    }
}
