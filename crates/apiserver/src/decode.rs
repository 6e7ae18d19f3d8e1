//! Decodes request bodies: JSON or YAML, with duplicate and unknown fields reported, and for built-in kinds the type checks and
//! normalization of decoding into Go structs.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::quantity;
use crate::schema::{Schema, Type};

/// Strict validation errors, in order.
pub(crate) type StrictErrors = Vec<String>;

/// Parses JSON; duplicate fields are reported, the last one wins.
pub(crate) fn json(bytes: &[u8], complaints: &mut StrictErrors) -> Result<Value, String> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = Node { path: FieldPath::Root, complaints }
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value))
        .map_err(|error| json_complaint(bytes, &error))?;
    Ok(value)
}

pub(crate) fn yaml(bytes: &[u8], complaints: &mut StrictErrors) -> Result<Value, String> {
    let text = std::str::from_utf8(bytes).map_err(|e| format!("error converting YAML to JSON: {e}"))?;
    let value: Value = serde_saphyr::from_str(text).map_err(|e| {
        let first = e.to_string();
        format!("error converting YAML to JSON: yaml: {}", first.lines().next().unwrap_or_default())
    })?;
    let _ = complaints;
    Ok(value)
}

/// Go's message for invalid JSON, as far as serde's position allows.
fn json_complaint(bytes: &[u8], error: &serde_json::Error) -> String {
    if error.is_eof() || bytes.is_empty() {
        return "unexpected end of JSON input".into();
    }
    let line_start =
        bytes.split(|b| *b == b'\n').take(error.line().saturating_sub(1)).map(|l| l.len() + 1).sum::<usize>();
    let at = (line_start + error.column()).saturating_sub(1);
    match bytes.get(at).map(|b| char::from(*b)) {
        Some(c) if error.is_syntax() => format!("invalid character {c:?} looking for beginning of value"),
        _ => error.to_string(),
    }
}

/// A field path. It is a linked list on the stack, because only errors need it as text.
#[derive(Clone, Copy)]
enum FieldPath<'a> {
    Root,
    Field(&'a FieldPath<'a>, &'a str),
    Index(&'a FieldPath<'a>, usize),
}

impl fmt::Display for FieldPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Field(Self::Root, name) => f.write_str(name),
            Self::Field(parent, name) => write!(f, "{parent}.{name}"),
            Self::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

struct Node<'a> {
    path: FieldPath<'a>,
    complaints: &'a mut StrictErrors,
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut out = Vec::new();
        loop {
            let path = FieldPath::Index(&self.path, out.len());
            match list.next_element_seed(Node { path, complaints: &mut *self.complaints })? {
                Some(value) => out.push(value),
                None => return Ok(Value::Array(out)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut out = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let path = FieldPath::Field(&self.path, &key);
            if out.contains_key(&key) {
                let complaint = format!("duplicate field {}", crate::status::go_quote(&path.to_string()));
                if !self.complaints.contains(&complaint) {
                    self.complaints.push(complaint);
                }
            }
            let value = entries.next_value_seed(Node { path, complaints: &mut *self.complaints })?;
            out.insert(key, value);
        }
        Ok(Value::Object(out))
    }
}

/// Normalizes `value` as Go's decoding would: drops unknown fields (and reports them), nulls and empty optional lists and maps, and
/// canonicalizes quantities. A wrong type is an error in Go's words.
///
/// Without `tidy`, empty and null fields are kept: in server-side apply an empty map is intended.
pub(crate) fn conform(
    schema: &Schema,
    kind: &str,
    value: &mut Value,
    complaints: &mut StrictErrors,
    tidy: bool,
) -> Result<(), String> {
    let place = Location { path: FieldPath::Root, shown: FieldPath::Root, owner: kind };
    Conform { complaints, tidy }.object(schema.target(), value, &place)
}

/// Fills in what Go prints even if unset: structs and plain values, and the few defaults in the schema.
pub(crate) fn fill(schema: &Schema, value: &mut Value) {
    let schema = schema.target();
    match value {
        Value::Object(map) => {
            for (name, field) in &schema.fields {
                if let Some(default) = &field.default
                    && !map.contains_key(name)
                {
                    map.insert(name.clone(), default.clone());
                }
            }
            for (name, inner) in map.iter_mut() {
                if let Some(field) = schema.field(name) {
                    fill(field, inner);
                }
            }
        }
        Value::Array(list) => {
            if let Some(items) = schema.items.as_deref() {
                list.iter_mut().for_each(|item| fill(items, item));
            }
        }
        _ => {}
    }
}

/// Go's zero object: structs are present, lists and pointers that are always printed are null.
pub(crate) fn zero(schema: &Schema) -> Value {
    let mut map = Map::new();
    for (name, field) in &schema.target().fields {
        match &field.default {
            Some(Value::Object(_)) => {
                map.insert(name.clone(), zero(field));
            }
            // Non-zero defaults belong to the API, not to Go.
            Some(default) if default.is_null() || *default == "" || *default == 0 || *default == false => {
                map.insert(name.clone(), default.clone());
            }
            _ if schema.target().required.contains(name) => {
                map.insert(name.clone(), Value::Null);
            }
            _ => {}
        }
    }
    Value::Object(map)
}

/// The location of a value.
#[derive(Clone, Copy)]
struct Location<'a> {
    /// The full path.
    path: FieldPath<'a>,
    /// The path in Go's errors: without indices and map keys.
    shown: FieldPath<'a>,
    /// The type that the field belongs to.
    owner: &'a str,
}

struct Conform<'a> {
    complaints: &'a mut StrictErrors,
    tidy: bool,
}

impl Conform<'_> {
    fn object(&mut self, schema: &Schema, value: &mut Value, place: &Location<'_>) -> Result<(), String> {
        let Value::Object(map) = value else { return Ok(()) };
        if schema.ty != Type::Object || schema.is_free_form() {
            return Ok(());
        }
        let mut unknown = Vec::new();
        for (name, field) in map.iter_mut() {
            let path = FieldPath::Field(&place.path, name);
            let Some(field_schema) = schema.field(name) else {
                self.complaints.push(format!("unknown field {}", crate::status::go_quote(&path.to_string())));
                unknown.push(name.clone());
                continue;
            };
            let shown =
                if schema.fields.contains_key(name) { FieldPath::Field(&place.shown, name) } else { place.shown };
            self.value(field_schema, field, &Location { path, shown, ..*place })?;
        }
        for name in unknown {
            map.remove(&name);
        }
        let named_fields = schema.values.is_none();
        if !self.tidy {
            return Ok(());
        }
        map.retain(|name, field| {
            if !named_fields {
                return true;
            }
            let required = schema.required.iter().any(|r| r == name);
            let field_schema = schema.field(name).map(Schema::target);
            match field {
                Value::Null => required && field_schema.is_some_and(|f| f.ty == Type::Array),
                Value::Array(list) => !list.is_empty() || required,
                Value::Object(inner) => !inner.is_empty() || field_schema.is_none_or(|f| f.values.is_none()),
                _ => true,
            }
        });
        Ok(())
    }

    fn value(&mut self, schema: &Schema, value: &mut Value, place: &Location<'_>) -> Result<(), String> {
        let target = schema.target();
        if value.is_null() {
            // Zero value inside a list or map of scalars.
            return Ok(());
        }
        let wrong = |found: &str| {
            let Location { owner, shown, .. } = place;
            format!("json: cannot unmarshal {found} into Go struct field {owner}.{shown} of type {}", go_type(schema))
        };
        match target.ty {
            Type::Any => Ok(()),
            Type::Object => {
                if !value.is_object() {
                    return Err(wrong(found(value)));
                }
                let owner = schema.type_name().map_or(place.owner, short_type);
                self.object(target, value, &Location { owner, ..*place })
            }
            Type::Array => {
                let Value::Array(list) = value else { return Err(wrong(found(value))) };
                if let Some(items) = target.items.as_deref() {
                    for (index, item) in list.iter_mut().enumerate() {
                        let path = FieldPath::Index(&place.path, index);
                        self.value(items, item, &Location { path, ..*place })?;
                        if item.is_null() && items.target().ty == Type::Object {
                            *item = Value::Object(Map::new());
                        }
                    }
                }
                Ok(())
            }
            Type::String => match value {
                Value::String(text) => match target.format.as_deref() {
                    Some("date-time") => check_time(text),
                    Some("byte") => check_base64(text),
                    _ => Ok(()),
                },
                other => Err(wrong(found(other))),
            },
            Type::Integer => {
                if value.is_f64() {
                    // Go's decoder rejects 1.0 and 1e3 for an integer field.
                    return Err(wrong(&format!("number {value}")));
                }
                if !value.is_number() {
                    return Err(wrong(found(value)));
                }
                let fits = match target.format.as_deref() {
                    Some("int32") => value.as_i64().is_some_and(|v| i32::try_from(v).is_ok()),
                    _ => value.as_i64().is_some(),
                };
                if fits { Ok(()) } else { Err(wrong(&format!("number {value}"))) }
            }
            Type::Number if value.is_number() => Ok(()),
            Type::Boolean if value.is_boolean() => Ok(()),
            Type::Number | Type::Boolean => Err(wrong(found(value))),
            Type::IntOrString => match value {
                Value::String(_) => Ok(()),
                Value::Number(number) if number.is_i64() || number.is_u64() => Ok(()),
                other => Err(format!("json: cannot unmarshal {} into Go value of type int32", found(other))),
            },
            Type::Quantity => {
                let text = match &*value {
                    Value::String(text) => text.clone(),
                    Value::Number(number) => number.to_string(),
                    _ => return Err(quantity::SYNTAX_COMPLAINT.into()),
                };
                *value = quantity::parse(&text)?.to_string().into();
                Ok(())
            }
        }
    }
}

fn check_time(text: &str) -> Result<(), String> {
    if text.parse::<jiff::Timestamp>().is_ok() {
        return Ok(());
    }
    Err(format!(
        "parsing time {quoted} as \"2006-01-02T15:04:05Z07:00\": cannot parse {quoted} as \"2006\"",
        quoted = crate::status::go_quote(text)
    ))
}

fn found(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Go's error for invalid base64.
fn check_base64(text: &str) -> Result<(), String> {
    let body: Vec<u8> = text.bytes().filter(|b| *b != b'\n' && *b != b'\r').collect();
    let data = body.iter().position(|b| *b == b'=').unwrap_or(body.len());
    let odd = body[..data].iter().position(|b| !b.is_ascii_alphanumeric() && *b != b'+' && *b != b'/');
    match odd {
        Some(at) => Err(format!("illegal base64 data at input byte {at}")),
        None if !body.len().is_multiple_of(4) || body.len() - data > 2 => {
            Err(format!("illegal base64 data at input byte {data}"))
        }
        None => Ok(()),
    }
}

fn short_type(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

/// The Go type name of a field, as in decoding errors.
fn go_type(schema: &Schema) -> String {
    if let Some(name) = schema.type_name() {
        let mut parts = name.rsplit('.');
        let kind = parts.next().unwrap_or_default();
        return format!("{}.{kind}", parts.next().unwrap_or_default());
    }
    match schema.ty {
        Type::Array => format!("[]{}", schema.items.as_deref().map(go_type).unwrap_or_default()),
        Type::Object => format!("map[string]{}", schema.values.as_deref().map(go_type).unwrap_or_default()),
        Type::Integer => schema.format.clone().unwrap_or_else(|| "int64".into()),
        Type::Number => "float64".into(),
        Type::Boolean => "bool".into(),
        _ => "string".into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod() -> &'static Schema {
        crate::schema::built_in("io.k8s.api.core.v1.Pod").expect("pod schema")
    }

    #[test]
    fn duplicate_fields_are_named_by_path() {
        let mut complaints = Vec::new();
        let value = json(br#"{"spec":{"a":1,"a":2},"l":[{"x":1,"x":2}]}"#, &mut complaints).expect("json");
        assert_eq!(value["spec"]["a"], 2);
        assert_eq!(complaints, [r#"duplicate field "spec.a""#, r#"duplicate field "l[0].x""#]);
    }

    #[test]
    fn unknown_fields_go_and_quantities_become_canonical() {
        let mut value = json!({"spec": {"foo": 1, "containers": [
            {"name": "c", "bar": true, "resources": {"limits": {"cpu": "1000m", "memory": 1}}, "args": []}]}});
        let mut complaints = Vec::new();
        conform(pod(), "Pod", &mut value, &mut complaints, true).expect("conform");
        assert_eq!(complaints, [r#"unknown field "spec.containers[0].bar""#, r#"unknown field "spec.foo""#]);
        assert_eq!(
            value,
            json!({"spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "1", "memory": "1"}}}]}})
        );
    }

    #[test]
    fn wrong_types_are_told_in_gos_words() {
        let mut value = json!({"spec": {"priority": "x"}});
        let error = conform(pod(), "Pod", &mut value, &mut Vec::new(), true).expect_err("wrong type");
        assert_eq!(error, "json: cannot unmarshal string into Go struct field PodSpec.spec.priority of type int32");
    }
}
