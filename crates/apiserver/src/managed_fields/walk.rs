//! Walks typed values: which fields an object sets, how two objects differ, merging one into another.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::set::{FieldSet, PathElement};
use crate::schema::{List, Schema, Type};

/// How a value is owned.
enum Shape<'a> {
    Leaf,
    /// An object; each field separately.
    Map,
    /// A list; each element separately, identified by these keys (or by its value).
    List(Option<&'a [String]>),
}

fn shape<'a>(schema: &'a Schema, value: &Value) -> Shape<'a> {
    let target = schema.target();
    match value {
        Value::Object(_) if schema.is_atomic_map() => Shape::Leaf,
        Value::Object(_) if matches!(target.ty, Type::Object | Type::Any) => Shape::Map,
        Value::Array(_) => match &target.list {
            List::Atomic => Shape::Leaf,
            List::Set => Shape::List(None),
            List::Map(keys) => Shape::List(Some(keys)),
        },
        _ => Shape::Leaf,
    }
}

fn field<'a>(schema: &'a Schema, name: &str) -> &'a Schema {
    schema.target().field(name).unwrap_or_else(|| crate::schema::anything())
}

/// A declared field, as opposed to a map entry.
fn declared(schema: &Schema, name: &str) -> bool {
    schema.target().fields.contains_key(name)
}

fn items(schema: &Schema) -> &Schema {
    schema.target().items.as_deref().unwrap_or_else(|| crate::schema::anything())
}

/// The path element of a list element; omitted keys have their defaults.
fn element_step(schema: &Schema, keys: Option<&[String]>, element: &Value) -> Option<PathElement> {
    let Some(keys) = keys else { return Some(PathElement::Value(element.to_string())) };
    let mut id = Map::new();
    for key in keys {
        let value = element.get(key).cloned().or_else(|| {
            let field = items(schema).target().fields.get(key)?;
            field.default.clone().or_else(|| field.target().default.clone())
        });
        if let Some(value) = value {
            id.insert(key.clone(), value);
        }
    }
    (!id.is_empty()).then(|| PathElement::Key(Value::Object(id).to_string()))
}

/// The fields an applied configuration sets.
pub(super) fn fields_of(schema: &Schema, value: &Value) -> FieldSet {
    let mut set = FieldSet::default();
    collect(schema, value, &mut Vec::new(), &mut set);
    set
}

fn collect(schema: &Schema, value: &Value, path: &mut Vec<PathElement>, set: &mut FieldSet) {
    match (shape(schema, value), value) {
        (Shape::Map, Value::Object(map)) => {
            for (name, inner) in map {
                path.push(PathElement::Field(name.clone()));
                collect(field(schema, name), inner, path, set);
                let empty = inner.is_null() || inner.as_object().is_some_and(Map::is_empty);
                if empty || !declared(schema, name) {
                    set.insert(path);
                }
                path.pop();
            }
        }
        (Shape::List(keys), Value::Array(list)) => {
            for element in list {
                let Some(step) = element_step(schema, keys, element) else { continue };
                path.push(step);
                collect(items(schema), element, path, set);
                set.insert(path);
                path.pop();
            }
        }
        _ => set.insert(path),
    }
}

/// How two objects differ.
#[derive(Debug, Default)]
pub(super) struct Difference {
    pub(super) added: FieldSet,
    pub(super) modified: FieldSet,
    pub(super) removed: FieldSet,
}

/// Nobody owns the managed fields themselves.
const MANAGED_FIELDS: &str = "managedFields";

pub(super) fn compare(schema: &Schema, old: Option<&Value>, new: Option<&Value>) -> Difference {
    let mut difference = Difference::default();
    walk(schema, old, new, &mut Vec::new(), &mut difference);
    difference
}

fn walk(schema: &Schema, old: Option<&Value>, new: Option<&Value>, path: &mut Vec<PathElement>, out: &mut Difference) {
    let Some(any) = new.or(old) else { return };
    if old == new {
        return;
    }
    let empty = |value: Option<&Value>| match value {
        None => true,
        Some(Value::Object(map)) => map.is_empty(),
        Some(Value::Array(list)) => list.is_empty(),
        Some(Value::Null) => true,
        Some(_) => false,
    };
    let same_form = match (old, new) {
        (Some(Value::Null), _) | (_, Some(Value::Null)) => true,
        (Some(a), Some(b)) => std::mem::discriminant(a) == std::mem::discriminant(b),
        _ => true,
    };
    let any = if any.is_null() { old.unwrap_or(any) } else { any };
    let shape = if same_form { shape(schema, any) } else { Shape::Leaf };
    match shape {
        Shape::Map if !(empty(old) && empty(new)) => {
            let (before, after) = (old.and_then(Value::as_object), new.and_then(Value::as_object));
            let names: BTreeSet<&String> = before.into_iter().chain(after).flat_map(Map::keys).collect();
            let in_metadata = matches!(path.as_slice(), [PathElement::Field(name)] if name == "metadata");
            for name in names {
                if in_metadata && name == MANAGED_FIELDS {
                    continue;
                }
                path.push(PathElement::Field(name.clone()));
                walk(field(schema, name), before.and_then(|m| m.get(name)), after.and_then(|m| m.get(name)), path, out);
                path.pop();
            }
        }
        Shape::List(keys) if !(empty(old) && empty(new)) => {
            fn index<'a>(
                schema: &Schema,
                keys: Option<&[String]>,
                list: Option<&'a Value>,
            ) -> BTreeMap<PathElement, &'a Value> {
                let elements = list.and_then(Value::as_array).into_iter().flatten();
                elements.filter_map(|e| Some((element_step(schema, keys, e)?, e))).collect()
            }
            let (before, after) = (index(schema, keys, old), index(schema, keys, new));
            let steps: BTreeSet<&PathElement> = before.keys().chain(after.keys()).collect();
            for step in steps {
                path.push(step.clone());
                walk(items(schema), before.get(step).copied(), after.get(step).copied(), path, out);
                path.pop();
            }
        }
        _ => {
            match (old, new) {
                (None, _) => out.added.insert(path),
                (_, None) => out.removed.insert(path),
                (Some(a), Some(b)) if a != b => out.modified.insert(path),
                _ => {}
            }
            return;
        }
    }
    match (old, new) {
        (None, _) => out.added.insert(path),
        (_, None) => out.removed.insert(path),
        _ => {}
    }
}

/// Merges `applied` into `live`.
pub(super) fn merge(schema: &Schema, live: &Value, applied: &Value) -> Value {
    if std::mem::discriminant(live) != std::mem::discriminant(applied) {
        return applied.clone();
    }
    match (shape(schema, applied), live, applied) {
        (Shape::Map, Value::Object(before), Value::Object(after)) => {
            let mut out = before.clone();
            for (name, value) in after {
                let merged =
                    before.get(name).map_or_else(|| value.clone(), |old| merge(field(schema, name), old, value));
                out.insert(name.clone(), merged);
            }
            Value::Object(out)
        }
        (Shape::List(keys), Value::Array(before), Value::Array(after)) => {
            Value::Array(merge_lists(schema, keys, before, after))
        }
        _ => applied.clone(),
    }
}

/// Applied elements in their order; others keep their place relative to their neighbours.
fn merge_lists(schema: &Schema, keys: Option<&[String]>, before: &[Value], after: &[Value]) -> Vec<Value> {
    let step = |e: &Value| element_step(schema, keys, e);
    let wanted: Vec<Option<PathElement>> = after.iter().map(step).collect();
    let mut out = Vec::new();
    let mut taken = 0;
    let put = |out: &mut Vec<Value>, index: usize| {
        let old = before.iter().find(|b| step(b).is_some() && step(b) == wanted[index]);
        out.push(old.map_or_else(|| after[index].clone(), |old| merge(items(schema), old, &after[index])));
    };
    for element in before {
        let own = step(element);
        match wanted.iter().position(|w| w.is_some() && *w == own) {
            None => out.push(element.clone()),
            Some(place) => {
                while taken <= place {
                    put(&mut out, taken);
                    taken += 1;
                }
            }
        }
    }
    while taken < after.len() {
        put(&mut out, taken);
        taken += 1;
    }
    out
}

/// Removes the value at a path.
pub(super) fn remove(schema: &Schema, value: &mut Value, path: &[PathElement]) {
    let [first, rest @ ..] = path else { return };
    match (first, &mut *value) {
        (PathElement::Field(name), Value::Object(map)) => {
            if rest.is_empty() {
                map.remove(name);
            } else if let Some(inner) = map.get_mut(name) {
                remove(field(schema, name), inner, rest);
            }
        }
        (PathElement::Key(_) | PathElement::Value(_), Value::Array(list)) => {
            let target = schema.target();
            let keys = match &target.list {
                List::Map(keys) => Some(keys.as_slice()),
                _ => None,
            };
            if rest.is_empty() {
                list.retain(|e| element_step(schema, keys, e).as_ref() != Some(first));
            } else if let Some(inner) = list.iter_mut().find(|e| element_step(schema, keys, e).as_ref() == Some(first))
            {
                remove(items(schema), inner, rest);
            }
        }
        _ => {}
    }
}
