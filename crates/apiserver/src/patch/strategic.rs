//! Strategic merge patch: a merge patch that merges lists by key, with `$patch`, `$retainKeys`, `$setElementOrder` and
//! `$deleteFromPrimitiveList`.

use serde_json::{Map, Value};

use crate::schema::{Schema, Type};

const DIRECTIVE: &str = "$patch";
const RETAIN: &str = "$retainKeys";
const ORDER: &str = "$setElementOrder/";
const DROP: &str = "$deleteFromPrimitiveList/";

/// Merges `patch` into `target`.
pub(super) fn merge(schema: &Schema, target: &mut Value, patch: &Value) -> Result<(), String> {
    let Value::Object(patch) = patch else { return Err("a strategic merge patch must be an object".into()) };
    let merged = merge_map(schema, target.as_object().cloned().unwrap_or_default(), patch)?;
    *target = Value::Object(merged);
    Ok(())
}

fn merge_map(
    schema: &Schema,
    mut target: Map<String, Value>,
    patch: &Map<String, Value>,
) -> Result<Map<String, Value>, String> {
    let schema = schema.target();
    match patch.get(DIRECTIVE).map(|d| d.as_str().unwrap_or_default()) {
        Some("replace") => {
            let mut fresh = patch.clone();
            fresh.remove(DIRECTIVE);
            return Ok(fresh);
        }
        Some("delete") => return Ok(Map::new()),
        Some("merge") | None => {}
        Some(other) => return Err(format!("Unknown patch type: {other}")),
    }
    let before_lists = target.clone();
    if let Some(keep) = patch.get(RETAIN) {
        let keep = keep.as_array().ok_or("the value of $retainKeys must be a list")?;
        if patch.keys().any(|k| !k.starts_with('$') && !keep.iter().any(|v| v == k)) {
            return Err("all fields in the patch must be listed in $retainKeys".into());
        }
        target.retain(|key, _| keep.iter().any(|v| v == key));
    }
    for (key, dropped) in patch {
        let Some(field) = key.strip_prefix(DROP) else { continue };
        let dropped = dropped.as_array().ok_or_else(|| format!("the value of {key} must be a list"))?;
        if let Some(Value::Array(list)) = target.get_mut(field) {
            list.retain(|item| !dropped.contains(item));
        }
    }
    for (key, value) in patch {
        if key == DIRECTIVE || key == RETAIN || key.starts_with(DROP) || key.starts_with(ORDER) {
            continue;
        }
        if value.is_null() {
            target.remove(key);
            continue;
        }
        let field = schema.field(key);
        let replace = field.is_some_and(|f| f.strategy.replace);
        let before = target.remove(key);
        let after = match (before, value) {
            (Some(Value::Object(before)), Value::Object(change)) if !replace => {
                Value::Object(merge_map(field.unwrap_or(crate::schema::anything()), before, change)?)
            }
            (None, Value::Object(change)) => {
                Value::Object(merge_map(field.unwrap_or(crate::schema::anything()), Map::new(), change)?)
            }
            (before, Value::Array(change)) => {
                let before = match before {
                    Some(Value::Array(list)) => list,
                    _ => Vec::new(),
                };
                Value::Array(merge_list(field, &before, change)?)
            }
            (_, other) => other.clone(),
        };
        let emptied = matches!((&after, value), (Value::Object(a), Value::Object(p)) if a.is_empty() && p.get(DIRECTIVE).is_some_and(|d| d == "delete"));
        if !emptied {
            target.insert(key.clone(), after);
        }
    }
    for (key, order) in patch {
        let Some(field) = key.strip_prefix(ORDER) else { continue };
        let order = order.as_array().ok_or_else(|| format!("the value of {key} must be a list"))?;
        let merge_key = schema.field(field).and_then(|f| f.strategy.key.clone());
        if let Some(Value::Array(list)) = target.get_mut(field) {
            let before = before_lists.get(field).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            *list = arrange(std::mem::take(list), order, before, merge_key.as_deref());
        }
    }
    Ok(target)
}

fn merge_list(field: Option<&Schema>, before: &[Value], change: &[Value]) -> Result<Vec<Value>, String> {
    let Some(field) = field.filter(|f| f.strategy.merge) else {
        return Ok(change.iter().filter(|item| item.get(DIRECTIVE).is_none()).cloned().collect());
    };
    let Some(key) = field.strategy.key.as_deref() else {
        // A set of scalars: add new ones.
        let mut list = before.to_vec();
        for item in change {
            if !list.contains(item) {
                list.push(item.clone());
            }
        }
        return Ok(arrange(list, change, before, None));
    };
    let replaced = change.iter().any(|item| item.get(DIRECTIVE).is_some_and(|d| d == "replace"));
    let mut list = if replaced { Vec::new() } else { before.to_vec() };
    let anything = crate::schema::anything();
    let items = field.items.as_deref().filter(|i| i.target().ty == Type::Object).unwrap_or(anything);
    for item in change {
        let Value::Object(map) = item else {
            return Err(format!("expected a list of objects with merge key {key}"));
        };
        if map.get(DIRECTIVE).is_some_and(|d| d == "replace") {
            continue;
        }
        let Some(id) = map.get(key) else {
            return Err(format!("map: {item} does not contain declared merge key: {key}"));
        };
        let place = list.iter().position(|existing| existing.get(key) == Some(id));
        if map.get(DIRECTIVE).is_some_and(|d| d == "delete") {
            list.retain(|existing| existing.get(key) != Some(id));
            continue;
        }
        match place {
            Some(at) => {
                let existing = list[at].as_object().cloned().unwrap_or_default();
                list[at] = Value::Object(merge_map(items, existing, map)?);
            }
            None => list.push(Value::Object(merge_map(items, Map::new(), map)?)),
        }
    }
    Ok(arrange(list, change, before, Some(key)))
}

/// Elements in the patch are in its order; others keep theirs, and precede an element of the patch only if they did before.
fn arrange(list: Vec<Value>, order: &[Value], before: &[Value], key: Option<&str>) -> Vec<Value> {
    let place = |among: &[Value], item: &Value| {
        among.iter().position(|other| match key {
            Some(key) => other.get(key).is_some() && other.get(key) == item.get(key),
            None => other == item,
        })
    };
    let (mut named, others): (Vec<Value>, Vec<Value>) = list.into_iter().partition(|item| place(order, item).is_some());
    named.sort_by_key(|item| place(order, item));
    let mut out = Vec::with_capacity(named.len() + others.len());
    let mut named = named.into_iter().peekable();
    for other in others {
        while let Some(next) = named.peek() {
            let other_first = matches!((place(before, &other), place(before, next)), (Some(a), Some(b)) if a < b);
            if other_first {
                break;
            }
            out.extend(named.next());
        }
        out.push(other);
    }
    out.extend(named);
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn merged(before: Value, patch: &Value) -> Value {
        let schema = crate::schema::built_in("io.k8s.api.apps.v1.Deployment").expect("schema");
        let mut target = before;
        merge(schema, &mut target, patch).expect("merge");
        target
    }

    fn with_containers(containers: &Value) -> Value {
        json!({"spec": {"template": {"spec": {"containers": containers}}}})
    }

    #[test]
    fn containers_merge_by_name_and_ports_by_number() {
        let before = with_containers(
            &json!([{"name": "a", "image": "x", "ports": [{"containerPort": 80, "name": "p"}]}, {"name": "b"}]),
        );
        let patch = with_containers(
            &json!([{"name": "a", "image": "y", "ports": [{"containerPort": 80, "name": "q"}, {"containerPort": 81}]}]),
        );
        let after = merged(before, &patch);
        assert_eq!(
            after,
            with_containers(
                &json!([{"name": "a", "image": "y", "ports": [{"containerPort": 80, "name": "q"}, {"containerPort": 81}]}, {"name": "b"}])
            )
        );
    }

    #[test]
    fn directives_delete_replace_and_order() {
        let before = with_containers(&json!([{"name": "a"}, {"name": "b"}, {"name": "c"}]));
        let gone = merged(before.clone(), &with_containers(&json!([{"name": "b", "$patch": "delete"}])));
        assert_eq!(gone, with_containers(&json!([{"name": "a"}, {"name": "c"}])));
        let fresh = merged(before.clone(), &with_containers(&json!([{"$patch": "replace"}, {"name": "z"}])));
        assert_eq!(fresh, with_containers(&json!([{"name": "z"}])));
        let ordered = merged(
            before,
            &json!({"spec": {"template": {"spec": {"$setElementOrder/containers": [{"name": "c"}, {"name": "a"}], "containers": [{"name": "c", "image": "i"}]}}}}),
        );
        assert_eq!(ordered, with_containers(&json!([{"name": "b"}, {"name": "c", "image": "i"}, {"name": "a"}])));
    }

    #[test]
    fn retain_keys_clears_the_others_and_null_removes() {
        let before =
            json!({"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}, "paused": true}});
        let after = merged(
            before,
            &json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}, "paused": null}}),
        );
        assert_eq!(after, json!({"spec": {"strategy": {"type": "Recreate"}}}));
    }

    #[test]
    fn primitive_lists_with_merge_strategy_add_and_drop() {
        let before = json!({"metadata": {"finalizers": ["a", "b"]}});
        let after =
            merged(before, &json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["c"]}}));
        assert_eq!(after, json!({"metadata": {"finalizers": ["c", "b"]}}));
    }
}
