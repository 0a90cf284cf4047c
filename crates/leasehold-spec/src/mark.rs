//! Labels of the interesting paths in `step` and in the session. These are rare branches, and each exists because of a
//! bad schedule. A test that never takes a path shows nothing about it.
//!
//! Without `--cfg leasehold_lab`, [`hit`] does nothing. With it, each hit is counted twice: for the whole process,
//! whatever threads a client has, and for the thread that takes the path. So simulations that run in one process, each
//! on a thread of its own, do not count the paths of one another.

mod list;

pub use counts::*;
pub use list::Mark;

#[cfg(not(leasehold_lab))]
mod counts {
    use super::Mark;

    /// Counts that this path was taken. In this build it does nothing.
    #[inline(always)]
    pub const fn hit(_: Mark) {}
}

#[cfg(leasehold_lab)]
mod counts {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::Mark;

    const MARKS: usize = Mark::ALL.len();

    static EVERYWHERE: [AtomicU64; MARKS] = [const { AtomicU64::new(0) }; MARKS];

    thread_local! {
        static HERE: [Cell<u64>; MARKS] = const { [const { Cell::new(0) }; MARKS] };
    }

    /// Counts that this path was taken.
    pub fn hit(mark: Mark) {
        EVERYWHERE[mark as usize].fetch_add(1, Ordering::Relaxed);
        // The counts of a thread that is ending are gone already, and its destructors can still take paths.
        let _ = HERE.try_with(|here| here[mark as usize].set(here[mark as usize].get() + 1));
    }

    /// Returns how often each path was taken in this process.
    #[must_use]
    pub fn everywhere() -> Vec<(Mark, u64)> {
        Mark::ALL.iter().map(|mark| (*mark, EVERYWHERE[*mark as usize].load(Ordering::Relaxed))).collect()
    }

    /// Returns how often this thread has taken each path since the last call, or since the thread began. Sets the
    /// counts to zero.
    #[must_use]
    pub fn take_here() -> Vec<(Mark, u64)> {
        HERE.with(|here| Mark::ALL.iter().map(|mark| (*mark, here[*mark as usize].take())).collect())
    }
}

#[cfg(all(test, leasehold_lab))]
mod tests {
    use super::*;

    fn times(counts: &[(Mark, u64)], mark: Mark) -> u64 {
        counts.iter().filter(|(known, _)| *known == mark).map(|(_, times)| times).sum()
    }

    #[test]
    fn each_thread_counts_its_own_paths_and_the_process_counts_all() {
        let before = times(&everywhere(), Mark::Rallied);
        let _ = take_here();
        hit(Mark::Rallied);
        std::thread::spawn(|| {
            hit(Mark::Rallied);
            hit(Mark::Rallied);
            assert_eq!(times(&take_here(), Mark::Rallied), 2);
        })
        .join()
        .unwrap();
        let here = take_here();
        assert_eq!((times(&here, Mark::Rallied), times(&here, Mark::GhostPush)), (1, 0));
        assert_eq!(times(&take_here(), Mark::Rallied), 0, "taken");
        assert_eq!(times(&everywhere(), Mark::Rallied) - before, 3);
    }

    #[test]
    fn names_equal_the_variants() {
        for mark in Mark::ALL {
            assert_eq!(mark.name(), format!("{mark:?}"));
        }
    }
}
