//! The messages between supervisor and minder, over a socket pair.
//!
//! The supervisor sends only from its main loop: if it hangs, it does not defer the end of the command. No process inherits
//! its end of the pair, so that the minder reads the end of the stream when the supervisor is gone, for whatever reason.

use std::io;

use rustix::process::Pid;

/// A message of the supervisor. Times are on CLOCK_BOOTTIME, which both processes read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// The lease was renewed: KILL is due at this time, and TERM `--kill-after` earlier.
    Until { kill_us: u64 },
    /// The lease is lost: TERM is due now, and KILL at this time.
    End { kill_us: u64 },
    /// The command is this child of the supervisor.
    Command { pid: Pid },
    /// Asks whether the group has members left.
    Check,
}

/// The length of an order on the wire, in bytes.
pub(crate) const ORDER: usize = 9;

impl Order {
    pub(crate) fn to_bytes(self) -> [u8; ORDER] {
        let (kind, number) = match self {
            Self::Until { kill_us } => (b'u', kill_us),
            Self::End { kill_us } => (b'e', kill_us),
            Self::Command { pid } => (b'c', u64::from(pid.as_raw_nonzero().get().unsigned_abs())),
            Self::Check => (b'l', 0),
        };
        let mut bytes = [kind; ORDER];
        bytes[1..].copy_from_slice(&number.to_le_bytes());
        bytes
    }

    pub(crate) fn read(bytes: [u8; ORDER]) -> io::Result<Self> {
        let [kind, number @ ..] = bytes;
        let number = u64::from_le_bytes(number);
        let pid = || i32::try_from(number).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidData);
        match kind {
            b'u' => Ok(Self::Until { kill_us: number }),
            b'e' => Ok(Self::End { kill_us: number }),
            b'c' => Ok(Self::Command { pid: pid()? }),
            b'l' => Ok(Self::Check),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// A message of the minder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// The minder has blocked all signals: the command may be started.
    Ready,
    /// The minder has sent TERM to the group.
    TermSent,
    /// The minder is the only member of the group.
    Empty,
    /// The group has other members.
    Inhabited,
}

impl Message {
    pub(crate) fn to_byte(self) -> u8 {
        match self {
            Self::Ready => b'r',
            Self::TermSent => b't',
            Self::Empty => b'e',
            Self::Inhabited => b'i',
        }
    }

    pub(crate) fn read(byte: u8) -> Option<Self> {
        [Self::Ready, Self::TermSent, Self::Empty, Self::Inhabited]
            .into_iter()
            .find(|message| message.to_byte() == byte)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_and_messages_survive_the_wire() {
        let command = Order::Command { pid: Pid::INIT };
        for order in [Order::Until { kill_us: 1 << 50 }, Order::End { kill_us: 7 }, command, Order::Check] {
            assert_eq!(Order::read(order.to_bytes()).unwrap(), order);
        }
        assert!(Order::read([b'x'; ORDER]).is_err());
        for message in [Message::Ready, Message::TermSent, Message::Empty, Message::Inhabited] {
            assert_eq!(Message::read(message.to_byte()), Some(message));
        }
        assert_eq!(Message::read(b'x'), None);
    }
}
