//! A proxy between the client and the API server.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use crate::place::{NO_WAIT, NOWHERE, Place};
use crate::program::Run as _;

/// An HTTP proxy that only tunnels.
pub(crate) struct Tunnel {
    address: String,
    clients: Arc<Mutex<Vec<TcpStream>>>,
}

impl Tunnel {
    pub(crate) fn open() -> Tunnel {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = format!("http://{}", listener.local_addr().expect("an address"));
        let clients = Arc::new(Mutex::new(Vec::new()));
        let known = clients.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                known.lock().expect("whole").push(stream.try_clone().expect("a second handle"));
                std::thread::spawn(move || connect(stream));
            }
        });
        Tunnel { address, clients }
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// How many connections it has had.
    pub(crate) fn used(&self) -> usize {
        self.clients.lock().expect("whole").len()
    }

    /// Cuts all connections.
    pub(crate) fn cut(&self) {
        for client in self.clients.lock().expect("whole").iter() {
            let _ = client.shutdown(Shutdown::Both);
        }
    }
}

fn connect(client: TcpStream) -> Option<()> {
    let mut reader = BufReader::new(client);
    let mut first = String::new();
    reader.read_line(&mut first).ok()?;
    let target = first.strip_prefix("CONNECT ")?.split_whitespace().next()?.to_owned();
    let mut line = String::new();
    while reader.read_line(&mut line).ok()? > 2 {
        line.clear();
    }
    let server = TcpStream::connect(target).ok()?;
    let mut client = reader.into_inner();
    client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").ok()?;
    let (mut from_server, mut to_client) = (server.try_clone().ok()?, client.try_clone().ok()?);
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut from_server, &mut to_client);
        let _ = to_client.shutdown(Shutdown::Both);
    });
    let mut to_server = server;
    let _ = std::io::copy(&mut client, &mut to_server);
    let _ = to_server.shutdown(Shutdown::Both);
    Some(())
}

#[tokio::test]
async fn https_proxy_is_used_unless_no_proxy_covers_the_server() {
    let Some(place) = Place::new("proxy").await else { return };
    let tunnel = Tunnel::open();
    let ran = place.submission(&[NO_WAIT, NOWHERE]).env("HTTPS_PROXY", tunnel.address()).run();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let through = tunnel.used();
    assert!(through >= 1);
    let host = place.env.server();
    let host = host.trim_start_matches("https://").split([':', '/']).next().expect("a host").to_owned();
    let ran = place.submission(&[NO_WAIT, NOWHERE]).env("HTTPS_PROXY", tunnel.address()).env("NO_PROXY", host).run();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(tunnel.used(), through);
}
