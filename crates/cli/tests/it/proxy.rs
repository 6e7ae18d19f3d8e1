//! A proxy between us and the API server.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::place::{NO_WAIT, NOWHERE, Place};
use crate::program::Run as _;

/// An HTTP proxy that only tunnels; tells how often it was used.
fn tunnel() -> (String, Arc<AtomicU32>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("http://{}", listener.local_addr().expect("an address"));
    let used = Arc::new(AtomicU32::new(0));
    let count = used.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let count = count.clone();
            std::thread::spawn(move || connect(stream, &count));
        }
    });
    (address, used)
}

fn connect(client: TcpStream, used: &AtomicU32) -> Option<()> {
    let mut reader = BufReader::new(client);
    let mut first = String::new();
    reader.read_line(&mut first).ok()?;
    let target = first.strip_prefix("CONNECT ")?.split_whitespace().next()?.to_owned();
    let mut line = String::new();
    while reader.read_line(&mut line).ok()? > 2 {
        line.clear();
    }
    let server = TcpStream::connect(target).ok()?;
    used.fetch_add(1, Ordering::SeqCst);
    let mut client = reader.into_inner();
    client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").ok()?;
    let (mut from_server, mut to_client) = (server.try_clone().ok()?, client.try_clone().ok()?);
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut from_server, &mut to_client);
        let _ = to_client.shutdown(std::net::Shutdown::Both);
    });
    std::io::copy(&mut client, &mut { server }).ok()?;
    Some(())
}

#[tokio::test]
async fn https_proxy_is_used_unless_no_proxy_covers_the_server() {
    let Some(place) = Place::new("proxy").await else { return };
    let (address, used) = tunnel();
    let ran = place.submission(&[NO_WAIT, NOWHERE]).env("HTTPS_PROXY", &address).run();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let through = used.load(Ordering::SeqCst);
    assert!(through >= 1);
    let host = place.env.server();
    let host = host.trim_start_matches("https://").split([':', '/']).next().expect("a host").to_owned();
    let ran = place.submission(&[NO_WAIT, NOWHERE]).env("HTTPS_PROXY", &address).env("NO_PROXY", host).run();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(used.load(Ordering::SeqCst), through);
}
