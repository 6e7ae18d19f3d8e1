//! The driver's configuration directory: the files in the submitter's `SPARK_CONF_DIR` and `spark.properties`, in one
//! ConfigMap mounted at `/opt/spark/conf`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, ConfigMapVolumeSource, KeyToPath, Volume};

use super::{Draft, Object, PlanError};
use crate::input::Input;
use crate::names::{env, key, path, volume};
use crate::properties;

const PROPERTIES: &str = "spark.properties";
/// Kubernetes' limit for a ConfigMap, and Spark's own.
pub(super) const MAX_SIZE: u64 = 1_048_576;
const FILE_MODE: i32 = 0o644;

pub(super) fn apply(draft: &mut Draft<'_>) -> Result<(), PlanError> {
    let limit = limit(draft)?;
    let mut data = conf_files(draft, limit);
    data.insert(PROPERTIES.to_owned(), properties::write(&draft.properties, None));
    let size: usize = data.iter().map(|(name, content)| name.len() + content.len()).sum();
    if size as u64 > MAX_SIZE {
        let (longest, length) = longest(draft, &data);
        return Err(PlanError::Object {
            object: format!("ConfigMap {}", draft.names.config_map),
            problem: format!(
                "{size} bytes of configuration exceed the limit of {MAX_SIZE}; the longest is {longest} ({length})"
            ),
            input: longest.into(),
            remedy: "move long values into files in the image, or into mounted Secrets or ConfigMaps".to_owned(),
        });
    }
    let items = data.keys().map(|name| KeyToPath {
        key: name.clone(),
        path: name.clone(),
        mode: Some(FILE_MODE),
        ..KeyToPath::default()
    });
    let source = ConfigMapVolumeSource {
        name: draft.names.config_map.clone(),
        items: Some(items.collect()),
        ..ConfigMapVolumeSource::default()
    };
    // Spark puts this entry into the map without mounting it; tools may read it.
    data.insert(key::NAMESPACE.to_owned(), draft.namespace.clone());
    draft.add_env(env::CONF_DIR, path::CONF_DIR);
    draft.add_volume(Volume { name: volume::CONF.to_owned(), config_map: Some(source), ..Volume::default() });
    draft.add_mount(volume::CONF, path::CONF_DIR);
    draft.objects.push(Object::ConfigMap(ConfigMap {
        metadata: draft.metadata(&draft.names.config_map),
        immutable: Some(true),
        data: Some(data),
        ..ConfigMap::default()
    }));
    Ok(())
}

/// The longest setting or submitter's file, and its length in bytes.
fn longest(draft: &Draft<'_>, data: &BTreeMap<String, String>) -> (Input, usize) {
    let settings = draft.properties.iter().map(|(key, value)| (Input::key(key), key.len() + value.len()));
    let files = data.iter().filter(|(name, _)| *name != PROPERTIES);
    let files = files.map(|(name, content)| (Input::File(name.clone()), name.len() + content.len()));
    settings.chain(files).max_by_key(|(_, length)| *length).unwrap_or((Input::key(key::CONFIG_MAP_MAX_SIZE), 0))
}

fn limit(draft: &Draft<'_>) -> Result<u64, PlanError> {
    let Some(text) = draft.conf.get(key::CONFIG_MAP_MAX_SIZE) else { return Ok(MAX_SIZE) };
    match text.trim().parse::<u64>() {
        Ok(limit) if limit <= MAX_SIZE => Ok(limit),
        _ => Err(PlanError::Value {
            key: key::CONFIG_MAP_MAX_SIZE.to_owned(),
            value: text.to_owned(),
            problem: "not a valid ConfigMap size in bytes".to_owned(),
            remedy: format!("write a number up to {MAX_SIZE}"),
        }),
    }
}

/// The submitter's configuration files, smallest first until the limit is reached.
fn conf_files(draft: &mut Draft<'_>, limit: u64) -> BTreeMap<String, String> {
    let mut data = BTreeMap::new();
    let Some(directory) = conf_dir(draft) else { return data };
    let Ok(mut files) = draft.context.files.list(&directory) else { return data };
    files.retain(|(name, size)| is_conf_file(name) && name.len() as u64 + size <= limit);
    files.sort_by(|(a_name, a_size), (b_name, b_size)| (a_size, a_name).cmp(&(b_size, b_name)));
    let mut taken = 0;
    for (name, _) in files {
        let Ok(bytes) = draft.context.files.read(&format!("{}/{name}", directory.trim_end_matches('/'))) else {
            continue;
        };
        let Ok(text) = String::from_utf8(bytes) else {
            draft.warnings.push(format!("{directory}/{name} is not passed to the driver: it is not UTF-8"));
            continue;
        };
        // Spark counts characters, and stays below the limit.
        let size = (name.chars().count() + text.chars().count()) as u64;
        if taken + size < limit {
            taken += size;
            data.insert(name, text);
        } else {
            draft.warnings.push(format!(
                "{directory}/{name} is not passed to the driver: it would exceed {}={limit}",
                key::CONFIG_MAP_MAX_SIZE
            ));
        }
    }
    data
}

/// `SPARK_CONF_DIR`, else `conf` in Spark's home, as in spark-submit's shell wrapper.
fn conf_dir(draft: &Draft<'_>) -> Option<String> {
    let submitter = |name: &str| draft.context.env.get(name).filter(|v| !v.is_empty());
    if let Some(directory) = submitter(env::CONF_DIR) {
        return Some(directory.clone());
    }
    let home = submitter(env::SPARK_HOME).map(String::as_str).or_else(|| draft.conf.get(key::SPARK_HOME))?;
    Some(format!("{}/conf", home.trim_end_matches('/')))
}

fn is_conf_file(name: &str) -> bool {
    let archive = [".gz", ".zip", ".jar", ".tar"].iter().any(|suffix| name.ends_with(suffix));
    let sparks_own = name.starts_with("spark") && (name.ends_with("conf") || name.ends_with("properties"));
    !archive && !sparks_own && !name.ends_with(".template")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_archives_and_sparks_own_files_stay_behind() {
        for name in ["log4j2.properties", "metrics.conf", "extra.txt"] {
            assert!(is_conf_file(name), "{name}");
        }
        for name in ["spark-defaults.conf", "spark.properties", "log4j2.properties.template", "x.jar", "x.tar"] {
            assert!(!is_conf_file(name), "{name}");
        }
    }
}
