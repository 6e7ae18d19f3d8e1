//! A port of this machine that leads to a Spark Connect server, whichever pod that is at the moment.
//!
//! Every connection is dialled anew, so the address stays valid while servers come and go. A connection that arrives while
//! no server is ready waits a while for one, then it is closed, and the client tries again.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::Context;
use firesteel_api::SparkConnect;
use firesteel_core::connect::application::application;
use firesteel_core::connect::step::State;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::exit::BadInput;

/// The port that clients use by default.
const USUAL_PORT: u16 = 15002;
/// How long a connection waits for a server.
const PATIENCE: Duration = Duration::from_secs(15);
/// How long a pod may take to accept a connection.
const DIALLING: Duration = Duration::from_secs(10);

/// Where connections lead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) namespace: String,
    pub(crate) pod: String,
    pub(crate) ip: String,
    pub(crate) port: u16,
}

impl Target {
    /// The server of an object, if it accepts connections.
    pub(crate) fn of(connect: &SparkConnect) -> Option<Target> {
        let status = connect.status.as_ref().filter(|status| State::read(status) == State::Ready)?;
        let server = status.server.as_ref()?;
        Some(Target {
            namespace: connect.metadata.namespace.clone().unwrap_or_default(),
            pod: server.pod_name.clone()?,
            ip: server.pod_ip.clone().unwrap_or_default(),
            port: u16::try_from(application(&connect.spec).port).ok()?,
        })
    }
}

/// How to reach a pod.
#[derive(Clone)]
pub(crate) enum Dial {
    /// Through the API server, as `kubectl port-forward` does.
    Forward(Client),
    /// At its own address: pods of the local cluster have addresses of this machine.
    Directly,
}

pub(crate) struct Tunnel {
    listener: TcpListener,
    port: u16,
}

impl Tunnel {
    /// Listens on this port; without one, on the usual port, or any other if that is taken.
    pub(crate) async fn open(port: Option<u16>) -> anyhow::Result<Tunnel> {
        let bind = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
        let listener = match port {
            Some(port) => bind(port).await.map_err(|error| {
                BadInput(format!("cannot listen on port {port}: {error}; choose another one with --port"))
            })?,
            None => match bind(USUAL_PORT).await {
                Ok(listener) => listener,
                Err(_) => bind(0).await.context("cannot listen on any port of 127.0.0.1")?,
            },
        };
        let port = listener.local_addr()?.port();
        Ok(Tunnel { listener, port })
    }

    /// What clients use.
    pub(crate) fn address(&self) -> String {
        format!("sc://localhost:{}", self.port)
    }

    /// Serves connections; never returns.
    pub(crate) async fn serve(self, dial: Dial, target: watch::Receiver<Option<Target>>) {
        loop {
            let Ok((connection, _)) = self.listener.accept().await else {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let (dial, mut target) = (dial.clone(), target.clone());
            tokio::spawn(async move {
                let ready = tokio::time::timeout(PATIENCE, target.wait_for(Option::is_some)).await;
                let Some(target) = ready.ok().and_then(|found| found.ok().and_then(|found| found.clone())) else {
                    return;
                };
                if let Err(error) = relay(connection, &dial, &target).await {
                    tracing::debug!("connection to pod {}: {error:#}", target.pod);
                }
            });
        }
    }
}

/// Relays one connection until both sides have closed.
async fn relay(mut connection: TcpStream, dial: &Dial, target: &Target) -> anyhow::Result<()> {
    connection.set_nodelay(true)?;
    match dial {
        Dial::Directly => {
            let dialled = TcpStream::connect((target.ip.as_str(), target.port));
            let mut server = tokio::time::timeout(DIALLING, dialled).await.context("no answer")??;
            server.set_nodelay(true)?;
            copy_bidirectional(&mut connection, &mut server).await?;
        }
        Dial::Forward(client) => {
            let pods: Api<Pod> = Api::namespaced(client.clone(), &target.namespace);
            let ports = [target.port];
            let dialled = pods.portforward(&target.pod, &ports);
            let mut forwarder = tokio::time::timeout(DIALLING, dialled).await.context("no answer")??;
            let mut server = forwarder.take_stream(target.port).context("the API server opened no stream")?;
            let copied = copy_bidirectional(&mut connection, &mut server).await;
            drop(server);
            forwarder.abort();
            copied?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    fn connect(state: &str) -> SparkConnect {
        serde_json::from_value(json!({
            "metadata": {"name": "c", "namespace": "n"},
            "spec": {"sparkVersion": "4.1.4", "sparkConf": {"spark.connect.grpc.binding.port": "15009"}, "server": {}, "executor": {}},
            "status": {"state": state, "server": {"podName": "c-server", "podIp": "127.0.0.1", "serviceName": "c-server"}},
        }))
        .unwrap()
    }

    #[test]
    fn only_a_ready_server_is_a_target() {
        let target = Target::of(&connect("Ready")).unwrap();
        assert_eq!((target.pod.as_str(), target.port), ("c-server", 15009));
        for state in ["", "Provisioning", "NotReady", "Failed"] {
            assert_eq!(Target::of(&connect(state)), None, "{state}");
        }
    }

    /// A server that greets everyone with one byte.
    async fn server(greeting: u8) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((mut connection, _)) = listener.accept().await {
                let _ = connection.write_all(&[greeting]).await;
            }
        });
        port
    }

    #[tokio::test]
    async fn the_address_stays_while_servers_change_and_a_connection_waits_for_one() {
        let (first, second) = (server(1).await, server(2).await);
        let target = |port| Target { namespace: "n".into(), pod: "p".into(), ip: "127.0.0.1".into(), port };
        let (send, receive) = watch::channel(None);
        let tunnel = Tunnel::open(None).await.unwrap();
        let port = tunnel.port;
        assert_eq!(tunnel.address(), format!("sc://localhost:{port}"));
        tokio::spawn(tunnel.serve(Dial::Directly, receive));
        let greeting = async || {
            let mut connection = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            connection.read_u8().await.unwrap()
        };
        let early = tokio::spawn(async move {
            let mut connection = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            connection.read_u8().await.unwrap()
        });
        tokio::time::sleep(Duration::from_millis(50)).await;
        send.send_replace(Some(target(first)));
        assert_eq!(early.await.unwrap(), 1);
        assert_eq!(greeting().await, 1);
        send.send_replace(Some(target(second)));
        assert_eq!(greeting().await, 2);
    }
}
