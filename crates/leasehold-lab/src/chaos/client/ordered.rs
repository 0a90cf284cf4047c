//! What the lab orders a client to do, beside what its tasks choose: to hold a lock, and to show that all is well.

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::Leasehold;
use leasehold_testkit::history::{Ended, GaveUp};

use super::super::names::Class;
use super::call::Call;
use super::runtimes::RUNTIMES;
use super::shift::Shift;

/// How long a call takes whose lock is free, whatever other runtimes do: no more than the judge adds for the machine.
const PROMPT: Duration = Duration::ZERO;

/// Holds a lock for so long, or until the round is over.
pub(super) async fn hold(shift: &Shift, client: &Leasehold, me: &str, (name, lease, time): (&str, Duration, Duration)) {
    shift.doing(me, "lock, as ordered", name);
    let attempt = shift.recorder.attempt(name, me);
    match client.mutex(name).lease(lease).lock().await {
        Ok(guard) => {
            let held = attempt.granted(guard.token().get());
            shift.doing(me, "hold, as ordered", name);
            let begun = Instant::now();
            while !shift.over() && begun.elapsed() < time && held.claims(|| guard.check().is_ok()) {
                shift.rest(Duration::from_millis(10)).await;
            }
            held.ended(guard.check().err().map_or(Ended::Released, |lost| Ended::Lost(format!("{:?}", lost.reason()))));
            drop(guard.release().await);
        }
        Err(error) => attempt.gave_up(GaveUp::Failed(error.to_string())),
    }
    shift.idle(me);
}

/// Acquires a lock that nobody else wants, again and again: on this runtime, and releases it on another one.
pub(super) async fn probe(shift: &Arc<Shift>, client: &Leasehold, (me, at): (&str, usize), name: &str, time: Duration) {
    // So long that no request is repeated, after a sixth of it, before the judge calls it late.
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
        let (deputy, who) = (Arc::clone(shift), me.to_owned());
        let release = async move {
            let call = Call::begin(&deputy, there, "release on another runtime", (Duration::ZERO, PROMPT));
            let released = guard.release().await;
            call.ended(&who, released.err().map(|error| error.kind()));
        };
        // The other runtime may end meanwhile, and drop the guard.
        let _released_or_dropped = shift.runtimes.handle(there).spawn(release).await;
        shift.count("probes");
        shift.rest(Duration::from_millis(20)).await;
    }
    shift.idle(me);
}
