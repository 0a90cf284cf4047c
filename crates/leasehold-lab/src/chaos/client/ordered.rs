//! Orders of the lab to a client, beside the choices of its tasks: to hold a lock, or to show that calls succeed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::{Leasehold, Mutex};
use leasehold_testkit::history::{Ended, GaveUp};

use super::super::names::Class;
use super::call::Call;
use super::runtimes::RUNTIMES;
use super::shift::Shift;

/// The time that a call for a free lock takes, whatever other runtimes do: only the extra time that the judge adds for
/// the machine.
const PROMPT: Duration = Duration::ZERO;

/// Holds a lock for this time, or until the round is over.
pub(super) async fn hold(shift: &Shift, mutex: &Mutex, me: &str, (name, time): (&str, Duration)) {
    shift.doing(me, "lock, as ordered", name);
    let attempt = shift.recorder.attempt(name, me);
    match mutex.lock().await {
        Ok(guard) => {
            let held = attempt.granted(guard.token().get());
            shift.doing(me, "hold, as ordered", name);
            let begun = Instant::now();
            while !shift.over() && begun.elapsed() < time && held.claims(|| guard.check().is_ok()) {
                shift.sleep(Duration::from_millis(10)).await;
            }
            held.ended(guard.check().err().map_or(Ended::Released, |lost| Ended::Lost(format!("{:?}", lost.reason()))));
            drop(guard.release().await);
        }
        Err(error) => attempt.gave_up(GaveUp::Failed(error.to_string())),
    }
    shift.idle(me);
}

/// Acquires a lock that no other client wants, again and again: acquires on this runtime, and releases on another one.
pub(super) async fn probe(shift: &Arc<Shift>, client: &Leasehold, (me, at): (&str, usize), name: &str, time: Duration) {
    // A request is repeated after a sixth of the lease. The lease is so long that this is after the judge's limit.
    let lease = Class::of(name).longest_lease(shift.store);
    let begun = Instant::now();
    while !shift.over() && begun.elapsed() < time {
        shift.doing(me, "probe", name);
        let attempt = shift.recorder.attempt(name, me);
        let call = Call::begin(shift, at, "lock of a free name", (Duration::ZERO, PROMPT));
        let locked = client.mutex(name).lease(lease).lock().await;
        call.ended(me, locked.as_ref().err().map(leasehold::Error::kind));
        let guard = match locked {
            Ok(guard) => guard,
            Err(error) => {
                attempt.gave_up(GaveUp::Failed(error.to_string()));
                break;
            }
        };
        let held = attempt.granted(guard.token().get());
        held.claims(|| guard.check().is_ok());
        held.ended(Ended::Released);
        let there =
            (1..RUNTIMES).map(|by| (at + by) % RUNTIMES).find(|there| shift.runtimes.undisturbed(*there).is_some());
        let there = there.unwrap_or(at);
        let (deputy, task) = (Arc::clone(shift), me.to_owned());
        let release = async move {
            let call = Call::begin(&deputy, there, "release on another runtime", (Duration::ZERO, PROMPT));
            let released = guard.release().await;
            call.ended(&task, released.err().map(|error| error.kind()));
        };
        // The other runtime may end meanwhile, and drop the guard.
        let _released_or_dropped = shift.runtimes.handle(there).spawn(release).await;
        shift.count("probes");
        shift.sleep(Duration::from_millis(20)).await;
    }
    shift.idle(me);
}
