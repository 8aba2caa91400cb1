//! The actions of `find`.

use serde_json::{Map, Value};
use uxfs::format::inode::{S_IFBLK, S_IFCHR, S_IFMT};

use super::parse::Action;
use super::predicates::{failed, target};
use super::{Candidate, Documents, Finder, exec, printf};
use crate::mode::letters;
use crate::session::Result;
use crate::time::Style;
use crate::{json, quote, tree, users};

impl Finder<'_> {
    pub(super) fn act(
        &mut self,
        action: &Action,
        candidate: &Candidate<'_>,
        pruned: &mut bool,
    ) -> Result<bool> {
        match action {
            Action::Print(end) => {
                let masked = self.session.terminal && *end == b'\n';
                let path = match masked {
                    true => quote::masked(candidate.visited.path),
                    false => candidate.visited.path.to_vec(),
                };
                self.session.print([&path[..], &[*end]].concat())?;
            }
            Action::Ls => self.ls(candidate)?,
            Action::Printf(format) => {
                let text = printf::render(format, candidate)?;
                self.session.print(text)?;
            }
            Action::Prune => *pruned = true,
            Action::Quit => self.quit = true,
            Action::Delete => return self.delete(candidate),
            Action::Exec(words) => return exec::run(self.session, words, candidate.visited.path),
            Action::ExecMany(number) => {
                self.commands[*number].add(self.session, candidate.visited.path)?;
            }
            Action::Document => {
                let (fs, stat) = (candidate.visited.fs, candidate.visited.stat);
                let mut map = Map::new();
                json::put_bytes(&mut map, "path", candidate.visited.path);
                json::put_stat(&mut map, stat, fs.geo.block_size);
                if tree::is_link(stat) {
                    json::put_bytes(&mut map, "target", &target(candidate)?);
                }
                match &mut self.documents {
                    Documents::None => {}
                    Documents::One(all) => all.push(Value::Object(map)),
                    Documents::Lines => self.session.print(json::document("file", map))?,
                }
            }
        }
        Ok(true)
    }

    /// Prints a line as `ls -dils` does.
    fn ls(&self, candidate: &Candidate<'_>) -> Result<()> {
        let stat = candidate.visited.stat;
        let geo = &candidate.visited.fs.geo;
        let name = |name: Option<&str>, id: u32| name.map_or_else(|| id.to_string(), Into::into);
        let size = match stat.mode & S_IFMT {
            S_IFCHR | S_IFBLK => format!("{:>3}, {:>3}", stat.rdev.0, stat.rdev.1),
            _ => format!("{:>8}", stat.size),
        };
        let line = format!(
            "{:>9} {:>6} {} {:>3} {:<8} {:<8} {size} {} ",
            stat.ino.0,
            (stat.blocks << geo.block_log).div_ceil(1024),
            letters(stat.mode),
            stat.nlink,
            name(users::user_name(stat.uid), stat.uid),
            name(users::group_name(stat.gid), stat.gid),
            Style::Locale.show(stat.mtime, self.now),
        );
        let mut text = [line.as_bytes(), &quote::escaped(candidate.visited.path)].concat();
        if tree::is_link(stat) {
            text.extend_from_slice(b" -> ");
            text.extend_from_slice(&quote::escaped(&target(candidate)?));
        }
        text.push(b'\n');
        self.session.print(text)
    }

    fn delete(&self, candidate: &Candidate<'_>) -> Result<bool> {
        let (fs, stat) = (candidate.visited.fs, candidate.visited.stat);
        let inside = candidate.inside();
        let path = crate::place::trim(&inside);
        let name = crate::place::base(path);
        let parent = &path[..path.len() - name.len()];
        let removed = fs.resolve(parent, true).and_then(|dir| match tree::is_dir(stat) {
            true => fs.rmdir(dir, name),
            false => fs.unlink(dir, name),
        });
        match removed {
            Ok(()) => Ok(true),
            Err(error) => {
                self.session.fail(failed(candidate, error));
                Ok(false)
            }
        }
    }
}
