//! Protobuf request bodies, as sent by kubectl's `create` commands and Go controllers: decoded into JSON. Responses are always JSON,
//! which those clients accept.

use std::collections::HashMap;
use std::io::Read as _;
use std::sync::LazyLock;

use base64::Engine as _;
use serde_json::{Map, Value, json};

/// The prefix of every message.
const MAGIC: &[u8] = b"k8s\0";
const DEEPEST: usize = 100;

/// Field number to JSON name, type and flags, per message (see `assets/pack_protobuf.py`).
type Messages = HashMap<String, HashMap<String, (String, String, String)>>;

static MESSAGES: LazyLock<Messages> = LazyLock::new(|| {
    let packed: &[u8] = include_bytes!("../assets/protobuf.json.gz");
    let mut text = Vec::new();
    match flate2::read::GzDecoder::new(packed).read_to_end(&mut text).map(|_| serde_json::from_slice(&text)) {
        Ok(Ok(messages)) => messages,
        // The asset is part of the build and covered by a test.
        _ => Messages::new(),
    }
});

/// The object in a body, with its `apiVersion` and `kind`.
pub(crate) fn decode(body: &[u8]) -> Result<Value, String> {
    let envelope = body.strip_prefix(MAGIC).ok_or("provided data does not appear to be a protobuf message")?;
    let (mut version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    for field in fields(envelope) {
        match field? {
            (1, Wire::Bytes(meta)) => {
                for part in fields(meta) {
                    match part? {
                        (1, Wire::Bytes(text)) => version = utf8(text)?,
                        (2, Wire::Bytes(text)) => kind = utf8(text)?,
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let message =
        message_name(&version, &kind).ok_or_else(|| format!("no protobuf form of {kind} in {version} is known"))?;
    let mut object = value(message, raw, 0)?;
    object["apiVersion"] = version.into();
    object["kind"] = kind.into();
    Ok(object)
}

/// The message of a kind: its package ends with the group's first segment and the version.
fn message_name(version: &str, kind: &str) -> Option<&'static str> {
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let package = match group.split('.').next().unwrap_or_default() {
        "" => "core",
        word => word,
    };
    let ending = format!(".{package}.{version}.{kind}");
    let meta = format!("k8s.io.apimachinery.pkg.apis.meta.v1.{kind}");
    MESSAGES.keys().map(String::as_str).find(|name| name.ends_with(&ending)).or_else(|| {
        let only_meta = group.is_empty() || group == "meta.k8s.io";
        MESSAGES.get_key_value(&meta).filter(|_| only_meta).map(|(name, _)| name.as_str())
    })
}

enum Wire<'a> {
    Number(u64),
    Fixed64(u64),
    Fixed32(u32),
    Bytes(&'a [u8]),
}

fn varint(data: &mut &[u8]) -> Result<u64, String> {
    let mut out = 0u64;
    for shift in (0..64).step_by(7) {
        let (first, rest) = data.split_first().ok_or("unexpected EOF")?;
        *data = rest;
        out |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Ok(out);
        }
    }
    Err("proto: integer overflow".into())
}

fn take<'a>(data: &mut &'a [u8], count: u64) -> Result<&'a [u8], String> {
    let count = usize::try_from(count).map_err(|_| "unexpected EOF")?;
    if count > data.len() {
        return Err("unexpected EOF".into());
    }
    let (head, rest) = data.split_at(count);
    *data = rest;
    Ok(head)
}

fn fields(mut data: &[u8]) -> impl Iterator<Item = Result<(u64, Wire<'_>), String>> {
    std::iter::from_fn(move || {
        if data.is_empty() {
            return None;
        }
        let read = (|| {
            let tag = varint(&mut data)?;
            let wire = match tag & 7 {
                0 => Wire::Number(varint(&mut data)?),
                1 => Wire::Fixed64(u64::from_le_bytes(take(&mut data, 8)?.try_into().unwrap_or_default())),
                2 => {
                    let length = varint(&mut data)?;
                    Wire::Bytes(take(&mut data, length)?)
                }
                5 => Wire::Fixed32(u32::from_le_bytes(take(&mut data, 4)?.try_into().unwrap_or_default())),
                other => return Err(format!("proto: illegal wireType {other}")),
            };
            Ok((tag >> 3, wire))
        })();
        if read.is_err() {
            data = &[];
        }
        Some(read)
    })
}

fn utf8(bytes: &[u8]) -> Result<String, String> {
    String::from_utf8(bytes.to_vec()).map_err(|_| "proto: invalid UTF-8 in a string".to_owned())
}

/// A message as JSON. Types with a custom JSON form come first.
fn value(message: &str, data: &[u8], depth: usize) -> Result<Value, String> {
    if depth > DEEPEST {
        return Err("exceeded max depth".into());
    }
    let short = message.rsplit('.').next().unwrap_or_default();
    match (message, short) {
        (_, "Quantity") => return text_field(data, 1),
        (_, "Time" | "MicroTime" | "Timestamp") => return time(data, short == "MicroTime"),
        (_, "IntOrString") => return int_or_string(data),
        (_, "FieldsV1" | "RawExtension" | "JSON") => return embedded(data),
        (_, "ExtraValue" | "Verbs") => return items(data),
        (_, "JSONSchemaPropsOrBool") => return schema_or_bool(message, data, depth),
        (_, "JSONSchemaPropsOrArray") => {
            let inner = object(message, data, depth)?;
            return Ok(inner.get("schema").or_else(|| inner.get("jSONSchemas")).cloned().unwrap_or_default());
        }
        _ => {}
    }
    Ok(Value::Object(object(message, data, depth)?))
}

fn object(message: &str, data: &[u8], depth: usize) -> Result<Map<String, Value>, String> {
    let known = MESSAGES.get(message).ok_or_else(|| format!("unknown message {message}"))?;
    let mut out = Map::new();
    for field in fields(data) {
        let (number, wire) = field?;
        let Some((name, ty, flags)) = known.get(&number.to_string()) else { continue };
        if flags.contains('m') {
            let Wire::Bytes(entry) = wire else { continue };
            let (key, inner) = map_entry(ty, entry, depth)?;
            let slot = out.entry(name.clone()).or_insert_with(|| json!({}));
            slot[key] = inner;
            continue;
        }
        let inner = scalar_or_message(ty, &wire, depth)?;
        if flags.contains('i') {
            if let Value::Object(fields) = inner {
                out.extend(fields);
            }
        } else if flags.contains('r') {
            let slot = out.entry(name.clone()).or_insert_with(|| json!([]));
            if let Some(list) = slot.as_array_mut() {
                list.push(inner);
            }
        } else if flags.contains('p') || !is_zero(&inner) {
            out.insert(name.clone(), inner);
        }
    }
    Ok(out)
}

/// What Go omits from JSON for non-pointer fields.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(b) => !b,
        Value::Number(n) => n.as_f64() == Some(0.0),
        Value::String(s) => s.is_empty(),
        Value::Array(_) | Value::Object(_) => false,
    }
}

fn scalar_or_message(ty: &str, wire: &Wire<'_>, depth: usize) -> Result<Value, String> {
    Ok(match (ty, wire) {
        ("string", Wire::Bytes(bytes)) => utf8(bytes)?.into(),
        ("bytes", Wire::Bytes(bytes)) => base64::engine::general_purpose::STANDARD.encode(bytes).into(),
        ("bool", Wire::Number(n)) => (*n != 0).into(),
        // Negative numbers are encoded as 64-bit two's complement.
        ("int32" | "int64", Wire::Number(n)) => n.cast_signed().into(),
        ("uint32" | "uint64", Wire::Number(n)) => (*n).into(),
        ("double", Wire::Fixed64(bits)) => json!(f64::from_bits(*bits)),
        ("float", Wire::Fixed32(bits)) => json!(f32::from_bits(*bits)),
        (message, Wire::Bytes(bytes)) => value(message, bytes, depth + 1)?,
        _ => return Err(format!("proto: wrong wireType for a field of type {ty}")),
    })
}

fn map_entry(ty: &str, entry: &[u8], depth: usize) -> Result<(String, Value), String> {
    let (mut key, mut inner) = (String::new(), None);
    for part in fields(entry) {
        match part? {
            (1, Wire::Bytes(text)) => key = utf8(text)?,
            (2, wire) => inner = Some(scalar_or_message(ty, &wire, depth)?),
            _ => {}
        }
    }
    Ok((key, inner.unwrap_or_else(|| if ty == "string" || ty == "bytes" { "".into() } else { json!({}) })))
}

fn text_field(data: &[u8], wanted: u64) -> Result<Value, String> {
    for field in fields(data) {
        if let (number, Wire::Bytes(text)) = field?
            && number == wanted
        {
            return Ok(utf8(text)?.into());
        }
    }
    Ok(Value::Null)
}

fn time(data: &[u8], micro: bool) -> Result<Value, String> {
    if data.is_empty() {
        return Ok(Value::Null);
    }
    let (mut seconds, mut nanos) = (0i64, 0i32);
    for field in fields(data) {
        match field? {
            (1, Wire::Number(n)) => seconds = n.cast_signed(),
            (2, Wire::Number(n)) => nanos = i32::try_from(n.cast_signed()).unwrap_or_default(),
            _ => {}
        }
    }
    let at = jiff::Timestamp::new(seconds, nanos).map_err(|e| e.to_string())?;
    Ok(if micro { crate::meta::micros(at) } else { crate::meta::seconds(at) }.into())
}

fn int_or_string(data: &[u8]) -> Result<Value, String> {
    let (mut is_text, mut number, mut text) = (false, 0i64, String::new());
    for field in fields(data) {
        match field? {
            (1, Wire::Number(n)) => is_text = n == 1,
            (2, Wire::Number(n)) => number = n.cast_signed(),
            (3, Wire::Bytes(bytes)) => text = utf8(bytes)?,
            _ => {}
        }
    }
    Ok(if is_text { text.into() } else { number.into() })
}

/// JSON inside protobuf.
fn embedded(data: &[u8]) -> Result<Value, String> {
    for field in fields(data) {
        if let (1, Wire::Bytes(raw)) = field? {
            return serde_json::from_slice(raw).map_err(|e| e.to_string());
        }
    }
    Ok(Value::Null)
}

fn items(data: &[u8]) -> Result<Value, String> {
    let mut list = Vec::new();
    for field in fields(data) {
        if let (1, Wire::Bytes(text)) = field? {
            list.push(Value::from(utf8(text)?));
        }
    }
    Ok(list.into())
}

fn schema_or_bool(message: &str, data: &[u8], depth: usize) -> Result<Value, String> {
    let inner = object(message, data, depth)?;
    Ok(match inner.get("schema") {
        Some(schema) => schema.clone(),
        None => inner.get("allows").cloned().unwrap_or(Value::Bool(false)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_field(number: u8, content: &[u8]) -> Vec<u8> {
        let mut out = vec![number << 3 | 2, u8::try_from(content.len()).expect("short")];
        out.extend_from_slice(content);
        out
    }

    #[test]
    fn a_config_map_is_read() {
        let metadata = bytes_field(1, b"a");
        let entry = [bytes_field(1, b"k"), bytes_field(2, b"v")].concat();
        let raw = [bytes_field(1, &metadata), bytes_field(2, &entry)].concat();
        let types = [bytes_field(1, b"v1"), bytes_field(2, b"ConfigMap")].concat();
        let body = [MAGIC.to_vec(), bytes_field(1, &types), bytes_field(2, &raw)].concat();
        let object = decode(&body).expect("decodes");
        assert_eq!(
            object,
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}})
        );
    }

    #[test]
    fn broken_bodies_are_errors() {
        for bad in [&b""[..], b"k8s", b"k8s\0\x0a\xff", b"k8s\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"] {
            assert!(decode(bad).is_err());
        }
    }
}
