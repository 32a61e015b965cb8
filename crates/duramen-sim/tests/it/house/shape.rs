//! The shape of files: their length, names and opening comments, and what they must not contain.

use super::source::{Source, words};

/// The longest file, tests not counted.
const FILE_LINES_MAX: usize = 800;

/// The longest function: one screen.
const FUNCTION_LINES_MAX: usize = 70;

/// Names that do not describe what a file holds.
const EMPTY_NAMES: &[&str] = &["util", "utils", "common", "helper", "helpers", "manager", "misc", "v2"];

/// Where the methods of clippy.toml may be called: the system's disk, the start of threads, sockets and the
/// files that name them, and programs.
/// Tests may call them, too.
const DOORS: &[&str] = &[
    "crates/duramen-disk/src/os",
    "crates/duramen-engine/src/threads.rs",
    "crates/duramen-lab/src/measure/workers.rs",
    "crates/duramen-client/src/lib.rs",
    "crates/duramen-client/examples/",
    "crates/duramen-server/src/lib.rs",
    "crates/duramen-cli/",
    "crates/duramen-sim/",
    "tools/",
    "examples/",
];

/// Files and functions that are too long.
pub(crate) fn length_violations(sources: &[Source]) -> Vec<String> {
    let mut found = Vec::new();
    for source in sources.iter().filter(|source| !source.is_test()) {
        let line_count = source.line_count_without_tests();
        if line_count > FILE_LINES_MAX {
            found.push(format!(
                "{}: {line_count} lines without tests, wall {FILE_LINES_MAX}: split it",
                source.path
            ));
        }
    }
    found.extend(long_functions(sources, false).map(|text| format!("{text}: split it")));
    found
}

/// Functions of tests that are too long: allowed, and listed.
pub(crate) fn long_test_functions(sources: &[Source]) -> Vec<String> {
    long_functions(sources, true).collect()
}

fn long_functions(sources: &[Source], of_tests: bool) -> impl Iterator<Item = String> {
    sources.iter().flat_map(move |source| {
        let functions = source.functions().into_iter();
        let long = functions.filter(move |function| {
            function.line_count > FUNCTION_LINES_MAX && source.is_test_at(function.offset) == of_tests
        });
        long.map(|function| {
            let place = source.place(function.offset);
            format!(
                "{place}: fn {} has {} lines, wall {FUNCTION_LINES_MAX}",
                function.name, function.line_count
            )
        })
    })
}

/// Files that do not begin with a comment on what they own.
pub(crate) fn opening_violations(sources: &[Source]) -> Vec<String> {
    let silent =
        sources.iter().filter(|source| !is_test_root(&source.path) && !source.text.starts_with("//!"));
    silent
        .map(|source| format!("{}: opens without `//!`: say what it owns and never does", source.path))
        .collect()
}

fn is_test_root(path: &str) -> bool {
    path.ends_with("/tests/it/main.rs")
}

/// Files and folders with meaningless names.
pub(crate) fn name_violations(sources: &[Source]) -> Vec<String> {
    let mut found = Vec::new();
    for source in sources {
        if source.path.ends_with("/mod.rs") {
            found.push(format!("{}: name it after its folder, beside the folder", source.path));
        }
        for part in source.path.trim_end_matches(".rs").split('/') {
            if EMPTY_NAMES.contains(&part) {
                found.push(format!("{}: `{part}` says nothing: name the thing it does", source.path));
            }
        }
    }
    found
}

/// Tests switched off, unfinished code, and tests that wait for time to pass.
pub(crate) fn unfinished_violations(sources: &[Source]) -> Vec<String> {
    sources.iter().flat_map(source_unfinished).collect()
}

fn source_unfinished(source: &Source) -> Vec<String> {
    let mut found = Vec::new();
    for (offset, word) in words(&source.code) {
        let before = source.code[..offset].trim_end();
        let after = source.code[offset + word.len()..].trim_start();
        let why = match word {
            "ignore" if before.ends_with("#[") || before.ends_with(", ") || before.ends_with(',') => {
                // `#[cfg_attr(x, ignore)]` switches a test off as well; what follows distinguishes a list in
                // code.
                if !after.starts_with([']', ')', '=']) {
                    continue;
                }
                "a test is switched off: mend it or remove it"
            }
            "todo" | "unimplemented" if after.starts_with('!') => "a hole is left open: finish it",
            "sleep" if sleeps_in_test(source, offset, before, after) => {
                "a test sleeps: wait for the event itself, or drive the clock"
            }
            _ => continue,
        };
        found.push(format!("{}: {why}", source.place(offset)));
    }
    found
}

/// A call of the free function, or an import of it. A method of that name belongs to a simulated clock.
fn sleeps_in_test(source: &Source, offset: usize, before: &str, after: &str) -> bool {
    let in_test = source.is_test_at(offset) || source.path.starts_with("crates/duramen-sim/");
    let is_call = after.starts_with('(') && !before.ends_with('.') && !before.ends_with("fn");
    in_test && (is_call || before.ends_with("thread::"))
}

/// Exceptions from clippy.toml outside of `DOORS`.
pub(crate) fn door_violations(sources: &[Source]) -> Vec<String> {
    let mut found = Vec::new();
    for source in sources.iter().filter(|source| !DOORS.iter().any(|door| source.path.starts_with(door))) {
        for (offset, word) in words(&source.code) {
            if word == "disallowed_methods" && !source.is_test_at(offset) {
                let place = source.place(offset);
                found.push(format!(
                    "{place}: an exception from clippy.toml may stand only in {DOORS:?} and in tests"
                ));
            }
        }
    }
    found
}

#[cfg(test)]
fn check(violations: fn(&[Source]) -> Vec<String>, path: &str, text: &str, count: usize) {
    let found = violations(&[Source::new(path, text)]);
    assert_eq!(found.len(), count, "{path}: {text}: {found:?}");
}

#[cfg(test)]
fn function_of(line_count: usize) -> String {
    format!("fn f() {{\n{}}}\n", "    g();\n".repeat(line_count - 2))
}

#[test]
fn a_long_file_is_found_and_its_tests_do_not_count() {
    let of = |line_count: usize| "const A: u8 = 1;\n".repeat(line_count);
    check(length_violations, "crates/x/src/a.rs", &of(800), 0);
    check(length_violations, "crates/x/src/a.rs", &of(801), 1);
    check(length_violations, "crates/x/src/a/tests.rs", &of(801), 0);
    let with_tests = format!("{}#[cfg(test)]\nmod tests {{\n{}}}\n", of(700), of(700));
    check(length_violations, "crates/x/src/a.rs", &with_tests, 0);
}

#[test]
fn a_long_function_is_found_and_that_of_a_test_is_told() {
    check(length_violations, "crates/x/src/a.rs", &function_of(70), 0);
    check(length_violations, "crates/x/src/a.rs", &function_of(71), 1);
    check(length_violations, "crates/x/tests/it/a.rs", &function_of(71), 0);
    check(long_test_functions, "crates/x/tests/it/a.rs", &function_of(71), 1);
    check(long_test_functions, "crates/x/src/a.rs", &function_of(71), 0);
}

#[test]
fn a_file_that_does_not_say_what_it_owns_is_found() {
    check(opening_violations, "crates/x/src/a.rs", "//! Owns a.\nfn f() {}\n", 0);
    check(opening_violations, "crates/x/src/a.rs", "use b;\n//! Late.\n", 1);
    check(opening_violations, "crates/x/tests/it/main.rs", "mod a;\n", 0);
    check(opening_violations, "crates/x/tests/it/a.rs", "fn f() {}\n", 1);
}

#[test]
fn a_name_that_says_nothing_is_found() {
    check(name_violations, "crates/x/src/wal.rs", "", 0);
    check(name_violations, "crates/x/src/wal/mod.rs", "", 1);
    check(name_violations, "crates/x/src/utils.rs", "", 1);
    check(name_violations, "crates/x/src/common/wal.rs", "", 1);
    check(name_violations, "crates/x/src/commonplace.rs", "", 0);
}

#[test]
fn a_test_switched_off_is_found() {
    let path = "crates/x/src/a/tests.rs";
    check(unfinished_violations, path, "#[test]\n#[ignore]\nfn f() {}", 1);
    check(unfinished_violations, path, "#[test]\n#[ignore = \"slow\"]\nfn f() {}", 1);
    check(unfinished_violations, path, "#[test]\n#[cfg_attr(miri, ignore)]\nfn f() {}", 1);
    check(unfinished_violations, path, "// #[ignore]\nfn f() { ignore(x); let ignore = 1; }", 0);
}

#[test]
fn a_hole_is_found() {
    check(unfinished_violations, "crates/x/src/a.rs", "fn f() { todo!() }", 1);
    check(unfinished_violations, "crates/x/src/a.rs", "fn f() { unimplemented!(\"later\") }", 1);
    check(unfinished_violations, "crates/x/src/a.rs", "// todo!()\nfn f() { let todo = \"todo!()\"; }", 0);
}

#[test]
fn a_test_that_sleeps_is_found() {
    let path = "crates/x/src/a/tests.rs";
    check(unfinished_violations, path, "fn f() { std::thread::sleep(d); }", 1);
    check(unfinished_violations, path, "use std::thread::sleep;", 1);
    check(unfinished_violations, path, "use std::thread::{self, sleep};\nfn f() { sleep(d); }", 1);
    check(unfinished_violations, path, "fn f() { clock.sleep(d); }\nfn sleep(d: D) {}", 0);
    check(unfinished_violations, "crates/duramen-sim/src/a.rs", "fn f() { std::thread::sleep(d); }", 1);
}

#[test]
fn an_exception_outside_of_the_doors_is_found() {
    let text = "#![allow(clippy::disallowed_methods)]";
    check(door_violations, "crates/duramen-engine/src/threads.rs", text, 0);
    check(door_violations, "crates/duramen-disk/src/os/linux.rs", text, 0);
    check(door_violations, "crates/duramen-disk/src/memory.rs", text, 1);
    check(door_violations, "crates/duramen-engine/src/lib.rs", text, 1);
    check(door_violations, "crates/duramen-engine/src/wal.rs", text, 1);
    check(door_violations, "crates/duramen/src/lib.rs", text, 1);
    check(door_violations, "crates/duramen/tests/it/main.rs", text, 0);
}
