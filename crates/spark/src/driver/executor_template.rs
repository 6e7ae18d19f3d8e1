//! The executors' pod template: read here, and mounted into the driver from a ConfigMap.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, ConfigMapVolumeSource, KeyToPath, Volume};

use super::config_map::MAX_SIZE;
use super::{Draft, DriverPlan, Object, PlanError, role, template};
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

/// Moves the template into the ConfigMap of the driver's configuration, if it fits there. The driver finds it at the same
/// path.
pub(super) fn join(plan: &mut DriverPlan) {
    let Some(volumes) = plan.pod.spec.as_mut().and_then(|spec| spec.volumes.as_mut()) else { return };
    let map_of = |name: &str| Some(volumes.iter().find(|v| v.name == name)?.config_map.as_ref()?.name.clone());
    let (Some(conf), Some(template)) = (map_of(volume::CONF), map_of(volume::TEMPLATE)) else { return };
    let position = |name: &str| plan.objects.iter().position(|o| o.metadata().name.as_deref() == Some(name));
    let (Some(conf_at), Some(template_at)) = (position(&conf), position(&template)) else { return };
    let (Object::ConfigMap(one), Object::ConfigMap(other)) = (&plan.objects[conf_at], &plan.objects[template_at])
    else {
        return;
    };
    let data: BTreeMap<_, _> = [one, other].iter().filter_map(|map| map.data.clone()).flatten().collect();
    let size: usize = data.iter().map(|(name, content)| name.len() + content.len()).sum();
    if size as u64 > MAX_SIZE {
        return;
    }
    let source = volumes.iter_mut().find(|v| v.name == volume::TEMPLATE).and_then(|v| v.config_map.as_mut());
    let Some(source) = source else { return };
    source.name = conf;
    if let Object::ConfigMap(map) = &mut plan.objects[conf_at] {
        map.data = Some(data);
    }
    plan.objects.remove(template_at);
}
