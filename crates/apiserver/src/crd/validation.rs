//! Validates custom resources against their schema, in the real server's words.

use serde_json::{Map, Value};

use crate::schema::{List, Rules, Schema, Type};
use crate::status::{Cause, shown};

pub(super) fn check_root(schema: &Schema, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let Value::Object(map) = object else { return causes };
    for name in &schema.required {
        if !map.contains_key(name) {
            causes.push(Cause::required(name.clone(), ""));
        }
    }
    for (name, value) in map {
        if matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
            continue;
        }
        if let Some(field) = schema.field(name) {
            check(field, value, name, &mut causes);
        }
    }
    if let Some(rules) = &schema.rules {
        check_rules(rules, object, "", &mut causes);
    }
    causes
}

fn join(path: &str, field: &str) -> String {
    if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") }
}

fn type_name(ty: Type) -> &'static str {
    match ty {
        Type::Object => "object",
        Type::Array => "array",
        Type::String | Type::Quantity => "string",
        Type::Integer => "integer",
        Type::Number => "number",
        Type::Boolean => "boolean",
        Type::IntOrString => "integer,string",
        Type::Any => "",
    }
}

fn found_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn fits(ty: Type, value: &Value) -> bool {
    match ty {
        Type::Any => true,
        Type::Object => value.is_object(),
        Type::Array => value.is_array(),
        Type::String | Type::Quantity => value.is_string(),
        Type::Integer => value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|f| f.fract() == 0.0),
        Type::Number => value.is_number(),
        Type::Boolean => value.is_boolean(),
        Type::IntOrString => value.is_string() || value.is_i64() || value.is_u64(),
    }
}

fn check(schema: &Schema, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    if value.is_null() && (schema.nullable || schema.ty == Type::Any) {
        return;
    }
    if !fits(schema.ty, value) {
        let name = type_name(schema.ty);
        causes.push(Cause::type_invalid(
            path,
            &format!("{:?}", found_type(value)),
            &format!("{path} in body must be of type {name}: {:?}", found_type(value)),
        ));
        return;
    }
    match value {
        Value::Object(map) => check_object(schema, map, path, causes),
        Value::Array(list) => check_list(schema, list, path, causes),
        _ => {}
    }
    if let Some(format) = schema.format.as_deref()
        && let Value::String(text) = value
        && !format_fits(format, text)
    {
        causes.push(Cause::invalid(path, value, &format!("{path} in body must be of type {format}: {}", shown(value))));
    }
    if let Some(rules) = &schema.rules {
        check_rules(rules, value, path, causes);
    }
}

fn check_object(schema: &Schema, map: &Map<String, Value>, path: &str, causes: &mut Vec<Cause>) {
    for name in &schema.required {
        if !map.contains_key(name) {
            causes.push(Cause::required(join(path, name), ""));
        }
    }
    for (name, value) in map {
        if schema.embedded && matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
            continue;
        }
        if let Some(field) = schema.fields.get(name) {
            check(field, value, &join(path, name), causes);
        } else if let Some(values) = schema.values.as_deref() {
            check(values, value, &join(path, name), causes);
        }
    }
}

fn check_list(schema: &Schema, list: &[Value], path: &str, causes: &mut Vec<Cause>) {
    if let Some(items) = schema.items.as_deref() {
        for (index, item) in list.iter().enumerate() {
            check(items, item, &format!("{path}[{index}]"), causes);
        }
    }
    match &schema.list {
        List::Set => {
            for (index, item) in list.iter().enumerate() {
                if list[..index].contains(item) {
                    causes.push(Cause::duplicate(format!("{path}[{index}]"), item));
                }
            }
        }
        List::Map(keys) => {
            let id = |item: &Value| -> Map<String, Value> {
                keys.iter().filter_map(|k| item.get(k).map(|v| (k.clone(), v.clone()))).collect()
            };
            for (index, item) in list.iter().enumerate() {
                let own = id(item);
                if list[..index].iter().any(|other| id(other) == own) {
                    causes.push(Cause::duplicate(format!("{path}[{index}]"), &Value::Object(own)));
                }
            }
        }
        List::Atomic => {}
    }
}

fn check_rules(rules: &Rules, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    if let Some(options) = &rules.options
        && !options.contains(value)
    {
        let names: Vec<String> = options.iter().map(shown).collect();
        causes.push(Cause {
            reason: "FieldValueNotSupported",
            message: format!("Unsupported value: {}: supported values: {}", shown(value), names.join(", ")),
            field: path.to_owned(),
        });
    }
    let mut wrong = |detail: String| causes.push(Cause::invalid(path, value, &detail));
    match value {
        Value::String(text) => {
            let length = text.chars().count() as u64;
            if let Some(least) = rules.min_length.filter(|l| length < *l) {
                wrong(format!("{path} in body should be at least {least} chars long"));
            }
            if let Some(most) = rules.max_length.filter(|l| length > *l) {
                causes.push(Cause::too_long_chars(path, most));
                return;
            }
            if let Some((source, pattern)) = &rules.pattern
                && pattern.as_ref().is_some_and(|p| !p.is_match(text))
            {
                wrong(format!("{path} in body should match '{source}'"));
            }
        }
        Value::Number(number) => {
            let number = number.as_f64().unwrap_or_default();
            if let Some(least) = rules.minimum {
                if rules.exclusive_minimum && number <= least {
                    wrong(format!("{path} in body should be greater than {least}"));
                } else if number < least {
                    wrong(format!("{path} in body should be greater than or equal to {least}"));
                }
            }
            if let Some(most) = rules.maximum {
                if rules.exclusive_maximum && number >= most {
                    wrong(format!("{path} in body should be less than {most}"));
                } else if number > most {
                    wrong(format!("{path} in body should be less than or equal to {most}"));
                }
            }
            if let Some(step) = rules.multiple_of.filter(|s| *s > 0.0 && (number / s).fract() != 0.0) {
                wrong(format!("{path} in body should be a multiple of {step}"));
            }
        }
        Value::Array(list) => {
            let length = list.len() as u64;
            if let Some(least) = rules.min_items.filter(|l| length < *l) {
                causes.push(Cause::invalid(
                    path,
                    &length.into(),
                    &format!("{path} in body should have at least {least} items"),
                ));
                return;
            }
            if let Some(most) = rules.max_items.filter(|l| length > *l) {
                causes.push(Cause::too_many(path, list.len(), usize::try_from(most).unwrap_or(usize::MAX)));
                return;
            }
            if rules.unique_items && list.iter().enumerate().any(|(i, item)| list[..i].contains(item)) {
                wrong(format!("{path} in body shouldn't contain duplicates"));
            }
        }
        Value::Object(map) => {
            let length = map.len() as u64;
            if let Some(least) = rules.min_properties.filter(|l| length < *l) {
                wrong(format!("{path} in body should have at least {least} properties"));
            }
            if let Some(most) = rules.max_properties.filter(|l| length > *l) {
                wrong(format!("{path} in body should have at most {most} properties"));
            }
        }
        _ => {}
    }
    check_combinations(rules, value, path, causes);
}

fn check_combinations(rules: &Rules, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    let passes = |schema: &Schema| {
        let mut inner = Vec::new();
        check(schema, value, path, &mut inner);
        inner.is_empty()
    };
    for schema in &rules.all_of {
        check(schema, value, path, causes);
    }
    if !rules.any_of.is_empty() && !rules.any_of.iter().any(passes) {
        causes.push(Cause::invalid(path, value, &format!("{path} in body must validate at least one schema (anyOf)")));
    }
    if !rules.one_of.is_empty() {
        let count = rules.one_of.iter().filter(|s| passes(s)).count();
        if count != 1 {
            let found =
                if count == 0 { "Found none valid".to_owned() } else { format!("Found {count} valid alternatives") };
            causes.push(Cause::invalid(
                path,
                value,
                &format!("{path} in body must validate one and only one schema (oneOf). {found}"),
            ));
        }
    }
    if rules.not.as_deref().is_some_and(passes) {
        causes.push(Cause::invalid(path, value, &format!("{path} in body must not validate the schema (not)")));
    }
}

fn format_fits(format: &str, text: &str) -> bool {
    match format {
        "date-time" => text.parse::<jiff::Timestamp>().is_ok(),
        "date" => text.parse::<jiff::civil::Date>().is_ok(),
        "uuid" => uuid::Uuid::parse_str(text).is_ok(),
        "ipv4" => text.parse::<std::net::Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<std::net::Ipv6Addr>().is_ok(),
        "byte" => {
            use base64::Engine as _;
            base64::engine::general_purpose::STANDARD.decode(text).is_ok()
        }
        "duration" => go_duration(text),
        // Formats unknown to the real server are not checked.
        _ => true,
    }
}

/// `1h2m3.5s` and the like.
fn go_duration(text: &str) -> bool {
    let text = text.trim_start_matches(['-', '+']);
    if text == "0" {
        return true;
    }
    let mut rest = text;
    if rest.is_empty() {
        return false;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        if digits == 0 || rest[..digits].parse::<f64>().is_err() {
            return false;
        }
        rest = &rest[digits..];
        let Some(unit) =
            ["ns", "us", "µs", "ms", "s", "m", "h"].into_iter().filter(|u| rest.starts_with(u)).max_by_key(|u| u.len())
        else {
            return false;
        };
        rest = &rest[unit.len()..];
    }
    true
}

/// A failed CEL rule as a cause.
pub(super) fn rule_cause(error: &kube_cel::ValidationError, object: &Value) -> Cause {
    let field = error.field_path.trim_start_matches('.').to_owned();
    let reason = match error.reason.as_deref() {
        Some("FieldValueForbidden") => "FieldValueForbidden",
        Some("FieldValueRequired") => "FieldValueRequired",
        Some("FieldValueDuplicate") => "FieldValueDuplicate",
        _ => "FieldValueInvalid",
    };
    let message = match reason {
        "FieldValueForbidden" => format!("Forbidden: {}", error.message),
        "FieldValueRequired" => format!("Required value: {}", error.message),
        kind => {
            let word = if kind == "FieldValueDuplicate" { "Duplicate value" } else { "Invalid value" };
            match shown_at(object, &field) {
                Some(value) => format!("{word}: {value}: {}", error.message),
                None => format!("{word}: {}", error.message),
            }
        }
    };
    // The path of the whole object is empty, which the real server prints as <nil>.
    Cause { reason, message, field: if field.is_empty() { "<nil>".into() } else { field } }
}

/// The value at a path such as `spec.list[0].name`, as rules print it: composite values are omitted.
fn shown_at(object: &Value, path: &str) -> Option<String> {
    let mut at = object;
    for part in path.split('.').filter(|p| !p.is_empty()) {
        let (name, indices) = part.split_once('[').map_or((part, ""), |(n, i)| (n, i));
        at = match at.get(name) {
            Some(next) => next,
            None => return Some("null".into()),
        };
        for index in indices.split('[').filter_map(|i| i.trim_end_matches(']').parse::<usize>().ok()) {
            at = match at.get(index) {
                Some(next) => next,
                None => return Some("null".into()),
            };
        }
    }
    (!at.is_object() && !at.is_array()).then(|| shown(at))
}
