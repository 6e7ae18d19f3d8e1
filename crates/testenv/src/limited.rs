//! Kubeconfigs for service accounts, to test missing permissions.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::json;
use tempfile::NamedTempFile;

use crate::TestEnv;

/// A kubeconfig file with a service account's token; deleted when dropped.
#[derive(Debug)]
pub struct LimitedKubeconfig {
    file: NamedTempFile,
    token: String,
}

impl LimitedKubeconfig {
    /// With a token bound to a pod, like those a kubelet mounts, or to none.
    pub(crate) async fn make(env: &TestEnv, namespace: &str, account: &str, pod: Option<&Pod>) -> LimitedKubeconfig {
        let accounts: Api<ServiceAccount> = Api::namespaced(env.client().await, namespace);
        let bound = pod.map(|Pod { metadata, .. }| {
            json!({ "apiVersion": "v1", "kind": "Pod", "name": metadata.name, "uid": metadata.uid })
        });
        let spec = json!({ "audiences": [], "expirationSeconds": 3600, "boundObjectRef": bound });
        let request: TokenRequest = serde_json::from_value(json!({ "spec": spec })).expect("a token request");
        let answer = accounts.create_token_request(account, &PostParams::default(), &request).await;
        let answer = answer.unwrap_or_else(|error| panic!("a token for {namespace}/{account}: {error}"));
        let token = answer.status.and_then(|status| status.token).expect("the API server answers with a token");
        // JSON is valid YAML, so every client can read it.
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": "testenv", "cluster": { "server": env.server(), "certificate-authority-data": authority(env) } }],
            "users": [{ "name": account, "user": { "token": token } }],
            "contexts": [{ "name": "testenv", "context": { "cluster": "testenv", "user": account, "namespace": namespace } }],
            "current-context": "testenv",
        });
        let mut file = NamedTempFile::new().expect("a temporary file");
        file.write_all(config.to_string().as_bytes()).expect("write the kubeconfig");
        LimitedKubeconfig { file, token }
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// A client that uses this kubeconfig.
    pub async fn client(&self) -> Client {
        let config = Kubeconfig::read_from(self.path()).expect("our own kubeconfig");
        let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.expect("a config");
        Client::try_from(config).expect("a client")
    }

    /// The bearer token in it.
    pub fn token(&self) -> &str {
        &self.token
    }
}

/// The CA certificate of the first cluster, in base64.
fn authority(env: &TestEnv) -> Option<String> {
    let config = Kubeconfig::read_from(env.kubeconfig()).expect("the admin kubeconfig");
    let cluster = config.clusters.into_iter().next()?.cluster?;
    let from_file = || Some(STANDARD.encode(fs::read(cluster.certificate_authority.as_ref()?).ok()?));
    cluster.certificate_authority_data.clone().or_else(from_file)
}
