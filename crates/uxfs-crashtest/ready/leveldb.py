"""Writes of LevelDB with `sync`."""
from common import need, store


class Store:
    def __init__(self):
        plyvel = need("plyvel", "python3-plyvel")
        # Small, so that tables are written too.
        self.db = plyvel.DB(".", create_if_missing=True, write_buffer_size=64 << 10)

    def put(self, number, text):
        self.db.put(b"%d" % number, text.encode(), sync=True)

    def records(self):
        return {int(key): value.decode() for key, value in self.db}

    def close(self):
        self.db.close()


store(Store)
