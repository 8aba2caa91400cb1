//! Looks up names of users and groups in this machine's `/etc/passwd` and `/etc/group`, as `ls` and
//! `chown` do. An image holds only numbers.

use std::collections::HashMap;
use std::sync::OnceLock;

struct Table {
    names: HashMap<u32, String>,
    ids: HashMap<String, u32>,
    /// Login groups by user name.
    groups: HashMap<String, u32>,
}

fn table(path: &str) -> Table {
    let text = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let mut table = Table { names: HashMap::new(), ids: HashMap::new(), groups: HashMap::new() };
    for line in text.lines() {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _, id, rest @ ..] = fields.as_slice() else { continue };
        let Ok(id) = id.parse() else { continue };
        table.names.entry(id).or_insert_with(|| (*name).to_owned());
        table.ids.entry((*name).to_owned()).or_insert(id);
        if let Some(group) = rest.first().and_then(|g| g.parse().ok()) {
            table.groups.entry((*name).to_owned()).or_insert(group);
        }
    }
    table
}

fn users() -> &'static Table {
    static USERS: OnceLock<Table> = OnceLock::new();
    USERS.get_or_init(|| table("/etc/passwd"))
}

fn groups() -> &'static Table {
    static GROUPS: OnceLock<Table> = OnceLock::new();
    GROUPS.get_or_init(|| table("/etc/group"))
}

/// The name of a user ID, if there is one.
pub(crate) fn user_name(uid: u32) -> Option<&'static str> {
    users().names.get(&uid).map(String::as_str)
}

/// The name of a group ID, if there is one.
pub(crate) fn group_name(gid: u32) -> Option<&'static str> {
    groups().names.get(&gid).map(String::as_str)
}

/// The user ID of a name or a number.
pub(crate) fn user(text: &str) -> Option<u32> {
    users().ids.get(text).copied().or_else(|| number(text))
}

/// The group ID of a name or a number.
pub(crate) fn group(text: &str) -> Option<u32> {
    groups().ids.get(text).copied().or_else(|| number(text))
}

pub(crate) fn login_group(user: &str) -> Option<u32> {
    users().groups.get(user).copied()
}

/// Owner and group; `None` if not given.
pub(crate) type Owner = (Option<u32>, Option<u32>);

/// Parses `USER`, `USER:GROUP`, `USER:` (with the user's login group) or `:GROUP`.
pub(crate) fn owner(text: &str) -> Result<Owner, String> {
    let bad_user = || format!("invalid user: '{text}'");
    let bad_group = || format!("invalid group: '{text}'");
    let (name, group_name) = match text.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (text, None),
    };
    let uid = match name {
        "" => None,
        name => Some(user(name).ok_or_else(bad_user)?),
    };
    let gid = match group_name {
        None => None,
        Some("") if name.is_empty() => None,
        Some("") => Some(login_group(name).ok_or_else(bad_group)?),
        Some(name) => Some(group(name).ok_or_else(bad_group)?),
    };
    Ok((uid, gid))
}

/// Parses a numeric ID. A leading `+` excludes a name.
fn number(text: &str) -> Option<u32> {
    let digits = text.strip_prefix('+').unwrap_or(text);
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok().filter(|id| *id != u32::MAX)
}
