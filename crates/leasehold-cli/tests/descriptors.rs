//! `leasehold` with few file descriptors: every verb on every store, under every limit of open files from 3 on. Each verb
//! succeeds, or ends with 125 and says what to do. It never panics.

use std::process::{Command, Output, Stdio};

use leasehold_testkit::{Quorum, RedisServer};

/// The three standard streams.
const FEWEST: usize = 3;
/// Above `FULL`, every verb has enough descriptors on every store. `ENOUGH` is a safe limit.
const FULL: usize = 40;
const ENOUGH: usize = 64;

/// Runs the command with so many descriptors. The shell's own are open when it sets the limit, and it becomes the command.
fn limited(limit: usize, arguments: &[&str]) -> Output {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "ulimit -n \"$1\"; shift; exec \"$@\"", "sh", &limit.to_string()]);
    shell.arg(env!("CARGO_BIN_EXE_leasehold")).args(arguments).stdin(Stdio::null());
    for name in ["LEASEHOLD_STORE", "LEASEHOLD_PASSWORD", "LEASEHOLD_PASSWORD_FILE"] {
        shell.env_remove(name);
    }
    shell.output().expect("there is a shell")
}

/// Asserts that a verb succeeds or says what is missing, under each limit, and that it succeeds under the highest limit.
#[track_caller]
fn does_it_or_says_why(arguments: &[&str], done: i32) {
    let mut wrong = Vec::new();
    for limit in (FEWEST..=FULL).chain([ENOUGH]) {
        let output = limited(limit, arguments);
        let (code, said) = (output.status.code(), String::from_utf8_lossy(&output.stderr));
        let is_done = code == Some(done) && !said.contains("panicked");
        let says_why = code == Some(125)
            && said.starts_with("leasehold: ")
            && said.contains("ulimit -n")
            && !said.contains("panicked")
            && output.stdout.is_empty();
        // The system's loader found no descriptor for the C library: nothing of ours was started.
        let is_unloaded = limit <= FEWEST && code == Some(127) && said.contains("error while loading shared libraries");
        if !is_done && (limit == ENOUGH || !says_why && !is_unloaded) {
            wrong.push(format!("with {limit} descriptors: status {code:?}, {said:?}"));
        }
    }
    assert!(wrong.is_empty(), "{arguments:?}\n{}", wrong.join("\n"));
}

/// The verbs that ask a store, and the status of each where there is nothing to find.
fn every_verb(store: &str) {
    for (verb, done) in [
        (&["run", "-q", "job", "--store", store, "--", "true"][..], 0),
        (&["run", "-q", "job", "--no-wait", "--store", store, "--", "sh", "-c", "exit 7"], 7),
        (&["inspect", "job", "--store", store], 0),
        (&["ls", "-q", "--store", store], 0),
        (&["revoke", "job", "--store", store], 1),
    ] {
        does_it_or_says_why(verb, done);
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

/// The name is looked up by the C library, which has descriptors of its own, and does not say what it lacked.
#[test]
fn on_a_redis_that_has_a_name() {
    let server = RedisServer::start();
    let store = server.url().replace("127.0.0.1", "localhost");
    does_it_or_says_why(&["inspect", "job", "--store", &store], 0);
}

#[test]
fn with_a_password_in_a_file() {
    let server = RedisServer::builder().password("s3same").start();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("password");
    std::fs::write(&file, "s3same\n").unwrap();
    let store = format!("redis://127.0.0.1:{}?password_file={}", server.port(), file.display());
    does_it_or_says_why(&["inspect", "job", "--store", &store], 0);
}

#[test]
fn on_a_quorum() {
    let quorum = Quorum::start(3);
    let store = quorum.url();
    does_it_or_says_why(&["quorum", "begin", "--store", &store], 0);
    every_verb(&store);
}

#[test]
fn without_a_store() {
    for verb in [&["--help"][..], &["--version"], &["run", "--help"], &["man"], &["completions", "bash"]] {
        does_it_or_says_why(verb, 0);
    }
}

/// This host's own store, which is found by looking into files.
#[test]
fn on_the_default_store() {
    does_it_or_says_why(&["inspect", "-q", "no-such-job", "--json"], 0);
}
