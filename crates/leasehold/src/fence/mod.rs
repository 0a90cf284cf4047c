//! Fences: they make a resource refuse writes of a holder whose lease has ended.
//!
//! A lock that can be lost excludes a former holder only if that holder notices the loss. A process that is stopped in the
//! middle of its work notices nothing: a debugger, a snapshot of a virtual machine or a hanging disk can do this. It
//! continues an hour later, and writes. No lock service can prevent that. The resource can: each grant has a
//! [`Token`](crate::Token) that is larger than all earlier ones, and the resource refuses a token that is smaller than one
//! it has seen.
//!
//! # Why is a check before each write not enough?
//!
//! The diagram that made fencing tokens known (Martin Kleppmann, *How to do distributed locking*, 2016) shows a storage
//! that refuses **writes** with an old token. This can still lose an update:
//!
//! | Step | A holds token 33 | B holds token 34 | The resource has seen |
//! |---|---|---|---|
//! | 1 | reads "5 left", then stops | | nothing |
//! | 2 | its lease ends | gets the lock | nothing |
//! | 3 | | reads "5 left" | nothing, if reads do not count |
//! | 4 | writes "4 left" | | 33: accepted |
//! | 5 | | writes "4 left" | 34: accepted. Two items were sold, but the stock fell by one |
//!
//! No message arrived out of order. The solution is that B's *read* excludes A. So every holder **enters** with its
//! token before its first read, and entering raises the mark of the resource. In step 4 the mark is then 34, and A's
//! write is refused.
//!
//! # Two marks
//!
//! Holders of a read-write lock read at the same time, with tokens in any order, and must not exclude each other. So
//! there are two marks: the largest token of a **writer**, and the largest token of **all**.
//!
//! | Access | Requires a token of at least | Raises |
//! |---|---|---|
//! | [`Access::Read`] | the largest token of a writer | the mark of all |
//! | [`Access::Write`] | the largest token of all | both marks |
//!
//! *At least*: a holder may enter any number of times. (A fence that refuses an equal token also refuses the holder's
//! own second write.) The check, the mark and the effect must be one atomic step. Otherwise the process can be stopped
//! between them. The marks must live as long as the data.
//!
//! # Which fence to use
//!
//! | The data is | Use |
//! |---|---|
//! | in this process | [`Fenced`]: data behind a gate, for any number of threads |
//! | something else behind a lock or an actor of yours: a file, a device, a row | a [`Gate`] next to it |
//! | a key in Redis | `RedisFence` (feature `redis`) |
//! | in an SQL database | a `WHERE` clause, see below |
//! | outside of your control: mail, a payment | the token as idempotency key, if there is one; otherwise no fence is possible |
//!
//! If one lock guards several resources, enter all of them in a fixed order before you read any of them.
//!
//! # SQL
//!
//! Add two columns to the data, and use one statement for each step. If a statement changes no row, the token is stale
//! (or the row does not exist): roll back and stop.
//!
//! ```sql
//! ALTER TABLE stock ADD COLUMN fence_writers bigint NOT NULL DEFAULT 0;
//! ALTER TABLE stock ADD COLUMN fence_all     bigint NOT NULL DEFAULT 0;
//!
//! -- Enter and read. Without RETURNING: this UPDATE first, then the SELECT.
//! UPDATE stock
//!    SET fence_all = CASE WHEN fence_all < :token THEN :token ELSE fence_all END
//!  WHERE id = :id AND fence_writers <= :token
//! RETURNING pieces;
//!
//! -- Every write.
//! UPDATE stock SET pieces = :pieces, fence_writers = :token, fence_all = :token
//!  WHERE id = :id AND fence_all <= :token;
//! ```
//!
//! With a plain mutex, all holders may write. Then one column is enough: `fence_all`.

mod gate;
mod memory;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "redis")]
mod script;
#[cfg(feature = "redis")]
mod server;

pub use self::gate::{Access, Gate, Stale};
pub use self::memory::Fenced;
#[cfg(feature = "redis")]
pub use self::redis::RedisFence;
