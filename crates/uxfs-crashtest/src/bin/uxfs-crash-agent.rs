//! The first process in the virtual machines of this crate's tests. The command `uxfs` has it, too.

#[cfg(target_os = "linux")]
fn main() -> std::io::Result<()> {
    uxfs_crashtest::serve_as_init()
}

#[cfg(not(target_os = "linux"))]
fn main() {}
