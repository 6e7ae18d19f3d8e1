//! ConfigMaps and Secrets as pods use them: values by key, from either kind. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};

/// The two kinds, with the names a kubelet uses in messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ObjectKind {
    ConfigMap,
    Secret,
}

impl ObjectKind {
    pub(crate) fn lower(self) -> &'static str {
        match self {
            Self::ConfigMap => "configmap",
            Self::Secret => "secret",
        }
    }

    pub(crate) fn proper(self) -> &'static str {
        match self {
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
        }
    }
}

/// The ConfigMaps and Secrets that a pod refers to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Objects {
    pub(crate) config_maps: BTreeMap<String, ConfigMap>,
    pub(crate) secrets: BTreeMap<String, Secret>,
}

impl Objects {
    /// All values of an object, as files; `None` if the object does not exist.
    pub(crate) fn files(&self, holder: ObjectKind, name: &str) -> Option<BTreeMap<String, Vec<u8>>> {
        match holder {
            ObjectKind::ConfigMap => {
                let map = self.config_maps.get(name)?;
                let text = map.data.iter().flatten().map(|(k, v)| (k.clone(), v.clone().into_bytes()));
                let binary = map.binary_data.iter().flatten().map(|(k, v)| (k.clone(), v.0.clone()));
                Some(text.chain(binary).collect())
            }
            ObjectKind::Secret => {
                let data = self.secrets.get(name)?.data.iter().flatten();
                Some(data.map(|(k, v)| (k.clone(), v.0.clone())).collect())
            }
        }
    }

    /// Values usable as environment variables: not the binary data of ConfigMaps.
    pub(crate) fn texts(&self, holder: ObjectKind, name: &str) -> Option<BTreeMap<String, String>> {
        match holder {
            ObjectKind::ConfigMap => Some(self.config_maps.get(name)?.data.clone().unwrap_or_default()),
            ObjectKind::Secret => {
                let all = self.files(holder, name)?;
                Some(all.into_iter().map(|(k, v)| (k, String::from_utf8_lossy(&v).into_owned())).collect())
            }
        }
    }

    /// The version of a fetched object; `None` if it did not exist.
    pub(crate) fn version(&self, holder: ObjectKind, name: &str) -> Option<&str> {
        let meta = match holder {
            ObjectKind::ConfigMap => &self.config_maps.get(name)?.metadata,
            ObjectKind::Secret => &self.secrets.get(name)?.metadata,
        };
        meta.resource_version.as_deref()
    }
}
