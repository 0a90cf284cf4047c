//! Tables whose keys are counters of this session, or names.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use leasehold_spec::Name;

/// A table with a counter as its key.
pub(crate) type CounterMap<T> = HashMap<u64, T, NumberHashing>;
/// A table with a name as its key. A name carries its own hash, so its text is not read.
pub(crate) type NameMap<T> = HashMap<Name, T, NumberHashing>;
pub(crate) type NumberHashing = BuildHasherDefault<NumberHasher>;

/// Hashes counters, and the hash that a [`Name`] brings. Nobody can choose either of them to collide, and SipHash would
/// take longer than the rest of a look-up.
#[derive(Default)]
pub(crate) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(self.0 ^ u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
