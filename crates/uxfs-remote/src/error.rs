//! What can go wrong between a volume and its store.

use std::io;

use uxfs_delta::{Holder, Manifest};

/// Result with this crate's error.
pub type Result<T> = core::result::Result<T, Error>;

/// Why a store cannot be used, or does not have what is asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The store did not do what was asked.
    #[error("{what}: {source}")]
    Store {
        /// What was tried, and with which object.
        what: String,
        /// The store's answer.
        source: io::Error,
    },
    /// An object is not what it should be.
    #[error("object {name} {source}")]
    Object {
        /// Its name in the store.
        name: String,
        /// What is wrong.
        source: uxfs_delta::Error,
    },
    /// A manifest names an object that the store does not have.
    #[error(
        "object {0} is missing, and a manifest names it: the store lost it, or it was removed by hand; \
         restore an earlier checkpoint"
    )]
    Missing(String),
    /// The store has no checkpoint.
    #[error("there is no volume: no checkpoint was shipped here")]
    NoVolume,
    /// There is no such checkpoint.
    #[error("there is no checkpoint {0}: `uxfs restore --list` shows those that there are")]
    NoCheckpoint(String),
    /// The store holds another volume.
    #[error("the store holds another volume ({0}): give each volume a prefix of its own")]
    OtherVolume(&'static str),
    /// Another writer ships to the same place.
    #[error(
        "another writer shipped checkpoint {number} here (epoch {epoch}): this one stops; see that only \
         one ships, then start it again"
    )]
    Fenced {
        /// The number that both wanted.
        number: u64,
        /// The other writer's epoch.
        epoch: u64,
    },
    /// A writer from afar holds the volume.
    #[error(
        "{} writes this volume (checkpoint {number}): end it there, or if it is gone for good, take the \
         volume over by `uxfs mount --takeover`; what it did not ship is then lost",
        holder.name
    )]
    Held {
        /// The writer, and since when.
        holder: Holder,
        /// The last checkpoint.
        number: u64,
        /// When that was made, in milliseconds since 1970.
        made_at: u64,
    },
    /// A write cache has changes of a writer that lost its place.
    #[error(
        "its write cache has changes that were not shipped before another writer took the volume over \
         (checkpoint {number}, epoch {epoch}): they cannot be added to the other writer's; remove the \
         cache's directory to go on without them"
    )]
    Unshipped {
        /// The last checkpoint of the other writer.
        number: u64,
        /// Its epoch.
        epoch: u64,
    },
    /// The files of a write cache.
    #[error("the write cache: {0}")]
    Cache(io::Error),
    /// The last checkpoint was compacted meanwhile; the next try goes on from that.
    #[error("the last checkpoint was compacted meanwhile")]
    Overtaken,
    /// The image that is shipped or restored.
    #[error("the image: {0}")]
    Image(io::Error),
    /// A delta or a key cannot be made.
    #[error(transparent)]
    Delta(#[from] uxfs_delta::Error),
    /// An address or an option.
    #[error("{0}")]
    Invalid(String),
}

impl Error {
    pub(crate) fn store(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Store { what: what.into(), source }
    }

    pub(crate) fn object(name: &str) -> impl FnOnce(uxfs_delta::Error) -> Self {
        move |source| Self::Object { name: name.to_owned(), source }
    }

    /// Refuses a volume whose last checkpoint names a writer that holds it.
    ///
    /// # Errors
    /// [`Error::Held`].
    pub fn if_held(last: &Manifest) -> Result<()> {
        let held = |holder: &Holder| {
            let (holder, number, made_at) = (holder.clone(), last.number, last.made_at);
            Self::Held { holder, number, made_at }
        };
        last.holder.as_ref().map(held).map_or(Ok(()), Err)
    }

    /// Does it stay wrong however long the next try comes later? Missing rights and missing objects
    /// do not: credentials expire and are renewed, and a store that is being set up, or that a
    /// proxy stands in for, refuses for a while.
    pub fn is_final(&self) -> bool {
        match self {
            Self::Store { source, .. } => match source.kind() {
                io::ErrorKind::PermissionDenied | io::ErrorKind::NotFound => false,
                _ => !crate::patience::may_pass(source),
            },
            Self::Missing(_) | Self::NoCheckpoint(_) => false,
            Self::Image(_) | Self::Cache(_) | Self::Overtaken => false,
            _ => true,
        }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::Store { source, .. } | Error::Image(source) | Error::Cache(source) => {
                source.kind()
            }
            Error::NoVolume | Error::NoCheckpoint(_) | Error::Missing(_) => io::ErrorKind::NotFound,
            Error::Invalid(_) => io::ErrorKind::InvalidInput,
            Error::Object { .. } => io::ErrorKind::InvalidData,
            _ => io::ErrorKind::Other,
        };
        Self::new(kind, error.to_string())
    }
}
