"""Writes of RocksDB with `sync`, through its C library."""
import ctypes
import ctypes.util
import sys

from common import store


class Store:
    def __init__(self):
        name = ctypes.util.find_library("rocksdb")
        if not name:
            sys.exit("librocksdb is missing: apt-get install librocksdb-dev")
        self.lib = ctypes.CDLL(name)
        for call in ("options_create", "open", "writeoptions_create", "readoptions_create", "create_iterator",
                     "iter_key", "iter_value"):
            getattr(self.lib, f"rocksdb_{call}").restype = ctypes.c_void_p
        self.lib.rocksdb_iter_valid.restype = ctypes.c_ubyte
        options = self.made("options_create")
        self.call("options_set_create_if_missing", options, ctypes.c_ubyte(1))
        # Small, so that tables are written too.
        self.call("options_set_write_buffer_size", options, ctypes.c_size_t(64 << 10))
        self.db = ctypes.c_void_p(self.checked("open", options, b"."))

    def call(self, name, *words):
        return getattr(self.lib, f"rocksdb_{name}")(*words)

    def made(self, name, *words):
        return ctypes.c_void_p(self.call(name, *words))

    def checked(self, name, *words):
        """A call whose last argument receives an error."""
        error = ctypes.c_char_p()
        result = self.call(name, *words, ctypes.byref(error))
        if error.value:
            sys.exit(f"rocksdb_{name}: {error.value.decode()}")
        return result

    def put(self, number, text):
        options = self.made("writeoptions_create")
        self.call("writeoptions_set_sync", options, ctypes.c_ubyte(1))
        key, value = b"%d" % number, text.encode()
        self.checked("put", self.db, options, key, ctypes.c_size_t(len(key)), value, ctypes.c_size_t(len(value)))
        self.call("writeoptions_destroy", options)

    def records(self):
        found = {}
        at = self.made("create_iterator", self.db, self.made("readoptions_create"))
        self.call("iter_seek_to_first", at)
        while self.call("iter_valid", at):
            key, value = (self.bytes_of(part, at) for part in ("iter_key", "iter_value"))
            found[int(key)] = value.decode()
            self.call("iter_next", at)
        self.checked("iter_get_error", at)
        self.call("iter_destroy", at)
        return found

    def bytes_of(self, call, at):
        length = ctypes.c_size_t()
        return ctypes.string_at(self.call(call, at, ctypes.byref(length)), length.value)

    def close(self):
        self.call("close", self.db)


store(Store)
