//! `/attach/{namespace}/{pod}/{container}`: attaches to the standard streams of a container's main process.

use axum::response::Response;
use bytes::Bytes;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;

use super::remote_command::{self, Input, Output, Session, StreamRequest};
use crate::frames;
use crate::shim::short_path;
use crate::shim_protocol::{ATTACHED, Command, PodDir};

pub(super) async fn serve(target: StreamRequest) -> Response {
    remote_command::serve(target, |session, dir, container| async move {
        attach(session, &dir, &container).await.map_err(|e| format!("error attaching to container: {e}"))
    })
    .await
}

/// Relays bytes between client and shim until the container exits or the client disconnects.
async fn attach(session: Session, dir: &PodDir, container: &str) -> std::io::Result<i32> {
    let Session { mut input, output } = session;
    let socket = short_path(dir.path())?;
    let stream = UnixStream::connect(socket.path.join(PodDir::socket_name())).await?;
    let (read, mut write) = stream.into_split();
    let mut read = BufReader::new(read);
    let mut line = serde_json::to_vec(&Command::Attach { container: container.to_owned() })?;
    line.push(b'\n');
    write.write_all(&line).await?;
    // The shim may send other lines before it answers.
    let mut answer = String::new();
    while answer.trim() != ATTACHED {
        answer.clear();
        if read.read_line(&mut answer).await? == 0 {
            return Err(std::io::Error::other(format!("container {container} is not running")));
        }
    }
    let mut heard = Vec::new();
    let mut buffer = vec![0_u8; 32 << 10];
    loop {
        tokio::select! {
            count = read.read(&mut buffer) => {
                let count = count?;
                if count == 0 {
                    return Ok(0);
                }
                heard.extend_from_slice(&buffer[..count]);
                while let Some((kind, data)) = frames::take(&mut heard) {
                    let part = if kind == frames::STDERR { Output::Stderr } else { Output::Stdout };
                    if output.send(part(Bytes::from(data))).await.is_err() {
                        return Ok(0);
                    }
                }
            }
            wanted = input.recv() => {
                let frame = match wanted {
                    Some(Input::Stdin(bytes)) => frames::encode(frames::STDIN, &bytes),
                    Some(Input::Resize { width, height }) => frames::encode_size(width, height),
                    Some(Input::StdinEnd) => frames::encode(frames::END, &[]),
                    None => return Ok(0),
                };
                write.write_all(&frame).await?;
            }
        }
    }
}
