//! Certificates: which servers a client trusts, and which clients a server trusts.

use std::time::Duration;

use leasehold::{ErrorKind, Leasehold, Released};
use leasehold_testkit::Value;
use leasehold_testkit::certificates::{Authority, Identity, self_signed};
use leasehold_testkit::server::Clients;

use crate::common::{Files, HOSTS, assert_says, hang_up, in_time, refused, server, trouble};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_not_trusted() {
    type Made = fn(&Authority) -> Identity;
    let cases: [(Made, &[&str]); 5] = [
        (|_| Authority::new("Somebody else").server(&HOSTS), &["?ca=", "UnknownIssuer"]),
        (|_| self_signed(&HOSTS), &["?ca="]),
        (|ours| ours.server(&["redis.example"]), &["not valid for the host \"localhost\"", "redis.example"]),
        (|ours| ours.expired_server(&HOSTS), &["expired", "renew it"]),
        (|ours| ours.future_server(&HOSTS), &["clock"]),
    ];
    for (made, words) in cases {
        let (server, _) = server(made, Clients::Anybody);
        let error = refused(&server.tls_url()).await;
        assert_says(&error, ErrorKind::Denied, words);
        assert_says(&error, ErrorKind::Denied, &[&format!("localhost:{}", server.tls_port())]);
        assert!(!error.is_retryable() && !error.may_have_acted());
    }
}

/// No authority is named: the client uses the authorities of the system, none of which has signed the certificate.
#[tokio::test]
async fn without_a_named_authority() {
    let (server, _) = server(|ours| ours.server(&HOSTS), Clients::Anybody);
    let url = server.tls_url();
    let error = refused(url.split('?').next().unwrap()).await;
    // A machine without any authorities gives this error instead.
    assert!(matches!(error.kind(), ErrorKind::Denied | ErrorKind::Invalid), "{error}");
    assert!(error.to_string().contains("?ca="), "{error}");
}

/// A self-signed certificate is trusted by a client that names it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_a_self_signed_certificate() {
    let (server, files) = (server(|_| self_signed(&HOSTS), Clients::Anybody).0, Files::new());
    let itself = files.put("ca.pem", std::fs::read(server.dir().join("server.pem")).unwrap());
    let url = format!("rediss://localhost:{}?ca={}", server.tls_port(), itself.display());
    drop(Leasehold::connect(&url).await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_the_server_rejects() {
    // Before TLS 1.3 a server rejects a client within the handshake, and with another message.
    for protocol in ["TLSv1.2", "TLSv1.3"] {
        is_rejected(protocol).await;
    }
}

async fn is_rejected(protocol: &str) {
    let (server, ours) = server(|ours| ours.server(&HOSTS), Clients::Certified);
    let (url, files) = (server.tls_url(), Files::new());
    assert_eq!(server.command(&["CONFIG", "SET", "tls-protocols", protocol]), Value::Status("OK".into()));
    let error = refused(&url).await;
    assert_says(&error, ErrorKind::Denied, &["requires a client certificate", "?cert=/path.pem&key="]);
    for (identity, word) in [
        (Authority::new("Somebody else").client(), "not trust the issuer"),
        (ours.expired_client(), "expired"),
        (ours.server(&HOSTS), "refuses the client certificate"),
    ] {
        let error = refused(&format!("{url}&{}", files.show(&identity))).await;
        assert_says(&error, ErrorKind::Denied, &[word]);
    }
    drop(Leasehold::connect(&format!("{url}&{}", files.show(&ours.client()))).await.unwrap());
}

#[tokio::test]
async fn files_that_are_invalid() {
    let (server, ours) = server(|ours| ours.server(&HOSTS), Clients::Certified);
    let (files, port) = (Files::new(), server.tls_port());
    let ca = server.authority();
    let (good, other) = (ours.client(), ours.client());
    let _whole = files.show(&good);
    files.put("other.key", &other.key);
    files.put("empty", "");
    files.put("none.pem", "sentinel");
    files.put("half.pem", &good.key[..good.key.len() / 2]);
    files.put("wrong.pem", good.certificate.replacen('\n', "\n?sentinel\n", 1));
    files.put("wrong.key", good.key.replacen('\n', "\n?sentinel\n", 1));
    let path = |name: &str| files.path(name).display().to_string();
    let ca_is = |name: &str| format!("rediss://localhost:{port}?ca={}", path(name));
    let is = |certificate: &str, key: &str| {
        format!("rediss://localhost:{port}?ca={}&cert={}&key={}", ca.display(), path(certificate), path(key))
    };
    for (url, says, file) in [
        (ca_is("missing"), "No such file", "missing"),
        (ca_is("empty"), "is empty", "empty"),
        (ca_is("none.pem"), "no certificate in PEM", "none.pem"),
        (ca_is("client.key"), "no certificate in PEM", "client.key"),
        (ca_is("wrong.pem"), "is not PEM", "wrong.pem"),
        (ca_is(""), "not a regular file", ""),
        (is("missing", "client.key"), "No such file", "missing"),
        (is("client.key", "client.key"), "no certificate in PEM", "client.key"),
        (is("client.pem", "missing"), "No such file", "missing"),
        (is("client.pem", "client.pem"), "no private key in PEM", "client.pem"),
        (is("client.pem", "half.pem"), "PEM", "half.pem"),
        (is("wrong.pem", "client.key"), "is not PEM", "wrong.pem"),
        (is("client.pem", "wrong.key"), "is not PEM", "wrong.key"),
        (is("client.pem", "other.key"), "does not match the certificate", "other.key"),
    ] {
        let error = refused(&url).await;
        assert_says(&error, ErrorKind::Invalid, &[says, &path(file)]);
        let said = crate::common::all_of(&error);
        let pieces = [&good.key, &other.key].into_iter().flat_map(|key| key.lines().skip(1).map(|line| &line[..10]));
        assert!(!said.contains("sentinel") && pieces.clone().all(|piece| !said.contains(piece)), "{said}");
    }
    assert!(server.command(&["INFO", "clients"]).text().is_some_and(|info| info.contains("connected_clients:1\r")));
}

/// The server's certificate expires while a lock is held. That is not final: `lock()` waits, other calls get the
/// reason, and after the renewal of the certificate everything goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_that_expires_while_locks_are_held() {
    let (server, ours) = server(|ours| ours.server(&HOSTS), Clients::Anybody);
    let client = Leasehold::connect(&server.tls_url()).await.unwrap();
    let held = client.mutex("stock").lock().await.unwrap();
    server.set_identity(&ours.expired_server(&HOSTS));
    hang_up(&server);
    let mutex = client.mutex("other");
    let waiting = tokio::spawn(async move { mutex.lock().await });
    let error = trouble(&client, "expired").await;
    assert_says(&error, ErrorKind::Denied, &["renew it"]);
    assert!(!waiting.is_finished());
    held.check().unwrap();
    server.set_identity(&ours.server(&HOSTS));
    let guard = in_time("the lock", waiting).await.unwrap().unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    assert_eq!(held.release().await.unwrap(), Released::Released);
}

/// The files are read again for each new connection: another authority, another client certificate.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_that_are_replaced() {
    let (server, old) = server(|ours| ours.server(&HOSTS), Clients::Certified);
    let files = Files::new();
    let ca = files.put("ca.pem", old.pem());
    let url = format!("rediss://localhost:{}?ca={}&{}", server.tls_port(), ca.display(), files.show(&old.client()));
    let client = Leasehold::builder(&url).lease(Duration::from_secs(20)).connect().await.unwrap();
    let held = client.mutex("stock").lock().await.unwrap();
    let new = Authority::new("The next one");
    std::fs::write(server.authority(), new.pem()).unwrap();
    server.command(&["CONFIG", "SET", "tls-ca-cert-file", "ca.pem"]);
    server.set_identity(&new.server(&HOSTS));
    hang_up(&server);
    let _error = trouble(&client, "?ca=").await;
    files.put("ca.pem", new.pem());
    let _error = trouble(&client, "client certificate").await;
    let _whole = files.show(&new.client());
    drop(in_time("the lock", client.mutex("other").lock()).await.unwrap());
    assert_eq!(held.release().await.unwrap(), Released::Released);
}
