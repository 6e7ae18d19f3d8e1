//! Volumes by configuration: `spark.kubernetes.{driver,executor}.volumes.<type>.<name>.…`.

mod order;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    EmptyDirVolumeSource, HostPathVolumeSource, NFSVolumeSource, PersistentVolumeClaim, PersistentVolumeClaimSpec,
    PersistentVolumeClaimVolumeSource, Volume, VolumeMount, VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::role::Role;
use super::{Draft, Object, PlanError};
use crate::names::{env, key, label};
use crate::value;
use crate::version::Line;

/// A claim name that means "create one for this pod".
pub(crate) const ON_DEMAND: &str = "OnDemand";

/// The settings of one volume, by the part of their key after `<type>.<name>.`.
struct VolumeSettings<'a> {
    role: &'static Role,
    kind: &'a str,
    name: &'a str,
    settings: &'a BTreeMap<String, String>,
}

impl VolumeSettings<'_> {
    fn short_key(&self, part: &str) -> String {
        format!("{}.{}.{part}", self.kind, self.name)
    }

    fn key(&self, part: &str) -> String {
        format!("{}{}", self.role.volumes_prefix, self.short_key(part))
    }

    fn get(&self, part: &str) -> Option<String> {
        self.settings.get(&self.short_key(part)).cloned()
    }

    fn require(&self, part: &str, remedy: &str) -> Result<String, PlanError> {
        self.get(part).ok_or_else(|| PlanError::Missing { key: self.key(part), remedy: remedy.to_owned() })
    }

    fn refuse(&self, part: &str, value: &str, problem: impl Into<String>, remedy: &str) -> PlanError {
        PlanError::Value {
            key: self.key(part),
            value: value.to_owned(),
            problem: problem.into(),
            remedy: remedy.to_owned(),
        }
    }

    fn invalid(&self, part: &str, problem: &impl std::fmt::Display) -> PlanError {
        PlanError::Invalid { key: self.key(part), problem: problem.to_string() }
    }

    fn read_only(&self) -> Result<bool, PlanError> {
        let part = "mount.readOnly";
        match self.get(part) {
            None => Ok(false),
            Some(text) => value::boolean(&text).map_err(|e| self.invalid(part, &e)),
        }
    }

    fn size_limit(&self, line: Line) -> Result<Option<Quantity>, PlanError> {
        let part = "options.sizeLimit";
        let Some(size) = self.get(part) else { return Ok(None) };
        let bare = !size.is_empty() && size.bytes().all(|b| b.is_ascii_digit());
        if line >= Line::V4_0 && bare && size.parse::<u64>().is_ok_and(|bytes| bytes < 1024) {
            return Err(self.refuse(part, &size, "smaller than 1 KiB", "write the unit, such as 10Gi"));
        }
        size.parse::<value::Quantity>().map_err(|e| self.invalid(part, &e))?;
        Ok(Some(Quantity(size)))
    }

    fn family(&self, part: &str) -> BTreeMap<String, String> {
        let prefix = self.short_key(part);
        let matching = self.settings.iter().filter_map(|(k, v)| Some((k.strip_prefix(&prefix)?, v)));
        matching.map(|(k, v)| (k.to_owned(), v.clone())).collect()
    }
}

pub(crate) fn apply(draft: &mut Draft<'_>) -> Result<(), PlanError> {
    let settings = draft.conf.with_prefix(draft.role.volumes_prefix);
    let named = order::in_sparks_order(&settings, draft.role.volumes_prefix, draft.conf.iter().count(), draft.line);
    let mut mounted: BTreeMap<String, String> = BTreeMap::new();
    for (index, (kind, name)) in named.into_iter().enumerate() {
        let volume = VolumeSettings { role: draft.role, kind, name, settings: &settings };
        let mount = mount(&volume, draft.line)?;
        if let Some(other) = mounted.insert(mount.mount_path.clone(), volume.key("mount.path")) {
            let problem = format!("{other} also mounts a volume there");
            return Err(volume.refuse("mount.path", &mount.mount_path, problem, "give each volume its own path"));
        }
        let source = source(draft, &volume, index)?;
        draft.container.volume_mounts.get_or_insert_default().push(mount);
        draft.add_volume(source);
    }
    Ok(())
}

fn mount(volume: &VolumeSettings<'_>, line: Line) -> Result<VolumeMount, PlanError> {
    const TYPES: [&str; 4] = ["hostPath", "persistentVolumeClaim", "emptyDir", "nfs"];
    if !TYPES.contains(&volume.kind) {
        return Err(PlanError::Value {
            key: format!("{}{}.{}", volume.role.volumes_prefix, volume.kind, volume.name),
            value: volume.kind.to_owned(),
            problem: "not a volume type that Spark supports".to_owned(),
            remedy: format!("use one of {}, or a pod template", TYPES.join(" | ")),
        });
    }
    let remedy = format!("set the volume's mount path in the {} container", volume.role.word);
    let path = volume.require("mount.path", &remedy)?;
    let sub_path = volume.get("mount.subPath");
    let sub_path_expr = volume.get("mount.subPathExpr").filter(|_| line >= Line::V4_0);
    if sub_path.is_some() && sub_path_expr.is_some() {
        return Err(PlanError::Exclusive {
            key: volume.key("mount.subPath"),
            other: volume.key("mount.subPathExpr"),
            remedy: "give one of the two".to_owned(),
        });
    }
    Ok(VolumeMount {
        name: volume.name.to_owned(),
        mount_path: path,
        sub_path: sub_path.filter(|p| !p.is_empty()),
        sub_path_expr: sub_path_expr.filter(|p| !p.is_empty()),
        read_only: volume.read_only()?.then_some(true),
        ..VolumeMount::default()
    })
}

fn source(draft: &mut Draft<'_>, volume: &VolumeSettings<'_>, index: usize) -> Result<Volume, PlanError> {
    let mut built = Volume { name: volume.name.to_owned(), ..Volume::default() };
    match volume.kind {
        "hostPath" => {
            let path = volume.require("options.path", "set the directory of the node to mount")?;
            let type_ = volume.get("options.type").filter(|_| draft.line >= Line::V4_0);
            built.host_path = Some(HostPathVolumeSource { path, type_: type_.filter(|t| !t.is_empty()) });
        }
        "nfs" => {
            let path = volume.require("options.path", "set the path of the server to mount")?;
            let server = volume.require("options.server", "give the NFS server's address")?;
            built.nfs = Some(NFSVolumeSource { path, server, read_only: None });
        }
        "emptyDir" => {
            let medium = volume.get("options.medium").filter(|m| !m.is_empty());
            let size_limit = volume.size_limit(draft.line)?;
            built.empty_dir = Some(EmptyDirVolumeSource { medium, size_limit, ..Default::default() });
        }
        _ => built.persistent_volume_claim = Some(claim(draft, volume, index)?),
    }
    Ok(built)
}

fn claim(
    draft: &mut Draft<'_>,
    volume: &VolumeSettings<'_>,
    index: usize,
) -> Result<PersistentVolumeClaimVolumeSource, PlanError> {
    let remedy = "name a PersistentVolumeClaim, or write OnDemand to have one created";
    let template = volume.require("options.claimName", remedy)?;
    let owner = draft.names.pod_part(draft.role);
    let mut claim_name = template.replace(ON_DEMAND, &format!("{owner}-pvc-{index}"));
    if !draft.role.executor_id.is_empty() {
        claim_name = claim_name.replace(env::EXECUTOR_ID, draft.role.executor_id);
    }
    let size = volume.size_limit(draft.line)?;
    if let (Some(class), Some(size)) = (volume.get("options.storageClass"), size) {
        let mut metadata = draft.metadata(&claim_name);
        let mut labels = if draft.line >= Line::V4_0 { volume.family("label.") } else { BTreeMap::new() };
        labels.insert(label::APP_ID.to_owned(), draft.app_id().to_owned());
        metadata.labels = Some(labels);
        if draft.line >= Line::V4_0 {
            metadata.annotations = Some(volume.family("annotation.")).filter(|a| !a.is_empty());
        }
        let legacy = draft.conf.boolean(key::LEGACY_PVC_ACCESS_MODE, draft.line < Line::V4_0)?;
        let access_mode = if legacy { "ReadWriteOnce" } else { "ReadWriteOncePod" };
        let spec = PersistentVolumeClaimSpec {
            storage_class_name: Some(class),
            access_modes: Some(vec![access_mode.to_owned()]),
            resources: Some(VolumeResourceRequirements {
                requests: Some([("storage".to_owned(), size)].into()),
                ..VolumeResourceRequirements::default()
            }),
            ..PersistentVolumeClaimSpec::default()
        };
        let claim = PersistentVolumeClaim { metadata, spec: Some(spec), ..PersistentVolumeClaim::default() };
        draft.objects.push(Object::PersistentVolumeClaim(claim));
    }
    Ok(PersistentVolumeClaimVolumeSource { claim_name, read_only: volume.read_only()?.then_some(true) })
}
