"""What tools/labels does with a tree: lets setfiles label it, imports it, and compares; or measures imports.

    labels.py check NAME TREE RULES LEAST UXFS SETFILES…   the comparison, then the planted faults
    labels.py pairs NAME TREE ROUNDS UXFS                  imports with labels and without, in turns

1. A path is compared if it is in the tree, in the image, or in both. None is left out.
2. A label is compared with all its bytes but the NUL at its end, which both sides must have or lack.
3. The tree has no labels but the marks when it is imported.
4. The comparison counts only if it finds each planted fault, and nothing else.

The image NAME.img is in the current directory, and is removed at the end.
"""
import os
import statistics
import subprocess
import sys
import tarfile
import time

ATTRIBUTE = "security.selinux"
# Labels that files have before. Where the rule is <<none>> the label stays; the others are replaced.
MARKS = [b"etc/passwd", b"proc/kept", b"data/none/kept", b"data/none/lost"]
MARK = b"system_u:object_r:mark_t:s0\0"
# Most differences that are printed.
SHOWN = 20


def fail(text):
    sys.exit(f"tools/labels: {text}")


def say(text):
    print(f"== {text}", file=sys.stderr, flush=True)


def run(*command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode:
        fail(f"{' '.join(map(str, command))}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def shown(path):
    return repr(path.decode(errors="backslashreplace"))[1:-1]


def paths(tree):
    """All paths in a tree, relative to it; its root is empty."""
    tree = os.fsencode(tree)
    yield b""
    for dir, dirs, files in os.walk(tree, onerror=lambda error: fail(f"{error}")):
        for name in dirs + files:
            yield os.path.join(dir, name)[len(tree) + 1:]


def label_of(path):
    try:
        return os.getxattr(path, ATTRIBUTE, follow_symlinks=False)
    except OSError as error:
        if error.errno != 61:  # ENODATA
            raise
        return None


def labels_of_tree(tree):
    top = os.fsencode(tree)
    return {path: label_of(os.path.join(top, path)) for path in paths(tree)}


def unlabel(tree):
    """Removes all labels, and puts the marks."""
    top = os.fsencode(tree)
    for path in paths(tree):
        whole = os.path.join(top, path)
        if label_of(whole) is not None:
            os.removexattr(whole, ATTRIBUTE, follow_symlinks=False)
    for path in MARKS:
        if os.path.lexists(os.path.join(top, path)):
            os.setxattr(os.path.join(top, path), ATTRIBUTE, MARK, follow_symlinks=False)


def labels_of_image(uxfs, image):
    """The labels of all paths in an image, by `uxfs export`."""
    command = [uxfs, "export", image]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    labels = {}
    with tarfile.open(fileobj=process.stdout, mode="r|", bufsize=1 << 20) as archive:
        for member in archive:
            path = plain(member.name)
            if member.islnk():
                labels[path] = labels[plain(member.linkname)]
                continue
            label = member.pax_headers.get(f"SCHILY.xattr.{ATTRIBUTE}")
            labels[path] = None if label is None else label.encode("utf-8", "surrogateescape")
            archive.members.clear()
    process.stdout.close()
    if process.wait():
        fail(f"{' '.join(command)} failed")
    return labels


def plain(name):
    name = os.fsencode(name).rstrip(b"/")
    return b"" if name == b"." else name.removeprefix(b"./")


def differences(theirs, ours):
    """Paths on which two sides differ, with what each says."""
    absent = b"no such path"
    every = sorted(theirs.keys() | ours.keys())
    pairs = ((path, theirs.get(path, absent), ours.get(path, absent)) for path in every)
    return [(path, left, right) for path, left, right in pairs if left != right]


def compare(what, theirs, ours):
    found = differences(theirs, ours)
    for path, left, right in found[:SHOWN]:
        print(f"/{shown(path)}: {text_of(right)}, not {text_of(left)}")
    print(f"{what}: {len(theirs.keys() | ours.keys())} paths, {len(found)} differences", flush=True)
    return len(found)


def text_of(label):
    return "no label" if label is None else shown(label.removesuffix(b"\0"))


def must_find(fault, want, theirs, ours):
    found = [path for path, _, _ in differences(theirs, ours)]
    if found != sorted(want):
        fail(f"planted: {fault}; found are {[shown(path) for path in found[:SHOWN]]}")
    print(f"planted: {fault}: found", flush=True)


def faults_in_notes(theirs, ours):
    """Each fault in a copy of what setfiles said."""
    labelled = sorted(path for path, label in theirs.items() if label is not None)
    first, middle, last = labelled[1], labelled[len(labelled) // 2], labelled[-1]
    must_find(f"another level at /{shown(middle)}", [middle],
              theirs | {middle: theirs[middle].removesuffix(b"\0") + b":c1\0"}, ours)
    must_find(f"no NUL byte at the end at /{shown(last)}", [last],
              theirs | {last: theirs[last].removesuffix(b"\0")}, ours)
    must_find(f"no label at /{shown(first)}", [first], theirs | {first: None}, ours)
    bare = next(path for path, label in theirs.items() if label is None)
    must_find(f"a label at /{shown(bare)}", [bare], theirs | {bare: MARK}, ours)
    must_find(f"a path too many in the image, /{shown(last)}", [last],
              {path: label for path, label in theirs.items() if path != last}, ours)
    must_find("a path too few in the image, /none/such", [b"none/such"], theirs | {b"none/such": None}, ours)


def faults_in_image(uxfs, image, theirs):
    """Faults in the image itself, which export must bring to light."""
    changed, removed, gone = b"etc/shadow", b"etc/fstab", b"etc/hostname"
    run(uxfs, "xattr", "set", "-n", ATTRIBUTE, "-v", "system_u:object_r:etc_t:s0", f"{image}:/{changed.decode()}")
    run(uxfs, "xattr", "remove", "-n", ATTRIBUTE, f"{image}:/{removed.decode()}")
    run(uxfs, "rm", f"{image}:/{gone.decode()}")
    must_find("in the image another label at /etc/shadow, none at /etc/fstab, no /etc/hostname",
              [changed, removed, gone], theirs, labels_of_image(uxfs, image))


def check(name, tree, rules, least, uxfs, *setfiles):
    image = f"{name}.img"
    say(f"{name}: setfiles labels the tree")
    unlabel(tree)
    # Not -n: the labels must be on the files, or what setfiles fails to set would not be noticed.
    run(*setfiles, "-F", "-m", "-r", os.path.abspath(tree), rules, os.path.abspath(tree))
    theirs = labels_of_tree(tree)
    unlabel(tree)
    labelled = [label for label in theirs.values() if label is not None]
    print(f"{name}: setfiles gives {len(set(labelled))} different labels to {len(labelled)} of {len(theirs)} paths")
    if len(theirs) < int(least):
        fail(f"{len(theirs)} paths are fewer than {least}")
    wrong, ours = 0, {}
    for how in [rules, "auto", None]:
        what = f"import --file-contexts {'auto' if how == 'auto' else 'FILE'}" if how else "relabel"
        say(f"{name}: {what}")
        options = ["--file-contexts", how] if how else []
        run(uxfs, "import", "--quiet", "--force", *options, tree, image)
        if not how:
            before = labels_of_image(uxfs, image)
            if any(label not in (None, MARK) for label in before.values()):
                fail("the plain import has labels already")
            run(uxfs, "relabel", "--file-contexts", "auto", image)
        run(uxfs, "check", "--quiet", image)
        ours = labels_of_image(uxfs, image)
        wrong += compare(f"{name}, {what}", theirs, ours)
    if wrong:
        fail(f"{wrong} labels of {name} are not those of setfiles")
    say(f"{name}: planted faults")
    faults_in_notes(theirs, ours)
    faults_in_image(uxfs, image, theirs)
    os.remove(image)


def warm(tree):
    """Reads every file of a tree."""
    for path in paths(tree):
        whole = os.path.join(os.fsencode(tree), path)
        if os.path.isfile(whole) and not os.path.islink(whole):
            with open(whole, "rb", buffering=0) as file:
                while file.read(1 << 20):
                    pass


def measure(command, image):
    """Seconds of processors, and until the image is on stable storage."""
    if os.path.exists(image):
        os.remove(image)
    begun = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = status
    if status:
        fail(f"{' '.join(command)}: {said.decode(errors='replace').strip()}")
    fd = os.open(image, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
    return usage.ru_utime + usage.ru_stime, time.monotonic() - begun


def row(what, numbers):
    return f"{statistics.median(numbers):.3f} ({min(numbers):.3f} to {max(numbers):.3f}) {what}".strip()


def pairs(name, tree, rounds, uxfs):
    image = f"{name}.img"
    unlabel(tree)
    sides = {
        "labels": [uxfs, "import", "--quiet", "--force", "--file-contexts", "auto", tree, image],
        "plain": [uxfs, "import", "--quiet", "--force", tree, image],
    }
    seconds = {side: [] for side in sides}
    for number in range(int(rounds)):
        warm(tree)
        for side in sides if number % 2 == 0 else reversed(sides):
            seconds[side].append(measure(sides[side], image))
            say(f"{name}, round {number + 1}, {side}: processor {seconds[side][-1][0]:.2f} s, "
                f"durable {seconds[side][-1][1]:.2f} s")
    os.remove(image)
    for at, what in enumerate(["processor (user and system)", "until on stable storage"]):
        labels, plainly = ([times[at] for times in seconds[side]] for side in ["labels", "plain"])
        ratios = [mine / other for mine, other in zip(labels, plainly)]
        print(f"| {name} | {what} | {row('', labels)} | {row('', plainly)} | {row('', ratios)} |", flush=True)


def main():
    what, *arguments = sys.argv[1:]
    {"check": check, "pairs": pairs}[what](*arguments)


main()
