//! Describes a schedule in words.

use leasehold_spec::Delivery;
use stateright::Model;

use super::callers::Call;
use super::cases::Play;
use super::pool::{Act, Pool};
use super::session::{Ask, Message, Request};
use crate::models::words::{answer, attempt, name, token};

/// Describes a schedule, one line for each event, and one for each reply and push of a step.
pub(super) fn describe(play: &Play, acts: &[Act]) -> Vec<String> {
    let mut pool = play.init_states().remove(0);
    let mut lines = Vec::new();
    for one in acts {
        lines.push(act(&pool, *one));
        let Some(next) = play.next_state(&pool, *one) else { return lines };
        for (s, (before, after)) in (0..).zip(pool.sessions.iter().zip(&next.sessions)) {
            let known = before.back.iter().skip(usize::from(*one == Act::Receive(s))).count();
            lines.extend(after.back.iter().skip(known).map(|sent| format!("    {}", message(s, sent))));
        }
        pool = next;
    }
    lines
}

fn act(pool: &Pool, act: Act) -> String {
    let session = |s: u8| &pool.sessions[s as usize];
    let said = |s: u8, next: Option<&Request>| next.map_or_else(String::new, |next| request(s, next));
    match act {
        Act::Tick => format!("-- tick {} --", pool.tick + 1),
        Act::Call(s, call) => format!("{}: {}", name(s), called(call)),
        Act::Serve(s) => format!("the store runs {}'s {}", name(s), said(s, session(s).out.front())),
        Act::ServeLate(s) => {
            format!("the store runs {}'s {}, of a connection that is gone", name(s), said(s, session(s).late.front()))
        }
        Act::Receive(s) => {
            let next = session(s).back.front().map_or_else(String::new, |next| message(s, next));
            format!("{} receives {next}", name(s))
        }
        Act::Overtake(s) => format!("a push to {} overtakes a reply", name(s)),
        Act::Recheck(s, n) => format!("{} re-checks {}", name(s), attempt(s, n)),
        Act::Renew(s, n) => format!("{} renews {}", name(s), attempt(s, n)),
        Act::LosePush(s) => format!("a push to {} is lost", name(s)),
        Act::Cut(s, false) => format!("{}'s connection breaks, and it asks again on another one", name(s)),
        Act::Cut(s, true) => format!("{}'s connection breaks; its requests stay in the store's buffer", name(s)),
        Act::Crash(s) => format!("{} dies", name(s)),
        Act::Detach(s) => format!("the store notices that {}'s inbox is gone", name(s)),
        Act::Replicate => "a replica has everything so far, and receives nothing more".to_owned(),
        Act::FailOver => "the store fails over to the replica".to_owned(),
    }
}

const fn called(call: Call) -> &'static str {
    match call {
        Call::Acquire => "a task acquires",
        Call::AcquireAgain => "another task acquires",
        Call::Release(_) => "the task releases",
        Call::Cancel => "the task drops its future",
        Call::Upgrade => "the reader upgrades",
        Call::Stop => "the reader stops waiting for its upgrade",
        Call::Drop => "the reader drops the future of its upgrade",
        Call::Downgrade => "the writer becomes a reader",
        Call::Resize => "an operator changes the limit",
    }
}

fn request(s: u8, request: &Request) -> String {
    let id = attempt(s, request.n);
    match request.ask {
        Ask::Queue => format!("acquire {id} (sent at {})", request.sent),
        Ask::Try => format!("last try of {id} (sent at {})", request.sent),
        Ask::Renew(of) => format!("renew {id} token {}", token(of)),
        Ask::Release(of) => format!("release {id} token {}", token(of)),
        Ask::Leave => format!("leave {id}"),
        Ask::Lower(of, units) => format!("lower {id} token {} to {units}", token(of)),
        Ask::Resize(nth) => format!("resize {nth} (until {})", request.not_after),
    }
}

fn message(s: u8, message: &Message) -> String {
    match message {
        Message::Reply(to, said) => format!("the reply to {}: {}", request(s, to), answer(said)),
        Message::Push(Delivery { id, token: of, .. }) => {
            format!("the push: {} holds with token {}", attempt(s, id.counter as u8), token(*of))
        }
    }
}
