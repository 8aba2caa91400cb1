"""XFS volumes in user space: made, read and changed without root or a kernel driver.

>>> import os, tempfile, uxfs
>>> image = os.path.join(tempfile.mkdtemp(), "disk.img")
>>> with uxfs.Volume.mkfs(image, "512M") as volume:
...     volume.makedirs("/notes/2026")
...     with volume.open("/notes/2026/today", "w") as file:
...         _ = file.write("an XFS file system, without a kernel")
...     volume.listdir("/notes")
['2026']
>>> with uxfs.Volume.open_image(image, read_only=True) as volume:
...     volume.read_text("/notes/2026/today")
'an XFS file system, without a kernel'
>>> uxfs.check(image)["clean"]
True

Paths start at the volume's root, with or without a leading slash, and are ``str``, ``bytes`` or
``os.PathLike``. Errors are ``OSError`` with errno and path, in the subclasses that ``os`` raises.
Every call releases the GIL, and volumes and files may be shared between threads.
"""

from __future__ import annotations

import os as _os

from . import _uxfs
from ._file import RawFile
from ._uxfs import Ticket
from ._volume import CopyError, DirEntry, Stat, StatFs, Volume

__all__ = [
    "CopyError",
    "DirEntry",
    "RawFile",
    "Stat",
    "StatFs",
    "Ticket",
    "Volume",
    "check",
    "import_tree",
]


def check(image):
    """Checks the volume in an image, and writes nothing.

    Returns a dict: ``clean`` (bool), ``exit_code`` as fsck(8) has it, ``findings`` (tuples of code,
    severity and message) and ``text``. Damage is not an exception.
    """
    return _uxfs.check(_os.fsencode(image))


def import_tree(source, image, size=None, *, force=False):
    """Imports a tar archive or a directory of the host into an image.

    The image is made if it does not exist; without ``size`` it gets the size that the tree needs.
    ``force`` replaces a volume that is there. Returns a dict of entries, bytes, size, warnings.
    """
    from ._volume import bytes_of_size

    wanted = None if size is None else bytes_of_size(size)
    done = _uxfs.import_tree(_os.fsencode(source), _os.fsencode(image), wanted, force)
    return dict(zip(("entries", "bytes", "size", "warnings"), done))
