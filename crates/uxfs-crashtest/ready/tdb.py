"""Transactions of TDB, Samba's database."""
import os

from common import need, store


class Store:
    def __init__(self):
        self.db = need("tdb", "python3-tdb").open("db", flags=os.O_RDWR | os.O_CREAT)

    def put(self, number, text):
        self.db.transaction_start()
        self.db[b"%d" % number] = text.encode()
        self.db.transaction_commit()

    def records(self):
        return {int(key): self.db[key].decode() for key in self.db}

    def close(self):
        self.db.close()


store(Store)
