//! A manifest: the deltas that make the image of one moment.
//!
//! 1. Its number is part of what its hash covers: an old manifest under a new name is refused.
//! 2. Layers are listed from the bottom, which is a base, to the top. The holder, if there is one, is behind them.

use zerocopy::{FromBytes, IntoBytes};

use crate::key::{Part, TABLE, open_part};
use crate::layout::{
    BODY_HEAD_LEN, MANIFEST_HEAD_LEN, MANIFEST_MAGIC, RawBody, RawLayer, RawManifest, SEALED,
    VERSION,
};
use crate::{Delta, Error, Hash, Key, Result};

/// The most bytes of a manifest that are read: a million layers.
pub const MANIFEST_MAX: u64 = 64 << 20;

/// A delta as a manifest names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layer {
    /// The hash of its trailer.
    pub id: Hash,
    /// The number of the manifest for which it was made.
    pub sequence: u64,
    /// Tells its object from others that were made for the same number.
    pub tag: u64,
    /// Bytes of the object.
    pub object_len: u64,
    /// Where its table begins.
    pub table_at: u64,
    /// Blocks in it.
    pub blocks: u64,
}

impl Layer {
    /// A delta whose object has this tag.
    pub fn new(delta: &Delta, tag: u64) -> Self {
        Self {
            id: delta.id,
            sequence: delta.head.sequence,
            tag,
            object_len: delta.object_len,
            table_at: delta.table_at,
            blocks: delta.blocks,
        }
    }
}

/// Who holds a volume: its writer goes on, and no other may begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The machine and process, for people. The first [`HOLDER_NAME_MAX`] characters are kept.
    pub name: String,
    /// Since when, in milliseconds since 1970, UTC.
    pub since: u64,
}

/// The most characters of a holder's name.
pub const HOLDER_NAME_MAX: usize = 80;

impl Holder {
    fn to_bytes(&self) -> Vec<u8> {
        let name: String = self.name.chars().take(HOLDER_NAME_MAX).collect();
        [&self.since.to_le_bytes()[..], name.as_bytes()].concat()
    }

    fn parse(bytes: &[u8]) -> Result<Option<Self>> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let damaged = Error::Damaged("the manifest's holder");
        let Some((since, name)) = bytes.split_first_chunk() else { return Err(damaged) };
        let name = core::str::from_utf8(name).ok();
        let Some(name) = name.filter(|name| name.chars().count() <= HOLDER_NAME_MAX) else {
            return Err(damaged);
        };
        Ok(Some(Self { name: name.to_owned(), since: u64::from_le_bytes(*since) }))
    }
}

/// The image of one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// The volume.
    pub uuid: [u8; 16],
    /// Its number; each manifest has the next one.
    pub number: u64,
    /// The hash of the manifest before it.
    pub parent: Option<Hash>,
    /// Who wrote it: random for each writer.
    pub writer: [u8; 16],
    /// Grows with each writer that takes over.
    pub epoch: u64,
    /// When, in milliseconds since 1970, UTC. Never less than that of the manifest before it.
    pub made_at: u64,
    /// Bytes of the image.
    pub image_len: u64,
    /// Bytes of a block.
    pub block_size: u32,
    /// Bytes of blocks that changed since the manifest before it.
    pub changed_bytes: u64,
    /// Bytes of objects that were put for it, without itself.
    pub stored_bytes: u64,
    /// The deltas, from the bottom to the top.
    pub layers: Vec<Layer>,
    /// Who goes on from it; `None` if any writer may.
    pub holder: Option<Holder>,
}

fn hash(head: &RawManifest, body: &[u8]) -> Hash {
    let mut covered = head.as_bytes()[..MANIFEST_HEAD_LEN - 32].to_vec();
    covered.extend_from_slice(body);
    Hash::of(&covered)
}

impl Manifest {
    /// Bytes of the object, without those that a key adds.
    pub fn object_len(&self) -> u64 {
        let holder = self.holder.as_ref().map_or(0, |holder| holder.to_bytes().len());
        let layers = self.layers.len() * size_of::<RawLayer>();
        (MANIFEST_HEAD_LEN + BODY_HEAD_LEN + layers + holder) as u64
    }

    /// The bytes of the object, and its hash.
    ///
    /// # Errors
    /// [`Error::System`] if there are no random numbers for a salt.
    pub fn build(&self, key: Option<&Key>) -> Result<(Vec<u8>, Hash)> {
        let holder = self.holder.as_ref().map_or_else(Vec::new, Holder::to_bytes);
        let raw = RawBody {
            parent: self.parent.unwrap_or_default().0,
            writer: self.writer,
            epoch: self.epoch.into(),
            made_at: self.made_at.into(),
            image_len: self.image_len.into(),
            block_size: self.block_size.into(),
            holder_len: (holder.len() as u32).into(),
            changed_bytes: self.changed_bytes.into(),
            stored_bytes: self.stored_bytes.into(),
        };
        let mut body = raw.as_bytes().to_vec();
        for layer in &self.layers {
            let raw = RawLayer {
                id: layer.id.0,
                sequence: layer.sequence.into(),
                tag: layer.tag.into(),
                object_len: layer.object_len.into(),
                table_at: layer.table_at.into(),
                blocks: layer.blocks.into(),
            };
            body.extend_from_slice(raw.as_bytes());
        }
        body.extend_from_slice(&holder);
        let mut head = RawManifest {
            magic: MANIFEST_MAGIC,
            version: VERSION.into(),
            flags: if key.is_some() { SEALED } else { 0 }.into(),
            uuid: self.uuid,
            number: self.number.into(),
            layers: (self.layers.len() as u64).into(),
            salt: key.map_or(Ok([0; 16]), |_| Key::new_salt())?,
            hash: [0; 32],
        };
        let id = hash(&head, &body);
        head.hash = id.0;
        if let Some(key) = key {
            let part = Part { uuid: &self.uuid, salt: &head.salt, number: TABLE };
            key.seal(part, &mut body)?;
        }
        let mut bytes = head.as_bytes().to_vec();
        bytes.append(&mut body);
        Ok((bytes, id))
    }

    /// Parses the object that is kept under `number`. Returns its hash too.
    ///
    /// # Errors
    /// If it is not this manifest, or the key is missing or another one.
    pub fn parse(number: u64, bytes: &[u8], key: Option<&Key>) -> Result<(Self, Hash)> {
        let Some((head, body)) = bytes.split_at_checked(MANIFEST_HEAD_LEN) else {
            return Err(Error::IsNot("a manifest"));
        };
        let head = RawManifest::ref_from_bytes(head).map_err(|_| Error::IsNot("a manifest"))?;
        if head.magic != MANIFEST_MAGIC {
            return Err(Error::IsNot("a manifest"));
        }
        if head.version.get() != VERSION {
            return Err(Error::Version(head.version.get()));
        }
        if head.flags.get() & !SEALED != 0 {
            return Err(Error::Damaged("the manifest has an unknown flag"));
        }
        let part = Part { uuid: &head.uuid, salt: &head.salt, number: TABLE };
        let body = open_part(head.flags.get() & SEALED != 0, key, part, body)?;
        let id = hash(head, &body);
        if id.0 != head.hash {
            return Err(Error::Damaged("the manifest's hash is wrong"));
        }
        if head.number.get() != number {
            return Err(Error::Damaged("the manifest has another number: it was moved here"));
        }
        let Some((raw, layers)) = body.split_at_checked(BODY_HEAD_LEN) else {
            return Err(Error::Damaged("the manifest is cut short"));
        };
        let raw = RawBody::ref_from_bytes(raw).map_err(|_| Error::Damaged("the manifest"))?;
        let holder_at = layers.len().checked_sub(raw.holder_len.get() as usize);
        let Some((layers, holder)) = holder_at.and_then(|at| layers.split_at_checked(at)) else {
            return Err(Error::Damaged("the manifest is cut short"));
        };
        let layers = <[RawLayer]>::ref_from_bytes(layers);
        let layers = layers.map_err(|_| Error::Damaged("the manifest's layers"))?;
        if layers.len() as u64 != head.layers.get() {
            return Err(Error::Damaged("the manifest has another number of layers"));
        }
        let layer = |raw: &RawLayer| Layer {
            id: Hash(raw.id),
            sequence: raw.sequence.get(),
            tag: raw.tag.get(),
            object_len: raw.object_len.get(),
            table_at: raw.table_at.get(),
            blocks: raw.blocks.get(),
        };
        let manifest = Self {
            uuid: head.uuid,
            number,
            parent: Some(Hash(raw.parent)).filter(|hash| !hash.is_none()),
            writer: raw.writer,
            epoch: raw.epoch.get(),
            made_at: raw.made_at.get(),
            image_len: raw.image_len.get(),
            block_size: raw.block_size.get(),
            changed_bytes: raw.changed_bytes.get(),
            stored_bytes: raw.stored_bytes.get(),
            layers: layers.iter().map(layer).collect(),
            holder: Holder::parse(holder)?,
        };
        Ok((manifest, id))
    }
}
