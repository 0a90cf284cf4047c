//! The client processes: started, killed, stopped, and asked what became of them.

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

/// How many clients are behind the faulty proxy, and how many are not.
pub(crate) const PROXIED: usize = 5;
pub(crate) const DIRECT: usize = 2;
pub(crate) const CLIENTS: usize = PROXIED + DIRECT;

/// Whether the client in this place is never killed: one behind the faulty proxy, and one that is not. What such a client
/// has it gives back, so that its locks are free soon after a healing, however long their leases are.
pub(crate) fn is_keeper(slot: usize) -> bool {
    slot == 0 || slot == PROXIED
}

/// Whether a client that calls itself so is one.
pub(crate) fn is_keepers_label(label: &str) -> bool {
    slot_of(label).is_some_and(is_keeper)
}

/// The place of a client, by what it calls itself.
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

/// What the clients work on.
#[derive(Clone, Debug)]
struct Shift {
    names: Names,
    random: Random,
    dir: PathBuf,
}

/// A client's place, and the process that has it now.
#[derive(Debug)]
struct Slot {
    number: usize,
    url: String,
    /// How many processes have had the place.
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

/// Says that a process is meant, and not the one that has its place now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Who {
    pub(crate) slot: usize,
    incarnation: u64,
}

/// What a round's end showed.
#[derive(Debug, Default)]
pub(crate) struct Drained {
    /// Who did not come to an end, in words.
    pub(crate) stuck: Vec<String>,
    /// What clients complained about.
    pub(crate) odd: Vec<String>,
    /// Which faults struck inside of the clients.
    pub(crate) struck: Vec<String>,
    /// What happened to the clients, and how often.
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

    /// Has everybody work, and write histories into this directory.
    pub(crate) fn begin(&mut self, names: Names, seed: u64, dir: &Path) {
        self.shift = Some(Shift { names, random: Random::new(seed), dir: dir.to_owned() });
        for slot in 0..self.slots.len() {
            self.order(slot);
        }
    }

    /// A process in this place that runs.
    pub(crate) fn running(&self, slot: usize) -> Option<Who> {
        let place = self.slots.get(slot)?;
        let process = place.process.as_ref()?;
        (!process.is_stopped).then_some(Who { slot, incarnation: place.incarnation })
    }

    /// What the process in this place calls itself.
    pub(crate) fn label(&self, slot: usize) -> String {
        self.slots[slot].label()
    }

    /// The running process that calls itself so.
    pub(crate) fn labelled(&self, label: &str) -> Option<Who> {
        let slot = self.slots.iter().position(|slot| slot.label() == label)?;
        self.running(slot)
    }

    /// Kills it, and returns when it is gone: with what it called itself.
    pub(crate) fn kill(&mut self, who: Who) -> Option<String> {
        let slot = self.of(who)?;
        slot.process.take()?.end();
        Some(slot.label())
    }

    /// Starts another process in this place, unless there is one.
    pub(crate) fn revive(&mut self, slot: usize) {
        if self.slots[slot].process.is_none() {
            let registers = self.registers;
            self.slots[slot].start(registers);
            self.order(slot);
        }
    }

    /// Has it do something at once.
    pub(crate) fn tell(&mut self, who: Who, order: &str) {
        if let Some(slot) = self.of(who) {
            slot.tell(order);
        }
    }

    /// Freezes it.
    pub(crate) fn stop(&mut self, who: Who) {
        self.signal(who, Signal::STOP);
    }

    /// Lets it go on.
    pub(crate) fn cont(&mut self, who: Who) {
        self.signal(who, Signal::CONT);
    }

    /// Ends the round: everybody has to get what it waits for, or to hear why not, within this time.
    pub(crate) fn drain(&mut self, within: Duration) -> Drained {
        self.shift = None;
        let mut drained = Drained::default();
        for slot in &mut self.slots {
            slot.tell(&format!("drain {}", within.as_millis()));
        }
        // A client that says nothing at all gets some more than one that has stuck tasks.
        let deadline = Instant::now() + within + Duration::from_secs(5);
        for slot in &mut self.slots {
            slot.hear_out(deadline, &mut drained);
        }
        drained
    }

    fn order(&mut self, slot: usize) {
        let Some(shift) = &mut self.shift else { return };
        let (Names { round, epoch }, seed) = (shift.names, shift.random.number());
        let file = shift.dir.join(format!("{}.jsonl", self.slots[slot].label()));
        self.slots[slot].tell(&format!("round {round} {epoch} {seed} {}", file.display()));
    }

    fn of(&mut self, who: Who) -> Option<&mut Slot> {
        self.slots.get_mut(who.slot).filter(|slot| slot.incarnation == who.incarnation)
    }

    fn signal(&mut self, who: Who, signal: Signal) {
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
        let (tell, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if tell.send(line).is_err() {
                    break;
                }
            }
        });
        self.process = Some(Process { child, orders, lines, is_stopped: false });
    }

    /// A process that has died by itself is noticed when it is heard out.
    fn tell(&mut self, order: &str) {
        if let Some(process) = &mut self.process {
            let _noticed_later = writeln!(process.orders, "{order}");
        }
    }

    fn hear_out(&mut self, deadline: Instant, drained: &mut Drained) {
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
                    Some(("stuck", who)) => drained.stuck.push(format!("{who} (client task, what, name, since µs)")),
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
