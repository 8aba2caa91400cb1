"""Documents of Xapian, each committed."""
from common import need, store


class Store:
    def __init__(self):
        self.module = need("xapian", "python3-xapian")
        self.db = self.module.WritableDatabase("db", self.module.DB_CREATE_OR_OPEN)

    def put(self, number, text):
        document = self.module.Document()
        document.set_data(text)
        document.add_term(f"Q{number}")
        self.db.replace_document(number + 1, document)
        self.db.commit()

    def records(self):
        return {found.docid - 1: self.db.get_document(found.docid).get_data().decode()
                for found in self.db.postlist("")}

    def close(self):
        self.db.close()


store(Store)
