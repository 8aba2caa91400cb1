//! Writes a FAT volume.

use std::fs::File;
use std::io::{self, Read};

use uxfs::disk::BlockDev;

use super::layout::{FatError, Layout, Options, SECTOR};
use super::name::{self, Name, UNITS};
use super::tree::{Dir, ENTRY, Node, Tree};

const DIRECTORY: u8 = 0x10;
const ARCHIVE: u8 = 0x20;
const LABEL: u8 = 0x08;
const LONG_NAME: u8 = 0x0f;
/// Sectors of FAT32 that hold the counts and the copy of the boot sector.
const INFO: u64 = 1;
const BACKUP: u64 = 6;
const MEDIA: u8 = 0xf8;

/// Writes a volume with the files of `tree`. The device must read as zeroes.
///
/// # Errors
/// The errors of reading files and of writing; what the layout does not hold.
pub fn write(
    dev: &dyn BlockDev,
    layout: &Layout,
    tree: &Tree,
    options: &Options,
) -> Result<(), FatError> {
    let mut writer = Writer { dev, layout, options, next: 2, table: Vec::new() };
    writer.table.extend([0x0fff_ff00 | u32::from(MEDIA), 0x0fff_ffff]);
    writer.dir(&tree.root, None)?;
    writer.tables()?;
    writer.boot_sectors()?;
    Ok(())
}

/// The place and time of a directory, for the entries that name it.
#[derive(Clone, Copy)]
struct Place {
    cluster: u64,
    time: [u8; 4],
}

struct Writer<'a> {
    dev: &'a dyn BlockDev,
    layout: &'a Layout,
    options: &'a Options,
    /// The next free cluster.
    next: u64,
    /// Table entries of 32 bits, up to the last one in use.
    table: Vec<u32>,
}

impl Writer<'_> {
    /// Takes `count` clusters in one piece; 0 for none.
    fn take(&mut self, count: u64) -> Result<u64, FatError> {
        if count == 0 {
            return Ok(0);
        }
        let first = self.next;
        self.next += count;
        if self.next > self.layout.clusters + 2 {
            // The layout was made for this tree, so a file must have grown.
            return Err(FatError::Unfit("a file grew while it was read".into()));
        }
        self.table.extend((first + 1..self.next).map(|next| next as u32));
        self.table.push(0x0fff_ffff);
        Ok(first)
    }

    /// Writes a directory and everything below it. `parent` is absent for the root.
    fn dir(&mut self, dir: &Dir, parent: Option<Place>) -> Result<Place, FatError> {
        let entries = dir.entries()?;
        let label = self.options.label.as_deref().and_then(name::label);
        let extra = if parent.is_some() { 2 } else { u64::from(label.is_some()) };
        let len = Dir::len(&entries, extra);
        let own = self.take(self.layout.dir_clusters(len, parent.is_none())?)?;
        let here = Place { cluster: own, time: self.time(dir.mtime.unwrap_or(self.options.made)) };
        let mut raw = Vec::with_capacity(len as usize);
        match parent {
            // The root's number is 0 in `..`.
            Some(parent) => {
                put(&mut raw, b".          ", DIRECTORY, here, 0);
                put(&mut raw, b"..         ", DIRECTORY, parent, 0);
            }
            None => {
                let none = Place { cluster: 0, ..here };
                label.iter().for_each(|label| put(&mut raw, label, LABEL, none, 0));
            }
        }
        let as_parent = if parent.is_some() { here } else { Place { cluster: 0, ..here } };
        for (name, node) in entries {
            put_long(&mut raw, &name);
            match node {
                Node::Dir(below) => {
                    let place = self.dir(below, Some(as_parent))?;
                    put(&mut raw, &name.short, DIRECTORY, place, 0);
                }
                Node::File { path, len, mtime } => {
                    let cluster = self.take(len.div_ceil(self.layout.cluster()))?;
                    let at = |error: io::Error| {
                        io::Error::new(error.kind(), format!("{}: {error}", path.display()))
                    };
                    let file = File::open(path).map_err(at)?;
                    self.content(file, *len, cluster).map_err(at)?;
                    let place = Place { cluster, time: self.time(*mtime) };
                    put(&mut raw, &name.short, ARCHIVE, place, *len as u32);
                }
            }
        }
        let at = match own {
            0 => (self.layout.reserved + 2 * self.layout.table) * SECTOR,
            cluster => self.layout.offset(cluster),
        };
        self.dev.write_at(at, &raw)?;
        Ok(here)
    }

    fn content(&self, mut file: File, len: u64, cluster: u64) -> io::Result<()> {
        let mut buffer = vec![0; len.min(1 << 20) as usize];
        let mut done = 0;
        while done < len {
            let piece = &mut buffer[..(len - done).min(1 << 20) as usize];
            file.read_exact(piece)?;
            self.dev.write_at(self.layout.offset(cluster) + done, piece)?;
            done += piece.len() as u64;
        }
        Ok(())
    }

    /// Time and date of a modification, as they are stored.
    fn time(&self, seconds: i64) -> [u8; 4] {
        // From 1980 to 2107.
        let seconds = seconds.min(self.options.latest).clamp(315_532_800, 4_354_819_198);
        let (days, second) = (seconds / 86_400, seconds % 86_400);
        let (year, month, day) = civil(days);
        let time = (second / 3600) << 11 | (second / 60 % 60) << 5 | (second % 60 / 2);
        let date = (year - 1980) << 9 | month << 5 | day;
        let (time, date) = ((time as u16).to_le_bytes(), (date as u16).to_le_bytes());
        [time[0], time[1], date[0], date[1]]
    }

    /// Writes both tables as far as they are used.
    fn tables(&self) -> io::Result<()> {
        let raw: Vec<u8> = match self.layout.bits {
            16 => self.table.iter().flat_map(|entry| (*entry as u16).to_le_bytes()).collect(),
            _ => self.table.iter().flat_map(|entry| entry.to_le_bytes()).collect(),
        };
        self.dev.write_at(self.layout.reserved * SECTOR, &raw)?;
        self.dev.write_at((self.layout.reserved + self.layout.table) * SECTOR, &raw)
    }

    fn boot_sectors(&self) -> io::Result<()> {
        let boot = self.boot_sector();
        self.dev.write_at(0, &boot)?;
        if self.layout.bits == 32 {
            let mut info = vec![0; SECTOR as usize];
            info[..4].copy_from_slice(b"RRaA");
            info[484..488].copy_from_slice(b"rrAa");
            let free = self.layout.clusters + 2 - self.next;
            info[488..492].copy_from_slice(&(free as u32).to_le_bytes());
            info[492..496].copy_from_slice(&(self.next as u32).to_le_bytes());
            info[510..].copy_from_slice(&[0x55, 0xaa]);
            for at in [0, BACKUP] {
                self.dev.write_at((at + INFO) * SECTOR, &info)?;
            }
            self.dev.write_at(BACKUP * SECTOR, &boot)?;
        }
        Ok(())
    }

    fn boot_sector(&self) -> Vec<u8> {
        let layout = self.layout;
        let wide = layout.bits == 32;
        let mut raw = vec![0; SECTOR as usize];
        // A jump over the fields.
        raw[..3].copy_from_slice(&[0xeb, if wide { 0x58 } else { 0x3c }, 0x90]);
        raw[3..11].copy_from_slice(b"uxfs    ");
        raw[11..13].copy_from_slice(&(SECTOR as u16).to_le_bytes());
        raw[13] = layout.per_cluster as u8;
        raw[14..16].copy_from_slice(&(layout.reserved as u16).to_le_bytes());
        raw[16] = 2;
        raw[17..19].copy_from_slice(&((layout.root * SECTOR / ENTRY) as u16).to_le_bytes());
        let short = u16::try_from(layout.sectors).ok().filter(|_| !wide);
        raw[19..21].copy_from_slice(&short.unwrap_or(0).to_le_bytes());
        raw[21] = MEDIA;
        // Sectors in a track, heads: of no meaning today.
        raw[24..28].copy_from_slice(&[63, 0, 255, 0]);
        raw[28..32].copy_from_slice(&self.options.hidden_sectors.to_le_bytes());
        let long = if short.is_some() { 0 } else { layout.sectors as u32 };
        raw[32..36].copy_from_slice(&long.to_le_bytes());
        let tail = if wide {
            raw[36..40].copy_from_slice(&(layout.table as u32).to_le_bytes());
            raw[44..48].copy_from_slice(&2u32.to_le_bytes());
            raw[48..50].copy_from_slice(&(INFO as u16).to_le_bytes());
            raw[50..52].copy_from_slice(&(BACKUP as u16).to_le_bytes());
            64
        } else {
            raw[22..24].copy_from_slice(&(layout.table as u16).to_le_bytes());
            36
        };
        raw[tail] = 0x80;
        raw[tail + 2] = 0x29;
        raw[tail + 3..tail + 7].copy_from_slice(&self.options.serial.to_le_bytes());
        let label = self.options.label.as_deref().and_then(name::label);
        raw[tail + 7..tail + 18].copy_from_slice(&label.unwrap_or(*b"NO NAME    "));
        let kind = if wide { b"FAT32   " } else { b"FAT16   " };
        raw[tail + 18..tail + 26].copy_from_slice(kind);
        raw[510..].copy_from_slice(&[0x55, 0xaa]);
        raw
    }
}

/// Appends an entry.
fn put(raw: &mut Vec<u8>, short: &[u8; 11], attributes: u8, place: Place, len: u32) {
    let mut entry = [0; ENTRY as usize];
    entry[..11].copy_from_slice(short);
    entry[11] = attributes;
    // Creation, day of access, modification.
    entry[14..18].copy_from_slice(&place.time);
    entry[18..20].copy_from_slice(&place.time[2..]);
    entry[22..26].copy_from_slice(&place.time);
    let cluster = (place.cluster as u32).to_le_bytes();
    entry[20..22].copy_from_slice(&cluster[2..]);
    entry[26..28].copy_from_slice(&cluster[..2]);
    entry[28..].copy_from_slice(&len.to_le_bytes());
    raw.extend_from_slice(&entry);
}

/// Appends the entries of a long name, the last part first.
fn put_long(raw: &mut Vec<u8>, name: &Name) {
    let sum = name::checksum(&name.short);
    let count = name.long.len().div_ceil(UNITS);
    for (at, part) in name.long.chunks(UNITS).enumerate().rev() {
        // An end mark if there is room, then ones.
        let mut units = [0xffff; UNITS];
        units[..part.len()].copy_from_slice(part);
        if let Some(end) = units.get_mut(part.len()) {
            *end = 0;
        }
        let mut entry = [0; ENTRY as usize];
        entry[0] = (at + 1) as u8 | if at + 1 == count { 0x40 } else { 0 };
        entry[11] = LONG_NAME;
        entry[13] = sum;
        let places = (1..11).step_by(2).chain((14..26).step_by(2)).chain((28..32).step_by(2));
        for (place, unit) in places.zip(units) {
            entry[place..place + 2].copy_from_slice(&unit.to_le_bytes());
        }
        raw.extend_from_slice(&entry);
    }
}

/// Year, month and day of a day since 1970.
fn civil(days: i64) -> (i64, i64, i64) {
    let mut left = days;
    let mut year = 1970;
    let leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    while left >= 365 + i64::from(leap(year)) {
        left -= 365 + i64::from(leap(year));
        year += 1;
    }
    let february = 28 + i64::from(leap(year));
    let mut month = 1;
    for len in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if left < len {
            break;
        }
        left -= len;
        month += 1;
    }
    (year, month, left + 1)
}

#[cfg(test)]
mod tests {
    use super::civil;

    #[test]
    fn days_have_their_dates() {
        for (seconds, date) in [
            (0, (1970, 1, 1)),
            (951_782_400, (2000, 2, 29)),
            (1_700_000_000, (2023, 11, 14)),
            (4_107_542_400, (2100, 3, 1)),
        ] {
            assert_eq!(civil(seconds / 86_400), date);
        }
    }
}
