//! Tests of this crate against libselinux. They need `python3`, `libselinux1`, `setfiles`, and the
//! policy of `selinux-policy-default`.

#![expect(clippy::unwrap_used, reason = "a test that can not go on panics")]

mod debian;
mod errors;
mod grammar;
mod oracle;
mod random;
