//! What a server says about an export.

use crate::wire;

/// Longest request that is sent. Several that follow each other are as fast, and each is answered sooner.
const REQUEST_MAX: u32 = 4 << 20;

/// Length, abilities and sizes of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Export {
    /// Length in bytes, a multiple of `block`.
    pub(crate) len: u64,
    flags: u16,
    /// Requests begin and end at multiples of this number of bytes.
    pub(crate) block: u32,
    /// Most bytes that a request reads or writes, a multiple of `block`.
    pub(crate) payload: u32,
}

impl Export {
    /// Checks what the server says. `sizes` are its least block and most payload, in bytes.
    pub(crate) fn new(len: u64, flags: u16, sizes: Option<(u32, u32)>) -> Result<Self, String> {
        let (block, payload) = sizes.unwrap_or((1, wire::PAYLOAD_MAX));
        if flags & wire::HAS_FLAGS == 0 {
            return Err("the export has no flags".into());
        }
        if !block.is_power_of_two() || block > 64 << 10 || payload < block {
            return Err(format!("blocks of {block} bytes in requests of {payload}"));
        }
        if i64::try_from(len).is_err() {
            return Err(format!("an export of {len} bytes"));
        }
        let payload = payload.min(REQUEST_MAX);
        let whole = u64::from(block) - 1;
        Ok(Self { len: len & !whole, flags, block, payload: payload & !(block - 1) })
    }

    fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    pub(crate) fn read_only(&self) -> bool {
        self.has(wire::READ_ONLY)
    }

    pub(crate) fn flush(&self) -> bool {
        self.has(wire::SEND_FLUSH)
    }

    pub(crate) fn fua(&self) -> bool {
        self.has(wire::SEND_FUA)
    }

    pub(crate) fn trim(&self) -> bool {
        self.has(wire::SEND_TRIM)
    }

    pub(crate) fn write_zeroes(&self) -> bool {
        self.has(wire::SEND_WRITE_ZEROES)
    }

    pub(crate) fn multi_conn(&self) -> bool {
        self.has(wire::CAN_MULTI_CONN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_exports_are_refused() {
        assert!(Export::new(1 << 20, 0, None).is_err());
        assert!(Export::new(u64::MAX, 1, None).is_err());
        for sizes in [(0, 4096), (3, 4096), (4096, 512), (1 << 20, 1 << 25)] {
            assert!(Export::new(1 << 20, 1, Some(sizes)).is_err(), "{sizes:?}");
        }
        let odd = Export::new(10_000, 1, Some((512, 1000))).unwrap();
        assert_eq!((odd.len, odd.payload), (9728, 512));
    }
}
