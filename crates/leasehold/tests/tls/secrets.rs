//! No secret is shown: not when a client is printed, and not in the errors of a client, in any way in which a secret
//! can be given.

use leasehold::Leasehold;
use leasehold::fence::RedisFence;
use leasehold::seam::Secrets;
use leasehold_testkit::RedisServer;
use leasehold_testkit::server::Clients;

use crate::common::{Files, HOSTS, all_of, in_time, server};

/// The secret that no output may contain.
const SENTINEL: &str = "s3ntinel-71c9";

#[track_caller]
fn assert_silent(what: &str, said: &str) {
    assert!(!said.to_lowercase().contains(SENTINEL), "{what}: {said}");
    // Bytes that are not shown as text are shown as numbers.
    let numbers = format!("{:?}", SENTINEL.as_bytes());
    let joined: String = said.split_whitespace().collect();
    let numbers: String = numbers.trim_matches(['[', ']']).split_whitespace().collect();
    assert!(!joined.contains(&numbers), "{what}: {said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn debug_output_shows_no_secret() {
    let server = RedisServer::builder().password(SENTINEL).start();
    let files = Files::new();
    let path = files.put("password", SENTINEL);
    let in_file = format!("redis://default@127.0.0.1:{}?password_file={}", server.port(), path.display());
    for url in [server.url(), in_file] {
        let client = Leasehold::connect(&url).await.unwrap();
        let mutex = client.mutex("stock");
        let guard = mutex.lock().await.unwrap();
        let holder = mutex.inspect().await.unwrap();
        let fence = RedisFence::connect(&url).await.unwrap();
        let said = format!("{client:?} {mutex:?} {guard:?} {:?} {holder:?} {fence:?}", guard.lost());
        assert_silent("Debug", &said);
        assert_silent("Debug", &format!("{:?}", Secrets::of(&url)));
        server.kill();
        for error in [
            // A name that this client does not hold: for the held one it knows the answer.
            in_time("an error", client.mutex("other").try_lock()).await.err(),
            in_time("an error", mutex.inspect()).await.err(),
            in_time("an error", fence.get("stock", guard.token())).await.err(),
            Leasehold::connect(&url).await.err(),
            RedisFence::connect(&url).await.err(),
        ] {
            assert_silent("an error", &all_of(&error.expect("the server is gone")));
        }
        server.restart();
    }
}

/// Refused at every step: the URL, the files, the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_show_no_secret() {
    let plain = RedisServer::builder().password("another").start();
    let (tls, ours) = server(|ours| ours.server(&HOSTS), Clients::Certified);
    let files = Files::new();
    let good = ours.client();
    let password = files.put("password", SENTINEL);
    let two_lines = files.put("two", format!("{SENTINEL}\n{SENTINEL}"));
    let bytes = files.put("bytes", [SENTINEL.as_bytes(), b"\xff"].concat());
    let certificate = files.put("cert.pem", &good.certificate);
    // The secret is in the place of a key: alone, in the middle of a key, as a line of its own.
    let keys = [
        SENTINEL.to_owned(),
        format!("-----BEGIN PRIVATE KEY-----\n{SENTINEL}\n-----END PRIVATE KEY-----\n"),
        format!("-----BEGIN {SENTINEL}\n{}", good.key),
        good.key.replacen('\n', &format!("\n{SENTINEL}\n"), 1),
    ];
    let (port, tls_port, dir) = (plain.port(), tls.tls_port(), files.path("").display().to_string());
    let mut urls = vec![
        SENTINEL.to_owned(),
        format!("{SENTINEL}@127.0.0.1:{port}"),
        format!("redis://{SENTINEL}@127.0.0.1:{port}"),
        format!("redis://:{SENTINEL}@127.0.0.1:{port}"),
        format!("redis://me:{SENTINEL}@127.0.0.1:{port}"),
        format!("redis://:{SENTINEL}@127.0.0.1:{port}/x"),
        format!("redis://:{SENTINEL}@127.0.0.1:{port}#x"),
        format!("redis://:{SENTINEL}@127.0.0.1:{port}?password_file={}", password.display()),
        format!("redis://127.0.0.1:{port}?password={SENTINEL}"),
        format!("redis://127.0.0.1:{port}?password_env={SENTINEL}"),
        format!("redis://127.0.0.1:{port}?password_file={SENTINEL}"),
        format!("redis://127.0.0.1:{port}?password_file={}", password.display()),
        format!("redis://127.0.0.1:{port}?password_file={}", two_lines.display()),
        format!("redis://127.0.0.1:{port}?password_file={}", bytes.display()),
        format!("redis://127.0.0.1:{port}?key={SENTINEL}"),
        format!("rediss://127.0.0.1:{tls_port}?key={SENTINEL}&cert={SENTINEL}"),
        format!("rediss://:{SENTINEL}@127.0.0.1:{tls_port}"),
        format!("rediss://:{SENTINEL}@127.0.0.1:{tls_port}?ca={}", tls.authority().display()),
        format!("rediss://:{SENTINEL}@127.0.0.1:{port}"),
        format!("rediss://:{SENTINEL}@{SENTINEL} host"),
        format!("quorum:?node=redis://:{SENTINEL}@a"),
        format!("redis+sentinel://:{SENTINEL}@a"),
    ];
    for (number, key) in keys.iter().enumerate() {
        let key = files.put(&format!("key{number}"), key);
        let ca = tls.authority();
        urls.push(format!(
            "rediss://localhost:{tls_port}?ca={}&cert={}&key={}",
            ca.display(),
            certificate.display(),
            key.display()
        ));
        urls.push(format!("rediss://localhost:{tls_port}?ca={}", key.display()));
    }
    for url in &urls {
        let lock = in_time("an error", Leasehold::connect(url)).await.expect_err(url);
        assert_silent(url, &all_of(&lock));
        let fence = in_time("an error", RedisFence::connect(url)).await.expect_err(url);
        assert_silent(url, &all_of(&fence));
        assert!(!all_of(&lock).contains(url.as_str()), "the error shows the whole URL: {lock}");
        if url.contains(SENTINEL) && !url.contains(&dir) {
            let is_seen = Secrets::of(url).in_url || !(url.contains('@') || url.contains("password="));
            assert!(is_seen, "{url}");
        }
    }
}
