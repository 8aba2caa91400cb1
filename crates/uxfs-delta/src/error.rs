//! What can be wrong with an object.

/// Why an object cannot be read or made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It is something else.
    #[error("is not {0}")]
    IsNot(&'static str),
    /// It is of a later format.
    #[error("has version {0}, and this program reads version 1: use a newer one")]
    Version(u32),
    /// It was changed, cut short or put together wrongly.
    #[error("is damaged: {0}")]
    Damaged(&'static str),
    /// It is sealed, and no key is given.
    #[error("is encrypted: give the key that it was written with")]
    NeedsKey,
    /// It is not sealed, and a key is given, so that an attacker's object is not taken for one's own.
    #[error("is not encrypted, but a key is given: leave the key out, or look who wrote it")]
    NotSealed,
    /// It is sealed with another key, or was changed.
    #[error("does not open with this key: the key is another one, or the object was changed")]
    WrongKey,
    /// The key itself.
    #[error("holds no key: a key is 32 bytes, or 64 hexadecimal digits")]
    NoKey,
    /// The caller gave what no delta can hold.
    #[error("cannot be made: {0}")]
    Invalid(&'static str),
    /// The system's random numbers, or the compressor.
    #[error("cannot be made: {0}")]
    System(String),
}
