//! The executors' pod template: read here, and mounted into the driver from a ConfigMap.

use k8s_openapi::api::core::v1::{ConfigMap, ConfigMapVolumeSource, KeyToPath, Volume};

use super::{Draft, Object, PlanError, role, template};
use crate::names::{key, path, volume};

const ITEM: &str = "podspec-configmap-key";

pub(super) fn apply(draft: &mut Draft<'_>) -> Result<(), PlanError> {
    let role = &role::EXECUTOR;
    let Some(source) = template::Source::of(role, &draft.conf, draft.context) else { return Ok(()) };
    // Spark would only find out in the driver.
    let (pod, text) = source.read(role, draft.context.files)?;
    if pod.spec.is_none() {
        let problem = "it has no spec, and Spark's driver does not start without one".to_owned();
        return Err(source.refuse(role, problem, "add spec: {}"));
    }
    let name = format!("{}-driver-podspec-conf-map", draft.names.prefix);
    draft.add_volume(Volume {
        name: volume::TEMPLATE.to_owned(),
        config_map: Some(ConfigMapVolumeSource {
            name: name.clone(),
            items: Some(vec![KeyToPath {
                key: ITEM.to_owned(),
                path: path::TEMPLATE_FILE.to_owned(),
                ..KeyToPath::default()
            }]),
            ..ConfigMapVolumeSource::default()
        }),
        ..Volume::default()
    });
    draft.add_mount(volume::TEMPLATE, path::TEMPLATE_DIR);
    draft.set_property(key::EXECUTOR_TEMPLATE, format!("{}/{}", path::TEMPLATE_DIR, path::TEMPLATE_FILE));
    draft.objects.push(Object::ConfigMap(ConfigMap {
        metadata: draft.metadata(&name),
        immutable: Some(true),
        data: Some([(ITEM.to_owned(), text)].into()),
        ..ConfigMap::default()
    }));
    Ok(())
}
