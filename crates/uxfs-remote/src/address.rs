//! Addresses of volumes on object storage: `s3://bucket/prefix`, `gs://…`, `az://…`, `file:///dir`, with
//! `@NUMBER` behind them for one checkpoint, and behind that `#HASH` with the first digits of its hash, for one that
//! has to be the same for ever.

use crate::{Error, Result};

/// Which checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum At {
    /// The last one.
    #[default]
    Newest,
    /// The one with this number.
    Number(u64),
    /// The last one that is not younger than this moment: milliseconds since 1970, UTC.
    Time(u64),
}

/// The address of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The store and the prefix in it.
    pub url: url::Url,
    /// The checkpoint.
    pub at: At,
    /// The first digits of its hash.
    pub hash: Option<String>,
}

impl Address {
    /// Parses an address.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is none.
    pub fn parse(text: &str) -> Result<Self> {
        let (text, hash) = match text.split_once('#') {
            Some((text, hash)) => (text, Some(hash.to_owned())),
            None => (text, None),
        };
        let number = text.rsplit_once('@').and_then(|(url, number)| {
            let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
            Some((url, number.parse().ok().filter(|_| digits)?))
        });
        let (text, at) = match number {
            Some((url, number)) => (url, At::Number(number)),
            None => (text, At::Newest),
        };
        let invalid = |why: &dyn core::fmt::Display| Error::Invalid(format!("{text}: {why}"));
        let url = url::Url::parse(text).map_err(|error| invalid(&error))?;
        // Credentials in an address would be in process lists and messages.
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Error::Invalid(
                "an address holds no credentials: give them in the environment or a profile".into(),
            ));
        }
        Ok(Self { url, at, hash })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_behind_the_last_at_is_a_checkpoint() {
        let at = |text: &str| Address::parse(text).unwrap();
        assert_eq!(at("s3://b/p@12").at, At::Number(12));
        assert_eq!(at("s3://b/p@12").url.as_str(), "s3://b/p");
        assert_eq!(at("file:///d/a@b").at, At::Newest);
        assert_eq!(at("file:///d/a@b").url.path(), "/d/a@b");
        assert_eq!(at("s3://b/p@12#0af").hash.as_deref(), Some("0af"));
        assert_eq!(at("s3://b/p@12#0af").at, At::Number(12));
        for wrong in ["s3://user:secret@b/p", "nothing", "s3://user@b/p"] {
            let error = Address::parse(wrong).unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
