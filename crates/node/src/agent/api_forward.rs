//! `kubernetes.default.svc:443` for pods: forwards a loopback address to the API server.
//!
//! If port 443 cannot be bound (ordinary user), the name resolves to the API server itself, and drivers are given its port.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

/// How pods reach the API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApiRoute {
    /// The address of `kubernetes.default.svc`.
    pub(crate) name_address: IpAddr,
    /// The host and port in the environment of clients.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// The master URL for drivers, if port 443 is unavailable.
    pub(crate) driver_master: Option<String>,
}

/// Locates the API server and starts the forwarder if possible.
pub(crate) async fn open(url: &http::Uri, service: Ipv4Addr, stop: &CancellationToken) -> io::Result<ApiRoute> {
    let host = url.host().unwrap_or("localhost").trim_start_matches('[').trim_end_matches(']').to_owned();
    let port = url.port_u16().unwrap_or(if url.scheme_str() == Some("http") { 80 } else { 443 });
    let server = tokio::net::lookup_host((host.as_str(), port)).await?.min_by_key(|a| !a.is_ipv4());
    let server = server.ok_or_else(|| {
        io::Error::new(io::ErrorKind::NotFound, format!("the API server's name {host} has no address"))
    })?;
    let listener = match TcpListener::bind((service, 443)).await {
        Ok(listener) => Some(listener),
        Err(error) => {
            tracing::debug!(%error, "cannot bind port 443; drivers get the API server's port");
            None
        }
    };
    let route =
        |name_address, driver_master| ApiRoute { name_address, host: server.ip().to_string(), port, driver_master };
    Ok(match listener {
        Some(listener) => {
            tokio::spawn(serve(listener, server, stop.clone()));
            route(IpAddr::V4(service), None)
        }
        None if port == 443 => route(server.ip(), None),
        None => route(server.ip(), Some(format!("https://kubernetes.default.svc:{port}"))),
    })
}

async fn serve(listener: TcpListener, server: SocketAddr, stop: CancellationToken) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => return,
        };
        let Ok((mut from, _)) = accepted else {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            continue;
        };
        tokio::spawn(async move {
            if let Ok(mut to) = TcpStream::connect(server).await {
                let _ = from.set_nodelay(true);
                let _ = to.set_nodelay(true);
                let _ = tokio::io::copy_bidirectional(&mut from, &mut to).await;
            }
        });
    }
}
