//! Bounds of a reply: a socket that breaks if a reply is longer, wider or deeper than every reply to our requests.
//!
//! The client crate trusts lengths. After `$999999999999` it keeps all bytes that arrive, and of an array it keeps an item
//! for each three bytes. So a program in the place of the store can fill our memory, until the session's own bounds end the
//! connection (seconds; a quarter of a gigabyte on a busy machine). This file reads the lengths first, and the connection
//! ends at a length that no reply to our requests has.
//!
//! RESP is simple enough for that. Every value begins with a line. Some of these lines say how many bytes or values follow.
//! The bytes are skipped, and only their number is kept.
//!
//! This helps only if both parsers read the same. The client crate also accepts `+5` and ` 5 ` as lengths, and after
//! `=-1` it waits for all bytes that there are. For the client crate, a line ends at `\r\n` and nowhere else. So this
//! file accepts the lengths that every server writes: digits, or `-1` for nothing. Anything else ends the connection.
//! So it never skips bytes that the client crate reads.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::world::Socket;

/// The largest length, width and depth of a whole reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sieve {
    bytes: u64,
    items: u64,
    depth: usize,
}

impl Sieve {
    /// For locks: the longest reply is a page of names, with 1,000 keys or a few more, each of at most 1 kB.
    pub(crate) const LOCKS: Self = Self { bytes: 4 << 20, items: 1 << 16, depth: 8 };
    /// For fences: a value belongs to the caller and can have any length.
    pub(crate) const FENCE: Self = Self { bytes: u64::MAX, items: 1 << 16, depth: 8 };

    /// Returns whether these pieces are accepted.
    #[cfg(test)]
    pub(super) fn passes(self, pieces: &[&[u8]]) -> bool {
        let mut scan = Scan::new(self);
        pieces.iter().all(|piece| scan.see(piece).is_ok())
    }

    /// Wraps a socket.
    pub(crate) fn before(self, socket: Box<dyn Socket>) -> Box<dyn Socket> {
        Box::new(Sieved { socket, scan: Scan::new(self), in_a_row: 0 })
    }
}

struct Sieved {
    socket: Box<dyn Socket>,
    scan: Scan,
    /// The number of consecutive reads that found something.
    in_a_row: u32,
}

/// After this number of reads, of 8 kB each, the driver yields. Otherwise it reads for as long as the runtime lets a task
/// run, and dozens of times again before timers have their turn. With a server that sends without an end, the session's
/// thread would reach its deadlines seconds late. (The number is not 1: nearly always the second read finds nothing,
/// and each reply would cost a turn.)
const IN_A_ROW: u32 = 2;

impl AsyncRead for Sieved {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.in_a_row >= IN_A_ROW {
            self.in_a_row = 0;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.in_a_row += 1;
        let before = into.filled().len();
        let read = Pin::new(&mut *self.socket).poll_read(context, into);
        if read.is_pending() {
            self.in_a_row = 0;
        }
        ready!(read)?;
        let seen = self.scan.see(&into.filled()[before..]);
        Poll::Ready(seen.map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why)))
    }
}

impl AsyncWrite for Sieved {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.socket).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.socket).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.socket).poll_shutdown(context)
    }
}

/// The position in a reply.
#[derive(Clone, Debug)]
struct Scan {
    most: Sieve,
    /// Bytes and values of this reply so far.
    bytes: u64,
    items: u64,
    /// Bytes to skip, with the end of their line.
    skip: u64,
    /// The number of values that are still to come, at each depth.
    open: Vec<u64>,
    line: Line,
}

/// The first line of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    /// Nothing of it has arrived.
    None,
    /// Its kind, its length so far, and its last byte.
    Some { kind: u8, says: Says, last: u8 },
}

/// The length that a line gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Says {
    /// None so far.
    Nothing,
    /// A minus sign.
    Minus,
    /// `-1`: there is no such value.
    Null,
    Length(u64),
}

const TOO_LONG: &str = "a reply that is longer than any valid one";
const NO_LENGTH: &str = "an answer whose length is no number";

impl Scan {
    fn new(most: Sieve) -> Self {
        Self { most, bytes: 0, items: 0, skip: 0, open: Vec::new(), line: Line::None }
    }

    fn see(&mut self, mut bytes: &[u8]) -> Result<(), &'static str> {
        while let Some((&byte, rest)) = bytes.split_first() {
            if self.skip > 0 {
                let skipped = self.skip.min(bytes.len() as u64);
                self.skip -= skipped;
                self.count(skipped)?;
                // At most the length of the slice, so it fits.
                bytes = bytes.get(usize::try_from(skipped).unwrap_or(usize::MAX)..).unwrap_or_default();
                if self.skip == 0 {
                    self.end_value();
                }
                continue;
            }
            self.count(1)?;
            bytes = rest;
            self.line = match (self.line, byte) {
                (Line::None, kind) => Line::Some { kind, says: Says::Nothing, last: kind },
                (Line::Some { kind, says, last: b'\r' }, b'\n') => {
                    self.end_line(kind, says)?;
                    Line::None
                }
                (Line::Some { kind, says, last }, _) if is_length(kind) => {
                    Line::Some { kind, says: says.and(last, byte)?, last: byte }
                }
                (Line::Some { kind, says, .. }, _) => Line::Some { kind, says, last: byte },
            };
        }
        Ok(())
    }

    fn count(&mut self, more: u64) -> Result<(), &'static str> {
        self.bytes = self.bytes.saturating_add(more);
        if self.bytes > self.most.bytes { Err(TOO_LONG) } else { Ok(()) }
    }

    /// Ends a line, and takes the length that it gives.
    fn end_line(&mut self, kind: u8, says: Says) -> Result<(), &'static str> {
        match (kind, says) {
            (b'$' | b'=' | b'!', Says::Length(bytes)) => {
                if bytes > self.most.bytes {
                    return Err(TOO_LONG);
                }
                self.skip = bytes.checked_add(2).ok_or(TOO_LONG)?;
            }
            (b'*' | b'~' | b'>', Says::Length(items)) => self.begin(items)?,
            (b'%', Says::Length(pairs)) => self.begin(pairs.checked_mul(2).ok_or(TOO_LONG)?)?,
            // An attribute precedes its value, and does not count as a value.
            (b'|', Says::Length(pairs)) => {
                self.begin(pairs.checked_mul(2).and_then(|items| items.checked_add(1)).ok_or(TOO_LONG)?)?;
            }
            (b'$' | b'*', Says::Null) => self.end_value(),
            (kind, _) if is_length(kind) => return Err(NO_LENGTH),
            _ => self.end_value(),
        }
        Ok(())
    }

    fn begin(&mut self, items: u64) -> Result<(), &'static str> {
        self.items = self.items.saturating_add(items);
        if self.items > self.most.items {
            return Err("a reply with more parts than any valid one");
        }
        if items == 0 {
            self.end_value();
        } else if self.open.len() < self.most.depth {
            self.open.push(items);
        } else {
            return Err("a reply with deeper nesting than any valid one");
        }
        Ok(())
    }

    /// Ends a value, and every value of which it was the last part.
    fn end_value(&mut self) {
        while let Some(left) = self.open.last_mut() {
            *left -= 1;
            if *left > 0 {
                return;
            }
            self.open.pop();
        }
        (self.bytes, self.items) = (0, 0);
    }
}

impl Says {
    /// Adds one byte to a line.
    fn and(self, last: u8, byte: u8) -> Result<Self, &'static str> {
        match (self, byte) {
            // The end of the line has begun, and must be complete.
            _ if last == b'\r' => Err(NO_LENGTH),
            (says, b'\r') => Ok(says),
            (Self::Nothing, b'-') => Ok(Self::Minus),
            (Self::Minus, b'1') => Ok(Self::Null),
            (Self::Nothing, b'0'..=b'9') => Ok(Self::Length(u64::from(byte - b'0'))),
            (Self::Length(length), b'0'..=b'9') => {
                let longer = length.checked_mul(10).and_then(|length| length.checked_add(u64::from(byte - b'0')));
                longer.map(Self::Length).ok_or(TOO_LONG)
            }
            _ => Err(NO_LENGTH),
        }
    }
}

fn is_length(kind: u8) -> bool {
    matches!(kind, b'$' | b'=' | b'!' | b'*' | b'~' | b'>' | b'%' | b'|')
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::Duration;

    use super::*;

    const SMALL: Sieve = Sieve { bytes: 100, items: 10, depth: 3 };

    fn see(bytes: &[u8]) -> Result<Scan, &'static str> {
        let mut scan = Scan::new(SMALL);
        // For every way in which the network can cut the bytes.
        bytes.chunks(3).try_for_each(|piece| scan.see(piece))?;
        Ok(scan)
    }

    #[test]
    fn an_endless_reply_does_not_block_other_tasks() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(steps_aside());
    }

    async fn steps_aside() {
        let (socket, server) = tokio::net::UnixStream::pair().unwrap();
        server.try_write(&b"+OK\r\n".repeat(1_000)).unwrap();
        socket.readable().await.unwrap();
        let (mut socket, mut reads) = (Sieve::LOCKS.before(Box::new(socket)), 0);
        for turn in 1..4 {
            // The driver yields, and is woken immediately, because there is more.
            let turned = poll_fn(|context| {
                let mut chunk = [0; 16];
                while Pin::new(&mut *socket).poll_read(context, &mut ReadBuf::new(&mut chunk)).is_ready() {
                    reads += 1;
                }
                if reads >= turn * IN_A_ROW { Poll::Ready(()) } else { Poll::Pending }
            });
            tokio::time::timeout(Duration::from_secs(10), turned).await.unwrap();
            assert_eq!(reads, turn * IN_A_ROW);
        }
    }

    #[test]
    fn a_complete_reply_leaves_no_state() {
        for whole in [
            "+OK\r\n",
            "-ERR x\r\n",
            ":1\r\n",
            "_\r\n",
            "#t\r\n",
            ",1.5\r\n",
            "$-1\r\n",
            "*-1\r\n",
            "$07\r\nseven..\r\n",
            "(3492890328409238509324850943850943825024385\r\n",
            "-ERR of a proxy:\n$5\r*9\n\r\r\n",
            "$0\r\n\r\n",
            "*0\r\n",
            "$3\r\na\r\n\r\n",
            "=5\r\ntxt:a\r\n",
            "*2\r\n*1\r\n:1\r\n$1\r\na\r\n",
            ">2\r\n+a\r\n+b\r\n",
            "%1\r\n+a\r\n*0\r\n",
            "|1\r\n+a\r\n+b\r\n:7\r\n",
        ] {
            let scan = see(whole.repeat(50).as_bytes()).unwrap_or_else(|why| panic!("{whole:?}: {why}"));
            assert_eq!(
                (scan.bytes, scan.items, scan.skip, scan.open.len(), scan.line),
                (0, 0, 0, 0, Line::None),
                "{whole:?}"
            );
        }
    }

    #[test]
    fn a_reply_that_is_too_large_is_refused_at_its_length() {
        for lie in [
            "$101\r\n",
            "$999999999999\r\n",
            "$99999999999999999999999\r\n",
            "*11\r\n",
            "*2147483647\r\n",
            "%6\r\n",
            ">11\r\n",
            "%9223372036854775807\r\n",
            "|9223372036854775807\r\n",
            "*1\r\n*1\r\n*1\r\n*1\r\n",
            "*6\r\n*6\r\n",
        ] {
            assert!(see(lie.as_bytes()).is_err(), "{lie:?}");
        }
        assert!(see(&[&b"+"[..], &[b'x'; 100]].concat()).is_err(), "a line without an end");
        assert!(see(b"*1\r\n*1\r\n*1\r\n:1\r\n").is_ok());
    }

    /// The client crate would read these lengths in another way.
    #[test]
    fn ambiguous_lengths_are_refused() {
        for lie in [
            "$+99\r\n",
            "* 9\r\n",
            "*9 \r\n",
            "=-1\r\n",
            "!-1\r\n",
            "%-1\r\n",
            ">-1\r\n",
            "~-1\r\n",
            "$-2\r\n",
            "$--1\r\n",
            "$?\r\n",
            "*?\r\n",
            "$\r\n",
            "$-\r\n",
            "$1\na\r\n",
            "$1\r1\r\n",
        ] {
            assert_eq!(see(lie.as_bytes()).err(), Some(NO_LENGTH), "{lie:?}");
        }
        // The client crate reads one line, and then an array.
        assert!(see(b"+x\n$60\n\r\n*2147483647\r\n:1\r\n").is_err());
    }

    #[test]
    fn lengths_do_not_overflow() {
        for length in [u64::MAX - 2, u64::MAX - 1, u64::MAX] {
            let _refused_or_not = Sieve::FENCE.passes(&[format!("${length}\r\nabc").as_bytes()]);
        }
        assert!(!Sieve::FENCE.passes(&[b"$18446744073709551615\r\n"]));
    }
}
