//! Several tasks of one owner wait at its gate, and the first of them asks the store. Any of them are dropped, in any
//! phase of the first one. The others get the lock, and no task leaves anything behind.

use leasehold::{Guard, Leasehold, Owner, Token};

use crate::hand::{Driven, poll_all, until};
use crate::harness::{Harness, Way};
use crate::on_all_stores;

/// The tasks of the owner. The first of them asks the store.
const TASKS: usize = 4;

/// The phase of the first task when some tasks are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    RequestHeld,
    AnswerHeld,
    Queued,
    GrantedUnseen,
}

const PHASES: [Phase; 4] = [Phase::RequestHeld, Phase::AnswerHeld, Phase::Queued, Phase::GrantedUnseen];

type Locking = Driven<leasehold::Result<Guard>>;

struct Fixture {
    harness: Harness,
    subject: Leasehold,
    other: Leasehold,
}

impl Fixture {
    fn occupancy(&self, name: &str) -> usize {
        self.harness.occupancy(&self.other, &[name.to_owned()])
    }

    fn is_ours(&self, name: &str) -> bool {
        self.harness.inspect(&self.other, name).holder().is_some_and(|holder| holder.label == "subject")
    }

    /// Brings the first task into its phase, with the others behind it. Returns the guard of the holder that they wait
    /// for.
    fn bring(&self, phase: Phase, name: &str, tasks: &mut [Locking]) -> Option<Guard> {
        let held = || self.harness.block_on(self.other.mutex(name).try_lock()).expect("an answer").expect("free");
        let before = self.harness.sent().acquires;
        match phase {
            Phase::RequestHeld | Phase::AnswerHeld => {
                let way = if phase == Phase::RequestHeld { Way::Requests } else { Way::Replies };
                self.harness.hold(way);
                poll_all(tasks);
                until("it is sent", || self.harness.sent().acquires > before);
                let carried_out = usize::from(way == Way::Replies);
                until("the first task has reached its phase", || self.occupancy(name) == carried_out);
                assert!(tasks.iter().all(|task| !task.is_woken()));
                None
            }
            Phase::Queued | Phase::GrantedUnseen => {
                let held = held();
                poll_all(tasks);
                // This request is sent after the acquire on the same connection: from now on only the grant can wake
                // the future.
                let _ = self.harness.inspect(&self.subject, "probe");
                tasks.iter_mut().filter(|task| task.is_woken()).for_each(|task| assert!(task.poll().is_pending()));
                assert_eq!(self.occupancy(name), 2, "one entry represents all tasks");
                if phase == Phase::Queued {
                    return Some(held);
                }
                drop(held);
                until("it is granted", || tasks[0].is_woken() && self.is_ours(name));
                None
            }
        }
    }

    /// Drops the tasks of the mask, `backwards` or not, and drives the others to the end.
    fn play(&self, phase: Phase, mask: usize, backwards: usize) {
        let name = format!("{phase:?} {mask} {backwards}");
        let mutex = self.subject.mutex(&name).owner(&Owner::new());
        let mut tasks: Vec<Locking> = (0..TASKS)
            .map(|_| {
                let mutex = mutex.clone();
                Driven::new(async move { mutex.lock().await })
            })
            .collect();
        let held = self.bring(phase, &name, &mut tasks);
        let (mut dropped, mut kept) = (Vec::new(), Vec::new());
        for (number, task) in tasks.into_iter().enumerate() {
            if mask & (1 << number) == 0 { kept.push(task) } else { dropped.push(task) }
        }
        if backwards == 1 {
            dropped.reverse();
        }
        dropped.into_iter().for_each(drop);
        if matches!(phase, Phase::RequestHeld | Phase::AnswerHeld) {
            self.harness.resume(&self.subject);
        }
        drop(held);
        let guards: Vec<Guard> = kept.into_iter().map(|task| task.finish("it enters").expect("granted")).collect();
        let tokens: Vec<Token> = guards.iter().map(|guard| guard.check().expect("held")).collect();
        assert!(tokens.windows(2).all(|two| two[0] == two[1]), "one grant: {tokens:?}");
        assert!(guards.is_empty() || self.occupancy(&name) == 1, "they hold it together");
        drop(guards);
        until("nobody holds and nobody waits", || self.occupancy(&name) == 0);
    }
}

on_all_stores!(whoever_of_an_owner_is_dropped_the_others_enter, |harness| {
    let (subject, other) = (harness.connect("subject"), harness.connect_straight("other"));
    let fixture = Fixture { harness, subject, other };
    for phase in PHASES {
        for mask in 0..1 << TASKS {
            (0..2).for_each(|backwards| fixture.play(phase, mask, backwards));
        }
    }
    let Fixture { harness, subject, .. } = fixture;
    let before = harness.sent();
    assert!(harness.block_on(subject.close()).unconfirmed().is_empty());
    assert_eq!(harness.sent(), before, "close had nothing to give back");
});
