//! Several mutexes by one request (P46): all of them, or none.

use leasehold_spec::limits::{NOT_AFTER_MAX_US, RETENTION_MS, SETTLE_STEPS};
use leasehold_spec::{
    Acquire, Answer, Env, GrantId, Outcome, Patience, Resource, Rest, SessionId, Take, Token, acquire_all,
};

use crate::world::{LEASE_MS, World, granted, id, ticket};

/// Acquires the mutexes of two worlds by one request, which the clock of the first world dates.
fn take_both(
    first: &mut World,
    second: &mut World,
    ids: [GrantId; 2],
    change: impl Fn(&mut Acquire),
) -> Option<[Answer; 2]> {
    let requests = ids.map(|id| {
        let mut request = Acquire { patience: Patience::Try, ..first.request(id) };
        change(&mut request);
        request
    });
    let env = Env { wall_us: first.now_us, lease_us: first.now_us, attached: &|_| true };
    let members = &mut [(&mut first.resource, &requests[0]), (&mut second.resource, &requests[1])];
    acquire_all(members, &env).map(|answers| answers.try_into().expect("an answer for each"))
}

fn both(first: &mut World, second: &mut World, session: u128) -> Option<[Token; 2]> {
    let answers = take_both(first, second, [id(session, 1), id(session, 2)], |_| ())?;
    Some([&answers[0], &answers[1]].map(granted))
}

#[test]
fn p46_free_mutexes_are_acquired_together() {
    let (mut x, mut y) = (World::new(), World::new());
    let answers = take_both(&mut x, &mut y, [id(1, 1), id(1, 2)], |request| request.range = 8).unwrap();
    for answer in &answers {
        let left_us = LEASE_MS * 1000;
        assert_eq!(answer.outcome, Outcome::Granted { token: answer.highest, left_us, range: 8 });
        assert_eq!((answer.now_us, answer.rest), (x.now_us, Rest::Done));
    }
    assert_eq!((x.holder(), y.holder()), (Some(id(1, 1)), Some(id(1, 2))));
    let tokens = answers.map(|answer| granted(&answer));
    x.release(id(1, 1), tokens[0]);
    y.release(id(1, 2), tokens[1]);
    x.pass(1);
    let again = both(&mut x, &mut y, 2).unwrap();
    assert!(again[0] > tokens[0] && again[1] > tokens[1]);
}

/// The grants of one request are those of as many single ones.
#[test]
fn p46_the_records_are_those_of_single_acquires() {
    let (mut x, mut y, mut alone) = (World::new(), World::new(), World::new());
    both(&mut x, &mut y, 1).unwrap();
    granted(&alone.acquire(id(1, 1)));
    assert_eq!(x.resource, alone.resource);
}

#[test]
fn p46_if_one_is_held_none_is_acquired() {
    let (mut x, mut y) = (World::new(), World::new());
    granted(&y.acquire(id(9, 1)));
    assert_eq!(both(&mut x, &mut y, 1), None);
    assert_eq!((x.resource, y.holder()), (Resource::default(), Some(id(9, 1))));
}

/// After MORE a lease is free while others wait.
#[test]
fn p46_a_request_for_several_does_not_pass_waiters() {
    let (mut x, mut y) = (World::new(), World::new());
    let token = granted(&y.acquire(id(9, 1)));
    for counter in 0..=SETTLE_STEPS as u64 {
        ticket(&y.acquire(id(2, counter)));
    }
    ticket(&y.acquire(id(3, 1)));
    y.detached.insert(SessionId(2));
    assert_eq!(y.release(id(9, 1), token).rest, Rest::More);
    assert_eq!(y.holder(), None);
    x.pass(1);
    assert_eq!(both(&mut x, &mut y, 1), None);
    assert_eq!((x.holder(), y.holder()), (None, None));
}

/// A step about the name alone settles it. Until then the name is not free.
#[test]
fn p46_a_lease_that_has_ended_is_left_to_a_step_about_its_name() {
    let (mut x, mut y) = (World::new(), World::new());
    granted(&x.acquire(id(9, 1)));
    x.pass(LEASE_MS + 1);
    assert_eq!(both(&mut x, &mut y, 1), None);
    x.pass(LEASE_MS + RETENTION_MS);
    both(&mut x, &mut y, 1).expect("the record is forgotten by now");
}

#[test]
fn p46_a_repeat_makes_no_grant_and_leaves_those_that_are_there() {
    let (mut x, mut y) = (World::new(), World::new());
    let [token, _] = both(&mut x, &mut y, 1).unwrap();
    assert_eq!(both(&mut x, &mut y, 1), None);
    // One was given back, and the repeat comes late.
    x.release(id(1, 1), token);
    x.pass(1);
    assert_eq!(both(&mut x, &mut y, 1), None);
    assert_eq!((x.holder(), y.holder()), (None, Some(id(1, 2))));
    assert_eq!(take_both(&mut x, &mut World::new(), [id(1, 1), id(1, 2)], |_| ()).map(|_| ()), None, "given back");
}

#[test]
fn p46_a_late_request_makes_no_grant() {
    let (mut x, mut y) = (World::new(), World::new());
    let not_after_us = x.now_us;
    x.pass(NOT_AFTER_MAX_US / 1000);
    assert_eq!(take_both(&mut x, &mut y, [id(1, 1), id(1, 2)], |request| request.not_after_us = not_after_us), None);
    assert_eq!((x.holder(), y.holder()), (None, None));
}

/// Tokens grow with the clock. If the clock stands before the last token, the single acquire gives the next one.
#[test]
fn p46_a_clock_that_was_set_back_makes_no_grant() {
    let (mut x, mut y) = (World::new(), World::new());
    let token = granted(&x.acquire(id(9, 1)));
    x.release(id(9, 1), token);
    x.now_us -= 1;
    assert_eq!(both(&mut x, &mut y, 1), None);
}

#[test]
fn p46_names_of_other_kinds_are_not_acquired() {
    let (mut x, mut y) = (World::new(), World::new());
    let token = granted(&y.take(id(9, 1), Take::READ));
    y.release(id(9, 1), token);
    y.pass(1);
    x.pass(1);
    assert_eq!(both(&mut x, &mut y, 1), None);
    assert_eq!(take_both(&mut x, &mut World::new(), [id(1, 1), id(1, 2)], |request| request.take = Take::READ), None);
}
