//! Existing Secrets as files and as environment variables.

use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, SecretKeySelector, SecretVolumeSource, Volume};

use super::{Draft, PlanError};
use crate::names::key;

/// `spark.kubernetes.driver.secrets.<secret>=<path>`: the Secret's keys as files below the path.
pub(super) fn mount(draft: &mut Draft<'_>) -> Result<(), PlanError> {
    for (secret, path) in draft.conf.with_prefix(key::DRIVER_SECRETS_PREFIX) {
        let name = format!("{secret}-volume");
        draft.add_mount(&name, &path);
        draft.add_volume(Volume {
            name,
            secret: Some(SecretVolumeSource { secret_name: Some(secret), ..SecretVolumeSource::default() }),
            ..Volume::default()
        });
    }
    Ok(())
}

/// `spark.kubernetes.driver.secretKeyRef.<VARIABLE>=<secret>:<key>`.
pub(super) fn expose(draft: &mut Draft<'_>) -> Result<(), PlanError> {
    for (variable, reference) in draft.conf.with_prefix(key::DRIVER_SECRET_KEY_REF_PREFIX) {
        let [secret, item] = reference.split(':').collect::<Vec<_>>()[..] else {
            return Err(PlanError::Value {
                key: format!("{}{variable}", key::DRIVER_SECRET_KEY_REF_PREFIX),
                value: reference.clone(),
                problem: "not a reference to one key of a Secret".to_owned(),
                remedy: "write <secret>:<key>".to_owned(),
            });
        };
        let selector = SecretKeySelector { name: secret.to_owned(), key: item.to_owned(), optional: None };
        draft.container.env.get_or_insert_default().push(EnvVar {
            name: variable,
            value_from: Some(EnvVarSource { secret_key_ref: Some(selector), ..EnvVarSource::default() }),
            ..EnvVar::default()
        });
    }
    Ok(())
}
