//! `leasehold` with few file descriptors: every verb on every store, with every limit of open files from 3 on. Each verb
//! succeeds, or ends with 125 and a message with advice. It never panics.

use std::process::{Command, Output, Stdio};

use leasehold_testkit::process::without_settings;
use leasehold_testkit::{Quorum, RedisServer};

/// The three standard streams.
const FEWEST: usize = 3;
/// Above `FULL`, every verb has enough descriptors on every store. `ENOUGH` is a safe limit.
const FULL: usize = 40;
const ENOUGH: usize = 64;

/// Runs the command with this limit of descriptors. The shell sets the limit while its own descriptors are open, and then
/// executes the command.
fn limited(limit: usize, arguments: &[&str]) -> Output {
    let mut shell = without_settings(Command::new("/bin/sh"));
    shell.args(["-c", "ulimit -n \"$1\"; shift; exec \"$@\"", "sh", &limit.to_string()]);
    shell.arg(env!("CARGO_BIN_EXE_leasehold")).args(arguments).stdin(Stdio::null());
    shell.output().expect("there is a shell")
}

/// Asserts that a verb succeeds or reports what is missing, with each limit, and that it succeeds with the highest limit.
#[track_caller]
fn succeeds_or_explains(arguments: &[&str], done: i32) {
    let mut wrong = Vec::new();
    for limit in (FEWEST..=FULL).chain([ENOUGH]) {
        let output = limited(limit, arguments);
        let (code, errors) = (output.status.code(), String::from_utf8_lossy(&output.stderr));
        let is_done = code == Some(done) && !errors.contains("panicked");
        let explains = code == Some(125)
            && errors.starts_with("leasehold: ")
            && errors.contains("ulimit -n")
            && !errors.contains("panicked")
            && output.stdout.is_empty();
        // The system's loader found no descriptor for the C library: our program was not started.
        let is_unloaded =
            limit <= FEWEST && code == Some(127) && errors.contains("error while loading shared libraries");
        if !is_done && (limit == ENOUGH || !explains && !is_unloaded) {
            wrong.push(format!("with {limit} descriptors: status {code:?}, {errors:?}"));
        }
    }
    assert!(wrong.is_empty(), "{arguments:?}\n{}", wrong.join("\n"));
}

/// The verbs that use a store, and the status of each if no lock exists.
fn every_verb(store: &str) {
    for (verb, done) in [
        (&["run", "-q", "job", "--store", store, "--", "true"][..], 0),
        (&["run", "-q", "job", "--no-wait", "--store", store, "--", "sh", "-c", "exit 7"], 7),
        (&["inspect", "job", "--store", store], 0),
        (&["ls", "-q", "--store", store], 0),
        (&["revoke", "job", "--store", store], 1),
    ] {
        succeeds_or_explains(verb, done);
    }
}

#[test]
fn on_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    every_verb(&format!("file:{}", dir.path().join("locks").display()));
}

#[test]
fn on_a_redis() {
    let server = RedisServer::start();
    every_verb(&server.url());
}

/// The C library looks up the name. It opens descriptors itself, and does not report when it lacks one.
#[test]
fn on_a_redis_that_has_a_name() {
    let server = RedisServer::start();
    let store = server.url().replace("127.0.0.1", "localhost");
    succeeds_or_explains(&["inspect", "job", "--store", &store], 0);
}

#[test]
fn with_a_password_in_a_file() {
    let server = RedisServer::builder().password("s3same").start();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("password");
    std::fs::write(&file, "s3same\n").unwrap();
    let store = format!("redis://127.0.0.1:{}?password_file={}", server.port(), file.display());
    succeeds_or_explains(&["inspect", "job", "--store", &store], 0);
}

#[test]
fn on_a_quorum() {
    let quorum = Quorum::start(3);
    let store = quorum.url();
    succeeds_or_explains(&["quorum", "begin", "--store", &store], 0);
    every_verb(&store);
}

#[test]
fn without_a_store() {
    for verb in [&["--help"][..], &["--version"], &["run", "--help"], &["man"], &["completions", "bash"]] {
        succeeds_or_explains(verb, 0);
    }
}

/// This host's own store, whose place is read from files.
#[test]
fn on_the_default_store() {
    succeeds_or_explains(&["inspect", "-q", "no-such-job", "--json"], 0);
}
