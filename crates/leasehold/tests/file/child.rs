//! A client in another process. It is this test binary, started again for one test that otherwise returns immediately.
//! It reads orders from its standard input, one in a line, and prints the results to its standard output.

use std::any::Any;
use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::process::{Command, Stdio};
use std::time::Duration;

use leasehold::{Guard, Leasehold, LostSignal};
use leasehold_testkit::process::Worker;

use crate::{LONG, buffer, slow};

const URL: &str = "LEASEHOLD_FILE_CHILD";
/// A client in another process. Dropping it kills the process.
pub(crate) struct Child(Worker);

impl Child {
    /// Starts a client, and waits until it is connected.
    pub(crate) fn start(url: &str) -> Self {
        let child = Self::start_by(url, &[]);
        child.reads("ready");
        child
    }

    /// Starts a client by another command, such as `unshare`.
    pub(crate) fn start_by(url: &str, by: &[&str]) -> Self {
        Self(Worker::start(by, "child::child", (URL, url)))
    }

    /// Returns its next line, which begins with this word.
    #[track_caller]
    pub(crate) fn reads(&self, word: &str) -> String {
        self.reads_within(LONG, word)
    }

    #[track_caller]
    pub(crate) fn reads_within(&self, limit: Duration, word: &str) -> String {
        match self.line(limit) {
            Some(line) if line.starts_with(word) => line[word.len()..].trim().to_owned(),
            other => panic!("the child was to say {word:?}, and said {other:?}"),
        }
    }

    pub(crate) fn kill(&mut self) {
        self.0.kill();
    }

    pub(crate) fn ask(&mut self, order: &str, word: &str) -> String {
        self.send(order);
        self.reads(word)
    }
}

impl Deref for Child {
    type Target = Worker;

    fn deref(&self) -> &Worker {
        &self.0
    }
}

impl DerefMut for Child {
    fn deref_mut(&mut self) -> &mut Worker {
        &mut self.0
    }
}

#[tokio::test]
#[ignore = "the other process of the other tests, and nothing by itself"]
async fn child() {
    let Ok(url) = std::env::var(URL) else { return };
    let client = match Leasehold::connect(&url).await {
        Ok(client) => client,
        Err(error) => return Worker::print(&format!("refused {:?} {error}", error.kind())),
    };
    Worker::print("ready");
    let mut held = Held::default();
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let words: Vec<_> = line.split_whitespace().collect();
        obey(&client, &words, &mut held).await;
    }
}

/// The guards of the child.
#[derive(Default)]
struct Held {
    guards: HashMap<String, Guard>,
    /// Guards of pools, until the child ends.
    shares: Vec<Box<dyn Any>>,
    lost: Vec<LostSignal>,
}

async fn obey(client: &Leasehold, words: &[&str], held: &mut Held) {
    let guards = &mut held.guards;
    match *words {
        // Acquires this number of permits of as many, one after the other.
        ["permits", name, count, lease_s] => {
            let lease = Duration::from_secs(lease_s.parse().unwrap());
            let semaphore = client.semaphore(name, count.parse().unwrap()).lease(lease);
            for _ in 0..count.parse().unwrap() {
                held.shares.push(Box::new(semaphore.acquire().await.unwrap()));
            }
            Worker::print("acquired");
        }
        // Becomes a reader of a read-write lock.
        ["read", name, lease_s] => {
            let lease = Duration::from_secs(lease_s.parse().unwrap());
            let guard = client.rw_lock(name).lease(lease).read().await.unwrap();
            Worker::print(&format!("reads {}", guard.token()));
            held.lost.push(guard.lost());
            held.shares.push(Box::new(guard));
        }
        // Waits until the last reader's lease is lost, and prints why.
        ["share", "lost"] => {
            let lost = held.lost.pop().expect("it reads").await;
            Worker::print(&format!("lost {:?}", lost.reason()));
        }
        // Waits at a condition variable, with a slow client, which depends on messages.
        ["wait", "at", condvar, mutex] => {
            let client = slow::client(&std::env::var(URL).unwrap()).await;
            let guard = client.mutex(mutex).lock().await.unwrap();
            Worker::print("waits");
            let guard = client.condvar(condvar).wait(guard).await.unwrap();
            Worker::print(&format!("woken {}", guard.token()));
            let _ = guard.release().await.unwrap();
        }
        // Waits for a latch, with a slow client.
        ["latch", name] => {
            let client = slow::client(&std::env::var(URL).unwrap()).await;
            match client.latch(name).wait().await {
                Ok(()) => Worker::print("open"),
                Err(error) => Worker::print(&format!("failed {:?}", error.kind())),
            }
        }
        // Becomes the leader.
        ["campaign", name, value] => {
            let leadership = client.election(name).campaign(value).await.unwrap();
            Worker::print("leads");
            held.shares.push(Box::new(leadership));
        }
        ["produce", file, from, to] => {
            buffer::produce(client, file, (from.parse().unwrap(), to.parse().unwrap())).await;
        }
        ["consume", file] => buffer::consume(client, file).await,
        // Locks, and waits for it.
        ["lock", name, lease_s] => {
            let lease = Duration::from_secs(lease_s.parse().unwrap());
            let guard = client.mutex(name).lease(lease).lock().await.unwrap();
            Worker::print(&format!("locked {}", guard.token()));
            guards.insert(name.to_owned(), guard);
        }
        // The same, by a slow client, which depends on messages.
        ["wait", name, lease_s] => {
            let lease = Duration::from_secs(lease_s.parse().unwrap());
            let client = slow::client(&std::env::var(URL).unwrap()).await;
            let guard = client.mutex(name).lease(lease).lock().await.unwrap();
            Worker::print(&format!("locked {}", guard.token()));
            guards.insert(name.to_owned(), guard);
        }
        ["inspect", name] => match client.mutex(name).inspect().await {
            Ok(seen) => Worker::print(if seen.holder().is_some() { "inspected held" } else { "inspected free" }),
            Err(error) => Worker::print(&format!("failed {error}")),
        },
        ["try", name] => match client.mutex(name).try_lock().await {
            Ok(Some(guard)) => {
                Worker::print(&format!("locked {}", guard.token()));
                guards.insert(name.to_owned(), guard);
            }
            Ok(None) => Worker::print("busy"),
            Err(error) => Worker::print(&format!("failed {error}")),
        },
        ["release", name] => {
            let released = guards.remove(name).unwrap().release().await;
            Worker::print(&format!("released {released:?}"));
        }
        // Revokes the lease of the holder, after this grace.
        ["revoke", name, grace_ms] => {
            let mutex = client.mutex(name);
            let holder = mutex.inspect().await.unwrap().holder().cloned().expect("somebody holds");
            let revoked = mutex.revoke(&holder, Duration::from_millis(grace_ms.parse().unwrap())).await;
            Worker::print(&format!("revoked {revoked:?}"));
        }
        // Waits until the lease is lost, and prints why.
        ["lost", name] => {
            let lost = guards[name].lost().await;
            Worker::print(&format!("lost {:?}", lost.reason()));
        }
        // Sends any request, with any result: so a client notices that it must attach again.
        ["attached"] => {
            let _asked = client.mutex("attached").inspect().await;
            Worker::print("attached");
        }
        // By the clock of leases.
        ["now"] => Worker::print(&format!("now {}", leasehold::seam::Real::world().now_us())),
        // Starts a command that inherits our life and nothing else, and prints its PID. It outlives us.
        ["command"] => {
            let life = client.life().expect("it has one");
            let mut command = Command::new("sleep");
            command.arg("120").stdin(life).stdout(Stdio::null());
            #[expect(clippy::zombie_processes, reason = "it is killed by who told us, and its parent is dead by then")]
            let child = command.spawn().unwrap();
            Worker::print(&format!("command {}", child.id()));
        }
        // Locks and releases this number of times, and prints the tokens.
        ["turns", name, count] => {
            let mut tokens = Vec::new();
            for _ in 0..count.parse().unwrap() {
                let guard = client.mutex(name).lock().await.unwrap();
                tokens.push(guard.token().to_string());
                let _ = guard.release().await.unwrap();
            }
            Worker::print(&format!("turns {}", tokens.join(" ")));
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
                Worker::print("counted");
                let _ = guard.release().await.unwrap();
            }
            Worker::print("counted all");
        }
        // Practically for ever: so a signal always stops it in a transaction.
        ["spin", name] => {
            Worker::print("spinning");
            loop {
                let guard = client.mutex(name).lock().await.unwrap();
                let _ = guard.release().await;
            }
        }
        _ => panic!("no such order: {words:?}"),
    }
}
