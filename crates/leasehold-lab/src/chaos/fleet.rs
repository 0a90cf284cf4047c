//! The client processes: starts, kills and stops them, and collects their results.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::names::Names;
use super::process::{CLIENT, us};
use leasehold_testkit::Random;

/// The number of clients behind the faulty proxy, and of the others.
pub(crate) const PROXIED: usize = 5;
pub(crate) const DIRECT: usize = 2;
pub(crate) const CLIENTS: usize = PROXIED + DIRECT;

/// Whether the client in this slot is never killed: one behind the faulty proxy, and one that is not. Such a client
/// releases all its locks, so they are free soon after the repair, however long their leases are.
pub(crate) fn is_keeper(slot: usize) -> bool {
    slot == 0 || slot == PROXIED
}

/// Whether the client with this label is never killed.
pub(crate) fn is_keepers_label(label: &str) -> bool {
    slot_of(label).is_some_and(is_keeper)
}

/// Returns the slot of the client with this label.
pub(crate) fn slot_of(label: &str) -> Option<usize> {
    label.strip_prefix('c').and_then(|label| label.split('.').next()?.parse().ok())
}

/// All clients.
#[derive(Debug)]
pub(crate) struct Fleet {
    slots: Vec<Slot>,
    registers: u16,
    shift: Option<Shift>,
}

/// The work of the clients in a round.
#[derive(Clone, Debug)]
struct Shift {
    names: Names,
    random: Random,
    dir: PathBuf,
}

/// A client's slot, and its current process.
#[derive(Debug)]
struct Slot {
    number: usize,
    url: String,
    /// How many processes this slot has had.
    incarnation: u64,
    process: Option<Process>,
}

#[derive(Debug)]
struct Process {
    child: Child,
    orders: ChildStdin,
    lines: Receiver<String>,
    is_stopped: bool,
}

/// Identifies a process, and not another one that has its slot now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientId {
    pub(crate) slot: usize,
    incarnation: u64,
}

/// The results of the clients at the end of a round.
#[derive(Debug, Default)]
pub(crate) struct Drained {
    /// Descriptions of the tasks that did not end.
    pub(crate) stuck: Vec<String>,
    /// Complaints of the clients.
    pub(crate) odd: Vec<String>,
    /// The faults that struck inside the clients.
    pub(crate) struck: Vec<String>,
    /// Events of the clients, with their counts.
    pub(crate) tallies: Vec<(String, u64)>,
}

impl Fleet {
    /// Starts a client for each of these URLs.
    pub(crate) fn start(urls: Vec<String>, registers: u16) -> Self {
        let slots = urls.into_iter().enumerate();
        let slots = slots.map(|(number, url)| Slot { number, url, incarnation: 0, process: None }).collect();
        let mut fleet = Self { slots, registers, shift: None };
        for slot in 0..fleet.slots.len() {
            fleet.revive(slot);
        }
        fleet
    }

    /// Orders all clients to work, and to write histories into this directory.
    pub(crate) fn begin(&mut self, names: Names, seed: u64, dir: &Path) {
        self.shift = Some(Shift { names, random: Random::new(seed), dir: dir.to_owned() });
        for slot in 0..self.slots.len() {
            self.order(slot);
        }
    }

    /// Returns the process in this slot, if it runs.
    pub(crate) fn running(&self, slot: usize) -> Option<ClientId> {
        let place = self.slots.get(slot)?;
        let process = place.process.as_ref()?;
        (!process.is_stopped).then_some(ClientId { slot, incarnation: place.incarnation })
    }

    /// Returns the label of the process in this slot.
    pub(crate) fn label(&self, slot: usize) -> String {
        self.slots[slot].label()
    }

    /// Returns the running process with this label.
    pub(crate) fn labelled(&self, label: &str) -> Option<ClientId> {
        let slot = self.slots.iter().position(|slot| slot.label() == label)?;
        self.running(slot)
    }

    /// Kills a process and waits until it is gone. Returns its label.
    pub(crate) fn kill(&mut self, who: ClientId) -> Option<String> {
        let slot = self.of(who)?;
        slot.process.take()?.end();
        Some(slot.label())
    }

    /// Starts another process in this slot, unless it has one.
    pub(crate) fn revive(&mut self, slot: usize) {
        if self.slots[slot].process.is_none() {
            let registers = self.registers;
            self.slots[slot].start(registers);
            self.order(slot);
        }
    }

    /// Sends an order to a process.
    pub(crate) fn send(&mut self, who: ClientId, order: &str) {
        if let Some(slot) = self.of(who) {
            slot.send(order);
        }
    }

    /// Stops a process (SIGSTOP).
    pub(crate) fn stop(&mut self, who: ClientId) {
        self.signal(who, Signal::STOP);
    }

    /// Resumes a process (SIGCONT).
    pub(crate) fn cont(&mut self, who: ClientId) {
        self.signal(who, Signal::CONT);
    }

    /// Ends the round: within this time every task must get its lock or an error.
    pub(crate) fn drain(&mut self, within: Duration) -> Drained {
        self.shift = None;
        let mut drained = Drained::default();
        for slot in &mut self.slots {
            slot.send(&format!("drain {}", within.as_millis()));
        }
        // A silent client gets more time than a client that reports stuck tasks.
        let deadline = Instant::now() + within + Duration::from_secs(5);
        for slot in &mut self.slots {
            slot.collect(deadline, &mut drained);
        }
        drained
    }

    fn order(&mut self, slot: usize) {
        let Some(shift) = &mut self.shift else { return };
        let (Names { round, epoch }, seed) = (shift.names, shift.random.number());
        let file = shift.dir.join(format!("{}.jsonl", self.slots[slot].label()));
        self.slots[slot].send(&format!("round {round} {epoch} {seed} {}", file.display()));
    }

    fn of(&mut self, who: ClientId) -> Option<&mut Slot> {
        self.slots.get_mut(who.slot).filter(|slot| slot.incarnation == who.incarnation)
    }

    fn signal(&mut self, who: ClientId, signal: Signal) {
        let Some(process) = self.of(who).and_then(|slot| slot.process.as_mut()) else { return };
        if kill_process(Pid::from_child(&process.child), signal).is_ok() {
            process.is_stopped = signal == Signal::STOP;
        }
    }
}

impl Slot {
    fn label(&self) -> String {
        format!("c{}.{}", self.number, self.incarnation)
    }

    fn start(&mut self, registers: u16) {
        self.incarnation += 1;
        let mut child = us()
            .args([CLIENT, &self.url, &registers.to_string(), &self.label()])
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the lab can start itself");
        let orders = child.stdin.take().expect("it is piped");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        self.process = Some(Process { child, orders, lines, is_stopped: false });
    }

    /// Sends an order. A process that has died is noticed later, by `collect`.
    fn send(&mut self, order: &str) {
        if let Some(process) = &mut self.process {
            let _noticed_later = writeln!(process.orders, "{order}");
        }
    }

    fn collect(&mut self, deadline: Instant, drained: &mut Drained) {
        let label = self.label();
        let Some(process) = &mut self.process else { return };
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match process.lines.recv_timeout(left) {
                Ok(line) => match line.split_once(' ') {
                    Some(("drained", tally)) => {
                        let tally: std::collections::BTreeMap<String, u64> =
                            serde_json::from_str(tally).expect("our own client wrote it");
                        return drained.tallies.extend(tally);
                    }
                    Some(("struck", kind)) => drained.struck.push(kind.to_owned()),
                    Some(("stuck", task)) => drained.stuck.push(format!("{task} (client task, call, name, since µs)")),
                    _ => drained.odd.push(format!("{label} says {line:?}")),
                },
                Err(RecvTimeoutError::Timeout) => return drained.stuck.push(format!("{label} says nothing")),
                Err(RecvTimeoutError::Disconnected) => {
                    let status = process.child.wait();
                    return drained.stuck.push(format!("{label} died by itself: {status:?}"));
                }
            }
        }
    }
}

impl Process {
    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}
