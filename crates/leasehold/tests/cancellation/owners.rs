//! Tasks of one owner that meet at its gate, and of which any are dropped, in any phase of the one that asks the store: the
//! others get what that one wanted, and nobody leaves anything.

use leasehold::{Guard, Leasehold, Owner, Token};

use crate::bench::{Bench, Way};
use crate::hand::{Driven, poll_all, until};
use crate::on_all_stores;

/// Tasks of the owner. The first of them asks the store.
const TASKS: usize = 4;

/// What the first one has come to when some are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    RequestHeld,
    AnswerHeld,
    Queued,
    GrantedUnseen,
}

const PHASES: [Phase; 4] = [Phase::RequestHeld, Phase::AnswerHeld, Phase::Queued, Phase::GrantedUnseen];

type Locking = Driven<leasehold::Result<Guard>>;

struct Ward {
    bench: Bench,
    subject: Leasehold,
    other: Leasehold,
}

impl Ward {
    fn there(&self, name: &str) -> usize {
        self.bench.there(&self.other, &[name.to_owned()])
    }

    fn is_ours(&self, name: &str) -> bool {
        self.bench.inspect(&self.other, name).holder.is_some_and(|holder| holder.label == "subject")
    }

    /// Brings the first one into its phase, with the others behind it. Answers who holds what they wait for.
    fn bring(&self, phase: Phase, name: &str, tasks: &mut [Locking]) -> Option<Guard> {
        let held = || self.bench.block_on(self.other.mutex(name).try_lock()).expect("an answer").expect("free");
        let before = self.bench.sent().acquires;
        match phase {
            Phase::RequestHeld | Phase::AnswerHeld => {
                let way = if phase == Phase::RequestHeld { Way::Requests } else { Way::Replies };
                self.bench.hold(way);
                poll_all(tasks);
                until("it is sent", || self.bench.sent().acquires > before);
                let carried_out = usize::from(way == Way::Replies);
                until("it has come so far", || self.there(name) == carried_out);
                assert!(tasks.iter().all(|task| !task.is_woken()));
                None
            }
            Phase::Queued | Phase::GrantedUnseen => {
                let held = held();
                poll_all(tasks);
                // Asked after it on the same connection: what wakes it from then on is the grant.
                let _ = self.bench.inspect(&self.subject, "probe");
                tasks.iter_mut().filter(|task| task.is_woken()).for_each(|task| assert!(task.poll().is_pending()));
                assert_eq!(self.there(name), 2, "one stands there for all");
                if phase == Phase::Queued {
                    return Some(held);
                }
                drop(held);
                until("it is granted", || tasks[0].is_woken() && self.is_ours(name));
                None
            }
        }
    }

    /// Drops those of the mask, `backwards` or not, and sees the others through.
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
            self.bench.resume(&self.subject);
        }
        drop(held);
        let guards: Vec<Guard> = kept.into_iter().map(|task| task.finish("it enters").expect("granted")).collect();
        let tokens: Vec<Token> = guards.iter().map(|guard| guard.check().expect("held")).collect();
        assert!(tokens.windows(2).all(|two| two[0] == two[1]), "one grant: {tokens:?}");
        assert!(guards.is_empty() || self.there(&name) == 1, "they hold it together");
        drop(guards);
        until("nobody holds and nobody waits", || self.there(&name) == 0);
    }
}

on_all_stores!(whoever_of_an_owner_is_dropped_the_others_enter, |bench| {
    let (subject, other) = (bench.connect("subject"), bench.connect_straight("other"));
    let ward = Ward { bench, subject, other };
    for phase in PHASES {
        for mask in 0..1 << TASKS {
            (0..2).for_each(|backwards| ward.play(phase, mask, backwards));
        }
    }
    let Ward { bench, subject, .. } = ward;
    let before = bench.sent();
    assert!(bench.block_on(subject.close()).unconfirmed().is_empty());
    assert_eq!(bench.sent(), before, "closing found nothing to give back");
});
