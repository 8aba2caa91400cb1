//! Colours of names: the defaults of `dircolors`, overridden by `LS_COLORS`.

use std::collections::HashMap;

use uxfs::Stat;
use uxfs::format::inode::{S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK, S_IFMT, S_IFREG, S_IFSOCK};

use super::When;

/// Colours by kind of file and by the ending of the name.
pub(super) struct Colors {
    kinds: HashMap<String, String>,
    endings: Vec<(String, String)>,
}

const DEFAULTS: &str = "di=01;34:ln=01;36:pi=33:so=01;35:bd=01;33:cd=01;33:ex=01;32:su=37;41:\
                        sg=30;43:st=37;44:ow=34;42:tw=30;42";

impl Colors {
    /// Reads the colours; `None` if names are not to be coloured.
    pub(super) fn wanted(when: When, terminal: bool) -> Option<Self> {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        match when {
            When::Never => return None,
            When::Auto if !terminal || no_color => return None,
            _ => {}
        }
        let user = std::env::var("LS_COLORS").unwrap_or_default();
        let mut colors = Self { kinds: HashMap::new(), endings: Vec::new() };
        for part in DEFAULTS.split(':').chain(user.split(':')) {
            let Some((key, value)) = part.split_once('=') else { continue };
            match key.strip_prefix('*') {
                Some(ending) => colors.endings.push((ending.to_owned(), value.to_owned())),
                None => {
                    colors.kinds.insert(key.to_owned(), value.to_owned());
                }
            }
        }
        Some(colors)
    }

    /// The text in the colour of the file called `name`.
    pub(super) fn paint(
        &self,
        name: &[u8],
        text: Vec<u8>,
        stat: Option<&Stat>,
        dangling: bool,
    ) -> Vec<u8> {
        match self.color(name, stat, dangling).filter(|color| !matches!(*color, "" | "0" | "00")) {
            Some(color) => [b"\x1b[0m\x1b[", color.as_bytes(), b"m", &text, b"\x1b[0m"].concat(),
            None => text,
        }
    }

    fn kind(&self, key: &str) -> Option<&str> {
        self.kinds.get(key).map(String::as_str)
    }

    fn color(&self, name: &[u8], stat: Option<&Stat>, dangling: bool) -> Option<&str> {
        if dangling && let Some(orphan) = self.kind("or") {
            return Some(orphan);
        }
        let mode = stat?.mode;
        let key = match mode & S_IFMT {
            S_IFDIR if mode & 0o1002 == 0o1002 => "tw",
            S_IFDIR if mode & 0o002 != 0 => "ow",
            S_IFDIR if mode & 0o1000 != 0 => "st",
            S_IFDIR => "di",
            S_IFLNK => "ln",
            S_IFIFO => "pi",
            S_IFSOCK => "so",
            S_IFBLK => "bd",
            S_IFCHR => "cd",
            S_IFREG if mode & 0o4000 != 0 => "su",
            S_IFREG if mode & 0o2000 != 0 => "sg",
            S_IFREG if mode & 0o111 != 0 => "ex",
            _ => {
                let mut endings = self.endings.iter().rev();
                let ends = |ending: &str| name.ends_with(ending.as_bytes());
                return match endings.find(|(ending, _)| ends(ending)) {
                    Some((_, color)) => Some(color),
                    None => self.kind("fi"),
                };
            }
        };
        self.kind(key)
    }
}
