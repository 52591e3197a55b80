//! The metrics' server over real connections: clients that are slow, too many, too long or no clients of HTTP.

#![allow(clippy::unwrap_used)] // Its helpers are tests too.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use burn_megatron_monitoring::prometheus::{
    CONTENT_TYPE, MAX_CONNECTIONS, MAX_REQUEST_BYTES, MetricsServer, TIME_LIMIT,
};

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const GET: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";

fn server() -> MetricsServer {
    let server = MetricsServer::start(LOOPBACK, 0).unwrap();
    server.publish("burn_megatron_loss 2.5\n");
    server
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(4 * TIME_LIMIT)).unwrap();
    stream
}

/// Status, headers and body of the answer to these bytes.
fn ask(address: SocketAddr, request: &[u8]) -> (String, String, String) {
    let mut stream = connect(address);
    stream.write_all(request).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    let (status, headers) = head.split_once("\r\n").unwrap();
    (status.to_owned(), headers.to_owned(), body.to_owned())
}

#[test]
fn the_last_text_is_served() {
    let server = server();
    let (status, headers, body) = ask(server.address(), GET);
    assert_eq!(status, "HTTP/1.1 200 OK");
    assert!(headers.contains(&format!("Content-Type: {CONTENT_TYPE}")), "{headers}");
    assert!(headers.contains("Content-Length: 23"), "{headers}");
    assert_eq!(body, "burn_megatron_loss 2.5\n");
    // Larger than what the system takes at once.
    let large = "x".repeat(8 << 20);
    server.publish(&large);
    assert!(ask(server.address(), GET).2 == large);
    let (status, headers, body) = ask(server.address(), b"HEAD /metrics HTTP/1.1\r\n\r\n");
    assert_eq!((status.as_str(), body.as_str()), ("HTTP/1.1 200 OK", ""));
    assert!(headers.contains("Content-Length: 8388608"), "{headers}");
}

#[test]
fn what_is_no_request_for_metrics_is_refused() {
    let server = server();
    let long = [
        b"GET /metrics HTTP/1.1\r\nX: ".to_vec(),
        vec![b'x'; 500_000],
        b"\r\n\r\n".to_vec(),
    ]
    .concat();
    for (request, status) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], "404 Not Found"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", "405 Method Not Allowed"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\n\n", "400 Bad Request"),
        (b"\xff\xfe\r\n\r\n", "400 Bad Request"),
        (&long, "431 Request Header Fields Too Large"),
        (
            &vec![b'x'; MAX_REQUEST_BYTES + 1],
            "431 Request Header Fields Too Large",
        ),
    ] {
        assert_eq!(ask(server.address(), request).0, format!("HTTP/1.1 {status}"));
    }
    assert_eq!(ask(server.address(), GET).0, "HTTP/1.1 200 OK");
}

#[test]
fn a_slow_client_holds_up_no_other_and_is_closed_in_time() {
    let server = server();
    let started = Instant::now();
    let mut slow = connect(server.address());
    slow.write_all(&GET[..10]).unwrap();
    for _ in 0..20 {
        assert_eq!(ask(server.address(), GET).0, "HTTP/1.1 200 OK");
    }
    let others = started.elapsed();
    assert!(others < TIME_LIMIT, "{others:?}");
    // It is closed without an answer, not before its time.
    let mut end = Vec::new();
    let closed = slow.read_to_end(&mut end);
    assert!(closed.is_err() || end.is_empty());
    let elapsed = started.elapsed();
    assert!(elapsed >= TIME_LIMIT && elapsed < 3 * TIME_LIMIT, "{elapsed:?}");
}

#[test]
fn when_there_are_too_many_clients_the_oldest_leaves() {
    let server = server();
    let mut silent: Vec<TcpStream> = (0..4 * MAX_CONNECTIONS).map(|_| connect(server.address())).collect();
    let started = Instant::now();
    assert_eq!(ask(server.address(), GET).0, "HTTP/1.1 200 OK");
    let closed = silent[0].read(&mut [0; 1]);
    assert!(matches!(closed, Ok(0) | Err(_)), "{closed:?}");
    assert!(started.elapsed() < TIME_LIMIT);
    // One of the last is still there.
    let last = silent.last_mut().unwrap();
    last.write_all(GET).unwrap();
    let mut response = String::new();
    last.read_to_string(&mut response).unwrap();
    assert!(response.starts_with("HTTP/1.1 200 OK"), "{response}");
}

#[test]
fn a_server_ends_at_once_and_gives_its_port_back() {
    let server = server();
    let address = server.address();
    let _silent = connect(address);
    let error = MetricsServer::start(LOOPBACK, address.port()).unwrap_err().to_string();
    assert!(
        error.contains(&address.to_string()) && error.contains("--prometheus-port"),
        "{error}"
    );
    let started = Instant::now();
    drop(server);
    assert!(started.elapsed() < Duration::from_secs(2));
    assert!(TcpStream::connect(address).is_err());
    // Where the machine has it.
    if let Ok(server) = MetricsServer::start(IpAddr::V6(Ipv6Addr::LOCALHOST), 0) {
        assert_eq!(ask(server.address(), GET).0, "HTTP/1.1 200 OK");
    }
}
