"""Writes a letter over a range of a file past the cache, asynchronously: aio.py FILE OFFSET LENGTH LETTER.

Prints a line when the write has been done.
"""

import ctypes
import mmap
import os
import struct
import sys

SETUP, GETEVENTS, SUBMIT = 206, 208, 209
WRITE = 1

libc = ctypes.CDLL(None, use_errno=True)


def call(number, *args):
    result = libc.syscall(number, *args)
    if result < 0:
        raise OSError(ctypes.get_errno(), f"system call {number}")
    return result


path, offset, length, letter = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4].encode()
memory = mmap.mmap(-1, length)
memory.write(letter * length)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
fd = os.open(path, os.O_WRONLY | os.O_DIRECT)
context = ctypes.c_ulong(0)
call(SETUP, 1, ctypes.byref(context))
iocb = ctypes.create_string_buffer(struct.pack("QIiHhIQQqQQ", 0, 0, 0, WRITE, 0, fd, address, length, offset, 0, 0))
call(SUBMIT, context, 1, ctypes.byref(ctypes.c_void_p(ctypes.addressof(iocb))))
event = ctypes.create_string_buffer(32)
call(GETEVENTS, context, 1, 1, event, None)
done = struct.unpack("QQqq", event)[2]
assert done == length, done
print("done")
