//! Partition tables and dynamic VHD images with correct checksums, and qcow2 images.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock};

use flate2::Crc;
use uxfs_disk::partition::Table;
use uxfs_disk::{BlockDev, Foreign, ForeignDev, MemDev, Qcow2Dev, is_qcow2, vhd_checksum};

use crate::Input;
use crate::streams::{directory, held};

/// Length of the disk that a table is on.
const DISK: u64 = 4 << 20;
/// Bytes of a partition table's header.
const HEADER: usize = 92;
/// Bytes of a qcow2 image that are read at a time, and how often.
const PIECE: usize = 70_000;
const PIECES: u64 = 24;
/// Bytes of a VHD image's footer and header.
const FOOTER: usize = 512;
const VHD_HEADER: usize = 1024;

fn crc32(bytes: &[u8]) -> [u8; 4] {
    let mut crc = Crc::new();
    crc.update(bytes);
    crc.sum().to_le_bytes()
}

/// A boot record, or one that announces a GPT, with header and entries behind it. The first byte
/// tells which, the size of sectors, and where the table lies.
pub fn partition(data: &[u8]) {
    let mut input = Input(data);
    let how = input.byte();
    let sector = if how & 1 == 0 { 512 } else { 4096 };
    let disk = MemDev::new(DISK + u64::from(how >> 4));
    let put = |at: u64, bytes: &[u8]| disk.write_at(at, bytes).unwrap_or_else(|e| panic!("{e}"));
    let mut record: [u8; 512] = input.take();
    record[510..].copy_from_slice(&[0x55, 0xaa]);
    if how & 2 == 0 {
        put(0, &record);
        // Extended partitions lead on to more of them.
        let mut more = 1;
        while !input.is_empty() {
            let mut record: [u8; 512] = input.take();
            record[510..].copy_from_slice(&[0x55, 0xaa]);
            put(more * 512, &record);
            more += 1;
        }
        return read(&disk);
    }
    record[446 + 4] = 0xee;
    put(0, &record);
    let backup = how & 4 != 0;
    let lba = if backup { disk.len() / sector - 1 } else { 1 };
    let mut header: [u8; HEADER] = input.take();
    header[..8].copy_from_slice(b"EFI PART");
    header[12..16].copy_from_slice(&(HEADER as u32).to_le_bytes());
    header[24..32].copy_from_slice(&lba.to_le_bytes());
    let start = if backup { lba - 4 } else { 2 };
    put(start * sector, input.0);
    if how & 8 == 0 {
        header[72..80].copy_from_slice(&start.to_le_bytes());
    }
    let number = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], 0]);
    let bytes = u64::from(number(80)) * u64::from(number(84));
    if let Ok(len @ ..=0x8_0000) = usize::try_from(bytes) {
        let mut entries = vec![0; len];
        if disk.read_at(start * sector, &mut entries).is_ok() {
            header[88..92].copy_from_slice(&crc32(&entries));
        }
    }
    header[16..20].fill(0);
    let sum = crc32(&header);
    header[16..20].copy_from_slice(&sum);
    put(lba * sector, &header);
    read(&disk);
}

fn read(disk: &MemDev) {
    let Ok(Some(table)) = Table::read(disk) else { return };
    for wanted in ["1", "root", "no such"] {
        if let Ok(partition) = table.find(wanted) {
            let _ = partition.to_string();
        }
    }
    assert!(table.partitions.iter().all(|partition| partition.number > 0));
}

/// A dynamic VHD image without its last footer, which is a copy of its first 512 bytes. Magic numbers and
/// checksums of footer and header are made right, so that fields behind them count.
pub fn vhd(data: &[u8]) {
    let mut raw = data.to_vec();
    raw.resize(raw.len().max(FOOTER + VHD_HEADER), 0);
    raw[..8].copy_from_slice(b"conectix");
    let place = u64::from_be_bytes(core::array::from_fn(|at| raw[16 + at]));
    let place = usize::try_from(place).unwrap_or(usize::MAX);
    let stop = place.saturating_add(VHD_HEADER);
    let stamp = |part: &mut [u8], at: usize| {
        let sum = vhd_checksum(part, at);
        part[at..at + 4].copy_from_slice(&sum.to_be_bytes());
    };
    stamp(&mut raw[..FOOTER], 64);
    // A header inside of the footer would change the footer's checksum.
    if place >= FOOTER && stop <= raw.len() {
        raw[place..place + 8].copy_from_slice(b"cxsparse");
        stamp(&mut raw[place..stop], 36);
    }
    raw.extend_from_within(..FOOTER);
    held(&raw, |path| {
        let file = File::open(path).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(Foreign::of(&file).unwrap_or_else(|e| panic!("{e}")), Some(Foreign::DynamicVhd));
        let Ok(image) = ForeignDev::open(&file, Foreign::DynamicVhd) else { return };
        through(&image, false);
        // The pieces of a read are those of the whole.
        let mut whole = vec![0xaa; image.len().min(PIECE as u64) as usize];
        if image.read_at(0, &mut whole).is_ok() {
            for (number, part) in whole.chunks(1000).enumerate() {
                let mut again = vec![0x55; part.len()];
                let read = image.read_at(1000 * number as u64, &mut again);
                read.unwrap_or_else(|e| panic!("{e}"));
                assert_eq!(again, part);
            }
        }
    });
}

/// A qcow2 image, read, written and read again. It may name only files in its directory: itself and an
/// empty file.
pub fn qcow2(data: &[u8]) {
    static FILE: OnceLock<Mutex<(File, PathBuf)>> = OnceLock::new();
    let file = FILE.get_or_init(|| {
        let path = directory().join("image");
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(true);
        let file = options.open(&path).unwrap_or_else(|e| panic!("{e}"));
        Mutex::new((file, path))
    });
    let file = file.lock().unwrap_or_else(|e| panic!("{e}"));
    let (file, path) = &*file;
    for write in [false, true] {
        let set = file.set_len(0).and_then(|()| file.write_all_at(data, 0));
        set.unwrap_or_else(|e| panic!("{e}"));
        if !is_qcow2(file).unwrap_or_else(|e| panic!("{e}")) {
            return;
        }
        let Ok(image) = Qcow2Dev::open(file, path, write) else { return };
        through(&image, write);
    }
}

fn through(image: &dyn BlockDev, write: bool) {
    let len = image.len();
    let piece = len.min(PIECE as u64) as usize;
    let mut buf = vec![0; piece];
    let step = ((len - piece as u64) / PIECES).max(1);
    for at in (0..=len - piece as u64).step_by(step as usize).take(PIECES as usize + 1) {
        let _ = image.read_at(at, &mut buf);
    }
    if write {
        for at in [0, len / 2, len - piece as u64] {
            if image.write_at(at.min(len - piece as u64), &buf).is_err() {
                return;
            }
        }
        let _ = image.zero(len / 3, (len / 3).min(1 << 20));
        let _ = image.flush();
        let _ = image.read_at(0, &mut buf);
    }
}
