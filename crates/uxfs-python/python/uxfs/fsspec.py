"""Volumes as a file system of fsspec: ``uxfs://disk.img/path/in/the/volume``.

The first part of a path that is a file on the host is the image. Each image is opened once in a
process, at its first use, and closed at exit or by ``close_all``.
"""

import atexit
import os
import stat as _stat
import threading

from fsspec.spec import AbstractFileSystem  # type: ignore[import-untyped]

from ._volume import Volume

__all__ = ["UxfsFileSystem", "close_all"]

_volumes: "dict[str, Volume]" = {}
_lock = threading.Lock()


def _volume(image, read_only):
    key = os.path.realpath(image)
    with _lock:
        found = _volumes.get(key)
        if found is None or found.closed:
            found = _volumes[key] = Volume.open_image(image, read_only=read_only)
        return found


def close_all():
    """Closes all volumes that were opened by paths."""
    with _lock:
        volumes = list(_volumes.values())
        _volumes.clear()
    for volume in volumes:
        volume.close()


atexit.register(close_all)


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

    def _split(self, path):
        path = self._strip_protocol(path)
        parts = path.split("/")
        for end in range(1, len(parts) + 1):
            image = "/".join(parts[:end])
            if image and os.path.exists(image) and not os.path.isdir(image):
                inside = "/" + "/".join(parts[end:])
                return _volume(image, self.read_only), image, inside
        raise FileNotFoundError(2, "no image file is a part of this path", path)

    def _info(self, volume, name, path):
        attributes = volume.lstat(path)
        kind = _stat.S_IFMT(attributes.st_mode)
        link = kind == _stat.S_IFLNK
        if link:
            try:
                attributes = volume.stat(path)
                kind = _stat.S_IFMT(attributes.st_mode)
            except FileNotFoundError:
                pass
        types = {_stat.S_IFDIR: "directory", _stat.S_IFREG: "file"}
        return {
            "name": name,
            "size": attributes.st_size,
            "type": types.get(kind, "other"),
            "islink": link,
            "mode": attributes.st_mode,
            "uid": attributes.st_uid,
            "gid": attributes.st_gid,
            "mtime": attributes.st_mtime,
            "ino": attributes.st_ino,
            "nlink": attributes.st_nlink,
        }

    def info(self, path, **_options):
        volume, _, inside = self._split(path)
        return self._info(volume, self._strip_protocol(path), inside)

    def ls(self, path, detail=True, **_options):
        volume, image, inside = self._split(path)
        if not volume.isdir(inside):
            found = [self._info(volume, self._strip_protocol(path), inside)]
        else:
            base = inside.rstrip("/")
            names = sorted(volume.listdir(inside))
            found = [
                self._info(volume, f"{image}{base}/{name}", f"{base}/{name}") for name in names
            ]
        return found if detail else [one["name"] for one in found]

    def _open(self, path, mode="rb", block_size=None, **_options):
        volume, _, inside = self._split(path)
        return volume.open(inside, mode if "b" in mode else mode + "b")

    def mkdir(self, path, create_parents=True, **_options):
        volume, _, inside = self._split(path)
        volume.makedirs(inside) if create_parents else volume.mkdir(inside)

    def makedirs(self, path, exist_ok=False):
        volume, _, inside = self._split(path)
        volume.makedirs(inside, exist_ok=exist_ok)

    def rmdir(self, path):
        volume, _, inside = self._split(path)
        volume.rmdir(inside)

    def rm_file(self, path):
        volume, _, inside = self._split(path)
        volume.remove(inside)

    _rm = rm_file

    def rm(self, path, recursive=False, maxdepth=None):
        for one in path if isinstance(path, list) else [path]:
            volume, _, inside = self._split(one)
            if volume.isdir(inside) and recursive:
                volume.rmtree(inside)
            else:
                volume.remove(inside)

    def cp_file(self, path1, path2, **_options):
        volume, _, inside = self._split(path1)
        other, _, target = self._split(path2)
        if volume is other:
            if volume.isdir(inside):
                volume.makedirs(target, exist_ok=True)
            else:
                volume.copyfile(inside, target)
            return
        with self.open(path1, "rb") as source, self.open(path2, "wb") as into:
            while block := source.read(1 << 20):
                into.write(block)

    def mv(self, path1, path2, **_options):
        volume, _, inside = self._split(path1)
        other, _, target = self._split(path2)
        if volume is not other:
            return super().mv(path1, path2)
        volume.rename(inside, target)

    def created(self, path):
        import datetime

        volume, _, inside = self._split(path)
        seconds = volume.stat(inside).st_birthtime_ns / 1e9
        return datetime.datetime.fromtimestamp(seconds, tz=datetime.timezone.utc)

    def modified(self, path):
        import datetime

        seconds = self.info(path)["mtime"]
        return datetime.datetime.fromtimestamp(seconds, tz=datetime.timezone.utc)
