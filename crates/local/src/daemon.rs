//! The daemon behind a local cluster. It runs the API server and the controllers, and supervises the node and the operator.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use firesteel_apiserver::{ApiServer, RunningServer, StartError};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::signal::unix::{SignalKind, signal};

use crate::bootstrap;
use crate::controllers::{self, Controllers, Settings, Signer};
use crate::home::{Component, Home, Phase, Status};
use crate::orphans;
use crate::supervisor::{Program, Supervised};

/// How long all components together may take to become ready.
const READY: Duration = Duration::from_secs(60);
/// The same as on a real cluster.
const EVENTS_STAY: Duration = Duration::from_secs(60 * 60);
const LOOK: Duration = Duration::from_millis(20);

/// What a cluster consists of.
pub struct Plan {
    /// The API server's port; `None` means the previous one, or any free port.
    pub port: Option<u16>,
    /// Objects applied on startup, such as custom resource definitions.
    pub objects: Vec<Value>,
    pub parts: Vec<Part>,
}

/// A supervised process.
pub struct Part {
    pub program: Program,
    pub ready: Ready,
}

/// How to tell that a component is ready.
#[derive(Debug, Clone)]
pub enum Ready {
    /// The node of this name is ready.
    Node(String),
    /// This URL answers 200.
    Http { address: SocketAddr, path: String },
}

/// Runs a cluster until it is told to stop.
pub async fn run(mut home: Home, plan: Plan) -> anyhow::Result<()> {
    home.prepare()?;
    home.protect()?;
    let _held = home.hold()?;
    let mut status = Status::starting("starting the API server");
    status.port = plan.port;
    let mut stop = Stop::listen()?;
    let outcome = async {
        home.write_status(&status)?;
        let mut cluster = Running::start(&home, &plan, &mut status).await?;
        tokio::select! {
            ready = cluster.wait_until_ready(&home, &plan, &mut status) => ready?,
            () = stop.wait() => return cluster.end(&home, &mut status).await,
        }
        status.phase = Phase::Ready;
        status.says = "ready".to_owned();
        home.write_status(&status)?;
        tracing::info!(url = status.url, "ready");
        cluster.watch(&home, &mut status, &mut stop).await;
        cluster.end(&home, &mut status).await
    }
    .await;
    if let Err(error) = &outcome {
        status.phase = Phase::Failed;
        status.says = format!("{error:#}");
        let _ = home.write_status(&status);
    }
    outcome
}

/// Signals that stop the daemon.
struct Stop {
    term: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Stop {
    fn listen() -> anyhow::Result<Self> {
        Ok(Stop { term: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn wait(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

struct Running {
    server: RunningServer,
    controllers: Controllers,
    parts: Vec<Supervised>,
    client: Client,
    since: Timestamp,
}

impl Running {
    async fn start(home: &Home, plan: &Plan, status: &mut Status) -> anyhow::Result<Self> {
        let since = Timestamp::now();
        let server = serve(home, plan.port).await?;
        status.url = Some(server.url());
        status.port = Some(server.address().port());
        home.write_private("kubeconfig", server.admin_kubeconfig().as_bytes()).context("write the kubeconfig")?;
        home.write_status(status)?;
        let kubeconfig = Kubeconfig::from_yaml(&server.admin_kubeconfig()).context("read our own kubeconfig")?;
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        config.disable_compression = true;
        let client = Client::try_from(config)?;
        let settings = Settings {
            client: client.clone(),
            ca_pem: server.ca_pem().to_owned(),
            volumes: home.volumes(),
            events_ttl: Some(EVENTS_STAY),
            signer: Some(signer(&server)),
        };
        // Objects first: the processes expect them to exist.
        bootstrap::objects(&client, &plan.objects).await?;
        bootstrap::spark_account(&client, "default").await?;
        let mut parts = Vec::new();
        for part in &plan.parts {
            let child = Supervised::start(part.program.clone());
            parts.push(child.with_context(|| format!("start {}", part.program.name))?);
        }
        let controllers = tokio::time::timeout(READY, controllers::start(settings));
        let controllers = controllers.await.context("the controllers did not sync in time")?;
        Ok(Running { server, controllers, parts, client, since })
    }

    async fn wait_until_ready(&mut self, home: &Home, plan: &Plan, status: &mut Status) -> anyhow::Result<()> {
        let deadline = tokio::time::Instant::now() + READY;
        let mut waiting: Vec<usize> = (0..plan.parts.len()).collect();
        while !waiting.is_empty() {
            let mut left = Vec::new();
            for at in waiting {
                if !self.is_ready(&plan.parts[at].ready).await {
                    left.push(at);
                }
            }
            let names: Vec<&str> = left.iter().map(|at| plan.parts[*at].program.name.as_str()).collect();
            let says = format!("waiting for {}", names.join(" and "));
            let components = self.components(&names);
            if !names.is_empty() && (status.says != says || status.components != components) {
                (status.says, status.components) = (says, components);
                home.write_status(status)?;
            }
            // A process that keeps exiting will not become ready.
            for (child, part) in self.parts.iter().zip(&plan.parts) {
                if child.restarts() >= 3 {
                    let log = last_line(&part.program.log);
                    let ended = child.last_end().unwrap_or_default();
                    bail!("{} keeps failing: {ended}{log}", part.program.name);
                }
            }
            if tokio::time::Instant::now() > deadline {
                bail!("not ready after {} s: {}", READY.as_secs(), status.says);
            }
            if !left.is_empty() {
                tokio::time::sleep(LOOK).await;
            }
            waiting = left;
        }
        status.components = self.components(&[]);
        Ok(())
    }

    fn components(&self, unready: &[&str]) -> Vec<Component> {
        let part = |child: &Supervised| Component {
            name: child.name.clone(),
            pid: child.pid(),
            ready: child.pid().is_some() && !unready.contains(&child.name.as_str()),
            restarts: child.restarts(),
        };
        self.parts.iter().map(part).collect()
    }

    async fn is_ready(&self, how: &Ready) -> bool {
        match how {
            Ready::Node(name) => {
                let api: Api<Node> = Api::all(self.client.clone());
                let Ok(Some(node)) = api.get_opt(name).await else { return false };
                let conditions = node.status.and_then(|s| s.conditions).unwrap_or_default();
                // A heartbeat from an earlier run does not count.
                conditions.iter().any(|c| {
                    let heard =
                        c.last_heartbeat_time.as_ref().is_none_or(|t| t.0.as_second() >= self.since.as_second());
                    c.type_ == "Ready" && c.status == "True" && heard
                })
            }
            Ready::Http { address, path } => {
                let answer = tokio::time::timeout(Duration::from_secs(1), get(*address, path)).await;
                matches!(answer, Ok(Ok(true)))
            }
        }
    }

    /// Keeps the status file up to date until shutdown.
    async fn watch(&self, home: &Home, status: &mut Status, stop: &mut Stop) {
        loop {
            tokio::select! {
                () = stop.wait() => return,
                () = tokio::time::sleep(Duration::from_secs(1)) => {
                    let components = self.components(&[]);
                    if components != status.components {
                        status.components = components;
                        let _ = home.write_status(status);
                    }
                }
            }
        }
    }

    /// Shuts down in order: first the operator, so that it starts nothing new, then the node with its pods, last the API server.
    async fn end(self, home: &Home, status: &mut Status) -> anyhow::Result<()> {
        status.phase = Phase::Stopping;
        status.says = "stopping".to_owned();
        let _ = home.write_status(status);
        let parts = self.parts;
        let root: Arc<std::path::Path> = home.root().into();
        let left = tokio::task::spawn_blocking(move || {
            parts.into_iter().rev().for_each(Supervised::stop);
            orphans::end(&root)
        })
        .await?;
        self.controllers.stop().await;
        if tokio::time::timeout(Duration::from_secs(5), self.server.shutdown()).await.is_err() {
            tracing::warn!("the API server was still busy");
        }
        if left.is_empty() { Ok(()) } else { bail!("processes did not exit: {left:?}") }
    }
}

/// Signs with the cluster's CA.
fn signer(server: &RunningServer) -> Signer {
    let sign = server.client_signer();
    Arc::new(move |request: &str, seconds: Option<i64>| sign(request, seconds).map_err(|error| error.to_string()))
}

/// Whether a plain GET returns 200.
async fn get(address: SocketAddr, path: &str) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").as_bytes()).await?;
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await?;
    Ok(answer.ends_with(b" 200"))
}

/// The last line of a log, to end an error message with.
fn last_line(path: &std::path::Path) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().rev().map(str::trim).find(|l| !l.is_empty()).unwrap_or_default();
    let line = line.strip_prefix("firesteel: ").unwrap_or(line);
    if line.is_empty() { format!(" (see {})", path.display()) } else { format!(": {line}") }
}

/// Starts the API server on the requested port, else on the previous one, else on a free one.
async fn serve(home: &Home, port: Option<u16>) -> anyhow::Result<RunningServer> {
    let before = home.root().join("apiserver").join("port");
    let last: Option<u16> = std::fs::read_to_string(&before).ok().and_then(|p| p.trim().parse().ok());
    let on = |port: u16| {
        ApiServer::builder()
            .bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
            .data_dir(Some(home.apiserver()))
            .start()
    };
    let server = match (port, last) {
        (Some(port), _) => on(port).await.map_err(|error| taken(error, port))?,
        (None, Some(last)) => match on(last).await {
            Err(StartError::Listen { .. }) => on(0).await?,
            other => other?,
        },
        (None, None) => on(0).await?,
    };
    std::fs::write(&before, server.address().port().to_string()).context("remember the port")?;
    Ok(server)
}

fn taken(error: StartError, port: u16) -> anyhow::Error {
    match error {
        StartError::Listen { source, .. } if source.kind() == std::io::ErrorKind::AddrInUse => {
            anyhow::anyhow!(
                "port {port} of 127.0.0.1 is taken: choose another with --port, or omit it to get a free one"
            )
        }
        other => other.into(),
    }
}

/// Applies one object of any kind with server-side apply.
pub(crate) async fn apply(client: &Client, object: &Value) -> anyhow::Result<DynamicObject> {
    let object: DynamicObject = serde_json::from_value(object.clone()).context("an object")?;
    let types = object.types.clone().context("an object without kind")?;
    let gvk = kube::core::GroupVersionKind::try_from(&types).context("its kind")?;
    let (resource, can) = kube::discovery::pinned_kind(client, &gvk).await.context("find its kind")?;
    let api: Api<DynamicObject> = match (&object.metadata.namespace, can.scope) {
        (Some(namespace), kube::discovery::Scope::Namespaced) => {
            Api::namespaced_with(client.clone(), namespace, &resource)
        }
        (None, kube::discovery::Scope::Namespaced) => Api::default_namespaced_with(client.clone(), &resource),
        (_, kube::discovery::Scope::Cluster) => Api::all_with(client.clone(), &resource),
    };
    let name = object.metadata.name.clone().context("an object without name")?;
    let written = api.patch(&name, &PatchParams::apply("firesteel-local").force(), &Patch::Apply(&object)).await;
    written.map_err(|error| match error {
        // The server's message is enough; the rest is for programs.
        kube::Error::Api(status) => anyhow::anyhow!(status.message),
        other => other.into(),
    })
}
