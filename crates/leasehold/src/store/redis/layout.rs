//! The layouts of the texts that scripts and this crate cut by position: records, queue entries and arguments.
//!
//! A layout lists its fields in order, with their widths. No position is written by hand: it is the sum of the widths
//! before it. A Lua file names a field, and `positions.rs` replaces the name before the script is sent: see there for the
//! forms. In Rust, [`field!`] is the place of a field, computed by the compiler. A test compares the layouts of stored
//! data with the tables in docs/PROTOCOL.md.
//!
//! A record with another field is another layout, and needs another version (`LAYOUT` in `keys.rs`), because older
//! programs read the records, too.

pub(crate) use super::fields::Place;
pub(super) use super::fields::{Field, Kind, Layout};
use Kind::{Bytes, Inline, Many, Nested, Rest};

/// Each layout is a constant. Together they are [`LAYOUTS`].
macro_rules! layouts {
    ($($(#[$doc:meta])* $layout:ident { $($field:ident: $kind:expr, $about:literal;)+ })+) => {
        $($(#[$doc])* pub(crate) const $layout: Layout = Layout {
            name: stringify!($layout),
            fields: &[$(Field { of: stringify!($layout), name: stringify!($field), kind: $kind, about: $about }),+],
        };)+

        /// All layouts.
        pub(super) const LAYOUTS: &[&Layout] = &[$(&$layout),+];
    };
}

/// A number of tokens.
const RANGE: Kind = Bytes(8);

layouts! {
    // Values that occur in many layouts.

    /// The part of a grant ID that may leave the store.
    PUBLIC {
        session: Bytes(32), "session ID, hexadecimal";
        counter: Bytes(16), "counter of the session, hexadecimal";
    }
    ID {
        public: Inline(&PUBLIC), "";
        nonce: Bytes(16), "random bits, hexadecimal: the secret part";
    }
    TIME {
        us: Bytes(16), "µs since 1970";
    }
    LENGTH {
        ms: Bytes(8), "ms";
    }
    TOKEN {
        number: Bytes(16), "a token";
    }
    /// The tokens and the label of a grant. They stay together from the request to the entry and to the record, as one
    /// string: each further piece to join costs as much as a field.
    TAIL {
        range: RANGE, "number of tokens that are reserved for the grant, its own included (P19)";
        label_length: Bytes(3), "bytes of the label";
        label: Rest, "label";
    }

    // Locks on one Redis.

    /// The end of a record. Most scripts do not take it apart.
    REAR {
        released: Nested(&ID), "grant ID that was released before, or 64 dashes; in state F unused from here on";
        tail: Inline(&TAIL), "";
    }
    /// Its beginning is also an argument of release and renew.
    RECORD {
        version: Bytes(3), "`lh1`: magic and version of the layout";
        state: Bytes(1), "H held, P pushed and not yet claimed, R marked for revocation, C cooling down, F free";
        token: Nested(&TOKEN), "token; in state C the highest token that was used";
        id: Nested(&ID), "grant ID; in state F the ID that was released last, or 64 dashes";
        length: Nested(&LENGTH), "length of the lease in ms";
        since: Nested(&TIME), "time when the grant was made or last renewed, in µs";
        rear: Inline(&REAR), "";
    }
    COUNTS {
        entries: Bytes(5), "number of entries";
        strict: Bytes(5), "number of strict entries";
    }
    LAPSE {
        session: Bytes(32), "session ID";
        time: Nested(&TIME), "time when its claim ran out, in µs";
    }
    QUEUE {
        keep: Nested(&TIME), "time until which the record is kept, in µs";
        head: Nested(&ID), "grant ID of the first waiter, or 64 dashes";
        counts: Nested(&COUNTS), "number of entries (5 digits), number of strict entries (5 digits)";
        ticket: Nested(&TIME), "ticket of the last waiter";
        tail: Nested(&ID), "grant ID of the last waiter, or 64 dashes";
        lapses: Many(&LAPSE), "lapses, oldest first";
    }
    /// An argument of acquire.
    PLACE {
        claim: Nested(&LENGTH), "claim in ms";
        hears: Bytes(1), "L listens, P polls";
        order: Bytes(1), "s strict, r relaxed";
    }
    /// Every waiter begins like this: `alive` and `is_alive` read no more of it.
    STAND {
        limit: Nested(&TIME), "time limit in µs; 0: none";
        seen: Nested(&TIME), "time when the waiter was last seen, in µs";
        ticket: Nested(&TIME), "ticket";
        place: Inline(&PLACE), "";
        lease: Nested(&LENGTH), "length of the lease in ms";
    }
    ENTRY {
        stand: Inline(&STAND), "";
        before: Nested(&ID), "grant ID of the entry before; unused in the head";
        tail: Inline(&TAIL), "";
    }
    /// An argument of acquire.
    BOUNDS {
        patience: Bytes(16), "longest wait in ms; dashes: for ever";
        ticket: Nested(&TIME), "ticket of an earlier place; dashes: none";
    }
    /// An argument of many: the session and the lease of all its acquires.
    COMMON {
        session: Bytes(32), "session ID of the grant IDs";
        lease: Nested(&LENGTH), "length of the lease in ms";
    }
    /// An argument of many: the rest of the grant ID of an acquire, after its session.
    ASKED {
        counter: Bytes(16), "counter of the grant ID";
        nonce: Bytes(16), "nonce of the grant ID";
    }
    /// The argument of reserve.
    RESERVE {
        token: Nested(&TOKEN), "token";
        id: Nested(&ID), "grant ID";
        range: RANGE, "number of tokens, counted from the grant's own token";
    }

    // Pools on one Redis.

    TAKEN {
        units: Bytes(6), "units that are taken; of a barrier the number of grants";
        grants: Bytes(6), "number of grants";
    }
    FLAGS {
        upgradeable: Bytes(1), "U a grant may be upgraded, - none may";
        marked: Bytes(1), "M a grant may be marked for revocation or cool down, - none is";
    }
    /// Its beginning is also an argument of acquire and resize.
    POOL {
        version: Bytes(3), "`lh1`: magic and version of the layout";
        kind: Bytes(1), "W read-write lock, S semaphore, V condition variable, L latch, B barrier";
        limit: Bytes(6), "number of units, of notifications, or of the count-downs of a latch: 0 if deleted";
        taken: Inline(&TAKEN), "";
        last: Nested(&TOKEN), "the highest token so far";
        soonest: Nested(&TIME), "no lease ends before this time, in µs";
        newest: Nested(&TIME), "no lease begins after this time, in µs";
        keep: Nested(&TIME), "time until which the record is kept, in µs";
        flags: Nested(&FLAGS), "U a grant may be upgraded; M a grant may be marked or cool down; - neither";
        released: Nested(&ID), "grant ID that was released last, or 64 dashes";
        least: Nested(&TIME), "during a scan of the grants: none that it has seen ends before this time, in µs";
        cursor: Rest, "during a scan: where it goes on";
    }
    WAITERS {
        head: Nested(&ID), "grant ID of the first waiter, or 64 dashes";
        counts: Nested(&COUNTS), "number of entries (5 digits), number of strict entries (5 digits)";
        ticket: Nested(&TIME), "ticket of the last waiter";
        tail: Nested(&ID), "grant ID of the last waiter, or 64 dashes";
        lapses: Many(&LAPSE), "lapses, oldest first";
    }
    /// An argument of acquire.
    SHARE {
        mode: Bytes(1), "P plain, U upgradeable";
        units: Bytes(6), "number of units";
    }
    GRANT {
        nonce: Bytes(16), "the secret part of the grant ID";
        state: Bytes(1), "H held, P pushed and not yet claimed, R marked for revocation, C cooling down";
        mode: Bytes(1), "P plain, U upgradeable";
        units: Bytes(6), "number of units";
        token: Nested(&TOKEN), "token";
        since: Nested(&TIME), "time when the grant was made or last renewed, in µs";
        length: Nested(&LENGTH), "length of the lease in ms";
        label: Rest, "label";
    }
    WAITER {
        stand: Inline(&STAND), "";
        before: Nested(&ID), "grant ID of the entry before; unused in the head";
        share: Nested(&SHARE), "mode (P plain, U upgradeable) and number of units";
        label: Rest, "label";
    }
    UPGRADE {
        id: Nested(&ID), "grant ID of the upgrade";
        stand: Inline(&STAND), "";
        of: Nested(&ID), "grant ID of the grant that it replaces";
        token: Nested(&TOKEN), "token of that grant";
        units: Bytes(6), "number of units";
        label: Rest, "label";
    }
    /// An argument of acquire.
    REPLACED {
        id: Nested(&ID), "grant ID of the grant that an upgrade replaces";
        token: Nested(&TOKEN), "token of that grant";
    }
    LATCH {
        born: Nested(&TOKEN), "token of its creation";
        keep: Nested(&LENGTH), "for how long it is kept after its creation and after each count-down, in ms";
        counted: Bytes(6), "number of count-downs that were counted";
    }
    /// The name of a field of a grant.
    FIELD {
        kind: Bytes(1), "`g`";
        public: Nested(&PUBLIC), "the public part of the grant ID";
    }
    /// A grant that has ended, as part/sweep.lua sorts them.
    ENDED {
        time: Nested(&TIME), "the end of the lease, in µs";
        field: Rest, "the name of its field";
    }

    // A node of a quorum.

    /// The beginning of a record of a node.
    NODE {
        version: Bytes(3), "`lq1`: magic and version of the layout";
        state: Bytes(1), "H held, R marked for revocation, C cooling down, F free";
        waiters: Bytes(1), "N nobody, O others, S the first one asks for strict order";
        called: Bytes(1), "C a waiter is called, - none is";
        highest: Nested(&TOKEN), "the largest token for which the node has voted";
        keep: Nested(&TIME), "time until which the record is kept, in µs";
        released: Nested(&ID), "grant ID that was given back last, or 64 dashes";
    }
    CALL {
        id: Nested(&ID), "grant ID of the waiter that is called";
        ticket: Nested(&TIME), "its ticket";
        ends: Nested(&TIME), "end of the call, in µs";
    }
    VOTE {
        id: Nested(&ID), "grant ID";
        token: Nested(&TOKEN), "token";
        since: Nested(&TIME), "beginning of the vote, in µs";
        length: Nested(&LENGTH), "length of the lease in ms";
        tail: Inline(&TAIL), "";
    }
    /// The record while a waiter is called. A vote follows, unless the vote is free.
    CALLED {
        node: Inline(&NODE), "";
        call: Inline(&CALL), "";
    }
    /// The record with a vote, while no waiter is called.
    VOTED {
        node: Inline(&NODE), "";
        vote: Inline(&VOTE), "";
    }
    MEMBER {
        id: Nested(&ID), "grant ID";
        order: Bytes(1), "s strict, r relaxed";
    }
    /// A place in the queue: an argument of ask and give_back.
    WAIT {
        ticket: Nested(&TIME), "ticket";
        order: Bytes(1), "s strict, r relaxed";
    }
    /// An argument of renew of a node. The tail is absent unless the node is to be filled.
    WANT {
        start: Bytes(1), "H from now on, G from the grant";
        id: Nested(&ID), "grant ID";
        token: Nested(&TOKEN), "token";
        lease: Nested(&LENGTH), "length of the lease in ms";
        tail: Inline(&TAIL), "";
    }
    /// An argument of enter and begin.
    CHARTER {
        nodes: Bytes(4), "number of nodes";
        max_lease: Nested(&LENGTH), "longest lease in ms";
    }
    /// The text under the key of the marker.
    MARKER {
        version: Bytes(4), "`lq1m`: magic and version of the layout";
        rests: Nested(&TIME), "end of the quarantine of a node that may have forgotten something, in µs";
        charter: Nested(&CHARTER), "charter of the quorum: number of nodes (4 digits), longest lease in ms (8 digits)";
        memory: Bytes(1), "K this run of the server saves before it replies, as far as is known; F it once did not";
        past: Bytes(1), "U the marker replaced that of another run: the node was in use; N it is new, or was emptied";
        run: Rest, "run ID of the server";
    }
    /// An argument of revoke.
    SEEN {
        id: Inline(&PUBLIC), "";
        token: Nested(&TOKEN), "token";
    }
    /// The short replies. The shortest ends before the highest token.
    BRIEF {
        word: Bytes(1), "G granted, R renewed, B given back";
        now: Nested(&TIME), "time of the server, in µs";
        highest: Nested(&TOKEN), "highest token";
        level: Bytes(1), "of a pool: N nobody waits, O others do, S a strict one does";
    }

    // Fences.

    /// The marks of a guarded key, with blanks between them.
    MARKS {
        version: Bytes(2), "`1 `: version of the layout";
        writers: Nested(&TOKEN), "the highest token of a writer";
        blank: Bytes(1), "a blank";
        all: Nested(&TOKEN), "the highest token of all";
        blank2: Bytes(1), "a blank";
        client: Bytes(16), "client of the last call of that writer, hexadecimal";
        blank3: Bytes(1), "a blank";
        call: Bytes(16), "number of that call";
    }
}

/// Returns the [`Place`] of a field as a constant: `field!(RECORD.token)`, or `field!(RECORD.id.session)`.
macro_rules! field {
    ($layout:ident $(. $field:ident)+) => {
        const { $crate::store::redis::layout::$layout.place(&[$(stringify!($field)),+]) }
    };
}
pub(crate) use field;

#[cfg(test)]
#[path = "layout_tests.rs"]
mod tests;
