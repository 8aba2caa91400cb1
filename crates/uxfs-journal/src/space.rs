//! Log space: the live part of the log, and the reservations granted on the rest.
//!
//! 1. `tail <= head <= tail + length`: the head never overwrites what recovery still needs.
//! 2. All granted reservations fit between the head and the tail: a transaction that was begun can
//!    be written without an AIL push.
//! 3. The tail only moves forward, to a position below which everything is durable in place.
//!
//! Called by [`crate::Journal`], under the lock of its state.

use crate::log_pos::LogPos;

/// Bytes kept free between head and tail, to tell a full log from an empty one and for the unmount
/// record.
const GAP: u64 = 64 << 10;

/// The space of one log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSpace {
    length: u64,
    head: LogPos,
    tail: LogPos,
    granted: u64,
}

impl LogSpace {
    /// An empty log of `length` bytes whose next record goes to position `head`.
    pub fn new(length: u64, head: LogPos) -> Self {
        Self { length, head, tail: head, granted: 0 }
    }

    /// Length of the log in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// The position of the next record.
    pub fn head(&self) -> LogPos {
        self.head
    }

    /// The oldest position that recovery needs.
    pub fn tail(&self) -> LogPos {
        self.tail
    }

    /// Bytes between tail and head.
    pub fn live(&self) -> u64 {
        self.head - self.tail
    }

    /// Bytes that can be granted now.
    pub fn free(&self) -> u64 {
        self.length.saturating_sub(self.live() + self.granted + GAP.min(self.length / 16))
    }

    /// Most bytes that can be granted at once in an empty log.
    pub fn most(&self) -> u64 {
        self.length - GAP.min(self.length / 16)
    }

    /// Grants `bytes` if they are free.
    #[must_use = "nothing was granted if this is false"]
    pub fn grant(&mut self, bytes: u64) -> bool {
        let free = self.free() >= bytes;
        if free {
            self.granted += bytes;
        }
        free
    }

    /// Grants `bytes` that are in use already, even if they are not free.
    pub fn overrun(&mut self, bytes: u64) {
        self.granted += bytes;
    }

    /// Releases a part of the granted bytes.
    pub fn release(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.granted, "{bytes} of {} granted", self.granted);
        self.granted = self.granted.saturating_sub(bytes);
    }

    /// Moves the head over `written` bytes, for which `granted` bytes had been granted.
    ///
    /// # Panics
    /// If the head would pass the tail: more was written than was granted.
    pub fn write(&mut self, written: u64, granted: u64) {
        debug_assert!(written <= granted, "{written} bytes written of {granted} granted");
        self.release(granted);
        self.head = self.head + written;
        assert!(self.live() <= self.length, "the head of the log runs over its tail");
    }

    /// Moves head and tail over the unmount record, which needs no grant. Other grants stay valid:
    /// the gap that is kept free is longer than the record.
    pub fn finish(&mut self, written: u64) {
        debug_assert_eq!(self.live(), 0, "something is left in the log");
        self.head = self.head + written;
        self.tail = self.head;
    }

    /// Moves the tail to `position`. Everything before it must be durable in place.
    pub fn move_tail(&mut self, position: LogPos) {
        debug_assert!(position <= self.head, "the tail overtakes the head");
        self.tail = self.tail.max(position);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_limit_the_free_log_space() {
        let mut space = LogSpace::new(1 << 20, LogPos(5 << 20));
        assert_eq!(space.free(), (1 << 20) - (64 << 10));
        assert!(space.grant(900 << 10));
        assert!(!space.grant(100 << 10));
        space.write(800 << 10, 900 << 10);
        assert_eq!((space.live(), space.free()), (800 << 10, (1 << 20) - (864 << 10)));
        space.move_tail(LogPos((5 << 20) + (800 << 10)));
        assert_eq!((space.live(), space.tail()), (0, space.head()));
        space.move_tail(LogPos(5 << 20));
        assert_eq!(space.live(), 0);
    }

    #[test]
    #[should_panic(expected = "runs over its tail")]
    #[cfg(not(debug_assertions))]
    fn the_head_must_not_pass_the_tail() {
        let mut space = LogSpace::new(1 << 20, LogPos(0));
        space.write(2 << 20, 2 << 20);
    }
}
