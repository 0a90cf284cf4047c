//! A client in another process. It is this test binary, started again for one test that otherwise returns immediately.
//! It reads orders from its standard input, one in a line, and prints the results to its standard output.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child as Process, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use leasehold::{Guard, Leasehold};
use rustix::process::{Pid, Signal, kill_process};

use crate::{LONG, slow};

const URL: &str = "LEASEHOLD_FILE_CHILD";
/// The beginning of our lines: the test harness of the child prints other lines.
const MARK: &str = "@@ ";

/// A client in another process. Dropping it kills the process.
pub(crate) struct Child {
    process: Process,
    orders: ChildStdin,
    lines: Receiver<String>,
}

impl Child {
    /// Starts a client, and waits until it is connected.
    pub(crate) fn start(url: &str) -> Self {
        let child = Self::start_by(url, &[]);
        child.reads("ready");
        child
    }

    /// Starts a client by another command, such as `unshare`.
    pub(crate) fn start_by(url: &str, by: &[&str]) -> Self {
        let us = std::env::current_exe().unwrap();
        let words = by.iter().map(|word| (*word).to_owned()).chain([us.display().to_string()]).collect::<Vec<_>>();
        let mut process = Command::new(&words[0])
            .args(&words[1..])
            .args(["--ignored", "--exact", "child::child", "--nocapture"])
            .env(URL, url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{} cannot be started: {error}", words[0]));
        let orders = process.stdin.take().expect("it is piped");
        let output = BufReader::new(process.stdout.take().expect("it is piped"));
        let (tell, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if let Some((_, line)) = line.split_once(MARK) {
                    let _nobody_listens_at_the_end = tell.send(line.to_owned());
                }
            }
        });
        Self { process, orders, lines }
    }

    pub(crate) fn send(&mut self, order: &str) {
        writeln!(self.orders, "{order}").unwrap();
    }

    /// Returns its next line, which begins with this word.
    #[track_caller]
    pub(crate) fn reads(&self, word: &str) -> String {
        self.reads_within(LONG, word)
    }

    #[track_caller]
    pub(crate) fn reads_within(&self, limit: Duration, word: &str) -> String {
        match self.lines.recv_timeout(limit) {
            Ok(line) if line.starts_with(word) => line[word.len()..].trim().to_owned(),
            other => panic!("the child was to say {word:?}, and said {other:?}"),
        }
    }

    /// Returns the number of lines that it printed since then, after it has ended.
    pub(crate) fn rest(&self) -> u64 {
        self.lines.iter().count() as u64
    }

    pub(crate) fn ask(&mut self, order: &str, word: &str) -> String {
        self.send(order);
        self.reads(word)
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ended = self.process.kill();
        let _ended = self.process.wait();
    }
}

fn print(what: &str) {
    println!("{MARK}{what}");
}

#[tokio::test]
#[ignore = "the other process of the other tests, and nothing by itself"]
async fn child() {
    let Ok(url) = std::env::var(URL) else { return };
    let client = match Leasehold::connect(&url).await {
        Ok(client) => client,
        Err(error) => return print(&format!("refused {:?} {error}", error.kind())),
    };
    print("ready");
    let mut guards = HashMap::new();
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let words: Vec<_> = line.split_whitespace().collect();
        obey(&client, &words, &mut guards).await;
    }
}

async fn obey(client: &Leasehold, words: &[&str], guards: &mut HashMap<String, Guard>) {
    match *words {
        // Locks, and waits for it.
        ["lock", name, lease_s] => {
            let lease = Duration::from_secs(lease_s.parse().unwrap());
            let guard = client.mutex(name).lease(lease).lock().await.unwrap();
            print(&format!("locked {}", guard.token()));
            guards.insert(name.to_owned(), guard);
        }
        // The same, by a slow client, which depends on messages.
        ["wait", name, lease_s] => {
            let lease = Duration::from_secs(lease_s.parse().unwrap());
            let client = slow::client(&std::env::var(URL).unwrap()).await;
            let guard = client.mutex(name).lease(lease).lock().await.unwrap();
            print(&format!("locked {}", guard.token()));
            guards.insert(name.to_owned(), guard);
        }
        ["inspect", name] => match client.mutex(name).inspect().await {
            Ok(seen) => print(if seen.holder.is_some() { "inspected held" } else { "inspected free" }),
            Err(error) => print(&format!("failed {error}")),
        },
        ["try", name] => match client.mutex(name).try_lock().await {
            Ok(Some(guard)) => {
                print(&format!("locked {}", guard.token()));
                guards.insert(name.to_owned(), guard);
            }
            Ok(None) => print("busy"),
            Err(error) => print(&format!("failed {error}")),
        },
        ["release", name] => {
            let released = guards.remove(name).unwrap().release().await;
            print(&format!("released {released:?}"));
        }
        // Revokes the lease of the holder, after this grace.
        ["revoke", name, grace_ms] => {
            let mutex = client.mutex(name);
            let holder = mutex.inspect().await.unwrap().holder.expect("somebody holds");
            let revoked = mutex.revoke(&holder, Duration::from_millis(grace_ms.parse().unwrap())).await;
            print(&format!("revoked {revoked:?}"));
        }
        // Waits until the lease is lost, and prints why.
        ["lost", name] => {
            let lost = guards[name].lost().await;
            print(&format!("lost {:?}", lost.reason()));
        }
        // Sends any request, with any result: so a client notices that it must attach again.
        ["attached"] => {
            let _asked = client.mutex("attached").inspect().await;
            print("attached");
        }
        // By the clock of leases.
        ["now"] => print(&format!("now {}", leasehold::seam::Real::world().now_us())),
        // Starts a command that inherits our life and nothing else, and prints its PID. It outlives us.
        ["command"] => {
            let life = client.life().expect("it has one");
            let mut command = Command::new("sleep");
            command.arg("120").stdin(life).stdout(Stdio::null());
            #[expect(clippy::zombie_processes, reason = "it is killed by who told us, and its parent is dead by then")]
            let child = command.spawn().unwrap();
            print(&format!("command {}", child.id()));
        }
        // Locks and releases this number of times, and prints the tokens.
        ["turns", name, count] => {
            let mut tokens = Vec::new();
            for _ in 0..count.parse().unwrap() {
                let guard = client.mutex(name).lock().await.unwrap();
                tokens.push(guard.token().to_string());
                let _ = guard.release().await.unwrap();
            }
            print(&format!("turns {}", tokens.join(" ")));
        }
        // Adds one to the number in a file, this number of times, and prints a line after each.
        ["count", name, file, count] => {
            for _ in 0..count.parse().unwrap() {
                let guard = client.mutex(name).lock().await.unwrap();
                let number: u64 = std::fs::read_to_string(file).unwrap().parse().unwrap();
                // Atomic, whenever we are killed.
                let new = format!("{file}.{}", std::process::id());
                std::fs::write(&new, (number + 1).to_string()).unwrap();
                std::fs::rename(&new, file).unwrap();
                print("counted");
                let _ = guard.release().await.unwrap();
            }
            print("counted all");
        }
        // Practically for ever: so a signal always stops it in a transaction.
        ["spin", name] => {
            print("spinning");
            loop {
                let guard = client.mutex(name).lock().await.unwrap();
                let _ = guard.release().await;
            }
        }
        _ => panic!("no such order: {words:?}"),
    }
}
