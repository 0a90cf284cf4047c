//! Mistakes of users when they connect. The error comes at once, has a kind, says what to do, and contains no secret.

use std::error::Error as _;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use leasehold::{Error, ErrorKind, Leasehold};
use leasehold_testkit::{RedisServer, free_port};

use crate::common::{NAME, PROMPT, within};

const SECRET: &str = "hunter2";

async fn refused(url: &str) -> Error {
    let error = Leasehold::connect(url).await.expect_err(url);
    let mut said = format!("{error} {error:?}");
    let mut cause = error.source();
    while let Some(error) = cause {
        said.push_str(&format!(" {error} {error:?}"));
        cause = error.source();
    }
    assert!(!said.contains(SECRET), "{said}");
    error
}

#[track_caller]
fn assert_says(error: &Error, kind: ErrorKind, words: &[&str]) {
    let said = error.to_string();
    assert_eq!(error.kind(), kind, "{said}");
    for word in words {
        assert!(said.contains(word), "{said:?} does not say {word:?}");
    }
}

#[tokio::test]
async fn wrong_password() {
    let server = RedisServer::builder().password("sesame").start();
    let port = server.port();
    let error = refused(&format!("redis://:{SECRET}@127.0.0.1:{port}")).await;
    assert_says(&error, ErrorKind::Denied, &["WRONGPASS", "password"]);
    assert!(!error.is_retryable() && !error.may_have_acted());
    let error = refused(&format!("redis://nobody:{SECRET}@127.0.0.1:{port}")).await;
    assert_says(&error, ErrorKind::Denied, &["WRONGPASS", "user"]);
    let error = refused(&format!("redis://127.0.0.1:{port}")).await;
    assert_says(&error, ErrorKind::Denied, &["requires a password: add it", "?password_env=NAME (NOAUTH)"]);
    let client = Leasehold::connect(&server.url()).await.unwrap();
    let guard = client.mutex(NAME).lock().await.unwrap();
    let shown = format!("{client:?} {:?} {guard:?} {:?}", client.mutex(NAME), guard.lost());
    assert!(!shown.contains("sesame"), "{shown}");
    let id = server.command(&["GET", "lh1:{stock}"]).text().expect("a record")[84..100].to_owned();
    let seen = format!("{:?}", client.mutex(NAME).inspect().await.unwrap());
    assert!(!seen.contains(&id) && !shown.contains(&id), "the secret part of a grant id is shown: {seen} {shown}");
}

#[tokio::test]
async fn no_server() {
    let port = free_port();
    let begun = Instant::now();
    let at = format!("127.0.0.1:{}", port.number());
    let error = refused(&format!("redis://:{SECRET}@{at}")).await;
    assert_says(&error, ErrorKind::Unreachable, &[&at, "check the address"]);
    assert!(begun.elapsed() < PROMPT, "the error comes at once");
    assert!(error.is_retryable() && !error.may_have_acted());
    let error = refused(&format!("redis://:{SECRET}@no-such-host.invalid")).await;
    assert_says(&error, ErrorKind::Unreachable, &["no-such-host.invalid:6379"]);
}

#[tokio::test]
async fn unknown_scheme() {
    for url in ["postgres://me:hunter2@db/x", "hunter2", "hunter2@db:6379", "://hunter2", "redis:hunter2"] {
        let error = refused(url).await;
        assert_says(&error, ErrorKind::Invalid, &["redis://"]);
    }
    for url in ["redis+cluster://:hunter2@db", "redis+sentinel://:hunter2@db"] {
        assert_eq!(refused(url).await.kind(), ErrorKind::Unsupported, "{url}");
    }
}

#[tokio::test]
async fn read_only_replica() {
    let primary = RedisServer::start();
    let replica = RedisServer::builder().replica_of(&primary).start();
    let error = refused(&replica.url()).await;
    assert_says(&error, ErrorKind::Unsupported, &["read-only replica", &replica.port().to_string()]);
}

/// Another server listens there: it replies nonsense, closes the connection, or never replies.
#[tokio::test]
async fn no_redis() {
    let greetings: [&[u8]; 4] = [
        b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"-ERR unknown command 'HELLO'\r\n",
        b"",
    ];
    for greeting in greetings {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap().to_string();
        // Both connections of the client got the greeting, or the one that connected first.
        let answer = move |mut stream: TcpStream| {
            if matches!(stream.read(&mut [0; 1024]), Ok(1..)) {
                // The other connection failed first, and this one was given up.
                let _ = stream.write_all(greeting);
            }
        };
        let _until_the_end = thread::spawn(move || {
            listener.incoming().take(2).for_each(|stream| drop(thread::spawn(move || answer(stream.unwrap()))));
        });
        let error = within(Duration::from_secs(5), "an error", refused(&format!("redis://{at}"))).await;
        assert!(matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Unsupported), "{greeting:?}: {error}");
        assert!(error.to_string().contains(&at), "{greeting:?}: {error}");
    }
}

#[tokio::test]
async fn nobody_answers() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    // Connecting, greeting and proving the inbox have five seconds together.
    let error = within(2 * Duration::from_secs(5), "an error", refused(&format!("redis://{at}"))).await;
    assert_says(&error, ErrorKind::Unreachable, &["does not reply"]);
}
