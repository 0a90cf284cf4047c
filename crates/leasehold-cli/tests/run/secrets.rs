//! Secrets stay where no other program can read them.

use std::fs;
use std::process::Stdio;

use leasehold_testkit::RedisServer;
use rustix::process::Pid;

use crate::bench::{NAME, Run, children, is_minder, leasehold};

const SECRET: &str = "sentinel-8c1f";

#[test]
fn p30_a_password_is_nowhere_but_where_it_was_put() {
    let server = RedisServer::builder().password(SECRET).start();
    let mut run = Run::of(
        leasehold()
            .env("LEASEHOLD_STORE", server.url())
            .env("LEASEHOLD_PASSWORD", SECRET)
            .env("LEASEHOLD_PASSWORD_FILE", format!("/{SECRET}"))
            .args(["run", NAME, "--", "sh", "-c", "env; echo ready; read line; exit 4"]),
    );
    let output = run.read_to("ready\n");
    assert!(output.contains("LEASEHOLD_TOKEN=") && !output.contains(SECRET), "{output}");
    let supervisor = run.pid();
    let others = children(supervisor);
    assert_eq!(others.len(), 2, "a minder and a command");
    for pid in others.iter().chain([&supervisor]) {
        let line = read(*pid, "cmdline");
        assert!(!line.contains(SECRET), "{line}");
    }
    for pid in others {
        let environment = read(pid, "environ");
        assert!(!environment.contains(SECRET), "{environment}");
        let store = environment.split('\0').find(|variable| variable.starts_with("LEASEHOLD_STORE="));
        assert_eq!(store, (!is_minder(pid)).then_some("LEASEHOLD_STORE=withheld:"), "{environment}");
    }
    run.write("\n");
    let ended = run.ends();
    assert_eq!(ended.code, Some(4));
    assert!(!ended.err.contains(SECRET), "{ended:?}");
}

fn read(pid: Pid, what: &str) -> String {
    let bytes = fs::read(format!("/proc/{}/{what}", pid.as_raw_nonzero())).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn p30_a_password_on_the_command_line_is_refused() {
    for url in [
        format!("redis://:{SECRET}@127.0.0.1:1"),
        format!("redis://me:{SECRET}@127.0.0.1:1"),
        format!("redis://{SECRET}@127.0.0.1:1"),
    ] {
        let ended = Run::start(&url, &[], &["true"]).ends();
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.err.contains("LEASEHOLD_STORE"), "{ended:?}");
        assert!(!ended.err.contains(SECRET), "{ended:?}");
    }
}

/// Error messages do not contain the password either.
#[test]
fn errors_have_no_password() {
    let server = RedisServer::builder().password("another").start();
    let port = server.port();
    for url in [format!("redis://:{SECRET}@127.0.0.1:{port}"), format!("redis://:{SECRET}@127.0.0.1:1")] {
        let output = leasehold()
            .env("LEASEHOLD_STORE", url)
            .args(["run", NAME, "--", "true"])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(125), "{errors}");
        assert!(!errors.contains(SECRET) && !errors.is_empty(), "{errors}");
    }
}
