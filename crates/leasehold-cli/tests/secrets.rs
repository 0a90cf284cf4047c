//! Secrets: the ways in which the command gets a password, and the proof that no other program sees it.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use leasehold_testkit::certificates::Authority;
use leasehold_testkit::process::{self, Process};
use leasehold_testkit::{RedisServer, wait_until};

/// The secret, which must not appear anywhere.
const SENTINEL: &str = "s3ntinel-71c9";
const LONG: Duration = Duration::from_secs(20);

fn command(store: Option<&str>) -> Command {
    let mut command = process::leasehold(env!("CARGO_BIN_EXE_leasehold"));
    command.args(["inspect", "stock"]);
    command.args(store.into_iter().flat_map(|store| ["--store", store]));
    command
}

#[track_caller]
fn output_of(output: &Output) -> String {
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(!text.contains(SENTINEL), "{text}");
    text
}

#[track_caller]
fn assert_works(command: &mut Command) {
    let output = command.output().expect("it runs");
    assert_eq!((output_of(&output).as_str(), output.status.code()), ("stock: free; nobody waits\n", Some(0)));
}

#[test]
fn a_password_comes_by_file_or_environment() {
    let server = RedisServer::builder().password(SENTINEL).start();
    let (host, file) = (format!("127.0.0.1:{}", server.port()), server.dir().join("password"));
    std::fs::write(&file, format!("{SENTINEL}\n")).expect("written");
    for user in ["", "default@"] {
        assert_works(&mut command(Some(&format!("redis://{user}{host}?password_file={}", file.display()))));
        let by_environment = format!("redis://{user}{host}?password_env=SECRET_OF_THE_TEST");
        assert_works(command(Some(&by_environment)).env("SECRET_OF_THE_TEST", SENTINEL));
        let output = command(Some(&by_environment)).output().expect("it runs");
        assert_eq!(output.status.code(), Some(2));
        assert!(output_of(&output).contains("SECRET_OF_THE_TEST"));
    }
    assert_works(command(None).env("LEASEHOLD_STORE", server.url()));
}

/// A password on the command line is refused, and the error names the ways that work.
#[test]
fn a_password_on_the_command_line_is_refused() {
    for store in [
        format!("redis://:{SENTINEL}@127.0.0.1:1"),
        format!("redis://me:{SENTINEL}@127.0.0.1:1"),
        format!("rediss://me:{SENTINEL}@127.0.0.1:1?ca=/ca.pem"),
        format!("redis://{SENTINEL}@127.0.0.1:1"),
        format!("redis://127.0.0.1:1?password={SENTINEL}"),
        format!("{SENTINEL}@127.0.0.1:1"),
        format!("quorum:?node=redis://127.0.0.1:1&node=redis://127.0.0.1:2&node=redis://:{SENTINEL}@127.0.0.1:3"),
        format!("quorum:?node=redis://127.0.0.1:1&node=redis%3A%2F%2F%3A{SENTINEL}%40127.0.0.1:3"),
    ] {
        let output = command(Some(&store)).output().expect("it runs");
        assert_eq!(output.status.code(), Some(2));
        let text = output_of(&output);
        for way in ["LEASEHOLD_STORE", "?password_file=", "?password_env="] {
            assert!(text.contains(way), "{way} is not named: {text}");
        }
    }
}

/// While it runs, other users can read its command line: the password is not in it.
#[test]
fn the_command_line_of_a_running_command_has_no_password() {
    let server = RedisServer::builder().password(SENTINEL).start();
    let file = server.dir().join("password");
    std::fs::write(&file, SENTINEL).expect("written");
    // It waits for a stopped server.
    server.stop();
    let by_file = format!("redis://127.0.0.1:{}?password_file={}", server.port(), file.display());
    let by_environment = format!("redis://127.0.0.1:{}?password_env=SECRET_OF_THE_TEST", server.port());
    let mut by_url = command(None);
    by_url.env("LEASEHOLD_STORE", server.url());
    let mut by_variable = command(Some(&by_environment));
    by_variable.env("SECRET_OF_THE_TEST", SENTINEL);
    for command in [&mut command(Some(&by_file)), &mut by_variable, &mut by_url] {
        let process = Process::start(command.stdout(Stdio::null()).stderr(Stdio::null()));
        let shown = Path::new("/proc").join(process.id().to_string()).join("cmdline");
        let read = || std::fs::read(&shown).map(|line| String::from_utf8_lossy(&line).into_owned());
        wait_until("it shows its command line", LONG, || read().is_ok_and(|line| line.contains("inspect")));
        let line = read().expect("it runs");
        assert!(line.contains("stock") && !line.contains(SENTINEL), "{line}");
    }
}

/// With the system's own authorities, which this variable names: the URL names none.
#[test]
fn the_authorities_of_the_system() {
    let server = RedisServer::start_tls();
    let url = format!("rediss://localhost:{}", server.tls_port());
    assert_works(command(Some(&url)).env("SSL_CERT_FILE", server.authority()));
    assert_works(&mut command(Some(&server.tls_url())));
    let other = server.dir().join("other.pem");
    std::fs::write(&other, Authority::new("Somebody else").pem()).expect("written");
    let output = command(Some(&url)).env("SSL_CERT_FILE", other).output().expect("it runs");
    assert_eq!(output.status.code(), Some(125));
    assert!(output_of(&output).contains("?ca="));
}
