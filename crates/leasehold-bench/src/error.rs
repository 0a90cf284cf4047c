//! A failure that ends the run: a benchmark that continued after a failure would measure something else.

use std::fmt::Display;

/// Any failure, as text for the user.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// `Result` with [`Failure`].
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

/// Adds to an error what the program tried.
pub(crate) trait Context<T> {
    fn context(self, tried: impl Display) -> Result<T>;
}

impl<T, E: Display> Context<T> for Result<T, E> {
    fn context(self, tried: impl Display) -> Result<T> {
        self.map_err(|error| format!("{tried}: {error}").into())
    }
}
