//! The content of a simulated disk: pages, of which those that repeat one word take no more memory
//! than the word.
//!
//! File data of workloads repeats a word of its file ([`Content::word`]). So it costs almost no
//! memory, and every page on the disk names its file.

use std::io;
use std::sync::Arc;

use parking_lot::RwLock;
use rustc_hash::FxHashMap;
use uxfs::disk::BlockDev;

/// Bytes of a page.
pub(crate) const PAGE: usize = 4096;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Page {
    /// A word, repeated for this many bytes; then zeroes.
    Word(u64, u16),
    Bytes(Arc<[u8]>),
}

impl Page {
    /// The page with these bytes. The same bytes give equal pages.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        match word_of(bytes) {
            Some((word, len)) => Self::Word(word, len),
            None => Self::Bytes(bytes.into()),
        }
    }

    pub(crate) fn is_zero(&self) -> bool {
        matches!(self, Self::Word(0, _))
    }

    pub(crate) fn copy(&self, start: usize, into: &mut [u8]) {
        match self {
            Self::Bytes(bytes) => into.copy_from_slice(&bytes[start..start + into.len()]),
            Self::Word(word, len) => {
                let word = word.to_le_bytes();
                let end = usize::from(*len);
                for (i, byte) in into.iter_mut().enumerate() {
                    let at = start + i;
                    *byte = if at < end { word[at % 8] } else { 0 };
                }
            }
        }
    }
}

/// The word that a page repeats, and for how many bytes.
fn word_of(bytes: &[u8]) -> Option<(u64, u16)> {
    let first: [u8; 8] = bytes.get(..8)?.try_into().ok()?;
    let same = bytes.chunks(8).take_while(|chunk| **chunk == first[..chunk.len()]).count();
    let mut end = (same * 8).min(bytes.len());
    // The word may end in the middle.
    while end < bytes.len() && bytes[end] == first[end % 8] && bytes[end] != 0 {
        end += 1;
    }
    let zero = bytes[end..].iter().all(|byte| *byte == 0);
    zero.then(|| (u64::from_le_bytes(first), u16::try_from(end).unwrap_or(0)))
}

/// The content of one write.
#[derive(Clone, Debug)]
pub struct Content {
    at: u64,
    len: u64,
    /// Whole pages, or one piece.
    pages: Vec<Page>,
    whole: bool,
}

impl Content {
    /// Bytes that are written at an offset.
    pub fn new(at: u64, bytes: &[u8]) -> Self {
        let len = bytes.len() as u64;
        let whole = at.is_multiple_of(PAGE as u64) && bytes.len().is_multiple_of(PAGE);
        let pages = match whole {
            true => bytes.chunks(PAGE).map(Page::of).collect(),
            false => vec![Page::Bytes(bytes.into())],
        };
        Self { at, len, pages, whole }
    }

    /// First byte.
    pub fn at(&self) -> u64 {
        self.at
    }

    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The words that its pages repeat.
    pub fn words(&self) -> impl Iterator<Item = u64> {
        self.pages.iter().filter_map(|page| match page {
            Page::Word(word, len) if *word != 0 && *len > 0 => Some(*word),
            _ => None,
        })
    }

    /// The content without its last `lost` bytes.
    pub fn torn(&self, lost: u64) -> Self {
        let mut bytes = self.bytes();
        bytes.truncate(usize::try_from(self.len.saturating_sub(lost)).unwrap_or(0));
        Self::new(self.at, &bytes)
    }

    fn bytes(&self) -> Vec<u8> {
        let mut all = vec![0; usize::try_from(self.len).unwrap_or(0)];
        let step = if self.whole { PAGE } else { all.len().max(1) };
        for (page, into) in self.pages.iter().zip(all.chunks_mut(step)) {
            page.copy(0, into);
        }
        all
    }
}

#[derive(Clone, Debug, Default)]
pub struct Store {
    len: u64,
    pages: FxHashMap<u64, Page>,
}

impl Store {
    /// `len` zero bytes.
    pub fn new(len: u64) -> Self {
        Self { len, pages: FxHashMap::default() }
    }

    fn check(&self, offset: u64, len: u64) -> io::Result<()> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn put(&mut self, number: u64, page: Page) {
        match page {
            page if page.is_zero() => drop(self.pages.remove(&number)),
            page => drop(self.pages.insert(number, page)),
        }
    }

    /// Copies bytes out.
    ///
    /// # Errors
    /// Beyond the end.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.check(offset, buf.len() as u64)?;
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let (number, start) = (at / PAGE as u64, (at % PAGE as u64) as usize);
            let step = (PAGE - start).min(buf.len() - done);
            let into = &mut buf[done..done + step];
            match self.pages.get(&number) {
                Some(page) => page.copy(start, into),
                None => into.fill(0),
            }
            done += step;
        }
        Ok(())
    }

    /// Takes bytes in.
    ///
    /// # Errors
    /// Beyond the end.
    pub fn write(&mut self, content: &Content) -> io::Result<()> {
        self.check(content.at, content.len)?;
        if content.whole {
            let first = content.at / PAGE as u64;
            for (number, page) in (first..).zip(&content.pages) {
                self.put(number, page.clone());
            }
            return Ok(());
        }
        self.patch(content.at, &content.bytes());
        Ok(())
    }

    /// Writes the sectors that `keep` selects.
    ///
    /// # Errors
    /// Beyond the end.
    pub fn write_some(
        &mut self,
        content: &Content,
        mut keep: impl FnMut() -> bool,
    ) -> io::Result<()> {
        self.check(content.at, content.len)?;
        for (number, sector) in (0..).zip(content.bytes().chunks(512)) {
            if keep() {
                self.patch(content.at + number * 512, sector);
            }
        }
        Ok(())
    }

    fn patch(&mut self, offset: u64, bytes: &[u8]) {
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let (number, start) = (at / PAGE as u64, (at % PAGE as u64) as usize);
            let step = (PAGE - start).min(bytes.len() - done);
            let from = &bytes[done..done + step];
            if let Some(Page::Bytes(page)) = self.pages.get_mut(&number)
                && let Some(page) = Arc::get_mut(page)
            {
                page[start..start + step].copy_from_slice(from);
            } else {
                let mut page = vec![0; PAGE];
                if let Some(old) = self.pages.get(&number) {
                    old.copy(0, &mut page);
                }
                page[start..start + step].copy_from_slice(from);
                self.put(number, Page::Bytes(page.into()));
            }
            done += step;
        }
    }

    fn clear(&mut self, offset: u64, len: u64) {
        let page = PAGE as u64;
        let (first, last) = (offset.div_ceil(page), (offset + len) / page);
        if first >= last {
            return self.patch(offset, &vec![0; usize::try_from(len).unwrap_or(0)]);
        }
        let head = first * page - offset;
        let tail = offset + len - last * page;
        self.patch(offset, &vec![0; head as usize]);
        self.patch(last * page, &vec![0; tail as usize]);
        if (last - first) as usize > self.pages.len() {
            self.pages.retain(|number, _| !(first..last).contains(number));
        } else {
            for number in first..last {
                self.pages.remove(&number);
            }
        }
    }
}

/// A device over a store, outside any simulation.
#[derive(Debug)]
pub struct StoreDev(RwLock<Store>);

impl StoreDev {
    pub fn new(store: Store) -> Self {
        Self(RwLock::new(store))
    }

    pub fn store(&self) -> Store {
        self.0.read().clone()
    }
}

impl BlockDev for StoreDev {
    uxfs::disk::emulate!(write_vectored_at, write_bulk_at, write_fua_at);
    uxfs::disk::without!(
        has_fua,
        discard,
        allocate,
        check_present,
        warning,
        sector_size,
        will_read,
        will_write_bulk,
        lengthen,
        as_file
    );

    fn len(&self) -> u64 {
        self.0.read().len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.0.read().read(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write().write(&Content::new(offset, data))
    }

    fn zero(&self, offset: u64, len: u64) -> io::Result<()> {
        let mut store = self.0.write();
        store.check(offset, len)?;
        store.clear(offset, len);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn read_only(&self) -> bool {
        false
    }
}
