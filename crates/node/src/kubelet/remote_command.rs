//! The streaming protocol of `exec` and `attach`: standard streams, terminal sizes and an exit status, over any transport.
//!
//! Transports are WebSockets with one channel per stream (`v5.channel.k8s.io` and `v4`) and SPDY/3.1 with one stream each, which
//! API servers use to talk to kubelets. [`super::exec`] and [`super::attach`] do the actual work.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::extract::{FromRequest, FromRequestParts as _, Path, Request};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use hyper_util::rt::TokioIo;
use tokio::sync::mpsc;

use super::{Api, refuse, spdy};
use crate::shim_protocol::PodDir;

/// What the client sends. The channel closes when the client disconnects.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Input {
    Stdin(Bytes),
    StdinEnd,
    Resize { width: u16, height: u16 },
}

/// What the process outputs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Output {
    Stdout(Bytes),
    Stderr(Bytes),
}

pub(super) struct Session {
    pub(super) input: mpsc::Receiver<Input>,
    pub(super) output: mpsc::Sender<Output>,
}

/// The exit code, or an error.
pub(super) type ExitResult = Result<i32, String>;

/// The options of a request.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct StreamOptions {
    pub(super) command: Vec<String>,
    pub(super) stdin: bool,
    pub(super) stdout: bool,
    pub(super) stderr: bool,
    pub(super) tty: bool,
}

impl StreamOptions {
    pub(super) fn parse(query: &str) -> Self {
        let mut wish = Self::default();
        for pair in query.split('&') {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = decode(value);
            let on = matches!(value.as_str(), "1" | "true");
            match key {
                "command" => wish.command.push(value),
                "input" | "stdin" => wish.stdin = on,
                "output" | "stdout" => wish.stdout = on,
                "error" | "stderr" => wish.stderr = on,
                "tty" => wish.tty = on,
                _ => {}
            }
        }
        wish
    }

    /// A terminal has a single output stream.
    fn streams(&self) -> usize {
        1 + [self.stdin, self.stdout, self.stderr && !self.tty, self.tty].into_iter().filter(|on| *on).count()
    }
}

/// A request to `exec` or `attach`: a running container and the options for its streams.
pub(super) struct StreamRequest {
    pub(super) dir: PodDir,
    pub(super) container: String,
    pub(super) wish: StreamOptions,
    parts: Parts,
}

impl FromRequest<Arc<Api>> for StreamRequest {
    type Rejection = Response;

    async fn from_request(request: Request, api: &Arc<Api>) -> Result<Self, Response> {
        let (mut parts, _) = request.into_parts();
        let path = Path::<(String, String, String)>::from_request_parts(&mut parts, api).await;
        let Path((namespace, pod, container)) = path.map_err(IntoResponse::into_response)?;
        let dir = api.find_running(&namespace, &pod, &container).map_err(|response| *response)?;
        let wish = StreamOptions::parse(parts.uri.query().unwrap_or_default());
        Ok(StreamRequest { dir, container, wish, parts })
    }
}

/// Decodes percent-encoding, and `+` as a space.
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

const SPDY_VERSIONS: [&str; 2] = ["v5.channel.k8s.io", "v4.channel.k8s.io"];
const STREAM_VERSION: &str = "x-stream-protocol-version";
/// How long a client may take to open its streams.
const OPENING: Duration = Duration::from_secs(30);
const LINGER: Duration = Duration::from_secs(2);
const QUEUE: usize = 16;

/// Whether a request asks to upgrade to this protocol.
pub(super) fn wants(parts: &Parts, protocol: &str) -> bool {
    parts.headers.get(header::UPGRADE).and_then(|v| v.to_str().ok()).is_some_and(|v| v.eq_ignore_ascii_case(protocol))
}

/// Upgrades the connection and runs the session.
pub(super) async fn serve<F, W>(target: StreamRequest, work: W) -> Response
where
    W: FnOnce(Session, PodDir, String) -> F + Send + 'static,
    F: Future<Output = ExitResult> + Send + 'static,
{
    let StreamRequest { dir, container, wish, mut parts } = target;
    let work = move |session| work(session, dir, container);
    if wants(&parts, "websocket") {
        return match WebSocketUpgrade::from_request_parts(&mut parts, &()).await {
            Ok(upgrade) => upgrade
                .protocols(["v5.channel.k8s.io", "v4.channel.k8s.io"])
                .on_upgrade(move |socket| over_websocket(socket, work)),
            Err(rejection) => rejection.into_response(),
        };
    }
    let Some((response, upgraded)) = switch_to_spdy(&mut parts, &SPDY_VERSIONS) else {
        return refuse(
            StatusCode::BAD_REQUEST,
            "unable to upgrade: this needs a WebSocket (v5.channel.k8s.io or v4.channel.k8s.io) or SPDY/3.1 (v4.channel.k8s.io)",
        );
    };
    tokio::spawn(async move {
        if let Ok(stream) = upgraded.await {
            over_spdy(TokioIo::new(stream), &wish, work).await;
        }
    });
    response
}

/// The response that upgrades to SPDY, with the first of our protocol versions that the client offers.
pub(super) fn switch_to_spdy(parts: &mut Parts, ours: &[&str]) -> Option<(Response, hyper::upgrade::OnUpgrade)> {
    if !wants(parts, spdy::PROTOCOL) {
        return None;
    }
    let offered: Vec<String> = parts
        .headers
        .get_all(STREAM_VERSION)
        .iter()
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(',').map(|p| p.trim().to_owned()))
        .collect();
    let chosen = ours.iter().find(|p| offered.iter().any(|o| o == *p))?;
    let upgraded = parts.extensions.remove::<hyper::upgrade::OnUpgrade>()?;
    let mut response = Response::new(axum::body::Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static(spdy::PROTOCOL));
    headers.insert(STREAM_VERSION, HeaderValue::from_str(chosen).ok()?);
    Some((response, upgraded))
}

const CHANNEL_STDIN: u8 = 0;
const CHANNEL_STDOUT: u8 = 1;
const CHANNEL_STDERR: u8 = 2;
const CHANNEL_ERROR: u8 = 3;
const CHANNEL_RESIZE: u8 = 4;
/// Since version 5: one side closes a channel.
const CHANNEL_CLOSE: u8 = 255;

async fn over_websocket<F, W>(mut socket: WebSocket, work: W)
where
    W: FnOnce(Session) -> F,
    F: Future<Output = ExitResult> + Send + 'static,
{
    let (to_process, input) = mpsc::channel(QUEUE);
    let (output, mut from_process) = mpsc::channel(QUEUE);
    let mut working = tokio::spawn(work(Session { input, output }));
    let mut to_process = Some(to_process);
    let mut drained = false;
    let outcome = loop {
        tokio::select! {
            part = from_process.recv(), if !drained => {
                let (channel, bytes) = match part {
                    Some(Output::Stdout(bytes)) => (CHANNEL_STDOUT, bytes),
                    Some(Output::Stderr(bytes)) => (CHANNEL_STDERR, bytes),
                    None => { drained = true; continue }
                };
                if !send_channel(&mut socket, channel, &bytes).await {
                    to_process = None;
                }
            }
            message = socket.recv(), if to_process.is_some() => match message {
                // Some clients (Python's) send text messages.
                Some(Ok(data @ (Message::Binary(_) | Message::Text(_)))) => {
                    let data = data.into_data();
                    if let (Some(input), Some(sender)) = (channel_input(&data), &to_process) {
                        // If nobody receives it, the session is already ending.
                        let _ = sender.send(input).await;
                    }
                }
                Some(Ok(Message::Close(_)) | Err(_)) | None => to_process = None,
                Some(Ok(_)) => {}
            },
            outcome = &mut working, if drained => break outcome,
        }
    };
    let outcome = outcome.unwrap_or_else(|e| Err(e.to_string()));
    let _ = send_channel(&mut socket, CHANNEL_ERROR, outcome_status(outcome).to_string().as_bytes()).await;
    close(&mut socket).await;
}

fn channel_input(data: &[u8]) -> Option<Input> {
    match data {
        [CHANNEL_CLOSE, CHANNEL_STDIN] => Some(Input::StdinEnd),
        [CHANNEL_STDIN, rest @ ..] => Some(Input::Stdin(Bytes::copy_from_slice(rest))),
        [CHANNEL_RESIZE, rest @ ..] => size(rest),
        _ => None,
    }
}

/// `{"Width":80,"Height":24}`
fn size(text: &[u8]) -> Option<Input> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Size {
        width: u16,
        height: u16,
    }
    let size: Size = serde_json::from_slice(text).ok()?;
    Some(Input::Resize { width: size.width, height: size.height })
}

pub(super) async fn send_channel(socket: &mut WebSocket, channel: u8, bytes: &[u8]) -> bool {
    let mut message = Vec::with_capacity(bytes.len() + 1);
    message.push(channel);
    message.extend_from_slice(bytes);
    socket.send(Message::Binary(message.into())).await.is_ok()
}

/// Closes with a status code: clients treat a close without one as an error.
pub(super) async fn close(socket: &mut WebSocket) {
    let frame = CloseFrame { code: close_code::NORMAL, reason: "".into() };
    let _ = socket.send(Message::Close(Some(frame))).await;
    // Wait for the client's close, or bytes in flight would be lost.
    let heard = async { while let Some(Ok(_)) = socket.recv().await {} };
    let _ = tokio::time::timeout(LINGER, heard).await;
}

/// The streams of a SPDY session, by type.
#[derive(Debug, Default)]
struct Streams {
    error: Option<u32>,
    stdin: Option<u32>,
    stdout: Option<u32>,
    stderr: Option<u32>,
    resize: Option<u32>,
}

impl Streams {
    fn add(&mut self, id: u32, kind: &str) {
        match kind {
            "error" => self.error = Some(id),
            "stdin" => self.stdin = Some(id),
            "stdout" => self.stdout = Some(id),
            "stderr" => self.stderr = Some(id),
            "resize" => self.resize = Some(id),
            _ => {}
        }
    }

    fn all(&self) -> impl Iterator<Item = u32> {
        [self.stdin, self.stdout, self.stderr, self.resize, self.error].into_iter().flatten()
    }

    fn input(&self, event: spdy::Event) -> Option<Input> {
        match event {
            spdy::Event::Data { id, bytes } if Some(id) == self.stdin => Some(Input::Stdin(bytes)),
            spdy::Event::Data { id, bytes } if Some(id) == self.resize => size(&bytes),
            spdy::Event::Ended { id } if Some(id) == self.stdin => Some(Input::StdinEnd),
            spdy::Event::Data { .. } | spdy::Event::Ended { .. } | spdy::Event::Opened { .. } => None,
        }
    }
}

async fn over_spdy<S, F, W>(stream: S, wish: &StreamOptions, work: W)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + 'static,
    W: FnOnce(Session) -> F,
    F: Future<Output = ExitResult> + Send + 'static,
{
    let (client, mut events) = spdy::start(stream);
    let mut streams = Streams::default();
    let mut early = Vec::new();
    let opened = async {
        while streams.all().count() < wish.streams() {
            match events.recv().await {
                Some(spdy::Event::Opened { id, headers }) => {
                    streams.add(id, headers.get("streamtype").map(String::as_str).unwrap_or_default());
                }
                Some(other) => early.push(other),
                None => return false,
            }
        }
        true
    };
    if !matches!(tokio::time::timeout(OPENING, opened).await, Ok(true)) {
        client.leave().await;
        return;
    }
    let (to_process, input) = mpsc::channel(QUEUE);
    let (output, mut from_process) = mpsc::channel(QUEUE);
    let mut working = tokio::spawn(work(Session { input, output }));
    let mut to_process = Some(to_process);
    for event in early {
        if let (Some(input), Some(sender)) = (streams.input(event), &to_process) {
            let _ = sender.send(input).await;
        }
    }
    let mut drained = false;
    let outcome = loop {
        tokio::select! {
            part = from_process.recv(), if !drained => {
                let (to, bytes) = match part {
                    Some(Output::Stdout(bytes)) => (streams.stdout, bytes),
                    Some(Output::Stderr(bytes)) => (streams.stderr, bytes),
                    None => { drained = true; continue }
                };
                if let Some(id) = to && !client.data(id, &bytes).await {
                    to_process = None;
                }
            }
            event = events.recv(), if to_process.is_some() => match event {
                Some(event) => if let (Some(input), Some(sender)) = (streams.input(event), &to_process) {
                    let _ = sender.send(input).await;
                },
                None => to_process = None,
            },
            outcome = &mut working, if drained => break outcome,
        }
    };
    let outcome = outcome.unwrap_or_else(|e| Err(e.to_string()));
    if let Some(id) = streams.error {
        client.data(id, outcome_status(outcome).to_string().as_bytes()).await;
    }
    for id in streams.all() {
        client.finish(id).await;
    }
    // The client closes once it has read the status; do not wait for one that does not.
    let gone = async { while events.recv().await.is_some() {} };
    let _ = tokio::time::timeout(LINGER, gone).await;
    client.leave().await;
}

/// The final message on the error channel: a Status, with the exit code unless it is 0.
fn outcome_status(outcome: ExitResult) -> serde_json::Value {
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
        let wish = StreamOptions::parse("command=sh&command=-c&command=echo+a%20%26b&input=1&output=1&tty=false");
        let command = ["sh", "-c", "echo a &b"].map(str::to_owned).to_vec();
        assert_eq!(wish, StreamOptions { command, stdin: true, stdout: true, ..StreamOptions::default() });
        assert_eq!(wish.streams(), 3);
        assert_eq!(StreamOptions::parse("input=1&output=1&tty=1").streams(), 4);
    }

    #[test]
    fn an_exit_code_is_told_as_kubernetes_tells_it() {
        assert_eq!(outcome_status(Ok(3))["details"]["causes"][0]["message"], "3");
        assert_eq!(outcome_status(Ok(0))["status"], "Success");
    }

    #[test]
    fn channels_carry_input_and_sizes() {
        assert_eq!(channel_input(b"\x00ab"), Some(Input::Stdin(Bytes::from_static(b"ab"))));
        assert_eq!(channel_input(&[255, 0]), Some(Input::StdinEnd));
        let resize = channel_input(b"\x04{\"Width\":80,\"Height\":24}");
        assert_eq!(resize, Some(Input::Resize { width: 80, height: 24 }));
        assert_eq!(channel_input(b"\x04nonsense"), None);
        assert_eq!(channel_input(b""), None);
    }
}
