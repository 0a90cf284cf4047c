//! Describes a schedule in words.

use leasehold_spec::{Answer, Contention, Event, Outcome, Token, Was};

use super::network::{Ask, Fate, Message, Request};
use super::scene::{TICK_US, ticks};
use super::world::{Act, World};

pub(crate) fn name(session: u8) -> char {
    char::from(b'A' + session)
}

/// Formats an attempt: `A0` is the first attempt of session A.
pub(crate) fn attempt(session: u8, n: u8) -> String {
    format!("{}{n}", name(session))
}

/// Formats a token, which is a count of microseconds, as its tick and the number of tokens made in that tick before.
pub(crate) fn token(token: Token) -> String {
    let (tick, nth) = (token.get() / TICK_US, token.get() % TICK_US);
    let tick = tick.saturating_sub(10);
    if nth == 0 { format!("{tick}") } else { format!("{tick}+{nth}") }
}

pub(crate) fn answer(answer: &Answer) -> String {
    let said = match &answer.outcome {
        Outcome::Granted { token: t, left_us, range: 1 } => {
            format!("GRANTED token {}, {} ticks left", token(*t), ticks(*left_us))
        }
        Outcome::Granted { token: t, left_us, range } => {
            format!("GRANTED tokens {} to {}, {} ticks left", token(*t), token(t.plus(range - 1)), ticks(*left_us))
        }
        Outcome::Reserved { range } => format!("RESERVED {range} tokens"),
        Outcome::Queued { left_us, .. } => format!("QUEUED, the holder has {} ticks left", ticks(*left_us)),
        Outcome::Renewed { left_us } => format!("RENEWED, {} ticks left", ticks(*left_us)),
        Outcome::Left { was: Was::Granted } => "LEFT, and gave the grant back".into(),
        Outcome::Left { was: Was::Queued } => "LEFT the queue".into(),
        Outcome::Left { was: Was::Absent } => "LEFT, and was not there".into(),
        other => other.word().to_uppercase(),
    };
    match answer.contention {
        Contention::None => said,
        _ => format!("{said}, others wait"),
    }
}

fn request(session: u8, request: &Request) -> String {
    let id = attempt(session, request.n);
    match request.ask {
        Ask::Subscribe => "subscribe".into(),
        Ask::Acquire { ticket: None, .. } => format!("acquire {id} (sent at {})", request.sent),
        Ask::Acquire { ticket: Some(_), .. } => format!("re-check {id} (sent at {})", request.sent),
        Ask::Renew { token: t } => format!("renew {id} token {}", token(t)),
        Ask::Release { token: t, used } => format!("release {id} token {}, used {}", token(t), token(used)),
        Ask::Leave { used } => format!("leave {id}, used {}", token(used)),
        Ask::CoolDown { used, ticks } => format!("let {id} cool down for {ticks} ticks, used {}", token(used)),
        Ask::Reserve { token: t, range } => format!("reserve {range} for {id} token {}", token(t)),
        Ask::Settle => "settle".into(),
    }
}

fn message(session: u8, message: &Message) -> String {
    match message {
        Message::Subscribed => "the confirmation that its inbox is attached".into(),
        Message::Answer { to, answer: said, .. } => format!("the reply to {}: {}", request(session, to), answer(said)),
        Message::Refused { to } => format!("an error for {}", request(session, to)),
        Message::Push(push) => {
            let (id, token) = (attempt(session, push.id.counter as u8), token(push.token));
            match push.event {
                Event::Granted => format!("the push: {id} holds with token {token}"),
                Event::Revoked => format!("the push: {id} is revoked"),
                Event::Wanted => format!("the push: others wait for the lease of {id}"),
                Event::Ending => format!("the push: the lease that {id} waits for ends at another time"),
            }
        }
    }
}

fn fate(fate: Fate) -> &'static str {
    match fate {
        Fate::Gone => "",
        Fate::Late => "; its requests stay in the store's buffer",
    }
}

/// Describes the next event.
pub(crate) fn act(world: &World, act: Act) -> String {
    let link = |s: u8, k: u8| &world.sessions[s as usize].links[k as usize];
    let out = |s: u8, k: u8| link(s, k).out.front().map_or_else(String::new, |r| request(s, r));
    match act {
        Act::Tick => format!("-- tick {} --", world.tick + 1),
        Act::Start(s, t) => format!("{}: task {t} calls lock()", name(s)),
        Act::Finish(s, t) => format!("{}: task {t} ends its section", name(s)),
        Act::Cancel(s, t) => format!("{}: task {t} drops its future", name(s)),
        Act::Serve(s, k) => format!("the store runs {}'s {}", name(s), out(s, k)),
        Act::Refuse(s, k) => format!("the store's memory is full: {}'s {}", name(s), out(s, k)),
        Act::Resend(s, k) => format!("the store refuses a batch: {} sends again, if wanted: {}", name(s), out(s, k)),
        Act::ServeLate(b) => {
            let (s, buffer) = &world.buffers[b as usize];
            let said = buffer.front().map_or_else(String::new, |r| request(*s, r));
            format!("the store runs {}'s {said}, of a connection that is gone", name(*s))
        }
        Act::Receive(s, k) => {
            let said = link(s, k).back.front().map_or_else(String::new, |m| message(s, m));
            format!("{} receives {said}", name(s))
        }
        Act::Cut(s, k, f) => format!("{}'s connection {k} breaks{}", name(s), fate(f)),
        Act::Reconnect(s, k) => format!("{} reconnects connection {k}", name(s)),
        Act::Detach(s) => format!("the store notices that {}'s inbox is gone", name(s)),
        Act::LosePush(s) => format!("a push to {} is lost", name(s)),
        Act::Retry(s, i) => {
            let n = world.sessions[s as usize].attempts[i as usize].n;
            format!("{} retries {}, on its other connection", name(s), attempt(s, n))
        }
        Act::Pause(s) => format!("{} pauses", name(s)),
        Act::Resume(s) => format!("{} resumes", name(s)),
        Act::Crash(s, f) => format!("{} dies{}", name(s), fate(f)),
        Act::Restart => "the store restarts, empty".into(),
        Act::Failover => "the store fails over, without its last change".into(),
        Act::Revoke => "somebody revokes the lease".into(),
        Act::SetBack => "the store's clock is set back".into(),
        Act::Wake(s) => format!("{}'s timers run", name(s)),
    }
}
