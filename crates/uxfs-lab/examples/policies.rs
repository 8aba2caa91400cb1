//! The whole grid of fsync policies, as a table: `cargo run --release -p uxfs-lab --example policies`.
//! Arguments select the cases whose name contains all of them; `--csv` prints all rows, not only the
//! worst; `--seed=N` sets the random seed.

use uxfs_lab::fsync::{POLICIES, Row, cases, grid};

fn print(title: &str, rows: &[&Row]) {
    println!("{title}");
    for row in rows.iter().take(25) {
        let best = &row.others[0];
        println!(
            "  {:.3} of {} ({:.0}/s), p99 {:.2} of its {:.3} ms, {:.2} of own: {}",
            row.to_best, best.policy, best.rate, row.p99_to_best, best.p99, row.to_own, row.name
        );
    }
}

fn summary(title: &str, rows: &[&Row]) {
    let count = rows.len().max(1) as f64;
    let mean = rows.iter().map(|row| row.to_best).sum::<f64>() / count;
    let least = rows.iter().map(|row| row.to_best).fold(f64::INFINITY, f64::min);
    let own = rows.iter().map(|row| row.to_own).fold(f64::INFINITY, f64::min);
    let below = rows.iter().filter(|row| row.to_best < 0.97).count();
    let slow = rows.iter().filter(|row| row.p99_to_best > 1.1).count();
    let slowest = rows.iter().map(|row| row.p99_to_best).fold(0.0, f64::max);
    println!(
        "{title}: {} cases; of the best: mean {mean:.4}, least {least:.4}, {below} below 0.97; p99 \
         above 1.1 of the best one's in {slow}, most {slowest:.2}; least of own {own:.3}",
        rows.len()
    );
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let csv = words.iter().any(|word| word == "--csv");
    let seed = words.iter().find_map(|word| word.strip_prefix("--seed=")?.parse().ok());
    let chosen = |name: &str| {
        words.iter().filter(|word| !word.starts_with("--")).all(|word| name.contains(word.as_str()))
    };
    let cases: Vec<_> = cases().into_iter().filter(|case| chosen(&case.name)).collect();
    let rows = grid(&cases, seed.unwrap_or(1), 2, |done, of| {
        if done.is_multiple_of(100) {
            eprintln!("{done} of {of}");
        }
    });
    if csv {
        println!(
            "case,auto/s,auto p99 ms,best,{}",
            POLICIES.map(|p| format!("{p}/s,{p} p99 ms")).join(",")
        );
        for row in &rows {
            let of = |policy: &str| row.others.iter().find(|score| score.policy == policy);
            let all = POLICIES.map(|policy| {
                of(policy).map_or(String::new(), |s| format!("{:.1},{:.4}", s.rate, s.p99))
            });
            let (auto, best) = (&row.auto, &row.others[0]);
            println!(
                "\"{}\",{:.1},{:.4},{},{}",
                row.name,
                auto.rate,
                auto.p99,
                best.policy,
                all.join(",")
            );
        }
        return;
    }
    let mut sorted: Vec<&Row> = rows.iter().collect();
    sorted.sort_by(|a, b| a.to_best.total_cmp(&b.to_best));
    print("least of the best:", &sorted);
    sorted.sort_by(|a, b| b.p99_to_best.total_cmp(&a.p99_to_best));
    print("slowest hundredth:", &sorted);
    sorted.sort_by(|a, b| a.to_own.total_cmp(&b.to_own));
    print("least of own:", &sorted[..sorted.len().min(5)]);
    let of = |wanted: &dyn Fn(&Row) -> bool| -> Vec<&Row> {
        rows.iter().filter(|row| wanted(row)).collect()
    };
    summary("alone", &of(&|row| row.lone));
    summary("steady, one flush at a time", &of(&|row| !row.changing && row.at_once == 1));
    summary("steady, 16 at once", &of(&|row| !row.changing && row.at_once == 16));
    summary("changing", &of(&|row| row.changing));
    summary("all", &of(&|_| true));
    let mut wins = std::collections::BTreeMap::new();
    for row in &rows {
        *wins.entry(row.others[0].policy.as_str()).or_insert(0) += 1;
    }
    println!("best in hindsight: {wins:?}");
}
