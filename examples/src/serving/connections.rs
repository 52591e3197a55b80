//! [`HttpServer`]: a thread that takes connections and gives their requests to the routes, within limits of time that
//! no client can exceed.
//!
//! A client that sends nothing, or half of a head, is cut off after the client's timeout; one that does not take what
//! it gets, by the kernel after the same time. One that closes the half in which it sends gets its answer. The response
//! to a body that was refused reaches its client: the connection is closed in one direction first, and a little of what
//! still comes is thrown away.

use std::future::{poll_fn, ready};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::http::header::CONNECTION;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::engine::Phase;
use super::error::ApiError;
use super::heads::Heads;

/// How long responses may take to be sent after the engine has ended.
const FLUSH: Duration = Duration::from_secs(2);
/// How long what comes after a refusal is thrown away, and how many bytes at most.
const LINGER: (Duration, usize) = (Duration::from_secs(1), 16 << 20);
/// How long nothing is accepted after accepting has failed, say for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Threads that turn prompts into tokens; more would take the cores from the model.
const TOKENIZING_THREADS: usize = 2;
/// The most bytes of a request's head.
const MOST_HEAD_BYTES: usize = 64 << 10;

/// The thread that talks to clients.
pub(super) struct HttpServer {
    thread: JoinHandle<()>,
}

/// What is served, and within which limits.
pub(super) struct Serving {
    pub(super) router: Router,
    pub(super) phase: watch::Receiver<Phase>,
    pub(super) client_timeout: Duration,
    pub(super) max_connections: usize,
}

impl HttpServer {
    /// Begins to take connections.
    pub(super) fn start(listener: std::net::TcpListener, serving: Serving) -> anyhow::Result<Self> {
        listener.set_nonblocking(true).context("the server's socket")?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(TOKENIZING_THREADS)
            .build();
        let runtime = runtime.context("the server's thread")?;
        let serve = move || runtime.block_on(serve(listener, serving));
        let thread = thread::Builder::new().name("http".to_owned()).spawn(serve);
        Ok(Self {
            thread: thread.context("the server's thread")?,
        })
    }

    /// Waits for the responses to be sent, after the engine has ended; not longer than `FLUSH` and what a tokenizer
    /// takes.
    pub(super) fn finish(self) {
        if self.thread.join().is_err() {
            tracing::error!("the thread that talks to clients has panicked");
        }
    }
}

/// Listens at an address.
///
/// # Errors
/// When it is taken, or not this machine's.
pub(super) fn listen(address: SocketAddr) -> anyhow::Result<std::net::TcpListener> {
    std::net::TcpListener::bind(address).with_context(|| format!("cannot listen on {address}"))
}

/// Takes connections until the phase is another one than serving, and then waits for them to end.
async fn serve(listener: std::net::TcpListener, serving: Serving) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "cannot listen"),
    };
    let serving = Arc::new(serving);
    let places = Arc::new(Semaphore::new(serving.max_connections.min(Semaphore::MAX_PERMITS)));
    let mut phase = serving.phase.clone();
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            _ = phase.wait_for(|phase| *phase != Phase::Serving) => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept() => match accepted {
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    sleep(ACCEPT_PAUSE).await;
                }
                Ok((stream, _)) => {
                    prepare(&stream, serving.client_timeout);
                    match places.clone().try_acquire_owned() {
                        Err(_) => {
                            connections.spawn(turn_away(stream, serving.max_connections));
                        }
                        Ok(place) => {
                            let serving = serving.clone();
                            connections.spawn(async move {
                                let _place = place;
                                talk(stream, &serving).await;
                            });
                        }
                    }
                }
            }
        }
    }
    drop(listener);
    let all_ended = async { while connections.join_next().await.is_some() {} };
    let too_long = async {
        let _ = phase.wait_for(|phase| matches!(phase, Phase::Ended(_))).await;
        sleep(FLUSH).await;
    };
    tokio::select! {
        () = all_ended => {}
        () = too_long => tracing::warn!("connections are left open by their clients, and are closed"),
    }
}

/// Sets what the kernel does for a connection: small pieces are sent at once, and a client that does not take them, or
/// has vanished, is given up.
fn prepare(stream: &TcpStream, client_timeout: Duration) {
    let keep_alive = TcpKeepalive::new()
        .with_time(client_timeout)
        .with_interval(client_timeout);
    let socket = SockRef::from(stream);
    let set = [
        socket.set_tcp_nodelay(true),
        socket.set_tcp_keepalive(&keep_alive),
        #[cfg(any(target_os = "android", target_os = "linux"))]
        socket.set_tcp_user_timeout(Some(client_timeout)),
    ];
    if let Some(error) = set.into_iter().find_map(Result::err) {
        tracing::warn!(%error, "cannot set a connection's limits");
    }
}

/// Serves the requests of a connection, one after the other.
async fn talk(stream: TcpStream, serving: &Serving) {
    let service = TowerToHyperService::new(serving.router.clone());
    let (stream, peer) = Heads::new(stream, MOST_HEAD_BYTES);
    let of_service = peer.clone();
    let service = service_fn(move |request: hyper::Request<Incoming>| -> Answer {
        if of_service.has_two_lengths() {
            let message = "a body has a Content-Length or a Transfer-Encoding, this one has both";
            let error = ApiError::new(StatusCode::BAD_REQUEST, message);
            let mut response = error.into_response_of(request.uri().path());
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(CONNECTION, close);
            return Box::pin(ready(Ok(response)));
        }
        Box::pin(service.call(request))
    });
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(serving.client_timeout)
        .max_buf_size(MOST_HEAD_BYTES)
        // Who has sent a request may close that half, and wait for the answer.
        .half_close(true)
        .serve_connection(TokioIo::new(stream), service);
    let mut phase = serving.phase.clone();
    let mut is_last = false;
    loop {
        tokio::select! {
            ended = poll_fn(|context| connection.poll_without_shutdown(context)) => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection has ended");
                }
                break;
            }
            _ = phase.wait_for(|phase| *phase != Phase::Serving), if !is_last => {
                is_last = true;
                Pin::new(&mut connection).graceful_shutdown();
            }
            // What it has asked for is cancelled with the connection.
            () = peer.leaves() => break,
        }
    }
    drop(connection);
    if let Some(peer) = Arc::into_inner(peer) {
        close(peer.into_stream()).await;
    }
}

/// What a request comes to. In a box, so that it can be polled through a reference.
type Answer = Pin<Box<dyn Future<Output = Result<Response, std::convert::Infallible>> + Send>>;

/// Answers a connection that is one too many.
async fn turn_away(mut stream: TcpStream, most: usize) {
    let error = ApiError::new(
        StatusCode::TOO_MANY_REQUESTS,
        format!("{most} connections are open already, which is the most"),
    );
    let body = error.as_openai().to_string();
    let head = format!(
        "HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/json\r\nretry-after: 1\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    // The client may have left.
    let _: io::Result<()> = async {
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(body.as_bytes()).await
    }
    .await;
    close(stream).await;
}

/// Closes a connection so that the last response is not lost: a connection that is closed with bytes unread is reset.
async fn close(mut stream: TcpStream) {
    let (longest, mut left) = LINGER;
    let _ = stream.shutdown().await;
    let drain = async {
        let mut bytes = vec![0; 16 << 10];
        while left > 0 {
            match stream.read(&mut bytes).await {
                Ok(0) | Err(_) => break,
                Ok(count) => left = left.saturating_sub(count),
            }
        }
    };
    let _ = timeout(longest, drain).await;
}
