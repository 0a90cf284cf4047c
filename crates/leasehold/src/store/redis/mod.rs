//! Locks on one Redis.
//!
//! The store decides by scripts that do exactly what [`leasehold_spec::step`] specifies. The differential test compares the
//! two, operation by operation.
//!
//! | File | Contents |
//! |---|---|
//! | `layout.rs`, `fields.rs` | the fields of all records and arguments, their widths and their places |
//! | `part/open.lua` | its head describes how the records of a name are stored |
//! | `scripts.rs`, `parts.rs`, `source.rs`, `positions.rs` | the table of all scripts, and how a Lua file becomes the source that is sent |
//! | `call.rs`, `batch_call.rs`, `reply.rs`, `words.rs` | from a request to the arguments of a script, and from its reply to an answer |
//! | `fault.rs`, `rights.rs` | the meaning of each error, and the rights that the user needs |
//! | `url.rs`, `named.rs` | URLs, and the files and secrets that they name |
//! | `dial.rs`, `credentials.rs`, `tls.rs`, `sieve.rs` | how a connection is opened, and the bounds of a reply |
//! | `handshake.rs` | the first exchange |
//! | `wire.rs`, `link_state.rs`, `gather.rs`, `link.rs`, `batch.rs` | how requests are sent, and when they are written |
//! | `pool/` | names that have several grants at a time |
//! | `node/` | the same for a node of a quorum |
//!
//! Fences share `dial.rs` (and the files that it uses), `fault.rs`, `layout.rs`, `source.rs` and `url.rs`.
//!
//! `link.rs` moves requests and knows no field of a record. The scripts know only the ID of a session. Nothing outside
//! of this folder and `fence/` knows that the client crate exists.

mod arguments;
mod batch;
mod batch_call;
mod call;
mod credentials;
mod dial;
mod fault;
mod fields;
#[cfg(test)]
mod fuzz;
mod gather;
mod handshake;
mod inspection;
mod keys;
pub(crate) mod layout;
mod link;
mod link_state;
mod many;
#[cfg(leasehold_lab)]
mod mutants;
pub(crate) mod named;
#[cfg(all(test, feature = "tls"))]
#[expect(dead_code, reason = "compiled for its test: the tests have TLS")]
mod no_tls;
mod node;
mod parts;
mod pool;
mod positions;
mod reply;
mod rights;
mod scripts;
mod sieve;
mod source;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "no_tls.rs"]
mod tls;
pub(crate) mod url;
mod wire;
mod words;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use leasehold_spec::{Kind, Name, Op, Renew};

pub(crate) use dial::{dial, drive};
pub(crate) use fault::{Asker, Trouble, silent};
pub use node::RedisNode;
pub use rights::{FENCE_RIGHTS, NODE_RIGHTS, POOL_RIGHTS, RIGHTS};
pub use scripts::{Family, Flags, Script};
pub use source::Source;
pub(crate) use source::assemble;
pub(crate) use url::{NAMES, Target, decode};

use self::keys::Keys;
use self::pool::encoding::Encoding;
use self::pool::request::{Request, renewals};
use crate::error::Error;
use crate::store::{Guess, Link, Store, StoreProfile};
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

    /// Returns the same store with a prefix.
    pub(crate) fn below(self, prefix: &str) -> Result<Self, Error> {
        Ok(Self { target: self.target.below(prefix)?, world: self.world })
    }

    /// Returns the bytes of a request: for measurements of the server.
    #[doc(hidden)]
    pub fn request(&self, name: &Name, op: &Op, guess: Guess) -> Result<Vec<u8>, Error> {
        let request = Request::new(&Keys::new(&self.target.prefix), (name, op), guess, Encoding::expected(op, guess))?;
        Ok(request.call.by_digest().get_packed_command())
    }

    /// Returns the bytes of a batch of renewals.
    #[doc(hidden)]
    pub fn renewal(&self, batch: &[(Name, Renew)], kind: Kind) -> Result<Vec<u8>, Error> {
        let keys = Keys::new(&self.target.prefix);
        let batch: Vec<_> = batch.iter().map(|(name, renew)| (name, renew)).collect();
        let call = renewals(&keys, &batch, Encoding::of(kind))?;
        Ok(call.by_digest().get_packed_command())
    }
}

impl Store for RedisStore {
    fn open(&self) -> Pending<Result<Arc<dyn Link>, Error>> {
        let opening = handshake::open(self.target.clone(), Arc::clone(&self.world));
        Box::pin(async { Ok(Arc::new(opening.await?) as Arc<dyn Link>) })
    }

    fn profile(&self) -> StoreProfile {
        StoreProfile {
            kinds: &Kind::ALL,
            takes_together: true,
            names_successors: true,
            moves_inbox: true,
            ..StoreProfile::default()
        }
    }

    fn silence(&self) -> Option<Error> {
        None
    }

    fn life(&self) -> Option<OwnedFd> {
        None
    }
}
