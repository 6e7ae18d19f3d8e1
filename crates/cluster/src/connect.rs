//! The way to an API server: where it is, who we are, and a client for it.
//!
//! The rules are those of Spark's own client (fabric8): the kubeconfig (`KUBECONFIG`, else `~/.kube/config`) supplies the
//! credentials, else the service account of the pod we run in; a master URL replaces the server's address; explicit
//! settings replace both. Beyond that: credentials given explicitly replace the kubeconfig's altogether, so that a token in the
//! configuration is never overruled by a client certificate in the kubeconfig.
//!
//! Nothing is sent while a client is built.

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

/// What is known beforehand about the way to a cluster.
#[derive(Debug, Clone)]
pub struct Access {
    /// The server's address, without `k8s://`; replaces the kubeconfig's.
    pub master: Option<String>,
    /// A kubeconfig file instead of the usual ones.
    pub kubeconfig: Option<PathBuf>,
    pub context: Option<String>,
    pub ca_cert_file: Option<String>,
    pub client_key_file: Option<String>,
    pub client_cert_file: Option<String>,
    pub oauth_token: Option<String>,
    pub oauth_token_file: Option<String>,
    /// Believe any certificate of the server.
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

/// What is wrong with the given way to a cluster: a sentence that says what to do about it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BadAccess(pub String);

/// An API server one can talk to.
#[derive(Clone)]
pub struct Cluster {
    pub client: Client,
    /// Its address, for messages.
    pub server: String,
    /// The namespace of the kubeconfig's context or of the pod we run in.
    pub namespace: String,
    request_timeout: Duration,
}

impl Cluster {
    /// A client for what `access` describes. Must run inside a tokio runtime.
    pub fn reach(access: &Access) -> anyhow::Result<Cluster> {
        let config = configure(access)?;
        let server = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        let namespace = config.default_namespace.clone();
        let client = client(config).with_context(|| format!("cannot set up a connection to {server}"))?;
        Ok(Cluster { client, server, namespace, request_timeout: access.request_timeout })
    }

    /// Waits for one request, at most the request timeout.
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

/// The whole configuration of a client: address, trust, identity, proxy.
fn configure(access: &Access) -> anyhow::Result<Config> {
    let Found { cluster, auth, namespace } = kubeconfig::find(access)?;

    let address = access.master.clone().or_else(|| cluster.server.clone()).ok_or_else(|| {
        BadAccess("no API server is known: set KUBECONFIG, or give --master k8s://https://HOST:PORT".to_owned())
    })?;
    let url: Uri = address
        .parse()
        .ok()
        .filter(|url: &Uri| url.host().is_some() && matches!(url.scheme_str(), Some("http" | "https")))
        .ok_or_else(|| {
            BadAccess(format!("the API server's address is not a URL: {address}; it looks like https://HOST:PORT"))
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

/// A client for a configuration. Without a proxy the connection may speak HTTP/2, so that requests sent together share it.
fn client(config: Config) -> kube::Result<Client> {
    // Two parts of the program may bring their own; one has to be the process's.
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
    let connector = tls.enable_http1().enable_http2().wrap_connector(tcp);
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
