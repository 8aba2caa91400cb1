//! Random options from a seed: this crate must do the same as `mkfs.xfs`.

use uxfs_oracle::Rng;

use crate::bytes::difference;
use crate::external::difference_of_logs;
use crate::pair::{MIB, Outcome, Pair, mkfs, repair};

/// Random options of mkfs; the same seed repeats a run.
struct Random(Rng);

impl Random {
    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.0.index(choices.len())]
    }

    fn percent(&mut self, chance: u64) -> bool {
        self.0.below(100) < chance
    }

    fn group(&mut self, line: &mut String, letter: char, choices: &[(&str, u64, &[&str])]) {
        let mut given = Vec::new();
        for (name, chance, values) in choices {
            if self.percent(*chance) {
                given.push(format!("{name}={}", self.of(values)));
            }
        }
        if !given.is_empty() {
            *line += &format!(" -{letter} {}", given.join(","));
        }
    }

    fn options(&mut self) -> String {
        let mut line = String::new();
        let blocks = ["1k", "2k", "4k", "8k", "16k", "32k", "64k"];
        self.group(&mut line, 'b', &[("size", 60, &blocks)]);
        if self.percent(40) {
            let unit = self.of(&["4k", "12k", "16k", "64k", "100k", "128k", "480k", "512k", "8m"]);
            line += &format!(" -d su={unit},sw={}", self.of(&[1, 2, 3, 4, 5, 8, 16]));
        }
        if self.percent(40) {
            let groups = ["agcount=2", "agcount=3", "agcount=7", "agcount=16", "agcount=33"];
            let sizes = ["agsize=16m", "agsize=70m", "agsize=100m", "agsize=333m", "agsize=1g"];
            let group = if self.percent(50) { self.of(&groups) } else { self.of(&sizes) };
            line += &format!(" -d {group}");
        }
        let flag = ["0", "1"];
        self.group(
            &mut line,
            'm',
            &[("rmapbt", 40, &["1"]), ("reflink", 40, &flag), ("finobt", 20, &flag)],
        );
        let sizes = ["512", "1024", "2048"];
        self.group(
            &mut line,
            'i',
            &[("nrext64", 20, &["1"]), ("sparse", 20, &flag), ("size", 30, &sizes)],
        );
        let naming = [
            ("size", 30, &["4k", "8k", "16k", "32k", "64k"][..]),
            ("version", 20, &["ci", "2"][..]),
        ];
        self.group(&mut line, 'n', &naming);
        self.group(&mut line, 's', &[("size", 30, &["512", "1024", "2048", "4096"])]);
        line
    }

    /// The same for a log on its own device.
    fn external_log(&mut self, line: &mut String) {
        *line += " -l logdev=@LOG";
        let units = ["4k", "8k", "16k", "32k", "64k", "128k", "256k"];
        let sizes = ["64m", "65m", "70m", "100m", "16384b", "17003b", "10m", "1200b"];
        for (name, chance, values) in [("su", 30, &units[..]), ("size", 30, &sizes)] {
            if self.percent(chance) {
                *line += &format!(",{name}={}", self.of(values));
            }
        }
    }

    fn log(&mut self, line: &mut String) {
        let units = ["4k", "8k", "12k", "16k", "32k", "64k", "128k", "256k"];
        let sizes = ["64m", "65m", "70m", "100m", "16384b", "17003b", "512m", "10m", "1200b"];
        self.group(
            line,
            'l',
            &[("su", 30, &units), ("size", 30, &sizes), ("agnum", 30, &["0", "1", "5"])],
        );
    }
}

/// Tests `rounds` random command lines on volumes of random sizes. Where `mkfs.xfs` fails its own
/// verifier or makes a volume that `xfs_repair` finds damaged, ours must be sound.
fn rounds(seed: u64, rounds: u32, sizes: &[u64], unsupported: bool) {
    let mut random = Random(Rng::new(seed));
    let (mut made, mut apart) = (0, 0);
    for round in 0..rounds {
        let size = random.of(sizes) * MIB;
        let mut line = random.options();
        random.log(&mut line);
        let pair = Pair::new(size);
        let outcome = pair.make(&line, unsupported, false);
        let at = format!("seed {seed} round {round}: {size} bytes,{line}");
        match outcome.unwrap_or_else(|error| panic!("{at}: {error}")) {
            Outcome::Refused => {}
            Outcome::OnlyOurs => {
                apart += 1;
                pair.repair().unwrap_or_else(|error| panic!("{at}: {error}"));
            }
            Outcome::Made => {
                made += 1;
                let Some(difference) = difference(&pair.theirs, &pair.ours) else { continue };
                // A difference is allowed only where mkfs.xfs makes a damaged volume.
                apart += 1;
                assert!(repair(&pair.theirs).is_err(), "{at}: {difference}");
                pair.repair().unwrap_or_else(|error| panic!("{at}: {error}"));
            }
        }
    }
    assert!(made > 0, "seed {seed}: nothing was made");
    assert!(apart * 20 <= rounds, "seed {seed}: mkfs.xfs fails in {apart} of {rounds} rounds");
}

#[test]
fn random_options_agree() {
    rounds(1, 150, &[300, 301, 333, 512, 600, 777, 1024, 5000, 8192, 8193, 9999], false);
}

#[test]
fn random_options_with_external_logs_agree() {
    let mut random = Random(Rng::new(4));
    let mut made = 0;
    for round in 0..60 {
        // Multiples of each stripe unit: for others mkfs.xfs writes beyond the end.
        let log = random.of(&[10, 64, 66, 90]) * MIB;
        let pair = Pair::new(random.of(&[300, 512, 777, 5000]) * MIB).with_logs(log);
        let mut line = random.options();
        random.external_log(&mut line);
        let at = format!("seed 4 round {round}:{line}");
        let outcome =
            pair.make(&line, false, false).unwrap_or_else(|error| panic!("{at}: {error}"));
        if !matches!(outcome, Outcome::Made) {
            continue;
        }
        made += 1;
        if let Some(found) = difference(&pair.theirs, &pair.ours) {
            assert!(pair.repair_theirs().is_err(), "{at}: {found}");
        }
        assert_eq!(difference_of_logs(&pair), None, "{at}");
        pair.repair().unwrap_or_else(|error| panic!("{at}: {error}"));
    }
    assert!(made > 15, "{made}");
}

#[test]
fn random_options_on_small_volumes_agree() {
    rounds(2, 100, &[16, 20, 32, 40, 64, 70, 128, 150, 200, 300], true);
}

/// The minimum log size in a refusal.
fn minimum(said: &str) -> Option<u64> {
    let at = ["minimum size is ", "min log size "]
        .iter()
        .find_map(|words| said.find(words).map(|at| at + words.len()))?;
    let digits: String = said[at..].chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

#[test]
fn the_minimum_log_size_agrees_for_random_options() {
    let mut random = Random(Rng::new(3));
    let mut compared = 0;
    for round in 0..300 {
        let pair = Pair::new(random.of(&[300, 1024, 5000, 20_480, 102_400, 3 << 20]) * MIB);
        let mut line = random.options();
        if random.percent(40) {
            line += random.of(&[" -l su=4k", " -l su=32k", " -l su=64k", " -l su=256k"]);
        }
        // The smallest log that the options allow is 2 MiB or 512 blocks.
        line += random.of(&[" -l size=2m", " -l size=512b", " -l size=1024b"]);
        let mut args: Vec<&str> = line.split_whitespace().collect();
        args.push("-N");
        let theirs = mkfs(&args, &pair.theirs, true);
        let Some(wanted) = minimum(&String::from_utf8_lossy(&theirs.stderr)) else { continue };
        let mut options = crate::pair::options(&line).unwrap();
        options.unsupported = true;
        let len = std::fs::metadata(&pair.ours).unwrap().len();
        let error = uxfs_mkfs::Layout::new(&options, len).err().map(|e| e.to_string());
        let ours = error.as_deref().and_then(minimum);
        assert_eq!(ours, Some(wanted), "seed 3 round {round}:{line}: {error:?}");
        compared += 1;
    }
    assert!(compared > 50, "only {compared} minimums compared");
}
