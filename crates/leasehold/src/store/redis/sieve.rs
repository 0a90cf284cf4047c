//! What a server may say at all: a socket that breaks where an answer is longer, wider or deeper than any of ours.
//!
//! The client crate believes lengths. Of `$999999999999` it keeps what comes until all of it has come, and of an array an
//! item for each three bytes: whoever answers as the store fills our memory, until the session's own
//! bounds end the connection (seconds; a quarter of a gigabyte on a busy machine). So lengths are read here first, and the
//! connection ends at one that no answer of ours has.
//!
//! RESP is simple enough for that: every value begins with a line, of which some say how many bytes or values follow. Those
//! bytes are skipped, and nothing is kept but how much is still to come.
//!
//! It is of use only if both read the same. The client crate also takes `+5` and ` 5 ` for lengths, and of `=-1` it waits
//! for all that there is; a line ends for it at `\r\n` and nowhere else. So a length here is what every server writes,
//! digits or `-1` for nothing; whatever else ends the connection, and so nothing can stand here that is skipped there.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::world::Socket;

/// How long, wide and deep a whole answer may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sieve {
    bytes: u64,
    items: u64,
    depth: usize,
}

impl Sieve {
    /// For locks: the longest answer is a page of names, of 1,000 keys or little more, each of 1 kB at most.
    pub(crate) const LOCKS: Self = Self { bytes: 4 << 20, items: 1 << 16, depth: 8 };
    /// For fences: a value is the caller's, and as long as it made it.
    pub(crate) const FENCE: Self = Self { bytes: u64::MAX, items: 1 << 16, depth: 8 };

    /// Whether these pieces get through.
    #[cfg(test)]
    pub(super) fn passes(self, pieces: &[&[u8]]) -> bool {
        let mut scan = Scan::new(self);
        pieces.iter().all(|piece| scan.see(piece).is_ok())
    }

    /// The socket, behind it.
    pub(crate) fn before(self, socket: Box<dyn Socket>) -> Box<dyn Socket> {
        Box::new(Sieved { socket, scan: Scan::new(self), in_a_row: 0 })
    }
}

struct Sieved {
    socket: Box<dyn Socket>,
    scan: Scan,
    /// So many reads have found something, one after the other.
    in_a_row: u32,
}

/// After so many the driver steps aside, of 8 kB each. Left alone it reads on for as long as the runtime lets any task do
/// so, and that again dozens of times before timers have their turn: behind a server that talks without an end the
/// session's thread would come to its deadlines seconds late. (After the first read it finds that there is nothing more,
/// nearly always: one would cost each answer a turn.)
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

/// Where in an answer we are.
#[derive(Clone, Debug)]
struct Scan {
    most: Sieve,
    /// Bytes and values of this answer so far.
    bytes: u64,
    items: u64,
    /// Bytes to be skipped, with the end of their line.
    skip: u64,
    /// How many values are still to come, at each depth.
    open: Vec<u64>,
    line: Line,
}

/// The line that a value begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    /// Nothing of it has come.
    None,
    /// Its kind, what it says so far, and its last byte.
    Some { kind: u8, says: Says, last: u8 },
}

/// What a line says of how much follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Says {
    /// Nothing, yet or ever.
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
                // No longer than the slice, so it fits.
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

    /// A line has ended: what it says of what follows.
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
            // An attribute comes before the value that it is about, and is none itself.
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

    /// A value has ended, and with it those whose last part it was.
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
    /// With one more byte of a line, behind this one.
    fn and(self, last: u8, byte: u8) -> Result<Self, &'static str> {
        match (self, byte) {
            // The end of the line has begun, and must come.
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
        // Whatever the network makes of it.
        bytes.chunks(3).try_for_each(|piece| scan.see(piece))?;
        Ok(scan)
    }

    #[test]
    fn who_talks_without_an_end_lets_others_have_their_turn() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(steps_aside());
    }

    async fn steps_aside() {
        let (socket, server) = tokio::net::UnixStream::pair().unwrap();
        server.try_write(&b"+OK\r\n".repeat(1_000)).unwrap();
        socket.readable().await.unwrap();
        let (mut socket, mut reads) = (Sieve::LOCKS.before(Box::new(socket)), 0);
        for turn in 1..4 {
            // It steps aside, and is woken at once: there is more.
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
    fn what_ends_leaves_nothing_behind() {
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
    fn what_is_too_much_is_refused_at_its_length() {
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

    /// Lies that the client crate would believe, if we read them otherwise.
    #[test]
    fn what_the_client_crate_reads_otherwise_is_refused() {
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
        // One line to the client crate, and behind it an array.
        assert!(see(b"+x\n$60\n\r\n*2147483647\r\n:1\r\n").is_err());
    }

    #[test]
    fn no_length_is_beyond_counting() {
        for length in [u64::MAX - 2, u64::MAX - 1, u64::MAX] {
            let _refused_or_not = Sieve::FENCE.passes(&[format!("${length}\r\nabc").as_bytes()]);
        }
        assert!(!Sieve::FENCE.passes(&[b"$18446744073709551615\r\n"]));
    }
}
