//! Inodes: the core, shortforms, access lists; and attributes set through the library.

use std::collections::BTreeMap;
use std::sync::Arc;

use uxfs::{NewInode, XattrMode};
use uxfs_format::attr::{self, AttrFlags};
use uxfs_format::dir::sf::{self, Shortform};
use uxfs_format::inode::{self, Fork, InodeCore};
use uxfs_format::{Ino, Naming, Uuid, acl::Acl, crc, dir};

use crate::Input;
use crate::base::{fresh, full, open};
use crate::exercise::examine;
use uxfs_disk::Overlay;

/// An inode: as it is, and with a correct identity.
pub fn inode(data: &[u8]) {
    let mut input = Input(data);
    let bases = full();
    let geo = &bases[usize::from(input.byte()) % bases.len()].geo;
    let mut raw = input.0.to_vec();
    let (ino, uuid) = (Ino(128), geo.meta_uuid);
    let _ = InodeCore::decode(&raw, ino, &uuid);
    raw.resize(geo.inode_size as usize, 0);
    raw[152..160].copy_from_slice(&ino.0.to_be_bytes());
    raw[160..176].copy_from_slice(&uuid.0);
    crc::stamp(&mut raw, inode::CRC_OFFSET);
    let _ = InodeCore::decode_unchecked(&raw, ino);
    let Ok(core) = InodeCore::decode(&raw, ino, &uuid) else { return };
    let literal = geo.literal_len();
    for fork in [Fork::Data, Fork::Attr] {
        let range = core.fork_range(fork, literal);
        assert!(range.end <= literal && range.start <= range.end);
        let _ = (core.fork_format(fork), core.fork_extents(fork), core.max_extents(fork));
    }
    if core.check(literal).is_ok() {
        again(&core, &raw, ino, &uuid);
    }
}

/// Checks that the rebuilt structure equals the parsed one.
fn again(core: &InodeCore, raw: &[u8], ino: Ino, uuid: &Uuid) {
    let mut copy = raw.to_vec();
    core.encode(&mut copy, ino, uuid);
    crc::stamp(&mut copy, inode::CRC_OFFSET);
    let back = InodeCore::decode(&copy, ino, uuid).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(back, *core);
}

/// How names compare.
const RULES: [Naming; 2] = [Naming::Exact, Naming::Lowered];

/// A directory in short form.
pub fn dir_short(data: &[u8]) {
    let Ok(form) = Shortform::parse(data) else { return };
    let entries: Vec<_> = form.entries().collect();
    assert_eq!(entries.len(), form.count());
    for entry in &entries {
        for naming in RULES {
            assert!(form.find(naming, entry.name).is_some());
        }
        assert!(dir::name_problem(entry.name).is_none());
    }
    let _ = RULES.map(|naming| form.find(naming, b"No such name").is_some());
    for block in [1024, 4096, 65536] {
        for len in [16, 24, 280] {
            let _ = form.room(len, block);
        }
    }
    let built = sf::build(form.parent(), form.entries());
    let back = Shortform::parse(&built).unwrap_or_else(|e| panic!("{e}"));
    let same = back
        .entries()
        .zip(&entries)
        .all(|(a, b)| (a.offset, a.name, a.ftype, a.ino) == (b.offset, b.name, b.ftype, b.ino));
    assert!(same && back.count() == form.count() && back.parent() == form.parent());
}

/// An attribute fork in short form.
pub fn attr_short(data: &[u8]) {
    let verified = attr::sf::verify(data);
    let entries: Vec<_> = attr::sf::entries(data).collect();
    for entry in &entries {
        let _ = RULES.map(|naming| attr::hash(naming, entry.flags, entry.name, entry.value));
    }
    if verified.is_err() {
        return;
    }
    assert_eq!(entries.len(), attr::sf::count(data));
    let mut fork = data.to_vec();
    fork.resize(data.len() + 300, 0);
    if attr::sf::countable(&fork) {
        attr::sf::push(&mut fork, AttrFlags::ROOT, b"name", b"value");
        attr::sf::verify(&fork).unwrap_or_else(|e| panic!("{e}"));
    }
    loop {
        let first = attr::sf::entries(&fork).next().map(|entry| (entry.at, entry.len()));
        let Some((at, len)) = first else { break };
        attr::sf::remove(&mut fork, at, len);
        attr::sf::verify(&fork).unwrap_or_else(|e| panic!("{e}"));
    }
}

/// An access list, as Linux and as XFS have it.
pub fn acl(data: &[u8]) {
    let lists = [Acl::from_linux(data).ok().flatten(), Acl::from_xfs(data).ok()];
    for mut acl in lists.into_iter().flatten() {
        let xfs = Acl::from_xfs(&acl.to_xfs()).unwrap_or_else(|e| panic!("{e}"));
        let linux = Acl::from_linux(&acl.to_linux()).unwrap_or_else(|e| panic!("{e}"));
        assert!(xfs == acl && linux.as_ref() == Some(&acl));
        let _ = acl.is_minimal();
        acl.set_permissions(0o750);
        assert!(acl.permissions() <= 0o777);
    }
}

/// Attributes set, read, removed: against a map.
pub fn xattr(data: &[u8]) {
    let mut input = Input(data);
    let bases = fresh();
    let base = &bases[usize::from(input.byte()) % bases.len()];
    let dev = Arc::new(Overlay::new(Arc::clone(&base.memory) as _, usize::MAX));
    let fs = open(dev.clone());
    let file = fs.create(fs.root(), b"file", &NewInode::file(0o600));
    let file = file.unwrap_or_else(|e| panic!("{e}"));
    let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    while !input.is_empty() {
        let [how, name_len, value_len] = input.take();
        let len = usize::from(name_len).min(input.0.len());
        let mut name =
            [&b"user."[..], b"trusted.", b"security.", b""][usize::from(how & 3)].to_vec();
        name.extend(&input.0[..len]);
        input.0 = &input.0[len..];
        if how & 4 != 0 {
            let gone = fs.remove_xattr(file, &name).is_ok();
            // Taking an access list away that is not there is no error.
            assert!(gone == model.remove(&name).is_some() || name.starts_with(b"system."));
            continue;
        }
        let value = vec![how; usize::from(value_len) << (how >> 4)];
        let mode = if how & 8 == 0 { XattrMode::Any } else { XattrMode::Create };
        if fs.set_xattr(file, &name, &value, mode).is_ok() && !name.starts_with(b"system.") {
            model.insert(name, value);
        }
    }
    for (name, value) in &model {
        let seen = fs.get_xattr(file, name).unwrap_or_else(|e| panic!("{e}"));
        assert!(seen == *value, "{}", name.escape_ascii());
    }
    fs.close().unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(examine(&*dev, 1), None);
}
