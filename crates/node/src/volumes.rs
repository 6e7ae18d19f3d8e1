//! A pod's volumes: what to fetch for them, what they contain, and where they are mounted.
//!
//! [`needs`], [`plan`] and [`mounts`] are pure; [`materialise`] writes a planned volume to disk.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use k8s_openapi::api::core::v1::{
    Container, DownwardAPIVolumeFile, HostPathVolumeSource, KeyToPath, PersistentVolume, Pod, Volume,
};

use crate::environment::{PodFacts, expand, field_value, resource_value};
use crate::objects::{ObjectKind, Objects};
use crate::shim_protocol::Mount;

mod atomic;
pub(crate) mod beneath;
mod disk;

pub(crate) use disk::{make_sub_path, materialise};

/// The objects a pod refers to, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    pub(crate) config_maps: BTreeSet<String>,
    pub(crate) secrets: BTreeSet<String>,
    pub(crate) claims: BTreeSet<String>,
    pub(crate) tokens: Vec<TokenNeed>,
}

/// A service account token for a projected volume.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TokenNeed {
    pub(crate) volume: String,
    pub(crate) path: String,
    pub(crate) audience: Option<String>,
    pub(crate) seconds: i64,
}

/// Why a volume is not available.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum VolumeError {
    #[error("{kind} \"{name}\" not found")]
    NoObject { kind: &'static str, name: String },
    #[error("configmap references non-existent config key: {0}")]
    NoConfigKey(String),
    #[error("references non-existent secret key: {0}")]
    NoSecretKey(String),
    #[error("{0}")]
    Downward(String),
    #[error("hostPath type check failed: {path} is not a {wanted}")]
    HostPath { path: String, wanted: &'static str },
    #[error("failed to fetch PVC from API server: persistentvolumeclaims \"{0}\" not found")]
    NoClaim(String),
    #[error("persistentvolumeclaim \"{0}\" is not bound")]
    Unbound(String),
    #[error("persistentvolume \"{0}\" is neither hostPath nor local; this node supports no other types")]
    ForeignVolume(String),
    #[error("this node does not support volumes of this type")]
    Unsupported,
    #[error("{0}")]
    Path(String),
}

/// A file in a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileSpec {
    pub(crate) bytes: Vec<u8>,
    pub(crate) mode: u32,
}

/// A volume with all references resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Planned {
    Files(BTreeMap<String, FileSpec>),
    Empty { memory: bool },
    Host { path: PathBuf, kind: HostKind },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostKind {
    Any,
    Directory,
    DirectoryOrCreate,
    File,
    FileOrCreate,
    Socket,
    Device,
}

const DEFAULT_MODE: i32 = 0o644;

/// All objects referenced by a pod's volumes and environment.
pub(crate) fn needs(pod: &Pod) -> Needs {
    let mut needs = Needs::default();
    let Some(spec) = pod.spec.as_ref() else { return needs };
    for container in spec.containers.iter().chain(spec.init_containers.iter().flatten()) {
        for source in container.env_from.iter().flatten() {
            needs.config_maps.extend(source.config_map_ref.as_ref().map(|r| r.name.clone()));
            needs.secrets.extend(source.secret_ref.as_ref().map(|r| r.name.clone()));
        }
        for source in container.env.iter().flatten().filter_map(|e| e.value_from.as_ref()) {
            needs.config_maps.extend(source.config_map_key_ref.as_ref().map(|r| r.name.clone()));
            needs.secrets.extend(source.secret_key_ref.as_ref().map(|r| r.name.clone()));
        }
    }
    for volume in spec.volumes.iter().flatten() {
        needs.config_maps.extend(volume.config_map.as_ref().map(|c| c.name.clone()));
        needs.secrets.extend(volume.secret.as_ref().and_then(|s| s.secret_name.clone()));
        needs.claims.extend(volume.persistent_volume_claim.as_ref().map(|c| c.claim_name.clone()));
        if volume.ephemeral.is_some() {
            needs.claims.insert(format!("{}-{}", pod.metadata.name.clone().unwrap_or_default(), volume.name));
        }
        for source in volume.projected.iter().flat_map(|p| p.sources.iter().flatten()) {
            needs.config_maps.extend(source.config_map.as_ref().map(|c| c.name.clone()));
            needs.secrets.extend(source.secret.as_ref().map(|s| s.name.clone()));
            needs.tokens.extend(source.service_account_token.as_ref().map(|t| TokenNeed {
                volume: volume.name.clone(),
                path: t.path.clone(),
                audience: t.audience.clone().filter(|a| !a.is_empty()),
                seconds: t.expiration_seconds.unwrap_or(3600),
            }));
        }
    }
    needs
}

/// The resolved objects for a pod's volumes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Supplies {
    pub(crate) objects: Objects,
    pub(crate) tokens: BTreeMap<(String, String), String>,
    /// Bound volumes by claim name; an unbound claim has none.
    pub(crate) claims: BTreeMap<String, Option<PersistentVolume>>,
}

/// Decides what a volume contains.
pub(crate) fn plan(pod: &Pod, volume: &Volume, supplies: &Supplies, facts: &PodFacts) -> Result<Planned, VolumeError> {
    let objects = &supplies.objects;
    let keyed = |holder, name: &str, items: &Option<Vec<KeyToPath>>, optional: Option<bool>, mode| {
        keyed_files(objects, holder, name, items.as_deref().unwrap_or_default(), optional == Some(true), mode)
    };
    if let Some(source) = &volume.config_map {
        let mode = source.default_mode.unwrap_or(DEFAULT_MODE);
        return keyed(ObjectKind::ConfigMap, &source.name, &source.items, source.optional, mode).map(Planned::Files);
    }
    if let Some(source) = &volume.secret {
        let (name, mode) = (source.secret_name.as_deref(), source.default_mode.unwrap_or(DEFAULT_MODE));
        return keyed(ObjectKind::Secret, name.unwrap_or_default(), &source.items, source.optional, mode)
            .map(Planned::Files);
    }
    if let Some(source) = &volume.projected {
        let mode = source.default_mode.unwrap_or(DEFAULT_MODE);
        let mut files = BTreeMap::new();
        for part in source.sources.iter().flatten() {
            if let Some(p) = &part.config_map {
                files.extend(keyed(ObjectKind::ConfigMap, &p.name, &p.items, p.optional, mode)?);
            }
            if let Some(p) = &part.secret {
                files.extend(keyed(ObjectKind::Secret, &p.name, &p.items, p.optional, mode)?);
            }
            if let Some(p) = &part.downward_api {
                files.extend(downward_files(pod, p.items.as_deref().unwrap_or_default(), facts, mode)?);
            }
            if let Some(p) = &part.service_account_token {
                let token = supplies
                    .tokens
                    .get(&(volume.name.clone(), p.path.clone()))
                    .ok_or(VolumeError::NoObject { kind: "token", name: p.path.clone() })?;
                files.insert(file_path(&p.path)?, FileSpec { bytes: token.clone().into_bytes(), mode: bits(mode) });
            }
        }
        return Ok(Planned::Files(files));
    }
    if let Some(source) = &volume.downward_api {
        let mode = source.default_mode.unwrap_or(DEFAULT_MODE);
        return downward_files(pod, source.items.as_deref().unwrap_or_default(), facts, mode).map(Planned::Files);
    }
    if let Some(source) = &volume.empty_dir {
        return Ok(Planned::Empty { memory: source.medium.as_deref() == Some("Memory") });
    }
    if let Some(source) = &volume.host_path {
        return host_path(source);
    }
    let claim = volume.persistent_volume_claim.as_ref().map(|c| c.claim_name.clone());
    let claim = claim.or_else(|| {
        volume.ephemeral.as_ref().map(|_| format!("{}-{}", pod.metadata.name.clone().unwrap_or_default(), volume.name))
    });
    if let Some(claim) = claim {
        let bound = supplies.claims.get(&claim).ok_or_else(|| VolumeError::NoClaim(claim.clone()))?;
        let bound = bound.as_ref().ok_or(VolumeError::Unbound(claim))?;
        let spec = bound.spec.as_ref();
        let path = spec.and_then(|s| s.host_path.as_ref().map(|h| &h.path).or(s.local.as_ref().map(|l| &l.path)));
        let path = path.ok_or_else(|| VolumeError::ForeignVolume(bound.metadata.name.clone().unwrap_or_default()))?;
        return Ok(Planned::Host { path: PathBuf::from(path), kind: HostKind::DirectoryOrCreate });
    }
    // A volume without a source is an emptyDir.
    let plain = serde_json::to_value(volume).ok().and_then(|v| v.as_object().map(|o| o.len() <= 1)).unwrap_or(false);
    if plain { Ok(Planned::Empty { memory: false }) } else { Err(VolumeError::Unsupported) }
}

fn host_path(source: &HostPathVolumeSource) -> Result<Planned, VolumeError> {
    let kind = match source.type_.as_deref().unwrap_or_default() {
        "" => HostKind::Any,
        "Directory" => HostKind::Directory,
        "DirectoryOrCreate" => HostKind::DirectoryOrCreate,
        "File" => HostKind::File,
        "FileOrCreate" => HostKind::FileOrCreate,
        "Socket" => HostKind::Socket,
        "CharDevice" | "BlockDevice" => HostKind::Device,
        other => return Err(VolumeError::Path(format!("unknown hostPath type {other}"))),
    };
    Ok(Planned::Host { path: PathBuf::from(&source.path), kind })
}

type Files = BTreeMap<String, FileSpec>;

/// The files of a ConfigMap or Secret: all keys, or those in `items`.
fn keyed_files(
    objects: &Objects,
    holder: ObjectKind,
    name: &str,
    items: &[KeyToPath],
    optional: bool,
    mode: i32,
) -> Result<Files, VolumeError> {
    let Some(mut all) = objects.files(holder, name) else {
        let missing = VolumeError::NoObject { kind: holder.lower(), name: name.to_owned() };
        return if optional { Ok(Files::new()) } else { Err(missing) };
    };
    if items.is_empty() {
        return all.into_iter().map(|(k, bytes)| Ok((file_path(&k)?, FileSpec { bytes, mode: bits(mode) }))).collect();
    }
    let mut files = Files::new();
    for item in items {
        match (all.remove(&item.key), holder) {
            (Some(bytes), _) => {
                files.insert(file_path(&item.path)?, FileSpec { bytes, mode: bits(item.mode.unwrap_or(mode)) });
            }
            (None, _) if optional => {}
            (None, ObjectKind::ConfigMap) => return Err(VolumeError::NoConfigKey(item.key.clone())),
            (None, ObjectKind::Secret) => return Err(VolumeError::NoSecretKey(item.key.clone())),
        }
    }
    Ok(files)
}

fn downward_files(
    pod: &Pod,
    items: &[DownwardAPIVolumeFile],
    facts: &PodFacts,
    mode: i32,
) -> Result<Files, VolumeError> {
    let none = Container::default();
    let mut files = Files::new();
    for item in items {
        let text = match (&item.field_ref, &item.resource_field_ref) {
            (Some(field), _) => field_value(pod, field, facts),
            (None, Some(resource)) => resource_value(pod, &none, resource, facts),
            (None, None) => Ok(String::new()),
        };
        let bytes = text.map_err(|e| VolumeError::Downward(e.to_string()))?.into_bytes();
        files.insert(file_path(&item.path)?, FileSpec { bytes, mode: bits(item.mode.unwrap_or(mode)) });
    }
    Ok(files)
}

fn bits(mode: i32) -> u32 {
    mode.cast_unsigned() & 0o777
}

/// A relative path without `..`.
fn safe_path(path: &str) -> Result<String, VolumeError> {
    let bad =
        path.is_empty() || Path::new(path).components().any(|c| !matches!(c, Component::Normal(_) | Component::CurDir));
    if bad { Err(VolumeError::Path(format!("path \"{path}\" leads out of the volume"))) } else { Ok(path.to_owned()) }
}

/// The path of a file in a volume. Names that start with two dots are reserved for the volume writer.
fn file_path(path: &str) -> Result<String, VolumeError> {
    let path = safe_path(path)?;
    if path.starts_with("..") {
        return Err(VolumeError::Path(format!("path \"{path}\" must not begin with \"..\"")));
    }
    Ok(path)
}

/// The objects whose changes affect a volume's files.
pub(crate) fn held_in_volumes(pod: &Pod) -> BTreeSet<(ObjectKind, String)> {
    let mut all = BTreeSet::new();
    for volume in pod.spec.iter().flat_map(|s| s.volumes.iter().flatten()) {
        all.extend(volume.config_map.as_ref().map(|c| (ObjectKind::ConfigMap, c.name.clone())));
        all.extend(volume.secret.as_ref().and_then(|s| s.secret_name.clone()).map(|n| (ObjectKind::Secret, n)));
        for source in volume.projected.iter().flat_map(|p| p.sources.iter().flatten()) {
            all.extend(source.config_map.as_ref().map(|c| (ObjectKind::ConfigMap, c.name.clone())));
            all.extend(source.secret.as_ref().map(|s| (ObjectKind::Secret, s.name.clone())));
        }
    }
    all
}

/// Whether a volume shows pod fields, which may change while the pod runs.
pub(crate) fn shows_pod(pod: &Pod) -> bool {
    pod.spec.iter().flat_map(|s| s.volumes.iter().flatten()).any(|v| {
        v.downward_api.is_some()
            || v.projected.iter().flat_map(|p| p.sources.iter().flatten()).any(|s| s.downward_api.is_some())
    })
}

/// Whether a volume of this kind is writable, by Kubernetes' rules.
fn writable(volume: &Volume) -> bool {
    volume.config_map.is_none()
        && volume.secret.is_none()
        && volume.projected.is_none()
        && volume.downward_api.is_none()
}

/// A container's mounts, parents before children.
pub(crate) fn mounts(
    pod: &Pod,
    container: &Container,
    variables: &[(String, String)],
    sources: &BTreeMap<String, PathBuf>,
) -> Result<Vec<Mount>, VolumeError> {
    let volumes = pod.spec.as_ref().and_then(|s| s.volumes.as_deref()).unwrap_or_default();
    let mut mounts = Vec::new();
    for wanted in container.volume_mounts.iter().flatten() {
        let volume = volumes.iter().find(|v| v.name == wanted.name);
        let source = sources
            .get(&wanted.name)
            .ok_or_else(|| VolumeError::NoObject { kind: "volume", name: wanted.name.clone() })?;
        let part = match (&wanted.sub_path, &wanted.sub_path_expr) {
            (_, Some(expression)) if !expression.is_empty() => Some(expand(expression, variables)),
            (Some(path), _) if !path.is_empty() => Some(path.clone()),
            _ => None,
        };
        let volume_dir = source.clone();
        let source = match part {
            Some(part) => source.join(safe_path(&part)?),
            None => source.clone(),
        };
        let claimed_read_only =
            volume.and_then(|v| v.persistent_volume_claim.as_ref()).is_some_and(|c| c.read_only == Some(true));
        let read_only = wanted.read_only == Some(true) || claimed_read_only || volume.is_some_and(|v| !writable(v));
        mounts.push(Mount { source, volume: Some(volume_dir), target: wanted.mount_path.clone(), read_only });
    }
    mounts.sort_by_key(|m| m.target.split('/').filter(|p| !p.is_empty()).count());
    Ok(mounts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{ConfigMap, Secret};

    fn pod() -> Pod {
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": "p", "namespace": "n", "labels": {"a": "b"}},
            "spec": {
                "containers": [{"name": "c", "volumeMounts": [
                    {"name": "cfg", "mountPath": "/opt/spark/conf/deep"},
                    {"name": "all", "mountPath": "/opt"},
                    {"name": "scratch", "mountPath": "/data", "subPathExpr": "$(NAME)/x"},
                    {"name": "scratch", "mountPath": "/ro", "readOnly": true}
                ]}],
                "volumes": [
                    {"name": "cfg", "configMap": {"name": "m", "items": [{"key": "k", "path": "d/f", "mode": 0o600}]}},
                    {"name": "all", "projected": {"sources": [
                        {"serviceAccountToken": {"path": "token"}},
                        {"configMap": {"name": "kube-root-ca.crt"}},
                        {"secret": {"name": "s", "optional": true}},
                        {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}}
                    ]}},
                    {"name": "scratch", "emptyDir": {"medium": "Memory"}},
                    {"name": "claim", "persistentVolumeClaim": {"claimName": "data"}},
                    {"name": "bare"}
                ]
            }
        }))
        .expect("a pod")
    }

    fn supplies() -> Supplies {
        let map = |v| serde_json::from_value::<ConfigMap>(v).expect("a map");
        Supplies {
            objects: Objects {
                config_maps: BTreeMap::from([
                    ("m".to_owned(), map(serde_json::json!({"data": {"k": "v", "other": "w"}}))),
                    ("kube-root-ca.crt".to_owned(), map(serde_json::json!({"data": {"ca.crt": "CA"}}))),
                ]),
                secrets: BTreeMap::from([("x".to_owned(), Secret::default())]),
            },
            tokens: BTreeMap::from([(("all".to_owned(), "token".to_owned()), "T".to_owned())]),
            claims: BTreeMap::new(),
        }
    }

    fn planned(name: &str, supplies: &Supplies) -> Result<Planned, VolumeError> {
        let pod = pod();
        let volume = pod
            .spec
            .as_ref()
            .and_then(|s| s.volumes.as_ref())
            .and_then(|v| v.iter().find(|v| v.name == name))
            .cloned()
            .expect("volume");
        plan(&pod, &volume, supplies, &PodFacts::default())
    }

    #[test]
    fn volumes_hold_what_their_sources_say() {
        let file = |text: &str, mode| FileSpec { bytes: text.as_bytes().to_vec(), mode };
        assert_eq!(
            planned("cfg", &supplies()),
            Ok(Planned::Files(BTreeMap::from([("d/f".to_owned(), file("v", 0o600))])))
        );
        let all = BTreeMap::from([
            ("ca.crt".to_owned(), file("CA", 0o644)),
            ("labels".to_owned(), file("a=\"b\"", 0o644)),
            ("token".to_owned(), file("T", 0o644)),
        ]);
        assert_eq!(planned("all", &supplies()), Ok(Planned::Files(all)));
        assert_eq!(planned("scratch", &supplies()), Ok(Planned::Empty { memory: true }));
        assert_eq!(planned("bare", &supplies()), Ok(Planned::Empty { memory: false }));
        assert_eq!(planned("claim", &supplies()), Err(VolumeError::NoClaim("data".to_owned())));
    }

    #[test]
    fn what_is_not_there_is_said() {
        let mut less = supplies();
        less.objects.config_maps.remove("m");
        assert_eq!(planned("cfg", &less).expect_err("missing").to_string(), "configmap \"m\" not found");
        less.objects.config_maps.insert("m".to_owned(), ConfigMap::default());
        assert_eq!(
            planned("cfg", &less).expect_err("no key").to_string(),
            "configmap references non-existent config key: k"
        );
    }

    #[test]
    fn parents_are_mounted_before_children_and_sources_of_the_cluster_are_read_only() {
        let pod = pod();
        let container = &pod.spec.as_ref().expect("spec").containers[0];
        let sources = ["cfg", "all", "scratch"].map(|n| (n.to_owned(), PathBuf::from("/v").join(n))).into();
        let mounts = mounts(&pod, container, &[("NAME".to_owned(), "p".to_owned())], &sources).expect("mounts");
        let seen: Vec<(&str, &str, bool)> =
            mounts.iter().map(|m| (m.target.as_str(), m.source.to_str().unwrap_or_default(), m.read_only)).collect();
        assert_eq!(
            seen,
            [
                ("/opt", "/v/all", true),
                ("/data", "/v/scratch/p/x", false),
                ("/ro", "/v/scratch", true),
                ("/opt/spark/conf/deep", "/v/cfg", true)
            ]
        );
    }

    #[test]
    fn nothing_leads_out_of_a_volume() {
        assert!(safe_path("../x").is_err());
        assert!(safe_path("/etc/passwd").is_err());
        assert!(safe_path("a/../../b").is_err());
        assert!(safe_path("..data/x").is_ok());
    }

    #[test]
    fn everything_a_pod_refers_to_is_found() {
        let needs = needs(&pod());
        assert_eq!(needs.config_maps.into_iter().collect::<Vec<_>>(), ["kube-root-ca.crt", "m"]);
        assert_eq!(needs.claims.into_iter().collect::<Vec<_>>(), ["data"]);
        assert_eq!(needs.tokens[0].path, "token");
    }
}
