//! Policies and trees made from a seed.

use std::fmt::Write;

use uxfs_testkit::Rng;

use crate::oracle::{KINDS, Policy, Query, compare};

const NAMES: [&str; 14] =
    ["a", "b", "ab", "usr", "lib", "lib64", "x.so", "so", "A1", "b-c", "x+y", "a.b.so", "1", "\n"];
/// Parts of expressions, each valid by itself and after any other.
const PARTS: [&str; 29] = [
    "a",
    "b",
    "usr",
    "lib",
    "x",
    "so",
    "1",
    "-c",
    r"\.so",
    r"\.",
    r"\+y",
    "[^/]*",
    "[^/]+",
    ".*",
    ".+",
    ".",
    "[ab]",
    "[a-z0-9]+",
    "(64)?",
    "(a|b)",
    "(lib|so|usr)",
    r"(x(64|[|)]|-c)|\.[^|]*|\|)",
    "(a|)",
    "(/.*)?",
    "(lib|usr)?",
    "[[:alnum:]]{1,3}",
    r"(\.so)?",
    "[^/.]*",
    "x?",
];
const TYPES: [&str; 12] = ["", "", "", "", "", "--", "-d", "-l", "-c", "-b", "-p", "-s"];

fn path(rng: &mut Rng) -> String {
    let mut path = String::new();
    for _ in 0..1 + rng.below(4) {
        path.push('/');
        path.push_str(rng.pick(&NAMES).unwrap());
    }
    path
}

fn expression(rng: &mut Rng) -> String {
    let mut text = String::new();
    if rng.once_in(40) {
        text.push_str(rng.pick(&[".*", "(/usr|/lib)", "/a|/b"]).unwrap());
    }
    for _ in 0..1 + rng.below(4) {
        text.push('/');
        for _ in 0..rng.scaled(4) + u64::from(!rng.once_in(8)) {
            text.push_str(rng.pick(&PARTS).unwrap());
        }
    }
    if rng.once_in(4) {
        text.push_str("(/.*)?");
    }
    text
}

fn rules(rng: &mut Rng, count: u64, label: &mut u32) -> String {
    let mut text = String::new();
    for _ in 0..count {
        *label += 1;
        let expression = match rng.once_in(4) {
            true => path(rng).replace('.', r"\.").replace('+', r"\+").replace('\n', "n"),
            false => expression(rng),
        };
        let kind = rng.pick(&TYPES).unwrap();
        match rng.once_in(10) {
            true => writeln!(text, "{expression}\t{kind}\t<<none>>").unwrap(),
            false => writeln!(text, "{expression}\t{kind}\tu:r:t{label}").unwrap(),
        }
    }
    text
}

fn aliases(rng: &mut Rng) -> String {
    let mut text = String::new();
    for _ in 0..rng.below(5) {
        let (from, to) = (path(rng).replace('\n', "n"), path(rng).replace('\n', "n"));
        writeln!(text, "{from} {to}").unwrap();
    }
    text
}

/// A policy and files, and the comparison of their labels. Returns how many files have a label.
fn round(seed: u64) -> usize {
    println!("seed {seed}");
    let rng = &mut Rng::new(seed);
    let mut label = 0;
    let count = rng.below(60);
    let texts =
        [rules(rng, count, &mut label), rules(rng, 4, &mut label), rules(rng, 4, &mut label)];
    let (subs, subs_dist) = (aliases(rng), aliases(rng));
    let files = [
        ("", texts[0].as_str()),
        (".homedirs", &texts[1]),
        (".local", &texts[2]),
        (".subs", &subs),
        (".subs_dist", &subs_dist),
    ];
    let policy = Policy::new(&files);
    let mut paths: Vec<String> = (0..400).map(|_| path(rng)).collect();
    paths.push("/".into());
    // Half of them in the order of a walk.
    paths[..200].sort();
    let queries: Vec<Query> =
        paths.into_iter().map(|path| (rng.pick(&KINDS).unwrap().1, path.into_bytes())).collect();
    compare(&policy.load(), &policy.file(), &queries)
}

#[test]
fn labels_of_random_policies_equal_libselinux() {
    let labelled: usize = (0..25).map(round).sum();
    assert!(labelled > 2000, "{labelled} labels tell little");
}

#[test]
#[ignore = "long"]
fn labels_of_many_random_policies_equal_libselinux() {
    for seed in 1000..2500 {
        round(seed);
    }
}
