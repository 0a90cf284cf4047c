//! A worker: a process that uses Leasehold and obeys the orders of a trial.

use std::cell::RefCell;
use std::io;
use std::process::Stdio;
use std::rc::Rc;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin};
use tokio::task::spawn_local;

use super::words::{Event, Order, Slot};

/// A worker. It is killed when it is dropped.
pub(super) struct Worker {
    child: Child,
    orders: ChildStdin,
    events: Rc<RefCell<Vec<Event>>>,
}

impl Worker {
    /// Starts a worker.
    pub(super) fn start(command: std::process::Command) -> io::Result<Self> {
        let mut command = tokio::process::Command::from(command);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let orders = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let output = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let events = Rc::new(RefCell::new(Vec::new()));
        let into = Rc::clone(&events);
        spawn_local(async move {
            let mut lines = BufReader::new(output).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                into.borrow_mut().extend(line.parse::<Event>());
            }
        });
        Ok(Self { child, orders, events })
    }

    pub(super) async fn order(&mut self, slot: Slot, order: Order) -> io::Result<()> {
        self.orders.write_all(format!("{slot} {order}\n").as_bytes()).await
    }

    /// Returns the events so far, in the order in which they happened.
    pub(super) fn events(&self) -> Vec<Event> {
        self.events.borrow().clone()
    }

    /// Stops the process, as a pause of a virtual machine does.
    pub(super) fn pause(&self) -> io::Result<()> {
        self.signal(Signal::STOP)
    }

    pub(super) fn resume(&self) -> io::Result<()> {
        self.signal(Signal::CONT)
    }

    pub(super) async fn kill(&mut self) -> io::Result<()> {
        self.child.kill().await
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        let id = self.child.id().and_then(|id| Pid::from_raw(id.cast_signed())).ok_or(io::ErrorKind::NotFound)?;
        Ok(kill_process(id, signal)?)
    }
}
