//! What is remembered of attempts, and for how long.

use leasehold_spec::SessionId;

use super::*;

const LONGEST_US: u64 = 60_000_000;

fn id(counter: u64) -> GrantId {
    GrantId { session: SessionId(7), counter, nonce: counter }
}

fn held(token: u64) -> Held {
    Held { token: Token::new(token).unwrap(), range: 1, label: "host/job".to_owned() }
}

#[test]
fn what_a_session_gave_up_in_an_outage_is_not_remembered_for_ever() {
    let mut names = Names::default();
    let (mut now_us, mut counter) = (1_000_000, 0);
    let kept = id(0);
    names.begin(kept, now_us);
    assert_eq!(names.hold(&kept, 0, held(1)), Winning::Held);
    for _ in 0..50 {
        // A thousand are asked for and held, and then nobody is there: no word of them comes any more.
        for _ in 0..1_000 {
            counter += 1;
            names.forget(LONGEST_US, now_us);
            names.begin(id(counter), now_us);
            assert_eq!(names.hold(&id(counter), 0, held(counter)), Winning::Held);
        }
        assert!(names.attempts.len() <= 4 * LOOK_AT, "{}", names.attempts.len());
        let in_use = counter - 999..=counter;
        assert!(in_use.clone().all(|counter| names.is_live(&id(counter))), "what is in use stays");
        // One of another program's hours is renewed all the time.
        for _ in 0..4 {
            now_us += LONGEST_US / 3;
            assert!(names.renew(&kept, held(1).token, now_us).is_some());
        }
    }
    assert!(names.held(&kept).is_some());
    assert!(names.renew(&kept, held(2).token, now_us).is_none(), "that is another grant");
}

#[test]
fn what_an_earlier_round_hears_ends_nothing_of_a_later_one() {
    let mut names = Names::default();
    names.begin(id(1), 1);
    assert_eq!(names.hold(&id(1), 0, held(2)), Winning::Held);
    names.lapse(&id(1), held(1).token);
    assert!(names.held(&id(1)).is_some_and(|held| held.token.get() == 2));
    names.lapse(&id(1), held(2).token);
    assert!(names.held(&id(1)).is_none() && names.is_live(&id(1)));
}

/// Whoever polls the earlier one stood still, and counts its votes when the later one has replaced them.
#[test]
fn an_earlier_round_wins_nothing_once_a_later_one_has_begun() {
    let mut names = Names::default();
    names.begin(id(1), 1);
    let [earlier, later] = [1, 2].map(|now_us| names.begin_round(&id(1), now_us).unwrap());
    assert_eq!(names.hold(&id(1), earlier, held(1)), Winning::Overtaken);
    assert!(names.held(&id(1)).is_none());
    assert_eq!(names.hold(&id(1), later, held(2)), Winning::Held);
    assert_eq!(names.hold(&id(1), earlier, held(1)), Winning::Overtaken);
    assert_eq!(names.held(&id(1)).map(|held| held.token.get()), Some(2));
    // A later one confirms what is held, and so may an earlier one.
    names.begin_round(&id(1), 3);
    assert_eq!(names.hold(&id(1), later, held(2)), Winning::Held);
    names.end(&id(1));
    assert_eq!(names.hold(&id(1), later, held(2)), Winning::Over);
}

/// Rounds of an attempt that waits are polled by somebody's runtime, and that can stand still.
#[test]
fn rounds_that_nobody_polls_are_in_the_way_for_a_while() {
    let mut names = Names::default();
    let name = Name::new("a").unwrap();
    let acquire = Acquire {
        id: id(1),
        lease_ms: 1_000,
        range: 1,
        not_after_us: u64::MAX,
        patience: leasehold_spec::Patience::Try,
        label: String::new(),
    };
    let wait = Wait { ticket: 1, order: leasehold_spec::Order::Relaxed };
    let (was_known, stuck) = names.wait(&name, &acquire, wait, (100, 200), 1);
    assert!(!was_known);
    let waiting = names.waiting(&id(1)).unwrap();
    assert!(waiting.is_asking(199) && waiting.begin(199, |_| 100, 1).is_none());
    let (.., next) = waiting.begin(200, |_| 100, 2).expect("the first ones are over by now");
    waiting.end(stuck);
    assert!(waiting.is_asking(299), "that was of others");
    waiting.end(next);
    assert!(!waiting.is_asking(299));
    // A link that is given up takes its own rounds along.
    waiting.begin(300, |_| 100, 3).expect("none are under way");
    names.give_up(2);
    assert!(names.waiting(&id(1)).unwrap().is_asking(301));
    names.give_up(3);
    assert!(!names.waiting(&id(1)).unwrap().is_asking(301));
}

#[test]
fn an_attempt_proposes_no_token_twice_and_none_below() {
    let token = |number| Token::new(number).unwrap();
    let mut names = Names::default();
    names.begin(id(1), 1);
    let proposed = [50, 50, 20, 90].map(|about| names.propose(&id(1), token(about)).get());
    assert_eq!(proposed, [50, 51, 52, 90]);
    names.begin(id(2), 1);
    assert_eq!(names.propose(&id(2), token(20)), token(20), "another one is told from it by its id");
}

#[test]
fn a_clock_that_is_set_forward_at_one_node_shortens_what_rests_on_its_vote() {
    let mut names = Names::default();
    let token = held(5).token;
    names.begin(id(1), 1);
    names.keeps(&id(1), token, 0, 900);
    assert_eq!(names.hold(&id(1), 0, held(5)), Winning::Held);
    names.keeps(&id(1), token, 2, 800);
    assert_eq!(names.jump(1, 3, 500), vec![], "it has no vote there");
    assert_eq!(names.jump(0, 3, 50), vec![], "the other one ends first");
    assert_eq!(names.jump(0, 3, 150), vec![(id(1), token, 700)]);
    names.keeps(&id(1), token, 1, 1_000);
    assert_eq!(names.jump(0, 3, 10_000), vec![], "two others keep it by now");
    names.keeps(&id(1), held(9).token, 0, 2_000);
    assert_eq!(names.jump(2, 3, 10_000), vec![(id(1), token, 0)], "that was for another grant");
}

#[test]
fn what_a_clock_takes_off_is_off_what_a_majority_keeps() {
    let mut names = Names::default();
    names.begin(id(1), 1);
    // A lease of 10 s, that is, and what is never relied on of one.
    let bound = |names: &Names, token, until_us| names.bound(&id(1), token, 3, until_us, 10_000);
    let (ours, margin_us) = (held(5).token, 102_000);
    assert_eq!(bound(&names, ours, 9_000_000), 9_000_000, "nothing was heard");
    for (node, until_us) in [(0, 8_000_000), (1, 8_500_000)] {
        names.keeps(&id(1), ours, node, until_us);
    }
    assert_eq!(bound(&names, ours, 8_000_000), 8_000_000, "as it was counted");
    assert_eq!(bound(&names, ours, 8_000_001), 8_000_000 - margin_us, "an older vote counts");
    assert_eq!(bound(&names, held(6).token, 8_000_001), 8_000_001, "that is another grant");
    // It is not won yet: nobody is to be told, and the round that wins it reads what is left.
    assert_eq!(names.jump(1, 3, 1_000_000), []);
    assert_eq!(bound(&names, ours, 8_000_000), 7_500_000 - margin_us);
    assert_eq!(names.hold(&id(1), 0, held(5)), Winning::Held);
    assert_eq!(names.jump(0, 3, 6_000_000), [(id(1), ours, 2_000_000)]);
    assert_eq!(bound(&names, ours, 8_000_000), 2_000_000 - margin_us);
    assert_eq!(names.jump(1, 3, 7_500_000), [(id(1), ours, 0)]);
    assert_eq!(bound(&names, ours, 8_000_000), 0);
}
