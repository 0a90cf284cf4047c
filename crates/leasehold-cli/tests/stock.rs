//! The example `stock`, run in every mode, on the embedded store and on a real Redis.
#![expect(clippy::unwrap_used, reason = "a failed one is a failed test with a line number")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;
use std::{env, fs};

use leasehold_testkit::process::Process;
use leasehold_testkit::{RedisServer, Value, free_port, wait_until};
use rustix::process::Signal;
use serde_json::Value as Json;

/// A module of the example, which has its own tests.
#[path = "../examples/stock/verdict.rs"]
mod verdict;

/// The limit for each run: a run that takes longer hangs.
const LONG: Duration = Duration::from_secs(120);
const PIECES: u64 = 300;

/// Returns the example. `cargo test` has built it, unless it builds only this test: then this function builds it.
fn example() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let test = env::current_exe().unwrap();
        let program = test.ancestors().nth(2).unwrap().join("examples/stock");
        if !is_fresh(&program) {
            let mut build = Command::new(env!("CARGO"));
            build.args(["build", "--package", "leasehold-cli", "--example", "stock"]);
            if !cfg!(debug_assertions) {
                build.arg("--release");
            }
            assert!(build.status().unwrap().success(), "the example does not build");
            assert!(is_fresh(&program), "cargo has put the example elsewhere than {}", program.display());
        }
        program
    })
}

/// Whether the program is newer than all its sources, which cargo lists beside it. Otherwise an old program would be
/// tested.
fn is_fresh(program: &Path) -> bool {
    let changed = |file: &Path| fs::metadata(file).and_then(|file| file.modified()).ok();
    let (Some(built), Ok(list)) = (changed(program), fs::read_to_string(program.with_extension("d"))) else {
        return false;
    };
    let (_, sources) = list.split_once(": ").unwrap();
    sources.split_whitespace().all(|source| changed(Path::new(source)).is_some_and(|changed| changed <= built))
}

struct Run {
    status: Option<i32>,
    figures: Json,
    shown: String,
}

impl Run {
    fn figure(&self, name: &str) -> u64 {
        self.figures[name].as_u64().unwrap_or_else(|| panic!("no figure {name} in {}", self.shown))
    }

    fn verdict(&self) -> &str {
        self.figures["verdict"].as_str().unwrap_or_else(|| panic!("no verdict in {}", self.shown))
    }
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(example());
    command.args(arguments).env_remove("STOCK_STORE").stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Waits for an example, and kills one that hangs.
fn finish(process: Process) -> Run {
    let output = process.output(LONG);
    let text = String::from_utf8(output.stdout).unwrap();
    let shown = format!("{:?} {text} {}", output.status, String::from_utf8_lossy(&output.stderr));
    Run { status: output.status.code(), figures: serde_json::from_str(&text).unwrap_or(Json::Null), shown }
}

fn run(arguments: &[&str]) -> Run {
    finish(Process::start(&mut command(&[&["--json"], arguments].concat())))
}

/// Checks that hold for every kind of stock.
fn every_mode(place: &[&str]) {
    let pieces = PIECES.to_string();
    let with = |arguments: &[&str]| run(&[place, &["--pieces", &pieces], arguments].concat());

    let sound = with(&[]);
    assert_eq!((sound.status, sound.verdict()), (Some(0), "sound"), "{}", sound.shown);
    assert_eq!((sound.figure("sold"), sound.figure("left")), (PIECES, 0));
    let fenced = with(&["--fence", "--processes", "3", "--workers", "1"]);
    assert_eq!((fenced.status, fenced.verdict()), (Some(0), "sound"), "{}", fenced.shown);
    assert_eq!((fenced.figure("sold"), fenced.figure("refused")), (PIECES, 0));

    let none = with(&["--lock", "none", "--window", "1ms"]);
    assert_eq!((none.status, none.verdict()), (Some(0), "no lock"), "{}", none.shown);
    assert!(none.figure("sold") > PIECES);
    assert_eq!(none.figure("sold") + none.figure("left") - PIECES, none.figure("oversold"));

    let paused = with(&["--pause"]);
    assert_eq!((paused.status, paused.verdict()), (Some(0), "no fence"), "{}", paused.shown);
    // The stopped worker puts back every piece except the one that it sells.
    assert_eq!((paused.figure("sold"), paused.figure("left"), paused.figure("outlived")), (2 * PIECES, 0, 1));
    assert!(paused.figure("stopped_ms") >= 900, "a lease is 1 s: {}", paused.shown);

    let refused = with(&["--pause", "--fence"]);
    assert_eq!((refused.status, refused.verdict()), (Some(0), "refused"), "{}", refused.shown);
    assert_eq!((refused.figure("sold"), refused.figure("left"), refused.figure("refused")), (PIECES, 0, 1));
}

#[test]
fn embedded() {
    every_mode(&[]);
    // Between its requests every worker yields, so this needs neither a window nor luck.
    let none = run(&["--lock", "none"]);
    assert_eq!((none.verdict(), none.figure("window_us")), ("no lock", 0), "{}", none.shown);
}

#[test]
fn on_redis() {
    let server = RedisServer::start();
    every_mode(&["--store", &server.url()]);
    // Remaining keys expire by themselves.
    let Value::Array(keys) = server.command(&["KEYS", "*"]) else { panic!("KEYS answers an array") };
    for key in &keys {
        let ttl_ms = server.command(&["PTTL", key.text().unwrap()]).int().unwrap();
        assert!((1..=3_600_000).contains(&ttl_ms), "{key:?} has {ttl_ms} ms to live");
    }
}

#[test]
fn messages_describe_the_result() {
    let words = |arguments: &[&str]| {
        let output = Process::start(&mut command(&[&["--pieces", "50"], arguments].concat())).output(LONG);
        String::from_utf8(output.stdout).unwrap()
    };
    let sound = words(&[]);
    assert!(sound.contains("sold + left = 50 = start") && sound.contains("window    0 "), "{sound}");
    let none = words(&["--lock", "none"]);
    assert!(none.contains("sold that did not exist"), "{none}");
    let paused = words(&["--pause"]);
    assert!(paused.contains("sold + left = 100") && paused.contains("wrote 49"), "{paused}");
    assert!(paused.contains("a thread cannot be stopped") && paused.contains("--fence"), "{paused}");
    let refused = words(&["--pause", "--fence"]);
    assert!(refused.contains("refused, because the stock had seen a later token"), "{refused}");
}

#[test]
fn invalid_arguments_are_refused() {
    for (arguments, says) in [
        (&["--workers", "0"][..], "0 is not in"),
        (&["--processes", "0"], "0 is not in"),
        (&["--pieces", "0"], "0 is not in"),
        (&["--pieces", "-1"], "--pieces"),
        (&["--pieces", "10000001"], "is not in"),
        (&["--window", "5"], "use us, ms or s"),
        (&["--window", "5m"], "unknown unit"),
        (&["--window", "2s"], "too long"),
        (&["--lease", "1ms"], "out of range"),
        (&["--fence", "--lock", "none"], "tokens that come with a lock"),
        (&["--pause", "--lock", "none"], "has no lease"),
        (&["--lease", "5s", "--lock", "none"], "has no lock"),
        (&["--store", "postgres://x"], "redis://HOST"),
        (&["--store", "redis://:s3cret@localhost"], "STOCK_STORE"),
    ] {
        let run = run(arguments);
        assert_eq!(run.status, Some(2), "{arguments:?}: {}", run.shown);
        assert!(run.shown.contains(says) && !run.shown.contains("s3cret"), "{arguments:?}: {}", run.shown);
    }
}

#[test]
fn an_absent_store_is_reported() {
    let nobody = free_port();
    let run = run(&["--store", &format!("redis://127.0.0.1:{}", nobody.number())]);
    assert_eq!(run.status, Some(1), "{}", run.shown);
    assert!(run.shown.matches("Connection refused").count() == 1, "{}", run.shown);
}

#[test]
fn a_password_comes_by_the_environment_and_stays_there() {
    let server = RedisServer::builder().password("s3cret").start();
    let with = |url: &str| {
        let mut command = command(&["--json", "--pieces", "20", "--fence"]);
        finish(Process::start(command.env("STOCK_STORE", url)))
    };
    let right = with(&server.url());
    assert_eq!((right.status, right.verdict()), (Some(0), "sound"), "{}", right.shown);
    let wrong = with(&server.url().replace("s3cret", "s3cret-not"));
    assert_eq!(wrong.status, Some(1), "{}", wrong.shown);
    assert!(wrong.shown.contains("password") && !wrong.shown.contains("s3cret"), "{}", wrong.shown);
}

/// Runs until it is interrupted.
const ENDLESS: [&str; 5] = ["--json", "--pieces", "1000000", "--window", "5ms"];

#[test]
fn an_interrupt_ends_it_with_the_books_balanced() {
    ends_with_the_books_balanced(Signal::INT);
}

#[test]
fn the_signal_of_service_managers_ends_it_too() {
    ends_with_the_books_balanced(Signal::TERM);
}

fn ends_with_the_books_balanced(signal: Signal) {
    let server = RedisServer::start();
    let process = Process::start(&mut command(&[&ENDLESS[..], &["--store", &server.url()]].concat()));
    let stock_key = || match server.command(&["KEYS", "leasehold-stock-*"]) {
        Value::Array(keys) => keys.first().and_then(|key| key.text().map(str::to_owned)),
        other => panic!("KEYS answers {other:?}"),
    };
    let sold_some = || stock_key().is_some_and(|key| server.command(&["GET", &key]).int().is_some_and(|n| n < 999_990));
    wait_until("some are sold", LONG, sold_some);
    let ttl = stock_key().and_then(|key| server.command(&["TTL", &key]).int());
    assert!(ttl.is_some_and(|seconds| seconds > 0), "a killed run would leave the stock for ever: {ttl:?}");
    process.signal(signal);
    let run = finish(process);
    assert_eq!((run.status, run.verdict()), (Some(130), "sound"), "{}", run.shown);
    assert_eq!(run.figure("sold") + run.figure("left"), 1_000_000);
    assert_eq!(stock_key(), None, "the stock is cleared away");
}

/// A stopped process handles no message: it must be continued.
#[cfg(target_os = "linux")]
#[test]
fn an_interrupt_ends_a_process_that_is_stopped() {
    let server = RedisServer::start();
    // No other client gets the lock within ten minutes.
    let arguments = ["--pause", "--lease", "600s", "--store", &server.url()];
    let process = Process::start(&mut command(&[&ENDLESS[..], &arguments].concat()));
    let (manager, mut stopped) = (process.id(), None);
    wait_until("one process is stopped", LONG, || {
        stopped = children_of(manager).into_iter().find(|pid| state_of(*pid) == Some('T'));
        stopped.is_some()
    });
    process.signal(Signal::INT);
    let run = finish(process);
    assert_eq!((run.status, run.verdict()), (Some(130), "interrupted"), "{}", run.shown);
    assert_eq!(state_of(stopped.unwrap()), None, "nobody is left behind");
}

#[cfg(target_os = "linux")]
fn children_of(pid: u32) -> Vec<u32> {
    // Of every thread: any thread of the program may have started a process.
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<_>>()).collect()
}

#[cfg(target_os = "linux")]
fn state_of(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}
