//! Deferred steps.
use crate::error::Result;
use crate::tx::Tx;
/// A step.
pub enum Deferred {}
pub(crate) fn finish(_tx: &mut Tx<'_>) -> Result<()> { Ok(()) }
