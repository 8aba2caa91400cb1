"""Records of GNU dbm, each synced."""
from common import need, store


class Store:
    def __init__(self):
        self.db = need("_gdbm", "python3-gdbm").open("db", "c")

    def put(self, number, text):
        self.db[str(number)] = text
        self.db.sync()

    def records(self):
        return {int(key): self.db[key].decode() for key in self.db.keys()}

    def close(self):
        self.db.close()


store(Store)
