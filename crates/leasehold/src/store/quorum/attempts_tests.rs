//! Attempts: which ones a client remembers, and for how long.

use leasehold_spec::{SessionId, Take};

use super::*;

const LONGEST_US: u64 = 60_000_000;

fn id(counter: u64) -> GrantId {
    GrantId { session: SessionId(7), counter, nonce: counter }
}

fn held(token: u64) -> Held {
    Held { token: Token::new(token).unwrap(), range: 1, label: "host/job".to_owned() }
}

#[test]
fn attempts_given_up_in_an_outage_are_swept() {
    let mut attempts = Attempts::default();
    let (mut now_us, mut counter) = (1_000_000, 0);
    let kept = id(0);
    attempts.begin(kept, now_us);
    assert_eq!(attempts.hold(&kept, 0, held(1)), Win::Held);
    for _ in 0..50 {
        // A thousand attempts are granted. Then an outage begins, and no message about them arrives.
        for _ in 0..1_000 {
            counter += 1;
            attempts.sweep(LONGEST_US, now_us);
            attempts.begin(id(counter), now_us);
            assert_eq!(attempts.hold(&id(counter), 0, held(counter)), Win::Held);
        }
        assert!(attempts.attempts.len() <= 4 * SWEEP_FROM, "{}", attempts.attempts.len());
        let in_use = counter - 999..=counter;
        assert!(in_use.clone().all(|counter| attempts.is_live(&id(counter))), "the latest attempts are in use");
        // One grant is renewed all the time.
        for _ in 0..4 {
            now_us += LONGEST_US / 3;
            assert!(attempts.renew(&kept, held(1).token, now_us).is_some());
        }
    }
    assert!(attempts.held(&kept).is_some());
    assert!(attempts.renew(&kept, held(2).token, now_us).is_none(), "another grant has this token");
}

#[test]
fn a_reply_to_an_earlier_round_does_not_end_a_later_grant() {
    let mut attempts = Attempts::default();
    attempts.begin(id(1), 1);
    assert_eq!(attempts.hold(&id(1), 0, held(2)), Win::Held);
    attempts.lapse(&id(1), held(1).token);
    assert!(attempts.held(&id(1)).is_some_and(|held| held.token.get() == 2));
    attempts.lapse(&id(1), held(2).token);
    assert!(attempts.held(&id(1)).is_none() && attempts.is_live(&id(1)));
}

/// The runtime of the earlier round stood still. It counts its votes after the later round has replaced them.
#[test]
fn an_overtaken_round_does_not_win() {
    let mut attempts = Attempts::default();
    attempts.begin(id(1), 1);
    let [earlier, later] = [1, 2].map(|now_us| attempts.begin_round(&id(1), now_us).unwrap());
    assert_eq!(attempts.hold(&id(1), earlier, held(1)), Win::Overtaken);
    assert!(attempts.held(&id(1)).is_none());
    assert_eq!(attempts.hold(&id(1), later, held(2)), Win::Held);
    assert_eq!(attempts.hold(&id(1), earlier, held(1)), Win::Overtaken);
    assert_eq!(attempts.held(&id(1)).map(|held| held.token.get()), Some(2));
    // A later round confirms the grant, and so may an earlier one.
    attempts.begin_round(&id(1), 3);
    assert_eq!(attempts.hold(&id(1), later, held(2)), Win::Held);
    attempts.end(&id(1));
    assert_eq!(attempts.hold(&id(1), later, held(2)), Win::Over);
}

/// A caller's runtime polls the rounds of a waiter, and can stand still.
#[test]
fn rounds_that_are_not_polled_block_others_only_until_their_deadline() {
    let mut attempts = Attempts::default();
    let name = Name::new("a").unwrap();
    let acquire = Acquire {
        id: id(1),
        take: Take::MUTEX,
        lease_ms: 1_000,
        range: 1,
        not_after_us: u64::MAX,
        patience: leasehold_spec::Patience::Try,
        label: "".into(),
    };
    let wait = Wait { ticket: 1, order: leasehold_spec::Order::Relaxed };
    let (was_known, stuck) = attempts.wait(&name, &acquire, wait, (100, 200), 1);
    assert!(!was_known);
    let waiting = attempts.waiting(&id(1)).unwrap();
    assert!(waiting.is_asking(199) && waiting.begin_next(199, |_| 100, 1).is_none());
    let (.., next) = waiting.begin_next(200, |_| 100, 2).expect("the deadline of the first rounds has passed");
    waiting.end(stuck);
    assert!(waiting.is_asking(299), "these are other rounds");
    waiting.end(next);
    assert!(!waiting.is_asking(299));
    // A link that closes ends its own rounds.
    waiting.begin_next(300, |_| 100, 3).expect("no rounds are in flight");
    attempts.end_rounds_of(2);
    assert!(attempts.waiting(&id(1)).unwrap().is_asking(301));
    attempts.end_rounds_of(3);
    assert!(!attempts.waiting(&id(1)).unwrap().is_asking(301));
}

#[test]
fn an_attempt_proposes_increasing_tokens() {
    let token = |number| Token::new(number).unwrap();
    let mut attempts = Attempts::default();
    attempts.begin(id(1), 1);
    let proposed = [50, 50, 20, 90].map(|about| attempts.propose(&id(1), token(about)).get());
    assert_eq!(proposed, [50, 51, 52, 90]);
    attempts.begin(id(2), 1);
    assert_eq!(attempts.propose(&id(2), token(20)), token(20), "another attempt has an ID of its own");
}

#[test]
fn a_node_clock_set_forward_shortens_grants_that_need_its_vote() {
    let mut attempts = Attempts::default();
    let token = held(5).token;
    attempts.begin(id(1), 1);
    attempts.note_vote(&id(1), token, 0, 900);
    assert_eq!(attempts.hold(&id(1), 0, held(5)), Win::Held);
    attempts.note_vote(&id(1), token, 2, 800);
    assert_eq!(attempts.shorten(1, 3, 500), vec![], "this node has not voted");
    assert_eq!(attempts.shorten(0, 3, 50), vec![], "the vote of the other node ends first");
    assert_eq!(attempts.shorten(0, 3, 150), vec![(id(1), token, 700)]);
    attempts.note_vote(&id(1), token, 1, 1_000);
    assert_eq!(attempts.shorten(0, 3, 10_000), vec![], "two other nodes keep it by now");
    attempts.note_vote(&id(1), held(9).token, 0, 2_000);
    assert_eq!(attempts.shorten(2, 3, 10_000), vec![(id(1), token, 0)], "the last vote was for another grant");
}

#[test]
fn validity_is_bound_by_shortened_votes() {
    let mut attempts = Attempts::default();
    attempts.begin(id(1), 1);
    // The margin is the part of a lease of 10 s that a client never relies on.
    let bound = |attempts: &Attempts, token, until_us| attempts.bound(&id(1), token, 3, until_us, 10_000);
    let (ours, margin_us) = (held(5).token, 102_000);
    assert_eq!(bound(&attempts, ours, 9_000_000), 9_000_000, "no vote is known");
    for (node, until_us) in [(0, 8_000_000), (1, 8_500_000)] {
        attempts.note_vote(&id(1), ours, node, until_us);
    }
    assert_eq!(bound(&attempts, ours, 8_000_000), 8_000_000, "the votes agree with the count");
    assert_eq!(bound(&attempts, ours, 8_000_001), 8_000_000 - margin_us, "the count includes an older vote");
    assert_eq!(bound(&attempts, held(6).token, 8_000_001), 8_000_001, "another grant has this token");
    // The round is not won yet: nobody is notified, and the round reads the rest when it wins.
    assert_eq!(attempts.shorten(1, 3, 1_000_000), []);
    assert_eq!(bound(&attempts, ours, 8_000_000), 7_500_000 - margin_us);
    assert_eq!(attempts.hold(&id(1), 0, held(5)), Win::Held);
    assert_eq!(attempts.shorten(0, 3, 6_000_000), [(id(1), ours, 2_000_000)]);
    assert_eq!(bound(&attempts, ours, 8_000_000), 2_000_000 - margin_us);
    assert_eq!(attempts.shorten(1, 3, 7_500_000), [(id(1), ours, 0)]);
    assert_eq!(bound(&attempts, ours, 8_000_000), 0);
}
