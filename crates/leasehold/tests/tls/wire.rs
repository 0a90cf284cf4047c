//! The server speaks no TLS, or the wrong kind, or it stalls or closes the connection in the middle.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use leasehold::fence::RedisFence;
use leasehold::{ErrorKind, Leasehold};
use leasehold_testkit::RedisServer;

use crate::common::{assert_says, in_time, refused};

#[tokio::test]
async fn tls_to_a_plain_server() {
    let server = RedisServer::start();
    let url = format!("rediss://127.0.0.1:{}", server.port());
    // Redis waits for the rest of a request that looks long, or replies that it is unknown: this depends on random
    // bytes.
    for error in [
        in_time("a word", Leasehold::connect(&url)).await.unwrap_err(),
        in_time("a word", RedisFence::connect(&url)).await.unwrap_err(),
    ] {
        assert_says(&error, ErrorKind::Unreachable, &["if this port has no TLS, use redis:"]);
    }
}

#[tokio::test]
async fn a_plain_connection_to_a_tls_server() {
    let server = RedisServer::start_tls();
    let error = refused(&format!("redis://127.0.0.1:{}", server.tls_port())).await;
    assert_says(&error, ErrorKind::Unreachable, &["rediss:"]);
}

/// A server that runs until it is dropped. It sends these bytes once to each client that has sent a request, and
/// nothing more.
struct Listener {
    url: String,
    at: SocketAddr,
    is_over: Arc<AtomicBool>,
    accepting: Option<thread::JoinHandle<()>>,
}

fn listener(says: &'static [u8], closes: Closes) -> Listener {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (at, is_over) = (listener.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
    let accepting = {
        let is_over = Arc::clone(&is_over);
        thread::spawn(move || {
            let mut all = Vec::new();
            for stream in listener.incoming().map(Result::unwrap).take_while(|_| !is_over.load(Ordering::SeqCst)) {
                all.push(thread::spawn(move || answer(stream, says, closes)));
            }
            all.into_iter().for_each(|one| one.join().unwrap());
        })
    };
    Listener { url: format!("rediss://{at}"), at, is_over, accepting: Some(accepting) }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        // The thread checks the flag only when a client connects.
        drop(TcpStream::connect(self.at));
        let accepting = self.accepting.take();
        accepting.into_iter().for_each(|accepting| accepting.join().unwrap());
    }
}

fn answer(mut stream: TcpStream, says: &[u8], closes: Closes) {
    // A client may have given this connection up before it sent a byte. Then its other connection got the bytes.
    let mut received = [0; 4096];
    if matches!(stream.read(&mut received), Ok(1..)) && stream.write_all(says).is_ok() && closes == Closes::Never {
        while matches!(stream.read(&mut received), Ok(1..)) {}
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Closes {
    AtOnce,
    Never,
}

/// The header of a record that claims to be a ServerHello of 122 bytes.
const HALF: &[u8] = &[0x16, 3, 3, 0, 122, 2, 0, 0, 118, 3, 3, 7, 7, 7];

/// A server that stalls is given up within the five seconds of `connect`, and the error says what the cause may be.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handshake_that_stalls() {
    for says in [&b""[..], HALF] {
        let listener = listener(says, Closes::Never);
        let begun = Instant::now();
        let error = refused(&listener.url).await;
        assert_says(&error, ErrorKind::Unreachable, &["does not reply to the TLS handshake"]);
        // Twice that: for a lock and for a fence. Without a bound they would wait for ever.
        assert!(begun.elapsed() < 2 * Duration::from_secs(5));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handshake_that_is_cut_or_nonsense() {
    for (says, word) in [
        (&b""[..], "closed the connection in the TLS handshake"),
        (HALF, "closed the connection in the TLS handshake"),
        (b"-ERR unknown command\r\n", "if this port has no TLS"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "if this port has no TLS"),
        // A fatal alert: internal error.
        (&[0x15, 3, 3, 0, 2, 2, 80], "InternalError"),
    ] {
        let listener = listener(says, Closes::AtOnce);
        let error = refused(&listener.url).await;
        assert_says(&error, ErrorKind::Unreachable, &[word]);
        assert!(error.is_retryable());
    }
}

/// A server that is stopped still accepts connections.
#[tokio::test]
async fn a_server_that_is_stopped() {
    let server = RedisServer::start_tls();
    server.stop();
    assert_says(&refused(&server.tls_url()).await, ErrorKind::Unreachable, &["check that it is running"]);
    server.cont();
    drop(Leasehold::connect(&server.tls_url()).await.unwrap());
}
