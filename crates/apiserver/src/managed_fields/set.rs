//! Sets of field paths, and their `fieldsV1` form: `f:` a field, `k:` a list element by keys, `v:` a set element, `.` the parent itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::{Map, Value};

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PathElement {
    Field(String),
    /// The keys of a list element as canonical JSON.
    Key(String),
    /// An element of a set of scalars, as JSON.
    Value(String),
}

impl PathElement {
    fn encode(&self) -> String {
        let (kind, rest) = match self {
            Self::Field(name) => ("f:", name),
            Self::Key(keys) => ("k:", keys),
            Self::Value(value) => ("v:", value),
        };
        [kind, rest].concat()
    }

    fn decode(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once(':')?;
        match kind {
            "f" => Some(Self::Field(rest.to_owned())),
            "k" => Some(Self::Key(rest.to_owned())),
            "v" => Some(Self::Value(rest.to_owned())),
            _ => None,
        }
    }
}

impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(keys) => {
                let parsed: Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
                let shown: Vec<String> = parsed.iter().map(|(k, v)| format!("{k}={v}")).collect();
                write!(f, "[{}]", shown.join(","))
            }
            Self::Value(value) => write!(f, "[={value}]"),
        }
    }
}

/// Paths; a path is in the set if its last element is a member at its place.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct FieldSet {
    members: BTreeSet<PathElement>,
    children: BTreeMap<PathElement, FieldSet>,
}

impl FieldSet {
    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty() && self.children.values().all(Self::is_empty)
    }

    pub(super) fn insert(&mut self, path: &[PathElement]) {
        match path {
            [] => {}
            [last] => {
                self.members.insert(last.clone());
            }
            [first, rest @ ..] => match self.children.get_mut(first) {
                Some(child) => child.insert(rest),
                None => self.children.entry(first.clone()).or_default().insert(rest),
            },
        }
    }

    pub(super) fn remove(&mut self, path: &[PathElement]) {
        match path {
            [] => {}
            [last] => {
                self.members.remove(last);
            }
            [first, rest @ ..] => {
                if let Some(child) = self.children.get_mut(first) {
                    child.remove(rest);
                    if child.is_empty() {
                        self.children.remove(first);
                    }
                }
            }
        }
    }

    /// Whether the path or anything below it is in the set.
    pub(super) fn touches(&self, path: &[PathElement]) -> bool {
        match path {
            [] => !self.is_empty(),
            [last] => self.members.contains(last) || self.children.get(last).is_some_and(|c| !c.is_empty()),
            [first, rest @ ..] => self.children.get(first).is_some_and(|c| c.touches(rest)),
        }
    }

    pub(super) fn union(&self, other: &Self) -> Self {
        let mut out = self.clone();
        out.add(other.clone());
        out
    }

    /// Adds another set.
    pub(super) fn add(&mut self, other: Self) {
        if self.members.is_empty() && self.children.is_empty() {
            *self = other;
            return;
        }
        self.members.extend(other.members);
        for (step, child) in other.children {
            match self.children.get_mut(&step) {
                Some(own) => own.add(child),
                None => {
                    self.children.insert(step, child);
                }
            }
        }
    }

    pub(super) fn intersection(&self, other: &Self) -> Self {
        let members = self.members.intersection(&other.members).cloned().collect();
        let children = self
            .children
            .iter()
            .filter_map(|(step, child)| Some((step.clone(), child.intersection(other.children.get(step)?))))
            .filter(|(_, child)| !child.is_empty())
            .collect();
        Self { members, children }
    }

    pub(super) fn difference(&self, other: &Self) -> Self {
        let members = self.members.difference(&other.members).cloned().collect();
        let children = self
            .children
            .iter()
            .map(|(step, child)| {
                (step.clone(), other.children.get(step).map_or_else(|| child.clone(), |o| child.difference(o)))
            })
            .filter(|(_, child)| !child.is_empty())
            .collect();
        Self { members, children }
    }

    /// All paths in the set, parents first.
    pub(super) fn paths(&self) -> Vec<Vec<PathElement>> {
        let mut out = Vec::new();
        self.collect(&mut Vec::new(), &mut out, false);
        out
    }

    /// All paths in the set and all their prefixes, parents first.
    pub(super) fn places(&self) -> Vec<Vec<PathElement>> {
        let mut out = Vec::new();
        self.collect(&mut Vec::new(), &mut out, true);
        out
    }

    fn collect(&self, path: &mut Vec<PathElement>, out: &mut Vec<Vec<PathElement>>, places: bool) {
        let steps: BTreeSet<&PathElement> = self.members.iter().chain(self.children.keys()).collect();
        for step in steps {
            path.push(step.clone());
            if self.members.contains(step) || places {
                out.push(path.clone());
            }
            if let Some(child) = self.children.get(step) {
                child.collect(path, out, places);
            }
            path.pop();
        }
    }

    pub(super) fn to_fields(&self) -> Value {
        let mut map = Map::new();
        for step in &self.members {
            map.insert(step.encode(), Value::Object(Map::new()));
        }
        for (step, child) in &self.children {
            let mut inner = child.to_fields();
            if self.members.contains(step) {
                inner["."] = Value::Object(Map::new());
            }
            map.insert(step.encode(), inner);
        }
        Value::Object(map)
    }

    pub(super) fn from_fields(fields: &Value) -> Self {
        let mut set = Self::default();
        for (key, inner) in fields.as_object().into_iter().flatten() {
            let Some(step) = PathElement::decode(key) else { continue };
            let map = inner.as_object();
            let member = map.is_none_or(|m| m.is_empty() || m.contains_key("."));
            if member {
                set.members.insert(step.clone());
            }
            let child = Self::from_fields(inner);
            if !child.is_empty() {
                set.children.insert(step, child);
            }
        }
        set
    }
}

/// A path in an error message.
pub(super) fn shown(path: &[PathElement]) -> String {
    path.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_survive_both_ways() {
        let fields = json!({"f:metadata": {"f:labels": {".": {}, "f:a": {}}}, "f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:image": {}}}}});
        assert_eq!(FieldSet::from_fields(&fields).to_fields(), fields);
    }
}
