//! A client in a process of its own, which a test can kill and freeze. The process is this test binary, started again
//! for one test that returns at once in every other run. It reads commands from its standard input, one per line, and
//! prints the results to its standard output.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use leasehold::Guard;
use leasehold_testkit::history::Fenced;
use leasehold_testkit::{Registers, boottime_us, process};
use rustix::process::{Signal, WaitId, WaitIdOptions, waitid};

use crate::common::{LONG, client};

const URL: &str = "LEASEHOLD_FAULTS_CHILD";
/// A client in another process. Dropping it kills the process.
pub(crate) struct Worker {
    process: process::Worker,
    unread: VecDeque<String>,
}

impl Worker {
    /// Starts a client that is connected to this store.
    pub(crate) fn start(url: &str) -> Self {
        let process = process::Worker::start(&[], "child::child", (URL, url));
        let mut worker = Self { process, unread: VecDeque::new() };
        worker.expect_line("ready");
        worker
    }

    /// Sends a command to the child: see [`obey`].
    pub(crate) fn command(&mut self, order: &str) {
        self.process.send(order);
    }

    /// Waits for a line that begins with this word, and returns the rest of it. Other lines are kept for later.
    #[track_caller]
    pub(crate) fn expect_line(&mut self, word: &str) -> String {
        let deadline = Instant::now() + LONG;
        let rest = |line: &str| line.strip_prefix(word).map(|rest| rest.trim().to_owned());
        if let Some((at, rest)) = self.unread.iter().enumerate().find_map(|(at, line)| Some((at, rest(line)?))) {
            self.unread.remove(at);
            return rest;
        }
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Some(line) = self.process.line(left) else {
                panic!("the child did not print {word:?}, but {:?}", self.unread)
            };
            match rest(&line) {
                Some(rest) => return rest,
                None => self.unread.push_back(line),
            }
        }
    }

    /// Kills the process, and returns when it is gone.
    pub(crate) fn kill(&mut self) {
        let status = self.process.kill();
        assert!(!status.success() && status.code().is_none(), "killed by a signal: {status}");
    }

    /// Freezes the process, and returns when it is stopped.
    pub(crate) fn stop(&self) {
        self.process.signal(Signal::STOP);
        let options = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::Pid(self.process.pid()), options).unwrap();
        assert!(status.is_some_and(|status| status.stopped()), "stopped, and not gone");
    }

    /// Continues the process.
    pub(crate) fn cont(&self) {
        self.process.signal(Signal::CONT);
    }
}

type Guards = Arc<Mutex<HashMap<u64, Arc<Guard>>>>;

/// Runs on a thread of its own. If the process is stopped in between, the next check is among the first things that it
/// does when it goes on.
fn spin(guards: &Guards, token: u64) {
    let guard = Arc::clone(&guards.lock().unwrap()[&token]);
    thread::spawn(move || {
        let mut last_us = 0;
        loop {
            let at_us = boottime_us();
            if guard.check().is_err() {
                drop(guard);
                break process::Worker::print(&format!("ended {last_us}"));
            }
            if last_us == 0 {
                process::Worker::print("spinning");
            }
            last_us = at_us;
        }
    });
}

#[test]
#[ignore = "the process of other tests, which start it"]
fn child() {
    let Ok(url) = std::env::var(URL) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(obey(&url));
}

/// `lock NAME LEASE_MS` prints `held TOKEN` when the lock is granted, and does not block other commands meanwhile.
/// `wait CONDITION NAME LEASE_MS` locks `NAME`, waits, and prints `woken`: the lease is also that of its notification.
/// `check TOKEN` prints `valid` or `lost NAME WHY`. `spin TOKEN` prints `spinning` and checks repeatedly. When the lock
/// is lost, it prints `ended AT`: the time just before the last check that succeeded. `write PORT TOKEN` writes to the
/// fenced register without a check, and prints `accepted` or `refused`. `release TOKEN` prints the reply of the store.
async fn obey(url: &str) {
    let client = client(url, Duration::from_secs(30)).await;
    let guards = Guards::default();
    let (sender, mut orders) = tokio::sync::mpsc::unbounded_channel();
    thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            let _ended = sender.send(line);
        }
    });
    process::Worker::print("ready");
    while let Some(line) = orders.recv().await {
        let words: Vec<&str> = line.split(' ').collect();
        let token = || words.last().and_then(|word| word.parse().ok()).expect("a token");
        match words[..] {
            // With an entry of its own, although others of this process may wait.
            ["lock", name, lease_ms] => {
                let mutex = client.mutex(name).lease(Duration::from_millis(lease_ms.parse().unwrap())).fair();
                let guards = Arc::clone(&guards);
                tokio::spawn(async move {
                    let guard = mutex.lock().await.unwrap();
                    let token = guard.token().get();
                    guards.lock().unwrap().insert(token, Arc::new(guard));
                    process::Worker::print(&format!("held {token}"));
                });
            }
            ["wait", condition, name, lease_ms] => {
                let client = self::client(url, Duration::from_millis(lease_ms.parse().unwrap())).await;
                let (condition, mutex) = (client.condvar(condition), client.mutex(name));
                tokio::spawn(async move {
                    let _guard = condition.wait(mutex.lock().await.unwrap()).await.unwrap();
                    process::Worker::print("woken");
                });
            }
            ["check", _] => match guards.lock().unwrap()[&token()].check() {
                Ok(_) => process::Worker::print("valid"),
                Err(lost) => process::Worker::print(&format!("lost {} {:?}", lost.name(), lost.reason())),
            },
            ["spin", _] => spin(&guards, token()),
            ["write", port, _] => match Registers::at(port.parse().unwrap()).write_fenced("shelf", token()) {
                Fenced::Accepted(_) => process::Worker::print("accepted"),
                Fenced::Refused => process::Worker::print("refused"),
                Fenced::Unknown => process::Worker::print("no answer from the register"),
            },
            ["release", _] => {
                let guard = guards.lock().unwrap().remove(&token()).expect("a held token");
                let guard = Arc::into_inner(guard).expect("no thread spins on it");
                process::Worker::print(&format!("released {:?}", guard.release().await));
            }
            _ => panic!("unknown command: {line}"),
        }
    }
}
