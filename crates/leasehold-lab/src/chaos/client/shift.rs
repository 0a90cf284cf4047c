//! What a task does in a round: it asks for locks in every way there is, and gives up in every way there is.

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

/// A round as one process sees it.
pub(super) struct Shift {
    pub(super) names: Names,
    pub(super) store: Store,
    pub(super) recorder: Recorder,
    pub(super) notes: Notes,
    pub(super) is_over: watch::Receiver<bool>,
    pub(super) runtimes: Arc<Runtimes>,
    /// The runtime that keeps the time: it never ends.
    clock: Handle,
    doings: Mutex<BTreeMap<String, Doing>>,
    is_shut: AtomicBool,
    tally: Mutex<BTreeMap<String, u64>>,
    /// The paths that this process had taken before the round.
    marks_before: Vec<(Mark, u64)>,
}

/// What a task is doing.
#[derive(Clone, Debug)]
pub(super) struct Doing {
    pub(super) client: String,
    pub(super) what: &'static str,
    pub(super) name: String,
    pub(super) since_us: u64,
}

/// How a lock is asked for.
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
/// For so long after its wait `try_lock_for` awaits an answer of the store; and as long again the claim of a full lease.
const ANSWERED: Duration = Duration::from_secs(1);

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

    /// Sleeps, but not for longer than the round. A timer of a runtime that ends would panic if it is polled just then.
    pub(super) async fn rest(&self, time: Duration) {
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

    /// Those that are not done.
    pub(super) fn doings(&self) -> Vec<Doing> {
        self.doings.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// How often what happened, and which paths the library took, as JSON.
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

    /// Tasks that are dropped from now on are those that the round did not wait for.
    pub(super) fn shut(&self) {
        self.is_shut.store(true, Ordering::SeqCst);
    }

    /// Records that a task was dropped with what it waited for and held; returns whether there was anything.
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

    /// One thing after the other, until the round is over.
    pub(super) async fn work(&self, client: &Leasehold, (me, at, registers): (&str, usize, u16), seed: u64) {
        let mut random = Random::new(seed);
        let mut registers = Registers::at(registers);
        // Some are in a hurry and some are not, in each round others.
        let pause_ms = *random.pick(&[1, 5, 10, 40]);
        let who = if is_keepers_label(me) { Who::Keeper } else { Who::Mortal };
        for turn in 1.. {
            if self.over() {
                return;
            }
            let name = self.names.pick(&mut random, who);
            // Of each turn its own: where records are lost and the clock is behind a task may be granted a token twice.
            let me = &format!("{me}.{turn}");
            if Class::of(&name) == Class::Open && random.chance(25) {
                self.revoke(client, me, &name, &mut random).await;
            } else {
                self.lock_once(client, (me, at), &name, (&mut random, &mut registers)).await;
            }
            self.idle(me);
            self.rest(Duration::from_micros(random.below(2_000 * pause_ms))).await;
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
        // Most are alike: who asks for the same in one client stands in one line, and hands on inside of it.
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
                let call = Call::begin(self, at, "try_lock_for with a short wait", (wait, ANSWERED));
                let tried = mutex.try_lock_for(wait).await;
                call.ended(me, tried.as_ref().err().map(leasehold::Error::kind));
                tried
            }
            Way::Cancel => {
                self.doing(me, "lock, cancelled", name);
                let patience = Duration::from_micros(random.below(60_000));
                tokio::time::timeout(patience, mutex.lock()).await.map_or(Ok(None), |locked| locked.map(Some))
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
                self.rest(Duration::from_millis(20)).await;
            }
        }
    }

    /// Two tasks of one owner, and one lease. Where the first lost it before the second came, one of them has it.
    async fn twice(&self, mutex: &leasehold::Mutex, guards: &mut Vec<Guard>) -> Result<Option<Guard>> {
        let (one, other) = tokio::join!(mutex.lock(), mutex.lock());
        match (one, other) {
            (Ok(one), Ok(other)) if one.token() == other.token() => {
                guards.push(one);
                Ok(Some(other))
            }
            // Two grants, one after the other: the later one counts, the earlier is of nobody.
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

    /// Takes the lock away from whoever has it. From now on until it surely knows, two may believe that they hold.
    async fn revoke(&self, client: &Leasehold, me: &str, name: &str, random: &mut Random) {
        self.doing(me, "revoke", name);
        let mutex = client.mutex(name);
        let Ok(seen) = mutex.inspect().await else { return self.count("inspect failed") };
        let Some(holder) = seen.holder else { return };
        let grace = Duration::from_millis(*random.pick(&[0, 200, 1_000]));
        // Said before: whoever is killed meanwhile cannot say it any more. An answer is awaited for two seconds.
        self.excuse_revoked(name, grace + Duration::from_secs(2));
        let answer = mutex.revoke(&holder, grace).await;
        if answer.is_err() {
            // It may yet be carried out.
            self.excuse_revoked(name, grace + Duration::from_secs(5));
        }
        self.count(if answer.is_ok() { "revoked" } else { "revoke failed" });
    }
    /// Within this time the lease ends at the store, and its holder may believe in it for as long as it was.
    fn excuse_revoked(&self, name: &str, within: Duration) {
        self.recorder.excuse(name, Promise::Exclusion, within + Class::of(name).longest_lease(self.store), "revoked");
    }
}
