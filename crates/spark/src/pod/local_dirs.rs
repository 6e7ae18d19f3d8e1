//! Scratch space: `SPARK_LOCAL_DIRS` on volumes of the pod.

use k8s_openapi::api::core::v1::{EmptyDirVolumeSource, Volume};

use super::{Draft, PlanError};
use crate::names::{env, key, volume};

pub(crate) fn apply(draft: &mut Draft<'_>) -> Result<(), PlanError> {
    let mounts = draft.container.volume_mounts.iter().flatten();
    let mounted: Vec<String> =
        mounts.filter(|m| m.name.starts_with(volume::LOCAL_DIR_PREFIX)).map(|m| m.mount_path.clone()).collect();
    let directories = if mounted.is_empty() { add_volumes(draft)? } else { mounted };
    draft.add_env(env::LOCAL_DIRS, &directories.join(","));
    Ok(())
}

fn add_volumes(draft: &mut Draft<'_>) -> Result<Vec<String>, PlanError> {
    let given = draft.env.get(env::LOCAL_DIRS).map(String::as_str).filter(|d| !d.is_empty());
    let given = given.or_else(|| draft.conf.get(key::LOCAL_DIR)).unwrap_or_default();
    let mut directories: Vec<String> = given.split(',').filter(|d| !d.is_empty()).map(str::to_owned).collect();
    if directories.is_empty() {
        directories.push(format!("/var/data/spark-{}", draft.context.ids.local_dir));
    }
    let medium = draft.conf.boolean(key::LOCAL_DIRS_TMPFS, false)?.then(|| "Memory".to_owned());
    for (index, directory) in directories.iter().enumerate() {
        let name = format!("{}{}", volume::LOCAL_DIR_PREFIX, index + 1);
        draft.add_mount(&name, directory);
        let source = EmptyDirVolumeSource { medium: medium.clone(), ..EmptyDirVolumeSource::default() };
        draft.add_volume(Volume { name, empty_dir: Some(source), ..Volume::default() });
    }
    Ok(directories)
}
