"""Volumes as a file system of fsspec: ``uxfs://disk.img/path/in/the/volume``.

The first part of a path that is a file on the host is the image. Each image is opened once in a
process, at its first use, and closed at exit or by ``close_all``.

1. A file that was written is durable when it is closed. Other changes become durable within some
   seconds, by a thread of the volume.
2. ``ls``, and with it ``find`` and ``walk``, shows symbolic links as what they are; ``info`` of one
   path follows them. So no walk follows a link.
3. File systems with ``read_only`` write nothing, also if another one has opened the image for
   writing.
4. In a transaction a file gets its name at the end of the transaction; until then it has a hidden one
   beside it.
"""

import atexit
import errno
import io
import os
import stat as _stat
import threading
import uuid

from fsspec.spec import AbstractFileSystem  # type: ignore[import-untyped]

from . import _file
from ._volume import Volume

__all__ = ["UxfsFileSystem", "close_all"]

#: By the real path of the image: the volume, and whether it is open for reading only.
_volumes: "dict[str, tuple[Volume, bool]]" = {}
_lock = threading.Lock()


def _error(number, path):
    return OSError(number, os.strerror(number), path)


def _volume(image, read_only):
    key = os.path.realpath(image)
    with _lock:
        volume, reading = _volumes.get(key, (None, False))
        if volume is not None and not volume.closed:
            if read_only or not reading:
                return volume
            # An image is open once: a reader must be closed before a writer is opened.
            if any(volume._open_layers()):
                raise _error(errno.EBUSY, image)
            volume.close()
        volume = Volume.open_image(image, read_only=read_only, background=True)
        _volumes[key] = volume, read_only
        return volume


def close_all():
    """Closes all volumes that were opened by paths."""
    with _lock:
        volumes = [volume for volume, _ in _volumes.values()]
        _volumes.clear()
    for volume in volumes:
        if not volume._is_forked():
            volume.close()


atexit.register(close_all)


class _Written:
    """A file that is durable when it is closed."""

    def close(self):
        if self.closed:
            return
        try:
            self.flush()
            if not self.raw._volume.closed and not self.raw._volume._is_forked():
                self.raw.fsync()
        finally:
            super().close()


class _Writer(_Written, _file.Writer):
    """A file written by fsspec."""


class _Both(_Written, _file.Both):
    """A file read and written by fsspec."""


class _Deferred(_Writer):
    """A file of a transaction: ``commit`` gives it its name, ``discard`` removes it."""

    def __init__(self, raw, volume, hidden, path, replace):
        super().__init__(raw, 128 << 10)
        self._volume, self._hidden, self._path, self._replace = volume, hidden, path, replace

    def commit(self):
        self.close()
        self._volume._native.rename(self._hidden, os.fsencode(self._path), self._replace)
        self._volume.wait(self._volume.ticket())

    def discard(self):
        try:
            self.close()
        finally:
            self._volume.remove(self._hidden)


class UxfsFileSystem(AbstractFileSystem):
    """Files in XFS volumes. ``read_only`` opens the images for reading."""

    protocol = "uxfs"
    root_marker = ""
    cachable = True

    def __init__(self, read_only=False, **options):
        super().__init__(**options)
        self.read_only = read_only

    @classmethod
    def _strip_protocol(cls, path):
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        path = os.fspath(path)
        if path.startswith("uxfs://"):
            path = path[len("uxfs://") :]
        return path.rstrip("/") or cls.root_marker

    def _split(self, path, write=False):
        path = self._strip_protocol(path)
        if write and self.read_only:
            raise _error(errno.EROFS, path)
        parts = path.split("/")
        for end in range(1, len(parts) + 1):
            image = "/".join(parts[:end])
            if image and os.path.exists(image) and not os.path.isdir(image):
                inside = "/" + "/".join(parts[end:])
                return _volume(image, self.read_only), image, inside
        raise FileNotFoundError(2, "no image file is a part of this path", path)

    def _info(self, volume, name, path, follow):
        """The attributes of one file. ``follow`` gives the type of what a link leads to."""
        attributes = volume.lstat(path)
        own = kind = _stat.S_IFMT(attributes.st_mode)
        size = attributes.st_size
        if own == _stat.S_IFLNK:
            try:
                target = volume.stat(path)
                size = target.st_size
                if follow:
                    attributes, kind = target, _stat.S_IFMT(target.st_mode)
            except OSError:
                pass  # It leads nowhere.
        types = {_stat.S_IFDIR: "directory", _stat.S_IFREG: "file"}
        found = {
            "name": name,
            "size": size,
            "type": types.get(kind, "other"),
            "islink": own == _stat.S_IFLNK,
            "mode": attributes.st_mode,
            "uid": attributes.st_uid,
            "gid": attributes.st_gid,
            "mtime": attributes.st_mtime,
            "ino": attributes.st_ino,
            "nlink": attributes.st_nlink,
        }
        if own == _stat.S_IFLNK:
            found["destination"] = volume.readlink(path)
        return found

    def info(self, path, **_options):
        volume, _, inside = self._split(path)
        return self._info(volume, self._strip_protocol(path), inside, True)

    def ls(self, path, detail=True, **_options):
        volume, image, inside = self._split(path)
        found = []
        if not volume.isdir(inside):
            found.append(self._info(volume, self._strip_protocol(path), inside, True))
        else:
            base = inside.rstrip("/")
            for name in sorted(volume.listdir(inside)):
                at = f"{base}/{name}"
                try:
                    found.append(self._info(volume, f"{image}{at}", at, False))
                except FileNotFoundError:
                    pass  # Removed meanwhile.
        return found if detail else [one["name"] for one in found]

    def open(self, path, mode="rb", *args, **options):
        file = super().open(path, mode, *args, **options)
        if isinstance(file, io.TextIOWrapper):
            # The layer of text is fsspec's own; closing the volume writes it too.
            self._split(path)[0]._watch(file)
        return file

    def _open(self, path, mode="rb", block_size=None, autocommit=True, **_options):
        mode = mode if "b" in mode else mode + "b"
        writes = mode.replace("b", "") != "r"
        volume, _, inside = self._split(path, write=writes)
        if not writes:
            return volume.open(inside, mode)
        if not autocommit:
            return self._deferred(volume, inside, mode)
        raw = volume.open(inside, mode, 0)
        file = (_Both if "+" in mode else _Writer)(raw, 128 << 10)
        volume._watch(file)
        return file

    def _deferred(self, volume, inside, mode):
        flags = mode.replace("b", "")
        if flags not in ("w", "a", "x"):
            raise io.UnsupportedOperation("a transaction writes files of mode w, a or x")
        if flags == "x" and volume.exists(inside):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), inside)
        hidden = os.path.join(os.path.dirname(inside), f".uxfs-{uuid.uuid4().hex}")
        if flags == "a" and volume.exists(inside):
            volume.copyfile(inside, hidden)
        raw = volume.open(hidden, "ab" if flags == "a" else "xb", 0)
        file = _Deferred(raw, volume, os.fsencode(hidden), inside, flags != "x")
        volume._watch(file)
        return file

    def mkdir(self, path, create_parents=True, **_options):
        volume, _, inside = self._split(path, write=True)
        volume.makedirs(inside) if create_parents else volume.mkdir(inside)

    def makedirs(self, path, exist_ok=False):
        volume, _, inside = self._split(path, write=True)
        volume.makedirs(inside, exist_ok=exist_ok)

    def rmdir(self, path):
        volume, _, inside = self._split(path, write=True)
        volume.rmdir(inside)

    def rm_file(self, path):
        volume, _, inside = self._split(path, write=True)
        volume.remove(inside)

    _rm = rm_file

    def rm(self, path, recursive=False, maxdepth=None):
        for one in path if isinstance(path, list) else [path]:
            volume, _, inside = self._split(one, write=True)
            if volume.isdir(inside) and recursive:
                volume.rmtree(inside)
            else:
                volume.remove(inside)

    def cp_file(self, path1, path2, **_options):
        volume, _, inside = self._split(path1)
        other, _, target = self._split(path2, write=True)
        if volume.isdir(inside):
            other.makedirs(target, exist_ok=True)
        elif volume is other:
            volume.copyfile(inside, target)
        else:
            _copy_data(volume, inside, other, target)

    def mv(self, path1, path2, **_options):
        """Moves a file or tree, or each of a list; into ``path2`` if that is a directory."""
        if isinstance(path1, list):
            targets = path2 if isinstance(path2, list) else [path2] * len(path1)
            for one, target in zip(path1, targets):
                self.mv(one, target)
            return
        volume, _, inside = self._split(path1, write=True)
        other, _, target = self._split(path2, write=True)
        if volume is other and inside == target:
            return
        if os.fspath(path2).endswith("/") or other.isdir(target):
            target = os.path.join(target, os.path.basename(inside))
        if volume is other:
            volume.rename(inside, target)
            return
        _copy_tree(volume, inside, other, target)
        if _stat.S_ISDIR(volume.lstat(inside).st_mode):
            volume.rmtree(inside)
        else:
            volume.remove(inside)

    def created(self, path):
        import datetime

        volume, _, inside = self._split(path)
        seconds = volume.stat(inside).st_birthtime_ns / 1e9
        return datetime.datetime.fromtimestamp(seconds, tz=datetime.timezone.utc)

    def modified(self, path):
        import datetime

        seconds = self.info(path)["mtime"]
        return datetime.datetime.fromtimestamp(seconds, tz=datetime.timezone.utc)


def _copy_data(volume, inside, other, target):
    with volume.open(inside, "rb") as source, other.open(target, "wb") as into:
        while block := source.read(1 << 20):
            into.write(block)


def _copy_tree(volume, inside, other, target):
    """Copies a file or tree to another volume, for ``mv``. It is durable then: the original may go."""
    waiting = [(inside, target)]
    while waiting:
        source, place = waiting.pop()
        attributes = volume.lstat(source)
        mode = attributes.st_mode
        if _stat.S_ISLNK(mode):
            other.symlink(volume.readlink(source), place)
        elif _stat.S_ISDIR(mode):
            other.makedirs(place, exist_ok=True)
            names = volume.listdir(source)
            waiting += [(os.path.join(source, n), os.path.join(place, n)) for n in names]
        elif _stat.S_ISREG(mode):
            _copy_data(volume, source, other, place)
        else:
            other.mknod(place, mode, attributes.st_rdev)
        if not _stat.S_ISLNK(mode):
            other.chown(place, attributes.st_uid, attributes.st_gid)
            other.chmod(place, _stat.S_IMODE(mode))
    other.wait(other.ticket())
