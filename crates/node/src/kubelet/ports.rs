//! `/portForward/{namespace}/{pod}`: TCP connections to a pod's address, over a WebSocket with two channels per port.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;

use super::exec::{decode, say_goodbye};
use super::{Api, refuse};

pub(super) async fn serve(
    State(api): State<Arc<Api>>,
    Path((namespace, pod)): Path<(String, String)>,
    RawQuery(query): RawQuery,
    upgrade: Result<WebSocketUpgrade, axum::extract::ws::rejection::WebSocketUpgradeRejection>,
) -> Response {
    let (_, dir) = match api.find(&namespace, &pod) {
        Ok(found) => found,
        Err(response) => return *response,
    };
    let ports = match ports_of(&query.unwrap_or_default()) {
        Ok(ports) => ports,
        Err(why) => return refuse(StatusCode::BAD_REQUEST, why),
    };
    let Ok(address) = fs::read_to_string(dir.address()) else {
        return refuse(StatusCode::BAD_REQUEST, format!("pod \"{pod}\" has no address yet"));
    };
    let Ok(upgrade) = upgrade else {
        return refuse(
            StatusCode::BAD_REQUEST,
            "port-forward needs a WebSocket (subprotocol v4.channel.k8s.io); SPDY is not spoken here",
        );
    };
    upgrade.protocols(["v4.channel.k8s.io"]).on_upgrade(move |socket| relay(socket, address.trim().to_owned(), ports))
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
        // Channels have one byte, two per port.
        many if many.len() > 127 => Err("too many ports".to_owned()),
        ports => Ok(ports.to_vec()),
    }
}

async fn relay(mut socket: WebSocket, address: String, ports: Vec<u16>) {
    let (sender, mut incoming) = mpsc::channel::<(u8, Vec<u8>)>(16);
    let mut writers: BTreeMap<u8, OwnedWriteHalf> = BTreeMap::new();
    for (index, port) in ports.iter().enumerate() {
        let Ok(data) = u8::try_from(index * 2) else { return };
        // Each channel begins with the port it belongs to.
        for channel in [data, data + 1] {
            if !say(&mut socket, channel, &port.to_le_bytes()).await {
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
                if !say(&mut socket, data + 1, why.as_bytes()).await {
                    return;
                }
            }
        }
    }
    drop(sender);
    loop {
        tokio::select! {
            part = incoming.recv() => match part {
                Some((channel, bytes)) => if !say(&mut socket, channel, &bytes).await { return },
                None => break,
            },
            message = socket.recv() => match message {
                Some(Ok(Message::Binary(data))) => {
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
    say_goodbye(&mut socket).await;
}

async fn pump(mut source: OwnedReadHalf, channel: u8, sender: mpsc::Sender<(u8, Vec<u8>)>) {
    let mut buffer = vec![0_u8; 32 << 10];
    while let Ok(n) = source.read(&mut buffer).await {
        if n == 0 || sender.send((channel, buffer[..n].to_vec())).await.is_err() {
            return;
        }
    }
}

async fn say(socket: &mut WebSocket, channel: u8, bytes: &[u8]) -> bool {
    let mut message = Vec::with_capacity(bytes.len() + 1);
    message.push(channel);
    message.extend_from_slice(bytes);
    socket.send(Message::Binary(message.into())).await.is_ok()
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
