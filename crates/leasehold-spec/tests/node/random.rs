//! Random histories of one node, and the invariants after each request.

use leasehold_spec::limits::{CALL_MS, TOKEN_WINDOW_MS};
use leasehold_spec::node::{Ask, Granted, Record, Renewal, Request, Rings, Said};
use leasehold_spec::{Contention, From, SessionId, Token};

use crate::world::{LEASE_MS, START_US, World, id, wait};

const HISTORIES: u64 = 2_000;
const STEPS: usize = 60;

/// xorshift64*: every run plays the same histories.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % end
    }

    fn is(&mut self, in_ten: u64) -> bool {
        self.below(10) < in_ten
    }
}

fn token(random: &mut Random, world: &World) -> Token {
    let about = match random.below(4) {
        0 => world.now_us,
        1 => START_US + random.below(8),
        2 if world.record.highest > Token::NONE => world.record.highest.get() + random.below(3) - 1,
        _ => world.now_us + random.below(3) * TOKEN_WINDOW_MS * 1000,
    };
    Token::new(about).expect("a clock of this century")
}

fn request(random: &mut Random, world: &World) -> Request {
    let id = id(1 + u128::from(random.below(3)), random.below(2));
    let own = world.record.grant.as_ref().filter(|_| random.is(7));
    let place = random.is(7).then(|| wait(random.below(6)));
    let not_after_us = if random.is(9) { world.now_us } else { world.now_us - 1 };
    match random.below(10) {
        0..4 => {
            let (token, range) = (token(random, world), 1 + random.below(4));
            Request::Ask(Ask { token, range, wait: place, not_after_us, ..world.request(id, token) })
        }
        4..6 => {
            let (id, token) = own.map_or_else(|| (id, token(random, world)), |own| (own.id, own.token));
            let from = if random.is(8) { From::Now } else { From::Grant };
            let fill = random.is(8).then(|| "filled".to_owned());
            Request::Renew(Renewal { from, fill, not_after_us, range: 1 + random.below(4), ..world.renewal(id, token) })
        }
        6..8 => {
            let (id, upto) =
                (own.map_or(id, |own| own.id), if random.is(5) { Token::HIGHEST } else { token(random, world) });
            match random.is(7) {
                true if random.is(3) => Request::Pause { id, upto, notice_ms: random.below(2) * 50 },
                true => Request::GiveBack { id, upto, wait: place.filter(|_| random.is(5)) },
                false => Request::CoolDown { id, upto, for_ms: 1 + random.below(2) * LEASE_MS },
            }
        }
        8 => {
            let (id, token) = own.map_or_else(|| (id, token(random, world)), |own| (own.id, own.token));
            Request::Revoke { holder: id.public(), token, grace_ms: random.below(2) * 1_000 }
        }
        _ => Request::Settle,
    }
}

fn pass(random: &mut Random, world: &mut World) {
    match random.below(12) {
        0 => world.pass(LEASE_MS),
        1 => world.pass(CALL_MS),
        2 => world.pass(CALL_MS / 2),
        3 => world.pass(1),
        4 => world.now_us += random.below(1_000),
        5 if random.is(2) => world.now_us -= random.below(2 * CALL_MS) * 1_000,
        _ => {}
    }
    if random.is(1) {
        let session = SessionId(1 + u128::from(random.below(3)));
        if !world.detached.remove(&session) {
            world.detached.insert(session);
        }
    }
}

/// The counts of events, to show that the histories contain each of them.
#[derive(Debug, Default)]
struct Seen {
    granted: u32,
    replaced: u32,
    filled: u32,
    revoked: u32,
    cooled: u32,
    paused: u32,
    below: u32,
    called: u32,
}

#[test]
fn invariants_hold_after_each_request_of_random_histories() {
    let mut seen = Seen::default();
    for seed in 1..=HISTORIES {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let mut world = World::new();
        let mut log = Vec::new();
        for _ in 0..STEPS {
            pass(&mut random, &mut world);
            let asked = request(&mut random, &world);
            log.push(format!("{} {asked:?}", world.now_us.cast_signed() - START_US.cast_signed()));
            let before = kept(&world);
            world.bells.clear();
            let said = world.vote(&asked);
            let wrong = wrong(&before, &world, &asked, &said.said, &mut seen);
            let last = log.len().saturating_sub(8);
            assert_eq!(wrong, None, "seed {seed}, {:?}, after\n{}", said.said, log[last..].join("\n"));
            assert_eq!(said.has_called, world.bells.iter().any(|bell| bell.rings == Rings::Call));
            assert_eq!((said.highest, said.now_us), (world.record.highest, world.now_us));
        }
    }
    let Seen { granted, replaced, filled, revoked, cooled, paused, below, called } = seen;
    assert!(
        [granted, replaced, filled, revoked, cooled, paused, below, called].iter().all(|&times| times > 500),
        "{seen:?}"
    );
}

/// Returns the record at the time of the request. A record whose time is over is forgotten.
fn kept(world: &World) -> Record {
    if world.record.keep_until_us <= world.now_us { Record::default() } else { world.record.clone() }
}

fn wrong(before: &Record, world: &World, asked: &Request, said: &Said, seen: &mut Seen) -> Option<&'static str> {
    let after = &world.record;
    let had = before.grant.as_ref().filter(|granted| granted.end_us() > world.now_us);
    if after.highest < before.highest {
        return Some("the highest token fell");
    }
    let has = after.grant.as_ref();
    // The beginning of a vote moves only if the clock was set back.
    let as_it_was = |had: &Granted| Granted { since_us: had.since_us.min(world.now_us), ..had.clone() };
    if let Some(had) = had.filter(|had| !had.is_held() && !matches!(asked, Request::Revoke { .. }))
        && has.is_none_or(|has| as_it_was(has) != as_it_was(had))
    {
        return Some("a cool-down ended early, or changed");
    }
    if has.is_some_and(|has| had.is_some_and(|had| had.id != has.id)) {
        let is_given_up = matches!(asked, Request::GiveBack { .. } | Request::Revoke { .. });
        return (!is_given_up).then_some("a vote went from one grant to another");
    }
    match (asked, said) {
        (Request::Ask(ask), Said::Granted { token, .. }) => {
            let is_new = had.is_none_or(|had| had.token != *token);
            if has.is_none_or(|has| has.id != ask.id || has.token != *token) {
                return Some("the attempt does not have the vote that it was granted");
            }
            if is_new && (*token != ask.token || *token <= before.highest || after.highest < *token) {
                return Some("the node voted for a token that is not above the others");
            }
            if after.queue.keys().any(|(_, id)| *id == ask.id) && is_new {
                return Some("the attempt has the vote and waits");
            }
            seen.granted += u32::from(is_new);
            seen.replaced += u32::from(is_new && had.is_some());
        }
        (Request::Ask(_), Said::Below) => seen.below += 1,
        (Request::Renew(renewal), Said::Renewed { .. } | Said::Filled { .. }) => {
            let is_known = had.is_some_and(|had| had.id == renewal.id && had.token == renewal.token);
            if is_known != matches!(said, Said::Renewed { .. }) {
                return Some("a vote that the grant did not have was renewed, or one that it had was filled");
            }
            if !is_known && renewal.last() < before.highest {
                return Some("the node was filled behind a token for which it has voted");
            }
            seen.filled += u32::from(!is_known);
        }
        (Request::GiveBack { id, upto, .. } | Request::Pause { id, upto, .. }, _)
            if has.is_some_and(|has| has.id == *id && has.token <= *upto && has.is_held()) =>
        {
            return Some("a vote that was given back is still there");
        }
        (Request::CoolDown { id, upto, .. }, _) => {
            if has.is_some_and(|has| has.id == *id && has.token <= *upto && has.is_held()) {
                return Some("a vote that cools down is held");
            }
            seen.cooled += u32::from(has.is_some_and(|has| !has.is_held()) && had.is_some_and(Granted::is_held));
        }
        (Request::Revoke { .. }, Said::Revoking { left_us }) => {
            let end_us = world.now_us + left_us;
            if had.is_none_or(|had| end_us > had.end_us()) || has.is_some_and(|has| has.end_us() != end_us) {
                return Some("a revoked vote ends later than before, or than the reply reported");
            }
            seen.revoked += 1;
        }
        _ => {}
    }
    let is_ahead = has.is_some_and(|has| has.since_us > world.now_us)
        || after.called.is_some_and(|called| called.until_us > world.now_us + CALL_MS * 1000);
    if is_ahead {
        return Some("a time is in the future");
    }
    if has.is_some() && after.called.is_some_and(|called| called.until_us > world.now_us) {
        return Some("a waiter is called, and the vote is not free");
    }
    let mut ids: Vec<_> = after.queue.keys().map(|(_, id)| id).collect();
    ids.sort_unstable();
    ids.dedup();
    if ids.len() < after.queue.len() {
        return Some("an attempt waits twice");
    }
    let first = after.queue.first_key_value().map(|(first, _)| *first);
    if let (None, Some((ticket, first))) = (has, first) {
        // Or a waiter with the same ticket is called. A called waiter that has detached since keeps its time.
        let is_called = after.called.is_some_and(|called| called.until_us > world.now_us && called.ticket <= ticket);
        let is_paused = matches!(asked, Request::Pause { .. }) && after.contention() != Contention::Strict;
        seen.paused += u32::from(is_paused && !is_called);
        if !is_called && !is_paused && !world.detached.contains(&first.session) {
            return Some("the vote is free, and nobody is called although the first waiter is attached");
        }
        seen.called += u32::from(is_called);
    }
    None
}
