//! Hadoop configuration: the ConfigMap that the driver mounts too.

use k8s_openapi::api::core::v1::{ConfigMapVolumeSource, Volume};

use super::PlanError;
use crate::names::{env, key, path, volume};
use crate::pod::Draft;

pub(super) fn apply(draft: &mut Draft<'_>) -> Result<(), PlanError> {
    let Some(name) = draft.conf.get(key::EXECUTOR_HADOOP_CONFIG_MAP) else { return Ok(()) };
    let source = ConfigMapVolumeSource { name: name.to_owned(), ..ConfigMapVolumeSource::default() };
    draft.add_volume(Volume { name: volume::HADOOP_CONF.to_owned(), config_map: Some(source), ..Volume::default() });
    draft.add_mount(volume::HADOOP_CONF, path::HADOOP_CONF);
    draft.add_env(env::HADOOP_CONF_DIR, path::HADOOP_CONF);
    Ok(())
}
