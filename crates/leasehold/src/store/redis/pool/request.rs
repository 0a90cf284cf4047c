//! Which scripts carry a request out: those of a mutex, or those of a pool.
//!
//! The session knows the kind of a name, as a rule. If it is wrong, the script finds a record that is not its own, and says
//! so without a word about any grant (P36): a script of pools says OTHER, and a script of a mutex says that the key has a
//! foreign hash, as it did before there were pools. Then the other script gets the request.

use leasehold_spec::{Acquire, Answer, Kind, LostHow, Mode, Name, Op, Outcome, Refusal, Renew, Take, Token};

use super::call;
use super::encoding::Encoding;
use crate::error::Error;
use crate::store::redis::call::Call;
use crate::store::redis::keys::Keys;
use crate::store::redis::reply::To;
use crate::store::{Fault, Guess};

/// A call, what its reply does not repeat, and what its answer means for the request.
pub(in crate::store::redis) struct Request {
    pub(in crate::store::redis) call: Call,
    pub(in crate::store::redis) to: To,
    /// Whether the call only settles, because the scripts of this record cannot carry the request out.
    is_stand_in: bool,
}

/// Returns one call with renewals of many names.
pub(in crate::store::redis) fn renewals(
    keys: &Keys,
    batch: &[(&Name, &Renew)],
    encoding: Encoding,
) -> Result<Call, Error> {
    match encoding {
        Encoding::Mutex => Call::renew(keys, batch),
        Encoding::Pool => call::renew(keys, batch),
    }
}

impl Request {
    pub(in crate::store::redis) fn new(
        keys: &Keys,
        (name, op): (&Name, &Op),
        guess: Guess,
        encoding: Encoding,
    ) -> Result<Self, Error> {
        let meets_mutex = |acquire: &Acquire| encoding == Encoding::Mutex && acquire.take.kind != Kind::Mutex;
        let own = match (encoding, op) {
            (_, Op::Acquire(acquire)) if meets_mutex(acquire) => None,
            (Encoding::Mutex, _) => Call::new(keys, name, op, guess.contention)?,
            (Encoding::Pool, _) => call::call(keys, name, op)?,
        };
        if let Some(call) = own {
            return Ok(Self { call, to: To::new(op, encoding), is_stand_in: false });
        }
        Ok(Self { is_stand_in: true, ..Self::new(keys, (name, &Op::Settle), guess, encoding)? })
    }

    /// Returns the answer to the request. `None` if the record that stood in the way is gone.
    pub(in crate::store::redis) fn answer(&self, op: &Op, answer: Answer) -> Option<Answer> {
        if !self.is_stand_in {
            return Some(answer);
        }
        let Take { kind, limit, .. } = Take::MUTEX;
        let refused = Outcome::Refused(Refusal::Other { kind, limit });
        let outcome = match op {
            _ if answer.highest == Token::NONE => return None,
            Op::Acquire(Acquire { not_after_us, .. })
            | Op::Resize { not_after_us, .. }
            | Op::CreateLatch { not_after_us, .. }
                if answer.now_us > *not_after_us =>
            {
                Outcome::Late
            }
            Op::Acquire(Acquire { take: Take { mode: Mode::Instead { .. }, .. }, .. }) => {
                Outcome::Refused(Refusal::NoGrant)
            }
            Op::Acquire(_) | Op::Resize { .. } | Op::CreateLatch { .. } | Op::Notify { .. } => refused,
            Op::Spend { .. } => Outcome::NotHeld,
            Op::CountDown { .. } => Outcome::Refused(Refusal::Absent),
            Op::DeleteLatch { .. } => Outcome::Deleted,
            _ => Outcome::Lost { how: LostHow::NotHeld },
        };
        Some(Answer { outcome, ..answer })
    }
}

/// Returns the fault of a request that has met one encoding and then the other, again and again.
pub(in crate::store::redis) fn restless(key: &str) -> Fault {
    let message = format!("the key {key:?} changes between a mutex and another kind: use one kind for one name");
    Fault::Refused(Error::new(crate::error::ErrorKind::Foreign, message))
}
