//! Starts the teams, gives them orders, and counts.

use std::fmt;
use std::process;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use tokio::runtime::Builder;
use tokio::signal;
use tokio::signal::unix::{Signal, SignalKind};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;

use crate::plan::{Guarding, Pause, Place, Plan};
use crate::report::{INTERRUPTED, Report};
use crate::shop::Stock;
use crate::team::{Signed, Team};
use crate::verdict::End;
use crate::worker::{Note, Order, Role, Tally};

/// How long the workers may send nothing, in addition to a lease, before the manager gives up.
const SILENCE: Duration = Duration::from_secs(60);
/// How long a team may take to finish its sales after an interrupt.
const LAST_SALE: Duration = Duration::from_secs(10);

pub(crate) fn manage(plan: &Plan) -> Result<Report, String> {
    let runtime = Builder::new_current_thread().enable_all().build().map_err(|e| format!("no runtime: {e}"))?;
    runtime.block_on(async {
        let stock = match &plan.place {
            Place::Embedded => Stock::embedded(plan),
            Place::Redis { url } => Stock::on_redis(plan, url).await?,
        };
        stock.fill(plan.pieces).await?;
        let sold = sell(plan, &stock).await;
        let left = stock.count().await;
        stock.clear().await?;
        let Selling { tally, took, stopped_for, end } = sold?;
        Ok(Report { plan: plan.clone(), tally, left: left?, took, stopped_for, end })
    })
}

/// The result of the sale.
struct Selling {
    tally: Tally,
    took: Duration,
    stopped_for: Option<Duration>,
    end: End,
}

async fn sell(plan: &Plan, stock: &Stock) -> Result<Selling, String> {
    let mut manager = Manager::hire(plan, stock)?;
    manager.wait_until(|m| m.ready == m.teams.len()).await?;
    let begun = Instant::now();
    let stopped_for = match plan.pause() {
        Pause::Nobody => {
            manager.order_sellers(Order::Go);
            None
        }
        Pause::OneWorker => manager.sell_while_one_sleeps().await?,
    };
    manager.wait_until(|m| m.tallies.iter().all(Option::is_some)).await?;
    let took = begun.elapsed();
    manager.bar.finish_and_clear();
    let tally = manager.tallies.iter().flatten().fold(Tally::default(), |sum, team| sum + *team);
    Ok(Selling { tally, took, stopped_for, end: manager.end })
}

fn whole_rate(state: &ProgressState, to: &mut dyn fmt::Write) {
    // A progress bar that cannot be written has no better place to say so.
    let _ = write!(to, "{:.0}", state.per_sec());
}

struct Manager {
    /// With a pause, the last team is that of the sleeper.
    teams: Vec<Team>,
    sellers: usize,
    notes: UnboundedReceiver<Signed>,
    silence: Duration,
    bar: ProgressBar,
    ready: usize,
    about_to_write: Option<u64>,
    tallies: Vec<Option<Tally>>,
    end: End,
    /// SIGTERM, which `kill`, `timeout` and service managers send first.
    terminate: Signal,
}

impl Manager {
    fn hire(plan: &Plan, stock: &Stock) -> Result<Self, String> {
        let (sender, notes) = unbounded_channel();
        let sellers = plan.teams as usize;
        let mut roles = vec![Role::Seller; sellers];
        if plan.pause() == Pause::OneWorker {
            roles.push(Role::Sleeper);
        }
        let teams = roles.into_iter().enumerate().map(|(number, role)| match &plan.place {
            Place::Embedded => Team::in_thread(number, plan, role, stock.clone(), sender.clone()),
            Place::Redis { .. } => Team::in_process(number, plan, role, sender.clone()),
        });
        let teams = teams.collect::<Result<Vec<_>, _>>()?;
        let lease = match plan.guard {
            Guarding::Lease { lease_ms, .. } => Duration::from_millis(lease_ms),
            Guarding::Nothing => Duration::ZERO,
        };
        let style = ProgressStyle::with_template("{bar:40} {pos} sold of {len}, {rate}/s");
        let style = style.expect("this template is well formed").with_key("rate", whole_rate);
        let bar = ProgressBar::new(plan.pieces).with_style(style);
        let tallies = vec![None; teams.len()];
        let silence = SILENCE + lease;
        let terminate =
            signal::unix::signal(SignalKind::terminate()).map_err(|e| format!("cannot listen for signals: {e}"))?;
        let (ready, about_to_write, end) = (0, None, End::SoldOut);
        Ok(Self { teams, sellers, notes, silence, bar, ready, about_to_write, tallies, end, terminate })
    }

    /// The sleeper starts alone. It takes the lock, reads how many pieces are left, and checks its lease; then it is
    /// stopped. The others get the lock when its lease has ended, and sell everything. Then the sleeper is continued,
    /// and writes one piece less than it has read.
    ///
    /// The sequence does not depend on chance or on a sleep: the others can sell only after the lease has ended.
    async fn sell_while_one_sleeps(&mut self) -> Result<Option<Duration>, String> {
        self.teams[self.sellers].order(Order::Go);
        self.wait_until(|m| m.about_to_write.is_some() || m.end == End::Interrupted).await?;
        if self.end == End::Interrupted {
            return Ok(None);
        }
        self.teams[self.sellers].freeze()?;
        let stopped = Instant::now();
        self.order_sellers(Order::Go);
        let sold_out = |m: &Self| m.tallies[..m.sellers].iter().all(Option::is_some);
        let waited = self.wait_until(|m| sold_out(m) || m.end == End::Interrupted).await;
        self.teams[self.sellers].order(Order::WakeUp);
        self.teams[self.sellers].thaw();
        waited.map(|()| Some(stopped.elapsed()))
    }

    fn order_sellers(&mut self, order: Order) {
        self.teams[..self.sellers].iter_mut().for_each(|team| team.order(order));
    }

    /// Receives notes until there are enough. A wait ends with an error if no note comes for too long.
    async fn wait_until(&mut self, enough: impl Fn(&Self) -> bool) -> Result<(), String> {
        while !enough(self) {
            let patience = if self.end == End::Interrupted { LAST_SALE } else { self.silence };
            tokio::select! {
                note = timeout(patience, self.notes.recv()) => match note {
                    Ok(Some((number, note))) => self.receive(number, note)?,
                    Ok(None) => return Err("all workers have ended without a result".into()),
                    Err(_) => return Err(format!("no message from the workers for {patience:?}")),
                },
                interrupted = signal::ctrl_c() => {
                    interrupted.map_err(|e| format!("cannot listen for signals: {e}"))?;
                    self.interrupt();
                }
                _ = self.terminate.recv() => self.interrupt(),
            }
        }
        Ok(())
    }

    fn receive(&mut self, number: usize, note: Note) -> Result<(), String> {
        match note {
            Note::Ready => self.ready += 1,
            Note::AboutToWrite { left } => self.about_to_write = Some(left),
            Note::Sold(more) => self.bar.inc(more),
            Note::Done(tally) => self.tallies[number] = Some(tally),
            // The pipe of a process ends after its work as well.
            Note::Failed(_) if self.tallies[number].is_some() => {}
            Note::Failed(why) => return Err(why),
        }
        Ok(())
    }

    fn interrupt(&mut self) {
        if self.end == End::Interrupted {
            // This is the second interrupt. The processes end with their pipes, and the leases by themselves.
            process::exit(INTERRUPTED.into());
        }
        self.end = End::Interrupted;
        for team in &mut self.teams {
            team.order(Order::Stop);
            team.thaw();
        }
    }
}
