//! The subset of SPDY/3.1 that Kubernetes uses, server side.
//!
//! Kubernetes uses client-opened streams, data in both directions and half-close; no priorities, pushes or flow control (its own
//! implementation ignores windows). API servers use it to reach kubelets for `exec`, `attach` and `port-forward`, and kubectl
//! tunnels it through WebSockets. [`Decoder`] and [`Encoder`] handle frames, [`start`] runs a connection.

use std::collections::BTreeMap;
use std::io;

use bytes::{Buf as _, Bytes, BytesMut};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;

pub(super) const PROTOCOL: &str = "SPDY/3.1";

/// The dictionary's words; each is preceded by its length.
const WORDS: &str = concat!(
    "options|head|post|put|delete|trace|accept|accept-charset|accept-encoding|accept-language|accept-ranges|",
    "age|allow|authorization|cache-control|connection|content-base|content-encoding|content-language|",
    "content-length|content-location|content-md5|content-range|content-type|date|etag|expect|expires|from|",
    "host|if-match|if-modified-since|if-none-match|if-range|if-unmodified-since|last-modified|location|",
    "max-forwards|pragma|proxy-authenticate|proxy-authorization|range|referer|retry-after|server|te|trailer|",
    "transfer-encoding|upgrade|user-agent|vary|via|warning|www-authenticate|method|get|status|200 OK|version|",
    "HTTP/1.1|url|public|set-cookie|keep-alive|origin",
);
/// The rest of the dictionary.
const REST: &str = concat!(
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505203 Non-Authori",
    "tative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden404 Not ",
    "Found500 Internal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug S",
    "ept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,imag",
    "e/gif,application/xml,application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,",
    "sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0.",
);

/// The initial dictionary for header compression (SPDY/3 draft, 2.6.10.1).
fn dictionary() -> Vec<u8> {
    let mut all = Vec::new();
    for word in WORDS.split('|') {
        all.extend_from_slice(&u32::try_from(word.len()).unwrap_or(0).to_be_bytes());
        all.extend_from_slice(word.as_bytes());
    }
    all.extend_from_slice(REST.as_bytes());
    all
}

const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GOAWAY: u16 = 7;
const FIN: u8 = 1;
const CANCEL: u32 = 5;
/// The maximum size of a stream's headers; Kubernetes sends three short ones.
const MAX_HEADERS: usize = 64 << 10;
/// The maximum size of a data frame.
const MAX_PIECE: usize = 32 << 10;

pub(super) type Headers = BTreeMap<String, String>;

/// A frame from the client.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Frame {
    Open {
        id: u32,
        headers: Headers,
        fin: bool,
    },
    Data {
        id: u32,
        bytes: Bytes,
        fin: bool,
    },
    Reset {
        id: u32,
    },
    Ping {
        id: u32,
    },
    GoAway,
    /// SETTINGS, WINDOW_UPDATE and the like.
    Other,
}

/// Decodes frames from a byte stream.
struct Decoder {
    buffer: BytesMut,
    headers: Decompress,
}

impl Decoder {
    fn new() -> Self {
        Self { buffer: BytesMut::new(), headers: Decompress::new(true) }
    }

    /// The next complete frame, if there is one.
    fn next(&mut self) -> io::Result<Option<Frame>> {
        let Some(head) = self.buffer.first_chunk::<8>().copied() else { return Ok(None) };
        let length = u32::from_be_bytes([0, head[5], head[6], head[7]]) as usize;
        if self.buffer.len() < 8 + length {
            return Ok(None);
        }
        self.buffer.advance(8);
        let body = self.buffer.split_to(length).freeze();
        let word = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
        let fin = head[4] & FIN != 0;
        if word >> 31 == 0 {
            return Ok(Some(Frame::Data { id: word, bytes: body, fin }));
        }
        let version = (word >> 16) & 0x7fff;
        if version != 3 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("SPDY version {version} is not supported")));
        }
        let id = body.first_chunk::<4>().map_or(0, |b| u32::from_be_bytes(*b) & 0x7fff_ffff);
        Ok(Some(match u16::try_from(word & 0xffff).unwrap_or(0) {
            SYN_STREAM => {
                let block = body.get(10..).ok_or_else(|| broken("a stream without headers"))?;
                Frame::Open { id, headers: self.unpack(block)?, fin }
            }
            RST_STREAM => Frame::Reset { id },
            PING => Frame::Ping { id: body.first_chunk::<4>().map_or(0, |b| u32::from_be_bytes(*b)) },
            GOAWAY => Frame::GoAway,
            // Replies and later headers must pass through the decompressor to keep it in sync.
            SYN_REPLY | 8 => {
                self.unpack(body.get(4..).unwrap_or_default())?;
                Frame::Other
            }
            _ => Frame::Other,
        }))
    }

    fn unpack(&mut self, block: &[u8]) -> io::Result<Headers> {
        let mut plain = Vec::with_capacity(1 << 10);
        let mut rest = block;
        while !rest.is_empty() {
            plain.reserve(1 << 10);
            let before = (self.headers.total_in(), plain.len());
            let step = self.headers.decompress_vec(rest, &mut plain, FlushDecompress::Sync);
            let taken = usize::try_from(self.headers.total_in() - before.0).unwrap_or(usize::MAX);
            rest = rest.get(taken..).unwrap_or_default();
            match step {
                Ok(_) if taken == 0 && plain.len() == before.1 => break,
                Ok(_) => {}
                Err(error) if error.needs_dictionary().is_some() => {
                    self.headers.set_dictionary(&dictionary()).map_err(|e| broken(&e.to_string()))?;
                }
                Err(error) => return Err(broken(&error.to_string())),
            }
            if plain.len() > MAX_HEADERS {
                return Err(broken("headers are too long"));
            }
        }
        parse_headers(&plain).ok_or_else(|| broken("headers are cut short"))
    }
}

fn broken(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("SPDY: {why}"))
}

/// A count, then length-prefixed names and values.
fn parse_headers(plain: &[u8]) -> Option<Headers> {
    fn take<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
        let (part, after) = rest.split_at_checked(count)?;
        *rest = after;
        Some(part)
    }
    fn number(rest: &mut &[u8]) -> Option<usize> {
        take(rest, 4)?.first_chunk::<4>().map(|b| u32::from_be_bytes(*b) as usize)
    }
    let mut rest = plain;
    let mut all = Headers::new();
    for _ in 0..number(&mut rest)? {
        let length = number(&mut rest)?;
        let name = String::from_utf8_lossy(take(&mut rest, length)?).to_lowercase();
        let length = number(&mut rest)?;
        all.insert(name, String::from_utf8_lossy(take(&mut rest, length)?).into_owned());
    }
    Some(all)
}

/// Encodes frames.
struct Encoder {
    headers: Compress,
}

impl Encoder {
    fn new() -> Self {
        Self { headers: Compress::new(Compression::fast(), true) }
    }

    /// Accepts a stream, without headers of its own.
    fn reply(&mut self, id: u32) -> io::Result<Vec<u8>> {
        let mut block = Vec::with_capacity(64);
        self.headers.compress_vec(&0_u32.to_be_bytes(), &mut block, FlushCompress::Sync)?;
        let mut body = id.to_be_bytes().to_vec();
        body.extend_from_slice(&block);
        Ok(control(SYN_REPLY, &body))
    }
}

fn control(kind: u16, body: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x80, 3];
    frame.extend_from_slice(&kind.to_be_bytes());
    frame.extend_from_slice(&u32::try_from(body.len()).unwrap_or(0).to_be_bytes());
    frame.extend_from_slice(body);
    frame
}

fn data(id: u32, fin: bool, bytes: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(8 + bytes.len());
    frame.extend_from_slice(&id.to_be_bytes());
    let length = u32::try_from(bytes.len()).unwrap_or(0);
    frame.extend_from_slice(&(length | u32::from(fin) << 24).to_be_bytes());
    frame.extend_from_slice(bytes);
    frame
}

/// An event on a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Event {
    Opened {
        id: u32,
        headers: Headers,
    },
    Data {
        id: u32,
        bytes: Bytes,
    },
    /// The client has half-closed this stream.
    Ended {
        id: u32,
    },
}

enum Outgoing {
    Send(Vec<u8>),
    Accept(u32),
    Leave,
}

/// Sends to the client.
#[derive(Clone)]
pub(super) struct Sender(mpsc::Sender<Outgoing>);

impl Sender {
    /// `false` if the client has disconnected.
    pub(super) async fn data(&self, id: u32, bytes: &[u8]) -> bool {
        for piece in bytes.chunks(MAX_PIECE) {
            if self.0.send(Outgoing::Send(data(id, false, piece))).await.is_err() {
                return false;
            }
        }
        true
    }

    /// Half-closes a stream.
    pub(super) async fn finish(&self, id: u32) {
        let _ = self.0.send(Outgoing::Send(data(id, true, &[]))).await;
    }

    /// Resets a stream.
    pub(super) async fn reset(&self, id: u32) {
        let body = [id.to_be_bytes(), CANCEL.to_be_bytes()].concat();
        let _ = self.0.send(Outgoing::Send(control(RST_STREAM, &body))).await;
    }

    /// Sends GOAWAY and closes the connection once everything has been sent.
    pub(super) async fn leave(&self) {
        let _ = self.0.send(Outgoing::Leave).await;
    }
}

/// Runs the server side of a connection. The events end with the connection.
pub(super) fn start<S>(stream: S) -> (Sender, mpsc::Receiver<Event>)
where
    S: AsyncRead + AsyncWrite + Send + 'static,
{
    let (read, write) = tokio::io::split(stream);
    let (orders, to_write) = mpsc::channel(64);
    let (events, heard) = mpsc::channel(64);
    tokio::spawn(write_all(write, to_write));
    let answers = orders.clone();
    tokio::spawn(async move {
        if let Err(error) = read_all(read, &answers, &events).await {
            tracing::debug!(%error, "a SPDY connection broke");
        }
        let _ = answers.send(Outgoing::Leave).await;
    });
    (Sender(orders), heard)
}

async fn write_all(mut write: impl AsyncWrite + Unpin, mut orders: mpsc::Receiver<Outgoing>) {
    let mut encoder = Encoder::new();
    while let Some(order) = orders.recv().await {
        let (frame, last) = match order {
            Outgoing::Send(frame) => (frame, false),
            Outgoing::Accept(id) => match encoder.reply(id) {
                Ok(frame) => (frame, false),
                Err(_) => return,
            },
            Outgoing::Leave => (control(GOAWAY, &[0; 8]), true),
        };
        if write.write_all(&frame).await.is_err() || write.flush().await.is_err() {
            return;
        }
        if last {
            let _ = write.shutdown().await;
            return;
        }
    }
}

async fn read_all(
    mut read: impl AsyncRead + Unpin,
    answers: &mpsc::Sender<Outgoing>,
    events: &mpsc::Sender<Event>,
) -> io::Result<()> {
    let mut decoder = Decoder::new();
    loop {
        while let Some(frame) = decoder.next()? {
            let (event, ended) = match frame {
                Frame::Open { id, headers, fin } => {
                    // Send the reply before anything is written to the stream.
                    let _ = answers.send(Outgoing::Accept(id)).await;
                    (Some(Event::Opened { id, headers }), fin.then_some(id))
                }
                Frame::Data { id, bytes, fin } => {
                    ((!bytes.is_empty()).then_some(Event::Data { id, bytes }), fin.then_some(id))
                }
                Frame::Reset { id } => (None, Some(id)),
                Frame::Ping { id } => {
                    let _ = answers.send(Outgoing::Send(control(PING, &id.to_be_bytes()))).await;
                    (None, None)
                }
                Frame::GoAway => return Ok(()),
                Frame::Other => (None, None),
            };
            for event in event.into_iter().chain(ended.map(|id| Event::Ended { id })) {
                if events.send(event).await.is_err() {
                    return Ok(());
                }
            }
        }
        if read.read_buf(&mut decoder.buffer).await? == 0 {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dictionary_is_the_one_of_the_protocol() {
        let all = dictionary();
        let sum = all.iter().fold((1_u32, 0_u32), |(a, b), byte| {
            let a = (a + u32::from(*byte)) % 65521;
            (a, (b + a) % 65521)
        });
        // The Adler-32 checksum that identifies the dictionary in compressed headers.
        assert_eq!((all.len(), sum.1 << 16 | sum.0), (1423, 0xe3c6_a7c2));
    }

    /// Headers compressed with the dictionary, as a client sends them.
    fn open(packer: &mut Compress, id: u32, headers: &[(&str, &str)]) -> Vec<u8> {
        let mut plain = u32::try_from(headers.len()).expect("few").to_be_bytes().to_vec();
        for word in headers.iter().flat_map(|(k, v)| [k, v]) {
            plain.extend_from_slice(&u32::try_from(word.len()).expect("short").to_be_bytes());
            plain.extend_from_slice(word.as_bytes());
        }
        let mut block = Vec::with_capacity(4096);
        packer.compress_vec(&plain, &mut block, FlushCompress::Sync).expect("packed");
        let mut body = id.to_be_bytes().to_vec();
        body.extend_from_slice(&[0; 6]);
        body.extend_from_slice(&block);
        control(SYN_STREAM, &body)
    }

    #[tokio::test]
    async fn streams_are_opened_answered_and_closed() {
        let mut packer = Compress::new(Compression::best(), true);
        packer.set_dictionary(&dictionary()).expect("a dictionary");
        let (mut near, far) = tokio::io::duplex(1 << 16);
        let (sender, mut events) = start(far);
        near.write_all(&open(&mut packer, 1, &[("streamtype", "stdin")])).await.expect("sent");
        near.write_all(&open(&mut packer, 3, &[("streamtype", "error"), ("port", "80")])).await.expect("sent");
        near.write_all(&data(1, true, b"hello")).await.expect("sent");
        near.write_all(&control(PING, &7_u32.to_be_bytes())).await.expect("sent");
        let header = |k: &str, v: &str| (k.to_owned(), v.to_owned());
        let first = Event::Opened { id: 1, headers: [header("streamtype", "stdin")].into() };
        let second = Event::Opened { id: 3, headers: [header("streamtype", "error"), header("port", "80")].into() };
        assert_eq!(events.recv().await, Some(first));
        assert_eq!(events.recv().await, Some(second));
        assert_eq!(events.recv().await, Some(Event::Data { id: 1, bytes: Bytes::from_static(b"hello") }));
        assert_eq!(events.recv().await, Some(Event::Ended { id: 1 }));
        assert!(sender.data(3, b"bye").await);
        sender.finish(3).await;
        sender.leave().await;
        let mut answer = Vec::new();
        near.read_to_end(&mut answer).await.expect("an answer");
        let mut kinds = Vec::new();
        let mut rest = answer.as_slice();
        while let Some(head) = rest.first_chunk::<8>() {
            let length = u32::from_be_bytes([0, head[5], head[6], head[7]]) as usize;
            kinds.push(if head[0] & 0x80 == 0 { format!("data {}", head[4]) } else { format!("control {}", head[3]) });
            rest = &rest[8 + length..];
        }
        assert_eq!(kinds, ["control 2", "control 2", "control 6", "data 0", "data 1", "control 7"]);
    }

    #[test]
    fn nonsense_is_refused_and_never_panics() {
        let mut decoder = Decoder::new();
        decoder.buffer.extend_from_slice(&control(SYN_STREAM, &[0; 30]));
        assert!(decoder.next().is_err());
        let mut decoder = Decoder::new();
        decoder.buffer.extend_from_slice(b"GET / HTTP/1.1\r\n\r\n");
        assert!(decoder.next().is_ok());
        let mut decoder = Decoder::new();
        decoder.buffer.extend_from_slice(&[0x80, 2, 0, 1, 0, 0, 0, 0]);
        assert!(decoder.next().is_err(), "another version");
        assert_eq!(parse_headers(&[0, 0, 0, 9]), None);
        assert_eq!(parse_headers(&[0xff; 12]), None);
    }
}
