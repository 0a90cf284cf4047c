//! One node of a quorum, on one Redis.
//!
//! The node decides by scripts that do exactly what [`leasehold_spec::node`] specifies; `tests/votes` compares them.
//! The head of `part/open.lua` describes the stored data, and `store/redis/layout.rs` its fields. Nodes are independent
//! primaries, and none of them is part of a cluster, so one script may touch several keys. The connection and the table
//! of scripts are shared with locks on one Redis: see `..`.

mod call;
mod candidate;
#[cfg(test)]
mod fuzz;
mod link;
pub(super) mod reply;

use std::sync::Arc;

use leasehold_spec::node::Charter;

use super::url::Target;
use crate::error::Error;
use crate::store::quorum::node::{Candidate, Node, NodeLink};
use crate::world::{Pending, World};

/// One Redis, as a node.
pub struct RedisNode {
    target: Target,
    at: String,
    world: Arc<dyn World>,
}

impl RedisNode {
    pub(crate) fn new(target: Target, world: Arc<dyn World>) -> Self {
        let at = target.address.to_string();
        Self { target, at, world }
    }

    /// Reads a `redis://` or `rediss://` URL. No I/O.
    #[doc(hidden)]
    pub fn parse(url: &str, world: Arc<dyn World>) -> Result<Self, Error> {
        Ok(Self::new(Target::parse(url)?, world))
    }
}

impl Node for RedisNode {
    fn at(&self) -> &str {
        &self.at
    }

    fn open(&self, charter: Charter) -> Pending<Result<Arc<dyn NodeLink>, Error>> {
        let opening = link::open(self.target.clone(), charter, Arc::clone(&self.world));
        Box::pin(async { Ok(Arc::new(opening.await?) as Arc<dyn NodeLink>) })
    }

    fn prepare(&self, charter: Charter) -> Pending<Result<Arc<dyn Candidate>, Error>> {
        let preparing = candidate::prepare(self.target.clone(), charter, Arc::clone(&self.world));
        Box::pin(async { Ok(Arc::new(preparing.await?) as Arc<dyn Candidate>) })
    }
}
