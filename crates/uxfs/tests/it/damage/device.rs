//! Copy-on-write copies of an image in memory, and copies that fail calls.

use std::sync::Arc;

use uxfs_disk::{BlockDev, MemDev, Overlay};
use uxfs_testkit::{EIO, FaultDev, Op, Rule};

/// An image in memory, as the base of copies.
pub(crate) fn base(image: &[u8]) -> Arc<dyn BlockDev> {
    Arc::new(MemDev::from_bytes(image))
}

/// A copy of `base`.
pub(crate) fn copy(base: &Arc<dyn BlockDev>) -> Arc<Overlay> {
    Arc::new(Overlay::new(Arc::clone(base), usize::MAX))
}

/// `dev`, with EIO from call number `number` of a kind on.
pub(crate) fn failing(dev: &Arc<Overlay>, op: Op, number: u64) -> Arc<FaultDev<Arc<Overlay>>> {
    let failing = FaultDev::new(Arc::clone(dev)).in_pieces();
    let ops: &[Op] = match op {
        Op::Read => &[Op::Read],
        Op::Flush => &[Op::Flush],
        _ => Op::WRITES,
    };
    failing.add(Rule::on(ops).after(number).fail(EIO));
    Arc::new(failing)
}

/// The bytes of a device.
pub(crate) fn bytes(dev: &dyn BlockDev) -> Vec<u8> {
    let mut all = vec![0; dev.len() as usize];
    dev.read_at(0, &mut all).unwrap();
    all
}
