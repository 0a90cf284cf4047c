//! The places where workers run: a thread of this process, or a process of their own.

use std::env;
use std::io::{self, BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::thread::{self, JoinHandle};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::plan::{Place, Plan};
use crate::shop::Stock;
use crate::worker::{Note, Order, Role, team};

/// The manager's handle of a team. Dropping it ends a process; a thread ends by itself.
pub(crate) struct Team {
    body: Body,
}

enum Body {
    Thread { orders: UnboundedSender<Order> },
    Process { child: Child, orders: ChildStdin },
}

/// A note, and the number of its team.
pub(crate) type Signed = (usize, Note);

impl Team {
    /// Starts a team in a thread.
    pub(crate) fn in_thread(
        number: usize,
        plan: &Plan,
        role: Role,
        stock: Stock,
        notes: UnboundedSender<Signed>,
    ) -> Result<Self, String> {
        let (orders, received) = unbounded_channel();
        let (own_notes, sent) = unbounded_channel();
        let plan = plan.clone();
        let runtime = runtime()?;
        let work = move || {
            runtime.block_on(async {
                let passing_on = tokio::spawn(pass_on(number, sent, notes));
                team(&plan, role, stock, received, own_notes).await;
                let _ = passing_on.await;
            });
        };
        let _: JoinHandle<()> = thread::Builder::new()
            .name(format!("team-{number}"))
            .spawn(work)
            .map_err(|e| format!("cannot start a thread: {e}"))?;
        Ok(Self { body: Body::Thread { orders } })
    }

    /// Starts a team in a process, which runs this program again.
    pub(crate) fn in_process(
        number: usize,
        plan: &Plan,
        role: Role,
        notes: UnboundedSender<Signed>,
    ) -> Result<Self, String> {
        let broken = |e: io::Error| format!("cannot start a process: {e}");
        let mut child = Command::new(env::current_exe().map_err(broken)?)
            .arg("--team")
            // Ctrl-C goes to the manager, which notifies the others: a stopped process would not receive the signal.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(broken)?;
        let (Some(mut orders), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            unreachable!("both were asked for as pipes")
        };
        let told = write_line(&mut orders, &(plan, role));
        thread::spawn(move || {
            // Bounded by what the process says: its end ends it.
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let note = serde_json::from_str(&line).unwrap_or_else(|_| Note::Failed(format!("it said {line:?}")));
                let _ = notes.send((number, note));
            }
            // Comes after `Done` when all is well, and is then of no interest.
            let _ = notes.send((number, Note::Failed("a team process ended before its work was done".into())));
        });
        let team = Self { body: Body::Process { child, orders } };
        told.map(|()| team).map_err(broken)
    }

    pub(crate) fn order(&mut self, order: Order) {
        // One that has gone says so itself, in its notes.
        match &mut self.body {
            Body::Thread { orders } => drop(orders.send(order)),
            Body::Process { orders, .. } => drop(write_line(orders, &order)),
        }
    }

    /// Stops a process, and returns when it has stopped. A thread is not stopped, and waits.
    pub(crate) fn freeze(&self) -> Result<(), String> {
        let Body::Process { child, .. } = &self.body else { return Ok(()) };
        let broken = |e: io::Error| format!("cannot stop a process: {e}");
        let pid = pid(child);
        kill_process(pid, Signal::STOP).map_err(|e| broken(e.into()))?;
        // The signal is only on its way when `kill` returns.
        let options = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        match waitid(WaitId::Pid(pid), options).map_err(|e| broken(e.into()))? {
            Some(status) if status.stopped() => Ok(()),
            _ => Err("cannot stop a process: it has ended".into()),
        }
    }

    /// Continues a process that was stopped.
    pub(crate) fn thaw(&self) {
        if let Body::Process { child, .. } = &self.body {
            // One that has ended says so in its notes.
            let _ = kill_process(pid(child), Signal::CONT);
        }
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        if let Body::Process { child, .. } = &mut self.body {
            // It has said its last word, or is not waited for any longer.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn pid(child: &Child) -> Pid {
    let pid = i32::try_from(child.id()).expect("process ids are below 2^22");
    Pid::from_raw(pid).expect("the process id of a child is not 0")
}

async fn pass_on(number: usize, mut from: UnboundedReceiver<Note>, to: UnboundedSender<Signed>) {
    while let Some(note) = from.recv().await {
        let _ = to.send((number, note));
    }
}

/// Runs the team in a process that [`Team::in_process`] has started.
pub(crate) fn work_for_a_manager() -> Result<ExitCode, String> {
    let mut input = BufReader::new(io::stdin()).lines().map_while(Result::ok);
    let first = input.next().ok_or("--team is internal: it reads a plan from standard input")?;
    let (plan, role): (Plan, Role) = serde_json::from_str(&first).map_err(|e| format!("this is no plan: {e}"))?;
    let Place::Redis { url } = plan.place.clone() else { return Err("processes have no stock in memory".into()) };

    let (given, orders) = unbounded_channel();
    thread::spawn(move || {
        // Ends with the manager; then `given` goes, and the team stops.
        for line in input {
            let Ok(order) = serde_json::from_str(&line) else { return };
            let _ = given.send(order);
        }
    });
    runtime()?.block_on(async {
        let (notes, mut said) = unbounded_channel();
        let printing = tokio::spawn(async move {
            while let Some(note) = said.recv().await {
                // A write fails if the reader has gone. The order to stop comes by the other pipe.
                let _: io::Result<()> = write_line(&mut io::stdout(), &note);
            }
        });
        match Stock::on_redis(&plan, &url).await {
            Ok(stock) => team(&plan, role, stock, orders, notes).await,
            Err(why) => {
                let _ = notes.send(Note::Failed(why));
                drop(notes);
            }
        }
        let _ = printing.await;
    });
    Ok(ExitCode::SUCCESS)
}

fn write_line(to: &mut impl io::Write, what: &impl serde::Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    to.write_all(&line)?;
    to.flush()
}

fn runtime() -> Result<Runtime, String> {
    Builder::new_current_thread().enable_all().build().map_err(|e| format!("no runtime: {e}"))
}
