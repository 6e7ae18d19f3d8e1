//! Hadoop configuration: an existing ConfigMap, or the submitter's `HADOOP_CONF_DIR` copied into a new one.

use k8s_openapi::api::core::v1::{ConfigMap, ConfigMapVolumeSource, KeyToPath, Volume};

use super::{Draft, Object, PlanError};
use crate::input::Input;
use crate::names::{env, key, path, volume};

pub(super) fn apply(draft: &mut Draft<'_>) -> Result<(), PlanError> {
    let directory = draft.context.env.get(env::HADOOP_CONF_DIR).filter(|d| !d.is_empty()).cloned();
    let existing = draft.conf.get(key::HADOOP_CONFIG_MAP);
    let source = match (directory, existing) {
        (None, None) => return Ok(()),
        (Some(_), Some(_)) => {
            return Err(PlanError::Exclusive {
                key: key::HADOOP_CONFIG_MAP.to_owned(),
                other: format!("the environment's {}", env::HADOOP_CONF_DIR),
                remedy: "give one of the two".to_owned(),
            });
        }
        (None, Some(name)) => ConfigMapVolumeSource { name: name.to_owned(), ..ConfigMapVolumeSource::default() },
        (Some(directory), None) => copy_directory(draft, &directory)?,
    };
    draft.set_property(key::EXECUTOR_HADOOP_CONFIG_MAP, source.name.clone());
    draft.add_volume(Volume { name: volume::HADOOP_CONF.to_owned(), config_map: Some(source), ..Volume::default() });
    draft.add_mount(volume::HADOOP_CONF, path::HADOOP_CONF);
    draft.add_env(env::HADOOP_CONF_DIR, path::HADOOP_CONF);
    Ok(())
}

fn copy_directory(draft: &mut Draft<'_>, directory: &str) -> Result<ConfigMapVolumeSource, PlanError> {
    let refuse = |path: String, problem: String| PlanError::File {
        input: Input::Variable(env::HADOOP_CONF_DIR).into(),
        path,
        problem,
        remedy: "give a directory of Hadoop configuration files, or unset it".to_owned(),
    };
    let mut names: Vec<String> = match draft.context.files.list(directory) {
        Ok(files) => files.into_iter().map(|(name, _)| name).collect(),
        Err(e) => return Err(refuse(directory.to_owned(), e.to_string())),
    };
    names.sort();
    let mut data = std::collections::BTreeMap::new();
    for name in &names {
        let path = format!("{}/{name}", directory.trim_end_matches('/'));
        let bytes = draft.context.files.read(&path).map_err(|e| refuse(path.clone(), e.to_string()))?;
        data.insert(name.clone(), String::from_utf8(bytes).map_err(|_| refuse(path, "not UTF-8".to_owned()))?);
    }
    let name = format!("{}-hadoop-config", draft.names.prefix);
    draft.objects.push(Object::ConfigMap(ConfigMap {
        metadata: draft.metadata(&name),
        immutable: Some(true),
        data: Some(data),
        ..ConfigMap::default()
    }));
    let items = names.into_iter().map(|n| KeyToPath { key: n.clone(), path: n, ..KeyToPath::default() }).collect();
    Ok(ConfigMapVolumeSource { name, items: Some(items), ..ConfigMapVolumeSource::default() })
}
