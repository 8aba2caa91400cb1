//! A file's content in memory. Pages that were never written are zeroes and take no memory.

use std::collections::BTreeMap;

const PAGE: u64 = 4096;

#[derive(Clone, Debug, Default)]
pub(super) struct Content {
    pub(super) size: u64,
    pages: BTreeMap<u64, Box<[u8]>>,
}

impl Content {
    pub(super) fn write(&mut self, offset: u64, data: &[u8]) {
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let start = (at % PAGE) as usize;
            let step = (PAGE as usize - start).min(data.len() - done);
            let page = self.pages.entry(at / PAGE).or_insert_with(|| vec![0; PAGE as usize].into());
            page[start..start + step].copy_from_slice(&data[done..done + step]);
            done += step;
        }
        self.size = self.size.max(offset + data.len() as u64);
    }

    pub(super) fn truncate(&mut self, size: u64) {
        self.size = size;
        drop(self.pages.split_off(&size.div_ceil(PAGE)));
        if let Some(page) = self.pages.get_mut(&(size / PAGE)) {
            page[(size % PAGE) as usize..].fill(0);
        }
    }

    /// Zeroes a range, up to the end of the file.
    pub(super) fn zero(&mut self, from: u64, to: u64) {
        let to = to.min(self.size);
        let first = from / PAGE;
        let pages: Vec<u64> = self.pages.range(first..).map(|(page, _)| *page).collect();
        for page in pages.into_iter().take_while(|page| page * PAGE < to) {
            let start = page * PAGE;
            let (low, high) = (from.clamp(start, start + PAGE), to.clamp(start, start + PAGE));
            if let Some(bytes) = self.pages.get_mut(&page) {
                bytes[(low - start) as usize..(high.max(low) - start) as usize].fill(0);
            }
        }
    }

    /// The content of a range: pieces by their offset in it.
    pub(super) fn part(&self, from: u64, len: u64) -> Vec<(u64, Vec<u8>)> {
        let to = (from + len).min(self.size);
        let mut part = Vec::new();
        for (start, _) in self.data().into_iter().filter(|(at, len)| at + len > from && *at < to) {
            let low = start.max(from);
            let mut bytes = vec![0; ((start + PAGE).min(to) - low) as usize];
            self.read(low, &mut bytes);
            part.push((low - from, bytes));
        }
        part
    }

    /// Sets a range to the content of `part`.
    pub(super) fn put(&mut self, at: u64, part: &[(u64, Vec<u8>)], len: u64) {
        self.zero(at, at + len);
        for (offset, bytes) in part {
            self.write(at + offset, bytes);
        }
        self.size = self.size.max(at + len);
    }

    /// Removes a range.
    pub(super) fn collapse(&mut self, from: u64, len: u64) {
        let (size, behind) = (self.size, self.part(from + len, u64::MAX / 2));
        self.truncate(from);
        self.put(from, &behind, size - from - len);
    }

    /// Inserts a hole.
    pub(super) fn insert(&mut self, from: u64, len: u64) {
        let (size, behind) = (self.size, self.part(from, u64::MAX / 2));
        self.truncate(from);
        self.size = from + len;
        self.put(from + len, &behind, size - from);
    }

    pub(super) fn read(&self, offset: u64, buf: &mut [u8]) -> usize {
        let len = self.size.saturating_sub(offset).min(buf.len() as u64) as usize;
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            let start = (at % PAGE) as usize;
            let step = (PAGE as usize - start).min(len - done);
            match self.pages.get(&(at / PAGE)) {
                Some(page) => buf[done..done + step].copy_from_slice(&page[start..start + step]),
                None => buf[done..done + step].fill(0),
            }
            done += step;
        }
        len
    }

    /// Ranges that may not be zero.
    pub(super) fn data(&self) -> Vec<(u64, u64)> {
        let ranges = self.pages.keys().map(|page| (page * PAGE, PAGE));
        ranges.map(|(at, len)| (at, len.min(self.size.saturating_sub(at)))).collect()
    }
}
