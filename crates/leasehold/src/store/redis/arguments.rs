//! Fields of fixed width, in arguments that a script cuts by position.

use leasehold_spec::{GrantId, PublicId, SessionId};

use super::layout::{Place as At, field};

const NONE: &str = "----------------";

/// Fields of fixed width, one after the other. With `format!` they were half of the cost of a request in the client.
pub(super) struct Fields {
    bytes: [u8; Self::ROOM],
    len: usize,
}

impl Fields {
    /// The longest text is that of a renewal.
    const ROOM: usize = 96;

    pub(super) fn new() -> Self {
        Self { bytes: [b'0'; Self::ROOM], len: 0 }
    }

    pub(super) fn text(mut self, text: &str) -> Self {
        self.bytes[self.len..self.len + text.len()].copy_from_slice(text.as_bytes());
        self.len += text.len();
        self
    }

    /// Adds a number, padded with zeros. Callers check that it has no more digits than the field.
    pub(super) fn decimal(mut self, mut number: u64, at: At) -> Self {
        for digit in self.field(at).iter_mut().rev() {
            *digit = b'0' + (number % 10) as u8;
            number /= 10;
        }
        debug_assert_eq!(number, 0, "a number longer than its field");
        self
    }

    fn hex(mut self, mut number: u128, width: usize) -> Self {
        for digit in self.room(width).iter_mut().rev() {
            *digit = b"0123456789abcdef"[(number & 15) as usize];
            number >>= 4;
        }
        debug_assert_eq!(number, 0, "a number longer than its field");
        self
    }

    pub(super) fn decimal_or_none(self, number: Option<u64>, at: At) -> Self {
        match number {
            Some(number) => self.decimal(number, at),
            None => self.text(NONE),
        }
    }

    /// Adds an ID, in the form of [`GrantId::wire`].
    pub(super) fn id(self, id: &GrantId) -> Self {
        self.session(id.session).counter_and_nonce(id)
    }

    /// Adds the public part of an ID.
    pub(super) fn public_id(self, id: &PublicId) -> Self {
        self.session(id.session).hex(id.counter.into(), field!(ID.counter).width)
    }

    /// Adds the session of an ID.
    pub(super) fn session(self, id: SessionId) -> Self {
        self.hex(id.0, field!(ID.session).width)
    }

    /// Adds the counter and the nonce of an ID.
    pub(super) fn counter_and_nonce(self, id: &GrantId) -> Self {
        self.hex(id.counter.into(), field!(ID.counter).width).hex(id.nonce.into(), field!(ID.nonce).width)
    }

    /// Returns the bytes of the next field, which has its place in a layout.
    fn field(&mut self, at: At) -> &mut [u8] {
        debug_assert_eq!(self.len, at.offset, "a field beside its place");
        self.room(at.width)
    }

    fn room(&mut self, width: usize) -> &mut [u8] {
        let begin = self.len;
        self.len += width;
        &mut self.bytes[begin..self.len]
    }
}

impl AsRef<[u8]> for Fields {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_what_format_makes_of_them() {
        let id =
            GrantId { session: SessionId(0x0123_4567_89ab_cdef_1122_3344_5566_7788), counter: 0xfe, nonce: u64::MAX };
        let fields = Fields::new().text("H").id(&id).decimal(7, field!(WANT.token)).decimal(42, field!(WANT.lease));
        let wanted = format!("H{}{:016}{:08}", id.wire(), 7, 42);
        assert_eq!(std::str::from_utf8(fields.as_ref()), Ok(&*wanted));
        let fields = |patience| Fields::new().decimal_or_none(patience, field!(BOUNDS.patience)).text("Ls");
        assert_eq!(fields(None).as_ref(), format!("{NONE}Ls").as_bytes());
        assert_eq!(fields(Some(1_763_650_000_123_456)).as_ref(), b"1763650000123456Ls");
    }
}
