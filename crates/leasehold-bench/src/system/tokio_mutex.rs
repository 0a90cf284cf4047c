//! `tokio::sync::Mutex`: the cost of a lock that does not have to outlive its process. It is fair, and works in one
//! process.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

use tokio::sync::{Mutex, MutexGuard};

use super::{Client, Lock};
use crate::error::Result;

/// The locks of this process, by name.
#[derive(Clone, Default)]
pub(crate) struct TokioMutex(Arc<std::sync::Mutex<HashMap<String, TokioLock>>>);

impl Client for TokioMutex {
    type Lock = TokioLock;

    async fn connect(_url: &str) -> Result<Self> {
        Ok(Self::default())
    }

    fn lock(&self, name: String) -> TokioLock {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(name).or_default().clone()
    }
}

#[derive(Clone, Default)]
pub(crate) struct TokioLock(Arc<Mutex<()>>);

impl Lock for TokioLock {
    type Held<'lock> = MutexGuard<'lock, ()>;

    async fn acquire(&self) -> Result<MutexGuard<'_, ()>> {
        Ok(self.0.lock().await)
    }

    async fn release<'lock>(&'lock self, guard: MutexGuard<'lock, ()>) -> Result<()> {
        drop(guard);
        Ok(())
    }

    fn token(_guard: &MutexGuard<'_, ()>) -> Option<u64> {
        None
    }
}
