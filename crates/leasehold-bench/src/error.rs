//! A failure that ends the run: a benchmark that goes on after one would measure something else.

use std::fmt::Display;

/// Any failure, as text for the person who started the run.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// `Result` with [`Failure`].
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

/// Says what was tried when something failed.
pub(crate) trait Context<T> {
    fn context(self, tried: impl Display) -> Result<T>;
}

impl<T, E: Display> Context<T> for Result<T, E> {
    fn context(self, tried: impl Display) -> Result<T> {
        self.map_err(|error| format!("{tried}: {error}").into())
    }
}
