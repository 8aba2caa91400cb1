//! Reading while the device fails in part: what is there is read, and a guest holds what it was
//! shown.

use std::collections::HashSet;
use std::sync::Arc;

use uxfs::disk::{BlockDev, FileDev, OpenMode};
use uxfs::format::FsBlock;
use uxfs::posix::Creator;
use uxfs::{Fs, NewInode};
use uxfs_fuse::{MemoryGuest, Options};
use uxfs_testkit::{EIO, FaultDev, Op, Rule};

use crate::guests::{first_request, request};
use crate::rig::Image;

const SIZE: u64 = 320 << 20;

const LOOKUP: u32 = 1;
const GETATTR: u32 = 3;
const READLINK: u32 = 5;
const READ: u32 = 15;
const READDIR: u32 = 28;
const READDIRPLUS: u32 = 44;

fn device(image: &Image) -> Arc<FaultDev<FileDev>> {
    Arc::new(FaultDev::new(image.device(OpenMode::Write)).unsynced())
}

fn open(dev: &Arc<FaultDev<FileDev>>, options: &Options) -> Fs {
    Fs::open(Arc::clone(dev) as Arc<dyn BlockDev>, options.open_options()).unwrap()
}

/// Sends a request. Returns the error of the reply, and its body.
fn ask(guest: &MemoryGuest, opcode: u32, node: u64, body: &[u8]) -> (i32, Vec<u8>) {
    let reply = guest.request(&request(opcode, node, body), 1 << 20).remove(0);
    let error = i32::from_le_bytes(*reply[4..].first_chunk().unwrap());
    (error, reply[16..].to_vec())
}

/// The body of a request that reads.
fn reading(offset: u64, len: u64) -> Vec<u8> {
    [0, offset, len, 0, 0].iter().flat_map(|word: &u64| word.to_le_bytes()).collect()
}

/// A host whose disk is full refuses metadata until memory is full of it, and then the volume
/// refuses every change. An access time is a change that the reader did not ask for.
#[test]
fn a_full_host_keeps_nothing_from_being_read() {
    const ENOSPC: i32 = 28;
    let image = Image::new(SIZE, &[]);
    let options = Options::parse("strictatime,cache_bytes=1m").unwrap();
    let dev = device(&image);
    let fs = open(&dev, &options);
    let file = fs.create(fs.root(), b"file", &NewInode::file(0o644)).unwrap();
    fs.write_at(file, 0, b"content").unwrap();
    let dir = fs.create(fs.root(), b"dir", &NewInode::dir(0o755)).unwrap();
    fs.create(dir, b"inside", &NewInode::file(0o644)).unwrap();
    let creator = Creator { uid: 0, gid: 0, umask: 0 };
    let link = creator.symlink(&fs, fs.root(), b"link", b"target").unwrap();
    fs.sync().unwrap();
    // What lies in front of the log.
    let log = fs.geo.fsb_daddr(FsBlock(fs.superblock().logstart.get())).bytes();
    dev.add(Rule::on(Op::WRITES).within(0..log).fail(ENOSPC));
    let refused = (0..100_000).find_map(|number| {
        let name = format!("a name long enough to fill memory before long {number:05}");
        let made = fs.create(fs.root(), name.as_bytes(), &NewInode::file(0o644));
        if number % 100 == 0 {
            fs.sync().unwrap();
        }
        made.err()
    });
    assert_eq!(refused.map(|error| error.errno()), Some(ENOSPC));

    let guest = MemoryGuest::new(fs, &options);
    guest.request(&first_request(), 4096);
    for name in [&b"file\0"[..], b"dir\0", b"link\0"] {
        assert_eq!(ask(&guest, LOOKUP, 1, name).0, 0);
    }
    assert_eq!(ask(&guest, READ, file.0, &reading(0, 100)), (0, b"content".to_vec()));
    assert_eq!(ask(&guest, READLINK, link.0, &[]), (0, b"target".to_vec()));
    for opcode in [READDIR, READDIRPLUS] {
        let (error, listing) = ask(&guest, opcode, dir.0, &reading(0, 4096));
        assert_eq!(error, 0, "{opcode}");
        assert!(listing.windows(6).any(|name| name == b"inside"), "{opcode}");
    }
    assert_eq!(guest.stopped_by(), None);
    dev.clear();
    guest.end().unwrap();
    drop(dev);
    image.judge();
}

/// The inodes in a listing with attributes, and where it goes on.
fn listed(listing: &[u8]) -> (Vec<u64>, Option<u64>) {
    let number = |at: usize| u64::from_le_bytes(*listing[at..].first_chunk().unwrap());
    let (mut nodes, mut next, mut at) = (Vec::new(), None, 0);
    while at < listing.len() {
        nodes.extend(Some(number(at)).filter(|node| *node != 0));
        next = Some(number(at + 136));
        let name = (number(at + 144) & 0xffff_ffff) as usize;
        at += (152 + name).next_multiple_of(8);
    }
    (nodes, next)
}

/// The device fails from some read on, at each place in turn. Whatever comes of it, the guest holds
/// the inodes that it was shown and no other: it would never forget one of which it does not know.
#[test]
fn a_listing_that_fails_holds_only_what_it_showed() {
    let image = Image::new(SIZE, &[]);
    let fs = image.open();
    let dir = fs.create(fs.root(), b"dir", &NewInode::dir(0o755)).unwrap();
    let files: Vec<u64> = (0..300)
        .map(|number| fs.create(dir, format!("{number:0200}").as_bytes(), &NewInode::file(0o644)))
        .map(|file| file.unwrap().0)
        .collect();
    fs.close().unwrap();
    let stale = -rustix::io::Errno::STALE.raw_os_error();
    let mut in_part = 0;
    for reads in 0.. {
        let dev = device(&image);
        let options = Options::parse("noatime").unwrap();
        let guest = MemoryGuest::new(open(&dev, &options), &options);
        guest.request(&first_request(), 4096);
        assert_eq!(ask(&guest, LOOKUP, 1, b"dir\0").0, 0);
        dev.add(Rule::on(&[Op::Read]).after(reads).fail(EIO));
        let (mut shown, mut offset) = (HashSet::new(), 0);
        let failed = loop {
            let (error, listing) = ask(&guest, READDIRPLUS, dir.0, &reading(offset, 500_000));
            let (nodes, next) = listed(&listing);
            shown.extend(nodes);
            match next {
                _ if error != 0 => break true,
                Some(next) => offset = next,
                None => break false,
            }
        };
        dev.clear();
        for file in &files {
            let expected = if shown.contains(file) { 0 } else { stale };
            let held = ask(&guest, GETATTR, *file, &[0; 16]).0;
            assert_eq!(held, expected, "{file} after {reads} reads");
        }
        guest.end().unwrap();
        in_part += u32::from(failed && !shown.is_empty());
        if !failed {
            assert_eq!(shown.len(), files.len());
            break;
        }
    }
    assert!(in_part > 0, "no listing failed in its midst");
    image.judge();
}
