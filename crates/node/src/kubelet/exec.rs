//! `/exec/{namespace}/{pod}/{container}`: runs a command in a container.

use std::process::Stdio;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin};
use tokio::sync::mpsc;

use super::remote_command::{self, ExitResult, Input, Output, Session, StreamRequest};
use super::{Api, refuse};
use crate::frames;

pub(super) async fn serve(State(api): State<Arc<Api>>, target: StreamRequest) -> Response {
    if target.wish.command.is_empty() {
        return refuse(StatusCode::BAD_REQUEST, "you must specify at least one command for the container");
    }
    let (shim, asked) = (api.shared.options.shim.clone(), target.wish.clone());
    remote_command::serve(target, move |session, dir, container| async move {
        let stdin = if asked.stdin || asked.tty { Stdio::piped() } else { Stdio::null() };
        match crate::agent::exec::spawn(&shim, dir.path(), &container, &asked.command, stdin, asked.tty) {
            Ok(child) => relay(session, child, asked.tty).await,
            Err(error) => Err(error.to_string()),
        }
    })
    .await
}

/// Relays bytes between client and process until the process exits. If the client disconnects, the process is killed.
async fn relay(session: Session, mut child: Child, tty: bool) -> ExitResult {
    let Session { mut input, output } = session;
    if let Some(stdout) = child.stdout.take() {
        tokio::spawn(pump(stdout, Output::Stdout, output.clone()));
    }
    if let Some(stderr) = child.stderr.take() {
        tokio::spawn(pump(stderr, Output::Stderr, output));
    }
    let mut stdin = child.stdin.take();
    loop {
        tokio::select! {
            status = child.wait() => {
                return status.map(|s| s.code().unwrap_or(137)).map_err(|e| e.to_string());
            }
            heard = input.recv() => match heard {
                Some(heard) => write_input(heard, &mut stdin, tty).await,
                None => {
                    let _ = child.kill().await;
                    return Err("the client is gone".to_owned());
                }
            },
        }
    }
}

async fn write_input(heard: Input, stdin: &mut Option<ChildStdin>, tty: bool) {
    let Some(pipe) = stdin else { return };
    let written = match heard {
        Input::Stdin(bytes) if tty => pipe.write_all(&frames::encode(frames::STDIN, &bytes)).await,
        Input::Stdin(bytes) => pipe.write_all(&bytes).await,
        Input::Resize { width, height } if tty => pipe.write_all(&frames::encode_size(width, height)).await,
        Input::Resize { .. } => Ok(()),
        Input::StdinEnd => {
            *stdin = None;
            return;
        }
    };
    if written.is_err() {
        *stdin = None;
    }
}

async fn pump(mut source: impl AsyncRead + Unpin, kind: fn(Bytes) -> Output, sender: mpsc::Sender<Output>) {
    let mut buffer = vec![0_u8; 32 << 10];
    while let Ok(n) = source.read(&mut buffer).await {
        if n == 0 || sender.send(kind(Bytes::copy_from_slice(&buffer[..n]))).await.is_err() {
            return;
        }
    }
}
