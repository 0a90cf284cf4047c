//! The stage: the processes, servers and clocks with which a scene begins.

use std::future::Future;

use crate::client::{Client, Local, ServerId};
use crate::redis::Command;

/// The first thread of a process.
pub(crate) type Body = Box<dyn FnOnce(Client) -> Local<()>>;

/// The beginning of a scene.
#[derive(Default)]
pub struct Stage {
    pub(crate) processes: Vec<(&'static str, Body)>,
    pub(crate) ahead_ms: Vec<u64>,
    pub(crate) servers: usize,
    pub(crate) before: Vec<(ServerId, Command)>,
}

impl std::fmt::Debug for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stage").field("processes", &self.processes.len()).field("servers", &self.servers).finish()
    }
}

impl Stage {
    /// Adds a process with one thread. The schedule decides when it begins.
    pub fn process<F: Future<Output = ()> + 'static>(
        &mut self,
        name: &'static str,
        body: impl FnOnce(Client) -> F + 'static,
    ) {
        let begins = move |client: Client| -> Local<()> {
            Box::pin(async move {
                client.sleep_ms(0).await;
                body(client).await;
            })
        };
        self.processes.push((name, Box::new(begins)));
        self.ahead_ms.push(0);
    }

    /// Sets the clock of the process that was added last ahead.
    pub fn clock_ahead(&mut self, ms: u64) {
        *self.ahead_ms.last_mut().expect("a process was added before") = ms;
    }

    /// Sets the number of servers. Without a call there is one.
    pub fn servers(&mut self, count: usize) {
        self.servers = count;
    }

    /// Sends a command to the first server before the scene begins.
    pub fn before(&mut self, command: Command) {
        self.before.push((0, command));
    }
}
