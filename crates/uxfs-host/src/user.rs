//! The user that runs this process.

/// Owner and group of what the user makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    /// Number of the user: the effective one.
    pub uid: u32,
    /// Number of the group: the effective one.
    pub gid: u32,
}

impl User {
    /// The user that runs this process; 0:0 on systems whose users have no such numbers.
    pub fn current() -> Self {
        #[cfg(unix)]
        return Self {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        };
        #[cfg(not(unix))]
        return Self { uid: 0, gid: 0 };
    }

    /// May this user do everything on the host? Never true on systems without such a user.
    pub fn is_root(self) -> bool {
        cfg!(unix) && self.uid == 0
    }
}

/// The permissions that new files do not get; 022 on systems without modes. Reading it sets it for a
/// moment, so no other thread may create files meanwhile.
pub fn umask() -> u16 {
    #[cfg(unix)]
    return {
        let old = rustix::process::umask(rustix::fs::Mode::empty());
        rustix::process::umask(old);
        // The type differs between systems.
        u16::try_from(old.as_raw_mode() & 0o777).unwrap_or(0o022)
    };
    #[cfg(not(unix))]
    return 0o022;
}
