//! `spark.authenticate` without the secret in clear text. In Spark every executor pod has it as a literal in its environment;
//! here it is in a Secret, which the driver mounts as a file and executors get as a variable.
//!
//! An executor reads the secret from a file only if `spark.master` is set, which it is not at the executor's first connection
//! (Spark 3.5 to 4.3); the variable always works. Spark's secret is the file's content in Base64.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::PlanError;
use crate::names::{env, key, path};
use crate::submission::SparkConf;
use crate::value;

const ITEM: &str = "secret";
/// The secret as Spark expects it in a variable.
const ENCODED: &str = "encoded";

/// Prepares a configuration for authentication; to be called before driver and executors are planned. Returns the Secret
/// to create, or `None` if authentication is off or the user provides the secret in files.
///
/// `generated` is the secret's value, unless the configuration has one, which is then moved into the Secret.
pub fn authenticate(
    conf: &mut SparkConf,
    name: &str,
    namespace: &str,
    generated: &str,
) -> Result<Option<Secret>, PlanError> {
    let on = match conf.get(key::AUTHENTICATE) {
        None => false,
        Some(text) => value::boolean(text).map_err(|problem| PlanError::Invalid {
            key: key::AUTHENTICATE.to_owned(),
            problem: problem.to_string(),
        })?,
    };
    let has = |key: &str| conf.contains_key(key);
    let (driver, executor) = (has(key::AUTH_DRIVER_SECRET_FILE), has(key::AUTH_EXECUTOR_SECRET_FILE));
    if !on || has(key::AUTH_SECRET_FILE) || (driver && executor) {
        return Ok(None);
    }
    if driver != executor {
        let [given, missing] = if driver {
            [key::AUTH_DRIVER_SECRET_FILE, key::AUTH_EXECUTOR_SECRET_FILE]
        } else {
            [key::AUTH_EXECUTOR_SECRET_FILE, key::AUTH_DRIVER_SECRET_FILE]
        };
        return Err(PlanError::Missing {
            key: missing.to_owned(),
            remedy: format!("{given} requires it: set both, or neither to have a secret generated"),
        });
    }
    let secret = conf.remove(key::AUTH_SECRET).unwrap_or_else(|| generated.to_owned());
    conf.insert(format!("{}{name}", key::DRIVER_SECRETS_PREFIX), path::AUTH_SECRET.to_owned());
    let variable = format!("{}{}", key::EXECUTOR_SECRET_KEY_REF_PREFIX, env::AUTH_SECRET);
    conf.insert(variable, format!("{name}:{ENCODED}"));
    conf.insert(key::AUTH_SECRET_FILE.to_owned(), format!("{}/{ITEM}", path::AUTH_SECRET));
    Ok(Some(Secret {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        immutable: Some(true),
        data: Some(BTreeMap::from([
            (ENCODED.to_owned(), ByteString(STANDARD.encode(&secret).into_bytes())),
            (ITEM.to_owned(), ByteString(secret.into_bytes())),
        ])),
        type_: Some("Opaque".to_owned()),
        ..Secret::default()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conf(pairs: &[(&str, &str)]) -> SparkConf {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    fn value(secret: &Secret) -> &[u8] {
        &secret.data.as_ref().unwrap()[ITEM].0
    }

    #[test]
    fn nothing_happens_without_authentication() {
        for mut given in [conf(&[]), conf(&[("spark.authenticate", "false")])] {
            let before = given.clone();
            assert_eq!(authenticate(&mut given, "s", "n", "x"), Ok(None));
            assert_eq!(given, before);
        }
    }

    #[test]
    fn a_secret_is_made_for_both_sides() {
        let mut given = conf(&[("spark.authenticate", "true")]);
        let secret = authenticate(&mut given, "s", "n", "x").unwrap().unwrap();
        assert_eq!(value(&secret), b"x");
        assert_eq!(given["spark.authenticate.secret.file"], "/mnt/secrets/spark-auth/secret");
        assert_eq!(given["spark.kubernetes.driver.secrets.s"], "/mnt/secrets/spark-auth");
        assert_eq!(given["spark.kubernetes.executor.secretKeyRef._SPARK_AUTH_SECRET"], "s:encoded");
    }

    #[test]
    fn a_secret_in_the_configuration_moves_out_of_it() {
        let mut given = conf(&[("spark.authenticate", "true"), ("spark.authenticate.secret", "mine")]);
        let secret = authenticate(&mut given, "s", "n", "x").unwrap().unwrap();
        assert_eq!(value(&secret), b"mine");
        assert!(!given.contains_key("spark.authenticate.secret"));
    }

    #[test]
    fn files_of_the_user_stand_and_one_alone_is_refused() {
        let file = |key: &'static str| [("spark.authenticate", "true"), (key, "/f")];
        assert_eq!(authenticate(&mut conf(&file("spark.authenticate.secret.file")), "s", "n", "x"), Ok(None));
        let refusal = authenticate(&mut conf(&file("spark.authenticate.secret.driver.file")), "s", "n", "x");
        assert!(refusal.unwrap_err().to_string().starts_with("spark.authenticate.secret.executor.file is not set"));
    }
}
