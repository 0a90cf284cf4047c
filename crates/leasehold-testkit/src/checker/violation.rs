//! The broken promises, and their descriptions.

use std::fmt;

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those that the text of each variant names")]
pub enum Violation {
    /// Two grants have the same token.
    SameToken { name: String, token: u64, clients: [String; 2] },
    /// A later grant has the smaller token.
    TokenFell { name: String, earlier: u64, later: u64, clients: [String; 2] },
    /// Two clients believed at the same time in grants of which only one was allowed.
    Overlap { name: String, tokens: [u64; 2], clients: [String; 2], from_us: u64, to_us: u64 },
    /// A client believed in a grant after it had recorded its end.
    ClaimedAfterEnd { name: String, client: String, token: u64, late_us: u64 },
    /// A client recorded an event of a grant that it was never given.
    UnknownGrant { name: String, client: String, token: u64 },
    /// A waiter was overtaken too often.
    Overtaken { name: String, client: String, token: u64, times: u64 },
    /// The fenced register accepted an older token.
    FenceFell { name: String, write: u64, before: u64, token: u64 },
    /// The fenced register's own numbers contradict each other.
    FenceMiscounted { name: String, acknowledged: u64, unknown: u64, counted: u64 },
    /// An update of the unfenced register was lost, between these times.
    LostUpdate { name: String, read: u64, clients: [String; 2], from_us: u64, to_us: u64 },
    /// A client wrote a register under a shared grant.
    WroteShared { name: String, client: String, token: u64 },
    /// The register changed while a client had a shared grant: it read two numbers, between these times.
    ReadChanged { name: String, client: String, token: u64, numbers: [u64; 2], from_us: u64, to_us: u64 },
    /// A client read a number under a shared grant that no client had written.
    ReadTorn { name: String, client: String, token: u64, number: u64 },
    /// No fault was active any more, and an attempt was neither granted nor abandoned in time.
    Unserved { name: String, client: String, attempt: u64, since_us: u64, waited_us: Option<u64> },
    /// No fault was active any more, and several attempts in a row were refused, although no client held.
    Starved { name: String, attempts: u64, from_us: u64, to_us: u64 },
    /// No fault was active for long, and an attempt that began since then failed with an error.
    Failed { name: String, client: String, attempt: u64, error: String },
    /// Residue was found.
    Residue { what: String, count: u64 },
    /// The test did not check for this residue.
    NotLookedFor { what: &'static str },
    /// There were too few events to prove anything.
    Vacuous { what: &'static str, there_were: u64, wanted: u64 },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SameToken { name, token, clients: [a, b] } => {
                write!(f, "{name}: {a} and {b} were both granted token {token}")
            }
            Self::TokenFell { name, earlier, later, clients: [a, b] } => {
                write!(f, "{name}: {a} held with token {earlier} before {b} was granted {later}, which is not larger")
            }
            Self::Overlap { name, tokens: [t, u], clients: [a, b], from_us, to_us } => {
                let us = to_us - from_us;
                write!(f, "{name}: {a} (token {t}) and {b} (token {u}) both held for {us} µs from {from_us} µs on")
            }
            Self::ClaimedAfterEnd { name, client, token, late_us } => {
                write!(f, "{name}: {client} claimed token {token} {late_us} µs after its end")
            }
            Self::UnknownGrant { name, client, token } => {
                write!(f, "{name}: {client} has an event for token {token}, which it was never granted")
            }
            Self::Overtaken { name, client, token, times } => {
                write!(f, "{name}: {client} (token {token}) was overtaken {times} times")
            }
            Self::FenceFell { name, write, before, token } => {
                write!(f, "{name}: the fenced register's write {write} had token {token}, after {before}")
            }
            Self::FenceMiscounted { name, acknowledged, unknown, counted } => write!(
                f,
                "{name}: the fenced register counted {counted} writes, but acknowledged {acknowledged} and left \
                 {unknown} unanswered"
            ),
            Self::LostUpdate { name, read, clients: [a, b], from_us, to_us } => {
                write!(f, "{name}: the update of {a}, which had read {read}, was lost to {b}, {from_us} to {to_us} µs")
            }
            Self::WroteShared { name, client, token } => {
                write!(f, "{name}: {client} wrote a register under its shared grant, token {token}")
            }
            Self::ReadChanged { name, client, token, numbers: [a, b], from_us, to_us } => {
                write!(f, "{name}: {client} (shared, token {token}) read {a} and then {b}, {from_us} to {to_us} µs")
            }
            Self::ReadTorn { name, client, token, number } => {
                write!(f, "{name}: {client} (shared, token {token}) read {number}, which no client had written")
            }
            Self::Unserved { name, client, attempt, since_us, waited_us: Some(waited_us) } => {
                write!(
                    f,
                    "{name}: {client}'s attempt {attempt} took {waited_us} µs from {since_us} µs on, without a fault"
                )
            }
            Self::Unserved { name, client, attempt, since_us, waited_us: None } => {
                write!(f, "{name}: {client}'s attempt {attempt} waits since {since_us} µs, without a fault")
            }
            Self::Starved { name, attempts, from_us, to_us } => {
                write!(f, "{name}: {attempts} attempts were refused from {from_us} to {to_us} µs, and no client held")
            }
            Self::Failed { name, client, attempt, error } => {
                write!(f, "{name}: {client}'s attempt {attempt} failed without a fault: {error}")
            }
            Self::Residue { what, count } => write!(f, "{count} {what} were left over"),
            Self::NotLookedFor { what } => write!(f, "the test did not check whether {what} were left over"),
            Self::Vacuous { what, there_were, wanted } => {
                write!(f, "only {there_were} {what}, at least {wanted} wanted: this proves nothing")
            }
        }
    }
}
