//! Tables whose keys are counters of this session, or names.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use leasehold_spec::Name;

/// A table with a counter as its key.
pub(crate) type CounterMap<T> = HashMap<u64, T, CounterHashing>;
/// A table with a name as its key. A name brings its hash.
pub(crate) type NameMap<T> = HashMap<Name, T, CounterHashing>;
pub(crate) type CounterHashing = BuildHasherDefault<CounterHasher>;

/// Hashes counters. Nobody can choose them to collide, and SipHash would take longer than the rest of a look-up.
#[derive(Default)]
pub(crate) struct CounterHasher(u64);

impl Hasher for CounterHasher {
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
