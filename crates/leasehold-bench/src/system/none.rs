//! No lock. A benchmark that counts lost updates and never finds one could simply be unable to find them.

use super::{Client, Lock};
use crate::error::Result;

#[derive(Clone)]
pub(crate) struct Unlocked;

impl Client for Unlocked {
    type Lock = Self;

    async fn connect(_url: &str) -> Result<Self> {
        Ok(Self)
    }

    fn lock(&self, _name: String) -> Self {
        Self
    }
}

impl Lock for Unlocked {
    type Held<'lock> = ();

    async fn acquire(&self) -> Result<()> {
        Ok(())
    }

    async fn release(&self, _held: ()) -> Result<()> {
        Ok(())
    }

    fn token(_held: &()) -> Option<u64> {
        None
    }
}
