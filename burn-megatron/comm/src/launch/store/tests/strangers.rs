//! Clients without the token, other services and rubbish: the job does not notice them.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Instant;

use super::*;
use crate::launch::handshake::{HandshakeError, MAGIC, TO_STORE, initiate};

#[test]
fn wrong_token_is_refused_with_the_address() {
    let (server, _) = start(1);
    let address = StoreAddress::new("127.0.0.1", server.address().port(), JobToken::from_text("wrong token"));
    let error = StoreConnection::connect(&address, LONG).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("job token not accepted by the store at {address}: is another job using this port?")
    );
}

#[test]
fn client_that_does_not_know_the_token_gets_no_further() {
    let (server, _) = start(1);
    let mut stream = TcpStream::connect(server.address()).unwrap();
    let greeting = [&MAGIC[..], &TO_STORE, &[7; 32]].concat();
    stream.write_all(&greeting).unwrap();
    stream.read_exact(&mut [0; 40]).unwrap();
    stream.write_all(&[0; 32]).unwrap(); // a proof of nothing
    let mut verdict = Vec::new();
    stream.read_to_end(&mut verdict).unwrap();
    assert_eq!(verdict, [0; 33]); // refused, no proof in return, and closed
}

#[test]
fn server_that_does_not_know_the_token_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let fake = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut greeting = [0; 82];
        stream.read_exact(&mut greeting).unwrap();
        // The magic is right, and the challenge the client's own.
        stream.write_all(&[&greeting[..8], &greeting[50..]].concat()).unwrap();
        let mut proof = [0; 32];
        stream.read_exact(&mut proof).unwrap();
        stream.write_all(&[1]).unwrap();
        stream.write_all(&proof).unwrap(); // the client's own proof, sent back
    });
    let address = StoreAddress::new("127.0.0.1", port, JobToken::from_text("right token"));
    let error = StoreConnection::connect(&address, LONG).unwrap_err();
    assert!(matches!(error, LaunchError::TokenRefused { .. }), "{error}");
    fake.join().unwrap();
}

#[test]
fn other_service_is_named_as_such() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let web = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
    });
    let address = StoreAddress::new("127.0.0.1", port, JobToken::from_text("right token"));
    let error = StoreConnection::connect(&address, LONG).unwrap_err().to_string();
    assert!(
        error.starts_with(&format!("the service at 127.0.0.1:{port} is not a burn-megatron store")),
        "{error}"
    );
    web.join().unwrap();
}

#[test]
fn store_of_another_version_is_named_as_such() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let newer = thread::spawn(move || listener.accept().unwrap().0.write_all(b"BURNMEG9").unwrap());
    let address = StoreAddress::new("127.0.0.1", port, JobToken::from_text("right token"));
    let error = StoreConnection::connect(&address, LONG).unwrap_err().to_string();
    assert_eq!(
        error,
        format!(
            "no common protocol with the store at 127.0.0.1:{port}: the other end speaks version '9' of the protocol, \
             and this one '4'; is this program the same on every node?"
        )
    );
    newer.join().unwrap();
}

#[test]
fn connection_between_ranks_is_not_taken_for_one_to_the_store() {
    let (server, _) = start(1);
    let mut claim = TO_STORE;
    claim[0] = 1;
    let mut stream = TcpStream::connect(server.address()).unwrap();
    let error = initiate(&mut stream, &claim, b"right token").unwrap_err();
    assert!(matches!(error, HandshakeError::Broken(_)), "{error}"); // closed without an answer
}

#[test]
fn an_address_that_gives_no_answer_leaves_the_next_one_its_time() {
    let (server, _) = start(1);
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let addresses = [mute.local_addr().unwrap(), server.address()];
    let deadline = deadline_after(4 * SECOND);
    let begin = Instant::now();
    let stream = client::reach(&addresses, &JobToken::from_text("right token"), deadline).unwrap();
    assert_eq!(stream.peer_addr().unwrap(), server.address());
    assert!(begin.elapsed() < 4 * SECOND, "{:?}", begin.elapsed());
    // Neither of these two is the store: the error is that of the one that answers.
    let error = client::reach(
        &[server.address(), mute.local_addr().unwrap()],
        &JobToken::from_text("wrong token"),
        deadline_after(SECOND),
    );
    assert!(matches!(error, Err(HandshakeError::TokenRefused)), "{error:?}");
}

#[test]
fn no_service_is_an_error_within_the_timeout() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = StoreAddress::new("127.0.0.1", free, JobToken::from_text("right token"));
    let start = Instant::now();
    let error = StoreConnection::connect(&address, Duration::from_millis(300))
        .unwrap_err()
        .to_string();
    assert!(start.elapsed() < 5 * SECOND);
    assert!(
        error.starts_with(&format!("cannot reach the rendezvous store at 127.0.0.1:{free} within")),
        "{error}"
    );
}

#[test]
fn strangers_do_not_disturb_the_job() {
    let (server, address) = start(2);
    let connect = || TcpStream::connect(server.address()).unwrap();
    // Four times more half-open connections than the store allows in all (4 * 2 + 64), and some that say rubbish.
    let silent: Vec<_> = (0..288).map(|_| connect()).collect();
    let slow: Vec<_> = (0..8)
        .map(|_| {
            let mut stream = connect();
            stream.write_all(&MAGIC[..4]).unwrap(); // a good beginning, and then nothing
            stream
        })
        .collect();
    for _ in 0..8 {
        let mut garbage = connect();
        garbage.write_all(&[0xa5; 4096]).unwrap();
        let mut answer = Vec::new();
        // Closed at once, by an end or by a reset; no answer either way.
        drop(garbage.read_to_end(&mut answer));
        assert!(answer.is_empty());
    }
    let beginning = Instant::now();
    let store = Store::remote(address, LONG);
    store.set("a", b"1").unwrap();
    assert_eq!(store.wait("a", SECOND).unwrap(), b"1");
    assert!(beginning.elapsed() < 4 * SECOND, "{:?}", beginning.elapsed());
    assert_eq!(server.first_failure(), None);
    drop((silent, slow));
}

#[test]
fn malformed_request_costs_only_its_connection() {
    let (server, address) = start(1);
    let mut stream = TcpStream::connect(server.address()).unwrap();
    initiate(&mut stream, &TO_STORE, b"right token").unwrap();
    stream.write_all(&[0xff; 4]).unwrap();
    assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
    Store::remote(address, LONG).set("a", b"1").unwrap();
}

#[test]
fn client_that_goes_while_it_waits_leaves_its_place() {
    let (server, address) = start(1);
    // More than the store's connections in all (4 * 1 + 64), each with a wait of a year.
    for _ in 0..70 {
        let request = Request::Wait {
            key: "never".into(),
            timeout: Duration::from_secs(365 * 24 * 3600),
        };
        let connection = StoreConnection::connect(&address, SECOND).unwrap();
        connection.send(&request, SECOND, "wait").unwrap();
    }
    let store = Store::remote(address, SECOND);
    store.set("a", b"1").unwrap();
    assert_eq!(store.wait("a", SECOND).unwrap(), b"1");
    drop(server);
}
