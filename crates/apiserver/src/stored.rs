//! An object at one revision, stored compactly: its JSON text, and what selectors and versions need.
//!
//! A parsed object takes more than ten times the memory of its text. So only recently written objects are kept parsed (the store
//! decides when to drop that) and others are parsed on demand; most readers want the text.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::{BufMut as _, Bytes, BytesMut};
use serde_json::{Map, Value};

#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) revision: u64,
    api_version: Box<str>,
    labels: Option<Map<String, Value>>,
    text: OnceLock<Text>,
    /// Empty only if there is a text.
    value: Mutex<Option<Arc<Value>>>,
}

#[derive(Debug)]
struct Text {
    whole: Bytes,
    /// The positions of `apiVersion` and `kind`, each with its trailing comma.
    types: [(usize, usize); 2],
}

impl Stored {
    pub(crate) fn new(revision: u64, value: Value) -> Self {
        Self {
            revision,
            api_version: value.get("apiVersion").and_then(Value::as_str).unwrap_or_default().into(),
            labels: crate::meta::labels(&value).cloned(),
            text: OnceLock::new(),
            value: Mutex::new(Some(Arc::new(value))),
        }
    }

    /// The parsed object.
    pub(crate) fn value(&self) -> Arc<Value> {
        if let Some(value) = &*self.value.lock().unwrap_or_else(PoisonError::into_inner) {
            return value.clone();
        }
        let text = self.text.get().map(|text| text.whole.as_ref()).unwrap_or_default();
        Arc::new(serde_json::from_slice(text).unwrap_or_default())
    }

    /// Drops the parsed object.
    pub(crate) fn forget_value(&self) {
        self.formatted();
        *self.value.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The JSON text, serialized once and shared by all readers.
    pub(crate) fn text(&self) -> Bytes {
        self.formatted().whole.clone()
    }

    /// Writes the JSON text without `apiVersion` and `kind`, which list items omit.
    pub(crate) fn write_untyped(&self, out: &mut BytesMut) {
        let text = self.formatted();
        let mut from = 0;
        for (start, end) in text.types {
            out.put_slice(&text.whole[from..start]);
            from = end;
        }
        out.put_slice(&text.whole[from..]);
    }

    pub(crate) fn api_version(&self) -> &str {
        &self.api_version
    }

    pub(crate) fn labels(&self) -> Option<&Map<String, Value>> {
        self.labels.as_ref()
    }

    fn formatted(&self) -> &Text {
        self.text.get_or_init(|| Text::of(&self.value()))
    }
}

impl Text {
    fn of(object: &Value) -> Self {
        let mut out = BytesMut::with_capacity(2048).writer();
        let mut types = Vec::with_capacity(2);
        out.get_mut().put_u8(b'{');
        for (index, (key, value)) in object.as_object().into_iter().flatten().enumerate() {
            if index > 0 {
                out.get_mut().put_u8(b',');
            }
            let start = out.get_ref().len();
            // Serializing JSON to memory cannot fail: keys are strings.
            let _ = serde_json::to_writer(&mut out, key);
            out.get_mut().put_u8(b':');
            let _ = serde_json::to_writer(&mut out, value);
            if matches!(key.as_str(), "apiVersion" | "kind") {
                types.push((start, out.get_ref().len() + 1));
            }
        }
        out.get_mut().put_u8(b'}');
        let whole = out.into_inner().freeze();
        // `metadata` follows both in every object, so each has a trailing comma; otherwise nothing is omitted.
        let types = match <[(usize, usize); 2]>::try_from(types) {
            Ok(both) if both.iter().all(|(_, end)| whole.get(end - 1) == Some(&b',')) => both,
            _ => [(0, 0); 2],
        };
        Self { whole, types }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn text_and_tree_are_the_same_before_and_after_the_tree_is_forgotten() {
        let value = json!({"kind": "Event", "apiVersion": "v1", "involvedObject": {"kind": "Pod", "apiVersion": "v1"}, "metadata": {"name": "ä\"", "labels": {"a": "b"}}});
        let stored = Stored::new(7, value.clone());
        assert_eq!(serde_json::from_slice::<Value>(&stored.text()).expect("JSON"), value);
        stored.forget_value();
        assert_eq!(*stored.value(), value);
        assert_eq!(stored.labels().and_then(|labels| labels.get("a")), Some(&json!("b")));
        let mut untyped = BytesMut::new();
        stored.write_untyped(&mut untyped);
        let mut expected = value;
        expected.as_object_mut().expect("an object").retain(|key, _| !matches!(key.as_str(), "apiVersion" | "kind"));
        assert_eq!(serde_json::from_slice::<Value>(&untyped).expect("JSON"), expected);
    }
}
