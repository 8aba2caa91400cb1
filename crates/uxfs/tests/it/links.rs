//! Links in the documents have targets: a file of the repository, and a heading in it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::docs::root;

/// Lines outside of code blocks.
fn text_lines(text: &str) -> Vec<&str> {
    let mut fenced = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            lines.push(line);
        }
    }
    lines
}

/// The targets of `[text](target)`, `![text](target)` and `[name]: target`.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in text_lines(text) {
        let prose: String = line.split('`').step_by(2).collect();
        for rest in prose.split("](").skip(1) {
            let target = rest.split([')', ' ']).next().unwrap_or_default();
            found.push(target.trim_matches(['<', '>']).to_owned());
        }
        if let Some((name, target)) = prose.split_once("]: ")
            && name.starts_with('[')
        {
            found.push(target.split(' ').next().unwrap_or_default().to_owned());
        }
    }
    found
}

/// The anchors that GitHub and mdBook make of headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for line in text_lines(text) {
        let head = line.trim_start_matches('#');
        if head.len() == line.len() || !head.starts_with(' ') {
            continue;
        }
        let kept = head.trim().to_lowercase();
        let kept = kept.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        let slug: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let mut name = slug.clone();
        let mut times = 0;
        while !found.insert(name.clone()) {
            times += 1;
            name = format!("{slug}-{times}");
        }
    }
    found
}

/// The broken links of a document.
fn broken(document: &Path, text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for link in links(text) {
        if link.contains("://") || link.starts_with("mailto:") {
            continue;
        }
        let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
        let target = if path.is_empty() {
            document.to_owned()
        } else {
            document.parent().unwrap().join(path)
        };
        let there = target.exists();
        let found = anchor.is_empty()
            || std::fs::read_to_string(&target).is_ok_and(|text| anchors(&text).contains(anchor));
        if !there || !found {
            wrong.push(format!("{}: {link}", document.display()));
        }
    }
    wrong
}

/// All Markdown files below a directory, except built or fetched ones.
fn documents(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        let kind = entry.file_type().unwrap();
        if kind.is_dir() && !name.starts_with('.') && name != "target" && name != "corpus" {
            documents(&path, found);
        } else if kind.is_file() && name.ends_with(".md") {
            found.push(path);
        }
    }
}

#[test]
fn every_link_and_anchor_leads_somewhere() {
    let mut found = Vec::new();
    documents(&root(), &mut found);
    assert!(found.len() > 12, "only {} documents", found.len());
    let mut wrong = Vec::new();
    let mut count = 0;
    for document in found {
        let text = std::fs::read_to_string(&document).unwrap();
        count += links(&text).len();
        wrong.extend(broken(&document, &text));
    }
    assert!(count > 50, "only {count} links");
    assert!(wrong.is_empty(), "links that lead nowhere: {wrong:#?}");
}

#[test]
fn the_book_has_every_page() {
    let docs = root().join("docs");
    let summary = std::fs::read_to_string(docs.join("SUMMARY.md")).unwrap();
    let pages: BTreeSet<String> = links(&summary).into_iter().collect();
    assert_eq!(pages.len(), links(&summary).len(), "a page stands twice");
    for entry in std::fs::read_dir(docs).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.ends_with(".md") && name != "SUMMARY.md" {
            assert!(pages.contains(&name), "docs/SUMMARY.md does not list {name}");
        }
    }
}

#[test]
fn broken_links_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("page.md");
    std::fs::write(dir.path().join("other.md"), "# One\n## A `b`: c, d\n# One\n").unwrap();
    let text = "# Here\n[a](other.md) [b](other.md#one) [c](other.md#one-1) [d](#here) \
         [e](other.md#a-b-c-d) ![f](https://example.org/x) `[g](none.md)`\n\
         ```\n[h](none.md)\n# Code\n```\n[i]: other.md\n";
    std::fs::write(&page, text).unwrap();
    assert_eq!(broken(&page, text), Vec::<String>::new());
    for link in ["none.md", "other.md#two", "#code", "none/", "other.md#one-2"] {
        assert_eq!(broken(&page, &format!("see [x]({link})")).len(), 1, "{link}");
        assert_eq!(broken(&page, &format!("| ![x]({link}) |")).len(), 1, "{link}");
    }
    assert_eq!(broken(&page, "[x]: none.md").len(), 1);
}
