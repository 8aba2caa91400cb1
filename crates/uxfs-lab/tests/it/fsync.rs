//! A sample of the grid of fsync policies, and the bounds that `auto` keeps; the whole grid is
//! `cargo run --release -p uxfs-lab --example policies`.

use uxfs_lab::fsync::{Case, Row, cases, grid};

/// Every so manieth case of those with few enough callers to be quick.
fn sample(every: usize) -> Vec<Case> {
    let quick =
        |case: &Case| !["256 think", "1000 think", "256,"].iter().any(|s| case.name.contains(s));
    cases().into_iter().filter(quick).step_by(every).collect()
}

fn mean(rows: &[Row]) -> f64 {
    rows.iter().map(|row| row.to_best).sum::<f64>() / rows.len() as f64
}

#[test]
fn the_grid_is_what_it_is_said_to_be() {
    let all = cases();
    let steady = all.iter().filter(|case| !case.changing).count();
    assert!(steady >= 1000 && all.len() - steady >= 100, "{steady} of {}", all.len());
    for what in ["0.05 ms", "1 ms", "8 ms", "30 ms", "one at a time", "16 at once", "1 think"] {
        assert!(all.iter().any(|case| case.name.contains(what)), "{what}");
    }
}

#[test]
fn auto_is_as_good_as_the_best_in_hindsight() {
    let rows = grid(&sample(17), 1, 2, |_, _| {});
    assert!(rows.len() >= 45, "{} cases", rows.len());
    for row in &rows {
        assert!(row.to_best >= 0.92, "{row:#?}");
        assert!(row.to_own >= 0.98, "{row:#?}");
        assert!(row.p99_to_best <= 1.5, "{row:#?}");
    }
    let few = rows.iter().filter(|row| row.to_best < 0.97).count();
    assert!(few * 25 <= rows.len(), "{few} of {} below 0.97", rows.len());
    let slow = rows.iter().filter(|row| row.p99_to_best > 1.1).count();
    assert!(slow * 12 <= rows.len(), "{slow} of {} slower than they should be", rows.len());
    assert!(mean(&rows) >= 0.99, "{}", mean(&rows));
}

#[test]
fn alone_it_costs_nothing() {
    let lone: Vec<Case> = cases().into_iter().filter(|case| case.lone).collect();
    let rows = grid(&lone, 7, 2, |_, _| {});
    assert_eq!(rows.len(), 48);
    for row in rows {
        assert!(row.to_best >= 0.99 && row.p99_to_best <= 1.01, "{row:#?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_digits() {
    let some: Vec<Case> = sample(130);
    let rows = |threads| grid(&some, 3, threads, |_, _| {});
    assert_eq!(rows(1), rows(2));
}
