//! What happens, in words that a person can read.

use leasehold_spec::{Answer, Delivery, GrantId, Name, Op, Outcome, PublicId, SessionId};

use super::exec::Pid;
use super::net::Net;

pub(super) fn client(pid: Pid) -> String {
    format!("client {pid}")
}

fn session(net: &Net, session: SessionId) -> String {
    net.who.get(&session).map_or_else(|| "somebody".into(), |pid| client(*pid))
}

fn attempt(net: &Net, id: GrantId) -> String {
    public(net, id.public())
}

fn public(net: &Net, id: PublicId) -> String {
    format!("{}'s attempt {}", session(net, id.session), id.counter)
}

pub(super) fn push(net: &Net, name: &Name, delivery: &Delivery) -> String {
    let Delivery { event, id, token, left_us, .. } = delivery;
    format!("  push {event:?}: {name}, {}, token {token}, {} ms left", attempt(net, *id), left_us / 1000)
}

pub(super) fn step(net: &Net, node: usize, name: &Name, op: &Op, answer: &Answer) -> String {
    let asked = match op {
        Op::Acquire(acquire) => format!("acquire {} ({} ms)", attempt(net, acquire.id), acquire.lease_ms),
        Op::Renew(renew) => format!("renew {} token {} ({} ms)", attempt(net, renew.id), renew.token, renew.lease_ms),
        Op::Release { id, token, used } => format!("release {} token {token}, used {used}", attempt(net, *id)),
        Op::CoolDown { id, used, for_ms } => {
            format!("let {} cool down for {for_ms} ms, used {used}", attempt(net, *id))
        }
        Op::Leave { id, used } => format!("leave {}, used {used}", attempt(net, *id)),
        Op::Reserve { id, token, range } => format!("reserve {range} for {} token {token}", attempt(net, *id)),
        Op::Revoke { holder, token, grace_ms } => {
            format!("revoke {} token {token} ({grace_ms} ms)", public(net, *holder))
        }
        Op::Settle => "settle".into(),
        Op::Inspect => "inspect".into(),
    };
    let said = match &answer.outcome {
        Outcome::Granted { token, left_us, .. } => format!("GRANTED token {token}, {} ms left", left_us / 1000),
        Outcome::Queued { left_us, joined, .. } => format!("QUEUED ({joined:?}), the holder has {} ms", left_us / 1000),
        Outcome::Busy { left_us } => format!("BUSY, the holder has {} ms", left_us / 1000),
        Outcome::Renewed { left_us } => format!("RENEWED, {} ms left", left_us / 1000),
        Outcome::Inspected(there) => format!("{} hold, {} wait", u8::from(there.holder.is_some()), there.waiters),
        other => format!("{other:?}"),
    };
    format!("{}: {name}: {asked}: {said}", net.nodes[node].run)
}
