//! Passwords in files and in the environment.

use leasehold::fence::RedisFence;
use leasehold::{ErrorKind, Leasehold, Released};
use leasehold_testkit::{RedisServer, Value};

use crate::common::{Files, all_of, assert_says, in_time, refused, trouble};

/// With TLS and without, with a user and without.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_in_a_file() {
    let server = RedisServer::builder().password("old sentinel").start();
    let files = Files::new();
    let path = files.put("password", "old sentinel\n");
    for user in ["", "default@"] {
        let url = format!("redis://{user}127.0.0.1:{}?password_file={}", server.port(), path.display());
        drop(Leasehold::connect(&url).await.unwrap());
        drop(RedisFence::connect(&url).await.unwrap());
    }
    let url = format!("redis://127.0.0.1:{}?password_file={}", server.port(), path.display());
    files.put("password", "wrong sentinel");
    let error = refused(&url).await;
    assert_says(&error, ErrorKind::Denied, &["WRONGPASS"]);
    assert!(!all_of(&error).contains("sentinel"), "{error:?}");
    std::fs::remove_file(&path).unwrap();
    assert_says(&refused(&url).await, ErrorKind::Invalid, &["password file", &path.display().to_string()]);
}

/// Uses a variable that every test process has: a test must not set one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_in_the_environment() {
    let server = RedisServer::builder().password(env!("CARGO_PKG_NAME")).start();
    let url = |name: &str| format!("redis://default@127.0.0.1:{}?password_env={name}", server.port());
    drop(Leasehold::connect(&url("CARGO_PKG_NAME")).await.unwrap());
    let error = refused(&url("LEASEHOLD_NO_SUCH_VARIABLE")).await;
    assert_says(&error, ErrorKind::Invalid, &["LEASEHOLD_NO_SUCH_VARIABLE", "is not set"]);
}

/// The password changes while the client is connected. The client reconnects by itself once the file has changed, too.
/// Meanwhile other calls get an error, and `lock()` waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_that_is_rotated() {
    let server = RedisServer::builder().config("requirepass", "old sentinel").password("old sentinel").start();
    let files = Files::new();
    let path = files.put("password", "old sentinel\n");
    let url = format!("redis://127.0.0.1:{}?password_file={}", server.port(), path.display());
    let client = Leasehold::connect(&url).await.unwrap();
    let fence = RedisFence::connect(&url).await.unwrap();
    let held = client.mutex("stock").lock().await.unwrap();
    let mut eye = server.resp();
    assert_eq!(eye.command(&["CONFIG", "SET", "requirepass", "new sentinel"]), Value::Status("OK".into()));
    eye.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    eye.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    let mutex = client.mutex("other");
    let waiting = tokio::spawn(async move { mutex.lock().await });
    let error = trouble(&client, "WRONGPASS").await;
    assert_says(&error, ErrorKind::Denied, &["password"]);
    assert!(!all_of(&error).contains("sentinel"), "{error:?}");
    let error = fence.get("stock", held.token()).await.unwrap_err();
    assert_says(&error, ErrorKind::Denied, &["WRONGPASS"]);
    // A moment without the file is not final either.
    std::fs::remove_file(&path).unwrap();
    let error = trouble(&client, "password file").await;
    assert_says(&error, ErrorKind::Unreachable, &["cannot be read"]);
    assert!(!waiting.is_finished());
    files.put("password", "new sentinel\n");
    drop(in_time("the lock", waiting).await.unwrap().unwrap());
    fence.set("stock", held.token(), "1").await.unwrap();
    assert_eq!(held.release().await.unwrap(), Released::Released);
}
