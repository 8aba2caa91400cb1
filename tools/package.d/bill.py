"""The bill of materials of a binary: narrowed to what is linked, and judged.

    bill.py narrow BILL TREE TARGET FEATURES [LOCK]   leaves in the bill what `cargo tree` names, and says with what
                                                      target and features the binary was built
    bill.py said BILL                                 prints this target, and these features
    bill.py judge BILL TREE DEBUG                     fails unless the bill lists what is linked, and nothing else
    bill.py damage BILL missing DEBUG|too-many|other-version|not-json
                                                      plants a fault in the bill

TREE is the output of `cargo tree --prefix none -e normal,no-proc-macro` for the target and the features.
cargo-cyclonedx also lists what only builds the binary (macros, build scripts and their dependencies). DEBUG is the binary's debug
symbols: their tables of lines name the crates whose code is in the binary, whoever says what. A crate of which the
linker kept no line is not in them. The crates inside the standard library are not listed. If it was built from its
sources, their LOCK says which they may be, and a property of the bill names them.
"""
import json
import os
import re
import sys
import tomllib

TARGET, FEATURES, STANDARD = "uxfs:target", "uxfs:features", "uxfs:standard-library"
# With fewer crates the debug symbols are not those of the command.
LEAST = 60


def fail(text):
    sys.exit(f"the bill of materials: {text}")


def read(path):
    with open(path, encoding="utf-8") as file:
        try:
            return json.load(file)
        except ValueError as error:
            fail(f"no JSON: {error}")


def write(path, bill):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(bill, file, indent=2)
        file.write("\n")


def in_tree(path):
    """The crates that cargo names, as pairs of name and version."""
    with open(path, encoding="utf-8") as file:
        words = [line.split() for line in file]
    return {(line[0], line[1].removeprefix("v")) for line in words if line}


def in_debug(path):
    """The crates that the debug symbols name: from the registry with their versions, those of the workspace without."""
    with open(path, "rb") as file:
        content = file.read()
    registry = re.findall(rb"registry/src/[^/\0]+/([A-Za-z0-9_-]+?)-(\d+\.\d+\.\d+[^/\0]*)[/\0]", content)
    own = re.findall(rb"crates/(uxfs[a-z-]*)/src[/\0]", content)
    return {(name.decode(), version.decode()) for name, version in registry}, {name.decode() for name in own}


def crate(component):
    return component["name"], component["version"]


def components(bill):
    return [bill["metadata"]["component"], *bill["components"]]


def in_lock(path):
    """The crates from a registry that a Cargo.lock has."""
    with open(path, "rb") as file:
        packages = tomllib.load(file)["package"]
    return {(package["name"], package["version"]) for package in packages if "source" in package}


def narrow(path, tree, target, features, lock=None):
    bill, linked = read(path), in_tree(tree)
    # Where the sources lie on this machine is nobody's business, and would make other bytes elsewhere.
    bill = json.loads(json.dumps(bill).replace(f"file://{os.getcwd()}/", "file://./"))
    bill["components"] = [component for component in bill["components"] if crate(component) in linked]
    kept = {component["bom-ref"] for component in components(bill)}
    links = [link for link in bill["dependencies"] if link["ref"] in kept]
    for link in links:
        if "dependsOn" in link:
            link["dependsOn"] = [ref for ref in link["dependsOn"] if ref in kept]
    bill["dependencies"] = links
    properties = bill["metadata"].setdefault("properties", [])
    properties += [{"name": TARGET, "value": target}, {"name": FEATURES, "value": features}]
    if lock:
        properties.append({"name": STANDARD, "value": names(in_lock(lock))})
    write(path, bill)


def properties_of(bill):
    return {p["name"]: p["value"] for p in bill.get("metadata", {}).get("properties", [])}


def is_standard(name, bill):
    """Whether the standard library has this crate too, so that its code may be that one's."""
    return names([name]) in properties_of(bill).get(STANDARD, "").split(", ")


def said(path):
    found = properties_of(read(path))
    for name in [TARGET, FEATURES]:
        if name not in found:
            fail(f"has no property {name}")
        print(found[name])


def judge(path, tree, debug):
    bill = read(path)
    if bill.get("bomFormat") != "CycloneDX" or not re.fullmatch(r"1\.[5-9]", bill.get("specVersion", "")):
        fail("is not CycloneDX 1.5 or later")
    listed = [crate(component) for component in components(bill)]
    twice = {name for name in listed if listed.count(name) > 1}
    if twice:
        fail(f"lists twice: {names(twice)}")
    for component in bill["components"]:
        # The workspace's own crates have none.
        if component.get("purl", "").startswith("pkg:cargo/") and not component.get("licenses"):
            fail(f"no licence of {names([crate(component)])}")
    refs = {component["bom-ref"] for component in components(bill)}
    for link in bill["dependencies"]:
        for ref in [link["ref"], *link.get("dependsOn", [])]:
            if ref not in refs:
                fail(f"a dependency on {ref}, which it does not list")
    listed, linked = set(listed), in_tree(tree)
    registry, own = in_debug(debug)
    if len(registry) + len(own) < LEAST:
        fail(f"the debug symbols name only {len(registry) + len(own)} crates, so they prove nothing")
    missing = {name for name in registry if name not in listed and not is_standard(name, bill)} | \
        {(name, "of the workspace") for name in own if name not in {name for name, _ in listed}}
    if missing:
        fail(f"code is in the binary, but not listed: {names(missing)}")
    if listed - linked:
        fail(f"lists what is not linked: {names(listed - linked)}")
    if linked - listed:
        fail(f"does not list what is linked: {names(linked - listed)}")
    print(f"bill of materials: {len(listed)} crates; the debug symbols name {len(registry) + len(own)} of them")


def names(crates):
    return ", ".join(sorted(f"{name} {version}" for name, version in crates))


def damage(path, fault, *debug):
    bill = read(path)
    if fault == "missing":
        registry, _ = in_debug(debug[0])
        gone = next(component for component in bill["components"]
                    if crate(component) in registry and not is_standard(crate(component), bill))
        bill["components"].remove(gone)
        bill["dependencies"] = [
            {"ref": link["ref"], "dependsOn": [ref for ref in link.get("dependsOn", []) if ref != gone["bom-ref"]]}
            for link in bill["dependencies"] if link["ref"] != gone["bom-ref"]]
    elif fault == "too-many":
        bill["components"].append({"type": "library", "bom-ref": "other", "name": "left-over", "version": "1.0.0"})
    elif fault == "other-version":
        bill["components"][len(bill["components"]) // 2]["version"] += "9"
    write(path, bill)
    if fault == "not-json":
        with open(path, "a", encoding="utf-8") as file:
            file.write("}")


def main():
    what, *arguments = sys.argv[1:]
    {"narrow": narrow, "said": said, "judge": judge, "damage": damage}[what](*arguments)


main()
