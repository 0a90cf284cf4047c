//! The duration of each public call in each place from which it can be made, on each store: the table that
//! `leasehold_testkit::times` measures, as Markdown.

mod options;

use std::process::ExitCode;
use std::time::Instant;

use leasehold_testkit::times::{Weather, measure};

pub(crate) use options::{Options, USAGE};

/// Prints the tables, and the calls that exceeded their bounds.
pub(crate) fn run(options: &Options) -> ExitCode {
    let mut failures = Vec::new();
    for &backend in &options.stores {
        let begun = Instant::now();
        let table = measure(backend, options.share, Weather::ALL);
        println!("{table}");
        eprintln!("{backend:?}: {} cells in {:.0?}", table.cells.len(), begun.elapsed());
        failures.extend(table.failures());
    }
    if failures.is_empty() {
        println!("Every call kept its bound.");
        return ExitCode::SUCCESS;
    }
    println!("{} cells did not keep their bound:\n", failures.len());
    failures.iter().for_each(|failure| println!("- {failure}"));
    ExitCode::FAILURE
}
