//! The executors' configuration directory: the driver's files without its settings, which executors get from the driver.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, ConfigMapVolumeSource, KeyToPath, Volume};

use super::PlanError;
use crate::driver::{DriverPlan, Object};
use crate::names::{key, label, path, volume};
use crate::pod::Draft;
use crate::properties;

const PROPERTIES: &str = "spark.properties";
const FILE_MODE: i32 = 0o644;

/// Mounts the ConfigMap in the draft and returns it.
pub(super) fn apply(draft: &mut Draft<'_>, driver: &DriverPlan) -> Result<Option<ConfigMap>, PlanError> {
    if draft.conf.boolean(key::EXECUTOR_DISABLE_CONFIG_MAP, false)? {
        return Ok(None);
    }
    let mut data = conf_files(driver);
    let items: Vec<KeyToPath> = data
        .keys()
        .map(|name| KeyToPath { key: name.clone(), path: name.clone(), mode: Some(FILE_MODE), ..KeyToPath::default() })
        .collect();
    let source = ConfigMapVolumeSource {
        name: draft.names.config_map.clone(),
        items: Some(items).filter(|items| !items.is_empty()),
        ..ConfigMapVolumeSource::default()
    };
    draft.add_volume(Volume { name: volume::EXECUTOR_CONF.to_owned(), config_map: Some(source), ..Volume::default() });
    draft.add_mount(volume::EXECUTOR_CONF, path::CONF_DIR);

    // As in the driver's map, Spark adds this entry; the properties contain nothing else.
    let namespace = (key::NAMESPACE.to_owned(), draft.namespace.clone());
    data.insert(PROPERTIES.to_owned(), properties::write(&[namespace.clone()].into(), None));
    data.extend([namespace]);
    let mut metadata = draft.metadata(&draft.names.config_map);
    metadata.labels = Some(BTreeMap::from([
        (label::APP_ID.to_owned(), draft.app_id().to_owned()),
        (label::ROLE.to_owned(), label::ROLE_EXECUTOR.to_owned()),
    ]));
    Ok(Some(ConfigMap { metadata, immutable: Some(true), data: Some(data), ..ConfigMap::default() }))
}

/// The files in the driver's configuration directory, except `spark.properties`.
fn conf_files(driver: &DriverPlan) -> BTreeMap<String, String> {
    let maps = driver.objects.iter().filter_map(|object| match object {
        Object::ConfigMap(map) => map.data.as_ref(),
        Object::Service(_) | Object::Secret(_) | Object::PersistentVolumeClaim(_) | Object::NetworkPolicy(_) => None,
    });
    let mut files = maps.into_iter().find(|data| data.contains_key(PROPERTIES)).cloned().unwrap_or_default();
    files.remove(PROPERTIES);
    files.remove(key::NAMESPACE);
    files
}
