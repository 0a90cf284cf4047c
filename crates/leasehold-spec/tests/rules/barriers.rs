//! Barriers (P52): a round ends for all of its parties at once, let through or broken.

use std::collections::{BTreeMap, HashMap, HashSet};

use leasehold_spec::limits::CLAIM_MIN_MS;
use leasehold_spec::{
    Acquire, Answer, Delivery, Event, GrantId, Hears, Joined, Kind, Op, Order, Outcome, Patience, Place, Refusal,
    SessionId, Take, Token, Was,
};

use crate::world::{LEASE_MS, World, id, ticket};

const BROKEN: Outcome = Outcome::Refused(Refusal::Absent);

/// Arrives at a barrier of this many, or asks again with a ticket.
fn arrive(world: &mut World, id: GrantId, parties: u32, ticket: Option<u64>) -> Answer {
    let mut request = Acquire { take: Take::arrival(parties), ..world.request(id) };
    if let Patience::Queue(place) = &mut request.patience {
        place.ticket = ticket;
    }
    world.step(&Op::Acquire(request))
}

fn leave(world: &mut World, id: GrantId) -> Outcome {
    world.step(&Op::Leave { id, used: Token::NONE }).outcome
}

fn place_of(outcome: &Outcome) -> u64 {
    match outcome {
        Outcome::Granted { range, .. } => *range,
        other => panic!("not let through: {other:?}"),
    }
}

/// A failover has lost the last party of a round, and kept the one before. The lost one learns that from its next request,
/// and does not wait any more. So the other one would wait in vain.
#[test]
fn p52_a_lost_party_breaks_the_round_of_earlier_ones() {
    let mut world = World::new();
    ticket(&arrive(&mut world, id(1, 1), 3, None));
    let before = world.resource.clone();
    world.pass(1);
    let lost = ticket(&arrive(&mut world, id(2, 1), 3, None));
    world.resource = before;
    world.pass(1);
    assert_eq!(arrive(&mut world, id(2, 1), 3, Some(lost)).outcome, BROKEN);
    let told: Vec<_> = world.pushed.drain(..).map(|told| (told.id, told.event)).collect();
    assert_eq!(told, [(id(1, 1), Event::Ending)]);
    assert!(world.resource.is_idle());
    // The parties of a later round are not concerned.
    let first = ticket(&arrive(&mut world, id(1, 2), 3, None));
    assert!(first > lost);
    assert_eq!(arrive(&mut world, id(2, 1), 3, Some(lost)).outcome, BROKEN);
    assert!(world.pushed.is_empty() && world.resource.queue.len() == 1);
}

/// The last arrival lets all parties through, each for a whole lease. It is the leader. The next round begins empty.
#[test]
fn p52_a_round_is_let_through_when_it_is_complete() {
    let mut world = World::new();
    for round in 1..=3 {
        assert!(matches!(
            arrive(&mut world, id(1, round), 3, None).outcome,
            Outcome::Queued { joined: Joined::Now, .. }
        ));
        ticket(&arrive(&mut world, id(2, round), 3, None));
        assert!(world.pushed.is_empty());
        assert_eq!(place_of(&arrive(&mut world, id(3, round), 3, None).outcome), 1, "the last one leads");
        let told: Vec<_> = world.pushed.drain(..).map(|told| (told.id, told.event, told.range, told.left_us)).collect();
        let whole = LEASE_MS * 1000;
        let through = |session, place| (id(session, round), Event::Granted, place, whole);
        assert_eq!(told, [through(1, 3), through(2, 2), through(3, 1)]);
        assert!(world.resource.is_idle());
        world.pass(1);
    }
}

/// The message to a party was lost. It asks again within its lease, when a claim would be over.
#[test]
fn p52_a_party_learns_of_its_round_from_its_next_request() {
    let mut world = World::new();
    let first = ticket(&arrive(&mut world, id(1, 1), 2, None));
    arrive(&mut world, id(2, 1), 2, None);
    world.pass(LEASE_MS - CLAIM_MIN_MS);
    assert_eq!(place_of(&arrive(&mut world, id(1, 1), 2, Some(first)).outcome), 2);
    assert_eq!(arrive(&mut world, id(2, 1), 2, None).outcome.word(), "granted", "a repeat");
    // After its lease, nobody knows any more how its round ended. It does not begin to wait for the next one.
    world.pass(CLAIM_MIN_MS);
    assert_eq!(arrive(&mut world, id(1, 1), 2, Some(first)).outcome, BROKEN);
    assert!(world.resource.is_idle());
}

/// One party is gone: detached, or its time is over. The others learn it, and the newcomer begins the next round.
#[test]
fn p52_a_party_that_is_gone_breaks_the_round() {
    for dies in [true, false] {
        let mut world = World::new();
        let waiting = ticket(&arrive(&mut world, id(1, 1), 3, None));
        let mut request = Acquire { take: Take::arrival(3), ..world.request(id(2, 1)) };
        if let Patience::Queue(place) = &mut request.patience {
            place.limit_ms = (!dies).then_some(1);
        }
        ticket(&world.step(&Op::Acquire(request)));
        if dies {
            world.detached.insert(SessionId(2));
        }
        world.pass(1);
        ticket(&arrive(&mut world, id(3, 1), 3, None));
        let told: Vec<_> = world.pushed.drain(..).map(|told| (told.id, told.event)).collect();
        assert_eq!(told, [(id(1, 1), Event::Ending), (id(2, 1), Event::Ending)]);
        assert_eq!(arrive(&mut world, id(1, 1), 3, Some(waiting)).outcome, BROKEN);
        assert_eq!(arrive(&mut world, id(1, 1), 3, Some(waiting)).outcome, BROKEN, "a repeat");
        world.detached.clear();
        // The next round is complete without the party that is gone.
        ticket(&arrive(&mut world, id(1, 2), 3, None));
        assert_eq!(place_of(&arrive(&mut world, id(4, 1), 3, None).outcome), 1);
    }
}

/// A party stops waiting. The others would wait in vain.
#[test]
fn p52_a_party_that_leaves_breaks_the_round() {
    let mut world = World::new();
    let waiting = ticket(&arrive(&mut world, id(1, 1), 3, None));
    ticket(&arrive(&mut world, id(2, 1), 3, None));
    assert_eq!(leave(&mut world, id(2, 1)), Outcome::Left { was: Was::Queued });
    let told: Vec<_> = world.pushed.drain(..).map(|told| (told.id, told.event)).collect();
    assert_eq!(told, [(id(1, 1), Event::Ending)]);
    assert_eq!(arrive(&mut world, id(1, 1), 3, Some(waiting)).outcome, BROKEN);
    assert_eq!(leave(&mut world, id(2, 1)), Outcome::Left { was: Was::Absent }, "a repeat breaks nothing");
}

/// A party whose time is over asks how its round ends: its request says that no time is left.
#[test]
fn p52_a_party_whose_time_is_over_breaks_the_round_or_was_let_through() {
    let ask_last = |world: &mut World, id, waiting| {
        let mut request = Acquire { take: Take::arrival(2), ..world.request(id) };
        if let Patience::Queue(place) = &mut request.patience {
            (place.ticket, place.limit_ms) = (Some(waiting), Some(0));
        }
        world.step(&Op::Acquire(request)).outcome
    };
    let mut world = World::new();
    let waiting = ticket(&arrive(&mut world, id(1, 1), 2, None));
    assert_eq!(ask_last(&mut world, id(1, 1), waiting), BROKEN);
    let waiting = ticket(&arrive(&mut world, id(1, 2), 2, None));
    assert_eq!(place_of(&arrive(&mut world, id(2, 1), 2, None).outcome), 1);
    assert_eq!(place_of(&ask_last(&mut world, id(1, 2), waiting)), 2);
}

/// The last party of a round is detached. The round is broken.
#[test]
fn p52_a_detached_arrival_breaks_the_round() {
    let mut world = World::new();
    let waiting = ticket(&arrive(&mut world, id(1, 1), 2, None));
    world.detached.insert(SessionId(2));
    assert_eq!(arrive(&mut world, id(2, 1), 2, None).outcome, BROKEN);
    assert_eq!(arrive(&mut world, id(1, 1), 2, Some(waiting)).outcome, BROKEN);
}

/// Another number of parties and another kind are refused. A party that does not wait gets BUSY, and has not arrived.
#[test]
fn p52_a_barrier_has_one_number_of_parties() {
    let mut world = World::new();
    ticket(&arrive(&mut world, id(1, 1), 2, None));
    let other = Outcome::Refused(Refusal::Other { kind: Kind::Barrier, limit: 2 });
    assert_eq!(arrive(&mut world, id(2, 1), 3, None).outcome, other);
    assert_eq!(world.acquire(id(2, 2)).outcome, other);
    let tries = Acquire { take: Take::arrival(2), patience: Patience::Try, ..world.request(id(2, 3)) };
    assert!(matches!(world.step(&Op::Acquire(tries)).outcome, Outcome::Busy { .. }));
    assert_eq!(world.resource.queue.len(), 1);
    // A barrier of one party keeps nobody waiting.
    let mut world = World::new();
    assert_eq!(place_of(&arrive(&mut world, id(1, 1), 1, None).outcome), 1);
    assert_eq!(place_of(&arrive(&mut world, id(2, 1), 1, None).outcome), 1);
}

/// The state of a party, as far as the party knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Party {
    Out,
    Waits {
        ticket: u64,
    },
    /// The state at the store after a death nobody asks about any more.
    Dead,
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Arrive,
    AskAgain,
    Leave,
    Die,
    Settle,
}

const PARTIES: u32 = 3;
const SESSIONS: u128 = 3;
const ARRIVALS: u64 = 2;

/// One state of the search.
#[derive(Clone)]
struct State {
    world: World,
    parties: BTreeMap<u128, (Party, u64)>,
    /// How each attempt ended, as the store said it.
    ends: HashMap<GrantId, bool>,
}

impl State {
    fn new() -> Self {
        let parties = (1..=SESSIONS).map(|session| (session, (Party::Out, 0))).collect();
        Self { world: World::new(), parties, ends: HashMap::new() }
    }

    /// Carries the act out if it is possible. Returns whether it was.
    fn act(&mut self, session: u128, act: Act) -> bool {
        let (party, arrivals) = self.parties[&session];
        let own = id(session, arrivals);
        let next = id(session, arrivals + 1);
        let answer = match (act, party) {
            (Act::Arrive, Party::Out) if arrivals < ARRIVALS => {
                self.parties.insert(session, (Party::Out, arrivals + 1));
                (next, arrive(&mut self.world, next, PARTIES, None))
            }
            (Act::AskAgain, Party::Waits { ticket }) => (own, arrive(&mut self.world, own, PARTIES, Some(ticket))),
            (Act::Leave, Party::Waits { .. }) => {
                leave(&mut self.world, own);
                self.parties.insert(session, (Party::Out, arrivals));
                let has_waited = !self.ends.contains_key(&own);
                assert!(!has_waited || self.world.resource.is_idle(), "the others wait for one that has left");
                self.ends.entry(own).or_insert(false);
                self.judge();
                return true;
            }
            (Act::Die, Party::Out | Party::Waits { .. }) => {
                self.world.detached.insert(SessionId(session));
                self.parties.insert(session, (Party::Dead, arrivals));
                return true;
            }
            (Act::Settle, _) if session == 1 => {
                self.world.step(&Op::Settle);
                self.judge();
                return true;
            }
            _ => return false,
        };
        self.judge();
        let (asked, Answer { outcome, .. }) = answer;
        let arrivals = asked.counter;
        let party = match outcome {
            Outcome::Queued { ticket, .. } => {
                assert!(!self.ends.contains_key(&asked), "the store has said how its round ended, and it waits again");
                Party::Waits { ticket }
            }
            Outcome::Granted { .. } => {
                assert_eq!(self.ends.get(&asked), Some(&true), "it was let through with nobody");
                Party::Out
            }
            BROKEN => {
                assert!(!*self.ends.entry(asked).or_insert(false), "its round was let through");
                Party::Out
            }
            other => panic!("{other:?}"),
        };
        self.parties.insert(session, (party, arrivals));
        true
    }

    /// Judges what the step has said to whom.
    fn judge(&mut self) {
        let told = std::mem::take(&mut self.world.pushed);
        let through: Vec<&Delivery> = told.iter().filter(|told| told.event == Event::Granted).collect();
        let places: Vec<u64> = through.iter().map(|told| told.range).collect();
        assert!(places.is_empty() || places == [3, 2, 1], "let through: {places:?}");
        for message in &told {
            let is_through = message.event == Event::Granted;
            assert!(!is_through || !self.world.detached.contains(&message.to), "let through with the dead");
            let before = self.ends.insert(message.id, is_through);
            assert_eq!(before, None, "a round ends once");
        }
        let is_gone = |id: GrantId| self.world.detached.contains(&id.session) || self.ends.contains_key(&id);
        assert!(!self.world.resource.queue.iter().any(|entry| is_gone(entry.id)), "it waits with one that is gone");
        assert!(self.world.resource.queue.len() < PARTIES as usize, "a complete round waits");
    }
}

/// All schedules of three clients at a barrier of three parties. Each client arrives twice, leaves and dies at any time.
#[test]
fn p52_every_schedule_of_three_clients() {
    let (mut seen, mut next) = (HashSet::new(), vec![State::new()]);
    let mut through = 0;
    while let Some(state) = next.pop() {
        for session in 1..=SESSIONS {
            for act in [Act::Arrive, Act::AskAgain, Act::Leave, Act::Die, Act::Settle] {
                let mut after = state.clone();
                if !after.act(session, act) {
                    continue;
                }
                let mut ends: Vec<_> = after.ends.iter().map(|(id, end)| (*id, *end)).collect();
                ends.sort_unstable();
                if seen.insert((after.world.resource.clone(), after.parties.clone(), ends)) {
                    through += usize::from(after.ends.values().any(|end| *end));
                    next.push(after);
                }
            }
        }
    }
    println!("{} states, {through} of them after a round that was let through", seen.len());
    assert!(seen.len() > 1_000 && through > 1_000);
}

/// A party that listens to no message is gone when it has been silent for three times the span of its requests.
#[test]
fn p52_a_silent_party_breaks_the_round() {
    let mut world = World::new();
    let polls = |world: &mut World, id, ticket| {
        let place =
            Place { claim_ms: CLAIM_MIN_MS, limit_ms: None, ticket, hears: Hears::Polls, order: Order::Relaxed };
        let request =
            Acquire { take: Take::arrival(2), patience: Patience::Queue(place), lease_ms: 300, ..world.request(id) };
        world.step(&Op::Acquire(request))
    };
    let first = ticket(&polls(&mut world, id(1, 1), None));
    world.pass(299);
    ticket(&polls(&mut world, id(1, 1), Some(first)));
    world.pass(300);
    ticket(&polls(&mut world, id(2, 1), None));
    assert_eq!(polls(&mut world, id(1, 1), Some(first)).outcome, BROKEN);
}
