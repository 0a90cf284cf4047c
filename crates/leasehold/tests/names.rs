//! Lists of names: every name that has a record in a store.
#![cfg(feature = "redis")]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use leasehold::{ErrorKind, Leasehold};
use leasehold_testkit::{RedisServer, Value};

/// Enough names for several steps of a scan.
const MANY: usize = 2_500;

async fn all_names(client: &Leasehold) -> Vec<String> {
    client.names().await.unwrap()
}

#[tokio::test]
async fn of_the_embedded_store() {
    let client = Leasehold::connect("memory:").await.unwrap();
    assert_eq!(all_names(&client).await, [""; 0]);
    let _b = client.mutex("b").lock().await.unwrap();
    let a = client.mutex("a {%}").lock().await.unwrap();
    assert_eq!(all_names(&client).await, ["a {%}", "b"]);
    assert_eq!(a.release().await.unwrap(), leasehold::Released::Released);
    // The record stays for a while: a repeated release finds its reply there.
    assert_eq!(all_names(&client).await, ["a {%}", "b"]);
}

#[cfg(all(feature = "file", target_os = "linux"))]
#[tokio::test]
async fn of_a_directory() {
    let directory = tempfile::TempDir::new().unwrap();
    let url = format!("file:{}", directory.path().display());
    let (client, other) = (Leasehold::connect(&url).await.unwrap(), Leasehold::connect(&url).await.unwrap());
    assert_eq!(all_names(&client).await, [""; 0]);
    let mut held = Vec::new();
    for at in 0..MANY {
        held.push(client.mutex(format!("{{{at:04}}}")).try_lock().await.unwrap().unwrap());
    }
    let names = all_names(&other).await;
    assert_eq!(names.len(), MANY);
    assert_eq!((names[0].as_str(), names[MANY - 1].as_str()), ("{0000}", "{2499}"));
}

#[tokio::test]
async fn of_a_redis_below_one_prefix() {
    let server = RedisServer::start();
    let client = Leasehold::connect(&format!("{}?prefix=a*[", server.url())).await.unwrap();
    let other = Leasehold::connect(&format!("{}?prefix=ab[", server.url())).await.unwrap();
    let _others = other.mutex("others").lock().await.unwrap();
    server.command(&["SET", "a*[lh1:{no name%}", "x"]);
    server.command(&["SET", "a*[something", "x"]);
    let guards: Vec<_> = (0..MANY).map(|at| client.mutex(format!("{{{at:04}}}"))).collect();
    let mut held = Vec::new();
    for mutex in &guards {
        held.push(mutex.try_lock().await.unwrap().unwrap());
    }
    let names = all_names(&client).await;
    assert_eq!(names.len(), MANY);
    assert_eq!((names[0].as_str(), names[MANY - 1].as_str()), ("{0000}", "{2499}"));
    assert_eq!(all_names(&other).await, ["others"]);
}

#[tokio::test]
async fn a_missing_right_is_named_in_the_error() {
    let server = RedisServer::start();
    let user = ["ACL", "SETUSER", "worker", "reset", "on", ">hunter2", "~*", "&*", "+@all", "-scan"];
    assert_eq!(server.command(&user), Value::Status("OK".into()));
    let client = Leasehold::connect(&server.url().replace("//", "//worker:hunter2@")).await.unwrap();
    let refused = client.names().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Denied, "{refused}");
    assert!(refused.to_string().contains("+scan"), "{refused}");
    // The connection is not lost by this.
    assert!(client.mutex("a").try_lock().await.unwrap().is_some());
}
