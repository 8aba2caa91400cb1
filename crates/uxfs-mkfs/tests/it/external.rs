//! Volumes whose log is on a device of its own.

use std::fs::File;
use std::os::unix::fs::FileExt;

use uxfs_disk::{BlockDev, MemDev};
use uxfs_mkfs::{Layout, WriteOptions, write, write_with_log};

use crate::bytes::difference;
use crate::pair::{GIB, MIB, Outcome, Pair, options};

const CASES: &[&str] = &[
    "-l logdev=@LOG",
    "-l name=@LOG",
    "-l file=0,name=@LOG",
    "-l logdev=@LOG,size=64m",
    "-l logdev=@LOG,size=65m,su=64k",
    "-l logdev=@LOG,su=4k",
    "-l logdev=@LOG,sunit=24,size=96m",
    "-l logdev=@LOG,size=100000k",
    "-l logdev=@LOG -m rmapbt=1",
    "-l logdev=@LOG -m rmapbt=1,reflink=0,finobt=0",
    "-l logdev=@LOG -b size=1k",
    "-l logdev=@LOG,su=8k -b size=1k",
    "-l logdev=@LOG -b size=64k",
    "-l logdev=@LOG,su=64k -b size=64k",
    "-l logdev=@LOG -s size=4096",
    "-l logdev=@LOG,sectsize=4096 -s size=4096",
    "-l logdev=@LOG -s size=1024 -b size=2k",
    "-l logdev=@LOG -d su=64k,sw=4",
    "-l logdev=@LOG,su=32k -d su=64k,sw=4 -m rmapbt=1",
    "-l logdev=@LOG -d agcount=2",
    "-l logdev=@LOG -d agcount=7 -i nrext64=1",
    "-l logdev=@LOG -i sparse=0 -n version=ci",
];

/// The first difference of the two log devices. Behind the logs both have what was there before.
pub(crate) fn difference_of_logs(pair: &Pair) -> Option<String> {
    let [theirs, ours] =
        pair.logs.as_ref().unwrap().each_ref().map(|path| File::open(path).unwrap());
    let len = theirs.metadata().unwrap().len();
    assert_eq!(len, ours.metadata().unwrap().len());
    let (mut a, mut b) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    let mut at = 0;
    while at < len {
        let step = (len - at).min(1 << 20) as usize;
        theirs.read_exact_at(&mut a[..step], at).unwrap();
        ours.read_exact_at(&mut b[..step], at).unwrap();
        if let Some(i) = (0..step).find(|i| a[*i] != b[*i]) {
            return Some(format!(
                "byte {:#x} of the log is {:#04x}, not {:#04x}",
                at + i as u64,
                b[i],
                a[i]
            ));
        }
        at += step as u64;
    }
    None
}

/// Makes the volume with both programs: both must make the same bytes on both devices, or both must refuse.
fn alike(size: u64, log: u64, line: &str) -> Outcome {
    let pair = Pair::new(size).with_logs(log);
    let outcome = pair.make(line, false, false).unwrap();
    if matches!(outcome, Outcome::Made) {
        assert_eq!(difference(&pair.theirs, &pair.ours), None, "{line}");
        assert_eq!(difference_of_logs(&pair), None, "{line}");
        pair.repair().unwrap_or_else(|said| panic!("{line}: {said}"));
    }
    outcome
}

#[test]
fn every_case_is_made_alike_on_both_devices() {
    for line in CASES {
        let outcome = alike(600 * MIB, 100 * MIB, line);
        assert!(matches!(outcome, Outcome::Made), "{line}: {outcome:?}");
    }
}

#[test]
fn devices_of_all_lengths_make_the_same_logs_or_are_refused() {
    let mut made = 0;
    for log in [
        0,
        1 << 20,
        8 << 20,
        63 << 20,
        64 << 20,
        100_000_001,
        300 << 20,
        2038 << 20,
        2039 << 20,
        5 << 30,
    ] {
        for line in [
            "-l logdev=@LOG",
            "-l logdev=@LOG -b size=1k",
            "-l logdev=@LOG -b size=64k -m rmapbt=1",
        ] {
            let pair = Pair::new(GIB).with_logs(log);
            made += u32::from(matches!(pair.make(line, false, true).unwrap(), Outcome::Made));
        }
    }
    assert_eq!(made, 9);
}

/// mkfs.xfs rounds the log up, beyond the end of its device.
#[test]
fn a_log_ends_with_the_device_also_if_its_stripe_unit_does_not_divide_it() {
    let line = "-l logdev=@LOG,su=256k";
    let pair = Pair::new(600 * MIB).with_logs(70_000 << 10);
    assert!(pair.make(line, false, true).is_err());
    let mut options = options(line).unwrap();
    options.log.device_bytes = Some(70_000 << 10);
    let layout = Layout::new(&options, 600 * MIB).unwrap();
    assert_eq!(layout.log_device_bytes(), Some(69_888 << 10));
}

#[test]
fn the_devices_must_be_there_and_long_enough() {
    let how = WriteOptions::default();
    let data = MemDev::new(600 * MIB);
    let mut external = options("-l logdev=log.img,size=64m").unwrap();
    let refused = Layout::new(&external, data.len()).unwrap_err();
    assert!(refused.to_string().contains("maximum is 0 blocks"), "{refused}");
    external.log.device_bytes = Some(64 * MIB);
    let external = Layout::new(&external, data.len()).unwrap();
    let internal = Layout::new(&options("").unwrap(), data.len()).unwrap();
    let error = write(&external, &data, &how).unwrap_err().to_string();
    assert!(error.contains("external log is not there"), "{error}");
    let short = MemDev::new(64 * MIB - 4096);
    let error = write_with_log(&external, &data, &short, &how).unwrap_err().to_string();
    assert!(error.contains("the log takes 67108864 bytes, the device has 67104768"), "{error}");
    let error = write_with_log(&internal, &data, &short, &how).unwrap_err().to_string();
    assert!(error.contains("internal log"), "{error}");
}

#[test]
fn one_changed_byte_of_the_log_is_found() {
    let pair = Pair::new(300 * MIB).with_logs(64 * MIB);
    pair.make("-l logdev=@LOG", false, false).unwrap();
    assert_eq!(difference_of_logs(&pair), None);
    let [_, log] = pair.logs.as_ref().unwrap();
    let file = File::options().read(true).write(true).open(log).unwrap();
    for at in [3, 0x200, 32 * MIB + 5, 64 * MIB - 1] {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 1], at).unwrap();
        let found = difference_of_logs(&pair).unwrap();
        assert!(found.contains(&format!("byte {at:#x}")), "{found}");
        file.write_all_at(&byte, at).unwrap();
    }
    assert_eq!(difference_of_logs(&pair), None);
}
