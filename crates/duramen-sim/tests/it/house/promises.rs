//! The promises of docs/durability.md: each has a true status, and tests that exist and cite it.
//!
//! The section `## What holds each promise` has one line for each promise:
//!
//! ```text
//! - D1, not yet: no test yet
//! - D2, held: `duramen-sim/tests/it/search.rs::every_cut_leaves_a_prefix`, `...`
//! ```
//!
//! A test is named by its file below `crates/` and its function. `held` needs at least one; a promise that is
//! `not yet` may name some.

use super::source::{Source, words};

const PROMISES: &[&str] = &["D1", "D2", "D3", "D4", "D5", "D6", "D7", "D8", "D9", "I1"];

const SECTION: &str = "## What holds each promise";

/// One line of the section.
struct Entry<'a> {
    promise: &'a str,
    status: &'a str,
    tests: Vec<&'a str>,
    says_none: bool,
}

fn entries(document: &str) -> Vec<Result<Entry<'_>, String>> {
    let section = document.split_once(SECTION).map_or("", |(_, rest)| rest);
    let section = section.split("\n## ").next().unwrap_or_default();
    let items = section.split("\n- ").skip(1).map(|item| item.split("\n\n").next().unwrap_or_default());
    items
        .map(|item| {
            entry(item).ok_or_else(|| format!("docs/durability.md: not `- D1, status: tests`: {item}"))
        })
        .collect()
}

fn entry(item: &str) -> Option<Entry<'_>> {
    let (head, tail) = item.split_once(':')?;
    let (promise, status) = head.split_once(", ")?;
    // In a text split at backticks, every second part was between two of them.
    let tests = tail.split('`').skip(1).step_by(2).collect();
    Some(Entry { promise, status, tests, says_none: tail.trim() == "no test yet" })
}

/// Promises without a test, one sentence each.
pub(crate) fn without_test(document: &str) -> Vec<String> {
    let entries = entries(document).into_iter().flatten();
    entries
        .filter(|entry| entry.tests.is_empty())
        .map(|entry| format!("{}: no test yet", entry.promise))
        .collect()
}

pub(crate) fn violations(document: &str, sources: &[Source]) -> Vec<String> {
    let mut found = Vec::new();
    let mut seen = Vec::new();
    for entry in entries(document) {
        match entry {
            Ok(entry) => {
                found.extend(entry_violations(&entry, sources));
                seen.push(entry.promise);
            }
            Err(text) => found.push(text),
        }
    }
    for promise in PROMISES {
        let count = seen.iter().filter(|seen| *seen == promise).count();
        if count != 1 {
            found.push(format!("docs/durability.md: {promise} has {count} lines under `{SECTION}`, wants 1"));
        }
        if !document.contains(&format!("**{promise}**")) {
            found.push(format!("docs/durability.md: {promise} is not stated as `**{promise}** ...`"));
        }
    }
    found
}

fn entry_violations(entry: &Entry<'_>, sources: &[Source]) -> Vec<String> {
    let promise = entry.promise;
    let mut found = Vec::new();
    if !PROMISES.contains(&promise) {
        found.push(format!("docs/durability.md: {promise} is no promise: add it to PROMISES in {}", file!()));
    }
    match entry.status {
        "held" if entry.tests.is_empty() => {
            found.push(format!("docs/durability.md: {promise} is called held and names no test"));
        }
        "held" | "not yet" => {}
        status => {
            found.push(format!("docs/durability.md: {promise}: status `{status}`, wants `held` or `not yet`"))
        }
    }
    if entry.tests.is_empty() && !entry.says_none {
        found.push(format!("docs/durability.md: {promise} names no test and does not say `no test yet`"));
    }
    found.extend(entry.tests.iter().filter_map(|test| test_violation(promise, test, sources)));
    found
}

/// Whether the test exists and its file cites the promise.
fn test_violation(promise: &str, test: &str, sources: &[Source]) -> Option<String> {
    let place = format!("docs/durability.md: {promise}: `{test}`");
    let Some((file, name)) = test.rsplit_once("::") else {
        return Some(format!("{place} is not `crate/path/file.rs::function`"));
    };
    let path = format!("crates/{file}");
    let Some(source) = sources.iter().find(|source| source.path == path) else {
        return Some(format!("{place}: there is no {path}"));
    };
    if !source.test_names().iter().any(|known| known == name) {
        return Some(format!("{place}: {path} has no `#[test] fn {name}`"));
    }
    if !words(&source.text).iter().any(|(_, word)| *word == promise) {
        return Some(format!("{place}: {path} does not cite {promise}"));
    }
    None
}

/// A document with every promise stated and `not yet`; the line of D3 is replaced.
#[cfg(test)]
fn document(line_of_d3: &str) -> String {
    let stated: String = PROMISES.iter().map(|promise| format!("**{promise}** Text.\n\n")).collect();
    let line = |promise: &&str| match *promise {
        "D3" => line_of_d3.to_owned(),
        other => format!("- {other}, not yet: no test yet\n"),
    };
    let lines: String = PROMISES.iter().map(line).collect();
    format!("# Promises\n\n{stated}{SECTION}\n\n{lines}\n## Next\n\n- D77, odd: `x`\n")
}

#[cfg(test)]
fn check(line_of_d3: &str, expected: &[&str]) {
    let text = "//! Cuts (D3).\n#[test]\nfn nothing_is_overwritten() {}\nfn no_test() {}\n";
    let silent = "//! Cites nothing.\n#[test]\nfn nothing_is_overwritten() {}\n";
    let sources =
        [Source::new("crates/x/tests/it/a.rs", text), Source::new("crates/x/tests/it/b.rs", silent)];
    let found = violations(&document(line_of_d3), &sources);
    assert_eq!(found.len(), expected.len(), "{line_of_d3}: {found:?}");
    for (violation, part) in found.iter().zip(expected) {
        assert!(violation.contains(part), "{violation} does not say {part}");
    }
}

#[test]
fn a_promise_is_held_by_tests_that_exist_and_cite_it() {
    check("- D3, not yet: no test yet\n", &[]);
    check("- D3, not yet: `x/tests/it/a.rs::nothing_is_overwritten`\n", &[]);
    check("- D3, held: `x/tests/it/a.rs::nothing_is_overwritten`\n", &[]);
    assert_eq!(without_test(&document("- D3, not yet: no test yet\n")).len(), PROMISES.len());
}

#[test]
fn a_promise_called_held_without_a_test_is_found() {
    check("- D3, held: no test yet\n", &["called held"]);
    check("- D3, held:\n", &["called held", "does not say"]);
}

#[test]
fn a_test_that_does_not_exist_or_does_not_cite_is_found() {
    check(
        "- D3, held: `x/tests/it/gone.rs::nothing_is_overwritten`\n",
        &["there is no crates/x/tests/it/gone.rs"],
    );
    check("- D3, held: `x/tests/it/a.rs::gone`\n", &["has no `#[test] fn gone`"]);
    check("- D3, not yet: `x/tests/it/a.rs::no_test`\n", &["has no `#[test] fn no_test`"]);
    check("- D3, held: `x/tests/it/b.rs::nothing_is_overwritten`\n", &["does not cite D3"]);
    check("- D3, held: `nothing_is_overwritten`\n", &["is not `crate/path/file.rs::function`"]);
}

#[test]
fn a_promise_left_out_told_twice_or_with_another_status_is_found() {
    check("", &["D3 has 0 lines"]);
    check("- D3, not yet: no test yet\n- D3, not yet: no test yet\n", &["D3 has 2 lines"]);
    check("- D3, perhaps: no test yet\n", &["status `perhaps`"]);
    check("- D3 no test yet\n", &["not `- D1, status: tests`", "D3 has 0 lines"]);
    check("- D3, not yet: no test yet\n- D12, not yet: no test yet\n", &["D12 is no promise"]);
}
