//! The events, as a number: two runs of one seed that differ in a byte or a tick have different numbers.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use super::world::Clock;

/// Whether events are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Form {
    /// Events are only counted.
    #[default]
    Brief,
    /// A line is printed for each.
    Long,
}

/// Records events. Clones write to the same trace.
#[derive(Clone)]
pub(super) struct Trace(Rc<Inner>);

struct Inner {
    clock: Clock,
    form: Form,
    hash: Cell<u64>,
    counts: RefCell<BTreeMap<&'static str, u64>>,
}

impl Trace {
    pub(super) fn new(clock: &Clock, form: Form) -> Self {
        let counts = RefCell::default();
        Self(Rc::new(Inner { clock: clock.clone(), form, hash: Cell::new(FNV_BASIS), counts }))
    }

    /// Records an event of this kind: it is counted, and is part of the hash.
    pub(super) fn record(&self, kind: &'static str, what: &str) {
        self.bytes(kind, what.as_bytes());
        *self.0.counts.borrow_mut().entry(kind).or_default() += 1;
        if self.0.form == Form::Long {
            println!("{:>10.3} s  {kind:<14} {what}", self.0.clock.now_us() as f64 / 1e6);
        }
    }

    /// Records bytes: they are part of the hash.
    pub(super) fn bytes(&self, kind: &str, bytes: &[u8]) {
        let now = self.0.clock.now_us().to_le_bytes();
        let all = now.iter().chain(kind.as_bytes()).chain(bytes);
        self.0.hash.set(all.fold(self.0.hash.get(), |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME)));
    }

    pub(super) fn hash(&self) -> u64 {
        self.0.hash.get()
    }

    pub(super) fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.0.counts.borrow().clone()
    }
}

const FNV_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;
