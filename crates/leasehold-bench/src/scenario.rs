//! What is done with a lock. A scenario knows how many ask for which names, and nothing of the system that it asks.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::system::System;
use crate::worker::{Names, Span, Spec};

/// A question about cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Scenario {
    /// What does a lock cost that nobody else wants? Each task locks and unlocks its own name.
    Uncontended,
    /// What does a lock cost that everybody wants? All tasks of all processes share one name, with GET and SET of a
    /// counter inside.
    Hot,
    /// What does a lock cost the server? Its own time in EVALSHA for a pair, on new names and on used ones.
    ServerCost,
}

impl Scenario {
    pub(crate) const ALL: [Self; 3] = [Self::Uncontended, Self::Hot, Self::ServerCost];

    /// Its name in figures and arguments.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Uncontended => "uncontended",
            Self::Hot => "hot",
            Self::ServerCost => "server-cost",
        }
    }

    /// The systems that its bars compare.
    pub(crate) fn systems(self) -> &'static [System] {
        match self {
            Self::Uncontended | Self::ServerCost => &[System::S5, System::Leasehold],
            Self::Hot => &[System::Floor, System::Leasehold],
        }
    }

    /// How many tasks a process runs, where the user names none.
    pub(crate) fn tasks(self) -> &'static [u32] {
        match self {
            Self::Uncontended => &[1, 64, 1000],
            Self::Hot => &[8],
            // Enough for the server to find the next command in its buffer: idle wake-ups are no part of a script.
            Self::ServerCost => &[64],
        }
    }

    /// How many threads a process runs its tasks on, where the user names none.
    pub(crate) fn threads(self) -> u32 {
        match self {
            Self::Uncontended => 2,
            Self::Hot | Self::ServerCost => 1,
        }
    }

    pub(crate) fn name_uses(self) -> &'static [NameUse] {
        match self {
            Self::Uncontended => &[NameUse::Own],
            Self::Hot => &[NameUse::Shared],
            Self::ServerCost => &[NameUse::New, NameUse::Used],
        }
    }
}

/// Which names the tasks lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum NameUse {
    /// Each task its own, again and again.
    Own,
    /// All the same one.
    Shared,
    /// One that was never locked before, for each pair.
    New,
    /// One that was locked and given back before, for each pair.
    Used,
}

impl NameUse {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Shared => "shared",
            Self::New => "new",
            Self::Used => "used",
        }
    }
}

/// A scenario at one size: what figures of different systems must share to be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Case {
    pub(crate) scenario: Scenario,
    pub(crate) names: NameUse,
    pub(crate) processes: u32,
    pub(crate) tasks: u32,
    pub(crate) threads: u32,
    /// How long a run counts.
    pub(crate) window_ms: u64,
    /// How many pairs a run makes, where it is not counted by time.
    pub(crate) pairs: u64,
}

/// The part of a window that goes before it and is not counted: connections, buffers and the allocator find their size.
fn warm_up_ms(window_ms: u64) -> u64 {
    (window_ms / 4).min(1_000)
}

impl Case {
    /// What each process is told. `about` makes the names of one run its own, so that no run finds what another left.
    pub(crate) fn spec(&self, system: System, url: &str, about: &str) -> Spec {
        let names = match self.names {
            NameUse::Own => Names::PerTask(format!("bench:{about}")),
            NameUse::Shared => Names::One(format!("bench:{about}")),
            NameUse::New => Names::New(format!("bench:{about}")),
            NameUse::Used => Names::Used(format!("bench:{about}")),
        };
        let span = match self.names {
            NameUse::Own | NameUse::Shared => {
                Span::Window { warm_up_ms: warm_up_ms(self.window_ms), window_ms: self.window_ms }
            }
            NameUse::New | NameUse::Used => Span::Pairs { each: self.pairs.div_ceil(u64::from(self.tasks)) },
        };
        let counter = (self.names == NameUse::Shared).then(|| counter_key(about));
        Spec { system, url: url.to_owned(), threads: self.threads, tasks: self.tasks, names, counter, span }
    }

    /// Its title in a table.
    pub(crate) fn title(&self) -> String {
        let Self { scenario, names, processes, tasks, threads, .. } = self;
        let (tasks, threads) = (count(*tasks, "task"), count(*threads, "thread"));
        let size = match scenario {
            Scenario::Uncontended => format!("{tasks} on {threads}, each its own name"),
            Scenario::Hot => format!("{} × {tasks} on {threads}, one name", count(*processes, "process")),
            Scenario::ServerCost => format!("{} {} names, {tasks}", self.pairs, names.name()),
        };
        format!("{} · {size}", scenario.name())
    }
}

fn count(number: u32, noun: &str) -> String {
    let ending = match (number, noun.ends_with('s')) {
        (1, _) => "",
        (_, true) => "es",
        (_, false) => "s",
    };
    format!("{number} {noun}{ending}")
}

/// The counter that the section of a shared lock counts up.
pub(crate) fn counter_key(about: &str) -> String {
    format!("bench:{about}:counter")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(scenario: Scenario, names: NameUse) -> Case {
        Case { scenario, names, processes: 2, tasks: 8, threads: 1, window_ms: 3_000, pairs: 100 }
    }

    #[test]
    fn only_a_shared_lock_has_a_counter() {
        let shared = case(Scenario::Hot, NameUse::Shared).spec(System::Floor, "u", "x");
        assert_eq!(shared.counter.as_deref(), Some("bench:x:counter"));
        assert_eq!(shared.span, Span::Window { warm_up_ms: 750, window_ms: 3_000 });
        assert_eq!(case(Scenario::Uncontended, NameUse::Own).spec(System::S5, "u", "x").counter, None);
    }

    #[test]
    fn pairs_are_shared_out_and_none_is_lost() {
        let spec = case(Scenario::ServerCost, NameUse::New).spec(System::S5, "u", "x");
        assert_eq!(spec.span, Span::Pairs { each: 13 });
    }

    #[test]
    fn names_in_arguments_are_names_in_figures() {
        for scenario in Scenario::ALL {
            assert_eq!(serde_json::to_value(scenario).unwrap(), scenario.name());
            assert_eq!(Scenario::from_str(scenario.name(), false), Ok(scenario));
        }
        for system in System::value_variants() {
            assert_eq!(serde_json::to_value(system).unwrap(), system.name());
            assert_eq!(System::from_str(system.name(), false), Ok(*system));
        }
    }
}
