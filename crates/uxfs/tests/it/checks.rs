//! A damaged structure is reported with the kind of the check that failed.

use uxfs::Error;
use uxfs_format::verify::{self, BufKind};
use uxfs_format::{Check, Corrupt, Daddr, btree::TreeKind};

use crate::volume::Volume;

/// A structure of a volume: its kind, address and bytes.
struct Subject {
    kind: BufKind,
    daddr: Daddr,
    bytes: Vec<u8>,
}

fn subjects(volume: &Volume) -> Vec<Subject> {
    let image = std::fs::read(&volume.path).unwrap();
    let at = |kind, daddr: u64, len: usize| {
        let from = daddr as usize * 512;
        Subject { kind, daddr: Daddr(daddr), bytes: image[from..from + len].to_vec() }
    };
    let root = |field: usize| {
        let agf = &image[512..1024];
        u64::from(u32::from_be_bytes(agf[field..field + 4].try_into().unwrap())) * 8
    };
    vec![
        at(BufKind::Agf, 1, 512),
        at(BufKind::Agi, 2, 512),
        at(BufKind::Agfl, 3, 512),
        at(BufKind::Btree(TreeKind::Bno), root(16), 4096),
        at(BufKind::Btree(TreeKind::Cnt), root(20), 4096),
    ]
}

#[test]
fn damage_names_the_check_that_finds_it() {
    let volume = Volume::small(64, "");
    let geo = volume.open_read_only().geo.clone();
    let all = subjects(&volume);
    let found = |subject: &Subject, at: usize| -> Option<Corrupt> {
        let mut bytes = subject.bytes.clone();
        bytes[at] ^= 0x40;
        let corrupt = verify::check(&bytes, subject.kind, subject.daddr, &geo).err();
        assert!(!verify::checksum_matches(&bytes, subject.kind), "{:?} at {at}", subject.kind);
        corrupt
    };
    for subject in &all {
        let layout = subject.kind.layout().unwrap();
        assert!(verify::checksum_matches(&subject.bytes, subject.kind));
        verify::check(&subject.bytes, subject.kind, subject.daddr, &geo).unwrap();
        let fields = [(Some(0), Check::Magic), (Some(layout.uuid), Check::Uuid)];
        for (at, check) in fields.into_iter().chain([(layout.blkno, Check::Address)]) {
            let Some(at) = at else { continue };
            let corrupt = found(subject, at).unwrap();
            assert_eq!(corrupt.check, check, "{corrupt}");
            assert_eq!(corrupt.structure, subject.kind.name());
        }
    }
    for (at, check) in
        [(7, Check::Version), (15, Check::Geometry), (43, Check::FreeList), (52, Check::Counter)]
    {
        let corrupt = found(&all[0], at).unwrap();
        assert_eq!(corrupt.check, check, "byte {at}: {corrupt}");
    }
}

/// The check reaches the caller of the library through its error.
#[test]
fn a_wrong_checksum_is_an_error_with_its_check() {
    let volume = Volume::small(64, "");
    let mut image = std::fs::read(&volume.path).unwrap();
    image[1024 + 100] ^= 1;
    std::fs::write(&volume.path, image).unwrap();
    let fs = volume.open_at(0, 1 << 20);
    let new = uxfs::NewInode::file(0o644);
    match fs.create(fs.root(), b"name", &new).unwrap_err() {
        Error::Corrupt(corrupt) => assert_eq!(corrupt.check, Check::Checksum, "{corrupt}"),
        other => panic!("{other}"),
    }
}
