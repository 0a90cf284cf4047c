//! Other libraries, each a program in its own language below `bench/peers/`.
//!
//! A peer is a worker like ours ([`crate::worker`]): its `run` reads a `Spec`, reports that it is ready, starts, and
//! reports its figures. `systems.json` lists the systems and the directory of each; `build` installs what a directory
//! needs. A peer that cannot be installed is listed as missing: its figures are not taken from anywhere else.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::process::Command;
use tokio::time::timeout;

use crate::error::{Context, Result};
use crate::record::{About, Missing};
use crate::scenario::Primitive;
use crate::system::System;

/// The limit of a build from nothing, on a busy machine.
const BUILD_LIMIT: Duration = Duration::from_secs(900);
const ABOUT_LIMIT: Duration = Duration::from_secs(60);

/// How the waiters of a system wait for the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Class {
    /// In an order that the store keeps.
    Queue,
    /// For a message, and then they compete.
    Push,
    /// By polling.
    Poll,
}

/// A property of a system, beside exclusion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Has {
    /// A number that rises with every grant.
    Token,
    /// The first waiter is served first.
    Queue,
    /// A waiter is notified.
    Push,
    /// The holder may lock again.
    ReEntry,
}

impl Class {
    /// Returns its description.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Queue => "waits in a queue",
            Self::Push => "waits for a message",
            Self::Poll => "polls",
        }
    }
}

impl Has {
    /// Returns its description.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Queue => "queue",
            Self::Push => "pushed waits",
            Self::ReEntry => "re-entry",
        }
    }
}

/// One line of `systems.json`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Peer {
    pub(crate) system: String,
    pub(crate) dir: String,
    pub(crate) class: Class,
    pub(crate) has: Vec<Has>,
    /// Whether it can lock on several independent servers.
    #[serde(default)]
    pub(crate) quorum: bool,
    /// The kind of its lock. A library with several primitives is several systems.
    #[serde(default)]
    pub(crate) primitive: Primitive,
}

/// All peers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Peers {
    root: PathBuf,
    list: Vec<Peer>,
}

/// The answer of `run --about`.
#[derive(Deserialize)]
struct AboutReply {
    systems: BTreeMap<String, SystemReply>,
}

#[derive(Clone, Deserialize)]
struct SystemReply {
    version: String,
    settings: String,
}

impl Peers {
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let file = root.join("systems.json");
        let text = std::fs::read_to_string(&file).context(format!("reading {}", file.display()))?;
        let list = serde_json::from_str(&text).context(format!("reading {}", file.display()))?;
        Ok(Self { root: root.to_owned(), list })
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.list.iter().map(|peer| peer.system.as_str())
    }

    /// Whether this one can lock on several servers.
    pub(crate) fn has_quorum(&self, name: &str) -> bool {
        self.list.iter().any(|peer| peer.system == name && peer.quorum)
    }

    /// Returns what this one is.
    pub(crate) fn primitive(&self, name: &str) -> Option<Primitive> {
        self.list.iter().find(|peer| peer.system == name).map(|peer| peer.primitive)
    }

    pub(crate) fn knows(&self, name: &str) -> bool {
        self.names().any(|known| known == name)
    }

    /// Builds the wanted ones and asks for their properties. Returns those that answer, and those that are missing.
    ///
    /// # Errors
    /// A peer that is built and does not answer is broken, not missing.
    pub(crate) async fn prepare(&self, wanted: &BTreeSet<&str>) -> Result<(Vec<About>, Vec<Missing>)> {
        let (mut abouts, mut missing) = (Vec::new(), Vec::new());
        let wanted: Vec<&Peer> = self.list.iter().filter(|peer| wanted.contains(peer.system.as_str())).collect();
        let dirs: BTreeSet<&str> = wanted.iter().map(|peer| peer.dir.as_str()).collect();
        for dir in dirs {
            let of_dir = wanted.iter().filter(|peer| peer.dir == dir);
            match self.build(dir).await? {
                Err(why) => {
                    let name = |peer: &&Peer| Missing { system: System::named(&peer.system), why: why.clone() };
                    missing.extend(of_dir.map(name));
                }
                Ok(()) => {
                    let reply = self.ask(dir).await.context(format!("peer {dir}"))?;
                    for peer in of_dir {
                        abouts.push(peer.about(&reply).context(format!("peer {dir}"))?);
                    }
                }
            }
        }
        Ok((abouts, missing))
    }

    /// Returns the command that starts a worker of this system.
    pub(crate) fn worker(&self, system: &str) -> Result<Command> {
        let peer = self.list.iter().find(|peer| peer.system == system);
        let peer = peer.ok_or_else(|| format!("systems.json has no {system}"))?;
        Ok(Command::new(self.root.join(&peer.dir).join("run")))
    }

    /// The inner error is the reason why it cannot be installed here.
    async fn build(&self, dir: &str) -> Result<Result<(), String>> {
        let mut build = Command::new(self.root.join(dir).join("build"));
        build.stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
        let output = timeout(BUILD_LIMIT, build.output()).await.context(format!("building {dir}"))?;
        let output = output.context(format!("building {dir}"))?;
        if output.status.success() {
            return Ok(Ok(()));
        }
        let errors = String::from_utf8_lossy(&output.stderr);
        let why = errors.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("its build failed without output");
        Ok(Err(why.to_owned()))
    }

    async fn ask(&self, dir: &str) -> Result<AboutReply> {
        let mut run = Command::new(self.root.join(dir).join("run"));
        run.arg("--about").stdin(Stdio::null()).stderr(Stdio::inherit()).kill_on_drop(true);
        let output = timeout(ABOUT_LIMIT, run.output()).await.context("it did not answer --about")?;
        let output = output.context("running --about")?;
        let text = String::from_utf8_lossy(&output.stdout);
        let line = text.lines().next().unwrap_or_default();
        serde_json::from_str(line).context(format!("--about printed {line:?}"))
    }
}

impl Peer {
    fn about(&self, reply: &AboutReply) -> Result<About> {
        let SystemReply { version, settings } = reply
            .systems
            .get(&self.system)
            .ok_or_else(|| format!("its --about does not contain {}", self.system))?
            .clone();
        Ok(About {
            system: System::Peer(self.system.clone()),
            class: Some(self.class),
            has: self.has.clone(),
            version,
            settings,
        })
    }
}
