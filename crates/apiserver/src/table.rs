//! Tables for `kubectl get`. The columns of built-in kinds are upstream's; custom kinds define their own.

mod cells;
mod columns;
mod pod;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::kinds::Kind;
use crate::meta;

/// How much of each object is included with its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Include {
    Nothing,
    Metadata,
    Object,
}

/// A column: name, type, format, description, priority (above 0: only in wide output).
pub(super) struct Column {
    pub(super) name: String,
    pub(super) ty: &'static str,
    pub(super) format: &'static str,
    pub(super) priority: i64,
}

pub(super) type Cells = Vec<Value>;

pub(crate) fn of<'a>(
    kind: &Kind,
    objects: impl Iterator<Item = &'a Value>,
    include: Include,
    with_columns: bool,
) -> Value {
    let now = Timestamp::now();
    let rows: Vec<Value> = objects
        .map(|object| {
            let mut row = json!({"cells": cells(kind, object, now)});
            match include {
                Include::Nothing => row["object"] = Value::Null,
                Include::Metadata => row["object"] = crate::response::partial(object),
                Include::Object => row["object"] = object.clone(),
            }
            if kind.is("", "pods")
                && let Some(conditions) = pod::row_conditions(object)
            {
                row["conditions"] = conditions;
            }
            row
        })
        .collect();
    // Kinds with only the two default columns print no rows as null.
    let rows = if rows.is_empty() && columns::is_plain(kind) { Value::Null } else { rows.into() };
    let columns = if with_columns { definitions(kind) } else { Value::Null };
    json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {}, "columnDefinitions": columns, "rows": rows})
}

fn definitions(kind: &Kind) -> Value {
    const NAME: &str = "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to request the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and configuration definition. Cannot be updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";
    let name = json!({"name": "Name", "type": "string", "format": "name", "description": NAME, "priority": 0});
    let mut list = vec![name];
    match &kind.custom {
        Some(custom) if custom.columns.is_empty() => list.push(json!({
            "name": "Age", "type": "date", "format": "", "priority": 0,
            "description": "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata",
        })),
        Some(custom) => list.extend(custom.columns.iter().map(|c| {
            let description = if c.description.is_empty() {
                format!("Custom resource definition column (in JSONPath format): {}", c.name)
            } else {
                c.description.clone()
            };
            json!({"name": c.name, "type": c.ty, "format": c.format, "description": description, "priority": c.priority})
        })),
        None => {
            list.clear();
            list.extend(columns::of(kind).into_iter().map(
                |c| json!({"name": c.name, "type": c.ty, "format": c.format, "description": "", "priority": c.priority}),
            ));
        }
    }
    list.into()
}

fn cells(kind: &Kind, object: &Value, now: Timestamp) -> Cells {
    let Some(custom) = &kind.custom else { return cells::of(kind, object, now) };
    let mut cells: Cells = vec![meta::name(object).into()];
    if custom.columns.is_empty() {
        cells.push(meta::text(object, "/metadata/creationTimestamp").into());
    }
    for column in &custom.columns {
        let value = column.path.first(object);
        cells.push(match (column.ty.as_str(), value) {
            ("integer", Some(v)) => v.as_i64().map_or(Value::Null, Value::from),
            ("number", Some(v)) if v.is_number() => v.clone(),
            ("boolean", Some(v)) if v.is_boolean() => v.clone(),
            ("date", Some(v)) => v.as_str().map_or(Value::Null, |time| age_of(time, now).into()),
            ("string", Some(Value::String(text))) => text.clone().into(),
            ("string", Some(v)) => v.to_string().into(),
            _ => Value::Null,
        });
    }
    cells
}

/// An age in kubectl's short form.
pub(super) fn age_of(time: &str, now: Timestamp) -> String {
    match time.parse::<Timestamp>() {
        Ok(then) => short_duration(now.duration_since(then).as_secs()),
        Err(_) => "<unknown>".into(),
    }
}

pub(super) fn age(object: &Value, now: Timestamp) -> Value {
    match meta::text(object, "/metadata/creationTimestamp") {
        "" => "<unknown>".into(),
        time => age_of(time, now).into(),
    }
}

/// At most two significant units, as kubectl prints durations.
pub(super) fn short_duration(seconds: i64) -> String {
    if seconds < -1 {
        return "<invalid>".into();
    }
    let seconds = seconds.max(0);
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let pair = |big: i64, unit: &str, small: i64, sub: &str| {
        if small == 0 { format!("{big}{unit}") } else { format!("{big}{unit}{small}{sub}") }
    };
    if seconds < 120 {
        format!("{seconds}s")
    } else if minutes < 10 {
        pair(minutes, "m", seconds % 60, "s")
    } else if minutes < 180 {
        format!("{minutes}m")
    } else if hours < 8 {
        pair(hours, "h", minutes % 60, "m")
    } else if hours < 48 {
        format!("{hours}h")
    } else if hours < 24 * 8 {
        pair(hours / 24, "d", hours % 24, "h")
    } else if hours < 24 * 365 * 2 {
        format!("{}d", hours / 24)
    } else if hours < 24 * 365 * 8 {
        pair(hours / 24 / 365, "y", (hours / 24) % 365, "d")
    } else {
        format!("{}y", hours / 24 / 365)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_short_like_kubectls() {
        for (seconds, text) in [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (3600, "60m"),
            (10_800, "3h"),
            (11_000, "3h3m"),
            (90_000, "25h"),
            (172_800, "2d"),
            (691_200, "8d"),
        ] {
            assert_eq!(short_duration(seconds), text);
        }
    }
}
