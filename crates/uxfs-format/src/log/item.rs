//! Items: what a transaction consists of, each one or more regions.

use super::buf::{BufFlags, BufItem, CHUNK};
use super::dquot::{DquotItem, QuotaOff};
use super::icreate::Icreate;
use super::inode::{InodeFields, InodeItem, LOG_CORE_LEN};
use super::intent::{DoneItem, IntentItem, IntentKind};
use super::le;

/// Most regions that an item has.
pub const MAX_REGIONS: usize = (64 << 10) / CHUNK / 2 + 1;

macro_rules! kinds {
    ($($name:ident = $code:literal $text:literal),* $(,)?) => {
        /// Kinds of item.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u16)]
        #[expect(missing_docs, reason = "the names are the format's own")]
        pub enum ItemKind { $($name = $code),* }

        impl ItemKind {
            /// From the first 16 bits of an item.
            pub const fn from_code(code: u16) -> Option<Self> {
                match code { $($code => Some(Self::$name),)* _ => None }
            }

            /// Name as the tools of XFS print it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text),* }
            }
        }
    };
}

kinds! {
    Efi = 0x1236 "EFI", Efd = 0x1237 "EFD", Inode = 0x123b "INODE", Buf = 0x123c "BUF",
    Dquot = 0x123d "DQUOT", QuotaOff = 0x123e "QUOTAOFF", Icreate = 0x123f "ICREATE",
    Rui = 0x1240 "RUI", Rud = 0x1241 "RUD", Cui = 0x1242 "CUI", Cud = 0x1243 "CUD",
    Bui = 0x1244 "BUI", Bud = 0x1245 "BUD", Attri = 0x1246 "ATTRI", Attrd = 0x1247 "ATTRD",
    Xmi = 0x1248 "XMI", Xmd = 0x1249 "XMD", EfiRt = 0x124a "EFI_RT", EfdRt = 0x124b "EFD_RT",
    RuiRt = 0x124c "RUI_RT", RudRt = 0x124d "RUD_RT", CuiRt = 0x124e "CUI_RT",
    CudRt = 0x124f "CUD_RT",
}

/// An item that is not what its kind has to be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} item: {problem}")]
pub struct BadItem {
    /// Its kind, as far as known.
    pub kind: &'static str,
    /// What is wrong.
    pub problem: String,
}

impl BadItem {
    /// A bad item of a known kind.
    pub fn new(kind: ItemKind, problem: impl Into<String>) -> Self {
        Self { kind: kind.name(), problem: problem.into() }
    }
}

/// The first word of an item: its kind, and the number of its regions.
pub(super) fn first_word(kind: ItemKind, regions: usize) -> [u8; 4] {
    let ([a, b], [c, d]) = ((kind as u16).to_le_bytes(), (regions as u16).to_le_bytes());
    [a, b, c, d]
}

/// An item, its bulk still in its regions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// A metadata buffer, and what is logged of it: first chunk, bytes.
    Buf(BufItem, Vec<(usize, &'a [u8])>),
    /// An inode.
    Inode {
        /// What is logged.
        format: InodeItem,
        /// The core, in the log's byte order.
        core: &'a [u8; LOG_CORE_LEN],
        /// The data fork, padding included.
        data: Option<&'a [u8]>,
        /// The attribute fork, padding included.
        attr: Option<&'a [u8]>,
    },
    /// A quota record, as on disk.
    Dquot(DquotItem, &'a [u8]),
    /// Quota was turned off.
    QuotaOff(QuotaOff),
    /// New inodes.
    Icreate(Icreate),
    /// Something is owed.
    Intent(IntentItem),
    /// What was owed is done.
    Done(DoneItem),
}

impl<'a> Item<'a> {
    /// Kind of the item whose first region this is, and the number of its regions. `None` if the
    /// region is too short to tell.
    pub fn first(region: &[u8]) -> Option<(Result<ItemKind, u16>, usize)> {
        let head: &[u8; 4] = region.first_chunk()?;
        let code = le::u16(head, 0);
        Some((ItemKind::from_code(code).ok_or(code), le::u16(head, 2).into()))
    }

    /// Reads an item from its regions.
    ///
    /// # Errors
    /// If its kind is unknown, or the regions are not what it promises.
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

    /// The item's regions, as they are written.
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

/// Pairs the regions with the runs of the map. A run whose bytes are not neighbours in the writer's
/// memory comes in several regions.
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
