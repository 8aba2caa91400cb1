"""Transactions of LMDB."""
from common import need, store


class Store:
    def __init__(self):
        self.env = need("lmdb", "python3-lmdb").open(".", map_size=64 << 20)

    def put(self, number, text):
        with self.env.begin(write=True) as transaction:
            transaction.put(b"%d" % number, text.encode())

    def records(self):
        with self.env.begin() as transaction:
            return {int(key): value.decode() for key, value in transaction.cursor()}

    def close(self):
        self.env.close()


store(Store)
