//! Whole images: a sound volume, a list of damages with correct checksums, and then all operations of
//! the commands.

use std::sync::Arc;

use uxfs_disk::BlockDev;
use uxfs_format::{BASIC_BLOCK, crc};
use uxfs_oracle::Rng;

use crate::Input;
use crate::base::{Base, full};
use crate::exercise::exercise;
use crate::fields::fields;
use crate::structures::{Kind, Structure};
use uxfs_disk::Overlay;

/// Damages of one image.
const DAMAGES: usize = 40;

/// First the volume's number, then eight bytes for each damage.
pub fn image(data: &[u8]) {
    let mut input = Input(data);
    let bases = full();
    let base = &bases[usize::from(input.byte()) % bases.len()];
    let overlay = Overlay::new(Arc::clone(&base.memory) as _, usize::MAX);
    for _ in 0..DAMAGES {
        if input.is_empty() {
            break;
        }
        damage(base, &overlay, &mut input);
    }
    let dev: Arc<dyn BlockDev> = Arc::new(overlay);
    exercise(&dev, 1);
}

/// One damage, of eight bytes.
pub(crate) fn damage(base: &Base, dev: &Overlay, input: &mut Input<'_>) {
    let structure = base.structures[input.number() % base.structures.len()];
    let [how] = input.take();
    let place = input.number();
    let value: [u8; 3] = input.take();
    let mut bytes = vec![0; structure.len];
    read(dev, structure.at, &mut bytes);
    let number = u64::from_be_bytes([0, 0, 0, 0, 0, value[0], value[1], value[2]]);
    match how % 8 {
        0 => bytes[place % structure.len] = value[0],
        1 => put(&mut bytes, place, 2, number),
        2 => put(&mut bytes, place & !3, 4, number),
        3 => {
            let number = if value[0] & 1 == 0 { number } else { !number };
            put(&mut bytes, place & !7, 8, number);
        }
        4 => copy_inside(&mut bytes, place, value),
        5 => other(base, dev, &structure, place, &mut bytes),
        6 => return log_block(base, dev, place, number),
        _ => field(&structure, &mut bytes, place, value),
    }
    if let Some(at) = structure.crc() {
        crc::stamp(&mut bytes, at);
    }
    write(dev, structure.at, &bytes);
}

fn read(dev: &Overlay, at: u64, bytes: &mut [u8]) {
    dev.read_at(at, bytes).unwrap_or_else(|e| panic!("{at}: {e}"));
}

fn write(dev: &Overlay, at: u64, bytes: &[u8]) {
    dev.write_at(at, bytes).unwrap_or_else(|e| panic!("{at}: {e}"));
}

/// A number of `len` bytes at an offset that is clamped to the structure.
fn put(bytes: &mut [u8], place: usize, len: usize, number: u64) {
    let at = place % (bytes.len() - len + 1);
    bytes[at..at + len].copy_from_slice(&number.to_be_bytes()[8 - len..]);
}

/// Records over others: from one place to another.
fn copy_inside(bytes: &mut [u8], place: usize, value: [u8; 3]) {
    let len = usize::from(value[2] % 64) + 1;
    let from = usize::from(u16::from_be_bytes([value[0], value[1]]));
    let last = bytes.len() - len + 1;
    let from = from % last;
    bytes.copy_within(from..from + len, place % last);
}

/// The content of another structure, which may be of another kind, under this one's address.
fn other(base: &Base, dev: &Overlay, own: &Structure, place: usize, bytes: &mut [u8]) {
    let other = base.structures[place % base.structures.len()];
    let mut from = vec![0; other.len];
    read(dev, other.at, &mut from);
    let len = from.len().min(bytes.len());
    let blkno = match own.kind {
        Kind::Buffer(kind) => kind.layout().and_then(|layout| layout.blkno),
        _ => None,
    };
    let kept = blkno.map(|at| bytes[at..at + 8].to_vec());
    bytes[..len].copy_from_slice(&from[..len]);
    if let (Some(at), Some(kept)) = (blkno, kept) {
        bytes[at..at + 8].copy_from_slice(&kept);
    }
}

/// One number anywhere in the log.
fn log_block(base: &Base, dev: &Overlay, place: usize, number: u64) {
    let start = base.geo.fsb_daddr(base.geo.log_start).bytes();
    let blocks = u64::from(base.geo.log_blocks) << base.geo.block_log;
    let at = start + place as u64 * 4 % (blocks - BASIC_BLOCK as u64);
    write(dev, at, &(number as u32).to_be_bytes());
}

/// A named field, set to an interesting value.
fn field(structure: &Structure, bytes: &mut [u8], place: usize, value: [u8; 3]) {
    let mut rng = Rng::new(value[2].into());
    let fields = fields(structure.kind, bytes, &mut rng);
    let Some((_, at, len)) = fields.get(place % fields.len().max(1)) else { return };
    let field = &mut bytes[*at..at + len];
    let last = len - 1;
    match value[0] % 8 {
        0 => field.fill(0),
        1 => field.fill(0xff),
        2 => field[last] = field[last].wrapping_add(value[1]),
        3 => field[last] = field[last].wrapping_sub(value[1]),
        4 => field[usize::from(value[1]) % len] ^= 1 << (value[1] >> 5),
        5 => field[last] = value[1],
        6 => field[0] = value[1],
        _ => {
            field.fill(0);
            field[usize::from(value[1] >> 4) % len] = 1 << (value[1] & 7);
        }
    }
}
