//! The servers do what the test asks for.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use leasehold_testkit::{RedisServer, Resp, Value, wait_until};

fn ok() -> Value {
    Value::Status("OK".into())
}

fn wall_us(server: &RedisServer) -> i64 {
    let time = server.command(&["TIME"]);
    let part = |i: usize| time.items().and_then(|parts| parts[i].int()).expect("TIME answers two numbers");
    part(0) * 1_000_000 + part(1)
}

fn machine_us() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock after 1970");
    i64::try_from(now.as_micros()).expect("a clock before the year 292,000")
}

/// Whether the process runs, and is not a zombie.
fn runs(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
fn a_restart_keeps_the_port_and_loses_the_data() {
    let server = RedisServer::start();
    let (port, pid) = (server.port(), server.pid());
    assert_eq!(server.command(&["SET", "k", "v"]), ok());
    server.restart();
    assert_eq!(server.port(), port);
    assert_ne!(server.pid(), pid);
    assert_eq!(server.command(&["GET", "k"]), Value::Nil);
}

#[test]
fn a_killed_server_is_gone_and_a_dropped_one_too() {
    let server = RedisServer::start();
    let (port, pid) = (server.port(), server.pid());
    server.kill();
    assert!(!runs(pid));
    assert!(Resp::try_connect(port, Duration::from_secs(1)).is_err());
    server.restart();
    let pid = server.pid();
    assert!(runs(pid));
    drop(server);
    assert!(!runs(pid));
}

#[test]
fn an_append_only_file_outlives_a_crash() {
    let server = RedisServer::builder().appendonly("always").start();
    assert_eq!(server.command(&["SET", "k", "v"]), ok());
    server.restart();
    assert_eq!(server.command(&["GET", "k"]), Value::from("v"));
}

#[test]
fn a_lost_disk_is_empty() {
    let server = RedisServer::builder().appendonly("always").start();
    assert_eq!(server.command(&["SET", "k", "v"]), ok());
    server.restart_empty();
    assert_eq!(server.command(&["GET", "k"]), Value::Nil);
    assert_eq!(server.command(&["SET", "k", "w"]), ok());
    server.restart();
    assert_eq!(server.command(&["GET", "k"]), Value::from("w"), "it persists as before");
}

#[test]
fn a_disk_is_slow_while_it_is_set_to_be() {
    let server = RedisServer::builder().appendonly("always").slow_fsync().skew().start();
    let took = |key: &str| {
        let begun = std::time::Instant::now();
        assert_eq!(server.command(&["SET", key, "v"]), ok());
        begun.elapsed()
    };
    server.set_slow_fsync(Duration::from_millis(300));
    assert!(took("a") >= Duration::from_millis(300), "the write is answered when it is flushed");
    server.set_slow_fsync(Duration::ZERO);
    // This does not assert any speed: an answer within the timeout of the connection is enough.
    took("b");
    server.shift_clock(40_000_000);
    assert!(wall_us(&server) - machine_us() > 39_000_000, "both shims at once");
}

/// With `everysec`, the end of the process alone loses the writes that a slow flush has delayed.
#[test]
fn a_slow_disk_loses_acknowledged_writes() {
    let server = RedisServer::builder().appendonly("everysec").slow_fsync().start();
    server.set_slow_fsync(Duration::from_millis(1500));
    let mut resp = server.resp();
    let begun = std::time::Instant::now();
    let mut acknowledged = 0;
    // For longer than two flushes, so that one is running at the end.
    while begun.elapsed() < Duration::from_millis(2600) {
        acknowledged += 1;
        assert_eq!(resp.command(&["SET", "n", &acknowledged.to_string()]), ok());
    }
    server.set_slow_fsync(Duration::ZERO);
    server.restart();
    let kept = server.command(&["GET", "n"]).int().unwrap_or(0);
    assert!(kept < acknowledged, "{kept} of {acknowledged}");
}

#[test]
fn a_promoted_replica_stays_one() {
    let primary = RedisServer::start();
    let replica = RedisServer::builder().replica_of(&primary).start();
    replica.promote();
    assert_eq!(primary.command(&["SET", "k", "v"]), ok());
    assert_eq!(replica.command(&["GET", "k"]), Value::Nil, "it does not get later writes");
    replica.restart();
    assert_eq!(replica.command(&["SET", "k", "w"]), ok(), "no replica takes a write");
}

#[test]
fn a_frozen_server_answers_when_it_is_continued() {
    let server = RedisServer::start();
    let mut resp = server.resp();
    server.stop();
    resp.set_patience(Duration::from_millis(50)).unwrap();
    assert!(resp.try_command(&["PING"]).is_err(), "a frozen server answered");
    server.cont();
    resp.set_patience(Duration::from_secs(10)).unwrap();
    assert_eq!(resp.receive().unwrap(), Value::Status("PONG".into()));
    server.stop();
    server.kill();
}

#[test]
fn a_password_is_required() {
    let server = RedisServer::builder().password("sesame").start();
    assert_eq!(server.command(&["PING"]), Value::Status("PONG".into()));
    assert!(server.url().contains("sesame"));
    assert!(matches!(Resp::connect(server.port()).command(&["PING"]), Value::Error(e) if e.starts_with("NOAUTH")));
}

#[test]
fn a_full_memory_refuses_writes() {
    let server = RedisServer::builder().maxmemory(1).start();
    assert!(matches!(server.command(&["SET", "k", "v"]), Value::Error(e) if e.starts_with("OOM")));
}

#[test]
fn a_replica_follows() {
    let primary = RedisServer::builder().password("sesame").start();
    let replica = RedisServer::builder().replica_of(&primary).start();
    assert_eq!(primary.command(&["SET", "k", "v"]), ok());
    wait_until("the replica has the write", Duration::from_secs(10), || {
        replica.command(&["GET", "k"]) == Value::from("v")
    });
}

#[test]
fn only_the_clock_of_the_server_jumps_and_at_once() {
    let server = RedisServer::builder().skew().start();
    let hour = 3_600_000_000;
    assert_eq!(server.clock_shift(), 0);
    for shift in [0, hour, -hour, 7_654_321] {
        server.shift_clock(shift);
        let (before, seen, after) = (machine_us(), wall_us(&server), machine_us());
        assert!((before..=after).contains(&(seen - shift)), "shifted by {shift}, off by {}", seen - shift - before);
        assert_eq!(server.clock_shift(), shift);
    }
}

#[test]
fn a_jump_ends_leases_and_outlives_a_restart() {
    let server = RedisServer::builder().skew().start();
    let mut resp = server.resp();
    assert_eq!(resp.command(&["SET", "k", "v", "PX", "60000"]), ok());
    server.shift_clock(59_000_000);
    assert_eq!(resp.command(&["GET", "k"]), Value::from("v"));
    server.shift_clock(61_000_000);
    assert_eq!(resp.command(&["GET", "k"]), Value::Nil);
    server.restart();
    assert!(wall_us(&server) - machine_us() > 60_000_000);
}

#[test]
fn timers_go_on_when_the_clock_steps_back() {
    let server = RedisServer::builder().skew().start();
    let lru_clock = || {
        let info = server.command(&["INFO", "server"]);
        let line = info.text().unwrap().lines().find_map(|line| line.strip_prefix("lru_clock:")).unwrap().to_owned();
        line.parse::<i64>().unwrap()
    };
    let before = lru_clock();
    // Redis' cron, which sets this value, is timed by the monotonic clock. If that clock went back an hour, the cron
    // would stop.
    server.shift_clock(-3_600_000_000);
    wait_until("the cron has run", Duration::from_secs(10), || (lru_clock() - before + 3_600).abs() < 60);
}

#[test]
fn many_servers_at_once_are_independent() {
    let pids: Vec<u32> = std::thread::scope(|scope| {
        let starts: Vec<_> = (0..8).map(|_| scope.spawn(RedisServer::start)).collect();
        let servers: Vec<RedisServer> = starts.into_iter().map(|start| start.join().unwrap()).collect();
        for server in &servers {
            let info = server.command(&["INFO", "server"]);
            assert!(info.text().unwrap().contains(&format!("process_id:{}\r\n", server.pid())));
        }
        servers.iter().map(RedisServer::pid).collect()
    });
    assert!(!pids.into_iter().any(runs));
}

const CHILD: &str = "LEASEHOLD_TESTKIT_CHILD";

#[test]
#[ignore = "the process of the next test, which starts it"]
fn child_that_starts_a_server_and_aborts() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let server = RedisServer::start();
    eprintln!("server {}", server.pid());
    eprintln!("directory {}", server.dir().display());
    std::process::abort();
}

#[test]
fn a_test_that_aborts_leaves_no_server() {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "child_that_starts_a_server_and_aborts", "--nocapture"])
        .env(CHILD, "1")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(!child.status.success(), "the child was to abort");
    let output = String::from_utf8_lossy(&child.stderr);
    let after =
        |word: &str| output.lines().find_map(|line| line.strip_prefix(word)).expect("the child prints this line");
    let (pid, dir) = (after("server ").parse().unwrap(), after("directory "));
    wait_until("the watchdog has ended the server", Duration::from_secs(10), || !runs(pid));
    wait_until("its directory is removed", Duration::from_secs(10), || !Path::new(dir).exists());
}
