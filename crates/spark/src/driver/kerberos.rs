//! Kerberos: `krb5.conf`, and a keytab or an existing Secret of delegation tokens.
//!
//! Delegation tokens are not obtained here: that requires Hadoop's clients.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{
    ConfigMap, ConfigMapVolumeSource, KeyToPath, Secret, SecretVolumeSource, Volume, VolumeMount,
};

use super::{Draft, Object, PlanError};
use crate::input::Input;
use crate::names::{env, key, path, volume};

const NO_TOKENS: &str = "the Hadoop configuration asks for Kerberos, but Firesteel does not obtain delegation tokens: set --principal and \
                         --keytab, or name a Secret that holds tokens with spark.kubernetes.kerberos.tokenSecret.name and .itemKey";

pub(super) fn apply(draft: &mut Draft<'_>) -> Result<(), PlanError> {
    both_or_neither(draft, key::KEYTAB, key::PRINCIPAL)?;
    both_or_neither(draft, key::TOKEN_SECRET_NAME, key::TOKEN_SECRET_ITEM)?;
    krb5(draft)?;
    match (draft.conf.get(key::KEYTAB), draft.conf.get(key::TOKEN_SECRET_NAME)) {
        // A keytab in the image needs nothing; the submitter's goes into a Secret.
        (Some(keytab), tokens) if keytab.starts_with("local:") => {
            tokens.map_or(Ok(()), |name| mount_tokens(draft, name))
        }
        (Some(keytab), _) => ship_keytab(draft, keytab),
        (None, Some(name)) => mount_tokens(draft, name),
        (None, None) => {
            if asks_for_kerberos(draft) {
                draft.warnings.push(NO_TOKENS.to_owned());
            }
            Ok(())
        }
    }
}

/// Whether the submitter's Hadoop configuration asks for Kerberos; Spark would then obtain tokens with the user's ticket.
fn asks_for_kerberos(draft: &Draft<'_>) -> bool {
    let said = match draft.conf.get("spark.hadoop.hadoop.security.authentication") {
        Some(value) => Some(value.to_owned()),
        None => draft.context.env.get(env::HADOOP_CONF_DIR).filter(|directory| !directory.is_empty()).and_then(
            |directory| {
                let file =
                    draft.context.files.read(&format!("{}/core-site.xml", directory.trim_end_matches('/'))).ok()?;
                authentication(&String::from_utf8_lossy(&file)).map(str::to_owned)
            },
        ),
    };
    said.is_some_and(|value| value.trim().eq_ignore_ascii_case("kerberos"))
}

/// The value of `hadoop.security.authentication` in a `core-site.xml`.
fn authentication(xml: &str) -> Option<&str> {
    let (_, rest) = xml.split_once("<name>hadoop.security.authentication</name>")?;
    let (property, _) = rest.split_once("</property>")?;
    let (_, value) = property.split_once("<value>")?;
    value.split_once("</value>").map(|(value, _)| value.trim())
}

fn both_or_neither(draft: &Draft<'_>, one: &str, other: &str) -> Result<(), PlanError> {
    let missing = match (draft.conf.get(one), draft.conf.get(other)) {
        (Some(_), None) => (other, one),
        (None, Some(_)) => (one, other),
        (Some(_), Some(_)) | (None, None) => return Ok(()),
    };
    Err(PlanError::Missing { key: missing.0.to_owned(), remedy: format!("{} requires it: set both", missing.1) })
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn read(draft: &Draft<'_>, key: &str, file: &str, what: &str) -> Result<Vec<u8>, PlanError> {
    draft.context.files.read(file).map_err(|e| PlanError::File {
        input: Input::key(key).into(),
        path: file.to_owned(),
        problem: e.to_string(),
        remedy: format!("give the path of {what}"),
    })
}

fn krb5(draft: &mut Draft<'_>) -> Result<(), PlanError> {
    let source = match (draft.conf.get(key::KRB5_PATH), draft.conf.get(key::KRB5_CONFIG_MAP)) {
        (None, None) => return Ok(()),
        (Some(_), Some(_)) => {
            return Err(PlanError::Exclusive {
                key: key::KRB5_PATH.to_owned(),
                other: key::KRB5_CONFIG_MAP.to_owned(),
                remedy: "give one of the two".to_owned(),
            });
        }
        (None, Some(name)) => ConfigMapVolumeSource { name: name.to_owned(), ..ConfigMapVolumeSource::default() },
        (Some(file), None) => {
            let text =
                String::from_utf8(read(draft, key::KRB5_PATH, file, "a krb5.conf")?).map_err(|_| PlanError::File {
                    input: Input::key(key::KRB5_PATH).into(),
                    path: file.to_owned(),
                    problem: "not UTF-8".to_owned(),
                    remedy: "give the path of a krb5.conf".to_owned(),
                })?;
            let item = file_name(file).to_owned();
            let name = format!("{}-krb5-file", draft.names.prefix);
            draft.objects.push(Object::ConfigMap(ConfigMap {
                metadata: draft.metadata(&name),
                immutable: Some(true),
                data: Some([(item.clone(), text)].into()),
                ..ConfigMap::default()
            }));
            let items = vec![KeyToPath { key: item.clone(), path: item, ..KeyToPath::default() }];
            ConfigMapVolumeSource { name, items: Some(items), ..ConfigMapVolumeSource::default() }
        }
    };
    draft.add_volume(Volume { name: volume::KRB5.to_owned(), config_map: Some(source), ..Volume::default() });
    draft.container.volume_mounts.get_or_insert_default().push(VolumeMount {
        name: volume::KRB5.to_owned(),
        mount_path: path::KRB5.to_owned(),
        sub_path: Some("krb5.conf".to_owned()),
        ..VolumeMount::default()
    });
    Ok(())
}

fn ship_keytab(draft: &mut Draft<'_>, keytab: &str) -> Result<(), PlanError> {
    let bytes = read(draft, key::KEYTAB, keytab, "a keytab, or a local:// path inside the image")?;
    let item = file_name(keytab);
    let name = format!("{}-kerberos-keytab", draft.names.prefix);
    mount_secret(draft, volume::KEYTAB, &name, path::KEYTAB);
    draft.set_property(key::KEYTAB, format!("{}/{item}", path::KEYTAB));
    draft.objects.push(Object::Secret(Secret {
        metadata: draft.metadata(&name),
        immutable: Some(true),
        data: Some([(item.to_owned(), ByteString(bytes))].into()),
        type_: Some("Opaque".to_owned()),
        ..Secret::default()
    }));
    Ok(())
}

fn mount_tokens(draft: &mut Draft<'_>, secret: &str) -> Result<(), PlanError> {
    let item = draft.conf.get(key::TOKEN_SECRET_ITEM).unwrap_or_default();
    mount_secret(draft, volume::HADOOP_TOKENS, secret, path::HADOOP_TOKENS);
    draft.add_env(env::HADOOP_TOKEN_FILE, &format!("{}/{item}", path::HADOOP_TOKENS));
    Ok(())
}

fn mount_secret(draft: &mut Draft<'_>, volume: &str, secret: &str, path: &str) {
    draft.add_volume(Volume {
        name: volume.to_owned(),
        secret: Some(SecretVolumeSource { secret_name: Some(secret.to_owned()), ..SecretVolumeSource::default() }),
        ..Volume::default()
    });
    draft.add_mount(volume, path);
}

#[cfg(test)]
mod tests {
    use super::authentication;

    #[test]
    fn the_authentication_of_a_core_site_is_found_among_other_properties() {
        let xml = "<configuration><property><name>fs.defaultFS</name><value>hdfs://nn</value></property>\n\
                   <property>\n <name>hadoop.security.authentication</name>\n <value> kerberos </value>\n</property></configuration>";
        assert_eq!(authentication(xml), Some("kerberos"));
        let without = "<property><name>hadoop.security.authentication</name></property><property><name>a</name><value>kerberos</value></property>";
        assert_eq!(authentication(without), None);
    }
}
