//! Command-line words of users.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use uxfs::mkfs as make;
use uxfs_disk::MemDev;
use uxfs_format::timestamp::Timestamp;

use crate::Input;
use crate::base::MOMENT;
use crate::cli::{mode, number, pattern, place, quote, time};
use crate::exercise::examine;

/// Largest volume that is made, not only planned.
const MADE_MAX: u64 = 80 << 20;

/// Options of mkfs, a line each; what they make is sound.
pub fn mkfs(data: &[u8]) {
    let mut input = Input(data);
    let size = input.byte();
    let sizes: [u64; 8] =
        [64 << 20, 16 << 20, 300 << 20, 1 << 30, 1 << 40, 1 << 50, (1 << 63) - 512, 8 << 40];
    let bytes = sizes[usize::from(size & 7)] + 512 * u64::from(size >> 4);
    let mut options = make::Options::default();
    options.unsupported = size & 8 == 0;
    let text = String::from_utf8_lossy(input.0);
    for line in text.lines() {
        let Some(letter) = line.chars().next() else { continue };
        let rest = line[letter.len_utf8()..].trim_start();
        if options.apply(letter, rest).is_err() {
            return;
        }
    }
    let Ok(layout) = make::Layout::new(&options, bytes) else { return };
    let _ = make::table(&layout, "fuzz");
    assert!(layout.size_bytes() <= bytes);
    if layout.size_bytes() > MADE_MAX {
        return;
    }
    // A device may be longer than its volume, but not as long as the largest of these sizes.
    let dev = Arc::new(MemDev::new(bytes.min(2 * MADE_MAX)));
    let mut how = make::WriteOptions::default();
    how.zero_log = true;
    how.now = Some(MOMENT);
    make::write(&layout, &*dev, &how).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(examine(&*dev, 1), None);
}

/// Modes, sizes, patterns, places, times.
pub fn cli(data: &[u8]) {
    let (left, right) = data.split_at(data.len() / 2);
    let _ = pattern::matches(left, right, left.len() % 2 == 0);
    assert!(pattern::matches(b"*", data, false));
    for name in [data, left] {
        let _ = (quote::shell(name), quote::message(name), quote::escaped(name));
        let _ = (quote::masked(name), quote::width(name));
        let inside = place::Inside::parse(OsStr::from_bytes(name));
        let _ = (inside.shown(), inside.base(), inside.parent(), inside.join(right));
        let _ = place::Place::parse(OsStr::from_bytes(name));
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Some(change) = mode::Change::parse(text) {
        for old in [0, 0o40755, 0o100_644, u16::MAX] {
            let new = change.apply(old, 0o022);
            assert_eq!(new & 0o170_000, 0);
            let _ = (mode::letters(new), mode::type_letter(new), mode::type_words(new, 0));
        }
    }
    if let Some(size) = number::size(text) {
        let _ = number::human(size);
    }
    for sec in [0, MOMENT.sec, i64::MAX, i64::MIN, -62_135_596_801, 253_402_300_800] {
        let moment = Timestamp { sec, nsec: 5 };
        let _ = time::full(moment);
        let _ = time::format(moment, text);
        if let Ok(style) = time::Style::parse(text) {
            let _ = style.show(moment, MOMENT);
        }
    }
}
