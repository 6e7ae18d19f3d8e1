//! Applications that cannot be read: they fail with a sentence that names the field, once, and disturb nobody else.

use firesteel_api::pod_spec::SparkPodSpec;
use firesteel_api::{SparkApplication, SparkApplicationSpec};
use firesteel_core::diagnosis::submission_failure;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{ApiResource, DynamicObject};
use serde_json::{Value, json};

use crate::context::Context;
use crate::error::{During, Error};
use crate::writes;

/// Marks a status that was written without a specification, so that any readable one differs from it.
const UNREADABLE: &str = "unreadable";

/// Says what is wrong with an application in its own status.
pub async fn report(ctx: &Context, meta: &ObjectMeta, error: &str) -> Result<(), Error> {
    let namespace = meta.namespace.clone().unwrap_or_default();
    let name = meta.name.clone().unwrap_or_default();
    let resource = ApiResource::erase::<SparkApplication>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(ctx.client.clone(), &namespace, &resource);
    let Some(object) = api.get_opt(&name).await.during(|| "read the application".to_owned())? else { return Ok(()) };
    let status = &object.data["status"];
    let known = status["observedGeneration"].as_i64() == object.metadata.generation && status["specHash"] == UNREADABLE;
    if known {
        return Ok(());
    }
    let sentence = sentence(&object.data["spec"]).unwrap_or_else(|| error.to_owned());
    tracing::warn!(sentence, "this application cannot be read");
    let now = Time(Timestamp::now());
    let patch = json!({
        "metadata": {"resourceVersion": object.metadata.resource_version},
        "status": {
            "applicationState": {"state": "FAILED", "errorMessage": submission_failure(&sentence)},
            "terminationTime": now,
            "observedGeneration": object.metadata.generation,
            "specHash": UNREADABLE,
        },
    });
    writes::patch_status(&ctx.client, &namespace, &name, &patch).await
}

/// What is wrong with a specification, with the path of the field. `None` if nothing is.
pub fn sentence(spec: &Value) -> Option<String> {
    let error = match serde_path_to_error::deserialize::<_, SparkApplicationSpec>(spec) {
        Ok(_) => return None,
        Err(error) => error,
    };
    let mut path = error.path().to_string();
    let mut problem = error.inner().to_string();
    // Fields that both roles share are read in one go; look inside for the path.
    for role in ["driver", "executor"] {
        if path == role
            && let Err(inner) = serde_path_to_error::deserialize::<_, SparkPodSpec>(&spec[role])
        {
            path = format!("{role}.{}", inner.path());
            problem = inner.inner().to_string();
        }
    }
    Some(format!("spec.{path}: {problem}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sentence_names_the_field() {
        assert_eq!(sentence(&json!({"type": "Scala"})), None);
        let text = sentence(&json!({"volumes": [{"name": 3}]})).unwrap();
        assert!(text.starts_with("spec.volumes[0].name: "), "{text}");
        let text = sentence(&json!({"driver": {"env": [{"name": "A", "value": 3}]}})).unwrap();
        assert!(text.starts_with("spec.driver.env[0].value: "), "{text}");
    }
}
