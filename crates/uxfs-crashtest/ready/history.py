"""A commit for each file, by a program that keeps versions of files.

history.py setup hg|fossil|svn|borg|ostree
history.py run hg|fossil|svn|borg|ostree
history.py check hg|fossil|svn|borg|ostree
"""
import os
import re
import sys

from common import STEPS, acknowledge, judge, said, text


class Hg:
    """Mercurial."""

    def hg(self, *words):
        return said("hg", "--config", "ui.username=a", "--config", "trusted.users=*", *words)

    def setup(self):
        self.hg("init", ".")

    def commit(self, number):
        self.hg("add", str(number))
        self.hg("commit", "-q", "-m", str(number))

    def records(self):
        # What a program that was ended leaves is put back by its own recovery.
        if os.path.exists(".hg/store/journal"):
            self.hg("recover")
        self.hg("verify")
        names = self.hg("files", "-r", "tip").split() if self.hg("log", "-r", "tip", "-T", "{rev}") not in ("", "-1") else []
        return {int(name): self.hg("cat", "-r", "tip", name) for name in names}


class Fossil:
    """Fossil: a database of SQLite. Pages of its wiki, since a check-out has a database of its own, and a transaction
    over two stores the path of a journal, which is another one after a crash test."""

    def fossil(self, *words):
        return said("fossil", *words, "-R", "all.fossil", env={"HOME": os.getcwd(), "USER": "a"})

    def setup(self):
        said("fossil", "init", "all.fossil", env={"HOME": os.getcwd(), "USER": "a"})

    def commit(self, number):
        self.fossil("wiki", "create", f"page {number}", str(number))

    def records(self):
        self.fossil("test-integrity")
        names = re.findall(r"^page (\d+)$", self.fossil("wiki", "list"), re.M)
        # Fossil takes away the space at the end.
        return {int(name): self.fossil("wiki", "export", f"page {name}", "-").rstrip() + " " for name in names}


class Svn:
    """Subversion, a repository of FSFS."""

    def setup(self):
        said("svnadmin", "create", "all")

    def url(self):
        return "file://" + os.path.abspath("all")

    def commit(self, number):
        said("svn", "import", "-q", "--no-auth-cache", "--non-interactive", "-m", f"file {number}", str(number),
             f"{self.url()}/{number}", env={"HOME": os.getcwd()})

    def records(self):
        said("svnadmin", "verify", "-q", "all")
        names = said("svnlook", "tree", "--full-paths", "all").split()
        return {int(name): said("svnlook", "cat", "all", name) for name in names if name != "/"}


class Borg:
    """BorgBackup: an archive for each file."""

    def borg(self, *words):
        return said("borg", *words, env={
            "BORG_BASE_DIR": os.path.abspath("base"), "BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK": "yes",
            "BORG_RELOCATED_REPO_ACCESS_IS_OK": "yes", "BORG_CHECK_I_KNOW_WHAT_I_AM_DOING": "YES"})

    def setup(self):
        self.borg("init", "-e", "none", "all")
        # It wants room for a segment beside what is there.
        self.borg("config", "all", "max_segment_size", str(4 << 20))

    def commit(self, number):
        self.borg("create", f"all::{number}", str(number))

    def records(self):
        # A machine that lost its power leaves its lock.
        self.borg("break-lock", "all")
        self.borg("check", "all")
        names = self.borg("list", "--short", "all").split()
        return {int(name): self.borg("extract", "--stdout", f"all::{name}", name) for name in names}


class Ostree:
    """OSTree: a branch with a commit for each file."""

    def setup(self):
        said("ostree", "--repo=all", "init", "--mode=bare-user-only")
        os.mkdir("tree")

    def commit(self, number):
        os.rename(str(number), f"tree/{number}")
        said("ostree", "--repo=all", "commit", "-b", "main", "--canonical-permissions", "-s", str(number), "tree")

    def records(self):
        said("ostree", "--repo=all", "fsck")
        if "main" not in said("ostree", "--repo=all", "refs").split():
            return {}
        names = re.findall(r"/(\d+)$", said("ostree", "--repo=all", "ls", "main"), re.M)
        return {int(name): said("ostree", "--repo=all", "cat", "main", f"/{name}") for name in names}


def main(verb, name):
    history = {"hg": Hg, "fossil": Fossil, "svn": Svn, "borg": Borg, "ostree": Ostree}[name]()
    if verb == "setup":
        history.setup()
    elif verb == "check":
        judge(history.records())
    else:
        for number in range(STEPS):
            with open(str(number), "w") as file:
                file.write(text(number))
            history.commit(number)
            acknowledge(number)


main(*sys.argv[1:])
