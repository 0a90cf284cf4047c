//! Counts of votes, case by case.

use leasehold_spec::SessionId;

use super::RoundResult as Round;
use super::*;

const TOKEN: u64 = 1_000;

fn token(number: u64) -> Token {
    Token::new(number).unwrap()
}

fn cast(said: Said) -> Ballot {
    let (contention, has_called) = (Contention::None, false);
    let vote = Vote { now_us: 1, highest: token(TOKEN), contention, has_called, said };
    Ballot::Cast { sent_us: 10, vote: Box::new(vote) }
}

fn yes(left_us: u64, range: u64) -> Ballot {
    cast(Said::Granted { token: token(TOKEN), range, left_us })
}

fn held_by(session: u128, left_us: u64) -> Ballot {
    cast(Said::Refused { holder: Some(PublicId { session: SessionId(session), counter: 1 }), left_us })
}

fn tally(ballots: Vec<Ballot>) -> Tally {
    Tally { ballots }
}

fn round(ballots: Vec<Ballot>) -> Option<Round> {
    tally(ballots).round(token(TOKEN))
}

#[test]
fn a_majority_wins_with_its_shortest_lease_and_smallest_range() {
    use Ballot::Pending;
    assert_eq!(round(vec![yes(50, 8), yes(90, 8), Pending, Pending, Pending]), None);
    let won = round(vec![yes(50, 8), yes(90, 4), yes(70, 8), Pending, Pending]);
    assert_eq!(won, Some(Round::Won { token: token(TOKEN), range: 4, until_us: 60 }), "the third-longest of three");
    let won = round(vec![yes(50, 8), yes(90, 8), yes(70, 8), yes(80, 8), Ballot::Silent]);
    assert_eq!(won, Some(Round::Won { token: token(TOKEN), range: 8, until_us: 80 }), "and of four");
}

#[test]
fn a_vote_for_an_earlier_round_does_not_count() {
    let earlier = || cast(Said::Granted { token: token(TOKEN - 1), range: 1, left_us: 50 });
    assert_eq!(round(vec![yes(50, 1), earlier(), earlier()]), Some(Round::Again));
}

#[test]
fn a_token_that_is_too_small_is_replaced_as_soon_as_another_can_win() {
    let below = || cast(Said::Below);
    assert_eq!(round(vec![below(), Ballot::Pending, Ballot::Pending]), None, "the others may still vote for it");
    assert_eq!(round(vec![below(), below(), Ballot::Pending]), Some(Round::Again), "one vote is no majority");
    assert_eq!(round(vec![below(), below(), below(), Ballot::Pending, Ballot::Pending]), Some(Round::Again));
    assert_eq!(round(vec![below(), held_by(1, 50), held_by(1, 50)]).map(is_held), Some(Some(true)));
}

#[test]
fn a_round_is_refused_as_soon_as_it_cannot_win_and_names_the_holder() {
    use Ballot::{Pending, Silent};
    assert_eq!(round(vec![held_by(1, 50), held_by(1, 50), Pending, Pending, Pending]), None);
    let refused = round(vec![held_by(1, 50), held_by(1, 70), held_by(1, 60), Pending, Pending]);
    assert_eq!(
        refused,
        Some(Round::Refused(Refusal { is_held: true, is_called: false, free_us: 80 })),
        "the third to be free"
    );
    let split = round(vec![held_by(1, 50), held_by(1, 50), held_by(2, 50), yes(50, 1), yes(50, 1)]);
    assert_eq!(split.map(is_held), Some(Some(false)));
    // Two nodes have a holder, and three are silent: the result is unknown.
    assert_eq!(round(vec![held_by(1, 50), held_by(1, 50), Silent, Silent, Silent]), Some(Round::TooFew));
}

fn is_held(result: Round) -> Option<bool> {
    match result {
        Round::Refused(refusal) => Some(refusal.is_held),
        _ => None,
    }
}

#[test]
fn silence_and_abstention_do_not_count() {
    use Ballot::{Abstained, Pending, Silent};
    assert_eq!(round(vec![yes(50, 1), yes(50, 1), Silent, Abstained, Pending]), None);
    assert_eq!(round(vec![yes(50, 1), yes(50, 1), Silent, Abstained, Silent]), Some(Round::TooFew));
    let mut late = tally(vec![yes(50, 1), Pending, Pending]);
    late.close();
    assert_eq!(late.round(token(TOKEN)), Some(Round::TooFew));
}

#[test]
fn a_majority_renews_and_an_unknown_result_is_not_a_loss() {
    use Ballot::{Pending, Silent};
    let renewed = |left_us| cast(Said::Renewed { left_us });
    let (filled, lost) = (|| cast(Said::Filled { left_us: 90 }), || cast(Said::Lost { how: LostHow::NotHeld }));
    let kept = |ballots| tally(ballots).renewal();
    assert_eq!(kept(vec![renewed(50), renewed(60), Pending]), Some(RenewResult::Renewed { until_us: 60 }));
    assert_eq!(kept(vec![renewed(50), filled(), Pending]), None, "a filled node did not keep it");
    assert_eq!(kept(vec![renewed(50), filled(), Silent]), Some(RenewResult::TooFew));
    assert_eq!(kept(vec![renewed(50), Silent, Silent]), Some(RenewResult::TooFew));
    assert_eq!(kept(vec![lost(), filled(), Pending]), Some(RenewResult::Lost(LostHow::NotHeld)));
    let revoked = cast(Said::Lost { how: LostHow::Revoked });
    assert_eq!(kept(vec![revoked, lost(), Pending]), Some(RenewResult::Lost(LostHow::Revoked)));
    assert_eq!(kept(vec![renewed(50), cast(Said::Late), Silent]), Some(RenewResult::Late));
}

#[test]
fn a_release_needs_answers_of_a_majority() {
    use Ballot::{Pending, Silent};
    let given = |was| cast(Said::GivenBack { was });
    let ended = |ballots| tally(ballots).release();
    assert_eq!(ended(vec![given(Was::Absent), Pending, Pending]), None);
    assert_eq!(ended(vec![given(Was::Absent), given(Was::Granted), Pending]), Some(ReleaseResult::Done(Was::Granted)));
    assert_eq!(ended(vec![given(Was::Absent), given(Was::Queued), Pending]), Some(ReleaseResult::Done(Was::Queued)));
    assert_eq!(ended(vec![given(Was::Granted), Silent, Silent]), Some(ReleaseResult::TooFew));
}

#[test]
fn a_revocation_needs_marks_that_leave_no_majority() {
    use Ballot::Silent;
    let (marked, not_held) = (|left_us| cast(Said::Revoking { left_us }), || cast(Said::NotHeld));
    let revoked = |ballots| tally(ballots).revoked();
    let within = |left_us| Some(Outcome::Revoking { left_us });
    assert_eq!(revoked(vec![marked(50), marked(70), Silent]), within(70), "the latest of the ends");
    assert_eq!(revoked(vec![marked(50), Silent, Silent]), None, "two nodes may keep it");
    assert_eq!(
        revoked(vec![marked(50), not_held(), Silent]),
        None,
        "two nodes may: a renewal can fill a node without the vote"
    );
    assert_eq!(revoked(vec![marked(50), not_held(), not_held()]), within(50));
    assert_eq!(revoked(vec![not_held(), not_held(), Silent]), Some(Outcome::NotHeld));
    assert_eq!(revoked(vec![not_held(), Silent, Silent]), None);
}

/// Returns whether the lock is held, and whether a waiter was called.
fn refused(holders: [Option<u128>; 5]) -> (bool, bool) {
    let said = |holder: Option<u128>| match holder {
        Some(session) => held_by(session, 50),
        None => cast(Said::Refused { holder: None, left_us: 50 }),
    };
    match round(holders.map(said).to_vec()) {
        Some(Round::Refused(Refusal { is_held, is_called, .. })) => (is_held, is_called),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_called_waiter_is_as_good_as_a_holder() {
    let called = None;
    assert_eq!(refused([called; 5]), (false, true));
    // The called waiter asks at this moment, and some nodes have voted for it.
    assert_eq!(refused([called, called, Some(1), called, Some(1)]), (false, true));
    assert_eq!(refused([Some(1), called, Some(1), Some(1), called]), (true, true));
}

#[test]
fn split_votes_have_no_holder() {
    assert_eq!(refused([Some(1), Some(1), Some(2), Some(2), Some(3)]), (false, false));
    // One waiter was called, and others have votes: each of them may still win, or none.
    assert_eq!(refused([Some(1), Some(2), Some(3), Some(4), None]), (false, false));
    assert_eq!(refused([Some(1); 5]), (true, false));
}

#[test]
fn a_token_of_a_minority_is_not_passed() {
    let knows = |highest: u64| {
        let mut ballot = cast(Said::Below);
        if let Ballot::Cast { vote, .. } = &mut ballot {
            vote.highest = token(highest);
        }
        ballot
    };
    // Three of five nodes know a grant, and a minority knows a larger token.
    assert_eq!(tally(vec![knows(9_000), knows(50), knows(50), knows(50), knows(7)]).passed(), token(50));
    assert_eq!(tally(vec![knows(9_000), knows(50), knows(50), Ballot::Pending, Ballot::Silent]).passed(), token(50));
    assert_eq!(
        tally(vec![knows(50), knows(50), Ballot::Pending, Ballot::Silent, Ballot::Silent]).passed(),
        Token::NONE
    );
    let filled = || cast(Said::Filled { left_us: 90 });
    assert_eq!(tally(vec![filled(), filled(), filled()]).passed(), Token::NONE, "no node knew of it");
}

#[test]
fn a_grant_without_a_confirming_majority_has_ended() {
    let below = || cast(Said::Below);
    assert!(!tally(vec![yes(50, 1), below(), Ballot::Pending]).has_ended());
    assert!(tally(vec![yes(50, 1), below(), below()]).has_ended());
    assert!(tally(vec![cast(Said::Far), held_by(1, 50), Ballot::Silent]).has_ended());
    assert!(!tally(vec![cast(Said::Late), cast(Said::Late), cast(Said::Late)]).has_ended());
}

#[test]
fn inspect_waits_for_answers_that_can_change_its_result() {
    use Ballot::{Pending, Silent};
    let shows = |session: Option<u128>| {
        let id = |session| PublicId { session: SessionId(session), counter: 1 };
        let (token, label, state) = (token(TOKEN), String::new(), leasehold_spec::GrantState::Held);
        let (units, mode) = (1, leasehold_spec::ShownMode::Plain);
        let holder = session.map(|session| Holder { id: id(session), token, left_us: 50, label, state, units, mode });
        cast(Said::Inspected(leasehold_spec::Inspection::of_mutex(holder, 0)))
    };
    // One node shows a holder, one shows none, and the third has not answered.
    let partly = tally(vec![shows(Some(1)), shows(None), Pending]);
    assert!(partly.shown().is_none() && !partly.shows_enough());
    assert!(tally(vec![shows(Some(1)), shows(Some(1)), Pending]).shows_enough());
    assert!(tally(vec![shows(Some(1)), shows(None), Silent]).shows_enough(), "no more answers will arrive");
    assert!(tally(vec![shows(None), shows(None), Pending]).shows_enough());
    assert!(!tally(vec![shows(None), Pending, Silent]).shows_enough(), "one answer is no majority");
}
