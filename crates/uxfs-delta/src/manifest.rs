//! A manifest: the deltas that make the image of one moment.
//!
//! 1. Its number is part of what its hash covers: an old manifest under a new name is refused.
//! 2. Layers are listed from the bottom, which is a base, to the top. The holder, if there is one, is behind them.
//! 3. A delta may be in the object of the manifest for which it was made, behind the manifest. The manifest's hash does
//!    not cover it there; its layer's does.

use zerocopy::{FromBytes, IntoBytes};

use crate::key::{Part, TABLE, TAG_LEN, open_part};
use crate::layout::{
    BODY_HEAD_LEN, BODY_LEN_LEN, IN_MANIFEST, INSIDE, MANIFEST_HEAD_LEN, MANIFEST_MAGIC, RawBody,
    RawLayer, RawManifest, SEALED, VERSION,
};
use crate::{Delta, Error, Hash, Key, Result};

/// The most bytes of a manifest that are read: a million layers.
pub const MANIFEST_MAX: u64 = 64 << 20;

/// Which object has a delta.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// One of its own, which this tag tells from others that were made for the same number.
    Object(u64),
    /// That of the manifest for which it was made, from this byte on.
    Manifest(u64),
}

/// A delta as a manifest names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layer {
    /// The hash of its trailer.
    pub id: Hash,
    /// The number of the manifest for which it was made.
    pub sequence: u64,
    /// Where its bytes are.
    pub place: Place,
    /// Its bytes.
    pub object_len: u64,
    /// Where its table begins, in these bytes.
    pub table_at: u64,
    /// Blocks in it.
    pub blocks: u64,
}

impl Layer {
    /// A delta that is there.
    pub fn new(delta: &Delta, place: Place) -> Self {
        Self {
            id: delta.id,
            sequence: delta.head.sequence,
            place,
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

fn hash(head: &RawManifest, body_len: &[u8], body: &[u8]) -> Hash {
    let head = &head.as_bytes()[..MANIFEST_HEAD_LEN - 32];
    Hash::of(&[head, body_len, body].concat())
}

impl RawLayer {
    fn of(layer: &Layer) -> Self {
        let (sequence, tag) = match layer.place {
            Place::Object(tag) => (layer.sequence, tag),
            Place::Manifest(at) => (layer.sequence | IN_MANIFEST, at),
        };
        Self {
            id: layer.id.0,
            sequence: sequence.into(),
            tag: tag.into(),
            object_len: layer.object_len.into(),
            table_at: layer.table_at.into(),
            blocks: layer.blocks.into(),
        }
    }

    fn layer(&self) -> Layer {
        let (sequence, tag) = (self.sequence.get(), self.tag.get());
        Layer {
            id: Hash(self.id),
            sequence: sequence & !IN_MANIFEST,
            place: match sequence & IN_MANIFEST {
                0 => Place::Object(tag),
                _ => Place::Manifest(tag),
            },
            object_len: self.object_len.get(),
            table_at: self.table_at.get(),
            blocks: self.blocks.get(),
        }
    }
}

/// The head of an object that begins with these bytes.
fn head_of(bytes: &[u8]) -> Option<&RawManifest> {
    let head = bytes.get(..MANIFEST_HEAD_LEN)?;
    RawManifest::ref_from_bytes(head).ok().filter(|head| head.magic == MANIFEST_MAGIC)
}

/// Where the body lies in an object that begins with these bytes, if the head says it.
fn body_in(head: &RawManifest, bytes: &[u8]) -> Option<core::ops::Range<usize>> {
    let len = bytes.get(MANIFEST_HEAD_LEN..)?.first_chunk().filter(|_| head.is(INSIDE))?;
    let start = MANIFEST_HEAD_LEN + BODY_LEN_LEN;
    Some(start..start.checked_add(usize::try_from(u64::from_le_bytes(*len)).ok()?)?)
}

impl RawManifest {
    fn is(&self, flag: u32) -> bool {
        self.flags.get() & flag != 0
    }
}

impl Manifest {
    fn has_inside(&self) -> bool {
        self.layers.iter().any(|layer| matches!(layer.place, Place::Manifest(_)))
    }

    /// Bytes of the manifest as it is stored: where a delta in the same object begins. `sealed` if there is a key.
    pub fn stored_len(&self, sealed: bool) -> u64 {
        let holder = self.holder.as_ref().map_or(0, |holder| holder.to_bytes().len());
        let layers = self.layers.len() * size_of::<RawLayer>();
        let more =
            if self.has_inside() { BODY_LEN_LEN } else { 0 } + if sealed { TAG_LEN } else { 0 };
        (MANIFEST_HEAD_LEN + BODY_HEAD_LEN + layers + holder + more) as u64
    }

    /// Bytes of the manifest in an object that begins with these bytes, if something may follow it there.
    pub fn len_in(bytes: &[u8]) -> Option<u64> {
        body_in(head_of(bytes)?, bytes).map(|body| body.end as u64)
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
            body.extend_from_slice(RawLayer::of(layer).as_bytes());
        }
        body.extend_from_slice(&holder);
        let mut head = RawManifest {
            magic: MANIFEST_MAGIC,
            version: VERSION.into(),
            flags: (if key.is_some() { SEALED } else { 0 }
                | if self.has_inside() { INSIDE } else { 0 })
            .into(),
            uuid: self.uuid,
            number: self.number.into(),
            layers: (self.layers.len() as u64).into(),
            salt: key.map_or(Ok([0; 16]), |_| Key::new_salt())?,
            hash: [0; 32],
        };
        let body_len = (body.len() + key.map_or(0, |_| TAG_LEN)) as u64;
        let body_len = if head.is(INSIDE) { body_len.to_le_bytes().to_vec() } else { Vec::new() };
        let id = hash(&head, &body_len, &body);
        head.hash = id.0;
        if let Some(key) = key {
            let part = Part { uuid: &self.uuid, salt: &head.salt, number: TABLE };
            key.seal(part, &mut body)?;
        }
        Ok(([head.as_bytes(), &body_len, &body].concat(), id))
    }

    /// Parses the object that is kept under `number`, or its first [`Manifest::len_in`] bytes. Returns its hash too.
    ///
    /// # Errors
    /// If it is not this manifest, or the key is missing or another one.
    pub fn parse(number: u64, bytes: &[u8], key: Option<&Key>) -> Result<(Self, Hash)> {
        let head = head_of(bytes).ok_or(Error::IsNot("a manifest"))?;
        if head.version.get() != VERSION {
            return Err(Error::Version(head.version.get()));
        }
        if head.is(!(SEALED | INSIDE)) {
            return Err(Error::Damaged("the manifest has an unknown flag"));
        }
        let place = match body_in(head, bytes) {
            Some(place) => place,
            None => MANIFEST_HEAD_LEN..bytes.len(),
        };
        let body_len = bytes.get(MANIFEST_HEAD_LEN..place.start).unwrap_or_default();
        let Some(body) = bytes.get(place) else {
            return Err(Error::Damaged("the manifest is cut short"));
        };
        let part = Part { uuid: &head.uuid, salt: &head.salt, number: TABLE };
        let body = open_part(head.is(SEALED), key, part, body)?;
        let id = hash(head, body_len, &body);
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
            layers: layers.iter().map(RawLayer::layer).collect(),
            holder: Holder::parse(holder)?,
        };
        Ok((manifest, id))
    }
}
