//! The bulk writer: writes the data of many new files in large requests, in threads beside the one
//! that creates the files ([`Fs::build_with`]).
//!
//! 1. The rest of a file's last block is written as zeroes.
//! 2. With a journal, a checkpoint waits for the data of the files that it shows
//!    ([`crate::bulk_data`]); the data is passed on before the commit.
//! 3. Before blocks are freed, writes in flight to them must complete ([`BulkWriter::wait_for`]):
//!    a later write would overwrite their next content.
//! 4. The first error stops everything; [`BulkWriter::finish`] returns it. With a journal it also
//!    stops the volume, because committed metadata refers to data that was not written.
//! 5. A writer that is dropped unfinished still writes the data of committed files if the volume has a
//!    journal.

use std::fs::File;
use std::sync::Arc;

use uxfs_disk::{AlignedBuf, BlockDev};
use uxfs_format::Daddr;
use uxfs_sync::Thread;

use crate::bulk_data::{BATCH, BulkData, BulkError, Origin};
use crate::error::{Error, Result};
use crate::file::Segment;
use crate::fs::Fs;

/// Threads that write data.
const THREADS: usize = 3;

/// Writes the data of files that [`Fs::build_with`] creates. A volume with a journal has one at most.
#[must_use = "data is written for certain only when `finish` returned"]
pub struct BulkWriter<'a> {
    fs: &'a Fs,
    data: Arc<BulkData>,
    threads: Vec<Thread>,
    source_len: Option<u64>,
}

impl<'a> BulkWriter<'a> {
    /// Starts a writer. From `source`, if there is one, the threads can read data themselves
    /// ([`BulkWriter::copy`]).
    ///
    /// # Errors
    /// The volume has a bulk writer already; the host's errors for a new thread and for `source`.
    pub fn start(fs: &'a Fs, source: Option<&File>) -> Result<Self> {
        let host = |source| Error::Io { what: "starting a writer", daddr: Daddr(0), source };
        let source_len = source.map(|file| file.metadata().map(|meta| meta.len())).transpose();
        let source_len = source_len.map_err(host)?;
        let data = Arc::new(BulkData::new(Arc::clone(fs.device())));
        fs.set_bulk_data(Arc::clone(&data))?;
        let mut writer = Self { fs, data, threads: Vec::new(), source_len };
        for _ in 0..THREADS {
            let source = source.map(File::try_clone).transpose().map_err(host)?;
            let (data, device) = (Arc::clone(&writer.data), Arc::clone(fs.device()));
            let body = move || write_batches(&data, &*device, source.as_ref());
            writer.threads.push(Thread::start("uxfs-data", body).map_err(host)?);
        }
        Ok(writer)
    }

    /// Length in bytes of the source's file when the writer started.
    #[must_use]
    pub fn source_len(&self) -> Option<u64> {
        self.source_len
    }

    /// Copies `len` bytes at offset `from` of the source's file to byte `device` of the device, a
    /// multiple of the block size.
    pub fn copy(&self, from: u64, device: u64, len: u64) {
        let block = self.fs.geo.block_size as usize;
        let mut done = 0;
        while done < len {
            let mut batch = self.data.take(device + done, block, false);
            let before = batch.len();
            let step = (len - done).min((BATCH - before) as u64) as usize;
            batch.push(Origin::File(from + done), step, block);
            self.data.give_back(batch, before);
            done += step as u64;
        }
    }

    /// Writes `len` bytes that `read` delivers to byte `device` of the device, a multiple of the
    /// block size. `read` fills its whole buffer.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn stream<E>(
        &self,
        device: u64,
        len: u64,
        mut read: impl FnMut(&mut [u8]) -> core::result::Result<(), E>,
    ) -> core::result::Result<(), E> {
        let block = self.fs.geo.block_size as usize;
        let mut done = 0;
        while done < len {
            let mut batch = self.data.take(device + done, block, true);
            let before = batch.len();
            let step = (len - done).min((BATCH - before) as u64) as usize;
            let filled = match &mut batch.buf {
                Some(buf) => read(&mut buf[before..before + step]),
                None => unreachable!("the batch was taken with a buffer"),
            };
            if filled.is_ok() {
                batch.push(Origin::Buffer, step, block);
            }
            self.data.give_back(batch, before);
            filled?;
            done += step as u64;
        }
        Ok(())
    }

    /// Waits until all writes to these segments are complete: the segments are about to be freed.
    pub fn wait_for(&self, segments: &[Segment]) {
        self.data.wait_for(|range| {
            segments
                .iter()
                .any(|s| s.device.is_some_and(|at| at < range.end && range.start < at + s.len))
        });
    }

    /// Writes everything, and ends.
    ///
    /// # Errors
    /// The first read or write that failed.
    pub fn finish(mut self) -> core::result::Result<(), BulkError> {
        self.data.flush();
        self.end()
    }

    fn end(&mut self) -> core::result::Result<(), BulkError> {
        let journaled = self.fs.journal.is_some();
        if journaled {
            self.data.flush();
        }
        self.data.close();
        self.threads.drain(..).for_each(Thread::join);
        let failure = self.data.take_failure();
        if let Some(error) = &failure
            && journaled
        {
            self.fs.stop(&format!("file data is missing: {error}"));
        }
        self.fs.clear_bulk_data();
        failure.map_or(Ok(()), Err)
    }
}

impl Drop for BulkWriter<'_> {
    fn drop(&mut self) {
        if !self.data.is_closed() {
            // Stops the volume where that matters.
            let _ = self.end();
        }
    }
}

fn write_batches(data: &BulkData, device: &dyn BlockDev, source: Option<&File>) {
    let mut own_buf = None;
    while let Some(mut batch) = data.next() {
        let mut filled = batch.buf.take();
        let buf = match &mut filled {
            Some(buf) => buf,
            None => own_buf.get_or_insert_with(|| AlignedBuf::new(BATCH)),
        };
        let done = batch.fill(source, buf).map_err(BulkError::Source).and_then(|()| {
            let written = device.write_bulk_at(batch.range().start, &buf[..batch.len()]);
            written.map_err(BulkError::Device)
        });
        batch.buf = filled;
        data.complete(batch, done);
    }
}
