//! SELinux labels by the rules of a policy's `file_contexts`, without a kernel that knows the policy.
//!
//! A rule is a line `REGEX [TYPE] LABEL`. [`FileContexts`] holds the rules of a policy, and
//! [`Lookup`] finds the label of a path, as libselinux does for `setfiles`:
//! 1. Rules are read from FILE, `FILE.homedirs` and `FILE.local`, in this order. Of the rules that
//!    match, the last one decides. A rule without a meta character comes after all rules with one.
//! 2. A rule matches a path if `^REGEX$` does, without a group around REGEX, so that the
//!    alternatives of `/a|/b` are `^/a` and `/b$`. As in PCRE2, `$` also matches before a newline at
//!    the end of the path, and `.` matches a newline.
//! 3. If the first name of REGEX has no meta character and a second `/` follows it, this name must
//!    be the first name of the path, and the rest of REGEX is matched with the rest of the path.
//! 4. `FILE.subs`, then `FILE.subs_dist` replace a prefix of the path, each once. Of the lines of
//!    one file that fit, the last one is taken.
//! 5. `<<none>>` is a rule without a label. Compiled rules (`.bin`) are not read.
//!
//! These rules are those of libselinux 3.4, measured with its tools. libselinux 3.8 takes the first
//! fitting line of `.subs`, and the first of several equal paths without meta characters.
//!
//! Regular expressions are those of PCRE2, in the crate `pcre2` with its own copy of the C library.
//! `regex` has no look-around, no back references and no possessive quantifiers; `fancy-regex`
//! matches text only, and a path is any sequence of bytes. Both give `$` another meaning. PCRE2 is
//! what policies are written for. Its match limit bounds the time of a match: a rule that exceeds it
//! is an error, which names the rule.
//!
//! Nearly all rules have one of few shapes (`/usr(/.*)?`, `/usr/.*\.so`), which `pattern` matches
//! without PCRE2, and a tree is walked directory by directory, so [`Lookup`] keeps for each directory
//! on the way the rules that can match in it.

#![warn(missing_docs)]

mod aliases;
mod contexts;
mod error;
mod kind;
mod lines;
mod lookup;
mod pattern;
mod policy;

pub use contexts::FileContexts;
pub use error::ContextsError;
pub use kind::FileKind;
pub use lookup::Lookup;
pub use policy::PolicyRoot;

/// The extended attribute that holds a label. Its value ends in a NUL byte.
pub const XATTR: &[u8] = b"security.selinux";
