//! `/exec/{namespace}/{pod}/{container}`: a command in a container, over a WebSocket with one channel per stream.

use std::process::Stdio;
use std::sync::Arc;

use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;

use super::{Api, refuse};

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
/// From version 5 on: one side closes a channel.
const CLOSE: u8 = 255;

/// What a request asks for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wish {
    command: Vec<String>,
    stdin: bool,
    tty: bool,
}

impl Wish {
    fn parse(query: &str) -> Self {
        let mut wish = Self::default();
        for pair in query.split('&') {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = decode(value);
            let on = matches!(value.as_str(), "1" | "true");
            match key {
                "command" => wish.command.push(value),
                "input" | "stdin" => wish.stdin = on,
                "tty" => wish.tty = on,
                _ => {}
            }
        }
        wish
    }
}

/// Undoes percent-encoding, and `+` for a space.
pub(super) fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let hex = bytes
            .get(at + 1..at + 3)
            .and_then(|h| std::str::from_utf8(h).ok())
            .and_then(|h| u8::from_str_radix(h, 16).ok());
        match (byte, hex) {
            (b'%', Some(value)) => {
                out.push(value);
                at += 2;
            }
            (b'+', _) => out.push(b' '),
            (other, _) => out.push(*other),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

pub(super) async fn serve(
    State(api): State<Arc<Api>>,
    Path((namespace, pod, container)): Path<(String, String, String)>,
    RawQuery(query): RawQuery,
    upgrade: Result<WebSocketUpgrade, axum::extract::ws::rejection::WebSocketUpgradeRejection>,
) -> Response {
    let (_, dir) = match api.find(&namespace, &pod) {
        Ok(found) => found,
        Err(response) => return *response,
    };
    let wish = Wish::parse(&query.unwrap_or_default());
    if wish.command.is_empty() {
        return refuse(StatusCode::BAD_REQUEST, "you must specify at least one command for the container");
    }
    let Ok(upgrade) = upgrade else {
        return refuse(
            StatusCode::BAD_REQUEST,
            "exec needs a WebSocket (subprotocol v5.channel.k8s.io or v4.channel.k8s.io); SPDY is not spoken here",
        );
    };
    let shim = api.shared.options.shim.clone();
    upgrade.protocols(["v5.channel.k8s.io", "v4.channel.k8s.io"]).on_upgrade(move |socket| async move {
        let stdin = if wish.stdin { Stdio::piped() } else { Stdio::null() };
        match crate::agent::exec::spawn(&shim, dir.path(), &container, &wish.command, stdin) {
            Ok(child) => relay(socket, child).await,
            Err(error) => finish(socket, Err(error.to_string())).await,
        }
    })
}

/// Moves bytes between the socket and the process until the process ends.
async fn relay(mut socket: WebSocket, mut child: tokio::process::Child) {
    let (sender, mut output) = mpsc::channel::<(u8, Bytes)>(16);
    if let Some(stdout) = child.stdout.take() {
        tokio::spawn(pump(stdout, STDOUT, sender.clone()));
    }
    if let Some(stderr) = child.stderr.take() {
        tokio::spawn(pump(stderr, STDERR, sender));
    }
    let mut stdin = child.stdin.take();
    let mut drained = false;
    let code = loop {
        tokio::select! {
            part = output.recv(), if !drained => match part {
                Some((channel, bytes)) => if !say(&mut socket, channel, &bytes).await { return },
                None => drained = true,
            },
            message = socket.recv() => match message {
                Some(Ok(Message::Binary(data))) => hear(&data, &mut stdin).await,
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                Some(Ok(_)) => {}
            },
            status = child.wait(), if drained => break status,
        }
    };
    let outcome = match code {
        Ok(status) => Ok(status.code().unwrap_or(137)),
        Err(error) => Err(error.to_string()),
    };
    finish(socket, outcome).await;
}

async fn hear(data: &[u8], stdin: &mut Option<tokio::process::ChildStdin>) {
    match data {
        [CLOSE, STDIN] => *stdin = None,
        [STDIN, rest @ ..] => {
            if let Some(pipe) = stdin
                && pipe.write_all(rest).await.is_err()
            {
                *stdin = None;
            }
        }
        // Sizes of terminals and channels we do not know.
        _ => {}
    }
}

async fn pump(mut source: impl AsyncRead + Unpin, channel: u8, sender: mpsc::Sender<(u8, Bytes)>) {
    let mut buffer = vec![0_u8; 32 << 10];
    while let Ok(n) = source.read(&mut buffer).await {
        if n == 0 || sender.send((channel, Bytes::copy_from_slice(&buffer[..n]))).await.is_err() {
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

/// The last word, on the error channel: a Status, with the exit code if it is not 0.
async fn finish(mut socket: WebSocket, outcome: Result<i32, String>) {
    let _ = say(&mut socket, ERROR, outcome_status(outcome).to_string().as_bytes()).await;
    say_goodbye(&mut socket).await;
}

/// Closes with a status: clients take a close without one for an error.
pub(super) async fn say_goodbye(socket: &mut WebSocket) {
    let frame = CloseFrame { code: close_code::NORMAL, reason: "".into() };
    let _ = socket.send(Message::Close(Some(frame))).await;
    // The other side answers before the connection is given up; bytes on their way would be lost otherwise.
    let heard = async { while let Some(Ok(_)) = socket.recv().await {} };
    let _ = tokio::time::timeout(std::time::Duration::from_secs(2), heard).await;
}

fn outcome_status(outcome: Result<i32, String>) -> serde_json::Value {
    match outcome {
        Ok(0) => serde_json::json!({"metadata": {}, "status": "Success"}),
        Ok(code) => serde_json::json!({
            "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
            "message": format!("command terminated with non-zero exit code: exit status {code}"),
            "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]}
        }),
        Err(why) => {
            serde_json::json!({"metadata": {}, "status": "Failure", "reason": "InternalError", "message": why, "code": 500})
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_says_what_to_run() {
        let wish = Wish::parse("command=sh&command=-c&command=echo+a%20%26b&input=1&output=1&tty=false");
        assert_eq!(
            wish,
            Wish { command: vec!["sh".to_owned(), "-c".to_owned(), "echo a &b".to_owned()], stdin: true, tty: false }
        );
    }

    #[test]
    fn an_exit_code_is_told_as_kubernetes_tells_it() {
        assert_eq!(outcome_status(Ok(3))["details"]["causes"][0]["message"], "3");
        assert_eq!(outcome_status(Ok(0))["status"], "Success");
    }
}
