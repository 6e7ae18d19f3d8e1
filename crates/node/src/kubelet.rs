//! The node's API, like a kubelet's: logs, exec, attach and port-forward for its pods, over TLS on loopback.
//!
//! API servers proxy such requests to it. Clients need a client certificate signed by the cluster's CA or a token, and permission to
//! `proxy` nodes: pods on this machine can reach the port too.

mod attach;
mod auth;
mod exec;
mod logs;
mod port_forward;
mod remote_command;
mod spdy;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{any, get};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::agent::{AgentError, PodEntry, Shared, lock};
use crate::kubelet::auth::{DelegatingAuth, Peer};
use crate::shim_protocol::{ContainerState, PodDir};

/// The bound server before it serves; its port goes into the Node object.
pub(crate) struct Kubelet {
    listener: TcpListener,
    acceptor: TlsAcceptor,
    pub(crate) port: u16,
}

struct Api {
    shared: Arc<Shared>,
    guard: DelegatingAuth,
}

impl Kubelet {
    /// Binds the port and creates a certificate for it. `roots` are the cluster's CA certificates in DER.
    pub(crate) async fn bind(port: u16, name: &str, roots: &[Vec<u8>]) -> Result<Self, AgentError> {
        let said = |source| AgentError::System { step: "opening the node's API", source };
        let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await;
        let listener = listener.map_err(|error| match error.kind() {
            std::io::ErrorKind::AddrInUse => AgentError::PortTaken(port),
            _ => said(error),
        })?;
        let port = listener.local_addr().map_err(said)?.port();
        let tls = auth::tls(name, roots).map_err(|e| said(std::io::Error::other(e)))?;
        Ok(Self { listener, acceptor: TlsAcceptor::from(tls), port })
    }

    /// Serves until told to stop.
    pub(crate) async fn serve(self, shared: Arc<Shared>, stop: CancellationToken) {
        let guard = DelegatingAuth::new(shared.client.clone(), shared.options.name.clone());
        let api = Arc::new(Api { shared, guard });
        let routes = Router::new()
            .route("/containerLogs/{namespace}/{pod}/{container}", get(logs::serve))
            .route("/exec/{namespace}/{pod}/{container}", any(exec::serve))
            .route("/attach/{namespace}/{pod}/{container}", any(attach::serve))
            .route("/portForward/{namespace}/{pod}", any(port_forward::serve))
            .route("/pods", get(pods))
            .layer(middleware::from_fn_with_state(Arc::clone(&api), admit))
            // Health is no secret; a kubelet's health port is open as well.
            .route("/healthz", get(|| async { "ok" }))
            .with_state(Arc::clone(&api));
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                () = stop.cancelled() => return,
            };
            let Ok((stream, _)) = accepted else { continue };
            let (acceptor, routes) = (self.acceptor.clone(), routes.clone());
            tokio::spawn(async move {
                let _ = stream.set_nodelay(true);
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let peer = Peer::of(stream.get_ref().1);
                let service = TowerToHyperService::new(routes.layer(axum::Extension(peer)));
                let served = auto::Builder::new(TokioExecutor::new())
                    .serve_connection_with_upgrades(TokioIo::new(stream), service)
                    .await;
                if let Err(error) = served {
                    tracing::debug!(%error, "a connection to the node's API ended");
                }
            });
        }
    }
}

async fn admit(
    State(api): State<Arc<Api>>,
    axum::Extension(peer): axum::Extension<Peer>,
    headers: HeaderMap,
    request: Request,
    next: Next,
) -> Response {
    let verb = match request.method().as_str() {
        "POST" => "create",
        "PUT" => "update",
        "DELETE" => "delete",
        _ => "get",
    };
    match api.guard.check(&peer, &headers, verb).await {
        Ok(()) => next.run(request).await,
        Err((status, why)) => (status, why).into_response(),
    }
}

async fn pods(State(api): State<Arc<Api>>) -> Response {
    let items: Vec<serde_json::Value> = lock(&api.shared.pods)
        .values()
        .filter_map(|e| serde_json::to_value(e.view.borrow().pod.as_ref()).ok())
        .collect();
    axum::Json(serde_json::json!({"kind": "PodList", "apiVersion": "v1", "items": items})).into_response()
}

impl Api {
    /// Finds a pod of this node by name.
    fn find(&self, namespace: &str, name: &str) -> Result<(PodEntry, PodDir), Box<Response>> {
        let pods = lock(&self.shared.pods);
        let found = pods.iter().find(|(_, e)| e.namespace == namespace && e.name == name);
        match found {
            Some((uid, entry)) => Ok((entry.clone(), PodDir::new(&self.shared.options.data_dir, uid))),
            None => Err(Box::new(refuse(
                StatusCode::NOT_FOUND,
                format!("pod \"{name}\" not found in namespace \"{namespace}\" on this node"),
            ))),
        }
    }

    /// Finds a pod of this node that has this container.
    fn find_container(&self, namespace: &str, name: &str, container: &str) -> Result<PodDir, Box<Response>> {
        let (entry, dir) = self.find(namespace, name)?;
        let known = entry.view.borrow().pod.spec.as_ref().is_some_and(|s| {
            s.containers.iter().chain(s.init_containers.iter().flatten()).any(|c| c.name == container)
        });
        if known {
            return Ok(dir);
        }
        let why = format!("container \"{container}\" not found in pod \"{name}\"");
        Err(Box::new(refuse(StatusCode::NOT_FOUND, why)))
    }

    /// Finds a pod of this node in which this container is running. A kubelet knows only running containers; the message is its own.
    fn find_running(&self, namespace: &str, name: &str, container: &str) -> Result<PodDir, Box<Response>> {
        let (_, dir) = self.find(namespace, name)?;
        let found = logs::record(&dir).containers.remove(container);
        if found.is_some_and(|c| matches!(c.state, ContainerState::Running { .. })) {
            return Ok(dir);
        }
        let why = format!("container not found ({container:?})");
        Err(Box::new(refuse(StatusCode::INTERNAL_SERVER_ERROR, why)))
    }
}

fn refuse(status: StatusCode, why: impl Into<String>) -> Response {
    (status, why.into()).into_response()
}

/// A streaming body.
fn streaming(receiver: tokio::sync::mpsc::Receiver<Result<bytes::Bytes, std::io::Error>>) -> Body {
    Body::from_stream(futures::stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|item| (item, receiver))
    }))
}
