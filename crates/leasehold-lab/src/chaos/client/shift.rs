//! The work of a task in a round: it acquires locks in every way there is, and gives up in every way there is.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold::{Guard, Leasehold, Owner, Result};
use leasehold_spec::mark::{self, Mark};
use leasehold_testkit::history::{GaveUp, Promise};
use leasehold_testkit::{Recorder, Registers, boottime_us};
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::super::fleet::is_keepers_label;
use super::super::names::{Class, Names, Who};
use super::super::notes::Notes;
use super::super::options::Store;
use super::super::report::PATH;
use super::call::Call;
use super::runtimes::Runtimes;
use super::section::Section;
use leasehold_testkit::Random;

/// A round in the view of one process.
pub(super) struct Shift {
    pub(super) names: Names,
    pub(super) store: Store,
    pub(super) recorder: Recorder,
    pub(super) notes: Notes,
    pub(super) is_over: watch::Receiver<bool>,
    pub(super) runtimes: Arc<Runtimes>,
    /// The runtime with the timers: it never ends.
    clock: Handle,
    doings: Mutex<BTreeMap<String, Doing>>,
    is_shut: AtomicBool,
    tally: Mutex<BTreeMap<String, u64>>,
    /// The paths that this process had taken before the round.
    marks_before: Vec<(Mark, u64)>,
}

/// The current activity of a task.
#[derive(Clone, Debug)]
pub(super) struct Doing {
    pub(super) client: String,
    pub(super) what: &'static str,
    pub(super) name: String,
    pub(super) since_us: u64,
}

/// The way to ask for a lock.
#[derive(Clone, Copy, Debug)]
enum Way {
    Lock,
    Try,
    TryFor,
    /// `try_lock_for` with a wait that is shorter than a round trip may be.
    Short,
    Cancel,
    Owner,
}

const WAYS: [(u64, Way); 6] =
    [(45, Way::Lock), (10, Way::Try), (12, Way::TryFor), (10, Way::Short), (14, Way::Cancel), (9, Way::Owner)];
/// The longest short wait.
const SHORT_MS: u64 = 50;
/// After its wait, `try_lock_for` waits for this time for a reply of the store, and for the same time again for the
/// claim of a full lease.
const REPLY_WAIT: Duration = Duration::from_secs(1);

impl Shift {
    pub(super) fn new(
        (names, store, runtimes): (Names, Store, Arc<Runtimes>),
        recorder: Recorder,
        notes: Notes,
        is_over: watch::Receiver<bool>,
    ) -> Self {
        let (doings, tally, marks_before) = (Mutex::default(), Mutex::default(), mark::everywhere());
        let is_shut = AtomicBool::new(false);
        let clock = Handle::current();
        Self { names, store, recorder, notes, is_over, runtimes, clock, doings, is_shut, tally, marks_before }
    }

    pub(super) fn over(&self) -> bool {
        *self.is_over.borrow()
    }

    /// Sleeps, but not beyond the end of the round. A timer of a runtime that is ending would panic if it were polled
    /// just then.
    pub(super) async fn sleep(&self, time: Duration) {
        let mut is_over = self.is_over.clone();
        let slept = {
            let _entered = self.clock.enter();
            tokio::time::sleep(time)
        };
        tokio::select! {
            _ = is_over.wait_for(|over| *over) => {}
            () = slept => {}
        }
    }

    /// Returns the activities that are not finished.
    pub(super) fn doings(&self) -> Vec<Doing> {
        self.doings.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Returns the counts of events, and of the library's paths, as JSON.
    pub(super) fn tally(&self) -> String {
        let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for ((mark, times), (_, before)) in mark::everywhere().into_iter().zip(&self.marks_before) {
            tally.insert(format!("{PATH}{}", mark.name()), times - before);
        }
        serde_json::to_string(&tally).expect("plain numbers")
    }

    pub(super) fn count(&self, what: &str) {
        *self.tally.lock().unwrap_or_else(PoisonError::into_inner).entry(what.into()).or_default() += 1;
    }

    pub(super) fn doing(&self, client: &str, what: &'static str, name: &str) {
        let doing = Doing { client: client.into(), what, name: name.into(), since_us: boottime_us() };
        self.doings.lock().unwrap_or_else(PoisonError::into_inner).insert(client.into(), doing);
    }

    pub(super) fn idle(&self, client: &str) {
        self.doings.lock().unwrap_or_else(PoisonError::into_inner).remove(client);
    }

    /// Declares that the round no longer waits for tasks: tasks that are dropped from now on are not counted.
    pub(super) fn shut(&self) {
        self.is_shut.store(true, Ordering::SeqCst);
    }

    /// Records that a task was dropped together with its wait or its lock. Returns whether it had any.
    pub(super) fn ended(&self, task: &str) -> bool {
        if self.is_shut.load(Ordering::SeqCst) {
            return false;
        }
        let mut doings = self.doings.lock().unwrap_or_else(PoisonError::into_inner);
        let is_of =
            |client: &str| client.strip_prefix(task).is_some_and(|turn| turn.is_empty() || turn.starts_with('.'));
        let ended: Vec<Doing> = doings.values().filter(|doing| is_of(&doing.client)).cloned().collect();
        doings.retain(|client, _| !is_of(client));
        drop(doings);
        for doing in &ended {
            self.recorder.died(&doing.client);
            self.count(&format!("its runtime ended: {}", doing.what));
        }
        !ended.is_empty()
    }

    /// Does one activity after the other, until the round is over.
    pub(super) async fn work(&self, client: &Leasehold, (me, at, registers): (&str, usize, u16), seed: u64) {
        let mut random = Random::new(seed);
        let mut registers = Registers::at(registers);
        // Some tasks have short pauses and some have long ones, different in each round.
        let pause_ms = *random.pick(&[1, 5, 10, 40]);
        let who = if is_keepers_label(me) { Who::Keeper } else { Who::Mortal };
        for turn in 1.. {
            if self.over() {
                return;
            }
            let name = self.names.pick(&mut random, who);
            // Each turn has its own client name: if records are lost and the clock is behind, a task may be granted a
            // token twice.
            let me = &format!("{me}.{turn}");
            if Class::of(&name) == Class::Open && random.chance(25) {
                self.revoke(client, me, &name, &mut random).await;
            } else {
                self.lock_once(client, (me, at), &name, (&mut random, &mut registers)).await;
            }
            self.idle(me);
            self.sleep(Duration::from_micros(random.below(2_000 * pause_ms))).await;
        }
    }

    async fn lock_once(
        &self,
        client: &Leasehold,
        (me, at): (&str, usize),
        name: &str,
        (random, registers): (&mut Random, &mut Registers),
    ) {
        let longest_ms = u64::try_from(Class::of(name).longest_lease(self.store).as_millis()).expect("seconds");
        // Most leases are alike: tasks of one client that ask for the same lease share one local queue and hand over
        // locally.
        let shortest_ms = if random.chance(70) { longest_ms } else { longest_ms / 2 };
        let lease = Duration::from_millis(random.within(shortest_ms, longest_ms));
        let mutex = client.mutex(name);
        let mutex = if random.chance(10) { mutex.fair() } else { mutex };
        let mutex = if random.chance(10) { mutex.fixed_lease(lease) } else { mutex.lease(lease) };
        let mutex = if random.chance(5) { mutex.full_lease() } else { mutex };
        let way = random.weighted(&WAYS);
        let attempt = self.recorder.attempt(name, me);
        let mut guards = Vec::new();
        let asked = match way {
            Way::Lock => {
                self.doing(me, "lock", name);
                mutex.lock().await.map(Some)
            }
            Way::Try => {
                self.doing(me, "try_lock", name);
                mutex.try_lock().await
            }
            Way::TryFor => {
                self.doing(me, "try_lock_for", name);
                mutex.try_lock_for(Duration::from_millis(random.within(1, 1_500))).await
            }
            Way::Short => {
                self.doing(me, "try_lock_for, short", name);
                let wait =
                    Duration::from_micros(if random.chance(10) { 0 } else { random.within(1, SHORT_MS * 1_000) });
                let call = Call::begin(self, at, "try_lock_for with a short wait", (wait, REPLY_WAIT));
                let tried = mutex.try_lock_for(wait).await;
                call.ended(me, tried.as_ref().err().map(leasehold::Error::kind));
                tried
            }
            Way::Cancel => {
                self.doing(me, "lock, canceled", name);
                let wait = Duration::from_micros(random.below(60_000));
                tokio::time::timeout(wait, mutex.lock()).await.map_or(Ok(None), |locked| locked.map(Some))
            }
            Way::Owner => {
                self.doing(me, "lock by an owner", name);
                self.twice(&mutex.owner(&Owner::new()), &mut guards).await
            }
        };
        match asked {
            Ok(Some(guard)) => {
                guards.push(guard);
                let held = attempt.granted(guards[0].token().get());
                let section = Section { shift: self, me, at, name, held, lease, registers, random };
                section.run(guards).await;
            }
            Ok(None) => {
                attempt.gave_up(match way {
                    Way::Try => GaveUp::Busy,
                    Way::TryFor | Way::Short => GaveUp::TimedOut,
                    Way::Lock | Way::Owner | Way::Cancel => GaveUp::Cancelled,
                });
                self.count("gave up");
            }
            Err(error) => {
                attempt.gave_up(GaveUp::Failed(error.to_string()));
                self.count(&format!("error: {:?}", error.kind()));
                self.sleep(Duration::from_millis(20)).await;
            }
        }
    }

    /// Acquires twice for one owner, which gives one lease. If the first grant was lost before the second was made, only
    /// one of the two is returned.
    async fn twice(&self, mutex: &leasehold::Mutex, guards: &mut Vec<Guard>) -> Result<Option<Guard>> {
        let (one, other) = tokio::join!(mutex.lock(), mutex.lock());
        match (one, other) {
            (Ok(one), Ok(other)) if one.token() == other.token() => {
                guards.push(one);
                Ok(Some(other))
            }
            // Two grants, one after the other: the later one counts, and the earlier one has ended.
            (Ok(one), Ok(other)) => {
                if one.is_valid() && other.is_valid() {
                    println!("an owner holds {} with tokens {} and {}", one.name(), one.token(), other.token());
                }
                Ok(Some(if one.token() > other.token() { one } else { other }))
            }
            (Ok(guard), Err(_)) | (Err(_), Ok(guard)) => Ok(Some(guard)),
            (Err(error), Err(_)) => Err(error),
        }
    }

    /// Revokes the grant of the current holder. Until the holder surely knows of it, two clients may believe that they
    /// hold.
    async fn revoke(&self, client: &Leasehold, me: &str, name: &str, random: &mut Random) {
        self.doing(me, "revoke", name);
        let mutex = client.mutex(name);
        let Ok(seen) = mutex.inspect().await else { return self.count("inspect failed") };
        let Some(holder) = seen.holder else { return };
        let grace = Duration::from_millis(*random.pick(&[0, 200, 1_000]));
        // The excuse is recorded before the call, because a client that is killed during the call cannot record it any
        // more. A reply is awaited for two seconds.
        self.excuse_revoked(name, grace + Duration::from_secs(2));
        let answer = mutex.revoke(&holder, grace).await;
        if answer.is_err() {
            // The revocation may still be carried out.
            self.excuse_revoked(name, grace + Duration::from_secs(5));
        }
        self.count(if answer.is_ok() { "revoked" } else { "revoke failed" });
    }
    /// Excuses overlaps: within this time the lease ends at the store, and its holder may believe in it for its whole
    /// length.
    fn excuse_revoked(&self, name: &str, within: Duration) {
        self.recorder.excuse(name, Promise::Exclusion, within + Class::of(name).longest_lease(self.store), "revoked");
    }
}
