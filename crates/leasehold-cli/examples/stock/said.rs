//! The command line.

use std::time::Duration;

use clap::{Parser, ValueEnum, value_parser};

use crate::report::Form;

const EXAMPLES: &str = "\
Examples:
  stock                                with a lock, on a store in this program: no server is needed
  stock --lock none                    without one: more is sold than there was
  stock --lock none --window 1ms --pieces 500
                                       the same, with more time for it between reading and writing
  stock --pause                        a worker is stopped in its sale until its lease has ended: oversold
  stock --pause --fence                the same with the token checked at each write: refused
  stock --store redis://localhost      on a Redis, with processes in place of threads
  STOCK_STORE=redis://:PASSWORD@HOST stock

Exit status:
  0    the figures are what they should be; that is: oversold where the lesson is that this oversells
  1    it could not be carried out
  2    it was not understood
  3    the figures are not what they should be: please report it
  130  interrupted, by ctrl-c or SIGTERM";

/// Many workers sell from one counted stock: read how many are left, check, subtract one, write
#[derive(Debug, Parser)]
#[command(name = "stock", after_help = EXAMPLES, allow_negative_numbers = true)]
pub(crate) struct Said {
    /// How many pieces there are, 1 to 10000000
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = value_parser!(u64).range(1..=10_000_000))]
    pub(crate) pieces: u64,

    /// How many processes sell (threads, unless there is a --store), 1 to 64
    #[arg(long, value_name = "P", default_value_t = 2, value_parser = value_parser!(u32).range(1..=64))]
    pub(crate) processes: u32,

    /// How many workers sell in each, 1 to 256
    #[arg(long, value_name = "W", default_value_t = 4, value_parser = value_parser!(u32).range(1..=256))]
    pub(crate) workers: u32,

    /// The lock that protects a sale
    #[arg(long, default_value = "leasehold")]
    pub(crate) lock: Lock,

    /// How long each sale pauses between its read and its write, such as 500us or 2ms; 1s at most
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = time)]
    pub(crate) window: Duration,

    /// The Redis for the stock and the lock: redis://HOST[:PORT][/DB]. Put a URL with a password into STOCK_STORE
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<String>,

    /// How long a lease lasts: 1s to 3600s [default: 30s; 1s with --pause]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) lease: Option<Duration>,

    /// Stop an additional worker in its sale, until its lease has ended and the others have sold everything
    #[arg(long)]
    pub(crate) pause: bool,

    /// Check the token of the lock with each read and write
    #[arg(long)]
    pub(crate) fence: bool,

    /// Print the figures as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Run as a team process that reads a plan and orders from standard input (internal)
    #[arg(long, hide = true)]
    pub(crate) team: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Lock {
    /// No lock: workers sell concurrently
    None,
    /// One worker sells at a time
    Leasehold,
}

impl Said {
    pub(crate) fn form(&self) -> Form {
        if self.json { Form::Json } else { Form::Text }
    }
}

/// Parses a number and a unit. Zero needs no unit.
fn time(text: &str) -> Result<Duration, String> {
    let at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let number: u32 =
        number.parse().map_err(|_| "expected a number and a unit, such as 500us, 20ms or 3s".to_owned())?;
    let micros = match unit {
        "us" => 1,
        "ms" => 1_000,
        "s" => 1_000_000,
        "" if number == 0 => 0,
        "" => return Err(format!("{number} has no unit: use us, ms or s")),
        _ => return Err(format!("unknown unit {unit:?}: use us, ms or s")),
    };
    Ok(Duration::from_micros(u64::from(number) * micros))
}
