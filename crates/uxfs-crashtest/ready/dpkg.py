"""Packages that dpkg installs."""
import os
import sys

from common import acknowledge, acknowledged, main, said, text

# dpkg takes longer than the other programs.
PACKAGES = 10
# Not what this machine's dpkg.cfg may say: containers switch fsync off there.
ROOT = ["--root=.", "--force-not-root", "--force-bad-path", "--no-force-unsafe-io", "--log=/dev/null"]


def setup():
    os.makedirs("var/lib/dpkg/updates")
    os.makedirs("var/lib/dpkg/info")
    os.makedirs("packages")
    for name in ("status", "available"):
        open(f"var/lib/dpkg/{name}", "w").close()
    for number in range(PACKAGES):
        tree = f"packages/p{number}"
        os.makedirs(f"{tree}/DEBIAN")
        os.makedirs(f"{tree}/opt/p{number}")
        with open(f"{tree}/DEBIAN/control", "w") as file:
            file.write(f"Package: p{number}\nVersion: 1\nArchitecture: all\nMaintainer: A <a@example.org>\n"
                       f"Description: package {number}\n")
        for part in range(4):
            with open(f"{tree}/opt/p{number}/{part}", "w") as file:
                file.write(text(number + part))
        said("dpkg-deb", "--build", tree)


def run():
    for number in range(PACKAGES):
        said("dpkg", *ROOT, "-i", f"packages/p{number}.deb")
        acknowledge(number)


def check():
    installed = said("dpkg-query", "--root=.", "--admindir=var/lib/dpkg", "-W", "-f", "${Package} ${db:Status-Status}\n")
    whole = [line.split()[0] for line in installed.splitlines() if line.endswith(" installed")]
    for number in range(acknowledged()):
        if f"p{number}" not in whole:
            sys.exit(f"package {number} is not installed, and was acknowledged")
    for name in whole:
        number = int(name[1:])
        for part in range(4):
            path = f"opt/{name}/{part}"
            if not os.path.exists(path) or open(path).read() != text(number + part):
                sys.exit(f"{path} of an installed package is missing or damaged")


main(setup=setup, run=run, check=check)
