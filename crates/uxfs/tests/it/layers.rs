//! Imports run one way: between crates by a list of what may never be, inside a crate without
//! circles of more than three files. The byte order of the format is known in one place.
//!
//! Sources are parsed, not searched: `use` items and paths in code count, what is compiled for tests
//! only does not. A path is followed through `pub use` to the file that defines the name.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};

use crate::docs::root;

/// The largest circle that may be. Three files that describe one thing are at times clearest so.
const LARGEST: usize = 3;

/// What a crate may use of this workspace, directly. ARCHITECTURE.md draws it.
const MAY_USE: &[(&str, &[&str])] = &[
    ("uxfs-sync", &[]),
    ("uxfs-host", &[]),
    ("uxfs-format", &[]),
    ("uxfs-delta", &[]),
    ("uxfs-disk", &["uxfs-host"]),
    ("uxfs-remote", &["uxfs-delta", "uxfs-disk", "uxfs-host"]),
    ("uxfs-nbd", &["uxfs-disk", "uxfs-host"]),
    ("uxfs-fork", &["uxfs-delta", "uxfs-disk", "uxfs-host"]),
    ("uxfs-archive", &["uxfs-host"]),
    ("uxfs-selinux", &[]),
    ("uxfs-journal", &["uxfs-disk", "uxfs-format", "uxfs-sync"]),
    ("uxfs-mkfs", &["uxfs-disk", "uxfs-format"]),
    ("uxfs-check", &["uxfs-disk", "uxfs-format"]),
    ("uxfs-metadump", &["uxfs-disk", "uxfs-format", "uxfs-journal"]),
    ("uxfs-core", &["uxfs-disk", "uxfs-format", "uxfs-host", "uxfs-journal", "uxfs-sync"]),
    ("uxfs-repair", &["uxfs-check", "uxfs-core", "uxfs-disk", "uxfs-format", "uxfs-journal"]),
    ("uxfs-models", &["uxfs-disk", "uxfs-journal", "uxfs-testkit"]),
    (
        "uxfs",
        &[
            "uxfs-archive",
            "uxfs-check",
            "uxfs-core",
            "uxfs-disk",
            "uxfs-fork",
            "uxfs-format",
            "uxfs-host",
            "uxfs-journal",
            "uxfs-mkfs",
            "uxfs-selinux",
        ],
    ),
    ("uxfs-capi", &["uxfs"]),
    ("uxfs-python", &["uxfs"]),
    ("uxfs-transport", &[]),
    ("uxfs-vhost", &["uxfs-host"]),
    ("uxfs-vhost-blk", &["uxfs-disk", "uxfs-vhost"]),
    ("uxfs-virtiofs", &["uxfs-transport", "uxfs-vhost"]),
    ("uxfs-fuse", &["uxfs", "uxfs-disk", "uxfs-transport", "uxfs-virtiofs"]),
    ("uxfs-image", &["uxfs", "uxfs-host"]),
    ("uxfs-bench", &["uxfs", "uxfs-fuse", "uxfs-testkit", "uxfs-transport"]),
    (
        "uxfs-crash",
        &["uxfs", "uxfs-check", "uxfs-disk", "uxfs-format", "uxfs-journal", "uxfs-testkit"],
    ),
    (
        "uxfs-crashtest",
        &["uxfs", "uxfs-check", "uxfs-disk", "uxfs-fuse", "uxfs-testkit", "uxfs-vhost-blk"],
    ),
    (
        "uxfs-lab",
        &[
            "uxfs",
            "uxfs-bench",
            "uxfs-check",
            "uxfs-disk",
            "uxfs-journal",
            "uxfs-models",
            "uxfs-sync",
            "uxfs-testkit",
        ],
    ),
    (
        "uxfs-cli",
        &[
            "uxfs",
            "uxfs-bench",
            "uxfs-check",
            "uxfs-crash",
            "uxfs-crashtest",
            "uxfs-format",
            "uxfs-fuse",
            "uxfs-host",
            "uxfs-image",
            "uxfs-journal",
            "uxfs-lab",
            "uxfs-metadump",
            "uxfs-remote",
            "uxfs-models",
            "uxfs-nbd",
            "uxfs-repair",
            "uxfs-vhost-blk",
        ],
    ),
    // Only tools use it outside of tests.
    ("uxfs-testkit", &["uxfs-disk"]),
    ("uxfs-oracle", &["uxfs-testkit"]),
];

type Module = Vec<String>;

#[derive(Default)]
struct Paths {
    found: Vec<Vec<String>>,
    exported: Vec<(String, Vec<String>)>,
}

impl Paths {
    fn tree(&mut self, tree: &syn::UseTree, before: &[String], public: bool) {
        let mut path = before.to_vec();
        match tree {
            syn::UseTree::Path(at) => {
                path.push(at.ident.to_string());
                self.tree(&at.tree, &path, public);
            }
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|item| self.tree(item, before, public));
            }
            syn::UseTree::Name(name) if name.ident == "self" => self.end(path, None, public),
            syn::UseTree::Name(name) => {
                path.push(name.ident.to_string());
                self.end(path, Some(name.ident.to_string()), public);
            }
            syn::UseTree::Rename(name) => {
                path.push(name.ident.to_string());
                self.end(path, Some(name.rename.to_string()), public);
            }
            syn::UseTree::Glob(_) => self.end(path, None, public),
        }
    }

    fn end(&mut self, path: Vec<String>, name: Option<String>, public: bool) {
        if let (true, Some(name)) = (public, name) {
            self.exported.push((name, path.clone()));
        }
        self.found.push(path);
    }
}

/// Is it compiled for tests only?
fn for_tests(attrs: &[syn::Attribute]) -> bool {
    attrs.iter().any(|attr| {
        attr.path().is_ident("cfg")
            && attr.parse_args::<syn::Ident>().is_ok_and(|word| word == "test")
    })
}

fn attrs(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(i) => &i.attrs,
        syn::Item::Fn(i) => &i.attrs,
        syn::Item::Impl(i) => &i.attrs,
        syn::Item::Mod(i) => &i.attrs,
        syn::Item::Static(i) => &i.attrs,
        syn::Item::Struct(i) => &i.attrs,
        syn::Item::Use(i) => &i.attrs,
        _ => &[],
    }
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !for_tests(attrs(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let public = !matches!(item.vis, syn::Visibility::Inherited);
        self.tree(&item.tree, &[], public);
    }

    // `pub(super)` leads nowhere.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names = path.segments.iter().map(|segment| segment.ident.to_string());
        self.found.push(names.collect());
        visit::visit_path(self, path);
    }
}

/// The modules of a crate, by path, with their sources.
fn modules(src: &Path) -> BTreeMap<Module, String> {
    let mut found = BTreeMap::new();
    let mut left = vec![(src.to_owned(), Module::new())];
    while let Some((dir, at)) = left.pop() {
        for entry in std::fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let mut module = at.clone();
            if path.is_dir() && name == "tests" {
                // Not what users build.
            } else if path.is_dir() {
                module.push(name);
                left.push((path, module));
            } else if path.extension().is_some_and(|ext| ext == "rs") && name != "tests" {
                if !matches!(name.as_str(), "mod" | "lib" | "main") {
                    module.push(name);
                }
                found.insert(module, std::fs::read_to_string(&path).unwrap());
            }
        }
    }
    found
}

/// Who imports whom.
fn edges(modules: &BTreeMap<Module, String>) -> BTreeMap<Module, BTreeSet<Module>> {
    let mut paths = BTreeMap::new();
    let mut exported = BTreeMap::new();
    for (module, source) in modules {
        let mut seen = Paths::default();
        seen.visit_file(&syn::parse_file(source).unwrap());
        let whole = |path: &[String]| absolute(modules, module, path);
        for (name, path) in &seen.exported {
            if let Some(path) = whole(path) {
                exported.insert([module.as_slice(), std::slice::from_ref(name)].concat(), path);
            }
        }
        let found: Vec<Module> = seen.found.iter().filter_map(|path| whole(path)).collect();
        paths.insert(module.clone(), found);
    }
    let resolve = |path: &Module| {
        let mut path = path.clone();
        // As many steps as a name is handed on, at most.
        for _ in 0..8 {
            match (1..=path.len()).rev().find_map(|n| Some((n, exported.get(&path[..n])?))) {
                Some((n, to)) if !modules.contains_key(&path[..n]) => {
                    path = [to.as_slice(), &path[n..]].concat();
                }
                _ => break,
            }
        }
        (0..=path.len()).rev().map(|n| path[..n].to_vec()).find(|m| modules.contains_key(m))
    };
    let mut edges: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
    for (module, found) in &paths {
        let to = found.iter().filter_map(resolve).filter(|to| to != module && !to.is_empty());
        edges.insert(module.clone(), to.collect());
    }
    edges
}

/// A path from the crate's root, if it leads into this crate.
fn absolute(
    modules: &BTreeMap<Module, String>,
    module: &Module,
    path: &[String],
) -> Option<Module> {
    let first = path.first()?;
    let (base, rest) = match first.as_str() {
        "crate" => (Module::new(), &path[1..]),
        "self" => (module.clone(), &path[1..]),
        "super" => {
            let up = path.iter().take_while(|name| *name == "super").count();
            (module[..module.len().checked_sub(up)?].to_vec(), &path[up..])
        }
        _ => {
            let child = [module.as_slice(), std::slice::from_ref(first)].concat();
            modules.contains_key(&child).then_some((module.clone(), path))?
        }
    };
    Some([base.as_slice(), rest].concat())
}

/// Sets of modules each of which leads to each other, largest first; single ones left out.
fn circles(edges: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<BTreeSet<Module>> {
    let reach = |from: &Module| {
        let mut seen = BTreeSet::new();
        let mut left: Vec<&Module> = edges.get(from).into_iter().flatten().collect();
        while let Some(next) = left.pop() {
            if seen.insert(next.clone()) {
                left.extend(edges.get(next).into_iter().flatten());
            }
        }
        seen
    };
    let reached: BTreeMap<_, _> =
        edges.keys().map(|module| (module.clone(), reach(module))).collect();
    let mut found: BTreeSet<BTreeSet<Module>> = BTreeSet::new();
    for (module, there) in &reached {
        let back = |other: &&Module| reached.get(*other).is_some_and(|set| set.contains(module));
        let circle: BTreeSet<Module> = there.iter().filter(back).cloned().collect();
        if circle.len() > 1 {
            found.insert(circle);
        }
    }
    let mut found: Vec<_> = found.into_iter().collect();
    found.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    found
}

#[test]
fn no_circle_of_imports_is_larger_than_allowed() {
    let mut wrong = Vec::new();
    for entry in std::fs::read_dir(root().join("crates")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let circles = circles(&edges(&modules(&path.join("src"))));
        let largest = circles.first().map_or(0, BTreeSet::len);
        if largest > LARGEST {
            let names = circles.first().into_iter().flatten().map(|module| module.join("/"));
            let names = names.collect::<Vec<_>>().join(", ");
            wrong.push(format!("{name}: {largest} files: {names}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "circles of imports of more than {LARGEST} files:\n{}",
        wrong.join("\n")
    );
}

/// The modules of the journal that decide, with all below them. They must not name what is in
/// [`NOT_IN_THE_PIPELINE`], so that a simulation can drive them.
const PIPELINE: &[&str] = &[
    "ail",
    "cil",
    "copies",
    "grant_queue",
    "group_commit",
    "iclog",
    "leader",
    "log_item",
    "log_work",
    "options",
    "pipeline",
    "policy",
    "records",
    "space",
];

/// What a module of [`PIPELINE`] must not name: devices, threads, locks, clocks, and the modules that
/// have them.
const NOT_IN_THE_PIPELINE: &[&[&str]] = &[
    &["uxfs_disk"],
    &["uxfs_sync", "Mutex"],
    &["uxfs_sync", "RwLock"],
    &["uxfs_sync", "Condvar"],
    &["uxfs_sync", "now"],
    &["uxfs_sync", "self"],
    &["crate", "journal"],
    &["crate", "driver"],
    &["crate", "volume"],
    &["parking_lot"],
    &["std", "thread"],
    &["std", "time", "Instant"],
    &["std", "time", "SystemTime"],
    &["std", "io"],
    &["std", "fs"],
    &["crate", "recovery"],
];

/// Paths in a source that start with one of [`NOT_IN_THE_PIPELINE`].
fn not_for_the_pipeline(source: &str) -> Vec<String> {
    let mut seen = Paths::default();
    seen.visit_file(&syn::parse_file(source).unwrap());
    let banned = |path: &Vec<String>| {
        NOT_IN_THE_PIPELINE
            .iter()
            .any(|start| path.len() >= start.len() && path.iter().zip(*start).all(|(a, b)| a == b))
    };
    seen.found.iter().filter(|path| banned(path)).map(|path| path.join("::")).collect()
}

#[test]
fn the_commit_pipeline_knows_no_device_thread_or_clock() {
    let mut read = 0;
    for (module, source) in modules(&root().join("crates/uxfs-journal/src")) {
        if !module.first().is_some_and(|first| PIPELINE.contains(&first.as_str())) {
            continue;
        }
        let wrong = not_for_the_pipeline(&source);
        assert!(wrong.is_empty(), "{}: {wrong:?}", module.join("/"));
        read += 1;
    }
    assert!(read > PIPELINE.len(), "{read} modules");
    let wrong = "use std::{thread, fmt}; fn f() { std::time::Instant::now(); parking_lot::x(); }";
    assert_eq!(
        not_for_the_pipeline(wrong),
        ["std::thread", "std::time::Instant::now", "parking_lot::x"]
    );
}

/// Crates of this workspace among the dependencies that users build.
fn uses(manifest: &str) -> BTreeSet<String> {
    let manifest: toml::Table = manifest.parse().unwrap();
    let table = manifest.get("dependencies").and_then(toml::Value::as_table);
    let names = table.into_iter().flat_map(|table| table.keys().cloned());
    names.filter(|name| name.starts_with("uxfs")).collect()
}

#[test]
fn crates_use_only_those_below_them() {
    for (name, allowed) in MAY_USE {
        let manifest = root().join("crates").join(name).join("Cargo.toml");
        let uses = uses(&std::fs::read_to_string(manifest).unwrap());
        let allowed: BTreeSet<String> = allowed.iter().map(|&name| name.into()).collect();
        assert_eq!(uses.difference(&allowed).collect::<Vec<_>>(), Vec::<&String>::new(), "{name}");
    }
    let count = std::fs::read_dir(root().join("crates")).unwrap().count();
    assert_eq!(count, MAY_USE.len(), "each crate has a line here");
}

#[test]
fn circles_are_found_through_children_and_names_handed_on() {
    let module =
        |path: &str| path.split('/').filter(|n| !n.is_empty()).map(str::to_owned).collect();
    let sources = [
        ("", "mod a; mod b; mod c; mod d;"),
        ("a", "mod inner; pub use inner::Thing; fn f(_: crate::b::B) {}"),
        ("a/inner", "pub struct Thing;"),
        ("b", "use crate::c; pub struct B;"),
        ("c", "use super::a::Thing;\n#[cfg(test)]\nmod t { use crate::d::D; }"),
        ("d", "use crate::{a, b::B}; pub struct D;"),
    ];
    let modules: BTreeMap<Module, String> =
        sources.iter().map(|(path, source)| (module(path), (*source).to_owned())).collect();
    // c takes what a hands on from its child, which leads nowhere: no circle.
    assert!(circles(&edges(&modules)).is_empty());
    let mut closed = modules.clone();
    closed.insert(module("a/inner"), "pub struct Thing; use crate::d::D;".into());
    let found = circles(&edges(&closed));
    assert_eq!(found.len(), 1);
    let names: Vec<_> = found[0].iter().map(|module| module.join("/")).collect();
    assert_eq!(names, ["a", "a/inner", "b", "c", "d"]);
}

/// The lines of the engine's table in ARCHITECTURE.md, from the bottom up: the modules of each.
fn lines_of_the_map(page: &str) -> Vec<Vec<Module>> {
    let section = page.split("## Inside the engine").nth(1).expect("the section is there");
    let rows = section.lines().skip_while(|line| !line.starts_with("|---"));
    let rows = rows.skip(1).take_while(|line| line.starts_with('|'));
    let modules = |row: &str| {
        let cell = row.split('|').nth(1).unwrap_or_default();
        let names = cell.split('`').skip(1).step_by(2);
        names.map(|name| name.split('/').map(str::to_owned).collect()).collect()
    };
    rows.map(modules).collect()
}

/// Imports that lead upwards, and modules that have no line.
fn against_the_map(
    lines: &[Vec<Module>],
    edges: &BTreeMap<Module, BTreeSet<Module>>,
) -> Vec<String> {
    // The longest name that leads to a module counts.
    let line_of = |module: &Module| {
        let all = lines.iter().enumerate().flat_map(|(at, line)| line.iter().map(move |m| (at, m)));
        let named = all.filter(|(_, name)| module.starts_with(name));
        named.max_by_key(|(_, name)| name.len()).map(|(at, _)| at)
    };
    let mut wrong = Vec::new();
    for (module, uses) in edges.iter().filter(|(module, _)| !module.is_empty()) {
        let Some(line) = line_of(module) else {
            wrong.push(format!("{} has no line", module.join("/")));
            continue;
        };
        for used in uses {
            if line_of(used).is_some_and(|other| other > line) {
                wrong.push(format!("{} uses {}", module.join("/"), used.join("/")));
            }
        }
    }
    wrong
}

#[test]
fn the_engine_is_as_its_map_says() {
    let page = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let lines = lines_of_the_map(&page);
    let modules = modules(&root().join("crates/uxfs-core/src"));
    for name in lines.iter().flatten() {
        assert!(modules.keys().any(|module| module.starts_with(name)), "no {}", name.join("/"));
    }
    let wrong = against_the_map(&lines, &edges(&modules));
    assert!(wrong.is_empty(), "against ARCHITECTURE.md:\n{}", wrong.join("\n"));
}

#[test]
fn an_import_against_the_map_is_found() {
    let name = |path: &str| path.split('/').map(str::to_owned).collect::<Module>();
    let page =
        "## Inside the engine\n| module | noun |\n|---|---|\n| `a`, `b/low` | x |\n| `b` | y |\n";
    let lines = lines_of_the_map(page);
    let edge = |from: &str, to: &str| (name(from), BTreeSet::from([name(to)]));
    assert!(against_the_map(&lines, &BTreeMap::from([edge("b/high", "b/low")])).is_empty());
    let wrong = against_the_map(&lines, &BTreeMap::from([edge("b/low", "b/high"), edge("c", "a")]));
    assert_eq!(wrong, ["b/low uses b/high", "c has no line"]);
}

/// The ranks of locks in the order of the source, and whether a thread may hold several.
fn ranks_of_the_source() -> Vec<(String, bool)> {
    let source = std::fs::read_to_string(root().join("crates/uxfs-sync/src/rank.rs")).unwrap();
    let several = source.split("fn allows_several").nth(1).unwrap().split('}').next().unwrap();
    let file = syn::parse_file(&source).unwrap();
    let ranks = file.items.iter().find_map(|item| match item {
        syn::Item::Enum(item) if item.ident == "Rank" => Some(item),
        _ => None,
    });
    let names = ranks.expect("the ranks are an enum").variants.iter();
    let names = names.map(|variant| variant.ident.to_string());
    let words: BTreeSet<&str> = several.split(|c: char| !c.is_alphanumeric()).collect();
    names.map(|name| (name.clone(), words.contains(name.as_str()))).collect()
}

/// The same from the table of locks in ARCHITECTURE.md.
fn ranks_of_the_map(page: &str) -> Vec<(String, bool)> {
    let section = page.split("## Locks").nth(1).expect("the section is there");
    let rows = section.lines().skip_while(|line| !line.starts_with("|---"));
    let rows = rows.skip(1).take_while(|line| line.starts_with('|'));
    let cell = |row: &str, at: usize| row.split('|').nth(at).unwrap_or_default().trim().to_owned();
    rows.map(|row| (cell(row, 1).replace('`', ""), !cell(row, 3).is_empty())).collect()
}

#[test]
fn the_order_of_locks_is_as_the_map_says() {
    let page = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    assert_eq!(ranks_of_the_map(&page), ranks_of_the_source());
    let wrong = page.replacen("| `Gate` |", "| `Gait` |", 1);
    assert_ne!(ranks_of_the_map(&wrong), ranks_of_the_source());
}

/// Names of what converts a number between the machine's byte order and another. The machine's own
/// order is clippy's business (`host_endian_bytes`): only interfaces of the host need it.
const CONVERSIONS: &[&str] = &[
    "from_be",
    "from_be_bytes",
    "from_le",
    "from_le_bytes",
    "to_be",
    "to_be_bytes",
    "to_le",
    "to_le_bytes",
    "swap_bytes",
    "big_endian",
    "little_endian",
];

/// Sources that may convert, and why. All others go through `uxfs-format`.
const MAY_CONVERT: &[(&str, &str)] = &[
    ("uxfs-format/src", "the only place that knows the byte order of XFS"),
    ("uxfs-check/src/bytes.rs", "the verifier shares no code with the engine; this is its door"),
    ("uxfs-archive/src", "tar, ACLs and verity descriptors"),
    ("uxfs-disk/src", "partition tables, qcow2 and VHD"),
    ("uxfs-fork/src", "the heads and frames of forks"),
    ("uxfs-remote/src/cache_head.rs", "the map of a write cache"),
    ("uxfs-nbd/src/wire.rs", "the protocol of network block devices"),
    ("uxfs-delta/src", "the only place that knows the byte order of deltas and manifests"),
    ("uxfs-repair/src/burst.rs", "bits in both orders of a byte"),
    ("uxfs-repair/src/undo.rs", "undo files"),
    ("uxfs-virtiofs/src/device.rs", "the configuration of a virtio device"),
    ("uxfs-vhost-blk/src", "the configuration and the requests of a virtio disk"),
    ("uxfs-crashtest/src/kernel/message.rs", "the frames between host and virtual machine"),
    ("uxfs-crashtest/src/agent/calls.rs", "an offset in a traced program's memory"),
    ("uxfs-image/src", "partition tables, FAT, verity, qcow2 and VHD"),
    ("uxfs-testkit/src/rng.rs", "the same random bytes from a seed on every machine"),
    ("uxfs-lab/src", "the content of files: words repeated, the same on every machine"),
    ("uxfs-oracle/src", "tests only: ACLs for the kernel, and features read before the tools run"),
];

/// The conversions in a source that users build.
#[derive(Default)]
struct Conversions(Vec<String>);

impl Conversions {
    fn of(source: &str) -> Vec<String> {
        let mut seen = Self::default();
        seen.visit_file(&syn::parse_file(source).unwrap());
        seen.0
    }

    fn see(&mut self, name: &str) {
        if CONVERSIONS.contains(&name) {
            self.0.push(name.to_owned());
        }
    }
}

impl<'ast> Visit<'ast> for Conversions {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !for_tests(attrs(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_ident(&mut self, name: &'ast syn::Ident) {
        self.see(&name.to_string());
    }

    // The words of a macro are not parsed.
    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        let words = call.tokens.to_string();
        words.split(|c: char| !c.is_alphanumeric() && c != '_').for_each(|word| self.see(word));
    }

    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
}

/// The files below a directory that users build, with their sources.
fn sources(src: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut left = vec![src.to_owned()];
    while let Some(dir) = left.pop() {
        for entry in std::fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let tests = path.file_stem().is_some_and(|name| name == "tests");
            if path.is_dir() && !tests {
                left.push(path);
            } else if path.extension().is_some_and(|ext| ext == "rs") && !tests {
                let source = std::fs::read_to_string(&path).unwrap();
                found.push((path, source));
            }
        }
    }
    found
}

#[test]
fn only_the_format_crate_knows_byte_order() {
    let crates = root().join("crates");
    let (mut wrong, mut used) = (Vec::new(), BTreeSet::new());
    for entry in std::fs::read_dir(&crates).unwrap() {
        for (path, source) in sources(&entry.unwrap().path().join("src")) {
            let found = Conversions::of(&source);
            let path = path.strip_prefix(&crates).unwrap();
            let allowed = MAY_CONVERT.iter().find(|(place, _)| path.starts_with(place));
            match allowed {
                _ if found.is_empty() => {}
                Some((place, _)) => drop(used.insert(*place)),
                None => wrong.push(format!("{}: {}", path.display(), found.join(", "))),
            }
        }
    }
    assert!(wrong.is_empty(), "byte order outside of uxfs-format:\n{}", wrong.join("\n"));
    let unused = MAY_CONVERT.iter().filter(|(place, _)| !used.contains(place));
    assert_eq!(unused.collect::<Vec<_>>(), Vec::<&(&str, &str)>::new(), "nothing converts there");
}

#[test]
fn a_conversion_is_found_in_every_form() {
    let of = |source: &str| Conversions::of(source);
    assert_eq!(of("fn f(n: u32) -> [u8; 4] { n.to_be_bytes() }"), ["to_be_bytes"]);
    assert_eq!(of("const N: u16 = u16::from_le(7);"), ["from_le"]);
    assert_eq!(of("fn f(b: Option<[u8; 8]>) { b.map(u64::from_be_bytes); }"), ["from_be_bytes"]);
    assert_eq!(of("fn f(n: u16) { assert!(n.to_le_bytes() == [0, 1]); }"), ["to_le_bytes"]);
    assert_eq!(of("macro_rules! m { ($n:expr) => { $n.to_be() }; }"), ["to_be"]);
    assert_eq!(of("use zerocopy::big_endian::U32;"), ["big_endian"]);
    let fine = "/// Not `to_be_bytes`.\nfn f(n: u32) -> [u8; 4] { n.to_ne_bytes() }";
    assert!(of(fine).is_empty());
    assert!(of("#[cfg(test)]\nmod tests { fn f(n: u32) { n.to_be_bytes(); } }").is_empty());
}
