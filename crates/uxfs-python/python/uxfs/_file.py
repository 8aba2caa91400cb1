"""Open files as ``io`` has them.

1. A raw file has one position. Calls that use it exclude each other, as the calls on a file
   descriptor do, so threads may share a file.
2. An open file keeps its volume: the volume is not collected before the file.

Called by ``Volume.open`` and ``uxfs.fsspec``.
"""

import io
import os
import threading

__all__ = ["RawFile"]


class RawFile(io.RawIOBase):
    """An open file of a volume, unbuffered. ``Volume.open`` returns it for ``buffering=0`` and puts
    the buffers of ``io`` around it otherwise."""

    def __init__(self, native, name, mode, volume=None):
        super().__init__()
        self._native = native
        self._volume = volume
        # A signal handler may use the file that its own thread is using.
        self._lock = threading.RLock()
        self._at = 0
        self._append = "a" in mode
        self._reads = "r" in mode or "+" in mode
        self._writes = "r" not in mode or "+" in mode
        self.name = name
        self.mode = mode
        if self._append:
            self._at = native.stat()[5]

    def _open(self):
        if self.closed:
            raise ValueError("I/O operation on closed file")

    def readable(self):
        self._open()
        return self._reads

    def writable(self):
        self._open()
        return self._writes

    def seekable(self):
        self._open()
        return True

    def readinto(self, buffer, /):
        self._open()
        if not self._reads:
            raise io.UnsupportedOperation("not readable")
        with self._lock, memoryview(buffer).cast("B") as view:
            data = self._native.pread(len(view), self._at)
            view[: len(data)] = data
            self._at += len(data)
        return len(data)

    def readall(self):
        self._open()
        if not self._reads:
            raise io.UnsupportedOperation("not readable")
        with self._lock:
            left = max(self._native.stat()[5] - self._at, 0)
            data = self._native.pread(left, self._at)
            self._at += len(data)
        return data

    def write(self, data, /):
        self._open()
        if not self._writes:
            raise io.UnsupportedOperation("not writable")
        if type(data) is not bytes:
            with memoryview(data).cast("B") as view:
                data = bytes(view)
        with self._lock:
            done = self._native.pwrite(data, self._at)
            self._at = self._native.stat()[5] if self._append else self._at + done
        return done

    def seek(self, offset, whence=os.SEEK_SET, /):
        self._open()
        base = {
            os.SEEK_SET: lambda: 0,
            os.SEEK_CUR: lambda: self._at,
            os.SEEK_END: lambda: self._native.stat()[5],
        }.get(whence)
        if base is None:
            raise ValueError(f"invalid whence ({whence})")
        with self._lock:
            at = base() + offset
            if at < 0:
                raise OSError(22, os.strerror(22), self.name)
            self._at = at
        return at

    def tell(self):
        self._open()
        return self._at

    def truncate(self, size=None, /):
        self._open()
        if not self._writes:
            raise io.UnsupportedOperation("not writable")
        with self._lock:
            size = self._at if size is None else size
            self._native.truncate(size)
        return size

    def fsync(self, data_only=False):
        """Makes the file durable, as ``os.fsync``; with ``data_only`` as ``os.fdatasync``."""
        self._open()
        self._native.fsync(data_only)

    def ticket(self):
        """A ticket for the durability of the file so far; see ``Volume.wait``."""
        self._open()
        return self._native.ticket()

    def close(self):
        if not self.closed:
            super().close()
            self._native.close()


class _Durable:
    """What the buffers add: ``fsync`` writes the buffer first."""

    @property
    def size(self):
        """The length of the file without what is still in the buffer, as files of fsspec have it."""
        raw = self.buffer.raw if isinstance(self, io.TextIOBase) else self.raw
        return raw._native.stat()[5]

    def fsync(self, data_only=False):
        """Writes the buffer, and makes the file durable."""
        self.flush()
        raw = self.buffer.raw if isinstance(self, io.TextIOBase) else self.raw
        raw.fsync(data_only)

    def ticket(self):
        """Writes the buffer; a ticket for the durability of the file so far."""
        self.flush()
        raw = self.buffer.raw if isinstance(self, io.TextIOBase) else self.raw
        return raw.ticket()


class Reader(_Durable, io.BufferedReader):
    """A buffered reader."""


class Writer(_Durable, io.BufferedWriter):
    """A buffered writer."""


class Both(_Durable, io.BufferedRandom):
    """A buffered reader and writer."""


class Text(_Durable, io.TextIOWrapper):
    """A text file."""


def layered(raw, mode, buffering, encoding, errors, newline):
    """The layers that ``open`` of Python would put around a raw file, the outermost first."""
    binary = "b" in mode
    if binary and (encoding is not None or errors is not None or newline is not None):
        raise ValueError("binary mode takes no encoding, errors or newline argument")
    if buffering == 0:
        if not binary:
            raise ValueError("can't have unbuffered text I/O")
        return [raw]
    size = buffering if buffering > 1 else 128 << 10
    if "+" in mode:
        buffer = Both(raw, size)
    elif "r" in mode:
        buffer = Reader(raw, size)
    else:
        buffer = Writer(raw, size)
    if binary:
        return [buffer]
    text = Text(buffer, encoding or "utf-8", errors, newline, line_buffering=buffering == 1)
    text.mode = mode
    return [text, buffer]
