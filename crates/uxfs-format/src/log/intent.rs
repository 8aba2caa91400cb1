//! Intent and done items. An operation of several transactions logs an intent for the work that is
//! still to be done, and a done item when the work is complete. Recovery finishes every intent that
//! has no done item.

use super::attr::AttrIntent;
use super::exchange::ExchangeIntent;
use super::kind::{BadItem, ItemKind, first_word};
use crate::bytes::{le32, le64};
use crate::types::{FileBlock, FsBlock, Ino};

/// Kinds of intent; an intent and its done item have the same kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IntentKind {
    /// Extents to be freed: EFI, EFD.
    Free,
    /// Changes to reverse mappings: RUI, RUD.
    Rmap,
    /// Changes to reference counts: CUI, CUD.
    Refcount,
    /// Changes to a file's mappings: BUI, BUD.
    Bmap,
    /// A change to an attribute: ATTRI, ATTRD.
    Attr,
    /// Mappings to be exchanged: XMI, XMD.
    Exchange,
    /// [`IntentKind::Free`] on the realtime device.
    FreeRt,
    /// [`IntentKind::Rmap`] on the realtime device.
    RmapRt,
    /// [`IntentKind::Refcount`] on the realtime device.
    RefcountRt,
}

impl IntentKind {
    /// The kind of the intent item and of the done item.
    pub const fn items(self) -> (ItemKind, ItemKind) {
        match self {
            Self::Free => (ItemKind::Efi, ItemKind::Efd),
            Self::Rmap => (ItemKind::Rui, ItemKind::Rud),
            Self::Refcount => (ItemKind::Cui, ItemKind::Cud),
            Self::Bmap => (ItemKind::Bui, ItemKind::Bud),
            Self::Attr => (ItemKind::Attri, ItemKind::Attrd),
            Self::Exchange => (ItemKind::Xmi, ItemKind::Xmd),
            Self::FreeRt => (ItemKind::EfiRt, ItemKind::EfdRt),
            Self::RmapRt => (ItemKind::RuiRt, ItemKind::RudRt),
            Self::RefcountRt => (ItemKind::CuiRt, ItemKind::CudRt),
        }
    }
}

/// A run of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentRun {
    /// First block.
    pub start: FsBlock,
    /// Number of blocks.
    pub len: u32,
}

/// A change to a reverse mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names are the format's own")]
pub enum RmapOp {
    Map = 1,
    MapShared = 2,
    Unmap = 3,
    UnmapShared = 4,
    Convert = 5,
    ConvertShared = 6,
    Alloc = 7,
    Free = 8,
}

/// A change to a reference count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names are the format's own")]
pub enum RefcountOp {
    Increase = 1,
    Decrease = 2,
    AllocCow = 3,
    FreeCow = 4,
}

/// A change to a file's mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names are the format's own")]
pub enum BmapOp {
    Map = 1,
    Unmap = 2,
}

/// A step of an [`Intent::Rmap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RmapStep {
    /// The change.
    pub op: RmapOp,
    /// Owner: an inode, or one of the special ones.
    pub owner: u64,
    /// The blocks.
    pub run: ExtentRun,
    /// Offset in the fork.
    pub offset: FileBlock,
    /// The mapping is in the attribute fork.
    pub attr: bool,
    /// The blocks are bmbt blocks of the fork.
    pub bmbt: bool,
    /// The blocks are allocated but not written.
    pub unwritten: bool,
}

/// A step of an [`Intent::Refcount`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefcountStep {
    /// The change.
    pub op: RefcountOp,
    /// The blocks.
    pub run: ExtentRun,
}

/// A step of an [`Intent::Bmap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BmapStep {
    /// The change.
    pub op: BmapOp,
    /// The file.
    pub ino: Ino,
    /// The blocks.
    pub run: ExtentRun,
    /// Offset in the fork.
    pub offset: FileBlock,
    /// The mapping is in the attribute fork.
    pub attr: bool,
    /// The blocks are allocated but not written.
    pub unwritten: bool,
    /// The blocks are on the realtime device.
    pub realtime: bool,
}

/// The work that an intent announces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Intent {
    /// Extents to be freed.
    Free(Vec<ExtentRun>),
    /// Changes to reverse mappings.
    Rmap(Vec<RmapStep>),
    /// Changes to reference counts.
    Refcount(Vec<RefcountStep>),
    /// Changes to a file's mappings.
    Bmap(Vec<BmapStep>),
    /// A change to an attribute.
    Attr(AttrIntent),
    /// Mappings to be exchanged.
    Exchange(ExchangeIntent),
}

/// An intent item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntentItem {
    /// Kind of the intent.
    pub kind: IntentKind,
    /// Number that the done item repeats.
    pub id: u64,
    /// The work to be done.
    pub intent: Intent,
}

/// A done item: it completes an intent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoneItem {
    /// The intent's kind.
    pub kind: IntentKind,
    /// The intent's number.
    pub id: u64,
    /// The freed extents, for [`IntentKind::Free`]. Recovery ignores them.
    pub extents: Vec<ExtentRun>,
}

/// Bytes before the array of an intent item.
const HEADER: usize = 16;
/// Bytes of a done item without an array.
const DONE_LEN: usize = 16;
const ATTR_FORK: u32 = 1 << 31;
const RMAP_BMBT: u32 = 1 << 30;
const RMAP_UNWRITTEN: u32 = 1 << 29;
const BMAP_UNWRITTEN: u32 = 1 << 30;
const BMAP_REALTIME: u32 = 1 << 29;
const TYPE_MASK: u32 = 0xff;

/// The elements of an intent's array.
fn elements<'a>(
    kind: ItemKind,
    region: &'a [u8],
    sizes: &[usize],
) -> Result<core::slice::ChunksExact<'a, u8>, BadItem> {
    let count = le32(region, 4) as usize;
    let room = region.len().saturating_sub(HEADER);
    for &size in sizes {
        if region.len() >= HEADER && count.checked_mul(size) == Some(room) {
            return Ok(region[HEADER..].chunks_exact(size));
        }
    }
    Err(BadItem::new(kind, format!("{count} extents in {} bytes", region.len())))
}

/// Extents of an EFI or EFD; old 32-bit kernels wrote them packed.
fn runs(kind: ItemKind, region: &[u8]) -> Result<Vec<ExtentRun>, BadItem> {
    let elements = elements(kind, region, &[16, 12])?;
    Ok(elements.map(|raw| ExtentRun { start: FsBlock(le64(raw, 0)), len: le32(raw, 8) }).collect())
}

impl Intent {
    fn parse(kind: IntentKind, regions: &[&[u8]]) -> Result<Self, BadItem> {
        let item = kind.items().0;
        let first = regions.first().copied().unwrap_or_default();
        if kind != IntentKind::Attr && regions.len() != 1 {
            return Err(BadItem::new(item, format!("{} regions", regions.len())));
        }
        let bad = |flags: u32| BadItem::new(item, format!("flags {flags:#x}"));
        Ok(match kind {
            IntentKind::Free | IntentKind::FreeRt => Self::Free(runs(item, first)?),
            IntentKind::Rmap | IntentKind::RmapRt => {
                let steps = elements(item, first, &[32])?;
                Self::Rmap(steps.map(|raw| rmap_step(raw, bad)).collect::<Result<_, _>>()?)
            }
            IntentKind::Refcount | IntentKind::RefcountRt => {
                let steps = elements(item, first, &[16])?;
                Self::Refcount(steps.map(|raw| refcount_step(raw, bad)).collect::<Result<_, _>>()?)
            }
            IntentKind::Bmap => {
                let steps = elements(item, first, &[32])?;
                Self::Bmap(steps.map(|raw| bmap_step(raw, bad)).collect::<Result<_, _>>()?)
            }
            IntentKind::Attr => Self::Attr(AttrIntent::parse(regions)?),
            IntentKind::Exchange => Self::Exchange(ExchangeIntent::parse(first)?),
        })
    }
}

fn rmap_step(raw: &[u8], bad: impl Fn(u32) -> BadItem) -> Result<RmapStep, BadItem> {
    let flags = le32(raw, 28);
    let op = match flags & TYPE_MASK {
        1 => RmapOp::Map,
        2 => RmapOp::MapShared,
        3 => RmapOp::Unmap,
        4 => RmapOp::UnmapShared,
        5 => RmapOp::Convert,
        6 => RmapOp::ConvertShared,
        7 => RmapOp::Alloc,
        8 => RmapOp::Free,
        _ => return Err(bad(flags)),
    };
    if flags & !(TYPE_MASK | ATTR_FORK | RMAP_BMBT | RMAP_UNWRITTEN) != 0 {
        return Err(bad(flags));
    }
    Ok(RmapStep {
        op,
        owner: le64(raw, 0),
        run: ExtentRun { start: FsBlock(le64(raw, 8)), len: le32(raw, 24) },
        offset: FileBlock(le64(raw, 16)),
        attr: flags & ATTR_FORK != 0,
        bmbt: flags & RMAP_BMBT != 0,
        unwritten: flags & RMAP_UNWRITTEN != 0,
    })
}

fn refcount_step(raw: &[u8], bad: impl Fn(u32) -> BadItem) -> Result<RefcountStep, BadItem> {
    let flags = le32(raw, 12);
    let op = match flags {
        1 => RefcountOp::Increase,
        2 => RefcountOp::Decrease,
        3 => RefcountOp::AllocCow,
        4 => RefcountOp::FreeCow,
        _ => return Err(bad(flags)),
    };
    Ok(RefcountStep { op, run: ExtentRun { start: FsBlock(le64(raw, 0)), len: le32(raw, 8) } })
}

fn bmap_step(raw: &[u8], bad: impl Fn(u32) -> BadItem) -> Result<BmapStep, BadItem> {
    let flags = le32(raw, 28);
    let op = match flags & TYPE_MASK {
        1 => BmapOp::Map,
        2 => BmapOp::Unmap,
        _ => return Err(bad(flags)),
    };
    if flags & !(TYPE_MASK | ATTR_FORK | BMAP_UNWRITTEN | BMAP_REALTIME) != 0 {
        return Err(bad(flags));
    }
    Ok(BmapStep {
        op,
        ino: Ino(le64(raw, 0)),
        run: ExtentRun { start: FsBlock(le64(raw, 8)), len: le32(raw, 24) },
        offset: FileBlock(le64(raw, 16)),
        attr: flags & ATTR_FORK != 0,
        unwritten: flags & BMAP_UNWRITTEN != 0,
        realtime: flags & BMAP_REALTIME != 0,
    })
}

fn header(kind: ItemKind, count: usize, id: u64) -> Vec<u8> {
    let mut raw = Vec::with_capacity(HEADER + 32 * count);
    raw.extend_from_slice(&first_word(kind, 1));
    // The size of a transaction bounds the number of extents.
    raw.extend_from_slice(&(count as u32).to_le_bytes());
    raw.extend_from_slice(&id.to_le_bytes());
    raw
}

fn flag(set: bool, bit: u32) -> u32 {
    if set { bit } else { 0 }
}

/// Appends a mapping element: owner, start, offset, length, flags.
fn push_mapping(raw: &mut Vec<u8>, owner: u64, run: ExtentRun, offset: FileBlock, flags: u32) {
    raw.extend([owner, run.start.0, offset.0].iter().flat_map(|word| word.to_le_bytes()));
    raw.extend([run.len, flags].iter().flat_map(|word| word.to_le_bytes()));
}

fn push_run(raw: &mut Vec<u8>, run: ExtentRun, last: u32) {
    raw.extend_from_slice(&run.start.0.to_le_bytes());
    raw.extend([run.len, last].iter().flat_map(|word| word.to_le_bytes()));
}

impl IntentItem {
    pub(super) fn parse(kind: IntentKind, regions: &[&[u8]]) -> Result<Self, BadItem> {
        let intent = Intent::parse(kind, regions)?;
        Ok(Self { kind, id: le64(regions[0], 8), intent })
    }

    /// Encodes the item's regions.
    pub fn encode(&self) -> Vec<Vec<u8>> {
        let kind = self.kind.items().0;
        match &self.intent {
            Intent::Attr(attr) => attr.encode(self.id),
            Intent::Exchange(exchange) => vec![exchange.encode(self.id)],
            Intent::Free(runs) => {
                let mut raw = header(kind, runs.len(), self.id);
                runs.iter().for_each(|run| push_run(&mut raw, *run, 0));
                vec![raw]
            }
            Intent::Refcount(steps) => {
                let mut raw = header(kind, steps.len(), self.id);
                steps.iter().for_each(|step| push_run(&mut raw, step.run, step.op as u32));
                vec![raw]
            }
            Intent::Rmap(steps) => {
                let mut raw = header(kind, steps.len(), self.id);
                for step in steps {
                    let flags = step.op as u32
                        | flag(step.attr, ATTR_FORK)
                        | flag(step.bmbt, RMAP_BMBT)
                        | flag(step.unwritten, RMAP_UNWRITTEN);
                    push_mapping(&mut raw, step.owner, step.run, step.offset, flags);
                }
                vec![raw]
            }
            Intent::Bmap(steps) => {
                let mut raw = header(kind, steps.len(), self.id);
                for step in steps {
                    let flags = step.op as u32
                        | flag(step.attr, ATTR_FORK)
                        | flag(step.unwritten, BMAP_UNWRITTEN)
                        | flag(step.realtime, BMAP_REALTIME);
                    push_mapping(&mut raw, step.ino.0, step.run, step.offset, flags);
                }
                vec![raw]
            }
        }
    }
}

impl DoneItem {
    pub(super) fn parse(kind: IntentKind, regions: &[&[u8]]) -> Result<Self, BadItem> {
        let item = kind.items().1;
        let region = regions.first().copied().unwrap_or_default();
        let extents = match kind {
            IntentKind::Free | IntentKind::FreeRt => runs(item, region)?,
            _ if region.len() == DONE_LEN => Vec::new(),
            _ => return Err(BadItem::new(item, format!("{} bytes", region.len()))),
        };
        Ok(Self { kind, id: le64(region, 8), extents })
    }

    /// Encodes the item's one region.
    pub fn encode(&self) -> Vec<u8> {
        let mut raw = header(self.kind.items().1, self.extents.len(), self.id);
        self.extents.iter().for_each(|run| push_run(&mut raw, *run, 0));
        raw
    }
}
