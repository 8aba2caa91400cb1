//! Tests: requests of all kinds reach their method with their arguments, and any bytes are answered
//! with an error, never a panic.

use std::time::Duration;

use parking_lot::Mutex;
use zerocopy::{FromBytes, IntoBytes};

use crate::abi::{self, InHeader, OutHeader, op};
use crate::attr::{Attr, Entry, Node, SetTime, Time};
use crate::{
    Bytes, Errno, Filesystem, Kind, Listing, Name, Negotiation, Opened, Read, Reply, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyWrite, ReplyXattr, Request, SetAttr, Write, exchange,
};

/// Notes what it is asked.
#[derive(Default)]
struct Noting(Mutex<Vec<String>>);

impl Noting {
    fn note(&self, what: String) {
        self.0.lock().push(what);
    }
}

impl Filesystem for Noting {
    fn init(&self, _: &mut Negotiation) -> std::io::Result<()> {
        Ok(())
    }
    fn lookup(&self, req: &Request, parent: Node, name: &[u8], reply: ReplyEntry) {
        self.note(format!(
            "lookup {} {} {:?}",
            req.uid(),
            parent.0,
            name.escape_ascii().to_string()
        ));
        let attr = Attr { ino: 7, mode: 0o100_644, ..Attr::default() };
        let ttl = Duration::from_millis(1500);
        reply.send(Ok(Entry { node: Node(7), generation: 3, ttl, attr }));
    }
    fn forget(&self, node: Node, count: u64) {
        self.note(format!("forget {} {count}", node.0));
    }
    fn setattr(&self, _: &Request, _: Node, change: &SetAttr, reply: crate::ReplyAttr) {
        self.note(format!("{:?} {:?} {:?}", change.size, change.atime, change.mtime));
        reply.error(Errno::PERM);
    }
    fn rename(
        &self,
        _: &Request,
        from: (Node, &[u8]),
        to: (Node, &[u8]),
        flags: u32,
        reply: ReplyEmpty,
    ) {
        let name = |name: &[u8]| name.escape_ascii().to_string();
        self.note(format!("{} {} to {} {} {flags}", from.0.0, name(from.1), to.0.0, name(to.1)));
        reply.send(Ok(()));
    }
    fn open(&self, _: &Request, _: Node, _: i32, reply: ReplyOpen) {
        reply.send(Ok(Opened::default()));
    }
    fn read(&self, _: &Request, _: Node, read: Read, reply: Reply<Bytes>) {
        self.note(format!("read {} of at most {}", read.offset, reply.limit()));
        reply.fill(|to| {
            let len = to.len().min(3);
            to[..len].copy_from_slice(&b"abc"[..len]);
            Ok(len)
        });
    }
    fn readdir(&self, _: &Request, _: Node, _: Read, reply: Reply<Bytes>) {
        reply.fill(|to| {
            let mut listing = Listing::new(to);
            let name = Name { ino: 9, next: 1, kind: Kind::Fifo, name: b"pipe" };
            while listing.add(&name) {}
            Ok(listing.len())
        });
    }
    fn write(&self, _: &Request, _: Node, write: &Write<'_>, reply: ReplyWrite) {
        self.note(format!("write {} bytes, {}", write.data.len(), write.kill_privileges));
        reply.send(Ok(u32::try_from(write.data.len()).unwrap()));
    }
    fn getxattr(&self, _: &Request, _: Node, _: &[u8], reply: ReplyXattr) {
        reply.send(Ok(b"value"));
    }
    fn fsync(&self, _: &Request, _: Node, _: crate::Handle, _: bool, reply: ReplyEmpty) {
        // Not answered.
        drop(reply);
    }
}

fn request(opcode: u32, parts: &[&[u8]]) -> Vec<u8> {
    let body = parts.concat();
    let len = u32::try_from(size_of::<InHeader>() + body.len()).unwrap();
    let head = InHeader { len, opcode, unique: 77, node: 5, uid: 1000, ..InHeader::default() };
    [head.as_bytes(), &body].concat()
}

/// The error and the content of the one reply.
fn answered(server: &Noting, request: &[u8]) -> (i32, Vec<u8>) {
    let replies = exchange(server, request);
    assert_eq!(replies.len(), 1);
    let (head, body) = OutHeader::read_from_prefix(&replies[0]).unwrap();
    assert_eq!((head.unique, head.len as usize), (77, replies[0].len()));
    (head.error, body.to_vec())
}

#[test]
fn arguments_reach_the_method() {
    let server = Noting::default();
    let (error, body) = answered(&server, &request(op::LOOKUP, &[b"a name\0"]));
    assert_eq!(error, 0);
    let entry = abi::EntryOut::read_from_bytes(&body).unwrap();
    assert_eq!((entry.node, entry.generation, entry.attr.mode), (7, 3, 0o100_644));
    assert_eq!((entry.attr_valid, entry.attr_valid_nsec), (1, 500_000_000));

    let rename = abi::Rename2In { to: 6, flags: 1, unused: 0 };
    assert_eq!(answered(&server, &request(op::RENAME2, &[rename.as_bytes(), b"x\0yy\0"])).0, 0);
    let write = abi::WriteIn { size: 4, write_flags: 4, ..abi::WriteIn::default() };
    let (error, body) = answered(&server, &request(op::WRITE, &[write.as_bytes(), b"data"]));
    assert_eq!((error, body), (0, vec![4, 0, 0, 0, 0, 0, 0, 0]));
    let set = abi::SetattrIn {
        valid: 1 << 3 | 1 << 4 | 1 << 5 | 1 << 8,
        size: 9,
        atime: (-2_i64).cast_unsigned(),
        atime_nsec: 5,
        ..abi::SetattrIn::default()
    };
    assert_eq!(answered(&server, &request(op::SETATTR, &[set.as_bytes()])).0, -1);
    let batch = abi::BatchForgetIn { count: 9, unused: 0 };
    let one = abi::ForgetOne { node: 8, count: 2 };
    let forget = request(op::BATCH_FORGET, &[batch.as_bytes(), one.as_bytes(), b"rest"]);
    assert!(exchange(&server, &forget).is_empty());

    let time = SetTime::To(Time { sec: -2, nsec: 5 });
    let noted = [
        "lookup 1000 5 \"a name\"".to_owned(),
        "5 x to 6 yy 1".into(),
        "write 4 bytes, true".into(),
        format!("Some(9) {:?} {:?}", Some(time), Some(SetTime::Now)),
        "forget 8 2".into(),
    ];
    assert_eq!(*server.0.lock(), noted);
}

#[test]
fn content_stays_within_the_callers_limit() {
    let server = Noting::default();
    let read = abi::ReadIn { offset: 3, size: 100, ..abi::ReadIn::default() };
    assert_eq!(answered(&server, &request(op::READ, &[read.as_bytes()])), (0, b"abc".to_vec()));
    let (error, listing) = answered(&server, &request(op::READDIR, &[read.as_bytes()]));
    assert_eq!((error, listing.len()), (0, 96), "three entries of 32 bytes");
    let small = abi::GetxattrIn { size: 4, unused: 0 };
    let get = |size: abi::GetxattrIn| request(op::GETXATTR, &[size.as_bytes(), b"user.x\0"]);
    assert_eq!(answered(&server, &get(small)).0, -Errno::RANGE.raw_os_error());
    let asked = answered(&server, &get(abi::GetxattrIn::default()));
    assert_eq!(asked, (0, vec![5, 0, 0, 0, 0, 0, 0, 0]));
}

#[test]
fn a_reply_that_is_dropped_is_an_error() {
    let sync = request(op::FSYNC, &[abi::FsyncIn::default().as_bytes()]);
    assert_eq!(answered(&Noting::default(), &sync), (-Errno::IO.raw_os_error(), Vec::new()));
}

#[test]
fn wrong_requests_are_refused() {
    let server = Noting::default();
    let write = abi::WriteIn { size: 5, ..abi::WriteIn::default() };
    for (opcode, parts) in [
        (op::LOOKUP, &[&b"no end"[..]][..]),
        (op::LOOKUP, &[b"\0"]),
        (op::LOOKUP, &[b"a/b\0"]),
        (op::RENAME2, &[abi::Rename2In::default().as_bytes(), b"only one\0"]),
        (op::WRITE, &[write.as_bytes(), b"less"]),
        (op::WRITE, &[b"cut"]),
    ] {
        let error = answered(&server, &request(opcode, parts)).0;
        assert_eq!(error, -Errno::INVAL.raw_os_error(), "{opcode} {parts:?}");
    }
    // More nanoseconds than a second has.
    let time = abi::SetattrIn { mtime_nsec: 1_000_000_000, ..abi::SetattrIn::default() };
    for (valid, expected) in [(1 << 5, Errno::INVAL), (1 << 5 | 1 << 8, Errno::PERM)] {
        let set = abi::SetattrIn { valid, ..time };
        let error = answered(&server, &request(op::SETATTR, &[set.as_bytes()])).0;
        assert_eq!(error, -expected.raw_os_error(), "{valid:#x}");
    }
    server.0.lock().clear();
    // A reply that is larger than any kernel takes.
    let ioctl = abi::IoctlIn { out_size: u32::MAX, ..abi::IoctlIn::default() };
    let error = answered(&server, &request(op::IOCTL, &[ioctl.as_bytes()])).0;
    assert_eq!(error, -Errno::NOMEM.raw_os_error());
    for opcode in [0, 7, 36, 49, 4096, u32::MAX] {
        assert_eq!(answered(&server, &request(opcode, &[])).0, -Errno::NOSYS.raw_os_error());
    }
    assert!(exchange(&server, &[1; 39]).is_empty(), "there is no header");
    assert!(server.0.lock().is_empty());
}

/// Any bytes with any code: one reply, or none for the two kinds that have none.
#[test]
fn any_bytes_are_answered() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let server = Noting::default();
    for _ in 0..200_000 {
        let opcode = (random() % 56) as u32;
        let body: Vec<u8> = (0..random() % 120)
            .map(|_| match random() % 4 {
                0 => random() as u8,
                1 => b'a',
                _ => 0,
            })
            .collect();
        let replies = exchange(&server, &request(opcode, &[&body])).len();
        let silent = matches!(opcode, op::FORGET | op::BATCH_FORGET);
        assert_eq!(replies, usize::from(!silent), "{opcode} {body:?}");
        server.0.lock().clear();
    }
}
