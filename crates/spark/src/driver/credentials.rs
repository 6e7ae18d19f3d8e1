//! The driver's credentials: its service account, or the submitter's credentials in a Secret.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Secret, SecretVolumeSource, Volume};

use super::{Draft, Object, PlanError};
use crate::input::Input;
use crate::names::{key, path, volume};

const REDACTED: &str = "<present_but_redacted>";

/// Settings that name a file: suffix of the key, key in the Secret, and what the file is called.
const FILES: [(&str, &str, &str); 3] = [
    ("caCertFile", "ca-cert", "CA certificate"),
    ("clientKeyFile", "client-key", "client key"),
    ("clientCertFile", "client-cert", "client certificate"),
];
const TOKEN: (&str, &str) = ("oauthToken", "oauth-token");

pub(super) fn apply(draft: &mut Draft<'_>) -> Result<(), PlanError> {
    let mut data = Vec::new();
    for (suffix, item, what) in FILES {
        let key = format!("{}{suffix}", key::DRIVER_AUTH_PREFIX);
        let Some(file) = draft.conf.get(&key) else { continue };
        let bytes = draft.context.files.read(file).map_err(|e| PlanError::File {
            input: Input::key(&key).into(),
            path: file.to_owned(),
            problem: e.to_string(),
            remedy: format!("give the path of the driver's {what}"),
        })?;
        data.push((suffix, item, bytes));
    }
    if let Some(token) = draft.conf.get(&format!("{}{}", key::DRIVER_AUTH_PREFIX, TOKEN.0)) {
        data.push(("oauthTokenFile", TOKEN.1, token.as_bytes().to_vec()));
    }

    let tokens: Vec<String> = draft.conf.iter().map(|(k, _)| k.clone()).filter(|k| k.ends_with(TOKEN.0)).collect();
    for key in tokens {
        draft.set_property(&key, REDACTED);
    }
    if data.is_empty() {
        if let Some(account) = draft.conf.get(key::DRIVER_SERVICE_ACCOUNT) {
            let spec = draft.spec();
            spec.service_account = Some(account.to_owned());
            spec.service_account_name = Some(account.to_owned());
        }
        return Ok(());
    }

    let name = format!("{}-kubernetes-credentials", draft.names.prefix);
    draft.add_volume(Volume {
        name: volume::CREDENTIALS.to_owned(),
        secret: Some(SecretVolumeSource { secret_name: Some(name.clone()), ..SecretVolumeSource::default() }),
        ..Volume::default()
    });
    draft.add_mount(volume::CREDENTIALS, path::CREDENTIALS);
    for (suffix, item, _) in &data {
        let key = format!("{}{suffix}", key::DRIVER_MOUNTED_AUTH_PREFIX);
        // A mount path set by the user is kept.
        if draft.conf.get(&key).is_none() {
            draft.set_property(&key, format!("{}/{item}", path::CREDENTIALS));
        }
    }
    draft.objects.push(Object::Secret(Secret {
        metadata: draft.metadata(&name),
        immutable: Some(true),
        data: Some(data.into_iter().map(|(_, item, bytes)| (item.to_owned(), ByteString(bytes))).collect()),
        type_: Some("Opaque".to_owned()),
        ..Secret::default()
    }));
    Ok(())
}
