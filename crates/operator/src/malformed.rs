//! Applications that do not parse: which fields are wrong, and the rest of the specification. The rest is enough to
//! follow a run, not to start one.

use firesteel_api::pod_spec::SparkPodSpec;
use firesteel_api::{SparkApplication, SparkApplicationSpec};
use firesteel_core::identity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{ApiResource, DynamicObject};
use serde::Deserialize;
use serde_json::Value;
use serde_path_to_error::{Path, Segment};

use crate::context::Context;
use crate::error::{During, Error};

/// How many invalid fields are dropped, one at a time, before giving up on the rest.
const MOST_FAULTS: usize = 100;
/// How many faults one message names.
const NAMED_FAULTS: usize = 5;

/// A specification that does not parse.
#[derive(Debug, Clone)]
pub(crate) struct Unreadable {
    /// A message that names the field.
    pub problem: String,
    /// Unique to this specification.
    pub spec_hash: String,
}

/// Reads as much of an application as possible. `None` if it is gone or parses by now.
pub(crate) async fn read(
    ctx: &Context,
    meta: &ObjectMeta,
    error: &str,
) -> Result<Option<(SparkApplication, Unreadable)>, Error> {
    let namespace = meta.namespace.clone().unwrap_or_default();
    let name = meta.name.clone().unwrap_or_default();
    let resource = ApiResource::erase::<SparkApplication>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(ctx.client.clone(), &namespace, &resource);
    let Some(object) = api.get_opt(&name).await.during(|| "read the application".to_owned())? else { return Ok(None) };
    let (spec, faults) = legible(&object.data["spec"]);
    let status = Option::deserialize(&object.data["status"]);
    if faults.is_empty() && status.is_ok() {
        return Ok(None);
    }
    let problem = match faults.is_empty() {
        true => error.to_owned(),
        false => faults[..faults.len().min(NAMED_FAULTS)].join("; "),
    };
    tracing::debug!(problem, "this application does not parse");
    let unreadable = Unreadable { problem, spec_hash: identity::digest(&object.data["spec"]) };
    let app = SparkApplication { metadata: object.metadata, spec, status: status.unwrap_or_default() };
    Ok(Some((app, unreadable)))
}

/// The parts of a specification that parse, and a message for each field that does not.
pub(crate) fn legible(spec: &Value) -> (SparkApplicationSpec, Vec<String>) {
    let mut rest = spec.clone();
    let mut faults = Vec::new();
    for _ in 0..MOST_FAULTS {
        let error = match serde_path_to_error::deserialize::<_, SparkApplicationSpec>(&rest) {
            Ok(spec) => return (spec, faults),
            Err(error) => error,
        };
        let mut path = steps(error.path());
        let (mut words, mut problem) = (error.path().to_string(), error.inner().to_string());
        // Fields shared by both roles are parsed together; look inside for the path.
        for role in ["driver", "executor"] {
            if words == role
                && let Err(inner) = serde_path_to_error::deserialize::<_, SparkPodSpec>(&rest[role])
            {
                words = format!("{role}.{}", inner.path());
                problem = inner.inner().to_string();
                path.extend(steps(inner.path()));
            }
        }
        faults.push(format!("spec.{words}: {problem}"));
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
        let first = |spec: Value| legible(&spec).1.into_iter().next();
        assert_eq!(first(json!({"type": "Scala"})), None);
        let text = first(json!({"volumes": [{"name": 3}]})).unwrap();
        assert!(text.starts_with("spec.volumes[0].name: "), "{text}");
        let text = first(json!({"driver": {"env": [{"name": "A", "value": 3}]}})).unwrap();
        assert!(text.starts_with("spec.driver.env[0].value: "), "{text}");
    }

    #[test]
    fn everything_else_is_read() {
        let (spec, faults) = legible(&json!({
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
            let (read, faults) = legible(&spec);
            assert_eq!((read, faults.len()), (SparkApplicationSpec::default(), 1));
        }
    }
}
