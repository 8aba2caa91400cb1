//! Objects that are put in parts into stores of the crate `object_store`.
//!
//! 1. Where the store knows parts by their numbers, each is put again by its number: a part whose
//!    answer was lost is there once. So does S3, GCS and Azure.
//! 2. Elsewhere, as in a directory, parts are put in the order of their numbers, and what failed
//!    cannot be put again.
//!
//! Used by [`crate::cloud`].

use std::collections::BTreeMap;
use std::io;

use bytes::Bytes;
use object_store::multipart::PartId;
use object_store::path::Path;
use object_store::{MultipartId, MultipartUpload, ObjectStoreExt, PutPayload};
use parking_lot::Mutex;

use crate::Parts;
use crate::cloud::{Cloud, Numbered, io_error, runtime};

/// Parts that the store knows by their numbers.
pub(crate) struct NumberedParts<'s> {
    cloud: &'s Cloud,
    numbered: &'s Numbered,
    /// Below the prefix, and the whole path.
    name: Path,
    path: Path,
    id: MultipartId,
    /// The parts that were put, and the bytes of each.
    put: Mutex<BTreeMap<usize, (PartId, u64)>>,
}

impl<'s> NumberedParts<'s> {
    pub(crate) fn begin(cloud: &'s Cloud, numbered: &'s Numbered, name: Path) -> io::Result<Self> {
        let path: Path = numbered.prefix.parts().chain(name.parts()).collect();
        let id = cloud.wait(numbered.store.create_multipart(&path))?;
        Ok(Self { cloud, numbered, name, path, id, put: Mutex::default() })
    }

    /// Is an object of this length there?
    fn is_there(&self, len: u64) -> bool {
        self.cloud.wait(self.cloud.store.head(&self.name)).is_ok_and(|meta| meta.size == len)
    }
}

impl Parts for NumberedParts<'_> {
    fn put(&self, number: usize, bytes: Bytes) -> io::Result<()> {
        let len = bytes.len() as u64;
        let put = self.numbered.store.put_part(&self.path, &self.id, number, bytes.into());
        let part = self.cloud.wait(put)?;
        self.put.lock().insert(number, (part, len));
        Ok(())
    }

    fn finish(&self) -> io::Result<()> {
        let put: Vec<_> = self.put.lock().values().cloned().collect();
        let len = put.iter().map(|(_, len)| len).sum();
        let parts = put.into_iter().map(|(part, _)| part).collect();
        let done = self.numbered.store.complete_multipart(&self.path, &self.id, parts);
        match self.cloud.wait(done) {
            // An earlier try has finished it, and its answer was lost. Its name was never used before.
            Err(_) if self.is_there(len) => Ok(()),
            other => other.map(drop),
        }
    }

    fn abandon(&self) {
        // The store drops parts that nothing completes.
        let _ = self.cloud.wait(self.numbered.store.abort_multipart(&self.path, &self.id));
    }
}

/// Parts that are put one after the other.
pub(crate) struct PartsInOrder<'s> {
    cloud: &'s Cloud,
    queue: Mutex<Queue>,
}

struct Queue {
    upload: Box<dyn MultipartUpload>,
    next: usize,
    /// Parts that wait for those before them.
    waiting: BTreeMap<usize, Bytes>,
    /// Why not all were put.
    failed: Option<(io::ErrorKind, String)>,
}

impl Queue {
    fn check(&self) -> io::Result<()> {
        let failed = self.failed.as_ref();
        failed.map_or(Ok(()), |(kind, text)| Err(io::Error::new(*kind, text.clone())))
    }
}

impl<'s> PartsInOrder<'s> {
    pub(crate) fn begin(cloud: &'s Cloud, name: Path) -> io::Result<Self> {
        let upload = cloud.wait(cloud.store.put_multipart(&name))?;
        let queue = Queue { upload, next: 0, waiting: BTreeMap::new(), failed: None };
        Ok(Self { cloud, queue: Mutex::new(queue) })
    }
}

impl Parts for PartsInOrder<'_> {
    fn put(&self, number: usize, bytes: Bytes) -> io::Result<()> {
        let mut queue = self.queue.lock();
        queue.check()?;
        queue.waiting.insert(number, bytes);
        loop {
            let next = queue.next;
            let Some(bytes) = queue.waiting.remove(&next) else { return Ok(()) };
            queue.next += 1;
            let put = queue.upload.put_part(PutPayload::from_bytes(bytes));
            if let Err(error) = self.cloud.wait(put) {
                queue.failed = Some((error.kind(), error.to_string()));
                return Err(error);
            }
        }
    }

    fn finish(&self) -> io::Result<()> {
        let mut queue = self.queue.lock();
        queue.check()?;
        let done = runtime()?.block_on(queue.upload.complete()).map_err(io_error);
        if let Err(error) = &done {
            queue.failed = Some((error.kind(), error.to_string()));
        }
        done.map(drop)
    }

    fn abandon(&self) {
        let mut queue = self.queue.lock();
        // What is left of it is of no use to anyone.
        let _ = self.cloud.wait(queue.upload.abort());
    }
}
