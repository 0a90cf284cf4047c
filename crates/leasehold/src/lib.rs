//! Leasehold.
mod error;
pub mod fence;

pub use error::{Error, ErrorKind, Lost, Result};
pub use leasehold_spec::Token;
