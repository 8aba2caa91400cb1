//! Stores of the crate `object_store`: S3, GCS, Azure, directories, memory.
//!
//! 1. The runtime is here, once in a process. Callers block.
//! 2. A directory's objects are on stable storage when a put returns.

use std::io;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::local::LocalFileSystem;
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutPayload};
use tokio::runtime::Runtime;
use url::Url;

use crate::cloud_parts::{NumberedParts, PartsInOrder};
use crate::{Entry, Error, Parts, Result, Store};

/// A store of `object_store`.
pub struct Cloud {
    pub(crate) store: Arc<dyn ObjectStore>,
    /// The same store, if it knows parts by their numbers.
    parts: Option<Numbered>,
}

/// A store that knows the parts of an object by their numbers, and the prefix of the volume in it.
pub(crate) struct Numbered {
    pub(crate) store: Arc<dyn MultipartStore>,
    pub(crate) prefix: Path,
}

pub(crate) fn runtime() -> io::Result<&'static Runtime> {
    static RUNTIME: OnceLock<io::Result<Runtime>> = OnceLock::new();
    let made = RUNTIME.get_or_init(|| {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("uxfs-store")
            .enable_all()
            .build()
    });
    made.as_ref().map_err(|error| io::Error::new(error.kind(), error.to_string()))
}

pub(crate) fn io_error(error: object_store::Error) -> io::Error {
    use object_store::Error as E;
    let kind = match &error {
        E::NotFound { .. } => io::ErrorKind::NotFound,
        E::PermissionDenied { .. } | E::Unauthenticated { .. } => io::ErrorKind::PermissionDenied,
        E::NotSupported { .. } | E::NotImplemented { .. } => io::ErrorKind::Unsupported,
        E::InvalidPath { .. } | E::UnknownConfigurationKey { .. } => io::ErrorKind::InvalidInput,
        E::Generic { source, .. } => kind_of_status(&source.to_string()),
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error.to_string())
}

/// The kind of an error that a server gave as a status. object_store keeps that of a listing, and of a range
/// behind an object's end, in the text only.
fn kind_of_status(text: &str) -> io::ErrorKind {
    let status = text.split_once("status code: ").map_or("", |(_, rest)| rest);
    match status.get(..3) {
        Some("401" | "403") => io::ErrorKind::PermissionDenied,
        Some("404") => io::ErrorKind::NotFound,
        Some("416") => io::ErrorKind::InvalidData,
        _ => io::ErrorKind::Other,
    }
}

impl Cloud {
    /// A store, for tests and for callers that make one themselves.
    pub fn new(store: Arc<dyn ObjectStore>) -> Self {
        Self { store, parts: None }
    }

    /// The part of a store below a prefix.
    pub fn below<S: ObjectStore + MultipartStore>(store: Arc<S>, prefix: Path) -> Self {
        let parts = Numbered { store: Arc::<S>::clone(&store), prefix: prefix.clone() };
        Self { store: Arc::new(PrefixStore::new(store, prefix)), parts: Some(parts) }
    }

    /// Opens the store at an address. With `create` a directory is made if it is missing.
    ///
    /// # Errors
    /// If the address names no store of this build, or the store cannot be set up.
    pub fn open(url: &Url, create: bool) -> Result<Self> {
        let failed = |error: object_store::Error| Error::store(url.as_str())(io_error(error));
        if url.scheme() == "file" {
            let dir = url.to_file_path();
            let dir =
                dir.map_err(|()| Error::Invalid(format!("{url}: no path of this machine")))?;
            if create {
                std::fs::create_dir_all(&dir).map_err(Error::store(url.as_str()))?;
            }
            let store = LocalFileSystem::new_with_prefix(&dir).map_err(failed)?;
            return Ok(Self::new(Arc::new(store.with_fsync(true))));
        }
        elsewhere(url).map_err(failed)
    }

    pub(crate) fn wait<T>(
        &self,
        work: impl Future<Output = object_store::Result<T>>,
    ) -> io::Result<T> {
        runtime()?.block_on(work).map_err(io_error)
    }
}

/// A store of another machine. Its settings and credentials are taken from the environment, as the
/// clouds' own tools name them, and for S3 from profiles.
#[cfg(feature = "cloud")]
fn elsewhere(url: &Url) -> object_store::Result<Cloud> {
    use object_store::ObjectStoreScheme as Scheme;
    // Another part of the process may have chosen already.
    drop(rustls::crypto::ring::default_provider().install_default());
    // Requests are tried again by `patience`, where they are counted.
    let retry = object_store::RetryConfig { max_retries: 0, ..Default::default() };
    let (scheme, prefix) = Scheme::parse(url)?;
    Ok(match scheme {
        Scheme::AmazonS3 => {
            let wrong =
                |text: String| object_store::Error::Generic { store: "S3", source: text.into() };
            let mut builder = object_store::aws::AmazonS3Builder::from_env();
            for (key, value) in crate::aws_profile::of_environment().map_err(wrong)? {
                builder = builder.with_config(key, value);
            }
            let store = builder.with_url(url.as_str()).with_retry(retry).build()?;
            Cloud::below(Arc::new(store), prefix)
        }
        Scheme::GoogleCloudStorage => {
            let builder = object_store::gcp::GoogleCloudStorageBuilder::from_env();
            let store = builder.with_url(url.as_str()).with_retry(retry).build()?;
            Cloud::below(Arc::new(store), prefix)
        }
        Scheme::MicrosoftAzure => {
            let builder = object_store::azure::MicrosoftAzureBuilder::from_env();
            let store = builder.with_url(url.as_str()).with_retry(retry).build()?;
            Cloud::below(Arc::new(store), prefix)
        }
        _ => return Err(unknown(url)),
    })
}

#[cfg(not(feature = "cloud"))]
fn elsewhere(url: &Url) -> object_store::Result<Cloud> {
    Err(unknown(url))
}

fn unknown(url: &Url) -> object_store::Error {
    let what = format!("this build knows no stores {}://", url.scheme());
    object_store::Error::NotSupported { source: what.into() }
}

impl Store for Cloud {
    fn put_new(&self, name: &str, bytes: Bytes) -> io::Result<bool> {
        let (name, payload) = (Path::from(name), PutPayload::from_bytes(bytes));
        let put = self.store.put_opts(&name, payload, PutMode::Create.into());
        match runtime()?.block_on(put) {
            Ok(_) => Ok(true),
            Err(object_store::Error::AlreadyExists { .. }) => Ok(false),
            Err(error) => Err(io_error(error)),
        }
    }

    fn replace(&self, name: &str, bytes: Bytes) -> io::Result<()> {
        let put = self
            .wait(async { self.store.put(&Path::from(name), PutPayload::from_bytes(bytes)).await });
        put.map(drop)
    }

    fn begin_parts<'s>(&'s self, name: &str) -> io::Result<Box<dyn Parts + 's>> {
        let name = Path::from(name);
        match &self.parts {
            Some(numbered) => Ok(Box::new(NumberedParts::begin(self, numbered, name)?)),
            None => Ok(Box::new(PartsInOrder::begin(self, name)?)),
        }
    }

    fn get(&self, name: &str, most: u64) -> io::Result<Bytes> {
        let name = Path::from(name);
        self.wait(async {
            let found = self.store.get(&name).await?;
            if found.meta.size > most {
                return Ok(None);
            }
            found.bytes().await.map(Some)
        })?
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the object is far too long"))
    }

    fn get_range(&self, name: &str, range: Range<u64>) -> io::Result<Bytes> {
        self.wait(self.store.get_range(&Path::from(name), range))
    }

    fn list(&self, prefix: &str) -> io::Result<Vec<Entry>> {
        let prefix = Path::from(prefix);
        let found = self.store.list(Some(&prefix));
        let entries =
            found.map_ok(|meta| Entry { name: meta.location.to_string(), len: meta.size });
        self.wait(entries.try_collect())
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        match self.wait(self.store.delete(&Path::from(name))) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_that_are_only_in_the_text_have_their_kinds() {
        let of = |status: &str| {
            let text = format!(
                "Error performing GET http://store/bucket?list-type=2 in 2ms - Server returned non-2xx status \
                 code: {status}: <Error>status code: 404</Error>"
            );
            io_error(object_store::Error::Generic { store: "S3", source: text.into() }).kind()
        };
        assert_eq!(of("401 Unauthorized"), io::ErrorKind::PermissionDenied);
        assert_eq!(of("403 Forbidden"), io::ErrorKind::PermissionDenied);
        assert_eq!(of("404 Not Found"), io::ErrorKind::NotFound);
        assert_eq!(of("416 Range Not Satisfiable"), io::ErrorKind::InvalidData);
        assert_eq!(of("503 Service Unavailable"), io::ErrorKind::Other);
        let other = object_store::Error::Generic { store: "S3", source: "connection reset".into() };
        assert_eq!(io_error(other).kind(), io::ErrorKind::Other);
    }
}
