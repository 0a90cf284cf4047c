//! The overlaps and states that the judge reports, and those that it excuses.

use std::time::Duration;

use super::*;
use crate::processes::scene::{LEASE, WAIT_MAX};

/// The lines of a run, which a test writes by hand.
#[derive(Default)]
struct Story {
    notes: Vec<Note>,
    lives: Lives,
    now_us: u64,
}

fn who(number: usize) -> WorkerId {
    WorkerId { number, life: 0 }
}

impl Story {
    fn line(self, number: usize, event: Event) -> Self {
        self.line_of(who(number), event)
    }

    fn line_of(mut self, who: WorkerId, event: Event) -> Self {
        self.now_us += 10;
        self.notes.push(Note { who, section: 1, at_us: self.now_us, event });
        self
    }

    fn enters(self, number: usize, share: Share, token: u64) -> Self {
        self.line(number, Event::Enter(vec![Use { resource: 3, share, token }]))
    }

    fn leaves(self, number: usize, ending: Ending) -> Self {
        self.line(number, Event::Leave(ending))
    }

    fn dies(mut self, number: usize) -> Self {
        self.now_us += 10;
        self.lives.deaths.insert(who(number), self.now_us);
        self
    }

    fn waits(self, number: usize) -> Self {
        self.line(number, Event::Wait)
    }

    fn later(mut self, time: Duration) -> Self {
        self.now_us += time.as_micros() as u64;
        self
    }

    fn judged(&self, scene: Scene) -> Verdict {
        judge(scene, &self.notes, &self.lives)
    }
}

use Ending::{Lost, Whole};
use Share::{Alone, Shared, Units};

#[test]
fn sections_one_after_the_other_are_right() {
    let story = Story::default().enters(0, Alone, 1).leaves(0, Whole).enters(1, Alone, 2).leaves(1, Whole);
    let verdict = story.judged(Scene::Philosophers);
    assert_eq!((verdict.violations.len(), verdict.progress), (0, vec![1, 1, 0, 0, 0]));
}

#[test]
fn an_overlap_is_a_violation() {
    for (first, second, wanted) in [(Alone, Alone, 1), (Alone, Shared, 1), (Shared, Alone, 1), (Shared, Shared, 0)] {
        let story = Story::default().enters(0, first, 1).enters(1, second, 2).leaves(0, Whole).leaves(1, Whole);
        let violations = story.judged(Scene::Readers).violations;
        assert_eq!(violations.len(), wanted, "{first:?} {second:?}: {violations:?}");
    }
}

#[test]
fn an_overlap_with_a_lost_lease_is_excused_and_counted() {
    let story = Story::default().enters(0, Alone, 1).enters(1, Alone, 2).leaves(0, Lost).leaves(1, Whole);
    let verdict = story.judged(Scene::Accounts);
    assert_eq!((verdict.violations.len(), verdict.excused, verdict.lost), (0, 1, 1));
    assert_eq!(verdict.progress[0], 0, "a section that lost its lease is no progress");
}

#[test]
fn a_section_ends_with_its_process_and_not_before() {
    let after = Story::default().enters(0, Alone, 1).dies(0).enters(1, Alone, 2).leaves(1, Whole);
    let verdict = after.judged(Scene::Buffer);
    assert_eq!((verdict.violations.len(), verdict.cut), (0, 1));
    let before = Story::default().enters(0, Alone, 1).enters(1, Alone, 2).dies(0).leaves(1, Whole);
    assert_eq!(before.judged(Scene::Buffer).violations.len(), 1);
}

#[test]
fn a_section_without_an_end_or_a_death_is_a_violation() {
    let story = Story::default().enters(0, Alone, 1);
    assert_eq!(story.judged(Scene::Buffer).violations.len(), 1);
}

#[test]
fn tokens_rise_except_among_readers() {
    let readers = Story::default().enters(0, Shared, 5).enters(1, Shared, 4).leaves(0, Whole).leaves(1, Whole);
    assert_eq!(readers.judged(Scene::Readers).violations.len(), 0);
    let same = Story::default().enters(0, Alone, 5).leaves(0, Whole).enters(1, Alone, 5).leaves(1, Whole);
    assert_eq!(same.judged(Scene::Readers).violations.len(), 1);
    let reader = Story::default().enters(0, Alone, 5).leaves(0, Whole).enters(1, Shared, 4).leaves(1, Whole);
    assert_eq!(reader.judged(Scene::Readers).violations.len(), 1);
}

#[test]
fn a_torn_record_needs_a_dead_writer() {
    let torn = |story: Story| story.enters(1, Shared, 2).line(1, Event::Torn { resource: 3 }).leaves(1, Whole);
    let dead = torn(Story::default().enters(0, Alone, 1).dies(0)).judged(Scene::Readers);
    assert_eq!((dead.violations.len(), dead.torn), (0, 1));
    let alive = torn(Story::default().enters(0, Alone, 1).leaves(0, Whole)).judged(Scene::Readers);
    assert_eq!(alive.violations.len(), 1);
}

#[test]
fn the_terms_of_leaders_count_from_their_beginning() {
    let story = Story::default().enters(2, Alone, 1).dies(2);
    assert_eq!(story.judged(Scene::Leader).progress, [0, 0, 1, 0, 0]);
    assert_eq!(story.judged(Scene::Accounts).progress, [0, 0, 0, 0, 0]);
}

#[test]
fn a_wrong_state_is_a_violation() {
    let story = Story::default().line(4, Event::Wrong("the accounts have 99 instead of 100".into()));
    assert_eq!(story.judged(Scene::Accounts).violations, ["process 4.0: the accounts have 99 instead of 100"]);
}

#[test]
fn a_wait_is_too_long_if_it_is_without_a_death_for_the_bound() {
    let longest = |story: Story| {
        let verdict = story.judged(Scene::Counter);
        (verdict.longest_wait_us, verdict.longest_part_us, verdict.violations.len())
    };
    let nearly = WAIT_MAX - Duration::from_millis(1);
    let bound_us = nearly.as_micros() as u64;
    let served = Story::default().waits(0).later(nearly).enters(0, Alone, 1).leaves(0, Whole);
    assert_eq!(longest(served), (bound_us + 10, bound_us + 10, 0));
    let late = Story::default().waits(0).later(nearly * 2).enters(0, Alone, 1).leaves(0, Whole);
    assert_eq!(longest(late).2, 1);
    // A death in between begins the time anew.
    let behind = Story::default().waits(0).later(nearly).dies(1).later(nearly).enters(0, Alone, 1).leaves(0, Whole);
    assert_eq!(longest(behind), (2 * bound_us + 20, bound_us + 10, 0));
    // A wait that never ends shows in the death of its process, which the command kills at the end.
    let never = Story::default().waits(0).later(nearly * 2).dies(0);
    assert_eq!(longest(never).2, 1);
    for end in [Event::Unserved, Event::Stopped] {
        let ended = Story::default().waits(0).later(nearly * 2).line(0, end);
        assert_eq!(longest(ended).2, 1);
    }
}

#[test]
fn machines_are_used_by_as_many_as_there_are() {
    let full = || Story::default().enters(0, Units(1), 1).enters(1, Units(2), 2);
    let leave = |story: Story| story.leaves(0, Whole).leaves(1, Whole);
    assert_eq!(leave(full()).judged(Scene::Machines).violations.len(), 0);
    let more = leave(full().enters(2, Units(1), 3).leaves(2, Whole));
    assert_eq!(more.judged(Scene::Machines).violations.len(), 1);
    let lost = full().enters(2, Units(1), 3).leaves(0, Lost).leaves(1, Whole).leaves(2, Whole);
    assert_eq!(lost.judged(Scene::Machines).violations.len(), 0);
}

#[test]
fn a_round_begins_when_all_have_come() {
    let come = |numbers: std::ops::Range<usize>| numbers.fold(Story::default(), Story::waits);
    let begins = |story: Story, number| story.line(number, Event::Enter(Vec::new())).leaves(number, Whole);
    let violations = |story: Story| story.judged(Scene::Rounds).violations.len();
    assert_eq!(violations((0..5).fold(come(0..5), begins)), 0);
    // The last one comes when the first one has begun.
    assert_eq!(violations(begins(come(0..4), 0).waits(4)), 1);
    // The first one was there, and has gone before the last one came.
    assert_eq!(violations(begins(come(0..4).line(0, Event::Unserved).waits(4), 4)), 1);
    // A barrier counts a process that has just died, and one that has just stopped, but not for longer than a lease.
    let gone = [Story::dies as fn(_, _) -> _, |story: Story, number| story.line(number, Event::Stopped)];
    for goes in gone {
        assert_eq!(violations(begins(goes(come(0..4), 0).waits(4), 4)), 0);
        assert_eq!(violations(begins(goes(come(0..4), 0).later(LEASE).waits(4), 4)), 1);
    }
    // A process that has just died and its replacement count as two, and nobody waits for the last one.
    let replaced = come(0..4).dies(0).line_of(WorkerId { number: 0, life: 1 }, Event::Wait);
    assert_eq!(violations(begins(replaced, 3)), 0);
}
