//! The listener: TCP, TLS, HTTP/1.1 and HTTP/2, until shutdown.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::state::State;

const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
const HEADER_LIMIT: Duration = Duration::from_secs(30);
/// How long open requests may continue after shutdown.
const DRAIN: Duration = Duration::from_secs(2);

pub(crate) async fn accept(
    listener: TcpListener,
    tls: rustls::ServerConfig,
    state: Arc<State>,
    stopping: CancellationToken,
) {
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    let tracker = tokio_util::task::TaskTracker::new();
    loop {
        tokio::select! {
            () = stopping.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    tracker.spawn(connection(stream, acceptor.clone(), state.clone(), stopping.clone()));
                }
                Err(error) => {
                    // Out of file descriptors or the like: give others time to finish.
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            },
        }
    }
    tracker.close();
    let _ = tokio::time::timeout(DRAIN + Duration::from_secs(1), tracker.wait()).await;
}

async fn connection(stream: TcpStream, acceptor: TlsAcceptor, state: Arc<State>, stopping: CancellationToken) {
    let _ = stream.set_nodelay(true);
    let stream = match tokio::time::timeout(HANDSHAKE_LIMIT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            tracing::debug!(%error, "TLS handshake failed");
            return;
        }
        Err(_) => return,
    };
    let certificate = stream
        .get_ref()
        .1
        .peer_certificates()
        .and_then(|chain| chain.first())
        .and_then(|leaf| crate::authentication::certificate_user(leaf))
        .map(Arc::new);
    let service = service_fn(move |request: Request<Incoming>| {
        let (state, certificate) = (state.clone(), certificate.clone());
        async move {
            Ok::<_, std::convert::Infallible>(crate::handler::serve(state, certificate, request.map(Body::new)).await)
        }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_LIMIT);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(1000)
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20));
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => Some(ended),
        () = stopping.cancelled() => None,
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            connection.as_mut().graceful_shutdown();
            match tokio::time::timeout(DRAIN, connection).await {
                Ok(ended) => ended,
                Err(_) => return,
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended");
    }
}
