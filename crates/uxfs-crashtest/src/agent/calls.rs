//! The system calls that change files or make them durable: their arguments, and what they did.
//!
//! 1. A call is looked at when it begins ([`Begun`]) and when it has succeeded ([`Begun::did`]). Between the two
//!    the program's other threads may run, so names that two threads change at once may be told apart wrongly.
//! 2. What was written is read back from the file, however it came there.
//! 3. Stores into a mapping are no calls: see `tracer`.
//! 4. Arguments are known on x86-64 only; elsewhere the agent follows no program.

#![cfg_attr(
    not(target_arch = "x86_64"),
    allow(dead_code, reason = "nothing reads the registers of other processors")
)]

use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::unistd::Pid;

use super::seen::Seen;
use super::volume::{Volume, open};
use crate::operations::{Action, Name};
use crate::tree::BYTES_MAX;

/// Bytes of the longest path.
const PATH_LEN: usize = 4096;

/// Where a path of an argument begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    WorkingDir,
    /// The directory that this argument has open.
    Arg(usize),
}

/// An argument that is a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct At(Start, usize);

/// A kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Open(At),
    Make(At),
    Symlink(At),
    Link(At),
    Remove(At),
    Rename(At, At),
    /// To a descriptor; the argument with an address or a value of the offset, if it has one.
    Write(usize, Offset),
    Truncate(At),
    /// Changes the length of an open file, or zeroes a part of it.
    Resize(usize),
    Allocate,
    Sync {
        data_only: bool,
    },
    SyncAll,
    /// The file system of a descriptor.
    SyncVolume,
    SyncMapping,
    Map,
}

/// Where a call that writes says to what offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Offset {
    OfFile,
    Arg(usize),
    /// In memory, if the argument is not 0.
    Pointer(usize),
}

/// A call: its number, its arguments and its result.
pub(crate) struct Call {
    pub(crate) number: i64,
    pub(crate) args: [u64; 6],
    pub(crate) result: i64,
}

impl Call {
    /// The call at which a thread has stopped.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn of(thread: Pid) -> io::Result<Self> {
        let regs = nix::sys::ptrace::getregs(thread)?;
        Ok(Self {
            number: regs.orig_rax.cast_signed(),
            args: [regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9],
            result: regs.rax.cast_signed(),
        })
    }

    #[cfg(not(target_arch = "x86_64"))]
    pub(crate) fn of(_: Pid) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    #[cfg(target_arch = "x86_64")]
    fn kind(&self) -> Option<Kind> {
        use nix::libc;
        let here = |path| At(Start::WorkingDir, path);
        let at = |dir, path| At(Start::Arg(dir), path);
        Some(match self.number {
            libc::SYS_open | libc::SYS_creat => Kind::Open(here(0)),
            libc::SYS_openat | libc::SYS_openat2 => Kind::Open(at(0, 1)),
            libc::SYS_mkdir | libc::SYS_mknod => Kind::Make(here(0)),
            libc::SYS_mkdirat | libc::SYS_mknodat => Kind::Make(at(0, 1)),
            libc::SYS_symlink => Kind::Symlink(here(1)),
            libc::SYS_symlinkat => Kind::Symlink(at(1, 2)),
            libc::SYS_link => Kind::Link(here(1)),
            libc::SYS_linkat => Kind::Link(at(2, 3)),
            libc::SYS_unlink | libc::SYS_rmdir => Kind::Remove(here(0)),
            libc::SYS_unlinkat => Kind::Remove(at(0, 1)),
            libc::SYS_rename => Kind::Rename(here(0), here(1)),
            libc::SYS_renameat | libc::SYS_renameat2 => Kind::Rename(at(0, 1), at(2, 3)),
            libc::SYS_write | libc::SYS_writev => Kind::Write(0, Offset::OfFile),
            libc::SYS_sendfile => Kind::Write(0, Offset::OfFile),
            libc::SYS_pwrite64 | libc::SYS_pwritev | libc::SYS_pwritev2 => {
                Kind::Write(0, Offset::Arg(3))
            }
            libc::SYS_copy_file_range | libc::SYS_splice => Kind::Write(2, Offset::Pointer(3)),
            libc::SYS_sendto | libc::SYS_sendmsg | libc::SYS_vmsplice => {
                Kind::Write(0, Offset::OfFile)
            }
            libc::SYS_truncate => Kind::Truncate(here(0)),
            libc::SYS_ftruncate => Kind::Resize(0),
            libc::SYS_fallocate => Kind::Allocate,
            libc::SYS_fsync => Kind::Sync { data_only: false },
            libc::SYS_fdatasync => Kind::Sync { data_only: true },
            libc::SYS_sync => Kind::SyncAll,
            libc::SYS_syncfs => Kind::SyncVolume,
            libc::SYS_msync => Kind::SyncMapping,
            libc::SYS_mmap => Kind::Map,
            _ => return None,
        })
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn kind(&self) -> Option<Kind> {
        None
    }

    /// The descriptor in an argument.
    fn fd(&self, arg: usize) -> i32 {
        // It has 32 bits; the others may be anything.
        self.args[arg] as i32
    }
}

/// A name, and the path that leads to it from here.
#[derive(Clone, Debug)]
struct Place {
    name: Name,
    path: PathBuf,
}

/// A call that has begun, and what was there before it.
pub(crate) struct Begun {
    kind: Kind,
    place: Option<Place>,
    other: Option<Place>,
    /// The file that the name had.
    before: Option<Seen>,
}

/// What a call did.
#[derive(Default)]
pub(crate) struct Done {
    pub(crate) actions: Vec<Action>,
    /// It may have written to a pipe or a socket.
    pub(crate) spoke: bool,
    /// It mapped this file for changes.
    pub(crate) mapped: Option<PathBuf>,
    /// A part of this file was written.
    pub(crate) wrote: Option<PathBuf>,
}

impl Begun {
    /// A call that may change something of the volume.
    pub(crate) fn of(call: &Call, thread: Pid, volume: &Volume) -> Option<Self> {
        let kind = call.kind()?;
        let place = |at| place(call, at, thread, volume);
        let (place, other) = match kind {
            Kind::Open(at) | Kind::Make(at) | Kind::Symlink(at) | Kind::Link(at) => {
                (Some(place(at)?), None)
            }
            Kind::Remove(at) | Kind::Truncate(at) => (Some(place(at)?), None),
            Kind::Rename(from, to) => (Some(place(from)?), Some(place(to)?)),
            _ => (None, None),
        };
        let before = place.as_ref().and_then(|place| match kind {
            Kind::Open(_) => Seen::followed(&place.path).ok(),
            _ => Seen::of(&place.path).ok(),
        });
        Some(Self { kind, place, other, before })
    }

    /// Does it make something durable that is there when it begins?
    pub(crate) fn is_sync(&self) -> bool {
        matches!(
            self.kind,
            Kind::Sync { .. } | Kind::SyncAll | Kind::SyncVolume | Kind::SyncMapping
        )
    }

    /// What it did. It has succeeded.
    ///
    /// # Errors
    /// The volume cannot be read.
    pub(crate) fn did(self, call: &Call, thread: Pid, volume: &Volume) -> io::Result<Done> {
        let mut done = Done::default();
        let name = |place: &Option<Place>| place.as_ref().map(|place| place.name.clone());
        let path = |place: &Option<Place>| place.as_ref().map(|place| place.path.clone());
        let (first, second) = (name(&self.place), name(&self.other));
        match (self.kind, first, second) {
            (Kind::Open(_), Some(name), _) => {
                let now = Seen::followed(&descriptor(thread, call.result as i32))?;
                done.actions.extend(self.opened(name, &now));
            }
            (Kind::Make(_), Some(name), _) => {
                let now = Seen::of(&path(&self.place).unwrap_or_default())?;
                done.actions.push(made(name, &now));
            }
            (Kind::Symlink(_), Some(name), _) => {
                let path = path(&self.place).unwrap_or_default();
                let now = Seen::of(&path)?;
                let target = fs::read_link(&path)?.into_os_string().into_vec();
                let Seen { ino, generation, .. } = now;
                done.actions.push(Action::Symlink { name, ino, generation, target });
            }
            (Kind::Link(_), Some(name), _) => {
                let now = Seen::of(&path(&self.place).unwrap_or_default())?;
                done.actions.push(Action::Linked { name, ino: now.ino });
            }
            (Kind::Remove(_), Some(name), _) => done.actions.push(Action::Removed { name }),
            (Kind::Rename(..), Some(from), Some(to)) => {
                let exchange = nix::libc::RENAME_EXCHANGE;
                #[cfg(target_arch = "x86_64")]
                let exchanged =
                    call.number == nix::libc::SYS_renameat2 && call.args[4] as u32 & exchange != 0;
                #[cfg(not(target_arch = "x86_64"))]
                let exchanged = call.args[4] as u32 & exchange != 0;
                done.actions.push(Action::Renamed { from, to, exchanged });
            }
            (Kind::Truncate(_), ..) => {
                let now = Seen::followed(&path(&self.place).unwrap_or_default())?;
                done.actions.push(Action::Resized { ino: now.ino, size: now.size });
            }
            (Kind::Write(fd, offset), ..) => wrote(call, (fd, offset), thread, volume, &mut done)?,
            (Kind::Resize(fd), ..) => {
                if let Some(file) = on_volume(call, fd, thread, volume) {
                    done.actions.push(Action::Resized { ino: file.ino, size: file.size });
                }
            }
            (Kind::Allocate, ..) => {
                if let Some(file) = on_volume(call, 0, thread, volume) {
                    done.actions.extend(allocated(call, &file));
                }
            }
            (Kind::Sync { data_only }, ..) => {
                if let Some(file) = on_volume(call, 0, thread, volume) {
                    done.actions.push(Action::Synced { ino: file.ino, data_only });
                }
            }
            (Kind::SyncAll, ..) => done.actions.push(Action::SyncedAll),
            (Kind::SyncVolume, ..) => {
                let here = on_volume(call, 0, thread, volume);
                done.actions.extend(here.map(|_| Action::SyncedAll));
            }
            (Kind::SyncMapping, ..) => {
                let synchronous = call.args[2] as i32 & nix::libc::MS_SYNC != 0;
                if let (true, Some(ino)) = (synchronous, mapped_at(thread, call.args[0], volume)) {
                    done.actions.push(Action::Synced { ino, data_only: false });
                }
            }
            (Kind::Map, ..) => {
                let for_changes = call.args[2] as i32 & nix::libc::PROT_WRITE != 0;
                let shared = call.args[3] as i32 & nix::libc::MAP_TYPE != nix::libc::MAP_PRIVATE;
                if for_changes && shared && on_volume(call, 4, thread, volume).is_some() {
                    done.mapped = Some(descriptor(thread, call.fd(4)));
                }
            }
            _ => {}
        }
        Ok(done)
    }

    /// What an open did beside opening.
    fn opened(&self, name: Name, now: &Seen) -> Option<Action> {
        match &self.before {
            None => Some(made(name, now)),
            // A file without a name, in a directory.
            Some(before) if before.ino != now.ino && now.links == 0 => {
                Some(made((0, Vec::new()), now))
            }
            Some(before) if before.ino == now.ino && now.is_file() && now.size < before.size => {
                Some(Action::Resized { ino: now.ino, size: now.size })
            }
            Some(_) => None,
        }
    }
}

fn made(name: Name, now: &Seen) -> Action {
    Action::Made { name, ino: now.ino, generation: now.generation, mode: now.mode }
}

/// The path of an open file, which leads to it whatever its name is.
fn descriptor(thread: Pid, fd: i32) -> PathBuf {
    PathBuf::from(format!("/proc/{thread}/fd/{fd}"))
}

/// The file or directory of the volume that an argument has open.
fn on_volume(call: &Call, arg: usize, thread: Pid, volume: &Volume) -> Option<Seen> {
    Seen::followed(&descriptor(thread, call.fd(arg))).ok().filter(|file| volume.has(file))
}

/// The place on the volume that an argument names.
fn place(call: &Call, At(start, arg): At, thread: Pid, volume: &Volume) -> Option<Place> {
    let text = read_path(thread, call.args[arg]).ok()?;
    let text = Path::new(std::ffi::OsStr::from_bytes(&text));
    let root = PathBuf::from(format!("/proc/{thread}"));
    let path = match (text.strip_prefix("/"), start) {
        (Ok(below), _) => root.join("root").join(below),
        (Err(_), Start::Arg(dir)) if call.fd(dir) != nix::libc::AT_FDCWD => {
            descriptor(thread, call.fd(dir)).join(text)
        }
        _ => root.join("cwd").join(text),
    };
    let dir = Seen::followed(path.parent()?).ok().filter(|dir| volume.has(dir))?;
    let name = (dir.ino, path.file_name()?.as_bytes().to_vec());
    Some(Place { name, path })
}

/// A path in the memory of a thread.
fn read_path(thread: Pid, address: u64) -> io::Result<Vec<u8>> {
    let memory = fs::File::open(format!("/proc/{thread}/mem"))?;
    let mut path = Vec::new();
    let mut piece = [0; 256];
    while path.len() < PATH_LEN {
        let at = address + path.len() as u64;
        // No piece goes over the end of a page, behind which there may be nothing.
        let len = piece.len().min(usize::try_from(4096 - at % 4096).unwrap_or(1));
        memory.read_exact_at(&mut piece[..len], at)?;
        let end = piece[..len].iter().position(|byte| *byte == 0);
        path.extend_from_slice(&piece[..end.unwrap_or(len)]);
        if end.is_some() {
            return Ok(path);
        }
    }
    Err(io::ErrorKind::InvalidInput.into())
}

/// The offset and the flags of an open file.
fn position(thread: Pid, fd: i32) -> io::Result<(u64, i32)> {
    let text = fs::read_to_string(format!("/proc/{thread}/fdinfo/{fd}"))?;
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let offset = field("pos:").and_then(|text| text.parse().ok()).unwrap_or(0);
    let flags = field("flags:").and_then(|text| i32::from_str_radix(text, 8).ok()).unwrap_or(0);
    Ok((offset, flags))
}

/// What a call that writes did.
fn wrote(
    call: &Call,
    (arg, offset): (usize, Offset),
    thread: Pid,
    volume: &Volume,
    done: &mut Done,
) -> io::Result<()> {
    let Some(file) = on_volume(call, arg, thread, volume).filter(Seen::is_file) else {
        done.spoke = true;
        return Ok(());
    };
    let len = u64::try_from(call.result).unwrap_or(0);
    if len == 0 {
        return Ok(());
    }
    let fd = call.fd(arg);
    let (position, flags) = position(thread, fd)?;
    let begin = match offset {
        _ if flags & nix::libc::O_APPEND != 0 => file.size.saturating_sub(len),
        Offset::Arg(arg) if call.args[arg] != u64::MAX => call.args[arg],
        Offset::Pointer(arg) if call.args[arg] != 0 => {
            let mut end = [0; 8];
            let memory = fs::File::open(format!("/proc/{thread}/mem"))?;
            memory.read_exact_at(&mut end, call.args[arg])?;
            u64::from_le_bytes(end).saturating_sub(len)
        }
        _ => position.saturating_sub(len),
    };
    let path = descriptor(thread, fd);
    if len > BYTES_MAX {
        // It may be more than this machine's memory.
        done.actions.push(Action::TooLong { ino: file.ino, offset: begin, len });
    } else {
        let mut data = vec![0; usize::try_from(len).unwrap_or(0)];
        open(&path)?.read_exact_at(&mut data, begin)?;
        let data = Arc::from(data);
        done.actions.push(Action::Written { ino: file.ino, offset: begin, data, mapped: false });
    }
    // O_SYNC has the bits of O_DSYNC.
    if flags & nix::libc::O_DSYNC != 0 {
        done.actions.push(Action::Synced { ino: file.ino, data_only: true });
    }
    done.wrote = Some(path);
    Ok(())
}

/// What fallocate did.
fn allocated(call: &Call, file: &Seen) -> Vec<Action> {
    let zeroes = nix::libc::FALLOC_FL_PUNCH_HOLE | nix::libc::FALLOC_FL_ZERO_RANGE;
    let mut actions = Vec::new();
    if call.args[1] as i32 & zeroes != 0 {
        let (offset, len) = (call.args[2], call.args[3]);
        actions.push(Action::Zeroed { ino: file.ino, offset, len });
    }
    actions.push(Action::Resized { ino: file.ino, size: file.size });
    actions
}

/// The file of the volume that is mapped at an address.
fn mapped_at(thread: Pid, address: u64, volume: &Volume) -> Option<u64> {
    let maps = fs::read_to_string(format!("/proc/{thread}/maps")).ok()?;
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    maps.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let range = words.next()?;
        let (begin, end) = range.split_once('-')?;
        if !(number(begin)?..number(end)?).contains(&address) {
            return None;
        }
        let file = Seen::followed(Path::new(&format!("/proc/{thread}/map_files/{range}")));
        file.ok().filter(|file| volume.has(file)).map(|file| file.ino)
    })
}
