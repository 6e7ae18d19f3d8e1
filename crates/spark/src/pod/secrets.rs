//! Existing Secrets as files and as environment variables.

use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, SecretKeySelector, SecretVolumeSource, Volume};

use super::{Draft, PlanError};

/// `spark.kubernetes.{driver,executor}.secrets.<secret>=<path>`: mounts the Secret's keys as files below the path.
pub(crate) fn mount(draft: &mut Draft<'_>) -> Result<(), PlanError> {
    for (secret, path) in draft.conf.with_prefix(draft.role.secrets_prefix) {
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

/// `spark.kubernetes.{driver,executor}.secretKeyRef.<VARIABLE>=<secret>:<key>`.
pub(crate) fn expose(draft: &mut Draft<'_>) -> Result<(), PlanError> {
    for (variable, reference) in draft.conf.with_prefix(draft.role.secret_key_ref_prefix) {
        let [secret, item] = reference.split(':').collect::<Vec<_>>()[..] else {
            return Err(PlanError::Value {
                key: format!("{}{variable}", draft.role.secret_key_ref_prefix),
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
