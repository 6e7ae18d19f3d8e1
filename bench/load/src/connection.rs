//! A persistent HTTP/1.1 connection over TLS: sequential requests, or a watch.

use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf as _, BytesMut};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The server's address and credentials: the first cluster and user of a self-contained kubeconfig, with a token or a
/// certificate.
#[derive(Clone)]
pub(crate) struct Server {
    address: String,
    tls: Arc<rustls::ClientConfig>,
    /// The token's header line, if there is one.
    authorization: Arc<str>,
}

impl Server {
    pub(crate) fn of(kubeconfig: &str) -> Result<Self> {
        let text = std::fs::read_to_string(kubeconfig).with_context(|| format!("read {kubeconfig}"))?;
        let config: Value = serde_saphyr::from_str(&text).with_context(|| format!("read {kubeconfig}"))?;
        let field = |pointer: &str| {
            let found = config.pointer(pointer).and_then(Value::as_str);
            found.with_context(|| format!("{kubeconfig} has no {pointer}"))
        };
        let pem = |pointer: &str| Ok::<_, anyhow::Error>(STANDARD.decode(field(pointer)?)?);
        let url = field("/clusters/0/cluster/server")?;
        let address = url.strip_prefix("https://").context("the server is not https")?.trim_end_matches('/').to_owned();
        let mut roots = rustls::RootCertStore::empty();
        for root in CertificateDer::pem_slice_iter(&pem("/clusters/0/cluster/certificate-authority-data")?) {
            roots.add(root?)?;
        }
        let tls = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots);
        let (tls, authorization) = match field("/users/0/user/token") {
            Ok(token) => (tls.with_no_client_auth(), format!("Authorization: Bearer {token}\r\n")),
            Err(_) => {
                let chain = CertificateDer::pem_slice_iter(&pem("/users/0/user/client-certificate-data")?)
                    .collect::<Result<Vec<_>, _>>()?;
                let key = PrivateKeyDer::from_pem_slice(&pem("/users/0/user/client-key-data")?)?;
                (tls.with_client_auth_cert(chain, key)?, String::new())
            }
        };
        Ok(Self { address, tls: Arc::new(tls), authorization: authorization.into() })
    }

    pub(crate) async fn connect(&self) -> Result<Connection> {
        let stream = TcpStream::connect(&self.address).await.with_context(|| format!("connect to {}", self.address))?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from(self.address.split(':').next().unwrap_or_default().to_owned())?;
        let stream = TlsConnector::from(self.tls.clone()).connect(name, stream).await?;
        let authorization = self.authorization.clone();
        Ok(Connection { stream, buffer: BytesMut::with_capacity(64 << 10), authorization })
    }
}

pub(crate) struct Connection {
    stream: TlsStream<TcpStream>,
    buffer: BytesMut,
    authorization: Arc<str>,
}

/// A response's code and body.
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// The body, if the code is one of the expected ones.
    pub(crate) fn expect(self, codes: &[u16]) -> Result<Vec<u8>> {
        if !codes.contains(&self.code) {
            bail!("the server answered {}: {}", self.code, String::from_utf8_lossy(&self.body));
        }
        Ok(self.body)
    }
}

impl Connection {
    /// Sends a request and reads the whole response.
    pub(crate) async fn request(&mut self, method: &str, path: &str, media: &str, body: &str) -> Result<Answer> {
        self.send(method, path, media, body).await?;
        let head = self.head().await?;
        let mut answer = Vec::new();
        if head.chunked {
            while let Some(()) = self.chunk(&mut answer).await? {}
        } else {
            while self.buffer.len() < head.length {
                self.more().await?;
            }
            answer.extend_from_slice(&self.buffer.split_to(head.length));
        }
        Ok(Answer { code: head.code, body: answer })
    }

    /// Sends a request whose response is a stream; [`Connection::chunk`] reads it.
    pub(crate) async fn stream(&mut self, path: &str) -> Result<()> {
        self.send("GET", path, "application/json", "").await?;
        let head = self.head().await?;
        if head.code != 200 || !head.chunked {
            bail!("{path} is not a stream: {}", head.code);
        }
        Ok(())
    }

    async fn send(&mut self, method: &str, path: &str, media: &str, body: &str) -> Result<()> {
        let (length, authorization) = (body.len(), &self.authorization);
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\n{authorization}User-Agent: load\r\nAccept: application/json\r\nContent-Type: {media}\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        self.stream.write_all(request.as_bytes()).await?;
        self.stream.flush().await?;
        Ok(())
    }

    async fn more(&mut self) -> Result<()> {
        if self.stream.read_buf(&mut self.buffer).await? == 0 {
            bail!("the server closed the connection");
        }
        Ok(())
    }

    async fn head(&mut self) -> Result<Head> {
        loop {
            if let Some(end) = memchr::memmem::find(&self.buffer, b"\r\n\r\n") {
                let head = self.buffer.split_to(end + 4);
                return Head::parse(std::str::from_utf8(&head)?);
            }
            self.more().await?;
        }
    }

    /// Appends the next chunk; `None` at the end of the stream.
    pub(crate) async fn chunk(&mut self, into: &mut Vec<u8>) -> Result<Option<()>> {
        let (start, size) = loop {
            if let Some(end) = memchr::memmem::find(&self.buffer, b"\r\n") {
                let digits = std::str::from_utf8(&self.buffer[..end])?;
                break (end + 2, usize::from_str_radix(digits, 16)?);
            }
            self.more().await?;
        };
        while self.buffer.len() < start + size + 2 {
            self.more().await?;
        }
        into.extend_from_slice(&self.buffer[start..start + size]);
        self.buffer.advance(start + size + 2);
        Ok((size > 0).then_some(()))
    }
}

struct Head {
    code: u16,
    length: usize,
    chunked: bool,
}

impl Head {
    fn parse(text: &str) -> Result<Self> {
        let code = text.split(' ').nth(1).context("not HTTP")?.parse()?;
        let mut head = Self { code, length: 0, chunked: false };
        for (name, value) in text.lines().filter_map(|line| line.split_once(':')) {
            if name.eq_ignore_ascii_case("content-length") {
                head.length = value.trim().parse()?;
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                head.chunked = true;
            }
        }
        Ok(head)
    }
}
