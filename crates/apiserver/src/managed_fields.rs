//! Field ownership: `metadata.managedFields`, and server-side apply built on it.
//!
//! Changing a field takes ownership of it. Apply merges the given configuration, removes what its manager applied before and nobody
//! else owns, and conflicts with changes to fields of other managers, unless forced.

mod set;
mod walk;

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::kinds::Kind;
use crate::meta;
use crate::schema::Schema;
use crate::status::{ApiResult, StatusError};
use set::{FieldSet, PathElement};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ManagedFieldsOperation {
    Update,
    Apply,
}

/// The maximum number of update-only managers; older ones are merged into one.
const MOST_UPDATERS: usize = 10;
const BEFORE_FIRST_APPLY: &str = "before-first-apply";
const ANCIENT: &str = "ancient-changes";

/// Fields nobody owns: the object's identity.
const UNOWNED: [&[&str]; 12] = [
    &["apiVersion"],
    &["kind"],
    &["metadata"],
    &["metadata", "name"],
    &["metadata", "namespace"],
    &["metadata", "creationTimestamp"],
    &["metadata", "selfLink"],
    &["metadata", "uid"],
    &["metadata", "clusterName"],
    &["metadata", "generation"],
    &["metadata", "managedFields"],
    &["metadata", "resourceVersion"],
];

#[derive(Debug, Clone)]
struct Entry {
    manager: String,
    operation: ManagedFieldsOperation,
    version: String,
    subresource: String,
    time: Option<String>,
    set: FieldSet,
}

impl Entry {
    /// An applier is the same manager in every version.
    fn same_manager(&self, other: &Self) -> bool {
        self.manager == other.manager
            && self.operation == other.operation
            && self.subresource == other.subresource
            && (self.operation == ManagedFieldsOperation::Apply || self.version == other.version)
    }

    fn shown(&self) -> String {
        let mut out = format!("{:?}", self.manager);
        if !self.subresource.is_empty() {
            out.push_str(&format!(" with subresource {:?}", self.subresource));
        }
        if self.operation == ManagedFieldsOperation::Update {
            out.push_str(&format!(" using {}", self.version));
        }
        out
    }
}

fn schema_of(kind: &Kind) -> &Schema {
    match &kind.custom {
        Some(custom) => &custom.managed,
        None => kind.schema.and_then(crate::schema::built_in).unwrap_or_else(|| crate::schema::anything()),
    }
}

fn read(object: &Value) -> Vec<Entry> {
    object
        .pointer("/metadata/managedFields")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(|entry| Entry {
            manager: meta::text(entry, "/manager").to_owned(),
            operation: if meta::text(entry, "/operation") == "Apply" {
                ManagedFieldsOperation::Apply
            } else {
                ManagedFieldsOperation::Update
            },
            version: meta::text(entry, "/apiVersion").to_owned(),
            subresource: meta::text(entry, "/subresource").to_owned(),
            time: entry.get("time").and_then(Value::as_str).map(str::to_owned),
            set: FieldSet::from_fields(entry.get("fieldsV1").unwrap_or(&Value::Null)),
        })
        .collect()
}

fn write(object: &mut Value, mut entries: Vec<Entry>) {
    entries.retain(|e| !e.set.is_empty());
    entries.sort_by(|a, b| {
        let rank = |e: &Entry| {
            (
                e.operation == ManagedFieldsOperation::Update,
                e.time.clone(),
                e.manager.clone(),
                e.version.clone(),
                e.subresource.clone(),
            )
        };
        rank(a).cmp(&rank(b))
    });
    let list: Vec<Value> = entries
        .into_iter()
        .map(|entry| {
            let operation = if entry.operation == ManagedFieldsOperation::Apply { "Apply" } else { "Update" };
            let mut made = json!({
                "manager": entry.manager, "operation": operation, "apiVersion": entry.version, "fieldsType": "FieldsV1",
            });
            // The largest part; `json!` would copy it.
            made["fieldsV1"] = entry.set.to_fields();
            if let Some(time) = entry.time {
                made["time"] = time.into();
            }
            if !entry.subresource.is_empty() {
                made["subresource"] = entry.subresource.into();
            }
            made
        })
        .collect();
    let metadata = meta::of(object);
    if list.is_empty() {
        metadata.remove("managedFields");
    } else {
        metadata.insert("managedFields".into(), list.into());
    }
}

/// The object without managed fields.
fn bare(object: &Value) -> Value {
    let mut copy = object.clone();
    meta::of(&mut copy).remove("managedFields");
    copy
}

fn stripped(mut set: FieldSet) -> FieldSet {
    for path in UNOWNED {
        let steps: Vec<PathElement> = path.iter().map(|s| PathElement::Field((*s).to_owned())).collect();
        set.remove(&steps);
    }
    set
}

/// Records who changed what in a create or update.
pub(crate) fn record(kind: &Kind, old: Option<&Value>, new: &mut Value, manager: &str, subresource: &str) {
    // A client clears ownership by sending an empty list.
    let reset = new.pointer("/metadata/managedFields").and_then(Value::as_array).is_some_and(Vec::is_empty);
    let mut entries = match old {
        Some(_) if !reset => read(new),
        _ => Vec::new(),
    };
    if entries.is_empty() && old.is_some() {
        // Ownership starts with the first apply or named create.
        meta::of(new).remove("managedFields");
        return;
    }
    // A create does not set the status, whatever was sent.
    let status = match new.as_object_mut() {
        Some(map) if old.is_none() && kind.status => map.remove("status"),
        _ => None,
    };
    let before = match old {
        Some(old) => Cow::Borrowed(old),
        None if kind.custom.is_none() => Cow::Owned(crate::decode::zero(schema_of(kind))),
        None => Cow::Owned(json!({"metadata": {}})),
    };
    let difference = walk::compare(schema_of(kind), Some(&before), Some(new));
    if let (Some(status), Some(map)) = (status, new.as_object_mut()) {
        map.insert("status".into(), status);
    }
    let mut changed = difference.added;
    changed.add(difference.modified);
    for entry in &mut entries {
        entry.set = entry.set.difference(&difference.removed);
    }
    let own = Entry {
        manager: manager.to_owned(),
        operation: ManagedFieldsOperation::Update,
        version: kind.api_version(),
        subresource: subresource.to_owned(),
        // The real server's scale handler records none.
        time: (subresource != "scale").then(meta::now),
        set: FieldSet::default(),
    };
    for entry in entries.iter_mut().filter(|entry| !entry.same_manager(&own)) {
        entry.set = entry.set.difference(&changed);
    }
    let own = Entry { set: stripped(changed), ..own };
    if !own.set.is_empty() {
        match entries.iter_mut().find(|e| e.same_manager(&own)) {
            Some(entry) => {
                entry.set.add(own.set);
                entry.time = own.time;
            }
            None => entries.push(own),
        }
    }
    fold_ancient(&mut entries);
    write(new, entries);
}

/// Limits the number of update managers: the oldest are merged.
fn fold_ancient(entries: &mut Vec<Entry>) {
    let mut updaters: Vec<usize> =
        (0..entries.len()).filter(|i| entries[*i].operation == ManagedFieldsOperation::Update).collect();
    if updaters.len() <= MOST_UPDATERS {
        return;
    }
    updaters.sort_by(|a, b| entries[*a].time.cmp(&entries[*b].time));
    let fold: Vec<usize> = updaters[..=updaters.len() - MOST_UPDATERS].to_vec();
    let mut ancient: Vec<Entry> = Vec::new();
    for index in &fold {
        let entry = &entries[*index];
        match ancient.iter_mut().find(|a| a.version == entry.version) {
            Some(bucket) => {
                bucket.set = bucket.set.union(&entry.set);
                bucket.time.clone_from(&entry.time);
            }
            None => ancient.push(Entry { manager: ANCIENT.into(), subresource: String::new(), ..entry.clone() }),
        }
    }
    let mut index = 0;
    entries.retain(|_| {
        index += 1;
        !fold.contains(&(index - 1))
    });
    entries.extend(ancient);
}

/// The ownership of an object created by apply.
pub(crate) fn apply_new(kind: &Kind, object: &mut Value, manager: &str) {
    let mut applied = bare(object);
    if kind.status
        && let Some(map) = applied.as_object_mut()
    {
        map.remove("status");
    }
    let entry = Entry {
        manager: manager.to_owned(),
        operation: ManagedFieldsOperation::Apply,
        version: kind.api_version(),
        subresource: String::new(),
        time: Some(meta::now()),
        set: stripped(walk::fields_of(schema_of(kind), &applied)),
    };
    write(object, vec![entry]);
}

/// Applies a configuration to a live object.
pub(crate) fn apply(
    kind: &Kind,
    live: &Value,
    applied: &Value,
    manager: &str,
    subresource: &str,
    force: bool,
) -> ApiResult<Value> {
    let schema = schema_of(kind);
    let mut entries = read(live);
    let before = bare(live);
    if entries.is_empty() {
        let empty = if kind.custom.is_none() { crate::decode::zero(schema) } else { json!({"metadata": {}}) };
        let first = walk::compare(schema, Some(&empty), Some(&before));
        let everything = first.added.union(&first.modified);
        entries.push(Entry {
            manager: BEFORE_FIRST_APPLY.into(),
            operation: ManagedFieldsOperation::Update,
            version: kind.api_version(),
            subresource: String::new(),
            time: Some(meta::now()),
            set: stripped(everything),
        });
    }
    let mut config = bare(applied);
    restrict(kind, subresource, &mut config);
    let mut own = Entry {
        manager: manager.to_owned(),
        operation: ManagedFieldsOperation::Apply,
        version: kind.api_version(),
        subresource: subresource.to_owned(),
        time: Some(meta::now()),
        set: walk::fields_of(schema, &config),
    };
    let last = entries.iter().find(|e| e.same_manager(&own)).cloned();
    entries.retain(|e| !e.same_manager(&own));
    let mut next = walk::merge(schema, &before, &config);
    if let Some(last) = &last {
        prune(schema, &mut next, last, &own, &entries);
    }
    let difference = walk::compare(schema, Some(&before), Some(&next));
    let changed = difference.added.union(&difference.modified);
    let mut conflicts: Vec<(String, Vec<PathElement>)> = Vec::new();
    for entry in &mut entries {
        let contested = entry.set.intersection(&changed);
        if !contested.is_empty() {
            conflicts.extend(contested.paths().into_iter().map(|path| (entry.shown(), path)));
        }
        entry.set = entry.set.difference(&contested).difference(&difference.removed);
    }
    if !force && !conflicts.is_empty() {
        return Err(refused(&conflicts));
    }
    own.set = stripped(own.set);
    if difference.added.is_empty() && difference.modified.is_empty() && difference.removed.is_empty() {
        // Nothing changed: keep the time, and do not add a manager.
        own.time = last.and_then(|l| l.time);
    }
    entries.push(own);
    write(&mut next, entries);
    // An applied resourceVersion is a precondition, which the caller checks.
    if let Some(version) = applied.pointer("/metadata/resourceVersion") {
        meta::of(&mut next).insert("resourceVersion".into(), version.clone());
    }
    Ok(next)
}

/// A subresource does not own what it cannot set.
fn restrict(kind: &Kind, subresource: &str, config: &mut Value) {
    let Some(map) = config.as_object_mut() else { return };
    match subresource {
        "" if kind.status => {
            map.remove("status");
        }
        "status" => map.retain(|key, _| matches!(key.as_str(), "apiVersion" | "kind" | "metadata" | "status")),
        _ => {}
    }
}

/// Removes what the manager applied before, does not apply now, and nobody else owns.
fn prune(schema: &Schema, next: &mut Value, last: &Entry, own: &Entry, others: &[Entry]) {
    let mut gone: Vec<Vec<PathElement>> = Vec::new();
    for place in last.set.places() {
        if gone.iter().any(|g| place.starts_with(g)) {
            continue;
        }
        if own.set.touches(&place) || others.iter().any(|e| e.set.touches(&place)) {
            continue;
        }
        gone.push(place);
    }
    for path in gone {
        walk::remove(schema, next, &path);
    }
}

fn refused(conflicts: &[(String, Vec<PathElement>)]) -> Box<StatusError> {
    let causes: Vec<Value> = conflicts
        .iter()
        .map(|(manager, path)| {
            json!({"reason": "FieldManagerConflict", "message": format!("conflict with {manager}"), "field": set::shown(path)})
        })
        .collect();
    let message = match conflicts {
        [(manager, path)] => format!("Apply failed with 1 conflict: conflict with {manager}: {}", set::shown(path)),
        many => {
            let mut managers: Vec<&String> = many.iter().map(|(m, _)| m).collect();
            managers.sort();
            managers.dedup();
            let mut lines = Vec::new();
            for manager in managers {
                lines.push(format!("conflicts with {manager}:"));
                lines.extend(
                    many.iter().filter(|(m, _)| m == manager).map(|(_, path)| format!("- {}", set::shown(path))),
                );
            }
            format!("Apply failed with {} conflicts: {}", many.len(), lines.join("\n"))
        }
    };
    StatusError::apply_conflict(message, &causes)
}

fn same_but_for_ownership(old: &Value, new: &Value) -> bool {
    /// Whether two maps are equal, comparing the values of one key with `alike`.
    fn same_but_for(
        old: &Value,
        new: &Value,
        key: &str,
        alike: impl Fn(Option<&Value>, Option<&Value>) -> bool,
    ) -> bool {
        let (Value::Object(before), Value::Object(after)) = (old, new) else { return old == new };
        let others = |map| serde_json::Map::iter(map).filter(|(name, _)| *name != key);
        others(before).eq(others(after)) && alike(before.get(key), after.get(key))
    }
    same_but_for(old, new, "metadata", |before, after| match (before, after) {
        (Some(before), Some(after)) => same_but_for(before, after, "managedFields", |_, _| true),
        (before, after) => before == after,
    })
}

/// Whether objects differ only in the times of managed fields.
pub(crate) fn same_but_for_times(old: &Value, new: &Value) -> bool {
    if !same_but_for_ownership(old, new) {
        return false;
    }
    let timeless = |object: &Value| -> Vec<Value> {
        object
            .pointer("/metadata/managedFields")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .map(|entry| {
                let mut copy = entry.clone();
                if let Some(map) = copy.as_object_mut() {
                    map.remove("time");
                }
                copy
            })
            .collect()
    };
    let (mut before, mut after) = (timeless(old), timeless(new));
    before.sort_by_key(Value::to_string);
    after.sort_by_key(Value::to_string);
    before == after
}
