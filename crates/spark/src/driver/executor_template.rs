//! The executors' pod template: read here, carried in a ConfigMap to where the driver reads it.

use k8s_openapi::api::core::v1::{ConfigMap, ConfigMapVolumeSource, KeyToPath, Volume};

use super::{Draft, Object, PlanError, template};
use crate::names::{key, path, volume};

const ITEM: &str = "podspec-configmap-key";

pub(super) fn apply(draft: &mut Draft<'_>) -> Result<(), PlanError> {
    let Some(file) = draft.conf.get(key::EXECUTOR_TEMPLATE) else { return Ok(()) };
    let because = |problem: String, remedy: &str| PlanError::File {
        key: key::EXECUTOR_TEMPLATE.to_owned(),
        path: file.to_owned(),
        problem,
        remedy: remedy.to_owned(),
    };
    let refuse = |problem: String| because(problem, "give the path of a YAML or JSON pod");
    let bytes = draft.around.files.read(file).map_err(|e| refuse(e.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|_| refuse("not UTF-8".to_owned()))?;
    // Spark finds out in the driver; better now.
    if template::parse(&text).map_err(refuse)?.spec.is_none() {
        let problem = "it has no spec, and Spark's driver does not start with such a template".to_owned();
        return Err(because(problem, "add spec: {}"));
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
