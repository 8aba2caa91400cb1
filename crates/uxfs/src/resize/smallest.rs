//! The smallest size that holds a volume's files, found by trying.
//!
//! How much the trees of a volume take depends on how its files come to lie, so no formula is
//! exact. A try makes all metadata in a file that is thrown away, and moves no data. Sizes are
//! narrowed down between one that did and one that did not do.
//!
//! 1. A size that is used was tried. It leaves what the kernel wants to find free, so that it
//!    mounts the volume without complaint.
//! 2. The number of tries is bounded; what they do not settle is left free.

use uxfs_core::Fs;
use uxfs_mkfs::MIN_VOLUME_BYTES;

use super::rebuild::{Log, layout_like, make};
use super::replace::Beside;
use super::{ResizeError, ResizeOptions, Whole};

const MIB: u64 = 1 << 20;
/// Two groups of the least length.
const LEAST: u64 = 32 * MIB;
/// Most tries.
const TRIES: u32 = 14;

/// What came of it.
pub(super) enum Outcome {
    /// The volume was made again, this long.
    Rebuilt(u64),
    /// No shorter volume was found, and why.
    Kept(String),
}

/// What is known of sizes, in bytes.
struct Search {
    /// The largest that is known not to do.
    low: u64,
    /// Why it does not.
    why: String,
    /// The smallest that is known to do, or the limit.
    high: u64,
}

/// Makes the volume again in the smallest size that is found, and puts it in the old one's place.
pub(super) fn rebuild(
    old: &Fs,
    whole: &Whole,
    options: &ResizeOptions,
) -> Result<Outcome, ResizeError> {
    let present = old.geo.dblocks << old.geo.block_log;
    let used = old.geo.dblocks - old.free_blocks().min(old.geo.dblocks);
    let used = used.saturating_sub(old.geo.log_blocks.into()) << old.geo.block_log;
    let why = format!("no volume is shorter than {LEAST} bytes");
    let mut search = Search { low: LEAST - MIB, why, high: present.next_multiple_of(MIB) };
    let mut guess = (used + used / 64 + 8 * MIB).max(LEAST);
    for _ in 0..TRIES {
        if search.high - search.low <= search.step() {
            break;
        }
        let floor = search.low + MIB;
        let bytes = guess.next_multiple_of(MIB).clamp(floor, (search.high - MIB).max(floor));
        if bytes >= search.high {
            break;
        }
        match free_at(old, whole, options, bytes)? {
            Ok(free) => {
                search.high = bytes;
                // What is free will mostly still be in a smaller volume; not all of it.
                let less = bytes.saturating_sub(free - free / 16);
                guess = less.max(search.low + (bytes - search.low) / 4);
            }
            Err(why) => {
                (search.low, search.why) = (bytes, why);
                guess = bytes + ((search.high - bytes) / 2).min(bytes / 8);
            }
        }
    }
    search.below_the_jump(old, whole, options)?;
    if search.high >= present {
        return Ok(Outcome::Kept(search.why));
    }
    let layout = layout_like(old, search.high, Log::Usual)?;
    let beside = Beside::new(&whole.path).map_err(ResizeError::host(&whole.path))?;
    make(old, &layout, beside.path(), options, true)?;
    beside.replace().map_err(ResizeError::host(&whole.path))?;
    Ok(Outcome::Rebuilt(layout.size_bytes()))
}

impl Search {
    /// How near is near enough.
    fn step(&self) -> u64 {
        (self.high / 256).max(MIB)
    }

    /// From 300 MiB on a volume gets a log of 64 MiB: just below may do where more does not.
    fn below_the_jump(
        &mut self,
        old: &Fs,
        whole: &Whole,
        options: &ResizeOptions,
    ) -> Result<(), ResizeError> {
        let below = MIN_VOLUME_BYTES - MIB;
        let near = (MIN_VOLUME_BYTES..=MIN_VOLUME_BYTES + 80 * MIB).contains(&self.high);
        if near && free_at(old, whole, options, below)?.is_ok() {
            self.high = below;
        }
        Ok(())
    }
}

/// The bytes that a volume of this size leaves free beyond what the kernel wants; why not, if it
/// does not do.
fn free_at(
    old: &Fs,
    whole: &Whole,
    options: &ResizeOptions,
    bytes: u64,
) -> Result<Result<u64, String>, ResizeError> {
    // A size that no volume can have is one that does not do.
    let layout = match layout_like(old, bytes, Log::Usual) {
        Ok(layout) => layout,
        Err(error) => return Ok(Err(error.to_string())),
    };
    let beside = Beside::new(&whole.path).map_err(ResizeError::host(&whole.path))?;
    match make(old, &layout, beside.path(), options, false) {
        Ok(blocks) => Ok(match u64::try_from(blocks) {
            Ok(left) => Ok(left << old.geo.block_log),
            Err(_) => {
                let missing = blocks.unsigned_abs() << old.geo.block_log;
                Err(format!("{bytes} bytes lack {missing} that the kernel wants to find free"))
            }
        }),
        Err(error) if error.is_no_space() => Ok(Err(match error {
            ResizeError::Entry { path, .. } => {
                format!("{bytes} bytes do not hold /{}", path.escape_ascii())
            }
            _ => format!("{bytes} bytes do not hold the files"),
        })),
        Err(error) => Err(error),
    }
}
