//! Recognises the content of a device, so that it is not overwritten by mistake.
//!
//! A signature is a few bytes at a known offset. This module only reads; the caller decides what to
//! do.

use std::io;

use uxfs_disk::BlockDev;
use uxfs_format::bytes::{be64, le32, le64};
use uxfs_format::log::RecordHeader;

/// Bytes that identify a content: its name, their offset and value.
struct Signature {
    name: &'static str,
    offset: u64,
    magic: &'static [u8],
}

const fn signature(name: &'static str, offset: u64, magic: &'static [u8]) -> Signature {
    Signature { name, offset, magic }
}

/// Signatures at the head of a device, in order of priority. Containers and partition tables come
/// before file systems, whose signatures may be visible inside them.
const HEAD: &[Signature] = &[
    signature("crypto_LUKS", 0, b"LUKS\xba\xbe"),
    signature("LVM2_member", 512 + 24, b"LVM2 001"),
    signature("LVM2_member", 24, b"LVM2 001"),
    signature("LVM2_member", 1024 + 24, b"LVM2 001"),
    signature("LVM2_member", 1536 + 24, b"LVM2 001"),
    signature(
        "bcache",
        4096 + 24,
        b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81",
    ),
    signature("linux_raid_member", 0, b"\xfc\x4e\x2b\xa9"),
    signature("linux_raid_member", 4096, b"\xfc\x4e\x2b\xa9"),
    signature("xfs", 0, b"XFSB"),
    signature("btrfs", 65536 + 64, b"_BHRfS_M"),
    signature(
        "bcachefs",
        4096 + 24,
        b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef",
    ),
    signature("f2fs", 1024, b"\x10\x20\xf5\xf2"),
    signature("erofs", 1024, b"\xe2\xe1\xf5\xe0"),
    signature("nilfs2", 1024 + 6, b"\x34\x34"),
    signature("squashfs", 0, b"hsqs"),
    signature("cramfs", 0, b"\x45\x3d\xcd\x28"),
    signature("reiserfs", 65536 + 52, b"ReIsEr"),
    signature("jfs", 32768, b"JFS1"),
    signature("gfs2", 65536, b"\x01\x16\x19\x70\x00\x00\x00\x01"),
    signature("ocfs2", 2048, b"OCFSV2"),
    signature("ocfs2", 4096, b"OCFSV2"),
    signature("udf", 32768 + 1, b"BEA01"),
    signature("iso9660", 32768 + 1, b"CD001"),
    signature("apfs", 32, b"NXSB"),
    signature("hfsplus", 1024, b"H+"),
    signature("hfsplus", 1024, b"HX"),
    signature("minix", 1024 + 16, b"\x7f\x13"),
    signature("minix", 1024 + 16, b"\x8f\x13"),
    signature("minix", 1024 + 16, b"\x68\x24"),
    signature("minix", 1024 + 16, b"\x78\x24"),
    signature("minix", 1024 + 24, b"\x5a\x4d"),
    signature("exfat", 3, b"EXFAT   "),
    signature("ntfs", 3, b"NTFS    "),
    signature("vfat", 0x52, b"FAT32   "),
    signature("vfat", 0x36, b"FAT16   "),
    signature("vfat", 0x36, b"FAT12   "),
    signature("BitLocker", 3, b"-FVE-FS-"),
    signature("gpt", 512, b"EFI PART"),
    signature("gpt", 4096, b"EFI PART"),
];

/// Page sizes; swap space has its signature at the end of the first page.
const SWAP_PAGES: [u64; 5] = [4096, 8192, 16384, 32768, 65536];

/// Bytes read at the head of the device; the last signature lies behind 64 KiB.
const HEAD_LEN: u64 = 69632;

/// The name of the file system, partition table or other content at the start of the device;
/// `None` if none is recognised. The names are those of `blkid`.
///
/// # Errors
/// If the device cannot be read.
pub fn existing(dev: &dyn BlockDev) -> io::Result<Option<&'static str>> {
    let mut head = vec![0; dev.len().min(HEAD_LEN) as usize];
    dev.read_at(0, &mut head)?;
    for known in HEAD {
        if has(&head, known.offset, known.magic) {
            return Ok(Some(known.name));
        }
    }
    if let Some(name) = ext(&head) {
        return Ok(Some(name));
    }
    for page in SWAP_PAGES {
        if has(&head, page - 10, b"SWAPSPACE2") || has(&head, page - 10, b"SWAP-SPACE") {
            return Ok(Some("swap"));
        }
    }
    if let Some(name) = at_end(dev)? {
        return Ok(Some(name));
    }
    if is_log(dev)? {
        return Ok(Some("xfs_external_log"));
    }
    Ok(is_dos(&head).then_some("dos"))
}

/// Description of a device's content, for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    /// The kind of content, with an article.
    pub words: &'static str,
    /// How to reach a volume in the content, if known.
    pub advice: Option<&'static str>,
}

/// Files that are no file systems, by their first bytes.
const FILES: &[(u64, &[u8], &str, Option<&str>)] = &[
    (0, b"QFI\xfb", "a qcow2 image inside the image", Some("take it out first")),
    (0, b"KDMV", "a VMDK image", TO_RAW),
    (0, b"# Disk DescriptorFile", "a VMDK image", TO_RAW),
    (0, b"vhdxfile", "a VHDX image", TO_RAW),
    (0, b"conectix", "a VHD image", TO_RAW),
    (64, b"\x7f\x10\xda\xbe", "a VDI image", TO_RAW),
    (0, b"QED\0", "a QED image", TO_RAW),
    (0, b"\x1f\x8b", "gzip-compressed data", Some("unpack it first (gzip -dc FILE > NEW)")),
    (0, b"\xfd7zXZ\0", "xz-compressed data", Some("unpack it first (xz -dc FILE > NEW)")),
    (0, b"\x28\xb5\x2f\xfd", "zstd-compressed data", Some("unpack it first (zstd -dc FILE > NEW)")),
    (0, b"BZh", "bzip2-compressed data", Some("unpack it first (bzip2 -dc FILE > NEW)")),
    (0, b"\x04\x22\x4d\x18", "lz4-compressed data", Some("unpack it first (lz4 -dc FILE > NEW)")),
    (0, b"PK\x03\x04", "a zip archive", Some("unpack it first (unzip)")),
    (0, b"PK\x05\x06", "an empty zip archive", None),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive", Some("unpack it first (7z x)")),
    (257, b"ustar", "a tar archive", Some("uxfs import makes an image of it")),
    (0, b"xfs_dump", "an xfsdump", Some("xfsrestore reads it into a mounted volume")),
    (0, b"XFSM", "a metadump", Some("uxfs mdrestore makes an image of it")),
    (0, b"XMD2", "a metadump", Some("uxfs mdrestore makes an image of it")),
    (0, b"\x7fELF", "a program (ELF)", None),
    (0, b"%PDF", "a PDF document", None),
];

const TO_RAW: Option<&str> = Some("convert it first (qemu-img convert -O raw FILE NEW)");

/// The content of a device that holds no XFS; `None` if it is not recognised.
///
/// # Errors
/// If the device cannot be read.
pub fn content(dev: &dyn BlockDev) -> io::Result<Option<Content>> {
    match existing(dev)? {
        Some("xfs") => return Ok(None),
        Some(name) => return Ok(Some(in_words(name))),
        None => {}
    }
    let mut head = vec![0; dev.len().min(512) as usize];
    dev.read_at(0, &mut head)?;
    let found = FILES.iter().find(|(offset, magic, ..)| has(&head, *offset, magic));
    Ok(found.map(|(_, _, words, advice)| Content { words, advice: *advice }))
}

/// Describes a name that [`existing`] returned.
fn in_words(name: &'static str) -> Content {
    let plain = |words| Content { words, advice: None };
    let with = |words, advice| Content { words, advice: Some(advice) };
    let parts = "give --partition N, or --offset BYTES";
    let mount = "uxfs supports only XFS; the kernel can mount it";
    match name {
        "crypto_LUKS" => {
            with("a LUKS-encrypted volume", "open it first (cryptsetup open), then use the device")
        }
        "BitLocker" => with("a BitLocker-encrypted volume", "open it first (cryptsetup bitlkOpen)"),
        "LVM2_member" => with(
            "an LVM physical volume",
            "activate its group first (vgchange -ay), then use the logical volume's device",
        ),
        "linux_raid_member" => {
            with("a part of a RAID", "assemble it first (mdadm --assemble), then use the device")
        }
        "gpt" => with("a disk with a partition table (GPT)", parts),
        "dos" => with("a disk with a partition table (MBR)", parts),
        "swap" => plain("swap space"),
        "bcache" => with("a bcache device", "register it first, then use /dev/bcacheN"),
        "zfs_member" => plain("a part of a ZFS pool"),
        "jbd" => plain("an external journal of ext4"),
        "xfs_external_log" => with(
            "the log of an XFS volume",
            "name the device of the data, and this one as --logdev",
        ),
        "ext2" => with("an ext2 file system", mount),
        "ext3" => with("an ext3 file system", mount),
        "ext4" => with("an ext4 file system", mount),
        "btrfs" => with("a btrfs file system", mount),
        "bcachefs" => with("a bcachefs file system", mount),
        "f2fs" => with("an F2FS file system", mount),
        "erofs" => with("an EROFS file system", mount),
        "squashfs" => {
            with("a squashfs file system", "unpack it first (unsquashfs), then uxfs import")
        }
        "iso9660" => with("an ISO 9660 file system (a CD image)", mount),
        "udf" => with("a UDF file system (a DVD image)", mount),
        "vfat" => with("a FAT file system", mount),
        "exfat" => with("an exFAT file system", mount),
        "ntfs" => with("an NTFS file system", mount),
        other => plain(other),
    }
}

fn has(head: &[u8], offset: u64, magic: &[u8]) -> bool {
    let from = offset as usize;
    head.get(from..from + magic.len()).is_some_and(|bytes| bytes == magic)
}

/// Distinguishes ext2, ext3 and ext4 by their features.
fn ext(head: &[u8]) -> Option<&'static str> {
    const SUPERBLOCK: usize = 1024;
    const HAS_JOURNAL: u32 = 0x4;
    /// Incompatible features of ext3: file types, recovery, meta block groups.
    const EXT3: u32 = 0x2 | 0x4 | 0x10;
    const JOURNAL_DEVICE: u32 = 0x8;
    /// Read-only-compatible features of ext3: sparse superblocks, large files, btree directories.
    const EXT3_READ: u32 = 0x7;
    if !has(head, SUPERBLOCK as u64 + 56, b"\x53\xef") {
        return None;
    }
    let compat = le32(head, SUPERBLOCK + 92);
    let incompat = le32(head, SUPERBLOCK + 96);
    let ro_compat = le32(head, SUPERBLOCK + 100);
    Some(if incompat & JOURNAL_DEVICE != 0 {
        "jbd"
    } else if incompat & !EXT3 != 0 || ro_compat & !EXT3_READ != 0 {
        "ext4"
    } else if compat & HAS_JOURNAL != 0 {
        "ext3"
    } else {
        "ext2"
    })
}

/// Signatures at the end of the device: old RAID metadata, ZFS' second labels.
fn at_end(dev: &dyn BlockDev) -> io::Result<Option<&'static str>> {
    const RAID: [u8; 4] = [0xfc, 0x4e, 0x2b, 0xa9];
    const MIN: u64 = 256 << 10;
    let len = dev.len();
    if len < MIN {
        return Ok(None);
    }
    // Version 0.90 starts 64 KiB before the last multiple of 64 KiB; version 1.0 at least 8 KiB
    // before the end.
    let old = (len & !0xffff) - 0x10000;
    let one = (len - 8192) & !4095;
    for at in [old, one] {
        let mut magic = [0; 4];
        dev.read_at(at, &mut magic)?;
        // Version 0.90 is in the byte order of its host.
        if magic == RAID || magic == [0xa9, 0x2b, 0x4e, 0xfc] {
            return Ok(Some("linux_raid_member"));
        }
    }
    zfs(dev)
}

/// ZFS has a ring of uberblocks in the second half of its first label.
fn zfs(dev: &dyn BlockDev) -> io::Result<Option<&'static str>> {
    const RING: u64 = 128 << 10;
    const MAGIC: u64 = 0x00ba_b10c;
    let mut ring = vec![0; RING as usize];
    dev.read_at(RING, &mut ring)?;
    // Uberblocks are in the byte order of their host.
    let uberblock = |block: &[u8]| le64(block, 0) == MAGIC || be64(block, 0) == MAGIC;
    let found = ring.chunks_exact(1024).any(uberblock);
    Ok(found.then_some("zfs_member"))
}

/// Is there a record of an XFS log in the first 256 KiB? An external log begins with one, or with the end of one
/// that began before the end of the device.
fn is_log(dev: &dyn BlockDev) -> io::Result<bool> {
    let mut head = vec![0; dev.len().min(256 << 10) as usize];
    dev.read_at(0, &mut head)?;
    let (sectors, _) = head.as_chunks();
    Ok(sectors.iter().any(|sector| RecordHeader::parse(sector).is_some()))
}

/// Is there a DOS partition table, or only the mark of a boot sector?
fn is_dos(head: &[u8]) -> bool {
    let Some(table) = head.get(446..510) else { return false };
    let entries = || table.chunks_exact(16);
    has(head, 510, b"\x55\xaa")
        && entries().all(|entry| entry[0] & 0x7f == 0)
        && entries().any(|entry| entry[4] != 0 && le32(entry, 12) != 0)
}

#[cfg(test)]
mod tests {
    use uxfs_disk::MemDev;

    use super::*;

    fn with(writes: &[(u64, &[u8])]) -> Option<&'static str> {
        let dev = MemDev::new(1 << 20);
        for (offset, bytes) in writes {
            dev.write_at(*offset, bytes).unwrap();
        }
        existing(&dev).unwrap()
    }

    #[test]
    fn every_known_signature_is_found_and_an_empty_device_has_none() {
        assert_eq!(with(&[]), None);
        for known in HEAD {
            assert_eq!(with(&[(known.offset, known.magic)]), Some(known.name));
        }
    }

    #[test]
    fn contents_have_descriptions() {
        let of = |offset: u64, bytes: &[u8]| {
            let dev = MemDev::new(1 << 20);
            dev.write_at(offset, bytes).unwrap();
            content(&dev).unwrap().map(|content| content.words)
        };
        assert_eq!(of(0, b""), None);
        for (offset, magic, words, _) in FILES {
            assert_eq!(of(*offset, magic), Some(*words));
        }
        for known in HEAD {
            let found = of(known.offset, known.magic);
            assert_eq!(found.is_some(), known.name != "xfs", "{}", known.name);
        }
        assert_eq!(of(4086, b"SWAPSPACE2"), Some("swap space"));
        assert_eq!(of(0, b"LUKS\xba\xbe"), Some("a LUKS-encrypted volume"));
    }

    #[test]
    fn swap_raid_and_zfs_are_found_at_their_offsets() {
        assert_eq!(with(&[(4086, b"SWAPSPACE2")]), Some("swap"));
        assert_eq!(with(&[((1 << 20) - 0x10000, b"\xfc\x4e\x2b\xa9")]), Some("linux_raid_member"));
        assert_eq!(with(&[((1 << 20) - 8192, b"\xfc\x4e\x2b\xa9")]), Some("linux_raid_member"));
        assert_eq!(with(&[(132 << 10, b"\x0c\xb1\xba\0\0\0\0\0")]), Some("zfs_member"));
    }

    #[test]
    fn a_boot_mark_alone_is_no_partition_table() {
        assert_eq!(with(&[(510, b"\x55\xaa")]), None);
        let entry = b"\x80\0\0\0\x83\0\0\0\0\x08\0\0\0\x10\0\0";
        assert_eq!(with(&[(446, entry), (510, b"\x55\xaa")]), Some("dos"));
    }

    #[test]
    fn short_devices_are_read_without_an_error() {
        for len in [0, 1, 511, 512, 4096, 100_000] {
            assert_eq!(existing(&MemDev::new(len)).unwrap(), None);
        }
    }
}
