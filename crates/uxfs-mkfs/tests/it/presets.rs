//! Compares presets and option files with mkfs.xfs 7 and its own option files.

use std::fs::read_to_string;

use uxfs_disk::{FileDev, OpenMode};
use uxfs_mkfs::{Layout, Options, PRESETS, WriteOptions, write};
use uxfs_oracle::Xfsprogs;

use crate::bytes::difference_to_newer;
use crate::pair::{MIB, Pair, options};

const UUID: &str = "-m uuid=01234567-89ab-4def-8123-456789abcdef";
const SIZE: u64 = 600 * MIB;

/// Makes the volume with mkfs.xfs 7 (`theirs`) and with this crate (`ours`); both must be equal.
fn alike(theirs: &str, ours: Options, at: &str) {
    let pair = Pair::new(SIZE);
    let words: Vec<&str> = UUID.split(' ').chain(theirs.split_whitespace()).collect();
    Xfsprogs::Current.mkfs(&pair.theirs, SIZE, &words);
    let ours = options(UUID).unwrap().or(&ours);
    let layout = Layout::new(&ours, SIZE).unwrap_or_else(|e| panic!("{at}: {e}"));
    let dev = FileDev::open(&pair.ours, OpenMode::Write).unwrap();
    write(&layout, &dev, &WriteOptions::default()).unwrap();
    drop(dev);
    assert_eq!(difference_to_newer(&pair.theirs, &pair.ours), None, "{at}");
    for image in [&pair.theirs, &pair.ours] {
        uxfs_oracle::both(image).unwrap_or_else(|f| panic!("{at}: {f}"));
    }
}

/// Every preset equals xfsprogs' option file of the same name, read by mkfs.xfs and by this crate.
#[test]
fn presets_equal_the_option_files_of_xfsprogs() {
    for preset in PRESETS.iter().filter(|preset| preset.name != "default") {
        let file = Xfsprogs::Current.option_file(preset.file);
        let mut read = Options::default();
        read.apply_file(preset.file, &read_to_string(&file).unwrap()).unwrap();
        assert_eq!(read, preset.options(), "{}", preset.name);
        for more in ["", "-b size=1k", "-s size=4096 -i size=1024 -d agcount=3", "-d su=64k,sw=4"] {
            let at = format!("{} {more}", preset.name);
            let theirs = format!("-c options={} {more}", file.display());
            alike(&theirs, options(more).unwrap().or(&preset.options()), &at);
        }
    }
}

#[test]
fn the_default_preset_equals_mkfs_without_options() {
    let preset = PRESETS.iter().find(|preset| preset.name == "default").unwrap();
    for more in [
        "",
        "-b size=2k -n size=16k",
        "-n version=ci",
        "-m rmapbt=0",
        "-m autofsck=optimize -i size=2048",
    ] {
        alike(more, options(more).unwrap().or(&preset.options()), more);
    }
}

/// The command line overrides a defaults file, as in mkfs.xfs 7.
#[test]
fn the_command_line_overrides_defaults_as_in_mkfs() {
    let file = Xfsprogs::Current.option_file("lts_6.18");
    let mut defaults = Options::default();
    defaults.apply_file("lts_6.18", &read_to_string(&file).unwrap()).unwrap();
    for more in ["-m finobt=0", "-m reflink=0", "-n parent=0", "-i exchange=0,nrext64=0"] {
        let theirs = format!("-c defaults={} {more}", file.display());
        alike(&theirs, options(more).unwrap().or(&defaults), more);
    }
}

/// The comparison finds a wrong feature.
#[test]
fn one_changed_feature_is_a_difference() {
    let pair = Pair::new(SIZE);
    let file = Xfsprogs::Current.option_file("lts_6.12");
    let theirs = format!("{UUID} -c options={}", file.display());
    Xfsprogs::Current.mkfs(&pair.theirs, SIZE, &theirs.split(' ').collect::<Vec<_>>());
    let wrong = format!("{UUID} -m autofsck=check -m bigtime=1,rmapbt=1 -i nrext64=1");
    let layout = Layout::new(&options(&wrong).unwrap(), SIZE).unwrap();
    let dev = FileDev::open(&pair.ours, OpenMode::Write).unwrap();
    write(&layout, &dev, &WriteOptions::default()).unwrap();
    drop(dev);
    let found = difference_to_newer(&pair.theirs, &pair.ours);
    assert!(found.is_some(), "autofsck=check passes for none");
}
