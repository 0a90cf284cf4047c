use leasehold_spec::{GrantId, Name, SessionId, Token};

use super::pledges::Pledges;
use super::settings::plan;

fn grant() -> (Name, GrantId, Token) {
    let id = GrantId { session: SessionId(7), counter: 1, nonce: 1 };
    (Name::new("name").expect("a name"), id, Token::new(5).expect("a token"))
}

#[test]
fn one_jump_of_three_clocks_breaks_no_pledge_but_two_do() {
    let mut pledges = Pledges::new(3);
    (0..3).for_each(|node| assert!(pledges.record(node, grant(), 1_000, 0).is_none()));
    assert!(pledges.jumps(0, 900, 10).is_empty());
    let broken = pledges.jumps(1, 400, 10);
    assert_eq!((broken[0].from_us, broken[0].to_us), (600, 1_000), "until then two of them keep it");
    assert!(pledges.jumps(2, 400, 1_000).is_empty(), "it is over");
}

#[test]
fn one_jump_breaks_a_bare_majority_even_before_it_is_complete() {
    let mut pledges = Pledges::new(3);
    assert!(pledges.record(0, grant(), 1_000, 0).is_none());
    assert!(pledges.jumps(0, 400, 10).is_empty(), "no client relies on one node");
    let broken = pledges.record(1, grant(), 1_020, 20).expect("a client relies on both");
    assert_eq!((broken.from_us, broken.to_us), (600, 1_000));
}

#[test]
fn a_filled_node_keeps_the_vote_but_no_client_relies_on_it() {
    let mut pledges = Pledges::new(3);
    pledges.record(0, grant(), 1_000, 0);
    pledges.record(1, grant(), 1_000, 0);
    pledges.keeps(2, grant(), 1_000);
    assert!(pledges.jumps(0, 900, 10).is_empty());
}

#[test]
fn no_message_arrives_before_it_is_sent() {
    for seed in 1..3_000 {
        let (first, last) = plan(seed).delay_us;
        assert!(first <= last, "seed {seed}: from {first} to {last} µs");
    }
}

#[test]
fn no_node_forgets_if_clocks_exceed_the_promised_bound() {
    for seed in 1..300 {
        let plan = plan(seed);
        let settings = plan.quorum.expect("it is of a quorum");
        assert!(plan.leases_ms.iter().all(|ms| *ms <= settings.max_lease_ms), "seed {seed}");
        assert!(settings.clocks_us < 1_000_000 || !settings.forgets.contains(&true), "seed {seed}");
    }
}
