//! When the inbox may move to the lane, and when it stays at home (P17).

/// The inbox moves after this many grants by message, each less than [`BRISK_US`] after the one before.
const GRANTS_TO_MOVE: u32 = 4;
const BRISK_US: u64 = 1_000_000;
/// If the lane has received no grant for this long, the inbox returns, because checking the lane costs more than it gains.
const IDLE_US: u64 = 5_000_000;
/// After the lane has failed, the inbox stays at home for this long. The time doubles with each further failure.
const STAY_MIN_US: u64 = 10_000_000;
const STAY_MAX_US: u64 = 640_000_000;
/// If the lane does not fail for this many times the next stay, that stay is the shortest one again.
const FORGIVEN_AFTER_STAYS: u64 = 10;

/// How quickly grants come by messages.
#[derive(Default)]
pub(super) struct GrantPace {
    /// How many grants came in quick succession.
    grants: u32,
    /// When the last grant came, or when the inbox moved to the lane.
    granted_us: u64,
}

impl GrantPace {
    pub(super) fn note_grant(&mut self, now_us: u64) {
        self.grants = if self.is_recent(now_us) { self.grants.saturating_add(1) } else { 1 };
        self.granted_us = now_us;
    }

    /// Returns whether enough grants came in quick succession, and the last one just now.
    pub(super) fn is_brisk(&self, now_us: u64) -> bool {
        self.grants >= GRANTS_TO_MOVE && self.is_recent(now_us)
    }

    /// Returns whether no grant has come for long.
    pub(super) fn is_idle(&self, now_us: u64) -> bool {
        now_us.saturating_sub(self.granted_us) > IDLE_US
    }

    /// Notes that the inbox has moved to the lane: the time without a grant begins.
    pub(super) fn note_move(&mut self, now_us: u64) {
        self.granted_us = now_us;
    }

    /// Begins the count again, because the inbox is at home again.
    pub(super) fn begin_again(&mut self) {
        self.grants = 0;
    }

    fn is_recent(&self, now_us: u64) -> bool {
        now_us.saturating_sub(self.granted_us) < BRISK_US
    }
}

/// How long the inbox stays at home.
pub(super) struct StayHome {
    /// `u64::MAX`: for good.
    until_us: u64,
    /// The length of the next stay after a failure.
    next_us: u64,
}

impl StayHome {
    pub(super) fn new() -> Self {
        Self { until_us: 0, next_us: STAY_MIN_US }
    }

    pub(super) fn is_over(&self, now_us: u64) -> bool {
        now_us >= self.until_us
    }

    /// Begins a stay after the lane has failed. The stay after the next failure is longer, unless that comes much later.
    pub(super) fn after_failure(&mut self, now_us: u64) {
        if now_us > self.until_us.saturating_add(FORGIVEN_AFTER_STAYS * self.next_us) {
            self.next_us = STAY_MIN_US;
        }
        self.until_us = self.until_us.max(now_us + self.next_us);
        self.next_us = (self.next_us * 2).min(STAY_MAX_US);
    }

    /// Begins the shortest stay: somebody needs the inbox at home, and the lane has not failed.
    pub(super) fn extend_by_min(&mut self, now_us: u64) {
        self.until_us = self.until_us.max(now_us + STAY_MIN_US);
    }

    pub(super) fn forbid(&mut self) {
        self.until_us = u64::MAX;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_in_quick_succession_are_brisk() {
        let are_brisk = |apart_us: u64| {
            let mut pace = GrantPace::default();
            [1, 2, 3, 4, 5].map(|nth| {
                pace.note_grant(nth * apart_us);
                pace.is_brisk(nth * apart_us)
            })
        };
        assert_eq!(are_brisk(BRISK_US - 1), [false, false, false, true, true]);
        assert_eq!(are_brisk(BRISK_US), [false; 5], "each a second after the one before");
    }

    #[test]
    fn grants_are_not_brisk_a_second_after_the_last_one() {
        let mut pace = GrantPace::default();
        (0..GRANTS_TO_MOVE).for_each(|_| pace.note_grant(7));
        assert!(pace.is_brisk(6 + BRISK_US) && !pace.is_brisk(7 + BRISK_US));
    }

    #[test]
    fn a_lane_without_a_grant_is_idle_after_a_while() {
        let mut pace = GrantPace::default();
        pace.note_move(7);
        assert!(!pace.is_idle(7 + IDLE_US) && pace.is_idle(8 + IDLE_US));
    }

    #[test]
    fn the_inbox_stays_for_longer_after_each_further_failure() {
        let (mut stay, mut now_us) = (StayHome::new(), 0);
        for pause_us in [10, 20, 40, 80, 160, 320, 640, 640].map(|s| s * 1_000_000) {
            stay.after_failure(now_us);
            now_us += pause_us;
            assert!(!stay.is_over(now_us - 1) && stay.is_over(now_us));
        }
        now_us += FORGIVEN_AFTER_STAYS * STAY_MAX_US + 1;
        stay.after_failure(now_us);
        assert!(stay.is_over(now_us + STAY_MIN_US), "the failures before are long ago");
    }

    #[test]
    fn a_short_stay_does_not_end_a_longer_one() {
        let mut stay = StayHome::new();
        stay.extend_by_min(0);
        assert!(!stay.is_over(STAY_MIN_US - 1) && stay.is_over(STAY_MIN_US));
        stay.forbid();
        stay.extend_by_min(STAY_MIN_US);
        stay.after_failure(STAY_MIN_US);
        assert!(!stay.is_over(u64::MAX - 1));
    }
}
