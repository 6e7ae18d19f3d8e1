//! Specifications as they were written: what of them can be read, and which fields cannot.
//!
//! The definitions leave the schema of embedded objects open, so a manifest with a number for an image is stored; here the
//! field is named. What is left of an application is enough to follow a run, not to start one.

use firesteel_api::pod_spec::SparkPodSpec;
use firesteel_api::validate::Problem;
use firesteel_api::{ScheduledSparkApplicationSpec, SparkApplicationSpec, SparkConnectSpec};
use serde_json::Value;
use serde_path_to_error::{Path, Segment};

/// How many invalid fields are dropped, one at a time, before giving up on the rest.
const MOST_FAULTS: usize = 100;

/// A schedule, or the fields that cannot be read.
pub fn schedule(spec: &Value) -> Result<ScheduledSparkApplicationSpec, Vec<Problem>> {
    serde_path_to_error::deserialize(spec).map_err(|error| {
        let in_template = application(&spec["template"]).1.into_iter();
        let mut faults: Vec<Problem> = in_template
            .map(|fault| Problem { path: fault.path.replacen("spec", "spec.template", 1), ..fault })
            .collect();
        if faults.is_empty() {
            faults.push(problem(&error));
        }
        faults
    })
}

/// A Connect server, or the first field that cannot be read.
pub fn connect(spec: &Value) -> Result<SparkConnectSpec, Problem> {
    serde_path_to_error::deserialize(spec).map_err(|error| problem(&error))
}

fn problem(error: &serde_path_to_error::Error<serde_json::Error>) -> Problem {
    Problem { path: path_of(error.path()), message: error.inner().to_string() }
}

fn path_of(path: &Path) -> String {
    match path.to_string().as_str() {
        "." => "spec".to_owned(),
        path => format!("spec.{path}"),
    }
}

/// The parts of a specification that parse, and a message for each field that does not.
pub fn application(spec: &Value) -> (SparkApplicationSpec, Vec<Problem>) {
    let mut rest = spec.clone();
    let mut faults = Vec::new();
    for _ in 0..MOST_FAULTS {
        let error = match serde_path_to_error::deserialize::<_, SparkApplicationSpec>(&rest) {
            Ok(spec) => return (spec, faults),
            Err(error) => error,
        };
        let mut path = steps(error.path());
        let (mut field, mut message) = (path_of(error.path()), error.inner().to_string());
        // Fields shared by both roles are parsed together; look inside for the path.
        for role in ["driver", "executor"] {
            if field.strip_prefix("spec.") == Some(role)
                && let Err(inner) = serde_path_to_error::deserialize::<_, SparkPodSpec>(&rest[role])
            {
                field = format!("spec.{role}.{}", inner.path());
                message = inner.inner().to_string();
                path.extend(steps(inner.path()));
            }
        }
        faults.push(Problem { path: field, message });
        if !leave_out(&mut rest, &path) {
            break;
        }
    }
    (SparkApplicationSpec::default(), faults)
}

/// A step on the way to a field.
enum Step {
    Key(String),
    Index(usize),
}

fn steps(path: &Path) -> Vec<Step> {
    path.iter()
        .map_while(|segment| match segment {
            Segment::Map { key } => Some(Step::Key(key.clone())),
            Segment::Seq { index } => Some(Step::Index(*index)),
            Segment::Enum { .. } | Segment::Unknown => None,
        })
        .collect()
}

/// Removes the value at the path. False if there is none.
fn leave_out(value: &mut Value, path: &[Step]) -> bool {
    match (path, value) {
        ([Step::Key(key)], Value::Object(fields)) => fields.remove(key).is_some(),
        ([Step::Index(index)], Value::Array(items)) if *index < items.len() => {
            items.remove(*index);
            true
        }
        ([Step::Key(key), rest @ ..], Value::Object(fields)) if !rest.is_empty() => {
            fields.get_mut(key).is_some_and(|inner| leave_out(inner, rest))
        }
        ([Step::Index(index), rest @ ..], Value::Array(items)) if !rest.is_empty() => {
            items.get_mut(*index).is_some_and(|inner| leave_out(inner, rest))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_sentence_names_the_field() {
        let first = |spec: Value| application(&spec).1.into_iter().next().map(|fault| fault.to_string());
        assert_eq!(first(json!({"type": "Scala"})), None);
        let text = first(json!({"volumes": [{"name": 3}]})).unwrap();
        assert!(text.starts_with("spec.volumes[0].name: "), "{text}");
        let text = first(json!({"driver": {"env": [{"name": "A", "value": 3}]}})).unwrap();
        assert!(text.starts_with("spec.driver.env[0].value: "), "{text}");
    }

    #[test]
    fn fields_of_templates_are_named_in_every_kind() {
        let template = json!({"spec": {"containers": [{"name": "a", "image": 3}]}});
        let app = json!({"driver": {"template": template}});
        let fault = application(&app).1.remove(0);
        assert_eq!(fault.path, "spec.driver.template.spec.containers[0].image");
        let faults = schedule(&json!({"schedule": "@daily", "template": app})).unwrap_err();
        assert_eq!(faults[0].path, "spec.template.driver.template.spec.containers[0].image");
        assert_eq!(schedule(&json!({"schedule": 3, "template": {}})).unwrap_err()[0].path, "spec.schedule");
        let fault = connect(&json!({"sparkVersion": "4.1.4", "server": {"template": template}})).unwrap_err();
        assert_eq!(fault.path, "spec.server.template.spec.containers[0].image");
    }

    #[test]
    fn everything_else_is_read() {
        let (spec, faults) = application(&json!({
            "type": "Scala", "restartPolicy": {"type": "OnFailure", "onFailureRetries": 3}, "timeToLiveSeconds": 7,
            "volumes": [{"name": "good"}, {"name": 3}, {"name": "fine"}],
            "driver": {"podName": "other", "env": [{"name": "A", "value": 3}, {"name": "B", "value": "4"}]},
            "executor": {"instances": 2, "tolerations": {"none": true}},
        }));
        assert_eq!(faults.len(), 3, "{faults:?}");
        assert_eq!(spec.restart_policy.unwrap().on_failure_retries, Some(3));
        assert_eq!(spec.time_to_live_seconds, Some(7));
        assert_eq!(spec.volumes.iter().map(|v| v.name.as_str()).collect::<Vec<_>>(), ["good", "", "fine"]);
        assert_eq!((spec.driver.pod_name.as_deref(), spec.driver.pod.env.len()), (Some("other"), 2));
        assert_eq!(spec.executor.instances, Some(2));
    }

    #[test]
    fn a_value_that_is_not_a_specification_reads_as_an_empty_one() {
        for spec in [json!(null), json!("text"), json!([1])] {
            let (read, faults) = application(&spec);
            assert_eq!((read, faults.len()), (SparkApplicationSpec::default(), 1));
        }
    }
}
