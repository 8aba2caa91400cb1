//! The account of the log: where its live part begins and ends, and how much is promised.
//!
//! Positions count bytes since the log was made, and never go back: a position's place on the
//! device is what is left after dividing by the log's length, its cycle what comes out.
//!
//! 1. `tail <= head <= tail + length`: the head never runs over what recovery still needs.
//! 2. What is promised fits behind the head: a transaction that was begun can be written, without
//!    anything having to go home first.
//! 3. The tail only moves forward, to what is durable in place.

/// Bytes kept free between head and tail, so that a full log is told from an empty one, and for the
/// record that ends a mount.
const GAP: u64 = 64 << 10;

/// The account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSpace {
    length: u64,
    head: u64,
    tail: u64,
    granted: u64,
}

impl LogSpace {
    /// The account of an empty log of `length` bytes whose next record goes to position `head`.
    pub fn new(length: u64, head: u64) -> Self {
        Self { length, head, tail: head, granted: 0 }
    }

    /// Length of the log in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Where the next record goes.
    pub fn head(&self) -> u64 {
        self.head
    }

    /// The oldest position that recovery needs.
    pub fn tail(&self) -> u64 {
        self.tail
    }

    /// Bytes between tail and head.
    pub fn live(&self) -> u64 {
        self.head - self.tail
    }

    /// Bytes that may be promised now.
    pub fn free(&self) -> u64 {
        self.length.saturating_sub(self.live() + self.granted + GAP.min(self.length / 16))
    }

    /// Bytes that may ever be promised at once.
    pub fn most(&self) -> u64 {
        self.length - GAP.min(self.length / 16)
    }

    /// Promises `bytes`, if they are free.
    #[must_use = "nothing was promised if this is false"]
    pub fn grant(&mut self, bytes: u64) -> bool {
        let free = self.free() >= bytes;
        if free {
            self.granted += bytes;
        }
        free
    }

    /// Promises `bytes` that are taken already, whether or not they are free.
    pub fn overrun(&mut self, bytes: u64) {
        self.granted += bytes;
    }

    /// Takes back part of what was promised.
    pub fn release(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.granted, "{bytes} of {} promised", self.granted);
        self.granted = self.granted.saturating_sub(bytes);
    }

    /// Moves the head over `written` bytes, for which `granted` had been.
    ///
    /// # Panics
    /// If it runs over the tail: what was written had not been promised.
    pub fn write(&mut self, written: u64, granted: u64) {
        debug_assert!(written <= granted, "{written} bytes written of {granted} granted");
        self.release(granted);
        self.head += written;
        assert!(self.live() <= self.length, "the head of the log runs over its tail");
    }

    /// Moves head and tail over the record that ends a mount, for which nothing is promised. What is
    /// promised to others stays so: the gap that is kept free is longer than the record.
    pub fn finish(&mut self, written: u64) {
        debug_assert_eq!(self.live(), 0, "something is left in the log");
        self.head += written;
        self.tail = self.head;
    }

    /// Everything before `position` is home and durable.
    pub fn move_tail(&mut self, position: u64) {
        debug_assert!(position <= self.head, "the tail overtakes the head");
        self.tail = self.tail.max(position);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_promised_can_be_written() {
        let mut space = LogSpace::new(1 << 20, 5 << 20);
        assert_eq!(space.free(), (1 << 20) - (64 << 10));
        assert!(space.grant(900 << 10));
        assert!(!space.grant(100 << 10));
        space.write(800 << 10, 900 << 10);
        assert_eq!((space.live(), space.free()), (800 << 10, (1 << 20) - (864 << 10)));
        space.move_tail((5 << 20) + (800 << 10));
        assert_eq!((space.live(), space.tail()), (0, space.head()));
        space.move_tail(5 << 20);
        assert_eq!(space.live(), 0);
    }

    #[test]
    #[should_panic(expected = "runs over its tail")]
    #[cfg(not(debug_assertions))]
    fn the_head_stops_at_the_tail() {
        let mut space = LogSpace::new(1 << 20, 0);
        space.write(2 << 20, 2 << 20);
    }
}
