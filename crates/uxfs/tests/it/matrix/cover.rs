//! Covering designs: few rows of a table in which every combination of values of any `strength`
//! columns stands somewhere, as far as rows may have it.
//!
//! Greedy, and so not the smallest, but checked by counting: see the tests.

use uxfs_oracle::Rng;

/// A value for each factor, by number.
pub(super) type Row = Vec<usize>;

/// Rows tried for each row chosen.
const TRIES: usize = 24;

/// Factors, and which rows are allowed.
pub(super) struct Space<'a> {
    /// How many values each factor has.
    pub(super) sizes: Vec<usize>,
    pub(super) allowed: &'a dyn Fn(&[usize]) -> bool,
    /// The factors that `allowed` depends on.
    pub(super) bound: Vec<usize>,
}

/// The combinations of values of some factors that are not covered yet.
struct Open {
    factors: Vec<usize>,
    /// One for each combination, in order, the last factor's value running fastest.
    open: Vec<bool>,
}

impl Open {
    fn at(&self, sizes: &[usize], row: &[usize]) -> usize {
        self.factors.iter().fold(0, |at, f| at * sizes[*f] + row[*f])
    }

    fn values(&self, sizes: &[usize], mut at: usize) -> Vec<(usize, usize)> {
        let mut values = Vec::new();
        for factor in self.factors.iter().rev() {
            values.push((*factor, at % sizes[*factor]));
            at /= sizes[*factor];
        }
        values
    }
}

impl Space<'_> {
    /// All rows that are allowed.
    pub(super) fn all(&self) -> impl Iterator<Item = Row> + '_ {
        let total: usize = self.sizes.iter().product();
        (0..total)
            .map(|at| self.row(&(0..self.sizes.len()).collect::<Vec<_>>(), at))
            .filter(|row| (self.allowed)(row))
    }

    /// The `at`-th way to give `factors` values; 0 to the others.
    fn row(&self, factors: &[usize], mut at: usize) -> Row {
        let mut row = vec![0; self.sizes.len()];
        for factor in factors.iter().rev() {
            row[*factor] = at % self.sizes[*factor];
            at /= self.sizes[*factor];
        }
        row
    }

    /// Is there a row with these values?
    pub(super) fn possible(&self, values: &[(usize, usize)]) -> bool {
        let total: usize = self.bound.iter().map(|f| self.sizes[*f]).product();
        (0..total).any(|at| {
            let mut row = self.row(&self.bound, at);
            let agrees =
                |row: &Row| values.iter().all(|(f, v)| row[*f] == *v || !self.bound.contains(f));
            agrees(&row) && {
                for (factor, value) in values {
                    row[*factor] = *value;
                }
                (self.allowed)(&row)
            }
        })
    }

    /// All choices of `strength` factors.
    pub(super) fn choices(&self, strength: usize) -> Vec<Vec<usize>> {
        let mut all: Vec<Vec<usize>> = vec![Vec::new()];
        for _ in 0..strength {
            let longer = |choice: &Vec<usize>| {
                let (choice, from) = (choice.clone(), choice.last().map_or(0, |f| f + 1));
                (from..self.sizes.len()).map(move |f| [&choice[..], &[f]].concat())
            };
            all = all.iter().flat_map(longer).collect();
        }
        all
    }

    /// Rows that cover every possible combination of values of any `strength` factors.
    pub(super) fn cover(&self, strength: usize, seed: u64) -> Vec<Row> {
        let mut rng = Rng::new(seed);
        let mut open: Vec<Open> = self
            .choices(strength)
            .into_iter()
            .map(|factors| {
                let total = factors.iter().map(|f| self.sizes[*f]).product();
                let mut open = Open { factors, open: vec![false; total] };
                for at in 0..total {
                    open.open[at] = self.possible(&open.values(&self.sizes, at));
                }
                open
            })
            .collect();
        let mut rows = Vec::new();
        while let Some(values) = self.some_open(&open, &mut rng) {
            let tried = (0..TRIES).map(|_| self.attempt(&values, &open, &mut rng));
            let (_, row) = tried.max_by_key(|(score, _)| *score).unwrap();
            for choice in &mut open {
                let at = choice.at(&self.sizes, &row);
                choice.open[at] = false;
            }
            rows.push(row);
        }
        rows
    }

    /// A combination that is not covered yet.
    fn some_open(&self, open: &[Open], rng: &mut Rng) -> Option<Vec<(usize, usize)>> {
        let from = rng.index(open.len());
        open.iter().cycle().skip(from).take(open.len()).find_map(|choice| {
            let at = choice.open.iter().position(|open| *open)?;
            Some(choice.values(&self.sizes, at))
        })
    }

    /// A row with these values, made better factor by factor, and how much it covers.
    fn attempt(&self, values: &[(usize, usize)], open: &[Open], rng: &mut Rng) -> (usize, Row) {
        let score = |row: &Row| open.iter().filter(|c| c.open[c.at(&self.sizes, row)]).count();
        let mut row = loop {
            let mut row: Row = self.sizes.iter().map(|size| rng.index(*size)).collect();
            values.iter().for_each(|(factor, value)| row[*factor] = *value);
            if (self.allowed)(&row) {
                break row;
            }
        };
        let mut best = score(&row);
        for factor in 0..row.len() {
            if values.iter().any(|(fixed, _)| *fixed == factor) {
                continue;
            }
            for value in 0..self.sizes[factor] {
                let old = std::mem::replace(&mut row[factor], value);
                let now = if (self.allowed)(&row) { score(&row) } else { 0 };
                if now > best {
                    best = now;
                } else {
                    row[factor] = old;
                }
            }
        }
        (best, row)
    }
}
