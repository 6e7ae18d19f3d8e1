//! Labels of metrics: those of `--metrics-labels`, their values, and how many combinations there may be.
//!
//! Values come from labels that users write, so their number has a limit. Beyond it, values become `other`.

use std::collections::BTreeMap;

use super::families::Scope;

/// The value of a label that an object does not have, as with the existing operator.
pub(super) const UNKNOWN: &str = "Unknown";
/// The value of a label once there are too many combinations.
pub(super) const OTHER: &str = "other";
const NAMESPACE: &str = "namespace";

/// The labels of `--metrics-labels`, as they appear in metrics.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelNames(Vec<String>);

impl LabelNames {
    /// Names of Kubernetes labels become names of metric labels: every other character than a letter, digit or underscore
    /// becomes an underscore. The error says which name cannot be used.
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let mut valid: Vec<String> = Vec::new();
        for given in names.into_iter().map(str::trim).filter(|name| !name.is_empty()) {
            let name = valid_name(given);
            if matches!(name.as_str(), "le" | "quantile") || name.starts_with("__") {
                return Err(format!("`{given}` is reserved in metrics; use another label"));
            }
            if valid.contains(&name) {
                return Err(format!("`{given}` is `{name}` in metrics, and that is given twice; remove one"));
            }
            valid.push(name);
        }
        Ok(LabelNames(valid))
    }

    pub(super) fn names(&self) -> &[String] {
        &self.0
    }

    /// The values that an object's labels give; `None` where it has no such label.
    pub(super) fn own(&self, labels: &BTreeMap<String, String>) -> Vec<Option<String>> {
        let value = |name: &String| labels.iter().find(|(key, _)| valid_name(key) == *name).map(|(_, v)| v.clone());
        self.0.iter().map(value).collect()
    }

    /// Complete values: the object's own, else those of its application, else the namespace or `Unknown`.
    pub(super) fn values(
        &self,
        namespace: &str,
        own: &[Option<String>],
        application: &[Option<String>],
    ) -> Vec<String> {
        let values = self.0.iter().enumerate().map(|(i, name)| {
            let given = own.get(i).cloned().flatten().or_else(|| application.get(i).cloned().flatten());
            given.unwrap_or_else(|| if name == NAMESPACE { namespace.to_owned() } else { UNKNOWN.to_owned() })
        });
        values.collect()
    }

    /// The same values once there are too many: only a namespace keeps its own.
    pub(super) fn others(&self, values: &[String]) -> Vec<String> {
        let kept = |(name, value): (&String, &String)| if name == NAMESPACE { value.clone() } else { OTHER.to_owned() };
        self.0.iter().zip(values).map(kept).collect()
    }
}

fn valid_name(name: &str) -> String {
    let mut valid: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if valid.starts_with(|c: char| c.is_ascii_digit()) {
        valid.insert(0, '_');
    }
    valid
}

/// Which object or process a series describes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LabelSet {
    Process,
    Namespace(String),
    Chosen(Vec<String>),
    Application(String, Vec<String>),
}

impl LabelSet {
    pub(super) fn new(scope: Scope, namespace: &str, values: &[String]) -> Self {
        match scope {
            Scope::Process => LabelSet::Process,
            Scope::Namespace => LabelSet::Namespace(namespace.to_owned()),
            Scope::Chosen => LabelSet::Chosen(values.to_vec()),
            Scope::Application => LabelSet::Application(namespace.to_owned(), values.to_vec()),
        }
    }

    /// Whether it exists however many objects there are.
    pub(super) fn is_fixed(&self) -> bool {
        match self {
            LabelSet::Process => true,
            LabelSet::Chosen(values) => values.is_empty(),
            LabelSet::Namespace(_) | LabelSet::Application(..) => false,
        }
    }

    /// What it is counted as once there are too many.
    pub(super) fn other(&self, names: &LabelNames) -> LabelSet {
        match self {
            LabelSet::Process => LabelSet::Process,
            LabelSet::Namespace(_) => LabelSet::Namespace(OTHER.to_owned()),
            LabelSet::Chosen(values) => LabelSet::Chosen(names.others(values)),
            LabelSet::Application(namespace, values) => LabelSet::Application(namespace.clone(), names.others(values)),
        }
    }

    /// The same for every namespace.
    pub(super) fn without_namespace(self) -> LabelSet {
        let others = |values: Vec<String>| values.into_iter().map(|_| OTHER.to_owned()).collect();
        match self {
            LabelSet::Process => LabelSet::Process,
            LabelSet::Namespace(_) => LabelSet::Namespace(OTHER.to_owned()),
            LabelSet::Chosen(values) => LabelSet::Chosen(others(values)),
            LabelSet::Application(_, values) => LabelSet::Application(OTHER.to_owned(), others(values)),
        }
    }

    /// `name="value"` pairs. A chosen label that a metric has as its own is written with the prefix `label_`.
    pub(super) fn text(&self, names: &LabelNames, own: &[&str]) -> String {
        let mut pairs = Vec::new();
        let (namespace, values): (_, &[String]) = match self {
            LabelSet::Process => (None, &[]),
            LabelSet::Namespace(namespace) => (Some(namespace), &[]),
            LabelSet::Chosen(values) => (None, values),
            LabelSet::Application(namespace, values) => (Some(namespace), values),
        };
        pairs.extend(namespace.map(|namespace| pair(NAMESPACE, namespace)));
        for (name, value) in names.names().iter().zip(values) {
            match name.as_str() {
                NAMESPACE if namespace.is_some() => {}
                name if own.contains(&name) => pairs.push(pair(&format!("label_{name}"), value)),
                name => pairs.push(pair(name, value)),
            }
        }
        pairs.join(",")
    }
}

/// `name="value"`, escaped.
pub(super) fn pair(name: &str, value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("{name}=\"{value}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn values_come_from_the_object_then_its_application_then_its_namespace() {
        let names = LabelNames::new(["app-type", "app.kubernetes.io/team", "namespace", "cost"]).unwrap();
        assert_eq!(names.names(), ["app_type", "app_kubernetes_io_team", "namespace", "cost"]);
        let own = names.own(&labels(&[("app-type", "batch")]));
        let application = names.own(&labels(&[("app_type", "other"), ("app.kubernetes.io/team", "a")]));
        assert_eq!(names.values("n", &own, &application), ["batch", "a", "n", "Unknown"]);
    }

    #[test]
    fn names_that_cannot_be_used_are_refused() {
        for (names, problem) in [
            (vec!["le"], "`le` is reserved in metrics; use another label"),
            (vec!["a-b", "a_b"], "`a_b` is `a_b` in metrics, and that is given twice; remove one"),
        ] {
            assert_eq!(LabelNames::new(names).unwrap_err(), problem);
        }
        assert_eq!(LabelNames::new(["", " "]).unwrap(), LabelNames::default());
        assert_eq!(LabelNames::new(["1st"]).unwrap().names(), ["_1st"]);
    }

    #[test]
    fn sets_are_written_with_each_name_once() {
        let names = LabelNames::new(["namespace", "state", "team"]).unwrap();
        let values = ["n".to_owned(), "x".to_owned(), "a\"b\\c\nd".to_owned()];
        let text = |scope| LabelSet::new(scope, "n", &values).text(&names, &["state"]);
        assert_eq!(text(Scope::Application), "namespace=\"n\",label_state=\"x\",team=\"a\\\"b\\\\c\\nd\"");
        assert_eq!(text(Scope::Chosen), "namespace=\"n\",label_state=\"x\",team=\"a\\\"b\\\\c\\nd\"");
        assert_eq!(text(Scope::Namespace), "namespace=\"n\"");
        assert_eq!(text(Scope::Process), "");
    }
}
