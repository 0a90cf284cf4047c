//! Locks on one Redis.
//!
//! The store decides by scripts that say exactly what [`leasehold_spec::step`] says; the differential test holds them to
//! it, operation by operation. What is in the store, and how, is told at the head of `part/open.lua`; how a request becomes
//! a script's arguments in `call.rs`, and its words an answer again in `reply.rs`; what an error means in `fault.rs`, and
//! what the server's user must be allowed to do in `rights.rs`; how a connection is made in `dial.rs`, with what is shown
//! and believed in `credentials.rs` and `tls.rs`, what is too long to be an answer in `sieve.rs`, and its first exchange in
//! `handshake.rs`; when requests are written in `gather.rs`. Of these, fences share `dial.rs` (and what that uses),
//! `fault.rs` and `url.rs`.
//!
//! A file does not know more than it has to: `link.rs` moves requests and knows no field of a record; the scripts know no
//! session beyond its id; nothing outside of this folder and `fence/` knows that the client crate exists.

mod call;
mod credentials;
mod dial;
mod fault;
#[cfg(test)]
mod fuzz;
mod gather;
mod handshake;
mod keys;
mod link;
#[cfg(leasehold_lab)]
mod mutants;
#[cfg(all(test, feature = "tls"))]
#[expect(dead_code, reason = "compiled for its test: the tests have TLS")]
mod no_tls;
mod node;
mod reply;
mod rights;
mod scripts;
mod secrets;
mod sieve;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "no_tls.rs"]
mod tls;
mod url;
mod wire;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use leasehold_spec::{Contention, Name, Op, Renew};

pub(crate) use dial::{dial, drive};
pub(crate) use fault::{Asker, Trouble, silent};
pub use node::{NodeScripts, RedisNode};
pub use rights::{FENCE_RIGHTS, NODE_RIGHTS, RIGHTS};
pub use scripts::{Script, Scripts};
pub use secrets::Secrets;
pub(crate) use url::{NAMES, Target, decode};

use self::call::Call;
use self::keys::Keys;
use crate::error::Error;
use crate::store::{Link, Store, StoreProfile};
use crate::world::{Pending, World};

/// One Redis.
pub struct RedisStore {
    target: Target,
    world: Arc<dyn World>,
}

impl RedisStore {
    /// Reads a `redis://` or `rediss://` URL. No I/O.
    pub fn new(url: &str, world: Arc<dyn World>) -> Result<Self, Error> {
        Ok(Self { target: Target::parse(url)?, world })
    }

    /// The same store, below a prefix.
    pub(crate) fn below(self, prefix: &str) -> Result<Self, Error> {
        Ok(Self { target: self.target.below(prefix)?, world: self.world })
    }

    /// A request as it goes over the wire: for measurements of what the server does with it.
    #[doc(hidden)]
    pub fn request(&self, name: &Name, op: &Op, guess: Contention) -> Result<Vec<u8>, Error> {
        let call = Call::new(&Keys::new(&self.target.prefix), name, op, guess)?;
        Ok(call.by_digest().get_packed_command())
    }

    /// A batch of renewals, likewise.
    #[doc(hidden)]
    pub fn renewal(&self, batch: &[(Name, Renew)]) -> Result<Vec<u8>, Error> {
        let keys = Keys::new(&self.target.prefix);
        let call = Call::renew(&keys, &batch.iter().map(|(name, renew)| (name, renew)).collect::<Vec<_>>())?;
        Ok(call.by_digest().get_packed_command())
    }
}

impl Store for RedisStore {
    fn open(&self) -> Pending<Result<Arc<dyn Link>, Error>> {
        let opening = handshake::open(self.target.clone(), Arc::clone(&self.world));
        Box::pin(async { Ok(Arc::new(opening.await?) as Arc<dyn Link>) })
    }

    fn profile(&self) -> StoreProfile {
        StoreProfile::default()
    }

    fn silence(&self) -> Option<Error> {
        None
    }

    fn life(&self) -> Option<OwnedFd> {
        None
    }
}
