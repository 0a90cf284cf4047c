//! Choosing a store: the one file that knows all of them.

use std::sync::Arc;

use super::scheme::Scheme;
use super::{Store, memory};
use crate::error::Error;
use crate::world::World;

/// Returns the store that a URL names. Does no I/O.
pub fn choose(url: &str, prefix: Option<&str>, world: &Arc<dyn World>) -> Result<Arc<dyn Store>, Error> {
    match Scheme::of(url)? {
        (Scheme::Memory, _) if prefix.is_some() => {
            Err(Error::invalid("memory: takes no prefix: give the store a name instead, for example memory:app"))
        }
        (Scheme::Memory, "") => Ok(Arc::new(memory::Memory::private(world))),
        (Scheme::Memory, name) => Ok(Arc::new(memory::Memory::shared(name, world))),
        (Scheme::File, _) if prefix.is_some() => {
            Err(Error::invalid("file: takes no prefix: use another directory, for example file:/var/lib/app/tenant"))
        }
        (Scheme::File, rest) => open_file(rest, world),
        (Scheme::Quorum, rest) => gather(rest, prefix, world),
        (Scheme::Redis | Scheme::RedisTls, _) => connect_redis(url, prefix, world),
    }
}

#[cfg(feature = "redis")]
fn connect_redis(url: &str, prefix: Option<&str>, world: &Arc<dyn World>) -> Result<Arc<dyn Store>, Error> {
    let store = crate::store::redis::RedisStore::new(url, Arc::clone(world))?;
    Ok(match prefix {
        Some(prefix) => Arc::new(store.below(prefix)?),
        None => Arc::new(store),
    })
}

#[cfg(feature = "redis")]
fn gather(rest: &str, prefix: Option<&str>, world: &Arc<dyn World>) -> Result<Arc<dyn Store>, Error> {
    Ok(Arc::new(quorum_of(rest, prefix, world)?))
}

/// Returns the quorum that a URL names after its scheme.
#[cfg(feature = "redis")]
pub(crate) fn quorum_of(
    rest: &str,
    prefix: Option<&str>,
    world: &Arc<dyn World>,
) -> Result<crate::store::quorum::QuorumStore, Error> {
    let url = crate::store::quorum::url::QuorumUrl::parse(rest)?;
    let url = match prefix {
        Some(prefix) => url.below(prefix)?,
        None => url,
    };
    let node = |target| {
        Arc::new(crate::store::redis::RedisNode::new(target, Arc::clone(world)))
            as Arc<dyn crate::store::quorum::node::Node>
    };
    let nodes = url.nodes.into_iter().map(node).collect();
    Ok(crate::store::quorum::QuorumStore::new(nodes, url.charter.max_lease_ms, Arc::clone(world)))
}

#[cfg(not(feature = "redis"))]
fn connect_redis(_: &str, _: Option<&str>, _: &Arc<dyn World>) -> Result<Arc<dyn Store>, Error> {
    Err(no_redis())
}

#[cfg(not(feature = "redis"))]
fn gather(_: &str, _: Option<&str>, _: &Arc<dyn World>) -> Result<Arc<dyn Store>, Error> {
    Err(no_redis())
}

#[cfg(not(feature = "redis"))]
fn no_redis() -> Error {
    let message =
        "this program was built without the feature `redis` of Leasehold: enable it in Cargo.toml, or use memory:";
    Error::new(crate::error::ErrorKind::Unsupported, message)
}

#[cfg(all(feature = "file", target_os = "linux"))]
fn open_file(rest: &str, world: &Arc<dyn World>) -> Result<Arc<dyn Store>, Error> {
    Ok(Arc::new(crate::store::file::FileStore::new(rest, world)?))
}

#[cfg(not(all(feature = "file", target_os = "linux")))]
fn open_file(_: &str, _: &Arc<dyn World>) -> Result<Arc<dyn Store>, Error> {
    let message = match cfg!(target_os = "linux") {
        true => {
            "this program was built without the feature `file` of Leasehold: enable it in Cargo.toml, or use redis:"
        }
        false => "file: needs Linux: use redis:, or memory: within one process",
    };
    Err(Error::new(crate::error::ErrorKind::Unsupported, message))
}
