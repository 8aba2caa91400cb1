//! Log items as text, for listings.

use uxfs_format::log::{
    BmapStep, BufFlags, BufItem, InodeFields, Intent, Item, RefcountStep, RmapStep,
};

/// One line that describes an item.
pub fn describe(item: &Item<'_>) -> String {
    match item {
        Item::Buf(format, _) => buffer(format),
        Item::Inode { format, .. } => {
            let fields: Vec<String> = names(format.fields);
            format!(
                "inode {} {} data {} attr {} daddr {} offset {}",
                format.ino,
                fields.join(","),
                format.dsize,
                format.asize,
                format.blkno,
                format.boffset
            )
        }
        Item::Dquot(format, _) => {
            format!("id {} daddr {} offset {}", format.id, format.blkno, format.boffset)
        }
        Item::QuotaOff(off) => format!("flags {:#x}", off.flags),
        Item::Icreate(new) => format!(
            "ag {} block {} inodes {} of {} bytes, {} blocks, generation {}",
            new.ag, new.agbno, new.count, new.isize, new.length, new.generation
        ),
        Item::Intent(item) => format!("id {:#x} {}", item.id, intent(&item.intent)),
        Item::Done(done) => format!("id {:#x}", done.id),
    }
}

fn names(fields: InodeFields) -> Vec<String> {
    fields
        .iter_names()
        .map(|(name, _)| name.to_lowercase())
        .filter(|n| !n.ends_with("fork"))
        .collect()
}

fn buffer(format: &BufItem) -> String {
    let (daddr, len) = (format.blkno, format.len);
    if format.flags.contains(BufFlags::CANCEL) {
        return format!("cancel daddr {daddr} len {len}");
    }
    let runs = format.runs().map(|(chunk, count)| match count {
        1 => chunk.to_string(),
        count => format!("{chunk}-{}", chunk + count - 1),
    });
    let chunks: Vec<String> = runs.collect();
    let inodes = if format.flags.contains(BufFlags::INODE) { " unlinked" } else { "" };
    format!("{}{inodes} daddr {daddr} len {len} chunks {}", format.kind.name(), chunks.join(","))
}

fn intent(intent: &Intent) -> String {
    let steps: Vec<String> = match intent {
        Intent::Free(runs) => runs.iter().map(|r| format!("{}+{}", r.start, r.len)).collect(),
        Intent::Rmap(steps) => steps.iter().map(rmap).collect(),
        Intent::Refcount(steps) => steps.iter().map(refcount).collect(),
        Intent::Bmap(steps) => steps.iter().map(bmap).collect(),
        Intent::Attr(attr) => {
            let new = match attr.new_name.is_empty() {
                true => String::new(),
                false => format!(" by {}", attr.new_name.escape_ascii()),
            };
            let name = attr.name.escape_ascii();
            vec![format!("{} inode {} name {name}{new}", attr.op.name(), attr.ino)]
        }
        Intent::Exchange(exchange) => {
            let [one, two] = exchange.inos;
            let [from, to] = exchange.starts;
            vec![format!("inode {one} at {from}, inode {two} at {to}, {} blocks", exchange.blocks)]
        }
    };
    steps.join("; ")
}

fn rmap(step: &RmapStep) -> String {
    let (run, offset) = (step.run, step.offset);
    // Special owners are small negative numbers.
    let owner = step.owner.cast_signed();
    format!("{:?} {}+{} owner {owner} at {offset}", step.op, run.start, run.len)
}

fn refcount(step: &RefcountStep) -> String {
    format!("{:?} {}+{}", step.op, step.run.start, step.run.len)
}

fn bmap(step: &BmapStep) -> String {
    let (run, offset) = (step.run, step.offset);
    format!("{:?} inode {} at {offset} {}+{}", step.op, step.ino, run.start, run.len)
}
