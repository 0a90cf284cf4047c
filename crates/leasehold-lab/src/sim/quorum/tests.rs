use leasehold_spec::{GrantId, Name, SessionId, Token};

use super::pledges::Pledges;
use super::settings::plan;

fn grant() -> (Name, GrantId, Token) {
    let id = GrantId { session: SessionId(7), counter: 1, nonce: 1 };
    (Name::new("name").expect("a name"), id, Token::new(5).expect("a token"))
}

#[test]
fn one_clock_of_three_that_agree_breaks_nothing_and_two_do() {
    let mut pledges = Pledges::new(3);
    (0..3).for_each(|node| assert!(pledges.said(node, grant(), 1_000, 0).is_none()));
    assert!(pledges.jumps(0, 900, 10).is_empty());
    let broken = pledges.jumps(1, 400, 10);
    assert_eq!((broken[0].from_us, broken[0].to_us), (600, 1_000), "until then two of them keep it");
    assert!(pledges.jumps(2, 400, 1_000).is_empty(), "it is over");
}

#[test]
fn a_bare_majority_is_broken_by_one_clock_also_before_it_is_one() {
    let mut pledges = Pledges::new(3);
    assert!(pledges.said(0, grant(), 1_000, 0).is_none());
    assert!(pledges.jumps(0, 400, 10).is_empty(), "nobody relies on one node");
    let broken = pledges.said(1, grant(), 1_020, 20).expect("somebody counts both");
    assert_eq!((broken.from_us, broken.to_us), (600, 1_000));
}

#[test]
fn who_was_filled_keeps_it_and_nobody_counts_on_it() {
    let mut pledges = Pledges::new(3);
    pledges.said(0, grant(), 1_000, 0);
    pledges.said(1, grant(), 1_000, 0);
    pledges.keeps(2, grant(), 1_000);
    assert!(pledges.jumps(0, 900, 10).is_empty());
}

#[test]
fn nothing_is_to_come_before_it_is_sent() {
    for seed in 1..3_000 {
        let (first, last) = plan(seed).delay_us;
        assert!(first <= last, "seed {seed}: from {first} to {last} µs");
    }
}

#[test]
fn no_node_forgets_where_clocks_are_further_off_than_is_promised() {
    for seed in 1..300 {
        let plan = plan(seed);
        let settings = plan.quorum.expect("it is of a quorum");
        assert!(plan.leases_ms.iter().all(|ms| *ms <= settings.max_lease_ms), "seed {seed}");
        assert!(settings.clocks_us < 1_000_000 || !settings.forgets.contains(&true), "seed {seed}");
    }
}
