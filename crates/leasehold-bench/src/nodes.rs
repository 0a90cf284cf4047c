//! The five independent servers of a quorum, started by this program, in addition to the store that has the counter.

use std::time::Duration;

use leasehold_testkit::Quorum;
use leasehold_testkit::proxy::Latency;
use redis::aio::MultiplexedConnection;

use crate::error::{Context, Result};
use crate::store::Cost;
use crate::system;

/// The number of servers: two may die.
pub(crate) const NODES: usize = 5;

/// The largest deviation of a delay, in both directions.
const JITTER_US: u64 = 1_000;

/// The servers, and a connection to each for its statistics.
pub(crate) struct Nodes {
    controls: Vec<MultiplexedConnection>,
    quorum: Quorum,
}

impl Nodes {
    pub(crate) async fn start() -> Result<Self> {
        let quorum = Quorum::start(NODES);
        let mut controls = Vec::new();
        for url in quorum.urls() {
            controls.push(system::connection(&url).await?);
        }
        Ok(Self { controls, quorum })
    }

    /// Returns their URLs: through proxies if the answers are to be delayed.
    pub(crate) fn urls(&self, delay_us: Option<u64>) -> Vec<String> {
        let Some(delay_us) = delay_us else { return self.quorum.urls() };
        let each_way = |us: u64| Duration::from_micros(us / 2);
        for (seed, proxy) in (1..).zip(self.quorum.proxies()) {
            let (fixed, jitter) = (each_way(delay_us.saturating_sub(JITTER_US)), each_way(2 * JITTER_US));
            proxy.set_latency(Some(Latency { fixed, jitter, seed }));
        }
        self.quorum.proxies().iter().map(|proxy| proxy.url()).collect()
    }

    /// Empties all of them, and makes them vote at once: otherwise a node that has lost its data is in quarantine.
    pub(crate) async fn clear(&mut self) -> Result<()> {
        for control in &mut self.controls {
            redis::cmd("FLUSHALL").exec_async(control).await.context("emptying a node")?;
        }
        leasehold::quorum::begin(&url_of(&self.quorum.urls())).await.context("beginning a quorum")
    }

    /// Returns the work of all of them so far.
    pub(crate) async fn cost(&mut self) -> Result<Cost> {
        let mut all = Cost::default();
        for control in &mut self.controls {
            all = all.and(&Cost::ask(control).await?);
        }
        Ok(all)
    }
}

/// Returns the URL of a quorum of these.
pub(crate) fn url_of(nodes: &[String]) -> String {
    let nodes: Vec<String> = nodes.iter().map(|node| format!("node={}", node.replace('&', "%26"))).collect();
    format!("quorum:?{}", nodes.join("&"))
}

/// Returns the nodes of a URL from [`url_of`]. They are this program's own, and their URLs have no parameters.
pub(crate) fn of_url(url: &str) -> impl Iterator<Item = &str> {
    url.split(['?', '&']).filter_map(|part| part.strip_prefix("node="))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quorum_is_its_nodes() {
        let nodes = ["redis://127.0.0.1:1", "redis://127.0.0.1:2"].map(String::from);
        let url = url_of(&nodes);
        assert_eq!(url, "quorum:?node=redis://127.0.0.1:1&node=redis://127.0.0.1:2");
        assert_eq!(of_url(&url).collect::<Vec<_>>(), nodes);
    }
}
