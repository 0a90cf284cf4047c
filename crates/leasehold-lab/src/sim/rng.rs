//! Randomness, all of it from one seed.

/// SplitMix64: small, fast, and good enough to choose schedules by.
#[derive(Clone, Debug)]
pub(super) struct Rng(u64);

impl Rng {
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = Self(seed ^ 0x6c65_6173_6568_6f6c);
        rng.next();
        rng
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns another generator, which later use of this one does not change.
    pub(super) fn fork(&mut self) -> Self {
        Self::new(self.next())
    }

    /// Returns a number below `end`, which is not 0.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// Returns a number from `first` to `last`, both included.
    pub(super) fn between(&mut self, first: u64, last: u64) -> u64 {
        // A release build does not check for overflows, and would wait for half a million years.
        assert!(first <= last, "from {first} to {last}");
        first + self.below(last - first + 1)
    }

    /// Returns a number from `first` to `last`; each order of magnitude is equally likely, so most numbers are small,
    /// and some are large.
    pub(super) fn scaled(&mut self, first: u64, last: u64) -> u64 {
        let (low, high) = ((first.max(1) as f64).ln(), (last.max(1) as f64).ln());
        let part = self.below(1 << 32) as f64 / (1u64 << 32) as f64;
        ((low + (high - low) * part).exp() as u64).clamp(first, last)
    }

    pub(super) fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    pub(super) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }
}
