//! Releases in flight and cool-downs: which ones a client remembers, and for how long.

use leasehold_spec::SessionId;

use super::*;

fn id(counter: u64) -> GrantId {
    GrantId { session: SessionId(7), counter, nonce: counter }
}

fn node(node: usize) -> Nodes {
    Nodes::of(std::iter::once(node))
}

/// The session repeats a release on another link while the first one has no answer.
#[test]
fn a_release_defers_until_it_is_answered() {
    let releases = Releases::default();
    assert!(!releases.defer(&id(1), node(0)), "nothing is in flight");
    releases.begin(id(1), 0, 1);
    releases.begin(id(1), 0, 2);
    assert!(releases.defer(&id(1), node(0)) && releases.defer(&id(1), node(2)));
    assert!(!releases.defer(&id(2), node(0)), "this is another attempt");
    assert_eq!(releases.end(&id(1), false, 3), node(0).with(node(2)));
    assert!(releases.defer(&id(1), node(1)), "the repeated release is in flight");
    assert_eq!(releases.end(&id(1), true, 4), node(1));
    assert!(!releases.defer(&id(1), node(0)));
    assert!(releases.entries().releases.is_empty());
}

/// A caller polls the future of its release once, and keeps it. The session has repeated the release.
#[test]
fn a_release_that_never_ends_defers_nothing_after_an_answer() {
    let releases = Releases::default();
    releases.begin(id(1), 0, 1);
    releases.begin(id(1), 0, 2);
    assert_eq!(releases.end(&id(1), true, 3), Nodes::default());
    assert!(!releases.defer(&id(1), node(0)));
    assert_eq!(releases.end(&id(1), false, 4), Nodes::default());
    assert!(releases.entries().releases.is_empty());
}

#[test]
fn a_cool_down_is_known_until_its_end() {
    let releases = Releases::default();
    releases.begin(id(1), 500, 1);
    assert_eq!(releases.end(&id(1), true, 2), Nodes::default());
    assert!(!releases.defer(&id(1), node(0)), "it has an answer");
    assert_eq!(releases.cools_until_us(&id(1)), 500);
    // A repeat of the release may name an earlier end.
    releases.begin(id(1), 400, 3);
    releases.end(&id(1), true, 4);
    assert_eq!(releases.cools_until_us(&id(1)), 500);
    assert_eq!(releases.cools_until_us(&id(2)), 0);
}

#[test]
fn cool_downs_that_are_over_are_swept() {
    let releases = Releases::default();
    for counter in 0..100_000 {
        releases.begin(id(counter), counter + 100, counter);
        releases.end(&id(counter), true, counter);
        assert_eq!(releases.cools_until_us(&id(counter)), counter + 100);
    }
    let kept = releases.entries().releases.len();
    assert!(kept <= 2 * SWEEP_FROM, "{kept}");
}
