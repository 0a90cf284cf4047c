//! Runs the examples, as a reader would, and compares what they print.

use std::path::PathBuf;
use std::process::Command;

/// Runs an example, and returns the lines that it printed. Cargo builds examples together with the tests.
fn printed(example: &str) -> Vec<String> {
    printed_on(example, None)
}

/// The same on the store of a URL.
fn printed_on(example: &str, url: Option<&str>) -> Vec<String> {
    let tests = std::env::current_exe().expect("this test has a path");
    let profile = tests.ancestors().nth(2).expect("tests are in target/PROFILE/deps");
    let program: PathBuf = profile.join("examples").join(example);
    let output = Command::new(&program).args(url).output().unwrap_or_else(|error| {
        panic!(
            "cannot run {}: {error}; `cargo test` builds it, `cargo test --test examples` does not",
            program.display()
        )
    });
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{example} failed with {}: {error}", output.status);
    String::from_utf8(output.stdout).expect("UTF-8").lines().map(str::to_owned).collect()
}

#[test]
fn lock() {
    let mut lines = printed("lock");
    lines.sort();
    assert_eq!(lines, [1, 2, 3, 4].map(|task| format!("task {task} sells an item")));
}

#[test]
fn lost() {
    let lines = printed("lost");
    let (last, steps) = lines.split_last().expect("it prints steps");
    assert_eq!(last, "lost \"report\": the lease was revoked; stop the work; 2 s are left to stop");
    assert!(!steps.is_empty() && steps.iter().all(|step| step.starts_with("step ")), "{steps:?}");
}

#[test]
fn fence_sqlite() {
    let expected = [
        "A reads 5 pieces, and is stopped",
        "B reads 5 pieces, and sells one",
        "A writes, and the table refuses: its token is too small",
    ];
    assert_eq!(printed("fence_sqlite"), expected);
}

#[cfg(feature = "blocking")]
#[test]
fn blocking() {
    let expected = ["this thread holds the lock twice", "another thread stopped waiting", "released"];
    assert_eq!(printed("blocking"), expected);
}

#[test]
fn bounded_buffer() {
    assert_eq!(printed("bounded_buffer"), ["6 items arrived, in order"]);
}

#[test]
fn election() {
    assert_eq!(printed("election"), ["nobody leads", "10.0.0.3:7000 leads", "10.0.0.4:7000 leads"]);
}

/// On one store, one after the other, and then several at once.
fn of_several_programs(url: &str) {
    for _ in 0..3 {
        assert_eq!(printed_on("bounded_buffer", Some(url)), ["6 items arrived, in order"]);
        let leaders = ["nobody leads", "10.0.0.3:7000 leads", "10.0.0.4:7000 leads"];
        assert_eq!(printed_on("election", Some(url)), leaders);
    }
    // All are candidates for one leadership. Each of them prints leaders, and leads twice itself.
    let run = || printed_on("election", Some(url));
    let lines = std::thread::scope(|scope| {
        let programs: Vec<_> = (0..4).map(|_| scope.spawn(run)).collect();
        programs.into_iter().map(|program| program.join().expect("it ends")).collect::<Vec<_>>()
    });
    for lines in lines {
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(lines.iter().all(|line| line.ends_with(" leads")), "{lines:?}");
    }
}

#[cfg(all(feature = "file", target_os = "linux"))]
#[test]
fn on_a_directory() {
    let directory = tempfile::tempdir().expect("a directory");
    of_several_programs(&format!("file:{}", directory.path().display()));
}

#[test]
fn on_redis() {
    of_several_programs(&leasehold_testkit::RedisServer::start().url());
}

#[test]
fn timeouts() {
    let lines = printed("timeouts");
    assert_eq!(lines.len(), 4, "{lines:?}");
    assert_eq!(lines[0], "busy for 200 ms: somebody else holds the lock");
    assert!(lines[1].starts_with("acquired with token "), "{lines:?}");
    assert_eq!(lines[2..], ["not acquired within 100 ms", "Released"]);
}
