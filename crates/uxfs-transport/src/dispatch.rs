//! Calls the server's method for a request.
//!
//! 1. Each request gets one reply, except for the two that have none ([`is_silent`]).
//! 2. All arguments are checked before the method is called. A request with wrong arguments, or of
//!    an unknown kind, gets an error and reaches no method.
//! 3. A guest's request reaches a method only with inodes that the guest's kernel knows.
//!
//! Called by the ways in which requests come.

use zerocopy::FromBytes;

use crate::Errno;
use crate::abi::{
    AccessIn, BatchForgetIn, CONTENT_MAX, CopyFileRangeIn, CreateIn, FSYNC_DATA, FallocateIn,
    FlushIn, ForgetIn, ForgetOne, FsyncIn, GetxattrIn, InHeader, IoctlIn, LinkIn, LseekIn, MkdirIn,
    MknodIn, OpenIn, ReadIn, ReleaseIn, Rename2In, RenameIn, SetattrIn, SetattrValid, SetxattrIn,
    WriteIn, fixed_len, op,
};
use crate::attr::{Handle, Node, SetTime, Time, decode_rdev};
use crate::count::Tally;
use crate::filesystem::{CopyRange, Fallocate, Filesystem, Ioctl, Read, SetAttr, Write};
use crate::outlet::Outlet;
use crate::park::Parked;
use crate::reply::{Reply, ReplyEmpty};
use crate::request::{Args, Origin, Request};

/// The bit of a write's flags that the kernel writes a page of its cache back.
const WRITE_CACHE: u32 = 1 << 0;
/// The bit of a write's flags that the server removes set-ID bits and capabilities.
const WRITE_KILL_PRIVILEGES: u32 = 1 << 2;

/// Has the request no variable part, and its reply any length? Then the reply's content may be
/// written to the memory that the request came in.
pub(crate) fn answers_with_content(opcode: u32) -> bool {
    matches!(opcode, op::READ | op::READDIR | op::READDIRPLUS | op::READLINK)
}

/// Counts and runs a request that came as one message. `outlet` makes the place for its reply, given
/// its number.
pub(crate) fn run_message(
    server: &impl Filesystem,
    message: &[u8],
    tally: &Tally,
    outlet: impl FnOnce(u64) -> Outlet,
) {
    // Without a header there is no number to reply to.
    let Ok((head, body)) = InHeader::read_from_prefix(message) else { return };
    tally.count(head.opcode);
    run_parsed(server, &head, body, Origin::Host, outlet);
}

/// Runs a request whose header was read.
pub(crate) fn run_parsed(
    server: &impl Filesystem,
    head: &InHeader,
    body: &[u8],
    origin: Origin,
    outlet: impl FnOnce(u64) -> Outlet,
) {
    let args = fixed_len(head.opcode).ok_or(Errno::NOSYS);
    let args = args.and_then(|fixed| Args::split(body, fixed));
    match args {
        Ok(args) if is_silent(head.opcode) => {
            if !server.admit(&mut || run_silent(server, head, &args)) {
                server.park(Parked::new(head, args, origin, None));
            }
        }
        Err(_) if is_silent(head.opcode) => {}
        Ok(args) => run(server, head, args, origin, outlet(head.unique)),
        Err(error) => outlet(head.unique).send(Err(error), &[]),
    }
}

/// Is the request one without a reply?
pub(crate) fn is_silent(opcode: u32) -> bool {
    matches!(opcode, op::FORGET | op::BATCH_FORGET)
}

/// Runs a request that has no reply.
fn run_silent(server: &impl Filesystem, head: &InHeader, args: &Args<'_>) {
    // These requests have no reply, so errors are dropped.
    match head.opcode {
        op::FORGET => {
            if let Ok(forget) = args.get::<ForgetIn>() {
                server.forget(Node(head.node), forget.count);
            }
        }
        _ => {
            let count = args.get::<BatchForgetIn>().map_or(0, |batch| batch.count as usize);
            for raw in args.rest.chunks_exact(size_of::<ForgetOne>()).take(count) {
                if let Ok(one) = ForgetOne::read_from_bytes(raw) {
                    server.forget(Node(one.node), one.count);
                }
            }
        }
    }
}

/// May the request change files?
fn changes(head: &InHeader, args: &Args<'_>) -> bool {
    /// The bit of an ioctl's number that it takes something from the caller's memory.
    const IOC_WRITE: u32 = 1 << 30;
    match head.opcode {
        op::IOCTL => args.get::<IoctlIn>().is_ok_and(|ioctl| ioctl.cmd & IOC_WRITE != 0),
        opcode => matches!(
            opcode,
            op::SETATTR
                | op::SYMLINK
                | op::MKNOD
                | op::MKDIR
                | op::UNLINK
                | op::RMDIR
                | op::RENAME
                | op::RENAME2
                | op::LINK
                | op::CREATE
                | op::TMPFILE
                | op::WRITE
                | op::SETXATTR
                | op::REMOVEXATTR
                | op::FALLOCATE
                | op::COPY_FILE_RANGE
        ),
    }
}

/// Runs a request, or parks it if it may change files and the server admits none of these. Its reply is
/// sent now or later.
pub(crate) fn run(
    server: &impl Filesystem,
    head: &InHeader,
    args: Args<'_>,
    origin: Origin,
    outlet: Outlet,
) {
    if !changes(head, &args) {
        return run_admitted(server, head, args, origin, outlet);
    }
    let mut outlet = Some(outlet);
    let admitted = server.admit(&mut || {
        if let Some(outlet) = outlet.take() {
            run_admitted(server, head, args, origin, outlet);
        }
    });
    if !admitted && outlet.is_some() {
        server.park(Parked::new(head, args, origin, outlet));
    }
}

/// Runs a parked request again.
pub(crate) fn run_again(
    server: &impl Filesystem,
    head: &InHeader,
    args: Args<'_>,
    origin: Origin,
    outlet: Option<Outlet>,
) {
    match outlet {
        Some(outlet) => run(server, head, args, origin, outlet),
        None if server.admit(&mut || run_silent(server, head, &args)) => {}
        None => server.park(Parked::new(head, args, origin, None)),
    }
}

fn run_admitted(
    server: &impl Filesystem,
    head: &InHeader,
    args: Args<'_>,
    origin: Origin,
    outlet: Outlet,
) {
    let mut pending = Some(outlet);
    let req = &Request::of(head, origin);
    if let Err(error) = call(server, head, req, args, &mut pending)
        && let Some(outlet) = pending
    {
        outlet.send(Err(error), &[]);
    }
}

/// Parses, and calls. Takes the outlet when the arguments are right.
fn call(
    server: &impl Filesystem,
    head: &InHeader,
    req: &Request,
    mut args: Args<'_>,
    pending: &mut Option<Outlet>,
) -> Result<(), Errno> {
    let node = Node(head.node);
    if names_node(head.opcode) {
        check_known(server, req, node)?;
    }
    match head.opcode {
        op::LOOKUP => {
            let name = args.name()?;
            if name != b"." {
                check_known(server, req, node)?;
            }
            server.lookup(req, node, name, reply(pending, 0)?);
        }
        op::GETATTR => server.getattr(req, node, reply(pending, 0)?),
        op::STATX => server.statx(req, node, reply(pending, 0)?),
        op::SETATTR => server.setattr(req, node, &change(&args.get()?)?, reply(pending, 0)?),
        op::READLINK => server.readlink(req, node, reply(pending, 4096)?),
        op::SYMLINK => {
            let (name, target) = (args.name()?, args.string()?);
            server.symlink(req, node, name, target, reply(pending, 0)?);
        }
        op::MKNOD => {
            let MknodIn { mode, rdev, umask, .. } = args.get()?;
            let rdev = decode_rdev(rdev);
            server.mknod(req, node, args.name()?, (mode, umask), rdev, reply(pending, 0)?);
        }
        op::MKDIR => {
            let MkdirIn { mode, umask } = args.get()?;
            server.mkdir(req, node, args.name()?, (mode, umask), reply(pending, 0)?);
        }
        op::UNLINK => server.unlink(req, node, args.name()?, reply(pending, 0)?),
        op::RMDIR => server.rmdir(req, node, args.name()?, reply(pending, 0)?),
        op::RENAME => {
            let to = args.get::<RenameIn>()?.to;
            rename(server, req, node, (to, 0), args, pending)?;
        }
        op::RENAME2 => {
            let Rename2In { to, flags, .. } = args.get()?;
            rename(server, req, node, (to, flags), args, pending)?;
        }
        op::LINK => {
            let LinkIn { node: linked } = args.get()?;
            check_known(server, req, Node(linked))?;
            server.link(req, Node(linked), (node, args.name()?), reply(pending, 0)?);
        }
        op::OPEN => {
            let OpenIn { flags, .. } = args.get()?;
            server.open(req, node, flags.cast_signed(), reply(pending, 0)?);
        }
        op::OPENDIR => {
            let OpenIn { flags, .. } = args.get()?;
            server.opendir(req, node, flags.cast_signed(), reply(pending, 0)?);
        }
        op::CREATE => {
            let CreateIn { mode, umask, .. } = args.get()?;
            server.create(req, node, args.name()?, (mode, umask), reply(pending, 0)?);
        }
        op::TMPFILE => {
            let CreateIn { mode, umask, .. } = args.get()?;
            server.tmpfile(req, node, (mode, umask), reply(pending, 0)?);
        }
        op::READ => {
            let (read, size) = read(&args)?;
            server.read(req, node, read, reply(pending, size)?);
        }
        op::READDIR => {
            let (read, size) = read(&args)?;
            server.readdir(req, node, read, reply(pending, size)?);
        }
        op::READDIRPLUS => {
            let (read, size) = read(&args)?;
            server.readdirplus(req, node, read, reply(pending, size)?);
        }
        op::WRITE => {
            let write: WriteIn = args.get()?;
            let write = Write {
                handle: Handle(write.handle),
                offset: write.offset,
                data: args.bytes(write.size)?,
                kill_privileges: write.write_flags & WRITE_KILL_PRIVILEGES != 0,
                cached: write.write_flags & WRITE_CACHE != 0,
                flags: write.flags.cast_signed(),
            };
            server.write(req, node, &write, reply(pending, 0)?);
        }
        op::FLUSH => {
            let FlushIn { handle, .. } = args.get()?;
            server.flush(req, node, Handle(handle), reply(pending, 0)?);
        }
        op::RELEASE | op::RELEASEDIR => {
            let ReleaseIn { handle, .. } = args.get()?;
            let reply: ReplyEmpty = reply(pending, 0)?;
            match head.opcode {
                op::RELEASE => server.release(Handle(handle), reply),
                _ => server.releasedir(node, Handle(handle), reply),
            }
        }
        op::FSYNC => {
            let FsyncIn { handle, flags, .. } = args.get()?;
            let data_only = flags & FSYNC_DATA != 0;
            server.fsync(req, node, Handle(handle), data_only, reply(pending, 0)?);
        }
        op::FSYNCDIR => {
            let FsyncIn { flags, .. } = args.get()?;
            server.fsyncdir(req, node, flags & FSYNC_DATA != 0, reply(pending, 0)?);
        }
        op::SYNCFS => server.syncfs(req, reply(pending, 0)?),
        op::STATFS => server.statfs(req, reply(pending, 0)?),
        op::SETXATTR => {
            let SetxattrIn { size, flags } = args.get()?;
            let pair = (args.string()?, args.bytes(size)?);
            server.setxattr(req, node, pair, flags.cast_signed(), reply(pending, 0)?);
        }
        op::GETXATTR => {
            let GetxattrIn { size, .. } = args.get()?;
            server.getxattr(req, node, args.string()?, reply(pending, size)?);
        }
        op::LISTXATTR => {
            let GetxattrIn { size, .. } = args.get()?;
            server.listxattr(req, node, reply(pending, size)?);
        }
        op::REMOVEXATTR => server.removexattr(req, node, args.string()?, reply(pending, 0)?),
        op::ACCESS => {
            let AccessIn { mask, .. } = args.get()?;
            server.access(req, node, mask, reply(pending, 0)?);
        }
        op::IOCTL => {
            let IoctlIn { cmd, in_size, out_size, .. } = args.get()?;
            let ioctl = Ioctl { cmd, data: args.bytes(in_size)?, out_size };
            // The kernel's own limit is the same.
            if out_size > CONTENT_MAX {
                return Err(Errno::NOMEM);
            }
            server.ioctl(req, node, &ioctl, reply(pending, 0)?);
        }
        op::FALLOCATE => {
            let FallocateIn { offset, len, mode, .. } = args.get()?;
            let range = Fallocate { offset, len, mode: mode.cast_signed() };
            server.fallocate(req, node, range, reply(pending, 0)?);
        }
        op::LSEEK => {
            let LseekIn { offset, whence, .. } = args.get()?;
            server.lseek(req, node, (offset, whence), reply(pending, 0)?);
        }
        op::COPY_FILE_RANGE => {
            let CopyFileRangeIn { from_at, to_node, to_at, len, .. } = args.get()?;
            check_known(server, req, Node(to_node))?;
            let copy = CopyRange { from: (node, from_at), to: (Node(to_node), to_at), len };
            server.copy_file_range(req, &copy, reply(pending, 0)?);
        }
        op::DESTROY => {
            let reply: ReplyEmpty = reply(pending, 0)?;
            server.destroy();
            reply.send(Ok(()));
        }
        // INTERRUPT too: a caller that gets a signal waits for its reply. Over `/dev/fuse` the kernel then
        // sends no further one.
        _ => return Err(Errno::NOSYS),
    }
    Ok(())
}

/// Does the header name an inode that the kernel must know? A lookup of `.` may name one of which the
/// kernel has only a file handle.
fn names_node(opcode: u32) -> bool {
    !matches!(opcode, op::LOOKUP | op::STATFS | op::INTERRUPT | op::SYNCFS | op::DESTROY)
}

/// A guest's kernel may name any number.
fn check_known(server: &impl Filesystem, req: &Request, node: Node) -> Result<(), Errno> {
    match req.is_of_guest() && node != Node::ROOT && !server.knows(node) {
        true => Err(Errno::STALE),
        false => Ok(()),
    }
}

/// The reply to the request, whose arguments are right.
fn reply<T>(pending: &mut Option<Outlet>, limit: u32) -> Result<Reply<T>, Errno> {
    let outlet = pending.take().ok_or(Errno::IO)?;
    Ok(Reply::new(outlet, limit as usize))
}

fn rename(
    server: &impl Filesystem,
    req: &Request,
    from: Node,
    (to, flags): (u64, u32),
    mut args: Args<'_>,
    pending: &mut Option<Outlet>,
) -> Result<(), Errno> {
    let (name, new_name) = (args.name()?, args.name()?);
    check_known(server, req, Node(to))?;
    server.rename(req, (from, name), (Node(to), new_name), flags, reply(pending, 0)?);
    Ok(())
}

/// A read and the most bytes that it takes.
fn read(args: &Args<'_>) -> Result<(Read, u32), Errno> {
    let ReadIn { handle, offset, size, flags, .. } = args.get()?;
    let read = Read { handle: Handle(handle), offset, flags: flags.cast_signed() };
    Ok((read, size.min(CONTENT_MAX)))
}

fn change(raw: &SetattrIn) -> Result<SetAttr, Errno> {
    use SetattrValid as Valid;
    const SECOND: u32 = 1_000_000_000;
    let valid = SetattrValid::from_bits_truncate(raw.valid);
    let time = |set, now, sec: u64, nsec| match () {
        () if valid.contains(now) => Ok(Some(SetTime::Now)),
        // A guest's kernel may send any number.
        () if valid.contains(set) && nsec >= SECOND => Err(Errno::INVAL),
        () if valid.contains(set) => Ok(Some(SetTime::To(Time { sec: sec.cast_signed(), nsec }))),
        () => Ok(None),
    };
    Ok(SetAttr {
        mode: valid.contains(Valid::MODE).then_some(raw.mode),
        uid: valid.contains(Valid::UID).then_some(raw.uid),
        gid: valid.contains(Valid::GID).then_some(raw.gid),
        size: valid.contains(Valid::SIZE).then_some(raw.size),
        atime: time(Valid::ATIME, Valid::ATIME_NOW, raw.atime, raw.atime_nsec)?,
        mtime: time(Valid::MTIME, Valid::MTIME_NOW, raw.mtime, raw.mtime_nsec)?,
        handle: valid.contains(Valid::HANDLE).then_some(Handle(raw.handle)),
        kill_privileges: valid.contains(Valid::KILL_PRIVILEGES),
    })
}

#[cfg(test)]
mod tests;
