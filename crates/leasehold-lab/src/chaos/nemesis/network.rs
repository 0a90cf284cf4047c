//! Faults of the network, for the clients behind the faulty proxy.

use std::time::{Duration, Instant};

use leasehold::seam::Scripts;
use leasehold_testkit::proxy::{Fault, Injected, Latency, Requests, Seen};

use super::super::kind::Kind;
use super::super::ledger::Ledger;
use super::super::plan::Strike;
use super::super::stage::Stage;
use super::{End, Nemesis};
use leasehold_testkit::Random;

impl Nemesis<'_> {
    pub(super) fn network(&mut self, strike: &Strike, dice: &mut Random) -> Option<End> {
        let (kind, stage, ledger) = (strike.kind, &mut *self.stage, self.ledger);
        ledger.note(kind, &format!("for {} ms", strike.for_ms));
        let seen = stage.redis().faulty.seen();
        match kind {
            Kind::Cut => {
                if stage.redis().faulty.cut_all() > 0 {
                    ledger.struck(kind);
                }
                None
            }
            Kind::Refuse => {
                stage.redis().faulty.refuse_connections();
                stage.redis().faulty.cut_all();
                Some(counted(kind, seen, |seen| seen.refused, |stage| stage.redis().faulty.accept_connections()))
            }
            Kind::StallRequests | Kind::StallReplies | Kind::StallBoth => Some(stall(kind, dice, stage, seen)),
            Kind::Latency => {
                let (fixed, jitter) = (dice.within(1, 60), dice.within(0, 120));
                let (fixed, jitter) = (Duration::from_millis(fixed), Duration::from_millis(jitter));
                stage.redis().faulty.set_latency(Some(Latency { fixed, jitter, seed: dice.number() }));
                Some(counted(kind, seen, |seen| seen.delayed, |stage| stage.redis().faulty.set_latency(None)))
            }
            Kind::HalfOpen => {
                let struck = armed(kind, stage.redis().faulty.inject(fault(kind, &seen, dice)));
                let is_cut = dice.chance(30);
                Some(Box::new(move |stage, ledger| {
                    if is_cut {
                        stage.redis().faulty.cut_all();
                    }
                    struck(stage, ledger);
                }))
            }
            _ => Some(armed(kind, stage.redis().faulty.inject(fault(kind, &seen, dice)))),
        }
    }
}

fn fault(kind: Kind, seen: &Seen, dice: &mut Random) -> Fault {
    let scripts = Scripts::get();
    let script = dice.weighted(&[
        (40, &scripts.acquire.sha),
        (30, &scripts.release.sha),
        (20, &scripts.renew.sha),
        (10, &scripts.leave.sha),
    ]);
    // Of the one script; and when that does not come for a second, of any.
    let (script, armed) = (script.clone(), Instant::now());
    let some = Requests::matching(move |command| {
        let is_script = command.name.starts_with("EVALSHA");
        is_script && (command.argument(0) == Some(&script) || armed.elapsed() > Duration::from_secs(1))
    });
    let times = dice.within(1, 6);
    match kind {
        Kind::LoseReply => Fault::mute_at_reply(some).times(times),
        Kind::CutAtReply => Fault::cut_at_reply(some).times(times.min(3)),
        Kind::LateRequest => Fault::delay(some, Duration::from_millis(dice.within(200, 2_500))).times(times.min(3)),
        Kind::LosePush => Fault::drop_push().times(3 * times),
        Kind::Garble => Fault::garble_reply(some).times(times.min(2)),
        Kind::HalfOpen => {
            let last = seen.accepted + seen.refused + seen.unreachable;
            Fault::hold(Requests::matching(move |command| command.connection <= last))
        }
        _ => unreachable!("{kind:?} is no fault of single requests"),
    }
}

/// Strikes until it is lifted.
fn armed(kind: Kind, injected: Injected) -> End {
    Box::new(move |_, ledger| {
        injected.lift();
        ledger.note(kind, &format!("struck {} times", injected.hits()));
        if injected.hits() > 0 {
            ledger.struck(kind);
        }
    })
}

/// Strikes while it lasts, as the proxy has counted.
fn counted(
    kind: Kind,
    before: Seen,
    count: impl Fn(&Seen) -> u64 + 'static,
    end: impl FnOnce(&mut Stage) + 'static,
) -> End {
    Box::new(move |stage: &mut Stage, ledger: &Ledger| {
        end(stage);
        if count(&stage.redis().faulty.seen()) > count(&before) {
            ledger.struck(kind);
        }
    })
}

/// A short one loses nothing; where it was longer than the patience of the network what was held up is lost with the
/// connections.
fn stall(kind: Kind, dice: &mut Random, stage: &mut Stage, seen: Seen) -> End {
    let (requests, replies) = match kind {
        Kind::StallRequests => (1, 0),
        Kind::StallReplies => (0, 1),
        _ => (1, 1),
    };
    stage.redis().stalls.requests += requests;
    stage.redis().stalls.replies += replies;
    stage.redis().apply_stalls();
    let is_cut = dice.chance(50);
    let end = move |stage: &mut Stage| {
        if is_cut {
            stage.redis().faulty.cut_all();
        }
        stage.redis().stalls.requests -= requests;
        stage.redis().stalls.replies -= replies;
        stage.redis().apply_stalls();
    };
    counted(kind, seen, |seen| seen.stalled_requests + seen.stalled_replies, end)
}
