//! The parts of a name that an inspection shows.

use leasehold_spec::limits::{GRANTS_MAX, SHOWN_MAX};
use leasehold_spec::{Acquire, GrantState, Inspection, Kind, Op, Outcome, Patience, ShownMode, Take, Token, Waiter};

use crate::world::{LEASE_MS, World, granted, id, ticket};

fn inspect(world: &mut World) -> Inspection {
    let before = world.resource.clone();
    let Outcome::Inspected(seen) = world.step(&Op::Inspect).outcome else { panic!("not inspected") };
    assert_eq!(world.resource, before, "an inspection changes nothing");
    seen
}

fn tokens(seen: &Inspection) -> Vec<Token> {
    seen.holders.iter().map(|holder| holder.token).collect()
}

#[test]
fn a_name_without_a_record_is_shown_as_a_free_mutex() {
    let seen = inspect(&mut World::new());
    assert_eq!(seen, Inspection::of_mutex(None, 0));
}

#[test]
fn the_queue_of_a_mutex_is_shown_in_order_with_the_rest_of_each_wait() {
    let mut world = World::new();
    let token = granted(&world.acquire(id(1, 1)));
    world.pass(10);
    world.with_place(id(3, 1), |place| place.limit_ms = Some(5_000));
    world.pass(1_000);
    ticket(&world.acquire(id(2, 7)));
    let seen = inspect(&mut world);
    assert_eq!((seen.kind, seen.limit, seen.units, seen.grants, seen.waiters), (Kind::Mutex, 1, 1, 1, 2));
    let holder = seen.holder().expect("held");
    assert_eq!((holder.id, holder.token, holder.state), (id(1, 1).public(), token, GrantState::Held));
    assert_eq!((holder.left_us, holder.units), ((LEASE_MS - 1_010) * 1000, 1));
    let waiter = |of, left_us| Waiter { id: of, units: 1, mode: ShownMode::Plain, left_us, label: "test".into() };
    assert_eq!(seen.queue, [waiter(id(3, 1).public(), Some(4_000_000)), waiter(id(2, 7).public(), None)]);
    world.pass(4_001);
    assert_eq!(inspect(&mut world).queue[0].left_us, Some(0), "the caller has gone, and its turn has not come");
}

#[test]
fn the_first_holders_and_waiters_are_shown_and_all_are_counted() {
    let (mut world, many) = (World::new(), SHOWN_MAX as u32 + 4);
    let take = Take::permits(2, 2 * many);
    // The larger the ID, the smaller the token.
    let mut granted: Vec<Token> =
        (0..many).map(|number| granted(&world.take(id(u128::from(100 - number), 1), take))).collect();
    for number in 0..many {
        ticket(&world.take(id(200 + u128::from(number), 1), Take::permits(3, 2 * many)));
    }
    let seen = inspect(&mut world);
    granted.truncate(SHOWN_MAX);
    assert_eq!(tokens(&seen), granted, "those with the smallest tokens, in this order");
    assert_eq!((seen.kind, seen.limit, seen.units), (Kind::Semaphore, 2 * many, 2 * many));
    assert_eq!((seen.grants, seen.waiters), (many.into(), many.into()));
    assert!(seen.holders.iter().all(|holder| holder.units == 2));
    let queue: Vec<_> = seen.queue.iter().map(|waiter| (waiter.id.session.0, waiter.units)).collect();
    let first: Vec<_> = (0..SHOWN_MAX).map(|number| (200 + number as u128, 3)).collect();
    assert_eq!(queue, first);
}

#[test]
fn a_lease_that_has_ended_is_no_longer_shown() {
    let mut world = World::new();
    let short = Acquire { take: Take::READ, lease_ms: 1_000, ..world.request(id(1, 1)) };
    granted(&world.step(&Op::Acquire(short)));
    let token = granted(&world.take(id(2, 1), Take::READ));
    assert_eq!((inspect(&mut world).grants, inspect(&mut world).units), (2, 2));
    world.pass(1_000);
    let seen = inspect(&mut world);
    assert_eq!((tokens(&seen), seen.grants, seen.units), (vec![token], 1, 1));
    assert_eq!(world.resource.grants.len(), 2, "the record still has the other");
}

#[test]
fn an_upgrade_that_waits_is_first_in_the_queue() {
    let mut world = World::new();
    let token = granted(&world.take(id(1, 1), Take::UPGRADEABLE_READ));
    granted(&world.take(id(2, 1), Take::READ));
    ticket(&world.take(id(3, 1), Take::WRITE));
    ticket(&world.take(id(1, 2), Take::upgrade(id(1, 1), token)));
    let seen = inspect(&mut world);
    let holders: Vec<_> = seen.holders.iter().map(|holder| (holder.mode, holder.units)).collect();
    assert_eq!(holders, [(ShownMode::Upgradeable, 1), (ShownMode::Plain, 1)]);
    let queue: Vec<_> = seen.queue.iter().map(|waiter| (waiter.id, waiter.mode, waiter.units)).collect();
    let wanted =
        [(id(1, 2).public(), ShownMode::Upgrade, GRANTS_MAX), (id(3, 1).public(), ShownMode::Plain, GRANTS_MAX)];
    assert_eq!((queue.as_slice(), seen.waiters), (wanted.as_slice(), 2));
    assert_eq!((seen.kind, seen.limit, seen.units), (Kind::ReadWrite, GRANTS_MAX, 2));
}

#[test]
fn an_upgrade_that_was_granted_is_shown_as_a_writer() {
    let mut world = World::new();
    let token = granted(&world.take(id(1, 1), Take::UPGRADEABLE_READ));
    let request = Acquire { take: Take::upgrade(id(1, 1), token), patience: Patience::Try, ..world.request(id(1, 2)) };
    granted(&world.step(&Op::Acquire(request)));
    let seen = inspect(&mut world);
    let holder = seen.holder().expect("held");
    assert_eq!((holder.mode, holder.units, seen.units), (ShownMode::Plain, GRANTS_MAX, GRANTS_MAX));
}
