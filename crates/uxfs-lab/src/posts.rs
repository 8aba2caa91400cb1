//! The posts whose measurements the experiments repeat, cited so that a reader can find them in the
//! archives of the mailing lists.

use core::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Post {
    pub author: &'static str,
    /// The date, as exactly as it is known.
    pub date: &'static str,
    pub list: &'static str,
    pub subject: &'static str,
}

/// fs_mark and dbench with and without delayed logging.
pub const DELAYED_LOGGING: Post = Post {
    author: "Dave Chinner",
    date: "24 May 2010",
    list: "xfs@oss.sgi.com",
    subject: "Re: [PATCH 0/12] xfs: delayed logging V6",
};

/// Many threads that call fsync, and five ways to coordinate them.
pub const FSYNC_COORDINATION: Post = Post {
    author: "Darrick J. Wong",
    date: "27 September 2010",
    list: "linux-ext4",
    subject: "Re: Performance testing of various barrier reduction patches [was: Re: [RFC v4] ext4: \
              Coordinate fsync requests]",
};

/// git's tests and a kernel build on a spindle and on SSDs.
pub const SPINDLE: Post = Post {
    author: "Dave Chinner",
    date: "30 April 2015",
    list: "linux-kernel",
    subject: "Re: xfs: does mkfs.xfs require fancy switches to get decent performance? (was Tux3 \
              Report: How fast can we fsync?)",
};

/// A tree extracted with barriers and write caches on and off.
pub const BARRIERS: Post = Post {
    author: "Justin Piszcz",
    date: "13 December 2008",
    list: "xfs@oss.sgi.com",
    subject: "Re: 12x performance drop on md/linux+sw raid1 due to barriers [xfs]",
};

/// A tree extracted by tar and by star, which calls fsync for each file.
pub const TAR_STAR: Post = Post {
    author: "Peter Grandi",
    date: "March 2012",
    list: "xfs@oss.sgi.com",
    subject: "GNU 'tar', Schilling's 'tar', write-cache/barrier",
};

impl fmt::Display for Post {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}, {}: \"{}\"", self.author, self.date, self.list, self.subject)
    }
}
