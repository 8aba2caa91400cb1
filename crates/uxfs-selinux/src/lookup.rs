//! The labels of paths, found fast for a tree that is walked directory by directory.
//!
//! 1. For each directory from the root to the last one looked up there is a [`Level`] with the rules
//!    that can match in it. A level's rules are chosen from those of the level above.
//! 2. A level's rules end with the first one that matches all that is in the directory.
//! 3. Within a directory aliases replace the same prefix of every path, except of paths that are
//!    aliases themselves; those are looked up among all rules.
//! 4. There are at most [`LEVELS_MAX`] levels, so that a hostile path costs little memory. What lies
//!    deeper is looked up among all rules.

use std::borrow::Cow;
use std::ops::Deref;

use crate::contexts::FileContexts;
use crate::error::ContextsError;
use crate::kind::FileKind;

/// Most levels that are kept. Each has its path, so memory grows with the square of the depth.
const LEVELS_MAX: usize = 256;

/// A series of lookups in rules that are borrowed, or held by an [`Arc`](std::sync::Arc).
#[derive(Debug)]
pub struct Lookup<C> {
    contexts: C,
    /// The directory of the last level.
    dir: Vec<u8>,
    levels: Vec<Level>,
    /// A path after aliases were replaced.
    path: Vec<u8>,
}

/// What is known about a directory.
#[derive(Debug)]
struct Level {
    /// Length of the directory's path in [`Lookup::dir`].
    len: usize,
    /// The path after aliases were replaced, with a slash at its end.
    replaced: Vec<u8>,
    /// Did aliases change the path?
    changed: bool,
    /// Are some paths in the directory aliases themselves?
    has_aliases: bool,
    /// The numbers of the rules that can match, the last rule first.
    rules: Vec<u32>,
}

impl<C: Deref<Target = FileContexts>> Lookup<C> {
    /// Begins a series of lookups, which is fastest if paths of one directory follow each other.
    pub fn new(contexts: C) -> Self {
        Self { contexts, dir: Vec::new(), levels: Vec::new(), path: Vec::new() }
    }

    /// The label for a path, without the NUL byte that ends it in the attribute; `None` if no rule
    /// matches, or the rule says `<<none>>`. The path is absolute and normal: no empty names, no
    /// `.` or `..`, no slash at its end except for `/` itself.
    ///
    /// # Errors
    /// A regular expression took too long.
    pub fn label(&mut self, path: &[u8], kind: FileKind) -> Result<Option<&[u8]>, ContextsError> {
        let end = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        let (dir, name) = (&path[..end], path.get(end + 1..).unwrap_or_default());
        let deep = dir.iter().filter(|byte| **byte == b'/').nth(LEVELS_MAX).is_some();
        if name.is_empty() || deep {
            let contexts = &*self.contexts;
            return find(contexts, &contexts.others, &replace(contexts, path.into()), kind);
        }
        let level = self.enter(dir);
        let (level, contexts) = (&self.levels[level], &*self.contexts);
        if level.has_aliases && is_alias(contexts, path) {
            return find(contexts, &contexts.others, &replace(contexts, path.into()), kind);
        }
        if !level.changed {
            return find(contexts, &level.rules, path, kind);
        }
        self.path.clear();
        self.path.extend_from_slice(&level.replaced);
        self.path.extend_from_slice(name);
        find(contexts, &level.rules, &self.path, kind)
    }

    /// Makes the levels down to this directory, and returns the number of the last one.
    fn enter(&mut self, dir: &[u8]) -> usize {
        while let Some(level) = self.levels.last() {
            let rest = dir.strip_prefix(&self.dir[..level.len]);
            if rest.is_some_and(|rest| rest.first().is_none_or(|byte| *byte == b'/')) {
                break;
            }
            self.levels.pop();
        }
        if self.levels.is_empty() {
            self.levels.push(Level::new(&self.contexts, b"", None));
        }
        let mut len = self.levels.last().map_or(0, |level| level.len);
        self.dir.truncate(len);
        while len < dir.len() {
            let name = dir[len + 1..].iter().position(|byte| *byte == b'/');
            let next = name.map_or(dir.len(), |at| len + 1 + at);
            let level = Level::new(&self.contexts, &dir[..next], self.levels.last());
            self.levels.push(level);
            self.dir.extend_from_slice(&dir[len..next]);
            len = next;
        }
        self.levels.len() - 1
    }
}

impl Level {
    fn new(contexts: &FileContexts, dir: &[u8], above: Option<&Self>) -> Self {
        let mut real = dir.to_vec();
        real.push(b'/');
        let replaced = match dir {
            b"" => real.clone(),
            _ => replace(contexts, Cow::Borrowed(&real)).into_owned(),
        };
        let below = above.filter(|above| replaced.starts_with(&above.replaced));
        let from = below.map_or(&contexts.others, |above| &above.rules);
        let mut rules = Vec::new();
        for number in from {
            let rule = &contexts.rules[*number as usize];
            let prefix = &*rule.pattern.prefix;
            if replaced.starts_with(prefix) || prefix.starts_with(&replaced) {
                rules.push(*number);
                if rule.kind.is_none() && rule.pattern.covers(&replaced) {
                    break;
                }
            }
        }
        let changed = replaced != real;
        let has_aliases = contexts.aliases.iter().any(|aliases| {
            aliases.sources().any(|from| in_dir(from, &real) || in_dir(from, &replaced))
        });
        Self { len: dir.len(), replaced, changed, has_aliases, rules }
    }
}

/// Is the path that of a name in this directory? The directory's path ends in a slash.
fn in_dir(path: &[u8], dir: &[u8]) -> bool {
    path.strip_prefix(dir).is_some_and(|name| !name.contains(&b'/'))
}

fn is_alias(contexts: &FileContexts, path: &[u8]) -> bool {
    let [local, shipped] = &contexts.aliases;
    local.has(path) || shipped.has(&local.replace(path.into()))
}

fn replace<'p>(contexts: &FileContexts, path: Cow<'p, [u8]>) -> Cow<'p, [u8]> {
    let [local, shipped] = &contexts.aliases;
    if local.is_empty() && shipped.is_empty() {
        return path;
    }
    shipped.replace(local.replace(path))
}

/// Finds the label of a path among these rules and those that name it exactly.
fn find<'a>(
    contexts: &'a FileContexts,
    rules: &[u32],
    path: &[u8],
    kind: FileKind,
) -> Result<Option<&'a [u8]>, ContextsError> {
    let rule_of = |number: u32| &contexts.rules[number as usize];
    let last = |path: &[u8]| {
        let numbers = contexts.exact.get(path)?;
        numbers.iter().rev().copied().find(|number| rule_of(*number).is_for(kind))
    };
    let exact = last(path).max(path.strip_suffix(b"\n").and_then(last));
    for number in rules {
        if exact.is_some_and(|exact| exact > *number) {
            break;
        }
        let rule = rule_of(*number);
        if rule.is_for(kind)
            && rule.pattern.matches(path).map_err(|what| contexts.match_error(rule, path, what))?
        {
            return Ok(rule.label());
        }
    }
    Ok(exact.and_then(|exact| rule_of(exact).label()))
}
