//! Options that must be refused, and unusual ones that must be accepted.

use uxfs_mkfs::{Layout, MkfsError};

use crate::pair::{GIB, MIB, Outcome, Pair, options};

const REFUSED: &[&str] = &[
    "-b size=512",
    "-b size=3000",
    "-b size=128k",
    "-b size=8b",
    "-b foo=1",
    "-b size=",
    "-s size=256",
    "-s size=8192",
    "-s size=1b",
    "-s size=4096 -l sectsize=512",
    "-l sectsize=4096",
    "-s size=512 -l sectsize=4096",
    "-d agcount=5k",
    "-d agcount=",
    "-d agcount",
    "-d agcount=0",
    "-d agcount=100",
    "-d agcount=1",
    "-d agsize=1g",
    "-d agsize=1m",
    "-d agsize=2t",
    "-d agsize=100000001",
    "-d agcount=2,agcount=3",
    "-d agcount=2 -d agsize=100m",
    "-d foo=1",
    "-d ,agcount=4",
    "-d size=100m",
    "-d size=299m",
    "-d size=2g",
    "-d size=0",
    "-d size=0x3b",
    "-d size=12q",
    "-d size=-1",
    "-d file",
    "-d sunit=8k,swidth=16k",
    "-d sunit=8",
    "-d swidth=8",
    "-d sunit=16,swidth=8",
    "-d sunit=8,swidth=12",
    "-d su=64k",
    "-d sw=4",
    "-d su=64k,swidth=16",
    "-d sunit=8,sw=2",
    "-d su=65537,sw=2",
    "-d su=512,sw=2",
    "-d noalign -d su=64k,sw=4",
    "-d su=64k,sw=2 -d noalign",
    "-d extszinherit=9999999",
    "-d cowextsize=9999999",
    "-d cowextsize=10 -m reflink=0",
    "-d projinherit=-1",
    "-d rtinherit=2",
    "-i size=1k",
    "-i size=300",
    "-i size=256",
    "-i size=4096",
    "-b size=1k -i size=1024",
    "-i perblock=1",
    "-i perblock=16",
    "-i size=512,perblock=8",
    "-i maxpct=101",
    "-i maxpct=5k",
    "-i attr=1",
    "-i attr=3",
    "-i projid32bit=0",
    "-i align=0",
    "-i sparse=2",
    "-i log=9",
    "-l agnum=4",
    "-l size=3g",
    "-l size=2g",
    "-l size=10m",
    "-l size=1m",
    "-l size=0",
    "-l size=65536b",
    "-l sunit=0",
    "-l sunit=9",
    "-l su=5000",
    "-l su=512k",
    "-l su=4k,sunit=8",
    "-l su=64k,size=70000k",
    "-l version=1",
    "-l lazy-count=0",
    "-l internal=0",
    "-l internal=0,size=70m",
    "-l logdev=",
    "-l internal,logdev=@LOG",
    "-l logdev=@LOG,agnum=1",
    "-l agnum=1,logdev=@LOG",
    "-l logdev=@LOG,logdev=@LOG",
    "-l logdev=@LOG,name=@LOG",
    "-l file,logdev=@LOG",
    "-l logdev=@LOG,size=101m",
    "-l logdev=@LOG,size=10m",
    "-l logdev=@LOG,size=1m",
    "-l logdev=@LOG,size=70000k,su=64k",
    "-l logdev=@LOG,su=5000",
    "-m finobt=0,inobtcount=1",
    "-m rmapbt=2",
    "-m uuid=junk",
    "-m foo=1",
    "-n version=1",
    "-n size=131072",
    "-n size=2048",
    "-n size=5000",
    "-n ftype=0",
    "-n size=4k -b size=8k",
    "-d agcount=4 -l agnum=0,size=65520b",
    "-L thirteen-bytes",
    "-d agcount=33",
];

#[test]
fn options_that_mkfs_refuses_are_refused() {
    let pair = Pair::new(GIB).with_logs(100 * MIB);
    for line in REFUSED {
        let outcome = pair.make(line, false, true).unwrap();
        assert!(matches!(outcome, Outcome::Refused), "{line}: {outcome:?}");
    }
}

#[test]
fn options_that_mkfs_refuses_only_when_it_writes_are_refused() {
    let pair = Pair::new(GIB);
    for line in [
        "-l agnum=0,su=256k",
        "-d su=128m,sw=1",
        // The last group is too short for the log.
        "-d agsize=600m -l size=500m,agnum=1",
    ] {
        let outcome = pair.make(line, false, false).unwrap();
        assert!(matches!(outcome, Outcome::Refused), "{line}: {outcome:?}");
    }
}

#[test]
fn unusual_but_valid_options_are_accepted() {
    let odd = [
        "-b size=4K",
        "-d size=500M",
        "-d size=+500m",
        "-d agcount=0x5",
        "-d agcount=05",
        "-d agcount=4,",
        "-d su=0,sw=0",
        "-d su=0,sw=1",
        "-d sunit=0,swidth=0",
        "-n size=1b",
        "-n size=2b",
        "-l su=8b -b size=1k",
        "-l internal",
        "-l sectsize=512 -s size=4096",
        "-l sectsize=4096 -s size=512",
        "-s size=4096 -l sectsize=4096",
        "-l file",
        "-l file,size=70m",
        "-i sparse",
        "-m finobt",
        "-d noalign=0",
        "-d size=1000000s",
        "-d size=100000b -b size=8k",
        "-d sectsize=4096",
        "-s sectsize=4096",
        "-i attr=2",
        "-l version=2",
        "-n version=2",
        "-d rtinherit",
    ];
    let pair = Pair::new(GIB);
    for line in odd {
        let outcome = pair.make(line, false, true).unwrap();
        assert!(matches!(outcome, Outcome::Made), "{line}: {outcome:?}");
    }
}

#[test]
fn unsupported_options_are_refused_by_name() {
    for (line, name) in [
        ("-m crc=0", "crc=0"),
        ("-m metadir=1", "metadir=1"),
        ("-l logdev=/dev/sdb,sectsize=4096", "-l sectsize"),
    ] {
        let error = options(line).and_then(|o| Layout::new(&o, GIB).map(|_| ())).unwrap_err();
        assert!(matches!(error, MkfsError::Unsupported { .. }), "{line}: {error}");
        assert!(error.to_string().contains(name), "{line}: {error}");
    }
}
