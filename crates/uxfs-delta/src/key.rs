//! The key that seals objects, and how it seals.
//!
//! 1. A nonce is the object's salt, which is random, and the number of the part in the object.
//! 2. What is sealed is bound to its volume: the UUID is authenticated with it.

use std::borrow::Cow;

use chacha20poly1305::aead::{AeadInOut, KeyInit};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};

use crate::{Error, Result};

/// Bytes by which a sealed part is longer.
pub(crate) const TAG_LEN: usize = 16;

/// The number of an object's table or body, which is not a chunk.
pub(crate) const TABLE: u64 = u64::MAX;

/// A key of 256 bits.
#[derive(Clone)]
pub struct Key(XChaCha20Poly1305);

impl core::fmt::Debug for Key {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Key")
    }
}

impl Key {
    /// The key in a file's content: 32 bytes, or 64 hexadecimal digits with white space around them.
    ///
    /// # Errors
    /// [`Error::NoKey`] for anything else.
    pub fn from_file(content: &[u8]) -> Result<Self> {
        if let Ok(bytes) = <[u8; 32]>::try_from(content) {
            return Ok(Self(XChaCha20Poly1305::new(&bytes.into())));
        }
        let digits = content.trim_ascii();
        let mut bytes = [0; 32];
        if digits.len() != 2 * bytes.len() {
            return Err(Error::NoKey);
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
            let text = core::str::from_utf8(pair).map_err(|_| Error::NoKey)?;
            // A sign would be a number too.
            if !pair.iter().all(u8::is_ascii_hexdigit) {
                return Err(Error::NoKey);
            }
            *byte = u8::from_str_radix(text, 16).map_err(|_| Error::NoKey)?;
        }
        Ok(Self(XChaCha20Poly1305::new(&bytes.into())))
    }

    /// A salt for a new object.
    pub(crate) fn new_salt() -> Result<[u8; 16]> {
        let mut salt = [0; 16];
        getrandom::fill(&mut salt).map_err(|error| Error::System(error.to_string()))?;
        Ok(salt)
    }

    pub(crate) fn seal(&self, part: Part<'_>, bytes: &mut Vec<u8>) -> Result<()> {
        let sealed = self.0.encrypt_in_place(&part.nonce(), part.uuid, bytes);
        sealed.map_err(|_| Error::Invalid("too long to be sealed"))
    }

    pub(crate) fn open(&self, part: Part<'_>, bytes: &mut Vec<u8>) -> Result<()> {
        let opened = self.0.decrypt_in_place(&part.nonce(), part.uuid, bytes);
        opened.map_err(|_| Error::WrongKey)
    }
}

/// A part of an object.
#[derive(Clone, Copy)]
pub(crate) struct Part<'a> {
    pub(crate) uuid: &'a [u8; 16],
    pub(crate) salt: &'a [u8; 16],
    pub(crate) number: u64,
}

impl Part<'_> {
    fn nonce(&self) -> XNonce {
        let mut nonce = [0; 24];
        nonce[..16].copy_from_slice(self.salt);
        nonce[16..].copy_from_slice(&self.number.to_le_bytes());
        nonce.into()
    }
}

/// Opens a part with a key, or takes it as it is without one. `sealed` is what the object says.
pub(crate) fn open_part<'s>(
    sealed: bool,
    key: Option<&Key>,
    part: Part<'_>,
    stored: &'s [u8],
) -> Result<Cow<'s, [u8]>> {
    match (sealed, key) {
        (true, Some(key)) => {
            let mut bytes = stored.to_vec();
            key.open(part, &mut bytes)?;
            Ok(Cow::Owned(bytes))
        }
        (true, None) => Err(Error::NeedsKey),
        (false, Some(_)) => Err(Error::NotSealed),
        (false, None) => Ok(Cow::Borrowed(stored)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_bytes_or_digits() {
        let digits = format!("{}\n", "0f".repeat(32));
        assert!(Key::from_file(&[7; 32]).is_ok());
        assert!(Key::from_file(digits.as_bytes()).is_ok());
        for bad in ["", "0f", &"+f".repeat(32), &"zz".repeat(32), &"0".repeat(63)] {
            assert!(matches!(Key::from_file(bad.as_bytes()), Err(Error::NoKey)), "{bad}");
        }
    }

    #[test]
    fn a_part_opens_only_where_it_was_sealed() {
        let key = Key::from_file(&[7; 32]).unwrap();
        let (uuid, salt, other) = ([1; 16], [2; 16], [3; 16]);
        let part = Part { uuid: &uuid, salt: &salt, number: 5 };
        let mut sealed = b"content".to_vec();
        key.seal(part, &mut sealed).unwrap();
        for wrong in [
            Part { uuid: &other, ..part },
            Part { salt: &other, ..part },
            Part { number: 6, ..part },
        ] {
            assert!(matches!(key.open(wrong, &mut sealed.clone()), Err(Error::WrongKey)));
        }
        let mut changed = sealed.clone();
        changed[0] ^= 1;
        assert!(matches!(key.open(part, &mut changed), Err(Error::WrongKey)));
        key.open(part, &mut sealed).unwrap();
        assert_eq!(sealed, b"content");
    }
}
