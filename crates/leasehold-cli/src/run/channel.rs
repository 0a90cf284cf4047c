//! What supervisor and minder say to each other, over a socket pair.
//!
//! The supervisor speaks from its main loop only: one that hangs puts nothing off. Its end of the pair is inherited by
//! nobody, so that the minder reads the end of the stream when the supervisor is gone, however it went.

use std::io;

use rustix::process::Pid;

/// What the supervisor says. Times are on CLOCK_BOOTTIME, which both of them read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// The lease goes on: KILL is due then, TERM as much earlier as was said at the start.
    Until { kill_us: u64 },
    /// It is lost: TERM now, KILL then.
    End { kill_us: u64 },
    /// The command is this child of the supervisor's.
    Command { pid: Pid },
    /// Is anybody left in the group?
    Look,
}

/// How long an order is on the wire.
pub(crate) const ORDER: usize = 9;

impl Order {
    pub(crate) fn to_bytes(self) -> [u8; ORDER] {
        let (word, number) = match self {
            Self::Until { kill_us } => (b'u', kill_us),
            Self::End { kill_us } => (b'e', kill_us),
            Self::Command { pid } => (b'c', u64::from(pid.as_raw_nonzero().get().unsigned_abs())),
            Self::Look => (b'l', 0),
        };
        let mut bytes = [word; ORDER];
        bytes[1..].copy_from_slice(&number.to_le_bytes());
        bytes
    }

    pub(crate) fn read(bytes: [u8; ORDER]) -> io::Result<Self> {
        let [word, number @ ..] = bytes;
        let number = u64::from_le_bytes(number);
        let pid = || i32::try_from(number).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidData);
        match word {
            b'u' => Ok(Self::Until { kill_us: number }),
            b'e' => Ok(Self::End { kill_us: number }),
            b'c' => Ok(Self::Command { pid: pid()? }),
            b'l' => Ok(Self::Look),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// What the minder says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// No signal ends it any more: the command may be started.
    Ready,
    /// It has told the group to end.
    Told,
    /// Nobody but itself is in the group.
    Empty,
    /// Somebody is.
    Inhabited,
}

impl Word {
    pub(crate) fn to_byte(self) -> u8 {
        match self {
            Self::Ready => b'r',
            Self::Told => b't',
            Self::Empty => b'e',
            Self::Inhabited => b'i',
        }
    }

    pub(crate) fn read(byte: u8) -> Option<Self> {
        [Self::Ready, Self::Told, Self::Empty, Self::Inhabited].into_iter().find(|word| word.to_byte() == byte)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_and_words_are_read_as_they_were_written() {
        let command = Order::Command { pid: Pid::INIT };
        for order in [Order::Until { kill_us: 1 << 50 }, Order::End { kill_us: 7 }, command, Order::Look] {
            assert_eq!(Order::read(order.to_bytes()).unwrap(), order);
        }
        assert!(Order::read([b'x'; ORDER]).is_err());
        for word in [Word::Ready, Word::Told, Word::Empty, Word::Inhabited] {
            assert_eq!(Word::read(word.to_byte()), Some(word));
        }
        assert_eq!(Word::read(b'x'), None);
    }
}
