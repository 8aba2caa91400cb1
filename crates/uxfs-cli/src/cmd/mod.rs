//! The commands, one file each: its options, and what it does.

pub(crate) mod bench;
pub(crate) mod cat;
pub(crate) mod check;
pub(crate) mod chmod;
pub(crate) mod chown;
pub(crate) mod completions;
pub(crate) mod cp;
pub(crate) mod export;
pub(crate) mod find;
pub(crate) mod import;
pub(crate) mod info;
pub(crate) mod label;
pub(crate) mod ln;
pub(crate) mod log;
pub(crate) mod ls;
pub(crate) mod man;
pub(crate) mod mkdir;
pub(crate) mod mkfs;
pub(crate) mod mv;
pub(crate) mod resize;
pub(crate) mod rm;
pub(crate) mod stat;
pub(crate) mod truncate;
pub(crate) mod xattr;
