//! A file's content in memory: pages that were never written are zeroes and take no room.

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

    /// Ranges that may hold anything but zeroes.
    pub(super) fn data(&self) -> Vec<(u64, u64)> {
        let ranges = self.pages.keys().map(|page| (page * PAGE, PAGE));
        ranges.map(|(at, len)| (at, len.min(self.size.saturating_sub(at)))).collect()
    }
}
