//! Reads a `quorum:` URL. Its errors say what to do, and never repeat a secret: each node's URL may have a password.
//!
//! A node is a URL within a URL. There are two ways to write it, which differ in their first characters:
//!
//! - as it is, with `%26` for each `&`, which would end it: `node=redis://a:6379?password_file=/p%26prefix=x`. Other `%XX`
//!   stay: people copy URLs that work, and write a password `p%2Fq` in the same way here;
//! - percent-encoded as a whole, as programs do: `node=redis%3A%2F%2Fa%3A6379`.

use std::ops::RangeInclusive;

use ::url::form_urlencoded;
use leasehold_spec::limits::{LEASE_MAX_MS, QUORUM_LEASE_MAX_MS};
use leasehold_spec::node::Charter;

use crate::error::{Error, Result};
use crate::store::redis::{NAMES, Target, decode};

/// Two nodes survive no failure, and each additional node costs a request for every lock.
const NODES: RangeInclusive<usize> = 3..=9;
/// A shorter one would not shorten the quarantine: a node that may have forgotten its tokens does not vote for 22 s.
const MAX_LEASE_MS: RangeInclusive<u64> = 1_000..=LEASE_MAX_MS;

/// The options of a node's URL that the URL of the quorum does not have.
const OF_NODE: [&str; 5] = ["password_file", "password_env", "ca", "cert", "key"];

const EXAMPLE: &str = "use quorum:?node=redis://A&node=redis://B&node=redis://C, in quotes in a shell";
const MAX_LEASE: &str = "invalid max_lease in the URL: expected a duration such as 500ms, 30s, 1m30s or 2h, \
                         from 1 s to 24 h in whole milliseconds";

/// The nodes, and the charter that all clients must agree on. It may contain passwords, so it has no `Debug`.
pub(crate) struct QuorumUrl {
    pub(crate) nodes: Vec<Target>,
    pub(crate) charter: Charter,
}

impl QuorumUrl {
    /// Reads the part after `quorum:`, that is `?node=redis://A&node=redis://B&…[&max_lease=60s][&prefix=app:]`.
    pub(crate) fn parse(rest: &str) -> Result<Self> {
        let said = Parameters::of(rest)?;
        let count = said.nodes.len();
        if !NODES.contains(&count) {
            let named = if count == 1 { "1 node".to_owned() } else { format!("{count} nodes") };
            return Err(Error::invalid(format!("the URL has {named}, but a quorum needs 3 to 9: {EXAMPLE}")));
        }
        let mut nodes: Vec<Target> = Vec::with_capacity(count);
        for (at, (node, behind)) in said.nodes.iter().enumerate() {
            let target = node.read(at + 1, behind)?;
            // A server with two addresses is detected later, by its run ID.
            let is_same = |other: &Target| {
                let (one, two) = (&other.address, &target.address);
                one.host.eq_ignore_ascii_case(&two.host) && one.port == two.port
            };
            if let Some(first) = nodes.iter().position(is_same) {
                return Err(Error::invalid(format!(
                    "nodes {} and {} have the same address: each server has one vote, whatever its database or prefix",
                    first + 1,
                    at + 1
                )));
            }
            nodes.push(target);
        }
        let max_lease_ms = said.max_lease_ms.unwrap_or(QUORUM_LEASE_MAX_MS);
        let url = Self { nodes, charter: Charter { nodes: count, max_lease_ms } };
        match said.prefix {
            None => Ok(url),
            Some(prefix) => match url.nodes.iter().position(|node| !node.prefix.is_empty()) {
                None => url.below(&prefix),
                Some(at) => Err(Error::invalid(format!(
                    "the quorum and its node {} both set a prefix: keep one of them",
                    at + 1
                ))),
            },
        }
    }

    /// Adds a prefix that the program gives.
    pub(crate) fn below(self, prefix: &str) -> Result<Self> {
        let Self { nodes, charter } = self;
        let nodes = nodes.into_iter().map(|node| node.below(prefix)).collect::<Result<_>>()?;
        Ok(Self { nodes, charter })
    }
}

/// The parameters after the question mark.
#[derive(Default)]
struct Parameters<'a> {
    /// Each with the rest of the URL after it.
    nodes: Vec<(Written<'a>, &'a str)>,
    max_lease_ms: Option<u64>,
    prefix: Option<String>,
}

impl<'a> Parameters<'a> {
    fn of(rest: &'a str) -> Result<Self> {
        let said = rest.strip_prefix('?').ok_or_else(|| Error::invalid(format!("the URL has no node: {EXAMPLE}")))?;
        if said.contains('#') {
            return Err(Error::invalid("the URL has a '#': write it as %23"));
        }
        let mut all = Self::default();
        let mut left = Some(said);
        while let Some(piece) = left {
            let (piece, behind) = piece.split_once('&').map_or((piece, None), |(piece, behind)| (piece, Some(behind)));
            left = behind;
            match piece.split_once('=') {
                None if piece.is_empty() => {}
                Some(("node", node)) => all.nodes.push((Written::of(node)?, behind.unwrap_or_default())),
                // This may be the rest of a password with an '&', and must not be repeated.
                _ if piece.contains('@') => {
                    return Err(Error::invalid(
                        "the URL has an '@' after an '&' outside of a node: write %26 for '&' in a password, and %40 \
                         for '@' in a prefix",
                    ));
                }
                Some(("max_lease", lease)) => once(&mut all.max_lease_ms, "max_lease", milliseconds(lease)?)?,
                Some(("prefix", prefix)) => once(&mut all.prefix, "prefix", plain(prefix))?,
                other => return Err(unknown(other.map_or(piece, |(name, _)| name), said)),
            }
        }
        Ok(all)
    }
}

fn once<T>(place: &mut Option<T>, name: &str, value: T) -> Result<()> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(Error::invalid(format!("the URL has {name:?} twice: keep one of them"))),
    }
}

/// Decodes a value, as in other URLs.
fn plain(value: &str) -> String {
    form_urlencoded::parse(format!("={value}").as_bytes()).map(|(_, value)| value.into_owned()).collect()
}

fn milliseconds(lease: &str) -> Result<u64> {
    let said = humantime::parse_duration(lease).ok();
    let ms =
        said.filter(|said| said.subsec_nanos() % 1_000_000 == 0).and_then(|said| u64::try_from(said.as_millis()).ok());
    ms.filter(|ms| MAX_LEASE_MS.contains(ms)).ok_or_else(|| Error::invalid(MAX_LEASE))
}

/// Returns the error of a parameter that the URL of a quorum does not have.
fn unknown(name: &str, said: &str) -> Error {
    if OF_NODE.contains(&name) {
        return Error::invalid(format!(
            "{name} is an option of a node: write %26 for the '&' before it, as in node=redis://A?prefix=x%26{name}=…"
        ));
    }
    let named = if has_at(said) { String::new() } else { format!(" {name:?}") };
    Error::invalid(format!("unknown parameter{named} in the URL: valid are node, max_lease and prefix"))
}

fn has_at(text: &str) -> bool {
    text.contains('@') || text.contains("%40")
}

/// The notation of a node's URL within the URL of the quorum.
enum Written<'a> {
    AsItIs(&'a str),
    Encoded(&'a str),
}

impl<'a> Written<'a> {
    fn of(node: &'a str) -> Result<Self> {
        if is_redis(node) {
            return Ok(Self::AsItIs(node));
        }
        match decode(node, "node").is_ok_and(|decoded| is_redis(&decoded)) {
            true => Ok(Self::Encoded(node)),
            false => Err(Error::invalid(format!("a node must be a redis:// or rediss:// URL: {EXAMPLE}"))),
        }
    }

    /// Reads the node. Errors contain its number.
    fn read(&self, number: usize, behind: &str) -> Result<Target> {
        let url = match self {
            Self::AsItIs(node) => node.replace("%26", "&"),
            Self::Encoded(node) => decode(node, "node")?,
        };
        Target::parse(&url).map_err(|error| {
            // With an '@' after the '?' and an '&', the apparent parameters may be part of a password.
            if url.contains('?') && has_at(behind) {
                return Error::invalid(format!(
                    "node {number} has an unknown parameter after its '?': valid are {NAMES}; in a password write %3F \
                     for '?' and %26 for '&'"
                ));
            }
            Error::new(error.kind(), format!("node {number} of the quorum: {error}"))
        })
    }
}

fn is_redis(node: &str) -> bool {
    let is = |scheme: &str| node.get(..scheme.len()).is_some_and(|begins| begins.eq_ignore_ascii_case(scheme));
    is("redis://") || is("rediss://")
}

#[cfg(test)]
#[path = "url_tests.rs"]
mod tests;
