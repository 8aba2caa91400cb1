//! Log items: the parts of a transaction. An item has one or more regions.

use super::buf::{BufFlags, BufItem, CHUNK};
use super::dquot::{DquotItem, QuotaOff};
use super::icreate::Icreate;
use super::inode::{InodeFields, InodeItem, LOG_CORE_LEN};
use super::intent::{DoneItem, IntentItem, IntentKind};
use super::kind::{BadItem, ItemKind, first_word};
use crate::bytes::le16;

/// A log item; large data stays in the item's regions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// A metadata buffer and its logged runs: first chunk, bytes.
    Buf(BufItem, Vec<(usize, &'a [u8])>),
    /// An inode.
    Inode {
        /// The logged parts.
        format: InodeItem,
        /// The core, in the log's byte order.
        core: &'a [u8; LOG_CORE_LEN],
        /// The data fork, padding included.
        data: Option<&'a [u8]>,
        /// The attribute fork, padding included.
        attr: Option<&'a [u8]>,
    },
    /// A quota record, in on-disk form.
    Dquot(DquotItem, &'a [u8]),
    /// Quota was turned off.
    QuotaOff(QuotaOff),
    /// A new inode chunk.
    Icreate(Icreate),
    /// An intent.
    Intent(IntentItem),
    /// A done item.
    Done(DoneItem),
}

impl<'a> Item<'a> {
    /// Kind and number of regions of the item that starts with this region. `None` if the region is
    /// too short.
    pub fn first(region: &[u8]) -> Option<(Result<ItemKind, u16>, usize)> {
        let head: &[u8; 4] = region.first_chunk()?;
        let code = le16(head, 0);
        Some((ItemKind::from_code(code).ok_or(code), le16(head, 2).into()))
    }

    /// Reads an item from its regions.
    ///
    /// # Errors
    /// If the kind is unknown, or the regions do not match the item's format.
    pub fn parse(regions: &[&'a [u8]]) -> Result<Self, BadItem> {
        let first = regions.first().copied().unwrap_or_default();
        let kind = match Self::first(first) {
            Some((Ok(kind), count)) if count == regions.len() => kind,
            Some((Ok(kind), count)) => {
                let problem = format!("{} regions of {count}", regions.len());
                return Err(BadItem::new(kind, problem));
            }
            Some((Err(code), _)) => {
                return Err(BadItem { kind: "unknown", problem: format!("type {code:#06x}") });
            }
            None => {
                let problem = format!("first region of {} bytes", first.len());
                return Err(BadItem { kind: "unknown", problem });
            }
        };
        let intent = |kind| IntentItem::parse(kind, regions).map(Self::Intent);
        let done = |kind| DoneItem::parse(kind, regions).map(Self::Done);
        match kind {
            ItemKind::Buf => parse_buf(first, &regions[1..]),
            ItemKind::Inode => parse_inode(first, &regions[1..]),
            ItemKind::Dquot => match regions {
                [_, record] => Ok(Self::Dquot(DquotItem::parse(first)?, record)),
                _ => Err(BadItem::new(kind, format!("{} regions", regions.len()))),
            },
            ItemKind::QuotaOff => QuotaOff::parse(first).map(Self::QuotaOff),
            ItemKind::Icreate => Icreate::parse(first).map(Self::Icreate),
            ItemKind::Efi => intent(IntentKind::Free),
            ItemKind::Efd => done(IntentKind::Free),
            ItemKind::Rui => intent(IntentKind::Rmap),
            ItemKind::Rud => done(IntentKind::Rmap),
            ItemKind::Cui => intent(IntentKind::Refcount),
            ItemKind::Cud => done(IntentKind::Refcount),
            ItemKind::Bui => intent(IntentKind::Bmap),
            ItemKind::Bud => done(IntentKind::Bmap),
            ItemKind::Attri => intent(IntentKind::Attr),
            ItemKind::Attrd => done(IntentKind::Attr),
            ItemKind::Xmi => intent(IntentKind::Exchange),
            ItemKind::Xmd => done(IntentKind::Exchange),
            ItemKind::EfiRt => intent(IntentKind::FreeRt),
            ItemKind::EfdRt => done(IntentKind::FreeRt),
            ItemKind::RuiRt => intent(IntentKind::RmapRt),
            ItemKind::RudRt => done(IntentKind::RmapRt),
            ItemKind::CuiRt => intent(IntentKind::RefcountRt),
            ItemKind::CudRt => done(IntentKind::RefcountRt),
        }
    }

    /// Encodes the item's regions.
    pub fn encode(&self) -> Vec<Vec<u8>> {
        match self {
            Self::Buf(format, pieces) => {
                let mut first = format.encode();
                first[..4].copy_from_slice(&first_word(ItemKind::Buf, 1 + pieces.len()));
                let bytes = pieces.iter().map(|(_, bytes)| bytes.to_vec());
                core::iter::once(first).chain(bytes).collect()
            }
            Self::Inode { format, core, data, attr } => {
                let forks = data.iter().chain(attr);
                [format.encode().to_vec(), core.to_vec()]
                    .into_iter()
                    .chain(forks.map(|fork| fork.to_vec()))
                    .collect()
            }
            Self::Dquot(format, record) => vec![format.encode().to_vec(), record.to_vec()],
            Self::QuotaOff(off) => vec![off.encode().to_vec()],
            Self::Icreate(icreate) => vec![icreate.encode().to_vec()],
            Self::Intent(intent) => intent.encode(),
            Self::Done(done) => vec![done.encode()],
        }
    }
}

/// Assigns the regions to the runs of the map. A run whose bytes were not contiguous in the
/// writer's memory comes in several regions.
fn parse_buf<'a>(first: &'a [u8], rest: &[&'a [u8]]) -> Result<Item<'a>, BadItem> {
    let bad = |problem: String| Err(BadItem::new(ItemKind::Buf, problem));
    let format = BufItem::parse(first)?;
    let mut pieces = Vec::with_capacity(rest.len());
    if format.flags.contains(BufFlags::CANCEL) {
        return Ok(Item::Buf(format, pieces));
    }
    let bytes = format.bytes();
    let mut regions = rest.iter().copied();
    for (chunk, count) in format.runs() {
        if (chunk + count) * CHUNK > bytes {
            return bad(format!("chunk {} of a buffer of {bytes} bytes", chunk + count - 1));
        }
        let (mut at, end) = (chunk, chunk + count);
        while at < end {
            let Some(region) = regions.next() else {
                return bad(format!("no region for chunk {at}"));
            };
            let chunks = region.len() / CHUNK;
            if chunks == 0 || chunks > end - at || !region.len().is_multiple_of(CHUNK) {
                return bad(format!("{} bytes for {} chunks", region.len(), end - at));
            }
            pieces.push((at, region));
            at += chunks;
        }
    }
    if regions.next().is_some() {
        return bad("more regions than runs in its map".into());
    }
    Ok(Item::Buf(format, pieces))
}

fn parse_inode<'a>(first: &'a [u8], rest: &[&'a [u8]]) -> Result<Item<'a>, BadItem> {
    let bad = |problem: String| Err(BadItem::new(ItemKind::Inode, problem));
    let format = InodeItem::parse(first)?;
    let mut rest = rest.iter().copied();
    let Some(core) = rest.next().and_then(|region| <&[u8; LOG_CORE_LEN]>::try_from(region).ok())
    else {
        return bad(format!("inode {} without a core of {LOG_CORE_LEN} bytes", format.ino));
    };
    let mut fork = |fields: InodeFields, len: u16| -> Result<Option<&'a [u8]>, BadItem> {
        let kinds = (format.fields & fields).bits().count_ones();
        if kinds == 0 {
            return Ok(None);
        }
        match rest.next() {
            Some(region) if kinds == 1 && region.len() >= usize::from(len) => Ok(Some(region)),
            _ => Err(BadItem::new(
                ItemKind::Inode,
                format!(
                    "inode {}: fields {:#x} and their regions",
                    format.ino,
                    format.fields.bits()
                ),
            )),
        }
    };
    let data = fork(InodeFields::DFORK, format.dsize)?;
    let attr = fork(InodeFields::AFORK, format.asize)?;
    if rest.next().is_some() {
        return bad(format!("inode {}: more regions than fields", format.ino));
    }
    Ok(Item::Inode { format, core, data, attr })
}
