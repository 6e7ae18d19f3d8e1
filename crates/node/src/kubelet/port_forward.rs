//! `/portForward/{namespace}/{pod}`: TCP connections to a pod's address.
//!
//! Three transports: SPDY/3.1 with two streams per connection, used by API servers and older kubectls; the same tunnelled through a
//! WebSocket, which kubectl prefers; and a WebSocket with two channels per port.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{FromRequestParts as _, Path, Request, State};
use axum::http::StatusCode;
use axum::http::header::SEC_WEBSOCKET_PROTOCOL;
use axum::http::request::Parts;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;

use super::remote_command::{close, decode, send_channel, switch_to_spdy, wants};
use super::{Api, refuse, spdy};

const PROTOCOL: &str = "portforward.k8s.io";
/// SPDY inside a WebSocket.
const TUNNEL: &str = "SPDY/3.1+portforward.k8s.io";

pub(super) async fn serve(
    State(api): State<Arc<Api>>,
    Path((namespace, pod)): Path<(String, String)>,
    request: Request,
) -> Response {
    let (_, dir) = match api.find(&namespace, &pod) {
        Ok(found) => found,
        Err(response) => return *response,
    };
    let Ok(address) = fs::read_to_string(dir.address()) else {
        return refuse(StatusCode::BAD_REQUEST, format!("pod \"{pod}\" has no address yet"));
    };
    let address = address.trim().to_owned();
    let (mut parts, _) = request.into_parts();
    if wants(&parts, "websocket") {
        return over_websocket(parts, address).await;
    }
    let Some((response, upgraded)) = switch_to_spdy(&mut parts, &[PROTOCOL]) else {
        return refuse(
            StatusCode::BAD_REQUEST,
            "unable to upgrade: port-forward needs SPDY/3.1 (portforward.k8s.io) or a WebSocket (SPDY/3.1+portforward.k8s.io or v4.channel.k8s.io)",
        );
    };
    tokio::spawn(async move {
        if let Ok(stream) = upgraded.await {
            forward_streams(TokioIo::new(stream), address).await;
        }
    });
    response
}

async fn over_websocket(mut parts: Parts, address: String) -> Response {
    let offers: Vec<&str> =
        parts.headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|v| v.to_str().ok()).collect();
    let tunnelled = offers.iter().flat_map(|v| v.split(',')).any(|p| p.trim() == TUNNEL);
    let ports = ports_of(parts.uri.query().unwrap_or_default());
    let upgrade = match WebSocketUpgrade::from_request_parts(&mut parts, &()).await {
        Ok(upgrade) => upgrade,
        Err(rejection) => return rejection.into_response(),
    };
    if tunnelled {
        return upgrade.protocols([TUNNEL]).on_upgrade(move |socket| async move {
            let (near, far) = tokio::io::duplex(64 << 10);
            tokio::spawn(forward_streams(far, address));
            tunnel(socket, near).await;
        });
    }
    match ports {
        Ok(ports) => {
            upgrade.protocols(["v4.channel.k8s.io"]).on_upgrade(move |socket| forward_channels(socket, address, ports))
        }
        Err(why) => refuse(StatusCode::BAD_REQUEST, why),
    }
}

/// Adapts a WebSocket to a byte stream.
async fn tunnel(mut socket: WebSocket, stream: DuplexStream) {
    let (mut read, mut write) = tokio::io::split(stream);
    let mut buffer = vec![0_u8; 32 << 10];
    loop {
        tokio::select! {
            message = socket.recv() => match message {
                Some(Ok(data @ (Message::Binary(_) | Message::Text(_)))) => {
                    if write.write_all(&data.into_data()).await.is_err() { break }
                }
                Some(Ok(Message::Close(_)) | Err(_)) | None => break,
                Some(Ok(_)) => {}
            },
            count = read.read(&mut buffer) => match count {
                Ok(0) | Err(_) => break,
                Ok(count) => {
                    if socket.send(Message::Binary(Bytes::copy_from_slice(&buffer[..count]))).await.is_err() {
                        break;
                    }
                }
            },
        }
    }
    let _ = write.shutdown().await;
    close(&mut socket).await;
}

/// The two streams of one forwarded connection.
#[derive(Debug, Default)]
struct Pair {
    data: Option<u32>,
    error: Option<u32>,
    port: String,
}

/// Forwards every pair of streams that the client opens.
async fn forward_streams<S>(stream: S, address: String)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + 'static,
{
    let (client, mut events) = spdy::start(stream);
    let mut pairs: BTreeMap<String, Pair> = BTreeMap::new();
    let mut inputs: BTreeMap<u32, mpsc::Sender<Bytes>> = BTreeMap::new();
    while let Some(event) = events.recv().await {
        match event {
            spdy::Event::Opened { id, headers } => {
                let header = |name: &str| headers.get(name).cloned().unwrap_or_default();
                let is_data = header("streamtype") == "data";
                // Very old clients send no request id; their streams come in pairs, the error stream first.
                let request = match header("requestid") {
                    number if number.is_empty() && is_data => format!("#{}", id.saturating_sub(2)),
                    number if number.is_empty() => format!("#{id}"),
                    number => number,
                };
                let pair = pairs.entry(request.clone()).or_default();
                if is_data {
                    (pair.data, pair.port) = (Some(id), header("port"));
                } else {
                    pair.error = Some(id);
                }
                if let (Some(data), Some(error)) = (pair.data, pair.error) {
                    let (sender, input) = mpsc::channel(64);
                    inputs.insert(data, sender);
                    let (address, port) = (address.clone(), pair.port.clone());
                    tokio::spawn(forward(client.clone(), data, error, address, port, input));
                    pairs.remove(&request);
                }
            }
            spdy::Event::Data { id, bytes } => {
                if let Some(input) = inputs.get(&id)
                    && input.send(bytes).await.is_err()
                {
                    inputs.remove(&id);
                }
            }
            spdy::Event::Ended { id } => {
                inputs.remove(&id);
            }
        }
    }
    client.leave().await;
}

/// Relays one connection until both sides have closed.
async fn forward(
    client: spdy::Sender,
    data: u32,
    error: u32,
    address: String,
    port: String,
    mut input: mpsc::Receiver<Bytes>,
) {
    let connected = match port.parse::<u16>() {
        Ok(port) => TcpStream::connect((address.as_str(), port)).await.map_err(|e| e.to_string()),
        Err(_) => Err(format!("\"{port}\" is not a port")),
    };
    let stream = match connected {
        Ok(stream) => stream,
        Err(why) => {
            let text = format!(
                "error forwarding port {port} to pod: failed to connect to localhost:{port} inside the pod: {why}"
            );
            client.data(error, text.as_bytes()).await;
            client.finish(error).await;
            client.reset(data).await;
            return;
        }
    };
    let _ = stream.set_nodelay(true);
    let (mut read, mut write) = stream.into_split();
    let upward = async {
        while let Some(bytes) = input.recv().await {
            if write.write_all(&bytes).await.is_err() {
                return;
            }
        }
        let _ = write.shutdown().await;
    };
    let downward = async {
        let mut buffer = vec![0_u8; 32 << 10];
        while let Ok(count @ 1..) = read.read(&mut buffer).await {
            if !client.data(data, &buffer[..count]).await {
                break;
            }
        }
        // When the pod closes, the connection ends for the client.
        client.finish(data).await;
        client.finish(error).await;
    };
    tokio::join!(upward, downward);
}

/// The ports of a query (`ports=1,2` or `port=1&port=2`).
fn ports_of(query: &str) -> Result<Vec<u16>, String> {
    let values = query
        .split('&')
        .filter_map(|p| p.split_once('='))
        .filter(|(k, _)| matches!(*k, "ports" | "port"))
        .map(|(_, v)| decode(v));
    let words: Vec<String> =
        values.flat_map(|v| v.split(',').map(str::to_owned).collect::<Vec<_>>()).filter(|w| !w.is_empty()).collect();
    let ports: Result<Vec<u16>, String> = words
        .iter()
        .map(|w| w.parse().ok().filter(|p| *p > 0).ok_or_else(|| format!("\"{w}\" is not a port")))
        .collect();
    match ports?.as_slice() {
        [] => Err("query parameter \"ports\" is required".to_owned()),
        // Channel numbers are one byte, and each port takes two.
        many if many.len() > 127 => Err("too many ports".to_owned()),
        ports => Ok(ports.to_vec()),
    }
}

async fn forward_channels(mut socket: WebSocket, address: String, ports: Vec<u16>) {
    let (sender, mut incoming) = mpsc::channel::<(u8, Vec<u8>)>(16);
    let mut writers: BTreeMap<u8, OwnedWriteHalf> = BTreeMap::new();
    for (index, port) in ports.iter().enumerate() {
        let Ok(data) = u8::try_from(index * 2) else { return };
        // The first message on each channel is its port.
        for channel in [data, data + 1] {
            if !send_channel(&mut socket, channel, &port.to_le_bytes()).await {
                return;
            }
        }
        match TcpStream::connect((address.as_str(), *port)).await {
            Ok(stream) => {
                let _ = stream.set_nodelay(true);
                let (read, write) = stream.into_split();
                writers.insert(data, write);
                tokio::spawn(pump(read, data, sender.clone()));
            }
            Err(error) => {
                let why = format!("failed to connect to localhost:{port} inside the pod: {error}");
                if !send_channel(&mut socket, data + 1, why.as_bytes()).await {
                    return;
                }
            }
        }
    }
    drop(sender);
    loop {
        tokio::select! {
            part = incoming.recv() => match part {
                Some((channel, bytes)) => if !send_channel(&mut socket, channel, &bytes).await { return },
                None => break,
            },
            message = socket.recv() => match message {
                Some(Ok(data @ (Message::Binary(_) | Message::Text(_)))) => {
                    let data = data.into_data();
                    if let Some((channel, rest)) = data.split_first()
                        && let Some(writer) = writers.get_mut(channel)
                        && writer.write_all(rest).await.is_err()
                    {
                        writers.remove(channel);
                    }
                }
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                Some(Ok(_)) => {}
            },
        }
    }
    close(&mut socket).await;
}

async fn pump(mut source: OwnedReadHalf, channel: u8, sender: mpsc::Sender<(u8, Vec<u8>)>) {
    let mut buffer = vec![0_u8; 32 << 10];
    while let Ok(n) = source.read(&mut buffer).await {
        if n == 0 || sender.send((channel, buffer[..n].to_vec())).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read_in_both_spellings() {
        assert_eq!(ports_of("ports=4040,15002"), Ok(vec![4040, 15002]));
        assert_eq!(ports_of("port=1&port=2"), Ok(vec![1, 2]));
        assert!(ports_of("").is_err());
        assert!(ports_of("port=0").is_err());
        assert!(ports_of("port=70000").is_err());
    }
}
