"""What becomes of files and volumes when one of them ends: by close, by collection, in a child process."""

import errno
import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
import warnings

import uxfs
from test_uxfs import repair


class OnImage(unittest.TestCase):
    def setUp(self):
        self.host = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.host)
        self.image = os.path.join(self.host, "disk.img")

    def make(self):
        return uxfs.Volume.mkfs(self.image, "64M", unsupported=True)

    def content(self):
        repair(self.image)
        with uxfs.Volume.open_image(self.image, read_only=True) as volume:
            return {name: volume.read_bytes(name) for name in sorted(volume.listdir())}


class Closing(OnImage):
    def test_close_writes_open_files(self):
        with self.make() as volume:
            volume.write_bytes("both", b"old....")
            text, binary = volume.open("text", "w"), volume.open("binary", "wb")
            both, shut = volume.open("both", "r+b"), volume.open("shut", "w")
            gone = volume.open("gone", "w")
            text.write("t" * 9000)
            binary.write(b"b")
            both.write(b"new")
            shut.write("s")
            shut.close()
            gone.detach().close()
        found = self.content()
        self.assertEqual(found["text"], b"t" * 9000)
        self.assertEqual([found["binary"], found["both"], found["shut"]], [b"b", b"new....", b"s"])
        for file in (text, binary, both, shut):
            file.close()
        with self.assertRaises(ValueError):
            text.write("more")

    def test_close_closes_also_if_a_buffer_cannot_be_written(self):
        volume = self.make()
        with volume.open("f", "r+b" if volume.exists("f") else "w+b") as file:
            file.truncate(10)
        last = volume.open("f", "r+b")
        last.seek((1 << 63) - 2)
        last.write(b"xyz")
        with self.assertRaises(OSError):
            volume.close()
        self.assertTrue(volume.closed)
        with self.assertRaises(OSError):
            last.close()
        self.assertEqual(self.content(), {"f": bytes(10)})

    def test_a_file_keeps_its_volume(self):
        file = self.make().open("f", "w")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            gc.collect()
        file.write("x" * 300_000)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            del file
            gc.collect()
        self.assertIn(ResourceWarning, [one.category for one in caught])
        self.assertEqual(self.content(), {"f": b"x" * 300_000})

    def test_a_file_that_fsspec_closed_survives_its_process(self):
        self.make().close()
        code = (
            "import fsspec, os, signal\n"
            f"with fsspec.open('uxfs://{self.image}/f', 'wb') as file: file.write(b'durable')\n"
            "os.kill(os.getpid(), signal.SIGKILL)\n"
        )
        done = subprocess.run([sys.executable, "-c", code])
        self.assertEqual(done.returncode, -signal.SIGKILL)
        with uxfs.Volume.open_image(self.image) as volume:
            self.assertEqual(volume.listdir(), ["f"])
            self.assertEqual(volume.read_bytes("f"), b"durable")
        repair(self.image)


@unittest.skipUnless(hasattr(os, "fork"), "no fork")
class Children(OnImage):
    def child(self, work):
        """Runs `work` in a child; its exit code is 0 if all was as expected."""
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                work()
                code = 0
            except SystemExit as end:
                code = end.code or 0
            finally:
                sys.stderr.flush()
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        self.assertEqual(os.waitstatus_to_exitcode(status), 0)

    def test_a_child_writes_nothing(self):
        for background in (False, True):
            with self.subTest(background=background):
                self.parent(background)
                os.remove(self.image)

    def parent(self, background):
        self.make().close()
        volume = uxfs.Volume.open_image(self.image, background=background)
        volume.write_bytes("before", b"1" * 5000)
        held = volume.open("held", "wb", 0)

        def leaves():
            with volume:
                sys.exit()

        def uses():
            for call in (
                lambda: volume.write_bytes("child", b"c"),
                lambda: volume.listdir(),
                lambda: volume.sync(),
                lambda: held.write(b"c"),
                lambda: volume._native.close(),
            ):
                try:
                    call()
                except OSError as error:
                    assert error.errno == errno.EBADF, error
                else:
                    raise AssertionError("the child used the volume")
            held.close()

        def collects():
            nonlocal volume, held
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                del held
                del volume
                gc.collect()

        for work in (leaves, uses, collects):
            with open(self.image, "rb") as image:
                before = image.read()
            self.child(work)
            with open(self.image, "rb") as image:
                self.assertEqual(image.read(), before, work.__name__)
        volume.write_bytes("after", b"2" * 5000)
        held.write(b"3")
        held.close()
        volume.close()
        found = self.content()
        self.assertEqual(found, {"after": b"2" * 5000, "before": b"1" * 5000, "held": b"3"})


if __name__ == "__main__":
    unittest.main()
