//! Takes the locks for as long as the user waits, reports the wait, and leaves the queue if a signal ends the wait.

use std::env;
use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use leasehold::{All, AllGuard, Holder, Inspection, Kind, Leasehold, NodeSays};
use leasehold_spec::mutant::{Mutant, is_on};
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use super::end::{End, FAILED};
use super::names::Settings;
use super::plan::{Patience, Plan, Waiting};
use super::printer::Printer;
use super::reports::{Cause, WaitReports};
use super::signals::Signals;
use super::timing::rounded;
use crate::exit::is_away;
use crate::show::plain;

/// The pause between two tries to reach the store, at first and at most.
const TRY_FIRST: Duration = Duration::from_millis(50);
const TRY_LAST: Duration = Duration::from_secs(1);
/// The last try begins when the wait is over. It gets this time: a connection takes several round trips.
const LAST_TRY: Duration = Duration::from_millis(500);
/// However short the wait is, the store has this time for its first reply. Without one nobody knows who holds the lock.
const ANSWER: Duration = Duration::from_secs(1);
/// A wait that is shorter is not reported: most waits are, and a report costs the store an inspection.
const REPORT_AFTER: Duration = Duration::from_secs(1);
/// How long an inspection for a report may take.
const INSPECT: Duration = Duration::from_secs(1);
/// How long a client that ends waits until everything is sent: its request to leave the queue, or its release to the last
/// nodes of a quorum. If a request to leave is lost, the store skips the client when its turn comes, because its connection
/// is closed.
pub(crate) const LEAVE: Duration = Duration::from_secs(1);

/// The held locks, together with their client.
pub(crate) struct Taken {
    pub(crate) client: Leasehold,
    pub(crate) guard: AllGuard,
}

/// A wait for the lock and the store.
struct Wait<'a> {
    plan: &'a Plan,
    begun: Instant,
    deadline: Option<Instant>,
    reports: WaitReports,
    printer: &'a mut Printer,
}

/// Waits for the store and the lock.
///
/// # Errors
/// If there is no lock: how the run ends.
pub(crate) async fn take(plan: &Plan, signals: &mut Signals, printer: &mut Printer) -> Result<Taken, End> {
    let begun = Instant::now();
    let deadline = match plan.patience {
        Patience::Both(Waiting::For(wait)) => begun.checked_add(wait),
        Patience::Both(Waiting::ForEver) | Patience::Lock | Patience::No => None,
    };
    let mut wait = Wait { plan, begun, deadline, reports: WaitReports::new(&plan.names.to_string()), printer };
    let client = unless_signalled(signals, wait.connect()).await??;
    let all = plan.names.of(&client, Settings { lease: plan.lease, min_hold: plan.min_hold });
    match unless_signalled(signals, wait.lock(&client, &all)).await {
        Ok(Ok(guard)) => Ok(Taken { client, guard }),
        Ok(Err(end)) | Err(end) => {
            // If the process ended at once, the request to leave the queue might not be written yet. The queue would
            // count this client until its turn comes.
            let _left_or_late = timeout(LEAVE, client.close()).await;
            Err(end)
        }
    }
}

/// Drops the work if a signal ends the wait.
async fn unless_signalled<T>(signals: &mut Signals, work: impl Future<Output = T>) -> Result<T, End> {
    tokio::select! {
        biased;
        one = signals.leave() => Err(End::signal(one)),
        done = work => Ok(done),
    }
}

impl Wait<'_> {
    async fn connect(&mut self) -> Result<Leasehold, End> {
        let plan = self.plan;
        let waits = matches!(plan.patience, Patience::Both(_));
        let mut pause = TRY_FIRST;
        let mut last = None;
        loop {
            let builder = Leasehold::builder(&plan.location.url).one_connection().holder(&plan.holder);
            let until = self.deadline.map(|at| at.max(self.begun + ANSWER).max(Instant::now() + LAST_TRY));
            let mut trying = pin!(async {
                match until {
                    Some(until) => timeout_at(until, builder.connect()).await,
                    None => Ok(builder.connect().await),
                }
            });
            let silent = || format!("{} does not reply", plan.location.shown());
            let tried = loop {
                let report_at = self.begun + self.reports.next().max(REPORT_AFTER);
                tokio::select! {
                    biased;
                    tried = &mut trying => break tried,
                    () = sleep_until(report_at), if waits => {
                        let known = last.as_ref().map(leasehold::Error::reason);
                        let why = known.map_or_else(silent, ToOwned::to_owned);
                        self.note(&Cause::Unreachable(why));
                    }
                }
            };
            let error = match tried {
                Ok(Ok(client)) => {
                    self.note_reply();
                    return Ok(client);
                }
                Ok(Err(error)) => error,
                Err(_) => {
                    let why = last.map_or_else(silent, |error: leasehold::Error| error.reason().to_owned());
                    return Err(self.unreached(&why));
                }
            };
            let left = self.deadline.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()));
            match () {
                () if is_away(&error) && is_on(Mutant::P30BusyUnheard) => {
                    return Err(busy(plan, None, Duration::ZERO));
                }
                () if !waits || !is_away(&error) => return Err(error.into()),
                () if left.is_zero() => return Err(self.unreached(error.reason())),
                () => {}
            }
            self.note(&Cause::Unreachable(error.reason().to_owned()));
            sleep(pause.min(left)).await;
            last = Some(error);
            pause = (2 * pause).min(TRY_LAST);
        }
    }

    /// Waits for the locks, and reports a wait that is not short.
    async fn lock(&mut self, client: &Leasehold, all: &All) -> Result<AllGuard, End> {
        let plan = self.plan;
        let begun = Instant::now();
        let mut locking = pin!(lock(plan, all, self.deadline));
        let taken = loop {
            let report_at = (begun + REPORT_AFTER).max(self.begun + self.reports.next());
            let inspecting = async {
                // A quiet run asks the store nothing, and `--no-wait` is no wait.
                if plan.is_quiet || plan.patience == Patience::No {
                    std::future::pending::<()>().await;
                }
                sleep_until(report_at).await;
                cause(plan, client).await
            };
            tokio::select! {
                biased;
                taken = &mut locking => break taken,
                cause = inspecting => self.note(&cause),
            }
        };
        match taken {
            Ok(Some(guard)) => {
                self.note_reply();
                Ok(guard)
            }
            Ok(None) => Err(busy(plan, blocker(plan, client).await.ok().as_ref(), self.begun.elapsed())),
            Err(error) if is_away(&error) && matches!(plan.patience, Patience::Both(_)) => {
                Err(self.unreached(error.reason()))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn note(&mut self, cause: &Cause) {
        for line in self.reports.note(self.begun.elapsed(), cause) {
            self.printer.news(&line);
        }
    }

    fn note_reply(&mut self) {
        if let Some(line) = self.reports.reachable(self.begun.elapsed()) {
            self.printer.news(&line);
        }
    }

    /// Returns how a run ends whose store was not reached until the wait was over.
    fn unreached(&self, why: &str) -> End {
        let waited = rounded(self.begun.elapsed());
        End::error(FAILED, &format!("{why} (waited {waited} for the store, to lock {})", self.plan.names))
    }
}

/// A lock that keeps the run from its locks, as the store shows it.
struct Blocker<'a> {
    name: &'a str,
    seen: Inspection,
    /// The first holder that is another client.
    holder: Option<Holder>,
    /// The number of holders that are other clients.
    others: usize,
}

/// Finds the lock that the run waits for. Of several locks, it is the one in whose queue this client is shown, or else the
/// first one with another holder.
///
/// # Errors
/// If no lock could be inspected, or the store does not reply.
async fn blocker<'a>(plan: &'a Plan, client: &Leasehold) -> Result<Blocker<'a>, Cause> {
    let mut found: Option<Blocker<'a>> = None;
    for name in plan.names.iter() {
        let seen = match timeout(INSPECT, plan.names.inspect(client, name)).await {
            Ok(Ok(seen)) => seen,
            Ok(Err(error)) if is_away(&error) => return Err(Cause::Unreachable(error.reason().to_owned())),
            Ok(Err(_)) => continue,
            Err(_) => return Err(Cause::Unreachable(format!("{} does not reply", plan.location.shown()))),
        };
        let waits_here = seen.queue.iter().any(|waiter| client.is_waiter(waiter));
        let ours = seen.holders.iter().filter(|holder| client.is_holder(holder)).count();
        let holder = seen.holders.iter().find(|holder| !client.is_holder(holder)).cloned();
        let others = seen.holder_count.saturating_sub(ours);
        let one = Blocker { name, seen, holder, others };
        if waits_here {
            return Ok(one);
        }
        // Until a lock with another holder is found, the first one stands for all.
        if found.as_ref().is_none_or(|found| found.holder.is_none() && one.holder.is_some()) {
            found = Some(one);
        }
    }
    found.ok_or(Cause::Unknown)
}

/// Finds out what the run waits for.
async fn cause(plan: &Plan, client: &Leasehold) -> Cause {
    match blocker(plan, client).await {
        Ok(blocker) => cause_of(plan, &blocker),
        Err(cause) => cause,
    }
}

fn cause_of(plan: &Plan, blocker: &Blocker<'_>) -> Cause {
    let seen = &blocker.seen;
    if let Some(holder) = &blocker.holder {
        let name = if plan.names.only().is_none() { Some(blocker.name.to_owned()) } else { None };
        if holder.is_cooling_down {
            return Cause::CoolingDown { by: plain(&holder.label).into_owned(), name };
        }
        let is_above = is_above(blocker.name, holder);
        let ours = if is_above { ", which started this run and may be waiting for it" } else { "" };
        return Cause::Held { by: format!("{}{ours}", holders(blocker, holder)), name };
    }
    let nodes = seen.nodes.len();
    let resting = seen.nodes.iter().filter_map(|node| match node.says {
        NodeSays::Resting { left } => Some(left),
        _ => None,
    });
    let silent = seen.nodes.iter().filter(|node| matches!(node.says, NodeSays::Nothing { .. })).count();
    match resting.clone().max() {
        _ if seen.is_known() => Cause::Queue { waiters: seen.waiters },
        Some(left) => Cause::Quarantine { resting: resting.count(), nodes, left },
        None if silent > 0 => Cause::Silent { silent, nodes },
        None => Cause::Unknown,
    }
}

/// Returns the holders in a few words.
fn holders(blocker: &Blocker<'_>, first: &Holder) -> String {
    let label = plain(&first.label);
    match blocker.others {
        0 | 1 => label.into_owned(),
        2 => format!("{label} and one more"),
        others => format!("{label} and {} more", others - 1),
    }
}

/// Returns how many permits of a semaphore are taken.
fn taken(seen: &Inspection) -> String {
    match seen.kind {
        Kind::Semaphore => format!(" ({} of {} permits taken)", seen.units, seen.limit),
        _ => String::new(),
    }
}

/// Returns whether the holder is the `leasehold run` that started this one: if it waits for this run, the wait never ends.
/// It is reported and not refused: a process that was started by `setsid` does not keep the holder from its end.
fn is_above(name: &str, holder: &Holder) -> bool {
    let [Ok(names), Ok(tokens)] = ["LEASEHOLD_NAMES", "LEASEHOLD_TOKENS"].map(env::var) else { return false };
    let token = holder.token.to_string();
    names.split('\n').zip(tokens.split(' ')).any(|held| held == (name, &token))
}

async fn lock(plan: &Plan, all: &All, deadline: Option<Instant>) -> leasehold::Result<Option<AllGuard>> {
    match (plan.patience, deadline) {
        (Patience::No, _) => all.try_lock().await,
        (_, Some(deadline)) => all.try_lock_for(deadline.saturating_duration_since(Instant::now())).await,
        // A client that is connected to most nodes of a quorum does not know yet whether they vote. If they do not, this
        // is like a store that cannot be reached: without --wait it is an error.
        (Patience::Lock, None) if plan.location.is_quorum() => match all.try_lock().await? {
            Some(guard) => Ok(Some(guard)),
            None => all.lock().await.map(Some),
        },
        (_, None) => all.lock().await.map(Some),
    }
}

fn busy(plan: &Plan, blocker: Option<&Blocker<'_>>, waited: Duration) -> End {
    let why = match blocker.and_then(|blocker| Some((blocker, blocker.holder.as_ref()?))) {
        None => format!("{} is held by somebody else", plan.names),
        Some((Blocker { name, .. }, holder)) if holder.is_cooling_down => {
            format!("\"{name}\" was released by {}, and is kept for its minimum hold", plain(&holder.label))
        }
        Some((blocker, holder)) => {
            format!("\"{}\" is held by {}{}", blocker.name, holders(blocker, holder), taken(&blocker.seen))
        }
    };
    let waited = match plan.patience {
        Patience::No => String::new(),
        Patience::Lock | Patience::Both(_) => format!(" (waited {})", rounded(waited)),
    };
    End::news(plan.busy_code, &format!("{why}{waited}"))
}
