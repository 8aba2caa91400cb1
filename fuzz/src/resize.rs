//! Volumes grown and shrunk, also damaged ones.

use std::sync::{Arc, OnceLock};

use uxfs::{Fs, OpenOptions};
use uxfs_disk::{BlockDev, MemDev};

use crate::Input;
use crate::base::{Base, FEATURES, MOMENT, full};
use crate::exercise::examine;
use crate::image;
use uxfs_disk::Overlay;

/// Most damages before the resizes, and most resizes.
const DAMAGES: usize = 6;
const LENGTHS: usize = 4;
/// Space after the volume.
const ROOM: u64 = 24 << 20;

/// The volumes of [`full`] in devices that are longer.
fn roomy() -> &'static [Base] {
    static BASES: OnceLock<Vec<Base>> = OnceLock::new();
    BASES.get_or_init(|| {
        let longer = |base: &Base| {
            let dev = MemDev::new(base.memory.len() + ROOM);
            let mut buf = vec![0; 64 << 10];
            for at in (0..base.memory.len()).step_by(buf.len()) {
                let read = base.memory.read_at(at, &mut buf);
                let moved = read.and_then(|()| match buf.iter().any(|b| *b != 0) {
                    true => dev.write_at(at, &buf),
                    false => Ok(()),
                });
                moved.unwrap_or_else(|e| panic!("{e}"));
            }
            Base::new(Arc::new(dev))
        };
        full()[..4].iter().map(longer).collect()
    })
}

/// The volume's number, how many damages, three bytes for each length, and the damages.
pub fn resize(data: &[u8]) {
    let mut input = Input(data);
    let bases = roomy();
    let number = usize::from(input.byte());
    let base = &bases[number % bases.len()];
    let damages = usize::from(input.byte()) % (DAMAGES + 1);
    let lengths: Vec<[u8; 3]> = (0..LENGTHS).map(|_| input.take()).collect();
    let overlay = Arc::new(Overlay::new(Arc::clone(&base.memory) as _, usize::MAX));
    let sound = damages == 0 || input.is_empty();
    for _ in 0..damages {
        if !input.is_empty() {
            image::damage(base, &overlay, &mut input);
        }
    }
    let most = overlay.len() >> base.geo.block_log;
    for raw in lengths {
        let blocks = u64::from_be_bytes([0, 0, 0, 0, 0, raw[0], raw[1], raw[2]]) % (most + 2);
        let mut options = OpenOptions::default();
        options.clock = uxfs::clock::Clock::Fixed(MOMENT);
        options.seed = Some(7);
        let Ok(fs) = Fs::open(Arc::clone(&overlay) as Arc<dyn BlockDev>, options) else { break };
        // Within the last group: what comes behind it is made by mkfs, of which nothing is damaged.
        let group = u64::from(fs.geo.ag_blocks);
        let within = fs.geo.dblocks.div_ceil(group) * group;
        let done = match blocks > fs.geo.dblocks {
            true => fs.grow(blocks.min(within).min(most), 0).is_ok(),
            false => fs.shrink(blocks).is_ok(),
        };
        if !done {
            break;
        }
        if sound {
            assert_eq!(examine(&*overlay, 1), None, "{blocks} blocks, of {}", FEATURES[number % 4]);
        }
    }
}
