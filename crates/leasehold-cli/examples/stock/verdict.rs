//! The verdict on the figures.

/// The figures.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Books {
    pub(crate) start: u64,
    pub(crate) sold: u64,
    pub(crate) left: u64,
    pub(crate) refused: u64,
    pub(crate) end: End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    SoldOut,
    Interrupted,
}

/// The purpose of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    NoLock,
    Lock,
    /// A worker is stopped beyond its lease.
    Stopped,
    StoppedFenced,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Every piece was sold once.
    Sound,
    /// Every piece was sold once, and the write of the stopped worker was rejected.
    Refused,
    /// Oversold without a lock.
    NoLock,
    /// Not oversold without a lock, by luck.
    Luck,
    /// Oversold by the worker that was stopped.
    NoFence,
    /// A demonstration was interrupted: there is no verdict.
    Open,
    /// A result that must not occur.
    Wrong(&'static str),
}

impl Books {
    /// Returns how many pieces were sold that did not exist. If it is negative, pieces have vanished.
    pub(crate) fn oversold(&self) -> i128 {
        i128::from(self.sold) + i128::from(self.left) - i128::from(self.start)
    }

    pub(crate) fn verdict(&self, mode: Mode) -> Verdict {
        let balanced = self.oversold() == 0;
        if self.oversold() < 0 {
            return Verdict::Wrong("pieces have vanished that nobody bought");
        }
        if self.end == End::SoldOut && self.left > 0 {
            return Verdict::Wrong("the sale has ended, and pieces are left");
        }
        match (mode, self.end) {
            (Mode::Lock, _) if balanced => Verdict::Sound,
            (Mode::Lock, _) => Verdict::Wrong("oversold under a lock"),
            (_, End::Interrupted) => Verdict::Open,
            (Mode::NoLock, _) if balanced => Verdict::Luck,
            (Mode::NoLock, _) => Verdict::NoLock,
            (Mode::Stopped, _) if balanced => {
                Verdict::Wrong("a worker wrote beyond its lease, and nothing was oversold")
            }
            (Mode::Stopped, _) => Verdict::NoFence,
            (Mode::StoppedFenced, _) if !balanced => Verdict::Wrong("oversold behind a fence"),
            (Mode::StoppedFenced, _) if self.refused == 0 => {
                Verdict::Wrong("a worker was stopped beyond its lease, and the fence refused nobody")
            }
            (Mode::StoppedFenced, _) => Verdict::Refused,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODES: [Mode; 4] = [Mode::NoLock, Mode::Lock, Mode::Stopped, Mode::StoppedFenced];

    fn books(sold: u64, left: u64) -> Books {
        Books { start: 10, sold, left, refused: 1, end: End::SoldOut }
    }

    #[test]
    fn books_that_balance_are_sound_where_they_must() {
        assert_eq!(books(10, 0).verdict(Mode::Lock), Verdict::Sound);
        assert_eq!(books(10, 0).verdict(Mode::StoppedFenced), Verdict::Refused);
        assert_eq!(books(10, 0).verdict(Mode::NoLock), Verdict::Luck);
    }

    #[test]
    fn overselling_is_the_lesson_or_a_bug() {
        assert_eq!(books(15, 0).verdict(Mode::NoLock), Verdict::NoLock);
        assert_eq!(books(20, 0).verdict(Mode::Stopped), Verdict::NoFence);
        for mode in [Mode::Lock, Mode::StoppedFenced] {
            assert!(matches!(books(11, 0).verdict(mode), Verdict::Wrong(_)), "{mode:?}");
        }
    }

    #[test]
    fn a_demonstration_that_shows_nothing_is_wrong() {
        assert!(matches!(books(10, 0).verdict(Mode::Stopped), Verdict::Wrong(_)));
        assert!(matches!(Books { refused: 0, ..books(10, 0) }.verdict(Mode::StoppedFenced), Verdict::Wrong(_)));
    }

    #[test]
    fn pieces_neither_vanish_nor_stay() {
        for mode in MODES {
            assert!(matches!(books(9, 0).verdict(mode), Verdict::Wrong(_)), "{mode:?}");
            assert!(matches!(books(9, 1).verdict(mode), Verdict::Wrong(_)), "{mode:?}");
        }
    }

    #[test]
    fn an_interrupt_leaves_only_a_lock_to_be_judged() {
        let interrupted = |sold, left| Books { end: End::Interrupted, ..books(sold, left) };
        assert_eq!(interrupted(4, 6).verdict(Mode::Lock), Verdict::Sound);
        assert!(matches!(interrupted(5, 6).verdict(Mode::Lock), Verdict::Wrong(_)));
        for mode in [Mode::NoLock, Mode::Stopped, Mode::StoppedFenced] {
            assert_eq!(interrupted(5, 6).verdict(mode), Verdict::Open, "{mode:?}");
        }
    }
}
