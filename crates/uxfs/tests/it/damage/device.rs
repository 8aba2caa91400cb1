//! Copies of an image in memory that share what they do not change, and copies whose calls fail.

use std::sync::Arc;

use uxfs::disk::{BlockDev, MemDev, Overlay};
pub(crate) use uxfs_crash::Call;
use uxfs_crash::{FailDev, Fault};

/// An image in memory, as the base of copies.
pub(crate) fn base(image: &[u8]) -> Arc<dyn BlockDev> {
    Arc::new(MemDev::from_bytes(image))
}

/// A copy of `base`.
pub(crate) fn copy(base: &Arc<dyn BlockDev>) -> Arc<Overlay> {
    Arc::new(Overlay::new(Arc::clone(base), usize::MAX))
}

/// `dev`, whose call number `number` of a kind fails with EIO, and all calls of the kind after it.
pub(crate) fn failing(dev: &Arc<Overlay>, call: Call, number: u64) -> Arc<FailDev> {
    let fault = Fault { call, number, for_good: true, errno: 5 };
    Arc::new(FailDev::new(Arc::<Overlay>::clone(dev), fault))
}

/// The bytes of a device.
pub(crate) fn bytes(dev: &dyn BlockDev) -> Vec<u8> {
    let mut all = vec![0; dev.len() as usize];
    dev.read_at(0, &mut all).unwrap();
    all
}
