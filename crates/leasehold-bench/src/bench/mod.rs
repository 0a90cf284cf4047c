//! Runs systems in turns: A B, A B, … and never A A, B B, where a slow minute would affect one system alone.

mod measure;
mod takeover;

use std::collections::BTreeSet;
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::process::Command;

use crate::awake::Awake;
use crate::crew::Crew;
use crate::error::{Context, Failure, Result};
use crate::machine;
use crate::monitor::{Direct, Monitor};
use crate::nodes::Nodes;
use crate::output::Output;
use crate::peers::Peers;
use crate::record::{About, Failed, Missing, Record, Row};
use crate::scenario::{Case, Scenario, counter_key};
use crate::store::{Cost, Store};
use crate::system::{Own, System};
use crate::worker::Spec;

/// A plan: groups of entrants that take turns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) groups: Vec<Group>,
    pub(crate) peers: Peers,
    /// Whether processors are kept awake during the runs.
    pub(crate) awake: bool,
}

/// Entrants that take turns, because their figures are compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) entrants: Vec<Entrant>,
    pub(crate) runs: u32,
}

/// A system in a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entrant {
    pub(crate) system: System,
    pub(crate) case: Case,
}

impl Plan {
    pub(crate) fn steps(&self) -> u64 {
        self.groups.iter().map(|group| group.entrants.len() as u64 * u64::from(group.runs)).sum()
    }

    fn systems(&self) -> impl Iterator<Item = &System> {
        self.groups.iter().flat_map(|group| &group.entrants).map(|entrant| &entrant.system)
    }

    /// Removes the missing systems.
    fn without(mut self, missing: &[Missing]) -> Self {
        for group in &mut self.groups {
            group.entrants.retain(|entrant| missing.iter().all(|one| one.system != entrant.system));
        }
        self
    }
}

/// Carries a plan out, and writes the figures as they come.
pub(crate) async fn run(plan: Plan, store: Store, output: &mut Output) -> Result<()> {
    let wanted: BTreeSet<&str> = plan.systems().filter(|one| one.own().is_none()).map(System::name).collect();
    let own: BTreeSet<Own> = plan.systems().filter_map(System::own).collect();
    if let Some(busy) = machine::busy().await? {
        output.hint(&busy);
    }
    output.doing("building peers");
    let (peers_about, missing) = plan.peers.prepare(&wanted).await?;
    let mut bench = Bench { place: Place { store, nodes: None }, peers: plan.peers.clone() };
    let _awake = match plan.awake {
        true => Some(Awake::keep().await?),
        false => None,
    };
    output.record(&Record::Machine(machine::read(bench.place.store.version().await?, plan.awake)?))?;
    for about in own.into_iter().map(About::of_own).chain(peers_about) {
        output.record(&Record::About(about))?;
    }
    for one in &missing {
        output.record(&Record::Missing(one.clone()))?;
    }
    for group in &plan.without(&missing).groups {
        bench.run_group(group, output).await?;
    }
    Ok(())
}

struct Bench {
    place: Place,
    peers: Peers,
}

/// The place of the locks.
struct Place {
    store: Store,
    /// The servers of a quorum, once a scenario has needed them.
    nodes: Option<Nodes>,
}

impl Place {
    /// Returns the task of each process.
    fn spec(&self, entrant: &Entrant, case: &Case, about: &str) -> Spec {
        let nodes = self.nodes.as_ref().filter(|_| case.scenario.is_of_quorum());
        let nodes = nodes.map_or_else(Vec::new, |nodes| nodes.urls(case.delay_us));
        case.spec(&entrant.system, self.store.url(), nodes, about)
    }

    /// Removes everything that a run of the scenario could find.
    async fn clear(&mut self, scenario: Scenario) -> Result<()> {
        self.store.clear().await?;
        if !scenario.is_of_quorum() {
            return Ok(());
        }
        let nodes = match &mut self.nodes {
            Some(nodes) => nodes,
            none => none.insert(Nodes::start().await?),
        };
        nodes.clear().await
    }

    /// Returns the work of the servers of its lock so far.
    async fn cost(&mut self, scenario: Scenario) -> Result<Cost> {
        match &mut self.nodes {
            Some(nodes) if scenario.is_of_quorum() => nodes.cost().await,
            _ => self.store.cost().await,
        }
    }
}

impl Bench {
    async fn run_group(&mut self, group: &Group, output: &mut Output) -> Result<()> {
        let mut takes_part = Vec::new();
        for entrant in &group.entrants {
            output.doing(&format!("a sample of {}", entrant.title()));
            match self.sample(entrant).await {
                Ok(direct) => takes_part.push((entrant, direct)),
                Err(failure) => output.record(&entrant.failed(0, failure)?)?,
            }
        }
        for run in 1..=group.runs {
            let mut goes_on = Vec::new();
            for (entrant, direct) in takes_part {
                output.begin(entrant, run);
                match self.measure(entrant, run, &direct).await {
                    Ok(row) => {
                        output.record(&Record::Run(Box::new(row)))?;
                        goes_on.push((entrant, direct));
                    }
                    // It takes no further part: a system that hangs would hang in every run.
                    Err(failure) => output.record(&entrant.failed(run, failure)?)?,
                }
            }
            takes_part = goes_on;
        }
        output.end_of_group()
    }

    /// A run that is too short and too closely monitored to count. It shows which commands the system sends beside
    /// scripts.
    async fn sample(&mut self, entrant: &Entrant) -> Result<Direct> {
        if entrant.system.own().is_some() {
            return Ok(Direct::default());
        }
        self.place.clear(entrant.case.scenario).await?;
        let about = about(&entrant.system, 0)?;
        let spec = self.place.spec(entrant, &entrant.case.sample(), &about);
        let mut crew = Crew::muster(entrant.case.processes, &spec, || command(&self.peers, &entrant.system)).await?;
        if entrant.case.scenario.is_of_quorum() {
            // The direct commands on five servers are not measured; but a system that fails has no figures.
            crew.go().await?;
            return crew.end().await.map(|()| Direct::default());
        }
        let monitor = Monitor::start(self.place.store.url(), counter_key(&about)).await?;
        let went = async {
            crew.go().await?;
            crew.end().await
        };
        let went = went.await;
        // In every case: the next run must not be monitored.
        let direct = monitor.end(&mut self.place.store).await?;
        went.map(|()| direct)
    }

    async fn measure(&mut self, entrant: &Entrant, run: u32, direct: &Direct) -> Result<Row> {
        self.place.clear(entrant.case.scenario).await?;
        match entrant.case.scenario {
            Scenario::Takeover => takeover::measure(&mut self.place.store, entrant, run).await,
            _ => measure::measure(&mut self.place, &self.peers, entrant, run, direct).await,
        }
    }
}

impl Entrant {
    /// Its name and its case.
    pub(crate) fn title(&self) -> String {
        format!("{}, {}", self.case.title(), self.system.name())
    }

    /// A failure of our own systems ends everything: later runs would measure something else. A failure of a peer is
    /// recorded as its result.
    fn failed(&self, run: u32, failure: Failure) -> Result<Record> {
        match &self.system {
            System::Own(_) => Err(failure).context(format!("{}, run {run}", self.title())),
            System::Peer(_) => {
                let (system, case) = (self.system.clone(), self.case.clone());
                Ok(Record::Failed(Failed { system, case, run, why: failure.to_string() }))
            }
        }
    }
}

/// Returns the command that starts a worker of this system.
fn command(peers: &Peers, system: &System) -> Result<Command> {
    match system {
        System::Peer(name) => peers.worker(name),
        System::Own(_) => {
            let mut command = Command::new(std::env::current_exe().context("finding this program")?);
            command.arg("--worker");
            Ok(command)
        }
    }
}

/// Returns a unique name for the keys of one run.
fn about(system: &System, run: u32) -> Result<String> {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).context("reading the clock")?;
    Ok(format!("{}{run}-{:x}", system.name(), wall.as_micros()))
}
