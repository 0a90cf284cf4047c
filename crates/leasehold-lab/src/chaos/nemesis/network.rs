//! Faults of the network, for the clients behind the faulty proxy.

use std::time::{Duration, Instant};

use leasehold::seam::Script;
use leasehold_testkit::proxy::{Fault, Injected, Latency, Requests, Seen};

use super::super::kind::Kind;
use super::super::ledger::Ledger;
use super::super::node::Stalls;
use super::super::options::Store;
use super::super::plan::Strike;
use super::super::stage::Stage;
use super::{End, Nemesis};
use leasehold_testkit::Random;

impl Nemesis<'_> {
    pub(super) fn network(&mut self, strike: &Strike, at: usize, dice: &mut Random) -> Option<End> {
        let (kind, stage, ledger) = (strike.kind, &mut *self.stage, self.ledger);
        ledger.note(kind, &format!("node {at} for {} ms", strike.for_ms));
        let (seen, store) = (stage.node(at).faulty.seen(), stage.store);
        match kind {
            Kind::Cut => {
                if stage.node(at).faulty.cut_all() > 0 {
                    ledger.struck(kind);
                }
                None
            }
            Kind::Refuse => {
                stage.node(at).faulty.refuse_connections();
                stage.node(at).faulty.cut_all();
                Some(counted(
                    (kind, at),
                    seen,
                    |seen| seen.refused,
                    move |stage| stage.node(at).faulty.accept_connections(),
                ))
            }
            Kind::StallRequests | Kind::StallReplies | Kind::StallBoth => Some(stall((kind, at), dice, stage, seen)),
            Kind::Latency => {
                let (fixed, jitter) = (dice.within(1, 60), dice.within(0, 120));
                let (fixed, jitter) = (Duration::from_millis(fixed), Duration::from_millis(jitter));
                stage.node(at).faulty.set_latency(Some(Latency { fixed, jitter, seed: dice.number() }));
                Some(counted(
                    (kind, at),
                    seen,
                    |seen| seen.delayed,
                    move |stage| stage.node(at).faulty.set_latency(None),
                ))
            }
            Kind::HalfOpen => {
                let struck = armed(kind, stage.node(at).faulty.inject(fault((kind, store), &seen, dice)));
                let is_cut = dice.chance(30);
                Some(Box::new(move |stage, ledger| {
                    if is_cut {
                        stage.node(at).faulty.cut_all();
                    }
                    struck(stage, ledger);
                }))
            }
            _ => Some(armed(kind, stage.node(at).faulty.inject(fault((kind, store), &seen, dice)))),
        }
    }
}

fn fault((kind, store): (Kind, Store), seen: &Seen, dice: &mut Random) -> Fault {
    let [acquire, release, renew, other] = match store {
        Store::Quorum => [Script::NodeAsk, Script::NodeGiveBack, Script::NodeRenew, Script::NodeSettle],
        _ => [Script::Acquire, Script::Release, Script::Renew, Script::Leave],
    };
    let script = dice.weighted(&[(40, acquire), (30, release), (20, renew), (10, other)]);
    // The fault strikes this one script. If it does not come for a second, the fault strikes any script.
    let (sha, armed) = (script.sha(), Instant::now());
    let some = Requests::matching(move |command| {
        let is_script = command.name.starts_with("EVALSHA");
        is_script && (command.argument(0) == Some(sha) || armed.elapsed() > Duration::from_secs(1))
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

/// Returns the end of a fault that strikes until it is lifted.
fn armed(kind: Kind, injected: Injected) -> End {
    Box::new(move |_, ledger| {
        injected.lift();
        ledger.note(kind, &format!("struck {} times", injected.hits()));
        if injected.hits() > 0 {
            ledger.struck(kind);
        }
    })
}

/// Returns the end of a fault that strikes while it lasts, as counted by the proxy.
fn counted(
    (kind, at): (Kind, usize),
    before: Seen,
    count: impl Fn(&Seen) -> u64 + 'static,
    end: impl FnOnce(&mut Stage) + 'static,
) -> End {
    Box::new(move |stage: &mut Stage, ledger: &Ledger| {
        end(stage);
        if count(&stage.node(at).faulty.seen()) > count(&before) {
            ledger.struck(kind);
        }
    })
}

/// Stalls a connection. A short stall loses nothing. To imitate a stall beyond the timeout of the network, the
/// connections are cut at the end, which loses the delayed messages.
fn stall((kind, at): (Kind, usize), dice: &mut Random, stage: &mut Stage, seen: Seen) -> End {
    let stalls = match kind {
        Kind::StallRequests => Stalls { requests: 1, replies: 0 },
        Kind::StallReplies => Stalls { requests: 0, replies: 1 },
        _ => Stalls { requests: 1, replies: 1 },
    };
    stage.node(at).stall(stalls);
    let is_cut = dice.chance(50);
    let end = move |stage: &mut Stage| {
        if is_cut {
            stage.node(at).faulty.cut_all();
        }
        stage.node(at).let_go(stalls);
    };
    counted((kind, at), seen, |seen| seen.stalled_requests + seen.stalled_replies, end)
}
