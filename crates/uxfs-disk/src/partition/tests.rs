//! These tests build their own tables, so that every field can be wrong. The command's tests read
//! tables that real tools wrote.

use super::*;
use crate::MemDev;

const MIB: u64 = 1 << 20;

fn put(disk: &dyn BlockDev, at: u64, bytes: &[u8]) {
    disk.write_at(at, bytes).unwrap();
}

/// Writes a boot record with these entries: type, first sector, number of sectors.
fn boot_record(disk: &dyn BlockDev, at: u64, entries: &[(u8, u32, u32)]) {
    let mut sector = [0; 512];
    sector[440..444].copy_from_slice(&0x1234_abcd_u32.to_le_bytes());
    for (slot, (kind, start, sectors)) in entries.iter().enumerate() {
        let entry = &mut sector[446 + slot * 16..][..16];
        entry[4] = *kind;
        entry[8..12].copy_from_slice(&start.to_le_bytes());
        entry[12..16].copy_from_slice(&sectors.to_le_bytes());
    }
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    put(disk, at, &sector);
}

struct Gpt {
    sector: u64,
    entry_len: u32,
    count: u32,
    entries_lba: u64,
    header_len: u32,
}

impl Gpt {
    fn new(sector: u64) -> Self {
        Self { sector, entry_len: 128, count: 128, entries_lba: 2, header_len: 92 }
    }

    /// Writes header and entries: label, first and last sector.
    fn write(&self, disk: &dyn BlockDev, lba: u64, parts: &[(&str, u64, u64)]) {
        boot_record(disk, 0, &[(0xee, 1, u32::MAX)]);
        let entry_len = self.entry_len as usize;
        let mut entries = vec![0; entry_len.min(4096) * self.count.min(4096) as usize];
        for (slot, (label, first, last)) in parts.iter().enumerate() {
            let entry = &mut entries[slot * entry_len..][..128];
            entry[..16].fill(0xaf);
            entry[16..32].copy_from_slice(&core::array::from_fn::<u8, 16, _>(|at| at as u8));
            entry[31] = slot as u8;
            entry[32..40].copy_from_slice(&first.to_le_bytes());
            entry[40..48].copy_from_slice(&last.to_le_bytes());
            for (at, unit) in label.encode_utf16().enumerate() {
                entry[56 + 2 * at..][..2].copy_from_slice(&unit.to_le_bytes());
            }
        }
        let mut header = vec![0; self.sector as usize];
        header[..8].copy_from_slice(b"EFI PART");
        header[8..12].copy_from_slice(&[0, 0, 1, 0]);
        header[12..16].copy_from_slice(&self.header_len.to_le_bytes());
        header[24..32].copy_from_slice(&lba.to_le_bytes());
        header[72..80].copy_from_slice(&self.entries_lba.to_le_bytes());
        header[80..84].copy_from_slice(&self.count.to_le_bytes());
        header[84..88].copy_from_slice(&self.entry_len.to_le_bytes());
        header[88..92].copy_from_slice(&crc32fast::hash(&entries).to_le_bytes());
        let summed = (self.header_len as usize).min(header.len());
        let sum = crc32fast::hash(&header[..summed]);
        header[16..20].copy_from_slice(&sum.to_le_bytes());
        put(disk, lba * self.sector, &header);
        let at = self.entries_lba.saturating_mul(self.sector);
        if at.saturating_add(entries.len() as u64) <= disk.len() {
            put(disk, at, &entries);
        }
    }
}

fn read(disk: &MemDev) -> Table {
    Table::read(disk).unwrap().expect("there is a table")
}

#[test]
fn gpt_is_read_with_both_sector_sizes() {
    for sector in [512, 4096] {
        let disk = MemDev::new(64 * MIB);
        let gpt = Gpt::new(sector);
        gpt.write(&disk, 1, &[("boot", 40, 99), ("", 0, 0), ("Größe 😀", 100, 199)]);
        let table = read(&disk);
        assert_eq!(table.kind, TableKind::Gpt);
        let [boot, empty, data] = &table.partitions[..] else { panic!("{table:?}") };
        assert_eq!((boot.number, boot.start, boot.len), (1, 40 * sector, 60 * sector));
        assert_eq!(boot.label, "boot");
        assert_eq!(boot.uuid, "03020100-0504-0706-0809-0a0b0c0d0e00");
        assert_eq!((empty.number, empty.label.as_str()), (2, ""));
        assert_eq!((data.number, data.label.as_str()), (3, "Größe 😀"));
        assert_eq!(table.find("Größe 😀").unwrap(), data);
        assert_eq!(table.find("3").unwrap(), data);
        assert_eq!(table.find(&boot.uuid.to_uppercase()).unwrap(), boot);
        let missing = table.find("nothing").unwrap_err().to_string();
        assert!(missing.contains("3 'Größe 😀'") && missing.contains("GPT"), "{missing}");
        assert!(table.find("").is_err());
    }
}

#[test]
fn an_ambiguous_label_is_refused() {
    let disk = MemDev::new(MIB);
    Gpt::new(512).write(&disk, 1, &[("same", 40, 99), ("same", 100, 199), ("1", 200, 300)]);
    let table = read(&disk);
    assert!(table.find("same").unwrap_err().to_string().contains("several"));
    assert_eq!(table.find("1").unwrap().number, 1, "a number comes before a label");
}

#[test]
fn the_backup_is_used_when_the_first_copy_is_damaged() {
    let disk = MemDev::new(MIB);
    let backup = Gpt { entries_lba: 2000, ..Gpt::new(512) };
    backup.write(&disk, 2047, &[("saved", 40, 99)]);
    Gpt::new(512).write(&disk, 1, &[("lost", 40, 99)]);
    assert_eq!(read(&disk).partitions[0].label, "lost");
    put(&disk, 2 * 512, b"x");
    assert_eq!(read(&disk).partitions[0].label, "saved");
    put(&disk, 2000 * 512, b"x");
    let error = Table::read(&disk).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    assert!(error.to_string().contains("checksum"), "{error}");
}

#[test]
fn hostile_gpt_headers_are_refused() {
    let gpts = [
        Gpt { entry_len: 0, ..Gpt::new(512) },
        Gpt { entry_len: 64, ..Gpt::new(512) },
        Gpt { entry_len: 129, ..Gpt::new(512) },
        Gpt { entry_len: 1 << 31, count: u32::MAX, ..Gpt::new(512) },
        Gpt { count: u32::MAX, ..Gpt::new(512) },
        Gpt { entries_lba: u64::MAX, ..Gpt::new(512) },
        Gpt { entries_lba: 2040, ..Gpt::new(512) },
        Gpt { header_len: 0, ..Gpt::new(512) },
        Gpt { header_len: u32::MAX, ..Gpt::new(512) },
    ];
    for gpt in gpts {
        let disk = MemDev::new(MIB);
        gpt.write(&disk, 1, &[]);
        let error = Table::read(&disk).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
    }
}

#[test]
fn partitions_beyond_the_disk_are_listed_and_refused() {
    let disk = Arc::new(MemDev::new(MIB));
    let parts = [("far", 40, 99_999), ("back", 99, 40), ("over", 1 << 62, u64::MAX)];
    Gpt::new(512).write(&*disk, 1, &parts);
    let table = read(&disk);
    assert_eq!(table.partitions.len(), 1);
    let error = table.partitions[0].open(disk).err().unwrap().to_string();
    assert!(error.contains("partition 1") && error.contains("not all on the device"), "{error}");
}

#[test]
fn mbr_with_logical_partitions_is_read() {
    let disk = MemDev::new(64 * MIB);
    let data = (0x83, 2048, 2048);
    boot_record(&disk, 0, &[data, (0x0f, 10_000, 50_000), (0, 0, 0), (0x07, 70_000, 100)]);
    boot_record(&disk, 10_000 * 512, &[(0x83, 63, 1000), (0x05, 5000, 4000)]);
    boot_record(&disk, 15_000 * 512, &[(0x83, 2048, 500)]);
    let table = read(&disk);
    let found: Vec<_> =
        table.partitions.iter().map(|p| (p.number, p.start / 512, p.len / 512)).collect();
    assert_eq!(found, [(1, 2048, 2048), (4, 70_000, 100), (5, 10_063, 1000), (6, 17_048, 500)]);
    assert_eq!(table.kind, TableKind::Mbr);
    assert_eq!(table.find("1234abcd-05").unwrap().number, 5);
    assert!(table.find("3").is_err());
}

#[test]
fn hostile_chains_of_logical_partitions_end() {
    let disk = MemDev::new(64 * MIB);
    for link in [0, 5000, u32::MAX] {
        boot_record(&disk, 0, &[(0x05, 10_000, 50_000)]);
        boot_record(&disk, 10_000 * 512, &[(0x83, 63, 1000), (0x05, link, 4000)]);
        boot_record(&disk, 15_000 * 512, &[(0x83, 63, 1000), (0x05, 0, 4000)]);
        let error = Table::read(&disk).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{link}: {error}");
    }
    boot_record(&disk, 0, &[(0x05, u32::MAX, 50_000)]);
    assert!(Table::read(&disk).is_err());
}

#[test]
fn a_disk_without_a_table_has_none() {
    let disk = MemDev::new(MIB);
    assert!(Table::read(&disk).unwrap().is_none());
    assert!(Table::read(&MemDev::new(100)).unwrap().is_none());
    // A FAT boot sector ends like an MBR, but has code at the offset of the entries.
    let mut sector = [0x41; 512];
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    put(&disk, 0, &sector);
    assert!(Table::read(&disk).unwrap().is_none());
    boot_record(&disk, 0, &[]);
    assert!(Table::read(&disk).unwrap().is_none());
}

/// Any single damaged byte: no panic, and no partition that opens beyond the disk.
#[test]
fn any_damaged_byte_is_harmless() {
    let disk = Arc::new(MemDev::new(MIB));
    Gpt::new(512).write(&*disk, 1, &[("one", 40, 99)]);
    for at in (440..2048).step_by(1) {
        let mut old = [0];
        disk.read_at(at, &mut old).unwrap();
        for new in [0, 0xff, old[0] ^ 1] {
            put(&*disk, at, &[new]);
            for partition in Table::read(&*disk).ok().flatten().iter().flat_map(|t| &t.partitions) {
                let _ = partition.open(disk.clone());
            }
        }
        put(&*disk, at, &old);
    }
}
