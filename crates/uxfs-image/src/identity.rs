//! UUIDs of a disk that its description does not give.
//!
//! 1. With a seed, each UUID is a function of the seed and of what it identifies. Without a seed but
//!    with `SOURCE_DATE_EPOCH`, the text of the description is the seed. Otherwise UUIDs are random.
//! 2. A UUID that is derived or random is of version 4, as in systemd-repart.

use sha2::{Digest, Sha256};
use uxfs::format::Uuid;

use crate::error::{ImageError, Result};

/// Where UUIDs come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Identity {
    Seed(Vec<u8>),
    Random,
}

impl Identity {
    pub(crate) fn new(seed: Option<&str>, text: &str, repeatable: bool) -> Self {
        match (seed, repeatable) {
            (Some(seed), _) => Self::Seed(seed.as_bytes().to_vec()),
            (None, true) => Self::Seed(text.as_bytes().to_vec()),
            (None, false) => Self::Random,
        }
    }

    /// 32 bytes for one purpose.
    pub(crate) fn bytes(&self, purpose: &str) -> Result<[u8; 32]> {
        match self {
            Self::Seed(seed) => {
                let seed = Sha256::digest(seed);
                Ok(Sha256::new().chain_update(seed).chain_update(purpose).finalize().into())
            }
            Self::Random => {
                let mut bytes = [0; 32];
                getrandom::fill(&mut bytes)
                    .map_err(|error| ImageError::Usage(format!("no random numbers: {error}")))?;
                Ok(bytes)
            }
        }
    }

    /// A UUID for one purpose.
    pub(crate) fn uuid(&self, purpose: &str) -> Result<Uuid> {
        let bytes = self.bytes(purpose)?;
        let mut uuid: [u8; 16] = core::array::from_fn(|i| bytes[i]);
        uuid[6] = uuid[6] & 0x0f | 0x40;
        uuid[8] = uuid[8] & 0x3f | 0x80;
        Ok(Uuid(uuid))
    }
}
