//! Leasehold itself, on real servers, under the faults of the scenes.
//!
//! The workers are processes that use the published library. A trial gives them orders, and breaks what is around them:
//! it pauses and kills workers, loses requests, replies and messages in proxies, and kills, restarts and fails over the
//! servers. All processes read the same clock, so that the judge sees the events in the order in which they happened. It
//! is the judge of the model.
//!
//! | File | Contents |
//! |---|---|
//! | `words.rs` | the orders and the events |
//! | `worker.rs`, `proxy.rs` | a worker, and the proxy in front of each of its servers |
//! | `trial.rs`, `notes.rs` | the director, and what it notes for the judge |
//! | `trials/` | a trial for each scene, and further ones |

mod notes;
mod proxy;
mod trial;
mod trials;
mod words;
mod worker;

use std::io;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use tokio::runtime;
use tokio::task::LocalSet;

pub use words::{Event, News, Order, Slot, Unknown, now};

use crate::judge::{Harm, Observable};
use crate::scene::Scene;
use trial::Trial;

/// The programs that a trial starts.
pub trait Program: Sync {
    /// Returns the command of a worker. It writes [`News::Ready`] when it is connected, reads lines of a slot and an
    /// [`Order`], writes [`Event`]s, and ends at the end of its input.
    fn worker(&self, store: &str, lease_ms: u64) -> Command;
    /// Returns the command that begins a quorum.
    fn begin(&self, quorum: &str) -> Command;
}

/// A fault that no scene has, and that Leasehold must survive as well.
#[derive(Clone, Copy, Debug)]
pub struct Further {
    /// The fault in a few words.
    pub name: &'static str,
    /// The harm that must not happen, besides two holders, a token out of order and a late write that is accepted.
    pub seeks: Observable,
}

impl Further {
    /// Returns all of them.
    #[must_use]
    pub fn all() -> &'static [Self] {
        trials::FURTHER
    }
}

/// The harm that a trial must not show.
#[derive(Clone, Copy)]
struct Promise {
    /// The harm, besides two holders.
    seeks: Observable,
    /// The guarantee that permits two holders.
    permits: Option<&'static str>,
}

/// Returns a time in milliseconds, as the judge and the orders have it.
fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The results of the trials of one scene.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trials {
    /// The number of trials that went to their end.
    pub completed: usize,
    /// The number of trials with two holders at once.
    pub with_two_holders: usize,
    /// The number of writes that came after the write of a later holder.
    pub late_writes: usize,
    /// The number of writes that the fence refused.
    pub refused: usize,
    /// The largest harm of the kind that the scene looks for: milliseconds, times, or clients.
    pub largest: u64,
    /// The broken promises, and the errors of trials that did not go to their end.
    pub broken: Vec<String>,
}

/// Makes `count` trials of a scene on servers of their own, `at_once` of them at the same time.
#[must_use]
pub fn run(scene: &Scene, program: &dyn Program, count: usize, at_once: usize) -> Trials {
    let promise = Promise { seeks: scene.seeks, permits: scene.ours.permits };
    run_each(scene.id, promise, program, count, at_once)
}

/// Makes `count` trials of a fault that no scene has.
#[must_use]
pub fn run_further(further: &Further, program: &dyn Program, count: usize, at_once: usize) -> Trials {
    run_each(further.name, Promise { seeks: further.seeks, permits: None }, program, count, at_once)
}

fn run_each(id: &str, promise: Promise, program: &dyn Program, count: usize, at_once: usize) -> Trials {
    let (next, all) = (AtomicUsize::new(0), Mutex::new(Trials::default()));
    thread::scope(|scope| {
        for _ in 0..at_once.min(count) {
            scope.spawn(|| {
                while next.fetch_add(1, Ordering::Relaxed) < count {
                    let result = run_once(id, program);
                    all.lock().unwrap_or_else(std::sync::PoisonError::into_inner).add(promise, result);
                }
            });
        }
    });
    all.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn run_once(id: &str, program: &dyn Program) -> io::Result<Vec<Harm>> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async {
        let mut trial = Trial::new(program);
        match trials::play(id, &mut trial) {
            Some(play) => play.await?,
            None => return Err(io::Error::other(format!("{id} has no trial"))),
        }
        trial.end().await
    })
}

impl Trials {
    fn add(&mut self, promise: Promise, result: io::Result<Vec<Harm>>) {
        let harm = match result {
            Ok(harm) => harm,
            Err(error) => return self.broken.push(error.to_string()),
        };
        self.completed += 1;
        let count = |is_meant: fn(&Harm) -> bool| harm.iter().filter(|harm| is_meant(harm)).count();
        let late_writes = count(|harm| matches!(harm, Harm::StaleWrite(_)));
        let refused = count(|harm| matches!(harm, Harm::Refused(_)));
        let has_two_holders = count(|harm| matches!(harm, Harm::Overlap(..) | Harm::Overstay(..))) > 0;
        self.with_two_holders += usize::from(has_two_holders);
        self.late_writes += late_writes;
        self.refused += refused;
        let sizes = harm.iter().filter_map(|harm| promise.seeks.measure(*harm));
        self.largest = sizes.chain([self.largest]).max().unwrap_or(0);
        if late_writes > refused {
            self.broken.push("the fence accepted a late write".into());
        }
        let is_permitted = |harm: &Harm| {
            matches!(harm, Harm::Overlap(..) | Harm::Overstay(..) | Harm::ShutOut(_)) && promise.permits.is_some()
        };
        let is_broken = |harm: &&Harm| {
            let is_promised =
                matches!(harm, Harm::Overlap(..) | Harm::Overstay(..) | Harm::TokenOrder(_) | Harm::ShutOut(_));
            (is_promised || promise.seeks.is_met_by(**harm)) && !is_permitted(harm)
        };
        self.broken.extend(harm.iter().find(is_broken).map(|harm| harm.tell(&[])));
    }

    /// Tells what the trials found.
    #[must_use]
    pub fn tell(&self, scene: &Scene, count: usize) -> String {
        let exclusion = match (self.with_two_holders, scene.ours.permits) {
            (0, _) => "never two holders".to_owned(),
            (trials, Some(permits)) => format!("two holders in {trials}, as documented ({permits})"),
            (trials, None) => format!("BROKEN: two holders in {trials}"),
        };
        let late = match (self.late_writes, self.refused) {
            (0, _) => String::new(),
            (late, refused) if refused >= late => {
                format!("; {late} late writes{}, and each is refused", scene.why_late())
            }
            (late, refused) => format!("; BROKEN: late writes: {late}, of which {refused} are refused"),
        };
        let worst = scene.seeks.tell(self.largest).map_or_else(String::new, |worst| format!("; at worst {worst}"));
        format!("{} of {count}: {exclusion}{late}{worst}", self.completed)
    }

    /// Whether every trial went to its end, and no promise was broken.
    #[must_use]
    pub fn are_as_promised(&self, count: usize) -> bool {
        self.completed == count && self.broken.is_empty()
    }
}
