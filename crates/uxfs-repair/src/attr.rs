//! What is left of an inode's extended attributes.
//!
//! 1. Every leaf block of the fork is read by itself, whatever became of the tree above it.
//! 2. An attribute counts if its name, its flags and all of its value are sound.
//! 3. A remote value belongs to the first attribute that names it: no value is read into memory twice.

use rustc_hash::FxHashSet;
use uxfs_format::acl::{self, Acl};
use uxfs_format::attr::leaf::{self, Value};
use uxfs_format::attr::remote::{self, RemoteHeader};
use uxfs_format::attr::{AttrFlags, MAX_VALUE, hash, sf};
use uxfs_format::bytes::Field;
use uxfs_format::inode::{CORE_LEN, CRC_OFFSET, Flags2, Fork, ForkFormat, InodeCore};
use uxfs_format::verify::{self, BufKind, Owner};
use uxfs_format::{Ino, crc};

use crate::error::Result;
use crate::fork::ForkMap;
use crate::volume::{StepId, Volume};

/// An extended attribute.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Attr {
    /// Its namespace.
    pub(crate) namespace: AttrFlags,
    /// Its name, without a prefix.
    pub(crate) name: Vec<u8>,
    /// Its value.
    pub(crate) value: Vec<u8>,
}

/// Reads the attributes of an inode. The list holds no name twice.
pub(crate) fn read(
    volume: &Volume,
    ino: Ino,
    core: &InodeCore,
    raw: &[u8],
    map: &ForkMap,
) -> Result<Vec<Attr>> {
    let mut found = Vec::new();
    let mut values = FxHashSet::default();
    let range = core.fork_range(Fork::Attr, raw.len() - CORE_LEN);
    let fork = &raw[CORE_LEN..][range];
    if core.has_attr_fork() && core.aformat == ForkFormat::Local {
        let entries = sf::entries(fork).map(|entry| Attr {
            namespace: entry.flags,
            name: entry.name.to_vec(),
            value: entry.value.to_vec(),
        });
        found.extend(entries.filter(|attr| !attr.namespace.contains(AttrFlags::LOCAL)));
    }
    for extent in &map.extents {
        for number in 0..extent.len {
            let bytes = volume.blocks(extent.start.plus(number), 1)?;
            let (kind, fsb) = (BufKind::AttrLeaf, extent.start.plus(number));
            let daddr = volume.geo.fsb_daddr(fsb);
            let sound = verify::checksum_matches(&bytes, kind)
                && verify::check(&bytes, kind, daddr, &volume.geo).is_ok()
                && verify::check_owner(&bytes, kind, daddr, Owner::Inode(ino)).is_ok();
            if sound {
                leaf_block(volume, ino, &bytes, map, &mut values, &mut found)?;
            }
        }
    }
    let mut seen = FxHashSet::default();
    found.retain(|attr| {
        let parent = attr.namespace.contains(AttrFlags::PARENT);
        let value = if parent { attr.value.clone() } else { Vec::new() };
        is_possible(attr) && seen.insert((attr.namespace.bits(), attr.name.clone(), value))
    });
    Ok(found)
}

fn is_possible(attr: &Attr) -> bool {
    let list =
        attr.namespace == AttrFlags::ROOT && (attr.name == acl::FILE || attr.name == acl::DEFAULT);
    !attr.name.is_empty()
        && !attr.name.contains(&0)
        && attr.namespace == attr.namespace.namespace()
        && attr.namespace.bits().count_ones() <= 1
        && (!list || Acl::from_xfs(&attr.value).is_ok())
}

fn leaf_block(
    volume: &Volume,
    ino: Ino,
    bytes: &[u8],
    map: &ForkMap,
    values: &mut FxHashSet<u32>,
    found: &mut Vec<Attr>,
) -> Result<()> {
    for record in leaf::records(bytes) {
        if record.entry.flags.contains(AttrFlags::INCOMPLETE) {
            continue;
        }
        let value = match record.value {
            Value::Local(value) => Some(value.to_vec()),
            Value::Remote { block, .. } if values.contains(&block) => None,
            Value::Remote { block, len } => remote_value(volume, ino, map, block, len as usize)?,
        };
        let local = if let Value::Local(value) = record.value { value } else { b"" };
        let named =
            hash(volume.geo.naming, record.entry.flags, record.name, local) == record.entry.hash;
        if let Some(value) = value.filter(|_| named) {
            if let Value::Remote { block, .. } = record.value {
                values.insert(block);
            }
            let namespace = record.entry.flags.namespace();
            found.push(Attr { namespace, name: record.name.to_vec(), value });
        }
    }
    Ok(())
}

fn remote_value(
    volume: &Volume,
    ino: Ino,
    map: &ForkMap,
    block: u32,
    len: usize,
) -> Result<Option<Vec<u8>>> {
    let mut value = Vec::new();
    if len == 0 || len > MAX_VALUE {
        return Ok(None);
    }
    for number in 0..remote::blocks(len, volume.geo.block_size as usize) {
        let Some(fsb) = map.get(u64::from(block) + number) else { return Ok(None) };
        let (bytes, daddr) = (volume.blocks(fsb, 1)?, volume.geo.fsb_daddr(fsb));
        let kind = BufKind::AttrRemote;
        let sound = verify::checksum_matches(&bytes, kind)
            && verify::check(&bytes, kind, daddr, &volume.geo).is_ok()
            && verify::check_owner(&bytes, kind, daddr, Owner::Inode(ino)).is_ok();
        let header = RemoteHeader::view(&bytes);
        let wanted = (len - value.len()).min(remote::payload(bytes.len()));
        let at = header.offset.get() as usize == value.len();
        if !sound || !at || header.bytes.get() as usize != wanted {
            return Ok(None);
        }
        value.extend_from_slice(&bytes[remote::HEADER_LEN..][..wanted]);
    }
    Ok(Some(value))
}

/// Takes all attributes from an inode. They are set again by the engine.
pub(crate) fn reset(volume: &mut Volume, step: StepId, ino: Ino, data_blocks: u64) -> Result<()> {
    let mut raw = volume.inode(ino)?;
    let offset = usize::from(raw[82]) * 8;
    if offset != 0 && CORE_LEN + offset < raw.len() {
        raw[CORE_LEN + offset..].fill(0);
    }
    // The root of an extent tree has its pointers behind as many keys as its fork has room for.
    let tree = raw[5] == ForkFormat::Btree as u8;
    if tree {
        raw[83] = ForkFormat::Local as u8;
        sf::clear(&mut raw[CORE_LEN + offset..]);
    } else {
        raw[82] = 0;
        raw[83] = ForkFormat::Extents as u8;
    }
    match Field::<u64>::at(120).get(&raw) & Flags2::NREXT64.bits() {
        0 => Field::<u16>::at(80).set(&mut raw, 0),
        _ => Field::<u32>::at(76).set(&mut raw, 0),
    }
    Field::<u64>::at(64).set(&mut raw, data_blocks);
    crc::stamp(&mut raw, CRC_OFFSET);
    volume.write(step, volume.inode_at(ino), &raw)
}
