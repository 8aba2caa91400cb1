//! libuxfs as C programs see it: the header is current, and the example compiles without warnings,
//! runs with the static and the shared library, and under valgrind. xfs_repair judges its volume.
//!
//! Needs gcc, valgrind and xfs_repair; without them the tests fail.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The directory that holds the libraries. `cargo test` does not build them, so this does.
fn libraries() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let place = BUILT.get_or_init(|| {
        let test = std::env::current_exe().unwrap();
        let target = test.ancestors().nth(3).unwrap();
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--locked", "--package", "uxfs-capi", "--target-dir"]);
        run(cargo.arg(target).current_dir(root()));
        target.join("debug")
    });
    place.clone()
}

fn run(command: &mut Command) -> String {
    let out = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let words = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{command:?}: {}\n{words}", out.status);
    String::from_utf8(out.stdout).unwrap()
}

#[test]
fn the_header_is_current() {
    let config = cbindgen::Config::from_root_or_default(root());
    let made = cbindgen::generate_with_config(root(), config).unwrap();
    let mut header = Vec::new();
    made.write(&mut header);
    let header = String::from_utf8(header).unwrap();
    let path = root().join("include/uxfs.h");
    if std::env::var_os("UXFS_WRITE_HEADER").is_some() {
        std::fs::write(&path, &header).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap();
    assert!(committed == header, "run this test with UXFS_WRITE_HEADER=1, and commit the header");
}

/// Compiles the example, for C or C++.
fn compile(dir: &Path, name: &str, arguments: &[&str]) -> PathBuf {
    compile_source(dir, name, &root().join("examples/notes.c"), arguments)
}

fn compile_source(dir: &Path, name: &str, source: &Path, arguments: &[&str]) -> PathBuf {
    let program = dir.join(name);
    let strict = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-g"];
    let mut command = Command::new("gcc");
    command.args(strict).arg("-I").arg(root().join("include"));
    command.arg(source).arg("-o").arg(&program).args(arguments);
    run(command.args(["-lpthread", "-ldl", "-lm"]));
    program
}

fn judge(image: &Path) {
    uxfs_oracle::repair(image).unwrap_or_else(|finding| panic!("{finding}"));
}

#[test]
fn the_example_runs_with_both_libraries() {
    let dir = tempfile::tempdir().unwrap();
    let built = libraries();
    let archive = built.join("libuxfs.a");
    let fixed = compile(dir.path(), "static", &[archive.to_str().unwrap()]);
    let image = dir.path().join("static.img");
    assert_eq!(run(Command::new(fixed).arg(&image)), "200 notes\n");
    judge(&image);
    let place = built.to_str().unwrap();
    let shared = compile(dir.path(), "shared", &["-L", place, "-luxfs"]);
    let image = dir.path().join("shared.img");
    let ran = run(Command::new(shared).arg(&image).env("LD_LIBRARY_PATH", place));
    assert_eq!(ran, "200 notes\n");
    judge(&image);
}

#[test]
fn valgrind_finds_no_error_and_no_leak_in_the_example() {
    let dir = tempfile::tempdir().unwrap();
    let archive = libraries().join("libuxfs.a");
    let program = compile(dir.path(), "static", &[archive.to_str().unwrap()]);
    let image = dir.path().join("t.img");
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--quiet", "--error-exitcode=9", "--leak-check=full"]);
    valgrind.args(["--errors-for-leak-kinds=definite,indirect"]);
    assert_eq!(run(valgrind.arg(program).arg(&image)), "200 notes\n");
    judge(&image);
}

/// Calls of a program other than the example, which exits with the number of the line that failed.
#[test]
fn calls_do_what_the_header_says() {
    let dir = tempfile::tempdir().unwrap();
    let archive = libraries().join("libuxfs.a");
    let source = root().join("tests/calls.c");
    let program = compile_source(dir.path(), "calls", &source, &[archive.to_str().unwrap()]);
    let image = dir.path().join("t.img");
    run(Command::new(program).arg(&image));
    judge(&image);
}

#[test]
fn the_header_is_also_cpp() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("t.cpp");
    std::fs::write(&source, "#include <uxfs.h>\nint main() { return uxfs_close(nullptr); }\n")
        .unwrap();
    let mut command = Command::new("g++");
    command.args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "-I"]);
    run(command.arg(root().join("include")).arg(source));
}
