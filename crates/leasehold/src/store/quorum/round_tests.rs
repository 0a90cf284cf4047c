//! Votes that are counted, case by case.

use leasehold_spec::SessionId;

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

fn asked(ballots: Vec<Ballot>) -> Option<Asked> {
    tally(ballots).asked(token(TOKEN))
}

#[test]
fn it_is_won_with_the_majority_for_as_long_as_that_lasts_and_with_what_all_of_it_reserved() {
    use Ballot::Pending;
    assert_eq!(asked(vec![yes(50, 8), yes(90, 8), Pending, Pending, Pending]), None);
    let won = asked(vec![yes(50, 8), yes(90, 4), yes(70, 8), Pending, Pending]);
    assert_eq!(won, Some(Asked::Won { token: token(TOKEN), range: 4, until_us: 60 }), "the third-longest of three");
    let won = asked(vec![yes(50, 8), yes(90, 8), yes(70, 8), yes(80, 8), Ballot::Silent]);
    assert_eq!(won, Some(Asked::Won { token: token(TOKEN), range: 8, until_us: 80 }), "and of four");
}

#[test]
fn a_vote_for_an_earlier_round_is_none_for_this_one() {
    let earlier = || cast(Said::Granted { token: token(TOKEN - 1), range: 1, left_us: 50 });
    assert_eq!(asked(vec![yes(50, 1), earlier(), earlier()]), Some(Asked::Again));
}

#[test]
fn one_that_is_too_low_is_asked_again_as_soon_as_that_can_be_won() {
    let below = || cast(Said::Below);
    assert_eq!(asked(vec![below(), Ballot::Pending, Ballot::Pending]), None, "the others may yet vote for it");
    assert_eq!(asked(vec![below(), below(), Ballot::Pending]), Some(Asked::Again), "one vote is no majority");
    assert_eq!(asked(vec![below(), below(), below(), Ballot::Pending, Ballot::Pending]), Some(Asked::Again));
    assert_eq!(asked(vec![below(), held_by(1, 50), held_by(1, 50)]).map(is_held), Some(Some(true)));
}

#[test]
fn it_is_refused_as_soon_as_nobody_can_win_it_and_says_whether_somebody_has() {
    use Ballot::{Pending, Silent};
    assert_eq!(asked(vec![held_by(1, 50), held_by(1, 50), Pending, Pending, Pending]), None);
    let refused = asked(vec![held_by(1, 50), held_by(1, 70), held_by(1, 60), Pending, Pending]);
    assert_eq!(
        refused,
        Some(Asked::Refused(Refusal { is_held: true, is_called: false, free_us: 80 })),
        "the third to be free"
    );
    let split = asked(vec![held_by(1, 50), held_by(1, 50), held_by(2, 50), yes(50, 1), yes(50, 1)]);
    assert_eq!(split.map(is_held), Some(Some(false)));
    // Two that hold it, and three that are silent: nobody knows.
    assert_eq!(asked(vec![held_by(1, 50), held_by(1, 50), Silent, Silent, Silent]), Some(Asked::TooFew));
}

fn is_held(asked: Asked) -> Option<bool> {
    match asked {
        Asked::Refused(refusal) => Some(refusal.is_held),
        _ => None,
    }
}

#[test]
fn silence_and_abstention_are_no_votes() {
    use Ballot::{Abstained, Pending, Silent};
    assert_eq!(asked(vec![yes(50, 1), yes(50, 1), Silent, Abstained, Pending]), None);
    assert_eq!(asked(vec![yes(50, 1), yes(50, 1), Silent, Abstained, Silent]), Some(Asked::TooFew));
    let mut late = tally(vec![yes(50, 1), Pending, Pending]);
    late.close();
    assert_eq!(late.asked(token(TOKEN)), Some(Asked::TooFew));
}

#[test]
fn what_is_kept_by_a_majority_is_renewed_and_unknown_is_not_lost() {
    use Ballot::{Pending, Silent};
    let renewed = |left_us| cast(Said::Renewed { left_us });
    let (filled, lost) = (|| cast(Said::Filled { left_us: 90 }), || cast(Said::Lost { how: LostHow::NotHeld }));
    let kept = |ballots| tally(ballots).kept();
    assert_eq!(kept(vec![renewed(50), renewed(60), Pending]), Some(Kept::Renewed { until_us: 60 }));
    assert_eq!(kept(vec![renewed(50), filled(), Pending]), None, "what was filled did not keep it");
    assert_eq!(kept(vec![renewed(50), filled(), Silent]), Some(Kept::TooFew));
    assert_eq!(kept(vec![renewed(50), Silent, Silent]), Some(Kept::TooFew));
    assert_eq!(kept(vec![lost(), filled(), Pending]), Some(Kept::Lost(LostHow::NotHeld)));
    let revoked = cast(Said::Lost { how: LostHow::Revoked });
    assert_eq!(kept(vec![revoked, lost(), Pending]), Some(Kept::Lost(LostHow::Revoked)));
    assert_eq!(kept(vec![renewed(50), cast(Said::Late), Silent]), Some(Kept::Late));
}

#[test]
fn what_is_given_back_is_heard_of_by_a_majority() {
    use Ballot::{Pending, Silent};
    let given = |was| cast(Said::GivenBack { was });
    let ended = |ballots| tally(ballots).ended();
    assert_eq!(ended(vec![given(Was::Absent), Pending, Pending]), None);
    assert_eq!(ended(vec![given(Was::Absent), given(Was::Granted), Pending]), Some(Ended::Done(Was::Granted)));
    assert_eq!(ended(vec![given(Was::Absent), given(Was::Queued), Pending]), Some(Ended::Done(Was::Queued)));
    assert_eq!(ended(vec![given(Was::Granted), Silent, Silent]), Some(Ended::TooFew));
}

#[test]
fn what_is_marked_at_all_but_a_minority_is_revoked_and_so_is_what_its_holder_gave_back_upon_a_mark() {
    use Ballot::Silent;
    let (marked, not_held) = (|left_us| cast(Said::Revoking { left_us }), || cast(Said::NotHeld));
    let revoked = |ballots| tally(ballots).revoked();
    let within = |left_us| Some(Outcome::Revoking { left_us });
    assert_eq!(revoked(vec![marked(50), marked(70), Silent]), within(70), "the last of them to end");
    assert_eq!(revoked(vec![marked(50), Silent, Silent]), None, "two may keep it");
    assert_eq!(revoked(vec![marked(50), not_held(), Silent]), None, "two may: who has it not can be filled");
    assert_eq!(revoked(vec![marked(50), not_held(), not_held()]), within(50));
    assert_eq!(revoked(vec![not_held(), not_held(), Silent]), Some(Outcome::NotHeld));
    assert_eq!(revoked(vec![not_held(), Silent, Silent]), None);
}

/// Whether it is held, and whether somebody was called.
fn refused(holders: [Option<u128>; 5]) -> (bool, bool) {
    let said = |holder: Option<u128>| match holder {
        Some(session) => held_by(session, 50),
        None => cast(Said::Refused { holder: None, left_us: 50 }),
    };
    match asked(holders.map(said).to_vec()) {
        Some(Asked::Refused(Refusal { is_held, is_called, .. })) => (is_held, is_called),
        other => panic!("{other:?}"),
    }
}

#[test]
fn who_was_called_is_as_good_as_a_holder() {
    let called = None;
    assert_eq!(refused([called; 5]), (false, true));
    // It is asking just now, and some nodes have heard it.
    assert_eq!(refused([called, called, Some(1), called, Some(1)]), (false, true));
    assert_eq!(refused([Some(1), called, Some(1), Some(1), called]), (true, true));
}

#[test]
fn votes_that_are_split_are_nobodys() {
    assert_eq!(refused([Some(1), Some(1), Some(2), Some(2), Some(3)]), (false, false));
    // One that was called, and others: any of them may win yet, or none.
    assert_eq!(refused([Some(1), Some(2), Some(3), Some(4), None]), (false, false));
    assert_eq!(refused([Some(1); 5]), (true, false));
}

#[test]
fn what_a_single_node_knows_is_no_grant() {
    let knows = |highest: u64| {
        let mut ballot = cast(Said::Below);
        if let Ballot::Cast { vote, .. } = &mut ballot {
            vote.highest = token(highest);
        }
        ballot
    };
    // A grant is known to three of five, and one more than it to a minority.
    assert_eq!(tally(vec![knows(9_000), knows(50), knows(50), knows(50), knows(7)]).passed(), token(50));
    assert_eq!(tally(vec![knows(9_000), knows(50), knows(50), Ballot::Pending, Ballot::Silent]).passed(), token(50));
    assert_eq!(
        tally(vec![knows(50), knows(50), Ballot::Pending, Ballot::Silent, Ballot::Silent]).passed(),
        Token::NONE
    );
    let filled = || cast(Said::Filled { left_us: 90 });
    assert_eq!(tally(vec![filled(), filled(), filled()]).passed(), Token::NONE, "nobody knew of it");
}

#[test]
fn what_no_majority_confirms_has_ended() {
    let below = || cast(Said::Below);
    assert!(!tally(vec![yes(50, 1), below(), Ballot::Pending]).has_ended());
    assert!(tally(vec![yes(50, 1), below(), below()]).has_ended());
    assert!(tally(vec![cast(Said::Far), held_by(1, 50), Ballot::Silent]).has_ended());
    assert!(!tally(vec![cast(Said::Late), cast(Said::Late), cast(Said::Late)]).has_ended());
}

#[test]
fn who_looks_waits_for_whoever_can_change_what_it_sees() {
    use Ballot::{Pending, Silent};
    let shows = |session: Option<u128>| {
        let id = |session| PublicId { session: SessionId(session), counter: 1 };
        let (token, label, state) = (token(TOKEN), String::new(), leasehold_spec::GrantState::Held);
        let holder = session.map(|session| Holder { id: id(session), token, left_us: 50, label, state });
        cast(Said::Inspected(leasehold_spec::Inspection { holder, waiters: 0 }))
    };
    // Two of three hold, and the third has not heard of it yet.
    let partly = tally(vec![shows(Some(1)), shows(None), Pending]);
    assert!(partly.shown().is_none() && !partly.shows_enough());
    assert!(tally(vec![shows(Some(1)), shows(Some(1)), Pending]).shows_enough());
    assert!(tally(vec![shows(Some(1)), shows(None), Silent]).shows_enough(), "nobody else will say anything");
    assert!(tally(vec![shows(None), shows(None), Pending]).shows_enough());
    assert!(!tally(vec![shows(None), Pending, Silent]).shows_enough(), "one is no majority");
}
