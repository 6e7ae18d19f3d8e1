//! Edits that reach the new executors of a running application, without another run: labels and annotations, and with
//! `--feature-gates=PartialRestart=true` also where executors run.
//!
//! It works where the operator creates the executors. A grant never changes, and drivers are not trusted, so the operator
//! plans the grant again from the application and takes from it only the fields below. Executors that exist are left alone.
//! Spark's and the operator's own labels always stay as they were granted.

use std::borrow::Cow;

use firesteel_api::executors::ExecutorGrantSpec;
use firesteel_api::names;
use firesteel_api::spark_application::SparkApplicationSpec;
use firesteel_spark::executor::Strategy;
use k8s_openapi::api::core::v1::PodTemplateSpec;

use crate::conf::Subject;
use crate::identity;
use crate::run::{self, Attempt, RunSettings};

/// Prefixes of labels that only Spark and the operator set.
const RESERVED: [&str; 3] = ["spark-", "sparkoperator.k8s.io/", "firesteel.dev/"];

/// Whether the operator creates an application's executors.
pub fn allocates(spec: &SparkApplicationSpec) -> bool {
    Strategy::of(&spec.spark_conf).is_some()
}

/// A specification without the fields whose edits do not need another run.
pub fn without(spec: &SparkApplicationSpec, partial_restart: bool) -> Cow<'_, SparkApplicationSpec> {
    if !allocates(spec) {
        return Cow::Borrowed(spec);
    }
    let mut rest = spec.clone();
    let executor = &mut rest.executor;
    executor.pod.labels.clear();
    executor.pod.annotations.clear();
    if partial_restart {
        executor.priority_class_name = None;
        executor.pod.node_selector.clear();
        executor.pod.tolerations.clear();
        executor.pod.affinity = None;
        executor.pod.scheduler_name = None;
    }
    Cow::Owned(rest)
}

/// The template for new executors of a grant, as its application describes them now. `None` if the application needs another
/// run for its specification, or cannot be planned: then nothing changes.
pub fn template(
    app: &Subject<'_>,
    attempt: Attempt,
    granted: &ExecutorGrantSpec,
    granted_hash: &str,
    settings: &RunSettings,
) -> Option<PodTemplateSpec> {
    if identity::fingerprint(app.spec, settings.partial_restart) != granted_hash {
        return None;
    }
    let planned = run::plan(app, attempt, settings).ok()?.grant?.spec.template;
    Some(merge(&granted.template, planned, settings.partial_restart))
}

/// Takes from the new template what may change.
fn merge(granted: &PodTemplateSpec, planned: PodTemplateSpec, partial_restart: bool) -> PodTemplateSpec {
    let mut out = granted.clone();
    let reserved = |name: &String| RESERVED.iter().any(|prefix| name.starts_with(prefix));
    let (meta, new) = (out.metadata.get_or_insert_default(), planned.metadata.unwrap_or_default());
    let labels = meta.labels.get_or_insert_default();
    labels.retain(|name, _| reserved(name));
    labels.extend(new.labels.unwrap_or_default().into_iter().filter(|(name, _)| !reserved(name)));
    let kept = |name: &String| reserved(name) || name == names::ANNOTATION_DEFAULT_CONTAINER;
    let mut annotations = meta.annotations.clone().unwrap_or_default();
    annotations.retain(|name, _| kept(name));
    annotations.extend(new.annotations.unwrap_or_default().into_iter().filter(|(name, _)| !kept(name)));
    // None stays none: templates are compared.
    if meta.annotations.is_some() || !annotations.is_empty() {
        meta.annotations = Some(annotations);
    }
    if partial_restart && let (Some(spec), Some(new)) = (&mut out.spec, planned.spec) {
        spec.priority_class_name = new.priority_class_name;
        spec.node_selector = new.node_selector;
        spec.tolerations = new.tolerations;
        spec.affinity = new.affinity;
        spec.scheduler_name = new.scheduler_name;
    }
    out
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use k8s_openapi::jiff::Timestamp;
    use serde_json::{Value, json};

    fn spec(patch: &Value) -> SparkApplicationSpec {
        let mut spec = json!({
            "type": "Scala", "sparkVersion": "4.1.4", "image": "apache/spark:4.1.4", "mainClass": "a.B",
            "mainApplicationFile": "local:///a.jar", "driver": {}, "executor": {"labels": {"team": "a"}},
            "sparkConf": {"spark.kubernetes.allocation.pods.allocator": "firesteel"},
        });
        for (name, value) in patch.as_object().unwrap() {
            spec[name] = value.clone();
        }
        firesteel_api::defaults::defaulted(&serde_json::from_value(spec).unwrap())
    }

    const ATTEMPT: Attempt =
        Attempt { number: 1, generation: 1, created: Timestamp::UNIX_EPOCH, now: Timestamp::UNIX_EPOCH, nonce: 0 };

    /// The template of new executors after an edit of an application that has the label `cost: old`.
    fn after(edit: &Value, labels: &Value, settings: &RunSettings) -> Option<PodTemplateSpec> {
        let labels: BTreeMap<String, String> = serde_json::from_value(labels.clone()).unwrap();
        let before = BTreeMap::from([("cost".to_owned(), "old".to_owned())]);
        let (old, new) = (spec(&json!({})), spec(edit));
        let subject = Subject { name: "pi", namespace: "team", uid: "u", labels: &before, spec: &old };
        let run = run::plan(&subject, ATTEMPT, settings).unwrap();
        let granted = run.grant.unwrap().spec;
        assert_eq!(granted.template.metadata.as_ref().unwrap().labels.as_ref().unwrap()["cost"], "old");
        let now = Subject { labels: &labels, spec: &new, ..subject };
        template(&now, ATTEMPT, &granted, &run.spec_hash, settings)
    }

    fn labels_of(template: &PodTemplateSpec) -> &BTreeMap<String, String> {
        template.metadata.as_ref().unwrap().labels.as_ref().unwrap()
    }

    #[test]
    fn new_executors_have_the_labels_that_the_application_has_now() {
        let executor = json!({"executor": {"labels": {"stage": "two"}, "annotations": {"note": "n"}}});
        let template = after(&executor, &json!({"cost": "new", "more": "x"}), &RunSettings::default()).unwrap();
        let labels = labels_of(&template);
        assert_eq!((labels["cost"].as_str(), labels["more"].as_str(), labels["stage"].as_str()), ("new", "x", "two"));
        assert!(!labels.contains_key("team"), "it was removed: {labels:?}");
        assert_eq!(labels[names::LABEL_APP_NAME], "pi");
        assert_eq!(template.metadata.unwrap().annotations.unwrap()["note"], "n");
    }

    #[test]
    fn without_an_edit_the_template_stays_as_granted() {
        let settings = RunSettings { partial_restart: true, ..RunSettings::default() };
        let old = spec(&json!({}));
        let labels = BTreeMap::new();
        let subject = Subject { name: "pi", namespace: "team", uid: "u", labels: &labels, spec: &old };
        let run = run::plan(&subject, ATTEMPT, &settings).unwrap();
        let granted = run.grant.unwrap().spec;
        let later = Attempt { generation: 7, now: Timestamp::MAX, nonce: 9, ..ATTEMPT };
        assert_eq!(template(&subject, later, &granted, &run.spec_hash, &settings), Some(granted.template.clone()));
    }

    #[test]
    fn labels_of_spark_and_of_the_operator_cannot_be_taken() {
        let mine =
            json!({names::LABEL_APP_NAME: "other", names::LABEL_SUBMISSION_ID: "x", "firesteel.dev/allocator": "none"});
        let template = after(&json!({"executor": {"labels": mine}}), &mine, &RunSettings::default());
        let template = template.unwrap();
        let labels = labels_of(&template);
        assert_eq!(labels[names::LABEL_APP_NAME], "pi");
        assert_ne!(labels[names::LABEL_SUBMISSION_ID], "x");
        assert_ne!(labels.get("firesteel.dev/allocator").map(String::as_str), Some("none"));
        // Even a template that was planned with other values changes none of them.
        let granted = PodTemplateSpec::default();
        let planned: PodTemplateSpec = serde_json::from_value(
            json!({"metadata": {"labels": {"spark-role": "driver", "spark-app-selector": "x", "spark-exec-id": "1", "a": "b"}}}),
        )
        .unwrap();
        let merged = merge(&granted, planned, false);
        assert_eq!(labels_of(&merged).keys().collect::<Vec<_>>(), ["a"]);
    }

    #[test]
    fn where_executors_run_follows_with_the_gate_only() {
        let edit = json!({"executor": {"labels": {"team": "a"}, "nodeSelector": {"disk": "ssd"}, "priorityClassName": "high",
            "schedulerName": "mine", "tolerations": [{"key": "spot", "operator": "Exists"}],
            "affinity": {"nodeAffinity": {}}}});
        let labels = json!({"cost": "old"});
        assert_eq!(after(&edit, &labels, &RunSettings::default()), None, "it needs another run");
        let settings = RunSettings { partial_restart: true, ..RunSettings::default() };
        let spec = after(&edit, &labels, &settings).unwrap().spec.unwrap();
        assert_eq!(spec.node_selector.unwrap()["disk"], "ssd");
        assert_eq!((spec.priority_class_name.as_deref(), spec.scheduler_name.as_deref()), (Some("high"), Some("mine")));
        assert!(spec.tolerations.unwrap().iter().any(|t| t.key.as_deref() == Some("spot")));
        assert!(spec.affinity.is_some());
    }

    #[test]
    fn other_edits_need_another_run() {
        for settings in [false, true].map(|partial_restart| RunSettings { partial_restart, ..RunSettings::default() }) {
            let of = |patch: &Value| identity::fingerprint(&spec(patch), settings.partial_restart);
            assert_ne!(of(&json!({})), of(&json!({"arguments": ["1"]})));
            assert_eq!(of(&json!({})), of(&json!({"executor": {"labels": {"x": "y"}}})));
            let placed = of(&json!({"executor": {"nodeSelector": {"a": "b"}}}));
            assert_eq!(of(&json!({})) == placed, settings.partial_restart);
            // Spark's own allocators read the template once.
            let own = |executor: Value| of(&json!({"sparkConf": {}, "executor": executor}));
            assert_ne!(own(json!({})), own(json!({"labels": {"x": "y"}})));
        }
    }
}
