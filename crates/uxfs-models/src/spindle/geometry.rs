//! The geometry of a hard disk: positions of sectors, seek and transfer times.
//!
//! 1. Cylinders are grouped in zones; outer zones have more sectors per track, in equal steps.
//! 2. Sectors follow each other along a track, then on the next head, then on the next cylinder.
//!    The first sector of a track is skewed by the rotation during the switch, so that a sequential
//!    read loses no revolution.
//! 3. A seek over `d` cylinders takes `t + b·√(d−1) + c·(d−1)`. `t` is the published track-to-track
//!    time; `b` and `c` are chosen so that the full-stroke seek and the mean over all pairs of
//!    positions equal the published times.

use super::SpindleSpec;
use crate::ms;

/// Size of a sector in bytes.
pub(super) const SECTOR: u64 = 512;

/// Cylinders with the same number of sectors per track.
#[derive(Clone, Copy, Debug)]
struct Zone {
    first_sector: u64,
    first_cylinder: u64,
    per_track: u64,
}

/// A position on the platters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Position {
    pub(super) cylinder: u64,
    /// Angle as a fraction of a revolution, in `0.0..1.0`.
    pub(super) angle: f64,
}

/// The geometry of a disk, with times in nanoseconds.
#[derive(Clone, Debug)]
pub(super) struct Geometry {
    zones: Vec<Zone>,
    heads: u64,
    cylinders: u64,
    pub(super) sectors: u64,
    pub(super) revolution: u64,
    head_switch: u64,
    track_switch: u64,
    seek_root: f64,
    seek_line: f64,
}

impl Geometry {
    pub(super) fn new(spec: &SpindleSpec) -> Self {
        let revolution = ms(60_000.0 / spec.rpm);
        let (head_switch, track_switch) = (ms(spec.head_switch_ms), ms(spec.track_ms));
        let heads = u64::from(spec.heads.max(1));
        let count = u64::from(spec.zones.max(1));
        // Seconds to read a cylinder completely; the published rate determines its sectors.
        let pass = (heads * revolution + (heads - 1) * head_switch + track_switch) as f64 / 1e9;
        let per_track = |zone: u64| {
            let inner = zone as f64 / (count - 1).max(1) as f64;
            let rate = spec.outer_mb_s + (spec.inner_mb_s - spec.outer_mb_s) * inner;
            ((rate * 1e6 * pass) as u64 / (heads * SECTOR)).max(1)
        };
        let all = (spec.capacity_gb * 1e9) as u64 / SECTOR;
        let in_round: u64 = (0..count).map(|zone| per_track(zone) * heads).sum();
        let cylinders = all.div_ceil(in_round).max(1);
        let mut zones = Vec::new();
        let mut first_sector = 0;
        for zone in 0..count {
            let per_track = per_track(zone);
            zones.push(Zone { first_sector, first_cylinder: zone * cylinders, per_track });
            first_sector += cylinders * heads * per_track;
        }
        let cylinders = cylinders * count;
        let (seek_root, seek_line) = curve(spec, cylinders as f64);
        Self {
            zones,
            heads,
            cylinders,
            sectors: all,
            revolution,
            head_switch,
            track_switch,
            seek_root,
            seek_line,
        }
    }

    fn zone(&self, sector: u64) -> (&Zone, u64) {
        let next = self.zones.partition_point(|zone| zone.first_sector <= sector);
        let zone = &self.zones[next.saturating_sub(1)];
        let end = self.zones.get(next).map_or(self.sectors.max(sector + 1), |z| z.first_sector);
        (zone, end)
    }

    /// Time of the switches from a zone's first track to its track `track`.
    fn switches(&self, track: u64) -> u64 {
        let cylinders = track / self.heads;
        (track - cylinders) * self.head_switch + cylinders * self.track_switch
    }

    pub(super) fn position(&self, sector: u64) -> Position {
        let (zone, _) = self.zone(sector);
        let offset = sector - zone.first_sector;
        let track = offset / zone.per_track;
        let turned = (self.switches(track) % self.revolution) as f64 / self.revolution as f64;
        let along = (offset % zone.per_track) as f64 / zone.per_track as f64;
        let cylinder = zone.first_cylinder + track / self.heads;
        Position { cylinder: cylinder.min(self.cylinders - 1), angle: (turned + along).fract() }
    }

    /// Time in nanoseconds to transfer `count` sectors from `sector` on.
    pub(super) fn pass(&self, sector: u64, count: u64) -> u64 {
        let (mut at, mut left, mut total) = (sector, count, 0);
        while left > 0 {
            let (zone, end) = self.zone(at);
            let now = left.min(end - at);
            let (first, last) = (at - zone.first_sector, at - zone.first_sector + now - 1);
            let (from, to) = (first / zone.per_track, last / zone.per_track);
            total += (u128::from(now) * u128::from(self.revolution) / u128::from(zone.per_track))
                as u64
                + (self.switches(to) - self.switches(from));
            (at, left) = (at + now, left - now);
            if left > 0 {
                total += self.track_switch;
            }
        }
        total
    }

    /// Number of sectors from `sector` on that pass the heads in `time`, including switches.
    pub(super) fn passed(&self, sector: u64, time: u64) -> u64 {
        let (zone, _) = self.zone(sector);
        let cylinder =
            self.heads * self.revolution + (self.heads - 1) * self.head_switch + self.track_switch;
        (u128::from(time) * u128::from(zone.per_track * self.heads) / u128::from(cylinder)) as u64
    }

    /// Time in nanoseconds of a seek over `distance` cylinders.
    pub(super) fn seek(&self, distance: u64) -> u64 {
        match distance {
            0 => 0,
            d => {
                let more = (d - 1) as f64;
                self.track_switch + ms(self.seek_root * more.sqrt() + self.seek_line * more)
            }
        }
    }

    /// Time in nanoseconds, from `now` on, until the platter has rotated to `angle`.
    pub(super) fn turn(&self, now: u64, angle: f64) -> u64 {
        let at = (now % self.revolution) as f64 / self.revolution as f64;
        ((angle - at).rem_euclid(1.0) * self.revolution as f64) as u64 % self.revolution
    }
}

/// `b` and `c` of the seek curve, in milliseconds.
///
/// Over all pairs of positions on `n` cylinders, the mean of `√d` is `8/15·√n`, and the mean of `d`
/// is `n/3`.
fn curve(spec: &SpindleSpec, n: f64) -> (f64, f64) {
    let (mean, full) = (spec.average_ms - spec.track_ms, spec.full_ms - spec.track_ms);
    let root = (mean - full / 3.0) / (n.sqrt() * (8.0 / 15.0 - 1.0 / 3.0));
    let line = (full - root * n.sqrt()) / n;
    (root, line)
}
