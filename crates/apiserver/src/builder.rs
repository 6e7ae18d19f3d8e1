//! Starts and stops the server from Rust.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use axum::body::Body;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::authentication::{MASTERS, Tokens, User};
use crate::journal::{Journal, JournalError};
use crate::pki::{Credentials, Pki, PkiError};
use crate::state::State;
use crate::store::Store;

/// The user of the administrator's kubeconfig.
const ADMINISTRATOR: &str = "kubernetes-admin";

/// Names the server's certificate always covers.
const OWN_NAMES: [&str; 8] = [
    "localhost",
    "127.0.0.1",
    "::1",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    "10.96.0.1",
];

/// Why the server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address cannot be bound.
    #[error("listen on {address}: {source}")]
    Listen { address: SocketAddr, source: std::io::Error },
    /// The data directory cannot be used.
    #[error(transparent)]
    Data(#[from] JournalError),
    /// Certificates cannot be created or read.
    #[error(transparent)]
    Certificates(#[from] PkiError),
    /// The initial objects could not be stored.
    #[error("create the initial objects: {0}")]
    Bootstrap(String),
}

/// An API server that is not running yet.
#[derive(Debug, Clone, Copy)]
pub struct ApiServer;

impl ApiServer {
    /// A builder with defaults: in memory, on a free port of 127.0.0.1.
    pub fn builder() -> Builder {
        Builder {
            bind: SocketAddr::from(([127, 0, 0, 1], 0)),
            data_dir: None,
            names: Vec::new(),
            tokens: Tokens::default(),
            enforce: true,
            history: crate::store::HISTORY,
        }
    }
}

/// The configuration of a server.
#[derive(Debug)]
pub struct Builder {
    bind: SocketAddr,
    data_dir: Option<PathBuf>,
    names: Vec<String>,
    tokens: Tokens,
    enforce: bool,
    history: usize,
}

impl Builder {
    /// The address to listen on; port 0 asks the system for a free one.
    #[must_use]
    pub fn bind(mut self, address: SocketAddr) -> Self {
        self.bind = address;
        self
    }

    /// Persists objects, certificates and keys here. `None` keeps everything in memory.
    #[must_use]
    pub fn data_dir(mut self, directory: Option<PathBuf>) -> Self {
        self.data_dir = directory;
        self
    }

    /// An additional name or address for the server's certificate.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.names.push(name.into());
        self
    }

    /// A static bearer token for a user with groups.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>, user: &str, groups: &[&str]) -> Self {
        self.tokens.insert(&token.into(), User::new(user, groups));
        self
    }

    /// Whether RBAC is enforced (the default). Otherwise everyone may do everything.
    #[must_use]
    pub fn authorization(mut self, enforce: bool) -> Self {
        self.enforce = enforce;
        self
    }

    /// How many changes to keep per resource. Older watches and list pages get 410.
    #[must_use]
    pub fn history(mut self, changes: usize) -> Self {
        self.history = changes;
        self
    }

    /// Starts serving.
    ///
    /// # Errors
    /// If the address is taken, or the data directory is in use, unreadable or from a newer version.
    pub async fn start(self) -> Result<RunningServer, StartError> {
        let store = match &self.data_dir {
            Some(directory) => Store::journaled(Journal::open(directory)?, self.history)?,
            None => Store::in_memory(self.history),
        };
        let pki = Pki::load_or_make(self.data_dir.as_deref())?;
        let listen = |source| StartError::Listen { address: self.bind, source };
        let listener = TcpListener::bind(self.bind).await.map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let mut names: Vec<String> = OWN_NAMES.iter().map(|n| (*n).to_owned()).collect();
        names.extend(self.names);
        if !address.ip().is_unspecified() {
            names.push(address.ip().to_string());
        }
        names.sort();
        names.dedup();
        let tls = pki.server_config(&names)?;
        let mut tokens = self.tokens;
        tokens.insert(&pki.admin_token, User::new(ADMINISTRATOR, &[MASTERS]));
        let kubelet_client = pki.client("kube-apiserver-kubelet-client", &[MASTERS])?;
        let kubelet_tls = Arc::new(crate::dial::kubelet_tls(&kubelet_client).map_err(PkiError::from)?);
        let stop = CancellationToken::new();
        let state = Arc::new(State {
            store: Arc::new(store),
            kinds: arc_swap::ArcSwap::from_pointee(crate::kinds::Kinds::built_in()),
            pki,
            tokens,
            addresses: std::sync::Mutex::default(),
            documents: crate::openapi::Documents::default(),
            kubelet_tls,
            quota_turn: tokio::sync::Mutex::default(),
            enforce: self.enforce,
            stopping: stop.clone(),
        });
        crate::bootstrap::run(&state, address)
            .await
            .map_err(|failure| StartError::Bootstrap(failure.message.clone()))?;
        let serving = tokio::spawn(crate::server::accept(listener, tls, state.clone(), stop.clone()));
        Ok(RunningServer { address, state, stop, serving })
    }
}

/// A running server. Dropping it stops it; [`RunningServer::shutdown`] also waits.
pub struct RunningServer {
    address: SocketAddr,
    state: Arc<State>,
    stop: CancellationToken,
    serving: JoinHandle<()>,
}

impl std::fmt::Debug for RunningServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunningServer").field("address", &self.address).finish_non_exhaustive()
    }
}

impl RunningServer {
    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `https://…` for clients on this machine.
    pub fn url(&self) -> String {
        let ip =
            if self.address.ip().is_unspecified() { "127.0.0.1".to_owned() } else { self.address.ip().to_string() };
        if ip.contains(':') {
            format!("https://[{ip}]:{}", self.address.port())
        } else {
            format!("https://{ip}:{}", self.address.port())
        }
    }

    /// The cluster's CA certificate (PEM).
    pub fn ca_pem(&self) -> &str {
        self.state.pki.ca_pem()
    }

    /// A self-contained kubeconfig for the administrator. It uses a token, which all clients support; with a data directory the token is
    /// stable.
    pub fn admin_kubeconfig(&self) -> String {
        let token = serde_json::Value::from(&*self.state.pki.admin_token);
        self.kubeconfig_with(ADMINISTRATOR, &format!("token: {token}"))
    }

    /// A kubeconfig with a client certificate for a user and groups. Spark's Java client cannot read its key (ECDSA in PKCS #8).
    ///
    /// # Errors
    /// If the certificate cannot be created.
    pub fn kubeconfig_for(&self, user: &str, groups: &[&str]) -> Result<String, PkiError> {
        let made = self.state.pki.client(user, groups)?;
        let (certificate, key) = (STANDARD.encode(&made.certificate), STANDARD.encode(&made.key));
        Ok(self.kubeconfig_with(user, &format!("client-certificate-data: {certificate}\n    client-key-data: {key}")))
    }

    /// A client certificate for a user and groups.
    ///
    /// # Errors
    /// If the certificate cannot be created.
    pub fn client_certificate(&self, user: &str, groups: &[&str]) -> Result<Credentials, PkiError> {
        self.state.pki.client(user, groups)
    }

    /// A certificate signed by the cluster's CA for serving (and connecting), such as a kubelet's.
    ///
    /// # Errors
    /// If the certificate cannot be created.
    pub fn serving_certificate(&self, user: &str, groups: &[&str], names: &[String]) -> Result<Credentials, PkiError> {
        self.state.pki.serving(user, groups, names)
    }

    /// Signs client certificate requests with the cluster's CA: takes a PEM request and its lifetime in seconds (at most a year, which
    /// is also the default), returns the PEM certificate.
    pub fn client_signer(&self) -> impl Fn(&str, Option<i64>) -> Result<String, PkiError> + Send + Sync + use<> {
        let state = self.state.clone();
        move |request, seconds| state.pki.sign_request(request, seconds)
    }

    /// Handles a user's request in process, exactly as over a connection.
    pub async fn answer(&self, user: &str, groups: &[&str], request: http::Request<Body>) -> http::Response<Body> {
        crate::handler::serve(self.state.clone(), Some(Arc::new(User::new(user, groups))), request).await
    }

    fn kubeconfig_with(&self, user: &str, credentials: &str) -> String {
        let url = self.url();
        let ca = STANDARD.encode(self.ca_pem());
        let user = serde_json::Value::from(user);
        format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: firesteel\n  cluster:\n    server: {url}\n    certificate-authority-data: {ca}\n\
             users:\n- name: {user}\n  user:\n    {credentials}\n\
             contexts:\n- name: firesteel\n  context:\n    cluster: firesteel\n    user: {user}\n    namespace: default\ncurrent-context: firesteel\n"
        )
    }

    /// Stops listening and ends watches, without waiting.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Stops listening, ends watches, lets open requests finish and releases the data directory; waits for all of it.
    pub async fn shutdown(mut self) {
        self.stop.cancel();
        let _ = (&mut self.serving).await;
        let store = self.state.store.clone();
        let _ = tokio::task::spawn_blocking(move || store.close()).await;
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
