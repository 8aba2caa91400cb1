//! Option combinations and sizes.

use crate::bytes::difference;
use crate::pair::{GIB, MIB, Outcome, Pair, TIB};

const CASES: &[&str] = &[
    "",
    "-b size=64k -d su=512k,sw=1",
    "-l size=38389b",
    "-l size=38388b -m rmapbt=1",
    "-b size=1k",
    "-b size=2k",
    "-b size=8k",
    "-b size=16k",
    "-b size=32k",
    "-b size=64k",
    "-b size=64k -i size=1024",
    "-b size=64k -m rmapbt=1",
    "-b size=64k -i sparse=0",
    "-b size=32k -d su=256k,sw=2 -m rmapbt=1,reflink=0",
    "-b size=1k -m rmapbt=1",
    "-b size=1k -i sparse=0",
    "-b size=1k -d su=32k,sw=2",
    "-b size=1k -n size=64k",
    "-b size=1k -i perblock=2",
    "-s size=1024",
    "-s size=4096",
    "-s size=4096 -m rmapbt=1",
    "-s size=4096 -b size=8192",
    "-s size=32768 -b size=64k",
    "-s size=4096 -d su=64k,sw=4",
    "-i size=1024",
    "-i size=2048",
    "-i sparse=0",
    "-i nrext64=1",
    "-i maxpct=10",
    "-i maxpct=0",
    "-n size=8k",
    "-n size=64k",
    "-n version=ci",
    "-n version=CI,size=8k -b size=1k",
    "-n version=ci -s size=4096 -d su=64k,sw=4 -m rmapbt=1",
    "-m rmapbt=1",
    "-m rmapbt=1 -i nrext64=1",
    "-m rmapbt=1,reflink=0",
    "-m rmapbt=1,reflink=0,finobt=0",
    "-m reflink=0",
    "-m finobt=0",
    "-m inobtcount=0",
    "-m bigtime=0",
    "-d agcount=2",
    "-d agcount=5",
    "-d agsize=80m",
    "-d size=350m",
    "-d size=350m,agcount=2 -b size=1k",
    "-d su=64k,sw=4",
    "-d su=64k,sw=1",
    "-d su=60k,sw=3",
    "-d su=512k,sw=4 -m rmapbt=1",
    "-d su=64k,sw=4 -i sparse=0",
    "-d sunit=128,swidth=512",
    "-d noalign",
    "-d extszinherit=16",
    "-d cowextsize=16",
    "-d projinherit=42",
    "-d rtinherit=1",
    "-d daxinherit=1",
    "-l su=64k",
    "-l su=256k -m rmapbt=1",
    "-l su=8k",
    "-l sunit=24",
    "-l size=100m",
    "-l size=70m,agnum=0",
    "-l agnum=0,su=64k",
    "-l agnum=1",
    "-L twelve-bytes",
    "-L a",
    "-d agsize=0x5000000 -l size=0400000s",
];

/// Makes the volume with both programs; both must make the same volume, or both must refuse.
fn alike(size: u64, line: &str, repair: bool) -> Result<Outcome, String> {
    let pair = Pair::new(size);
    let outcome = pair.make(line, false, false)?;
    if matches!(outcome, Outcome::Made) {
        if let Some(found) = difference(&pair.theirs, &pair.ours) {
            return Err(format!("{size} bytes, {line}: {found}"));
        }
        if repair {
            pair.repair().map_err(|said| format!("{size} bytes, {line}: {said}"))?;
        }
    }
    Ok(outcome)
}

#[test]
fn every_case_is_made_alike_and_repair_finds_nothing() {
    for line in CASES {
        let outcome = alike(600 * MIB, line, true).unwrap();
        assert!(matches!(outcome, Outcome::Made), "{line}: {outcome:?}");
    }
}

#[test]
fn larger_volumes_are_made_alike() {
    for size in [300 * MIB, 8 * GIB, 1025 * MIB + 12345] {
        for line in CASES {
            alike(size, line, false).unwrap();
        }
    }
}

#[test]
fn very_large_volumes_are_made_alike() {
    for size in [100 * GIB, 513 * GIB, TIB, 4 * TIB - 4096, 4 * TIB, 5 * TIB] {
        for line in ["", "-m rmapbt=1", "-b size=1k", "-d su=100k,sw=4", "-l su=12k"] {
            // mkfs.xfs allocates the log: 2 GiB of real disk from 4 TiB on. Its default sizes are
            // compared by the tables below.
            let line = match size < TIB {
                true => line.to_owned(),
                false => format!("{line} -l size=75m"),
            };
            let outcome = alike(size, &line, false).unwrap();
            assert!(matches!(outcome, Outcome::Made), "{line}: {outcome:?}");
        }
    }
}

#[test]
fn tables_agree_over_all_sizes() {
    let sizes = [301, 333, 400, 511, 512, 1000, 1024, 4096, 8191, 8192, 8193, 131_072, 524_289]
        .map(|size| size * MIB);
    for size in sizes.into_iter().chain([TIB - 1, TIB, 2 * TIB + 77_777, 5 * TIB]) {
        let pair = Pair::new(size);
        for line in ["", "-b size=64k", "-d su=64k,sw=8", "-d su=512k,sw=3", "-d agcount=7"] {
            pair.make(line, false, true).unwrap();
        }
    }
}
