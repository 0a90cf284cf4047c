//! Faults of the server: its process, its clock, its disk, its memory, and the commands of an operator.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use leasehold_testkit::{RedisServer, Resp, Value, boottime_us};

use super::super::kind::Kind;
use super::super::ledger::Ledger;
use super::super::node::resp;
use super::super::plan::Strike;
use super::super::stage::Stage;
use super::{End, Nemesis};
use leasehold_testkit::Random;

/// How far clocks are set, in microseconds.
const FORWARD_US: (u64, u64) = (200_000, 20_000_000);
const BACK_US: (u64, u64) = (200_000, 4_000_000);
/// Longer than a server that flushes each second delays a write.
const SLOW_FLUSH: Duration = Duration::from_millis(1_500);

/// The result of a command.
type Reply = std::io::Result<Value>;

impl Nemesis<'_> {
    pub(super) fn server_process(&mut self, strike: &Strike, at: usize, dice: &mut Random) -> Option<End> {
        let (kind, stage, ledger) = (strike.kind, &mut *self.stage, self.ledger);
        ledger.note(kind, &format!("node {at} for {} ms", strike.for_ms));
        match kind {
            Kind::CrashKeeping => {
                stage.node(at).server.kill();
                ledger.struck(kind);
                Some(Box::new(move |stage, _| stage.node(at).server.restart()))
            }
            Kind::CrashEmpty => {
                kill_and_lose(stage, at, "the server came back empty");
                ledger.struck(kind);
                Some(Box::new(move |stage, _| stage.node(at).server.restart_empty()))
            }
            Kind::CrashLosingTail => {
                stage.node(at).server.set_slow_fsync(SLOW_FLUSH);
                Some(Box::new(move |stage, ledger| {
                    kill_and_lose(stage, at, "the server lost unwritten changes");
                    stage.node(at).server.set_slow_fsync(Duration::ZERO);
                    stage.node(at).server.restart();
                    ledger.note(Kind::CrashLosingTail, "is back");
                    ledger.struck(Kind::CrashLosingTail);
                }))
            }
            Kind::Freeze | Kind::FreezeLong => {
                stage.node(at).server.stop();
                ledger.struck(kind);
                Some(Box::new(move |stage, _| stage.node(at).server.cont()))
            }
            Kind::Sleep => {
                let seconds = format!("{:.3}", Duration::from_millis(strike.for_ms).as_secs_f64());
                self.command((kind, at), move |resp| resp.try_command(&["DEBUG", "SLEEP", &seconds]));
                None
            }
            Kind::Failover => Some(self.fail_over(dice)),
            _ => unreachable!("{kind:?} does not strike the server's process"),
        }
    }

    pub(super) fn server_inside(&mut self, strike: &Strike, at: usize, dice: &mut Random) -> Option<End> {
        let kind = strike.kind;
        match kind {
            Kind::ClockForward | Kind::ClockBack => self.set_clock(kind, dice),
            Kind::SlowDisk => {
                let by = Duration::from_millis(dice.within(50, 400));
                self.ledger.note(kind, &format!("node {at}: {by:?} for each flush, for {} ms", strike.for_ms));
                self.stage.node(at).server.set_slow_fsync(by);
                self.ledger.struck(kind);
                return Some(Box::new(move |stage, _| stage.node(at).server.set_slow_fsync(Duration::ZERO)));
            }
            Kind::Full => {
                self.command((kind, at), |resp| resp.try_command(&["CONFIG", "SET", "maxmemory", "1"]));
                return Some(Box::new(move |stage, ledger| {
                    let empty = |resp: &mut Resp| resp.try_command(&["CONFIG", "SET", "maxmemory", "0"]);
                    // The repair does the same, and waits for it.
                    drop(run_command(&stage.node(at).server, ledger, None, empty));
                }));
            }
            Kind::KillInboxes => {
                self.command((kind, at), |resp| resp.try_command(&["CLIENT", "KILL", "TYPE", "pubsub"]));
            }
            Kind::KillCallers => {
                self.command((kind, at), |resp| resp.try_command(&["CLIENT", "KILL", "TYPE", "normal"]));
            }
            Kind::KillConnection => {
                let mut dice = dice.clone();
                self.command((kind, at), move |resp| kill_some(resp, &mut dice));
            }
            Kind::ScriptFlush => self.command((kind, at), |resp| resp.try_command(&["SCRIPT", "FLUSH"])),
            Kind::FlushAll => self.flush(at),
            Kind::ClientPause => {
                let (ms, what) = (strike.for_ms.to_string(), *dice.pick(&["ALL", "WRITE"]));
                self.command((kind, at), move |resp| resp.try_command(&["CLIENT", "PAUSE", &ms, what]));
            }
            _ => unreachable!("{kind:?} does not strike the inside of the server"),
        }
        None
    }

    fn set_clock(&mut self, kind: Kind, dice: &mut Random) {
        let by_us = match kind {
            Kind::ClockForward => i64::try_from(dice.within(FORWARD_US.0, FORWARD_US.1)).expect("seconds"),
            _ => -i64::try_from(dice.within(BACK_US.0, BACK_US.1)).expect("seconds"),
        };
        let from_us = boottime_us();
        self.stage.shift_clock(by_us);
        if by_us > 0 {
            self.stage.excuses.clock(from_us);
        }
        self.ledger.note(kind, &format!("by {by_us} µs"));
        self.ledger.struck(kind);
    }

    /// Detaches a replica that is in sync from its primary. Some time later it becomes the primary, and the writes since
    /// are lost. Its clock may differ.
    fn fail_over(&mut self, dice: &mut Random) -> End {
        let replica = self.stage.ground.redis().replica();
        await_rewritten(&replica);
        replica.promote();
        self.ledger.note(Kind::Failover, "the replica misses the writes from now on");
        let skew_us = *dice.pick(&[0, 0, 500_000, -300_000]);
        Box::new(move |stage, ledger| {
            let from_us = boottime_us();
            stage.ground.redis().node.server.kill();
            stage.ground.redis().replace_server(replica);
            // Only the new server's clock counts.
            stage.shift_clock(skew_us);
            stage.losses().lost(0, from_us, "a replica took over that missed the last writes");
            ledger.note(Kind::Failover, &format!("it is the primary, its clock {skew_us} µs from the old one's"));
            ledger.struck(Kind::Failover);
        })
    }

    fn flush(&mut self, at: usize) {
        let losses = self.stage.losses();
        self.command((Kind::FlushAll, at), move |resp| {
            let from_us = boottime_us();
            let reply = resp.try_command(&["FLUSHALL"]);
            losses.lost(at, from_us, "the server was flushed");
            reply
        });
    }

    /// Sends a command to the server, on a thread of its own.
    fn command(&mut self, (kind, at): (Kind, usize), command: impl FnOnce(&mut Resp) -> Reply + Send + 'static) {
        self.commands.push(run_command(&self.stage.node(at).server, self.ledger, Some((kind, at)), command));
    }
}

fn run_command(
    server: &Arc<RedisServer>,
    ledger: &Ledger,
    fault: Option<(Kind, usize)>,
    command: impl FnOnce(&mut Resp) -> Reply + Send + 'static,
) -> thread::JoinHandle<()> {
    let (server, ledger) = (Arc::clone(server), ledger.clone());
    thread::spawn(move || {
        let reply = resp(&server).and_then(|mut resp| command(&mut resp));
        let Some((kind, at)) = fault else { return };
        // A server that is away is not struck.
        ledger.note(kind, &format!("node {at}: {reply:?}"));
        if matches!(&reply, Ok(answer) if !matches!(answer, Value::Error(_))) {
            ledger.struck(kind);
        }
    })
}

fn kill_and_lose(stage: &mut Stage, at: usize, why: &'static str) {
    let from_us = boottime_us();
    stage.node(at).server.kill();
    stage.losses().lost(at, from_us, why);
}

fn kill_some(resp: &mut Resp, dice: &mut Random) -> Reply {
    let list = resp.try_command(&["CLIENT", "LIST"])?;
    let text = list.text().unwrap_or_default();
    let ids: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("id=")?.split(' ').next()).collect();
    let mut answer = Value::Nil;
    for _ in 0..dice.within(1, 4) {
        if !ids.is_empty() {
            answer = resp.try_command(&["CLIENT", "KILL", "ID", *dice.pick(&ids), "SKIPME", "yes"])?;
        }
    }
    Ok(answer)
}

/// Waits until a replica has rewritten its append-only file, which it does when it is in sync. Before that its writes
/// are not safe.
fn await_rewritten(replica: &RedisServer) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while Instant::now() < deadline {
        let info = replica.command(&["INFO", "persistence"]);
        let is_busy = |what: &str| info.text().is_some_and(|text| text.contains(what));
        if !is_busy("aof_rewrite_in_progress:1") && !is_busy("aof_rewrite_scheduled:1") {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
}
