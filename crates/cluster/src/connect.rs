//! Connecting to an API server: its address, our credentials, and a client.
//!
//! The rules are those of Spark's own client (fabric8): credentials come from the kubeconfig (`KUBECONFIG`, else
//! `~/.kube/config`), else from the pod's service account; a master URL overrides the server's address; explicit settings
//! override both. In addition, explicit credentials replace all of the kubeconfig's, so that a client certificate in the
//! kubeconfig never takes precedence over a configured token.
//!
//! Building a client sends no requests.

mod kubeconfig;
mod proxy;

use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use http::Uri;
use kube::client::{ConfigExt as _, retry::RetryPolicy};
use kube::{Client, Config};
use tower::{BoxError, ServiceBuilder, retry::RetryLayer};

use self::kubeconfig::Found;

/// Settings for connecting to a cluster.
#[derive(Debug, Clone)]
pub struct Access {
    /// The server's address, without `k8s://`; overrides the kubeconfig's.
    pub master: Option<String>,
    /// A kubeconfig file to use instead of the default ones.
    pub kubeconfig: Option<PathBuf>,
    pub context: Option<String>,
    pub ca_cert_file: Option<String>,
    pub client_key_file: Option<String>,
    pub client_cert_file: Option<String>,
    pub oauth_token: Option<String>,
    pub oauth_token_file: Option<String>,
    /// Accept any server certificate.
    pub trust_certificates: bool,
    pub connection_timeout: Duration,
    pub request_timeout: Duration,
}

impl Default for Access {
    fn default() -> Self {
        Access {
            master: None,
            kubeconfig: None,
            context: None,
            ca_cert_file: None,
            client_key_file: None,
            client_cert_file: None,
            oauth_token: None,
            oauth_token_file: None,
            trust_certificates: false,
            connection_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(10),
        }
    }
}

/// What is wrong with the connection settings: a sentence that says how to fix them.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BadAccess(pub String);

/// A connection to an API server.
#[derive(Clone)]
pub struct Cluster {
    pub client: Client,
    /// Its address, for messages.
    pub server: String,
    /// The namespace of the kubeconfig's context, or of this pod.
    pub namespace: String,
    request_timeout: Duration,
}

impl Cluster {
    /// A client for what `access` describes. Must run inside a tokio runtime.
    pub fn reach(access: &Access) -> anyhow::Result<Cluster> {
        let config = configure(access)?;
        let server = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        let namespace = config.default_namespace.clone();
        let client = client(config, true).with_context(|| format!("cannot set up a connection to {server}"))?;
        Ok(Cluster { client, server, namespace, request_timeout: access.request_timeout })
    }

    /// A client whose connections can be upgraded to WebSockets, for port-forwarding: those of HTTP/2 cannot.
    pub fn upgradable(access: &Access) -> anyhow::Result<Client> {
        let config = configure(access)?;
        let server = config.cluster_url.to_string();
        client(config, false).with_context(|| format!("cannot set up a connection to {server}"))
    }

    /// Awaits one request, up to the request timeout.
    pub async fn ask<T>(&self, request: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
        match tokio::time::timeout(self.request_timeout, request).await {
            Ok(answer) => answer,
            Err(_) => {
                let text = format!("no answer within {:?}", self.request_timeout);
                Err(kube::Error::Service(io::Error::new(io::ErrorKind::TimedOut, text).into()))
            }
        }
    }
}

/// A client's configuration: address, trusted CAs, credentials, proxy.
fn configure(access: &Access) -> anyhow::Result<Config> {
    let Found { cluster, auth, namespace } = kubeconfig::find(access)?;

    let address = access.master.clone().or_else(|| cluster.server.clone()).ok_or_else(|| {
        BadAccess("no API server is configured: set KUBECONFIG, or use --master k8s://https://HOST:PORT".to_owned())
    })?;
    let url: Uri = address
        .parse()
        .ok()
        .filter(|url: &Uri| url.host().is_some() && matches!(url.scheme_str(), Some("http" | "https")))
        .ok_or_else(|| {
            BadAccess(format!("the API server's address is not a URL: {address}; expected https://HOST:PORT"))
        })?;

    let mut config = Config::new(url);
    config.proxy_url =
        proxy::choose(&config.cluster_url, cluster.proxy_url.as_deref(), &|name| std::env::var(name).ok())?;
    config.default_namespace = namespace.unwrap_or_else(|| "default".to_owned());
    config.connect_timeout = Some(access.connection_timeout);
    config.accept_invalid_certs = access.trust_certificates || cluster.insecure_skip_tls_verify.unwrap_or(false);
    config.disable_compression = true;
    config.tls_server_name.clone_from(&cluster.tls_server_name);
    config.root_cert = kubeconfig::authorities(access, &cluster)?;
    config.auth_info = auth;
    Ok(config)
}

/// A client for a configuration. Without a proxy it may use HTTP/2, so that concurrent requests share one connection.
fn client(config: Config, http2: bool) -> kube::Result<Client> {
    // Dependencies may enable several providers; the process needs one default.
    let _ = rustls::crypto::ring::default_provider().install_default();
    if config.proxy_url.is_some() {
        return Client::try_from(config);
    }
    let mut tcp = hyper_util::client::legacy::connect::HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(config.connect_timeout);
    let mut tls =
        hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(config.rustls_client_config()?).https_or_http();
    if let Some(name) = config.tls_server_name.clone() {
        let name = name.try_into().map_err(|error| kube::Error::Service(Box::new(error)))?;
        tls = tls.with_server_name_resolver(hyper_rustls::FixedServerNameResolver::new(name));
    }
    let tls = tls.enable_http1();
    let connector = if http2 { tls.enable_http2().wrap_connector(tcp) } else { tls.wrap_connector(tcp) };
    let transport = hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new())
        .build::<_, kube::client::Body>(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .layer(RetryLayer::new(RetryPolicy::server_retry()))
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(transport);
    Ok(Client::new(service, config.default_namespace))
}
