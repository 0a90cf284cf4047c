//! Which flaw is on.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use super::list::Mutant;

static ACTIVE: AtomicU8 = AtomicU8::new(Mutant::None as u8);

/// Returns the name in the environment variable: of a variant of [`Mutant`], or of a patch of a script.
#[must_use]
pub fn named() -> Option<&'static str> {
    static NAME: OnceLock<Option<String>> = OnceLock::new();
    NAME.get_or_init(|| std::env::var("LEASEHOLD_MUTANT").ok()).as_deref()
}

/// Whether this flaw is on in this process.
#[must_use]
pub fn is_on(mutant: Mutant) -> bool {
    let active = ACTIVE.load(Ordering::Relaxed);
    if active == Mutant::None as u8 {
        return named().is_some_and(|name| name == format!("{mutant:?}"));
    }
    active == mutant as u8
}

/// Switches on one flaw for the whole process, and switches off the flaw before.
pub fn switch(mutant: Mutant) {
    ACTIVE.store(mutant as u8, Ordering::Relaxed);
}
