//! Seeded flaws (mutants). Each switches off one rule, so that a test can show that it detects the missing rule.
//!
//! Without `--cfg leasehold_lab`, [`is_on`] is constantly false and the flaws are not compiled in. With it, the
//! environment variable `LEASEHOLD_MUTANT` or the function `switch` selects the flaw.

mod list;
#[cfg(not(leasehold_lab))]
#[path = "mutant/never.rs"]
mod switch;
#[cfg(leasehold_lab)]
mod switch;

pub use list::Mutant;
pub use switch::*;
