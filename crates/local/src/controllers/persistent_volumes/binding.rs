//! Decides which volume a claim is bound to. Pure.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    HostPathVolumeSource, ObjectReference, PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec, Pod,
};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt;
use kube::api::ObjectMeta;

use crate::controllers::pod_control;
use crate::resource_list;

pub(crate) const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
pub(crate) const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";

#[derive(Debug, PartialEq)]
pub(crate) enum Binding {
    /// The claim is already bound.
    Settled,
    Wait {
        reason: &'static str,
        message: String,
    },
    Provision {
        class: Arc<StorageClass>,
    },
    Join(Arc<PersistentVolume>),
}

pub(crate) fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    claim.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Bound")
}

pub(crate) fn is_default(class: &StorageClass) -> bool {
    class.annotations().get(DEFAULT_CLASS).is_some_and(|d| d == "true")
}

/// The claims a pod uses.
pub(crate) fn claims_of(pod: &Pod) -> BTreeSet<String> {
    let volumes = pod.spec.as_ref().and_then(|s| s.volumes.as_deref()).unwrap_or_default();
    let claim = |v: &k8s_openapi::api::core::v1::Volume| match (&v.persistent_volume_claim, &v.ephemeral) {
        (Some(source), _) => Some(source.claim_name.clone()),
        (None, Some(_)) => Some(format!("{}-{}", pod.name_any(), v.name)),
        (None, None) => None,
    };
    volumes.iter().filter_map(claim).collect()
}

/// The claims for a pod's `ephemeral` volumes.
pub(crate) fn own_claims(pod: &Pod) -> Vec<PersistentVolumeClaim> {
    let volumes = pod.spec.as_ref().and_then(|s| s.volumes.as_deref()).unwrap_or_default();
    let claim = |v: &k8s_openapi::api::core::v1::Volume| {
        let template = v.ephemeral.as_ref()?.volume_claim_template.as_ref()?;
        let meta = template.metadata.clone().unwrap_or_default();
        Some(PersistentVolumeClaim {
            metadata: ObjectMeta {
                name: Some(format!("{}-{}", pod.name_any(), v.name)),
                labels: meta.labels,
                annotations: meta.annotations,
                owner_references: Some(vec![pod_control::controlled_by(pod)]),
                ..ObjectMeta::default()
            },
            spec: Some(template.spec.clone()),
            status: None,
        })
    };
    volumes.iter().filter_map(claim).collect()
}

/// Whether a volume is bound to exactly this claim.
pub(crate) fn belongs_to(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let reference = volume.spec.as_ref().and_then(|s| s.claim_ref.as_ref());
    reference.is_some_and(|r| r.uid.is_some() && r.uid == claim.uid())
}

pub(crate) fn reference(claim: &PersistentVolumeClaim) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("PersistentVolumeClaim".to_owned()),
        name: Some(claim.name_any()),
        namespace: claim.namespace(),
        uid: claim.uid(),
        ..ObjectReference::default()
    }
}

pub(crate) fn bind(
    claim: &PersistentVolumeClaim,
    volumes: &[Arc<PersistentVolume>],
    classes: &[Arc<StorageClass>],
    provisioner: &str,
) -> Binding {
    let spec = claim.spec.clone().unwrap_or_default();
    if let Some(volume) = volumes.iter().find(|v| belongs_to(v, claim)) {
        return if is_bound(claim) { Binding::Settled } else { Binding::Join(Arc::clone(volume)) };
    }
    if is_bound(claim) {
        return Binding::Settled;
    }
    if let Some(name) = spec.volume_name.as_ref().filter(|n| !n.is_empty()) {
        let named = volumes.iter().find(|v| v.name_any() == *name);
        return match named {
            Some(volume) if free_for(volume, claim) => Binding::Join(Arc::clone(volume)),
            Some(_) => wait("FailedBinding", format!("volume \"{name}\" already bound to a different claim.")),
            None => wait("FailedBinding", format!("volume \"{name}\" not found")),
        };
    }
    let class = match spec.storage_class_name.as_deref() {
        Some(name) => name.to_owned(),
        None => classes.iter().find(|c| is_default(c)).map(|c| c.name_any()).unwrap_or_default(),
    };
    let mut fitting: Vec<&Arc<PersistentVolume>> =
        volumes.iter().filter(|v| free_for(v, claim) && suits(v, claim, &class)).collect();
    // Prefer a volume pre-bound to this claim, then the smallest.
    fitting.sort_by_key(|v| (v.spec.as_ref().is_none_or(|s| s.claim_ref.is_none()), storage(v), v.name_any()));
    if let Some(volume) = fitting.first() {
        return Binding::Join(Arc::clone(volume));
    }
    match classes.iter().find(|c| c.name_any() == class) {
        Some(found) if found.provisioner == provisioner => Binding::Provision { class: Arc::clone(found) },
        Some(found) => {
            let by = &found.provisioner;
            wait(
                "ExternalProvisioning",
                format!(
                    "Waiting for a volume to be created either by the external provisioner '{by}' or manually by the system administrator."
                ),
            )
        }
        None if class.is_empty() => wait(
            "FailedBinding",
            "no persistent volumes available for this claim and no storage class is set".to_owned(),
        ),
        None => wait("ProvisioningFailed", format!("storageclass.storage.k8s.io \"{class}\" not found")),
    }
}

fn wait(reason: &'static str, message: String) -> Binding {
    Binding::Wait { reason, message }
}

fn storage(volume: &PersistentVolume) -> i128 {
    let capacity = volume.spec.as_ref().and_then(|s| s.capacity.as_ref());
    capacity.and_then(|c| c.get("storage")).map_or(0, resource_list::milli)
}

/// Whether a volume is available, or pre-bound to a claim of this name.
fn free_for(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let reference = volume.spec.as_ref().and_then(|s| s.claim_ref.as_ref());
    volume.metadata.deletion_timestamp.is_none()
        && reference
            .is_none_or(|r| r.uid.is_none() && r.name == claim.metadata.name && r.namespace == claim.metadata.namespace)
}

fn suits(volume: &PersistentVolume, claim: &PersistentVolumeClaim, class: &str) -> bool {
    let (offered, asked) = (volume.spec.clone().unwrap_or_default(), claim.spec.clone().unwrap_or_default());
    let requests = asked.resources.and_then(|r| r.requests).unwrap_or_default();
    let modes = offered.access_modes.unwrap_or_default();
    offered.storage_class_name.unwrap_or_default() == class
        && asked.access_modes.iter().flatten().all(|m| modes.contains(m))
        && requests.get("storage").is_none_or(|q| resource_list::milli(q) <= storage(volume))
        && asked.volume_mode.as_deref().unwrap_or("Filesystem")
            == offered.volume_mode.as_deref().unwrap_or("Filesystem")
        && asked.selector.is_none_or(|s| pod_control::selects(&s, volume))
}

/// A provisioned volume: a directory on this machine.
pub(crate) fn volume(
    claim: &PersistentVolumeClaim,
    class: &StorageClass,
    name: &str,
    path: &str,
    provisioner: &str,
) -> PersistentVolume {
    let spec = claim.spec.clone().unwrap_or_default();
    let requests = spec.resources.and_then(|r| r.requests).unwrap_or_default();
    PersistentVolume {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            annotations: Some([(PROVISIONED_BY.to_owned(), provisioner.to_owned())].into()),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeSpec {
            access_modes: spec.access_modes,
            capacity: requests.get_key_value("storage").map(|(k, v)| [(k.clone(), v.clone())].into()),
            claim_ref: Some(reference(claim)),
            host_path: Some(HostPathVolumeSource {
                path: path.to_owned(),
                type_: Some("DirectoryOrCreate".to_owned()),
            }),
            persistent_volume_reclaim_policy: class.reclaim_policy.clone().or_else(|| Some("Delete".to_owned())),
            storage_class_name: Some(class.name_any()),
            volume_mode: Some("Filesystem".to_owned()),
            ..PersistentVolumeSpec::default()
        }),
        status: None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn claim(spec: Value) -> PersistentVolumeClaim {
        let mut all = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
        for (key, value) in spec.as_object().into_iter().flatten() {
            all[key] = value.clone();
        }
        serde_json::from_value(json!({"metadata": {"name": "c", "namespace": "n", "uid": "u"}, "spec": all})).unwrap()
    }

    fn class(name: &str, by: &str, default: bool) -> Arc<StorageClass> {
        let annotations = json!({DEFAULT_CLASS: default.to_string()});
        Arc::new(
            serde_json::from_value(json!({"metadata": {"name": name, "annotations": annotations}, "provisioner": by}))
                .unwrap(),
        )
    }

    fn offered(name: &str, size: &str, class: &str, claim_ref: Value) -> Arc<PersistentVolume> {
        Arc::new(
            serde_json::from_value(json!({"metadata": {"name": name}, "spec": {
                "capacity": {"storage": size}, "accessModes": ["ReadWriteOnce", "ReadOnlyMany"],
                "storageClassName": class, "claimRef": claim_ref}}))
            .unwrap(),
        )
    }

    #[test]
    fn a_claim_without_class_gets_a_directory_of_the_default_one() {
        let local = class("local", "ours", true);
        assert_eq!(bind(&claim(json!({})), &[], &[Arc::clone(&local)], "ours"), Binding::Provision { class: local });
    }

    #[test]
    fn the_smallest_free_volume_that_fits_comes_first() {
        let volumes = [
            offered("big", "9Gi", "", Value::Null),
            offered("fits", "2Gi", "", Value::Null),
            offered("small", "1Mi", "", Value::Null),
            offered("taken", "1Gi", "", json!({"name": "c", "namespace": "n", "uid": "other"})),
        ];
        let wanted = claim(json!({"storageClassName": ""}));
        assert_eq!(bind(&wanted, &volumes, &[], "ours"), Binding::Join(Arc::clone(&volumes[1])));
        let aside = offered("aside", "5Gi", "", json!({"name": "c", "namespace": "n"}));
        let volumes = [volumes[1].clone(), Arc::clone(&aside)];
        assert_eq!(bind(&wanted, &volumes, &[], "ours"), Binding::Join(aside), "set aside for it");
    }

    #[test]
    fn ephemeral_volumes_have_claims_of_the_pods_own() {
        let template = json!({"spec": {"accessModes": ["ReadWriteOnce"]}});
        let volumes =
            json!([{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}, {"name": "e", "emptyDir": {}}]);
        let pod: Pod = serde_json::from_value(
            json!({"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": [], "volumes": volumes}}),
        )
        .unwrap();
        let claims = own_claims(&pod);
        assert_eq!(claims.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["p-scratch"]);
        assert_eq!(claims[0].owner_references()[0].uid, "u");
        assert_eq!(claims_of(&pod).into_iter().collect::<Vec<_>>(), ["p-scratch"]);
    }

    #[test]
    fn a_half_done_binding_is_finished() {
        let half = offered("v", "1Gi", "", json!({"name": "c", "namespace": "n", "uid": "u"}));
        assert_eq!(bind(&claim(json!({})), &[Arc::clone(&half)], &[], "ours"), Binding::Join(half));
    }

    #[test]
    fn claims_that_cannot_be_met_say_why() {
        let say = |spec: Value, classes: &[Arc<StorageClass>]| match bind(&claim(spec), &[], classes, "ours") {
            Binding::Wait { message, .. } => message,
            other => panic!("{other:?}"),
        };
        assert_eq!(say(json!({"storageClassName": "x"}), &[]), "storageclass.storage.k8s.io \"x\" not found");
        assert!(say(json!({}), &[]).starts_with("no persistent volumes available"));
        assert!(say(json!({"volumeName": "v"}), &[]).contains("not found"));
        assert!(say(json!({}), &[class("ebs", "theirs", true)]).contains("'theirs'"));
    }
}
