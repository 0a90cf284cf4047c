//! The command line.

use std::time::Duration;

use clap::{Parser, value_parser};
use humantime::parse_duration;

use crate::locks::LockName;

const EXAMPLES: &str = "\
Examples:
  shop --lock local                            a lock in each process: it oversells
  shop --lock leasehold                        it does not
  shop --lock set-ex --lease 1 --work 1500ms --stock 12
                                               the work takes longer than the lease
  shop --lock compare-and-delete --pause       a process is stopped in its sale, beyond its lease

Exit status:
  0  nothing was oversold
  1  oversold
  2  the run could not be completed, or the command line is wrong";

/// HTTP services sell one counted stock, and a load generator hammers them
#[derive(Debug, Parser)]
#[command(name = "shop", after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The lock around each sale
    #[arg(long, value_name = "LOCK", default_value = "leasehold")]
    pub(crate) lock: LockName,

    /// The number of service processes
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = value_parser!(u16).range(1..=16))]
    pub(crate) processes: u16,

    /// The number of clients. Each has a connection to one service, and sends its next request after each reply
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = value_parser!(u16).range(1..=512))]
    pub(crate) clients: u16,

    /// The number of pieces at the start
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = value_parser!(u64).range(1..=10_000_000))]
    pub(crate) stock: u64,

    /// The load ends after this time, in seconds, if the stock is not sold out before
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = value_parser!(u64).range(1..=3600))]
    pub(crate) seconds: u64,

    /// The time between the read and the write of a sale, such as 500us or 20ms
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = parse_duration)]
    pub(crate) work: Duration,

    /// The lease of the lock, in seconds [default: 10; 1 with --pause]
    #[arg(long, value_name = "SECONDS", value_parser = value_parser!(u64).range(1..=3600))]
    pub(crate) lease: Option<u64>,

    /// A request waits for the lock for at most this time
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_duration)]
    pub(crate) limit: Duration,

    /// Stop the first process in a sale, right before its write, until its lease has ended and 2 s have passed
    #[arg(long)]
    pub(crate) pause: bool,

    /// Use this Redis in place of one that the run starts: redis://HOST[:PORT]. Give three for redlock and multi-lock
    #[arg(long, value_name = "URL")]
    pub(crate) redis: Vec<String>,

    /// Print the figures as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Serve: read a plan from the standard input (internal)
    #[arg(long, hide = true)]
    pub(crate) serve: bool,
}
