//! Descriptions of the events of a run, for the trace.

use leasehold_spec::{Acquire, Answer, Delivery, GrantId, Name, Op, Outcome, PublicId, Renew, SessionId};

use super::exec::Pid;
use super::net::Net;

pub(super) fn client(pid: Pid) -> String {
    format!("client {pid}")
}

fn session(net: &Net, session: SessionId) -> String {
    net.pids.get(&session).map_or_else(|| "an unknown client".into(), |pid| client(*pid))
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
    let subject = if let Op::Revoke { holder, .. } = op { Some(*holder) } else { op.subject().map(|id| id.public()) };
    let subject = subject.map_or_else(String::new, |id| format!(" {}", public(net, id)));
    let asked = format!("{}{subject}{}", op.word(), terms(op));
    let said = match &answer.outcome {
        Outcome::Granted { token, left_us, .. } => format!("GRANTED token {token}, {} ms left", left_us / 1000),
        Outcome::Queued { left_us, joined, .. } => format!("QUEUED ({joined:?}), the holder has {} ms", left_us / 1000),
        Outcome::Busy { left_us } => format!("BUSY, the holder has {} ms", left_us / 1000),
        Outcome::Renewed { left_us } => format!("RENEWED, {} ms left", left_us / 1000),
        Outcome::Refused(refusal) => format!("REFUSED ({refusal:?})"),
        Outcome::Inspected(there) => format!("{} hold, {} wait", there.grants, there.waiters),
        other => other.word().to_uppercase(),
    };
    format!("{}: {name}: {asked}: {said}", net.nodes[node].run)
}

/// The terms of a request, apart from its subject.
fn terms(op: &Op) -> String {
    match op {
        Op::Acquire(Acquire { lease_ms, .. }) => format!(" ({lease_ms} ms)"),
        Op::Renew(Renew { token, lease_ms, .. }) => format!(" token {token} ({lease_ms} ms)"),
        Op::Release { token, used, .. } => format!(" token {token}, used {used}"),
        Op::CoolDown { used, for_ms, .. } => format!(" for {for_ms} ms, used {used}"),
        Op::Leave { used, .. } => format!(", used {used}"),
        Op::Reserve { token, range, .. } => format!(" token {token}, {range} tokens"),
        Op::Revoke { token, grace_ms, .. } => format!(" token {token} ({grace_ms} ms)"),
        Op::Settle | Op::Inspect => String::new(),
        Op::Lower { token, units, .. } => format!(" token {token} to {units}"),
        // The operations of one kind each.
        other => format!(" {other:?}"),
    }
}
