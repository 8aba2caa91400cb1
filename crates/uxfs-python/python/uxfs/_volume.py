"""Volumes, with the calls of ``os`` and ``shutil``."""

import os
import stat as _stat
import threading
import warnings
import weakref
from typing import NamedTuple

from . import _file, _uxfs

__all__ = ["CopyError", "DirEntry", "Stat", "StatFs", "Volume", "bytes_of_size"]

_UNITS = {"k": 10, "m": 20, "g": 30, "t": 40}


def bytes_of_size(size):
    """Bytes, from a number or from a text as mkfs.xfs takes it.

    >>> bytes_of_size("512M") == bytes_of_size(512 << 20)
    True
    """
    if isinstance(size, int):
        return size
    text = size.strip().lower()
    unit = _UNITS.get(text[-1:])
    return int(text) if unit is None else int(text[:-1]) << unit


class Stat(NamedTuple):
    """The attributes of a file, named as in ``os.stat_result``."""

    st_mode: int
    st_ino: int
    st_nlink: int
    st_uid: int
    st_gid: int
    st_size: int
    st_atime_ns: int
    st_mtime_ns: int
    st_ctime_ns: int
    st_birthtime_ns: int
    st_blocks: int
    st_blksize: int
    st_rdev: int

    @property
    def st_atime(self):
        """Time of the last access, in seconds."""
        return self.st_atime_ns / 1e9

    @property
    def st_mtime(self):
        """Time of the last change of content, in seconds."""
        return self.st_mtime_ns / 1e9

    @property
    def st_ctime(self):
        """Time of the last change of the inode, in seconds."""
        return self.st_ctime_ns / 1e9


class StatFs(NamedTuple):
    """The totals of a volume."""

    block_size: int
    blocks: int
    free_blocks: int
    files: int
    free_files: int
    uuid: str
    label: str


class CopyError(OSError):
    """A tree was not copied completely; ``failures`` holds pairs of path and reason."""

    def __init__(self, failures):
        path, reason = failures[0]
        more = f", and {len(failures) - 1} more" if len(failures) > 1 else ""
        super().__init__(5, f"{reason}{more}", path)
        self.failures = failures

    def __reduce__(self):
        # Errors of a pool's workers are pickled.
        return (type(self), (self.failures,))


def _attributes(native):
    mode, ino, nlink, uid, gid, size, times, blocks, block, (major, minor) = native
    device = os.makedev(major, minor)
    return Stat(mode, ino, nlink, uid, gid, size, *times, blocks, block, device)


class DirEntry:
    """An entry of a directory, as ``os.DirEntry``."""

    __slots__ = ("_volume", "_ino", "_type", "name", "path")

    def __init__(self, volume, directory, name, ino, kind):
        self._volume, self._ino, self._type = volume, ino, kind
        self.name = name
        self.path = os.path.join(directory, name)

    def __fspath__(self):
        return self.path

    def __repr__(self):
        return f"<uxfs.DirEntry {self.name!r}>"

    def inode(self):
        """The inode number."""
        return self._ino

    def _is(self, kind, follow_symlinks):
        if follow_symlinks and self.is_symlink():
            try:
                return _stat.S_IFMT(self._volume.stat(self.path).st_mode) == kind
            except FileNotFoundError:
                return False
        return self._type == kind

    def is_dir(self, *, follow_symlinks=True):
        """Is it a directory?"""
        return self._is(_stat.S_IFDIR, follow_symlinks)

    def is_file(self, *, follow_symlinks=True):
        """Is it a regular file?"""
        return self._is(_stat.S_IFREG, follow_symlinks)

    def is_symlink(self):
        """Is it a symbolic link?"""
        return self._type == _stat.S_IFLNK

    def stat(self, *, follow_symlinks=True):
        """The attributes."""
        return self._volume.stat(self.path, follow_symlinks=follow_symlinks)


class _Scan:
    """The entries of a directory, as ``os.scandir`` returns them: an iterator for ``with``."""

    def __init__(self, entries):
        self._entries = entries

    def __iter__(self):
        return self

    def __next__(self):
        return next(self._entries)

    def close(self):
        """Ends the iteration."""
        self._entries = iter(())

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.close()


class Volume:
    """An open volume. ``Volume.open_image`` and ``Volume.mkfs`` make one. ``Volume.open`` opens a file of a
    volume, as that of ``pathlib.Path`` does, so the image has a call of another name.

    Changes are logged. They are durable after ``sync``, ``fsync`` of a file, ``wait`` for a ticket,
    or ``close``; a ``with`` block closes at its end. A volume that is collected while it is open is
    closed too, with a ResourceWarning.

    A process that forks keeps its volumes for itself. In the child calls fail with EBADF, and the end
    of a ``with`` block or of the process writes nothing.
    """

    def __init__(self, native, image):
        self._process = os.getpid()
        self._native = native
        # Open files, each with its outermost layer first: numbered, to flush them in this order.
        self._layers = weakref.WeakValueDictionary()
        self._numbers = 0
        self._lock = threading.Lock()
        #: The path of the image.
        self.image = image

    @classmethod
    def open_image(
        cls,
        image,
        *,
        read_only=False,
        offset=None,
        partition=None,
        uid=0,
        gid=0,
        umask=0o022,
        background=False,
        delayed=False,
    ):
        """Opens the volume in an image file or on a block device.

        ``offset`` (bytes) or ``partition`` (number, label or PARTUUID) say where it lies. New files
        get ``uid``, ``gid`` and ``umask``. ``background`` starts a thread that makes changes durable
        after some seconds; ``delayed`` keeps written data in memory until it is written back.
        """
        part = None if partition is None else str(partition)
        made = _uxfs.Volume.open(
            os.fsencode(image), read_only, offset, part, (uid, gid, umask), background, delayed
        )
        return cls(made, os.fspath(image))

    @classmethod
    def mkfs(
        cls,
        image,
        size,
        *,
        label="",
        options=None,
        unsupported=False,
        uid=0,
        gid=0,
        umask=0o022,
        background=False,
        delayed=False,
    ):
        """Makes a volume in a new image file, with the defaults of mkfs.xfs, and opens it.

        ``size`` is bytes or a text such as ``"2G"``. ``options`` are those of mkfs.xfs, by letter:
        ``{"m": "rmapbt=1", "b": "size=1k"}``. ``unsupported`` allows volumes below 300 MiB.
        """
        settings = [(letter, text) for letter, text in (options or {}).items()]
        if label:
            settings.append(("L", label))
        creator = (uid, gid, umask)
        made = _uxfs.Volume.mkfs(
            os.fsencode(image),
            bytes_of_size(size),
            settings,
            unsupported,
            creator,
            background,
            delayed,
        )
        return cls(made, os.fspath(image))

    def close(self):
        """Writes everything in place, leaves a clean log, and frees the image. The buffers of open
        files are written first; the files fail afterwards. Does nothing to a closed volume."""
        try:
            self._flush()
        finally:
            self._native.close()

    def _watch(self, layer):
        """Has the volume write the buffer of an open file when it closes."""
        with self._lock:
            self._numbers += 1
            self._layers[self._numbers] = layer

    def _open_layers(self):
        """The layers of the files that are open."""
        with self._lock:
            layers = sorted(self._layers.items())
        for _, layer in layers:
            try:
                if not layer.closed:
                    yield layer
            except ValueError:
                pass  # A detached layer.

    def _flush(self):
        """Writes the buffers of open files. Tries all, and raises the first error."""
        if self.closed or self._is_forked():
            return
        first = None
        for layer in self._open_layers():
            try:
                layer.flush()
            except ValueError:
                pass  # Closed meanwhile by another thread.
            except OSError as error:
                first = first or error
        if first is not None:
            raise first

    @property
    def closed(self):
        """Is the volume closed?"""
        return self._native.is_closed()

    def __enter__(self):
        return self

    def _is_forked(self):
        """Is this a child of the process that opened the volume?"""
        return self._process != os.getpid()

    def __exit__(self, *_error):
        if not self._is_forked():
            self.close()

    def __del__(self):
        native = getattr(self, "_native", None)
        if native is not None and not self._is_forked() and not native.is_closed():
            warnings.warn(f"unclosed {self!r}", ResourceWarning, source=self)
            self.close()

    def __repr__(self):
        return f"<uxfs.Volume {self.image!r}>"

    # Durability.

    def sync(self):
        """Makes all changes durable."""
        self._native.sync()

    def ticket(self):
        """A ticket for the durability of all changes so far. Does not wait."""
        return self._native.ticket()

    def is_durable(self, ticket):
        """Is everything up to the ticket on stable storage?"""
        return self._native.is_durable(ticket)

    def wait(self, ticket):
        """Waits until everything up to the ticket is on stable storage."""
        self._native.wait(ticket)

    def statfs(self):
        """The totals of the volume."""
        *counts, label = self._native.statfs()
        return StatFs(*counts, label.rstrip(b"\0").decode("utf-8", "surrogateescape"))

    # Files.

    def open(
        self,
        path,
        mode="r",
        buffering=-1,
        encoding=None,
        errors=None,
        newline=None,
        *,
        permissions=0o666,
    ):
        """Opens a file as the built-in ``open`` does; text is UTF-8 unless ``encoding`` says
        otherwise. The objects have ``fsync`` and ``ticket`` besides."""
        flags = mode.replace("b", "").replace("t", "")
        if set(flags) - set("rwax+") or ("b" in mode and "t" in mode):
            raise ValueError(f"invalid mode: {mode!r}")
        native = self._native.open_file(os.fsencode(path), flags, permissions)
        raw = _file.RawFile(native, os.fspath(path), mode, self)
        layers = _file.layered(raw, mode, buffering, encoding, errors, newline)
        for layer in layers:
            self._watch(layer)
        return layers[0]

    def read_bytes(self, path):
        """The content of a file."""
        with self.open(path, "rb", 0) as file:
            return file.readall()

    def read_text(self, path, encoding="utf-8"):
        """The content of a file as text."""
        return self.read_bytes(path).decode(encoding)

    def write_bytes(self, path, data):
        """Replaces the content of a file, which is created if need be."""
        # Of a wrong type it fails here, before the old content is gone.
        view = memoryview(data).cast("B")
        with self.open(path, "wb", 0) as file:
            return file.write(view)

    def write_text(self, path, text, encoding="utf-8"):
        """Replaces the content of a file, which is created if need be."""
        return self.write_bytes(path, text.encode(encoding))

    # The calls of os.

    def scandir(self, path="/"):
        """The entries of a directory, as ``os.scandir``."""
        directory = os.fspath(path)
        native = self._native.entries(os.fsencode(path))
        show = bytes if isinstance(directory, bytes) else os.fsdecode
        return _Scan(DirEntry(self, directory, show(name), ino, kind) for name, ino, kind in native)

    def listdir(self, path="/"):
        """The names in a directory, as ``os.listdir``."""
        return [entry.name for entry in self.scandir(path)]

    def walk(self, top="/"):
        """As ``os.walk``, from the top down. Symbolic links to directories are among the directories,
        and are not followed."""
        dirs, files = [], []
        for entry in self.scandir(top):
            try:
                directory = entry.is_dir()
            except OSError:
                directory = False
            (dirs if directory else files).append(entry.name)
        yield top, dirs, files
        for name in dirs:
            below = os.path.join(top, name)
            if not _stat.S_ISLNK(self.lstat(below).st_mode):
                yield from self.walk(below)

    def stat(self, path, *, follow_symlinks=True):
        """The attributes of a file."""
        return _attributes(self._native.stat(os.fsencode(path), follow_symlinks))

    def lstat(self, path):
        """The attributes of a file; a symbolic link is not followed."""
        return self.stat(path, follow_symlinks=False)

    def _type(self, path):
        try:
            return _stat.S_IFMT(self.stat(path).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return 0

    def exists(self, path):
        """Does the path lead to a file?"""
        return self._type(path) != 0

    def isdir(self, path):
        """Does the path lead to a directory?"""
        return self._type(path) == _stat.S_IFDIR

    def isfile(self, path):
        """Does the path lead to a regular file?"""
        return self._type(path) == _stat.S_IFREG

    def mkdir(self, path, mode=0o777):
        """Creates a directory."""
        self._native.mkdir(os.fsencode(path), mode)

    def makedirs(self, path, mode=0o777, exist_ok=False):
        """Creates a directory and those above it that do not exist."""
        head, tail = os.path.split(os.fspath(path))
        if not tail:
            head, tail = os.path.split(head)
        if head and tail and not self.exists(head):
            self.makedirs(head, exist_ok=True)
        try:
            self.mkdir(path, mode)
        except OSError:
            if not exist_ok or not self.isdir(path):
                raise

    def mknod(self, path, mode=0o600 | _stat.S_IFREG, device=0):
        """Creates a device, FIFO, socket or empty file."""
        pair = (os.major(device), os.minor(device))
        self._native.mknod(os.fsencode(path), mode, pair)

    def remove(self, path):
        """Removes a name of a file."""
        self._native.unlink(os.fsencode(path))

    unlink = remove

    def rmdir(self, path):
        """Removes an empty directory."""
        self._native.rmdir(os.fsencode(path))

    def rename(self, src, dst):
        """Gives a file another name; an existing file is replaced."""
        self._native.rename(os.fsencode(src), os.fsencode(dst), True)

    replace = rename

    def link(self, src, dst):
        """Gives a file one more name."""
        self._native.link(os.fsencode(src), os.fsencode(dst))

    def symlink(self, src, dst):
        """Creates a symbolic link at ``dst`` that leads to ``src``."""
        self._native.symlink(os.fsencode(src), os.fsencode(dst))

    def readlink(self, path):
        """The target of a symbolic link."""
        target = self._native.readlink(os.fsencode(path))
        return target if isinstance(os.fspath(path), bytes) else os.fsdecode(target)

    def chmod(self, path, mode):
        """Changes the permissions."""
        self._native.chmod(os.fsencode(path), mode)

    def chown(self, path, uid, gid, *, follow_symlinks=True):
        """Changes owner and group; -1 keeps one."""
        uid, gid = (None if number == -1 else number for number in (uid, gid))
        self._native.chown(os.fsencode(path), uid, gid, follow_symlinks)

    def utime(self, path, times=None, *, ns=None, follow_symlinks=True):
        """Sets times of access and modification: seconds in ``times`` or nanoseconds in ``ns``;
        without both the present time."""
        if times is not None and ns is not None:
            raise ValueError("give either times or ns")
        if times is not None:
            ns = tuple(int(seconds * 1_000_000_000) for seconds in times)
        if ns is None:
            import time

            ns = (time.time_ns(),) * 2
        self._native.utime(os.fsencode(path), ns[0], ns[1], follow_symlinks)

    def truncate(self, path, length):
        """Changes the length of a file."""
        self._native.truncate(os.fsencode(path), length)

    def getxattr(self, path, attribute, *, follow_symlinks=True):
        """The value of an extended attribute."""
        name = os.fsencode(attribute)
        return self._native.getxattr(os.fsencode(path), name, follow_symlinks)

    def setxattr(self, path, attribute, value, flags=0, *, follow_symlinks=True):
        """Sets an extended attribute; ``flags`` are those of ``os.setxattr``."""
        name = os.fsencode(attribute)
        self._native.setxattr(os.fsencode(path), name, bytes(value), flags, follow_symlinks)

    def removexattr(self, path, attribute, *, follow_symlinks=True):
        """Removes an extended attribute."""
        self._native.removexattr(os.fsencode(path), os.fsencode(attribute), follow_symlinks)

    def listxattr(self, path, *, follow_symlinks=True):
        """The names of the extended attributes."""
        names = self._native.listxattr(os.fsencode(path), follow_symlinks)
        return [os.fsdecode(name) for name in names]

    # The calls of shutil.

    def rmtree(self, path):
        """Removes a directory with everything in it."""
        self._native.rmtree(os.fsencode(path))

    def copyfile(self, src, dst):
        """Copies content and permissions of a file within the volume; with reflink the copies share
        blocks."""
        self._native.copy(os.fsencode(src), os.fsencode(dst))
        return dst

    def copy_in(self, src, dst):
        """Copies a file or tree of the host to ``dst`` on the volume, with modes, owners, times,
        links, holes and extended attributes. Raises CopyError if a part was not copied."""
        self._raise(self._native.copy_in(os.fsencode(src), os.fsencode(dst)))
        return dst

    def copy_out(self, src, dst):
        """Copies a file or tree of the volume to ``dst`` on the host. Raises CopyError if a part was
        not copied; without root the owners cannot be kept, which is not an error."""
        self._raise(self._native.copy_out(os.fsencode(src), os.fsencode(dst)))
        return dst

    @staticmethod
    def _raise(failed):
        if failed:
            raise CopyError([(os.fsdecode(path), reason) for path, reason in failed])

    def export(self, archive, path="/"):
        """Writes the tree below ``path`` as a PAX tar to a file of the host. Returns the number of
        entries and the bytes of data. An existing file is replaced when the archive is complete.
        The tree must not change meanwhile."""
        return self._native.export(os.fsencode(path), os.fsencode(archive))
