//! The rules of a policy.

use std::path::{Path, PathBuf};

use rustc_hash::FxHashMap;

use crate::aliases::Aliases;
use crate::error::ContextsError;
use crate::kind::FileKind;
use crate::lines::lines;
use crate::lookup::Lookup;
use crate::pattern::Pattern;
use crate::policy::{self, PolicyRoot};

/// Reads a file; `None` if it does not exist and is not required.
type Read<'a> = &'a mut dyn FnMut(&Path, bool) -> Result<Option<Vec<u8>>, ContextsError>;

/// A rule.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) pattern: Pattern,
    /// The type of files that the rule is for; `None` for all types.
    pub(crate) kind: Option<FileKind>,
    /// The label; `None` for `<<none>>`.
    label: Option<Box<[u8]>>,
    /// Number of the file.
    file: usize,
    /// Number of the line, from 1.
    line: usize,
}

impl Rule {
    pub(crate) fn is_for(&self, kind: FileKind) -> bool {
        self.kind.is_none_or(|own| own == kind)
    }

    pub(crate) fn label(&self) -> Option<&[u8]> {
        self.label.as_deref()
    }
}

/// The rules that give files their labels: the content of a `file_contexts` and of the files that
/// belong to it.
#[derive(Debug, Default)]
pub struct FileContexts {
    files: Vec<PathBuf>,
    /// The rules; of those that match a path, the last one decides.
    pub(crate) rules: Vec<Rule>,
    /// Paths that rules name exactly, with the numbers of these rules.
    pub(crate) exact: FxHashMap<Box<[u8]>, Vec<u32>>,
    /// The numbers of the other rules, the last one first.
    pub(crate) others: Vec<u32>,
    /// The aliases of `.subs` and of `.subs_dist`.
    pub(crate) aliases: [Aliases; 2],
}

impl FileContexts {
    /// Reads rules from these files, in this order, each with the files beside it whose names go on
    /// with `.homedirs`, `.local`, `.subs` and `.subs_dist`, if they exist.
    ///
    /// # Errors
    /// A file cannot be read, or a line of it is not a rule.
    pub fn load<P: AsRef<Path>>(files: &[P]) -> Result<Self, ContextsError> {
        let mut read = |path: &Path, required: bool| match std::fs::read(path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if !required && error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(ContextsError::Io { file: path.to_owned(), source }),
        };
        let mut contexts = Self::default();
        for file in files {
            contexts.add(file.as_ref(), &mut read)?;
        }
        contexts.index();
        Ok(contexts)
    }

    /// Reads the rules of the policy that a tree holds: the one that `/etc/selinux/config` in the
    /// tree names.
    ///
    /// # Errors
    /// The tree holds no policy, a file cannot be read, or a line of it is not a rule.
    pub fn auto(root: &mut dyn PolicyRoot) -> Result<Self, ContextsError> {
        let file = policy::find(root)?;
        let mut read = |path: &Path, required: bool| {
            let text = policy::read(root, path)?;
            match text.is_none() && required {
                true => Err(ContextsError::NoPolicy(format!("it has no {}", path.display()))),
                false => Ok(text),
            }
        };
        let mut contexts = Self::default();
        contexts.add(&file, &mut read)?;
        contexts.index();
        Ok(contexts)
    }

    /// Begins a series of lookups, which is fastest if paths of one directory follow each other.
    pub fn lookup(&self) -> Lookup<&Self> {
        Lookup::new(self)
    }

    /// Number of rules.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Are there no rules?
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    fn add(&mut self, base: &Path, read: Read<'_>) -> Result<(), ContextsError> {
        let beside = |end: &str| {
            let mut name = base.as_os_str().to_owned();
            name.push(end);
            PathBuf::from(name)
        };
        for end in ["", ".homedirs", ".local"] {
            let path = beside(end);
            if let Some(text) = read(&path, end.is_empty())? {
                self.add_rules(path, &text)?;
            }
        }
        for (aliases, end) in self.aliases.iter_mut().zip([".subs", ".subs_dist"]) {
            let path = beside(end);
            if let Some(text) = read(&path, false)? {
                aliases.parse(&path, &text)?;
            }
        }
        Ok(())
    }

    fn add_rules(&mut self, path: PathBuf, text: &[u8]) -> Result<(), ContextsError> {
        for line in lines(&path, text) {
            let line = line?;
            let fields = line.fields.as_slice();
            let (regex, kind, label) = match *fields {
                [regex, label] if !label.starts_with('-') => (regex, None, label),
                [regex, kind, label, ..] => match FileKind::of_rule(kind.as_bytes()) {
                    Some(kind) => (regex, Some(kind), label),
                    None => {
                        let what = format!(
                            "'{kind}' is not a type of file: use --, -d, -l, -c, -b, -p or -s"
                        );
                        return Err(line.error(what));
                    }
                },
                _ => {
                    let what = "has no label: a rule is 'REGEX LABEL' or 'REGEX TYPE LABEL'";
                    return Err(line.error(what));
                }
            };
            let pattern = Pattern::new(regex).map_err(|what| line.error(what))?;
            let label = (label != "<<none>>").then(|| label.as_bytes().into());
            let (file, line) = (self.files.len(), line.number);
            self.rules.push(Rule { pattern, kind, label, file, line });
        }
        self.files.push(path);
        Ok(())
    }

    /// Puts the rules into their order.
    fn index(&mut self) {
        self.rules.sort_by_key(|rule| rule.pattern.literal);
        for (number, rule) in (0..).zip(&self.rules) {
            match rule.pattern.exact() {
                Some(path) => self.exact.entry(path.into()).or_default().push(number),
                None => self.others.push(number),
            }
        }
        self.others.reverse();
    }

    pub(crate) fn match_error(&self, rule: &Rule, path: &[u8], what: String) -> ContextsError {
        let file = self.files[rule.file].clone();
        ContextsError::Match { file, line: rule.line, path: path.to_vec(), what }
    }
}
