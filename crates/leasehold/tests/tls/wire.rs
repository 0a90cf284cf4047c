//! What listens is no TLS, or not the TLS that was meant; it stops, or hangs up, in the middle.

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
async fn tls_where_there_is_none() {
    let server = RedisServer::start();
    let url = format!("rediss://127.0.0.1:{}", server.port());
    // Redis waits for the rest of what it takes for a long request, or calls it unknown: that goes by random bytes.
    for error in [
        in_time("a word", Leasehold::connect(&url)).await.unwrap_err(),
        in_time("a word", RedisFence::connect(&url)).await.unwrap_err(),
    ] {
        assert_says(&error, ErrorKind::Unreachable, &["if this port has no TLS, use redis:"]);
    }
}

#[tokio::test]
async fn no_tls_where_there_is_some() {
    let server = RedisServer::start_tls();
    let error = refused(&format!("redis://127.0.0.1:{}", server.tls_port())).await;
    assert_says(&error, ErrorKind::Unreachable, &["rediss:"]);
}

/// Somebody who listens until he is dropped, and says this and no more to whoever has said something.
struct Listener {
    url: String,
    at: SocketAddr,
    is_over: Arc<AtomicBool>,
    accepting: Option<thread::JoinHandle<()>>,
}

fn listener(says: &'static [u8], goes: Goes) -> Listener {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (at, is_over) = (listener.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
    let accepting = {
        let is_over = Arc::clone(&is_over);
        thread::spawn(move || {
            let mut all = Vec::new();
            for stream in listener.incoming().map(Result::unwrap).take_while(|_| !is_over.load(Ordering::SeqCst)) {
                all.push(thread::spawn(move || answer(stream, says, goes)));
            }
            all.into_iter().for_each(|one| one.join().unwrap());
        })
    };
    Listener { url: format!("rediss://{at}"), at, is_over, accepting: Some(accepting) }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        // It looks up for a connection only.
        drop(TcpStream::connect(self.at));
        let accepting = self.accepting.take();
        accepting.into_iter().for_each(|accepting| accepting.join().unwrap());
    }
}

fn answer(mut stream: TcpStream, says: &[u8], goes: Goes) {
    // Whoever was given up before he said a word is no matter: the other connection of his client's was told.
    let mut heard = [0; 4096];
    if matches!(stream.read(&mut heard), Ok(1..)) && stream.write_all(says).is_ok() && goes == Goes::Never {
        while matches!(stream.read(&mut heard), Ok(1..)) {}
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Goes {
    AtOnce,
    Never,
}

/// The head of a record that says it is a ServerHello of 122 bytes.
const HALF: &[u8] = &[0x16, 3, 3, 0, 122, 2, 0, 0, 118, 3, 3, 7, 7, 7];

/// Whoever stalls is given up within the five seconds of `connect`, and of what it is suspected is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handshake_that_stalls() {
    for says in [&b""[..], HALF] {
        let listener = listener(says, Goes::Never);
        let begun = Instant::now();
        let error = refused(&listener.url).await;
        assert_says(&error, ErrorKind::Unreachable, &["does not reply to the TLS handshake"]);
        // Twice that: a lock's and a fence's. They would wait for ever.
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
        let listener = listener(says, Goes::AtOnce);
        let error = refused(&listener.url).await;
        assert_says(&error, ErrorKind::Unreachable, &[word]);
        assert!(error.is_retryable());
    }
}

/// A server that stands still takes connections all the same.
#[tokio::test]
async fn a_server_that_stands_still() {
    let server = RedisServer::start_tls();
    server.stop();
    assert_says(&refused(&server.tls_url()).await, ErrorKind::Unreachable, &["check that it is running"]);
    server.cont();
    drop(Leasehold::connect(&server.tls_url()).await.unwrap());
}
