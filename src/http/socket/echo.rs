//! A door that gives every message back, for conformance suites that only know such servers: our
//! handshake, settings and goodbyes, without a conversation behind them. One client at a time.

use std::convert::Infallible;
use std::sync::Mutex;

use futures_util::{SinkExt, StreamExt};
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::protocol::Message;

use super::{End, handshake, open, part};
use crate::http::reply;

/// Serves `listener` until it is dropped.
pub async fn serve(listener: TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        Box::pin(connection(stream)).await;
    }
}

async fn connection(stream: TcpStream) {
    let granted = Mutex::new(None);
    let answer = async |mut request: Request<Incoming>| {
        let reply = match handshake::read(request.version(), request.headers()) {
            Err(bad) => reply::closing(bad.into()),
            Ok(handshake) => {
                if let Ok(mut granted) = granted.lock() {
                    *granted = Some(hyper::upgrade::on(&mut request));
                }
                reply::switching(&handshake)
            }
        };
        Ok::<_, Infallible>(reply)
    };
    let connection = http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service_fn(answer))
        .with_upgrades();
    if connection.await.is_err() {
        return;
    }
    let Some(upgrade) = granted.into_inner().ok().flatten() else { return };
    let Ok(upgraded) = upgrade.await else { return };
    let Ok(parts) = upgraded.downcast::<TokioIo<TcpStream>>() else { return };
    let mut socket = open(parts.io.into_inner(), &parts.read_buf).await;
    let end = loop {
        let said = match socket.next().await {
            None => break End::Gone,
            Some(Err(error)) => break End::of(&error),
            Some(Ok(said @ (Message::Text(_) | Message::Binary(_)))) => socket.send(said).await,
            // Pings and goodbyes are answered below us, with the next write.
            Some(Ok(_)) => socket.flush().await,
        };
        if let Err(error) = said {
            break End::of(&error);
        }
    };
    part(socket, end).await;
}
