//! How densely the engine asserts what its data depends on.

use super::source::{Source, words};

const ENGINE: &str = "crates/duramen-engine/src/";

/// Macros that check an invariant at run time or when compiled.
const ASSERTIONS: &[&str] =
    &["invariant", "assert", "assert_eq", "assert_ne", "debug_assert", "debug_assert_eq", "unreachable"];

/// The least number of assertions per 1,000 functions of the engine, tests not counted. May only rise.
const PER_1000_MIN: usize = 150;

/// Assertions and functions of the engine, tests not counted.
pub(crate) fn counts(sources: &[Source]) -> (usize, usize) {
    let of_engine = || sources.iter().filter(|source| source.path.starts_with(ENGINE));
    let assertions = of_engine().map(assertion_count).sum();
    let functions = of_engine().flat_map(|source| {
        let functions = source.functions().into_iter();
        functions.filter(|function| !source.is_test_at(function.offset))
    });
    (assertions, functions.count())
}

fn assertion_count(source: &Source) -> usize {
    let is_counted = |(offset, word): &(usize, &str)| {
        ASSERTIONS.contains(word)
            && source.code[offset + word.len()..].starts_with("!(")
            && !source.is_test_at(*offset)
    };
    words(&source.code).iter().filter(|found| is_counted(found)).count()
}

/// The ratio, if it is too low.
pub(crate) fn violations(sources: &[Source]) -> Vec<String> {
    let (assertions, functions) = counts(sources);
    if assertions * 1000 >= functions * PER_1000_MIN {
        return Vec::new();
    }
    vec![format!(
        "{assertions} assertions in {functions} functions of the engine, want {PER_1000_MIN} per 1,000: assert \
         what new code relies on (`invariant!`, see alarm.rs)"
    )]
}

#[test]
fn assertions_are_counted_and_those_of_tests_are_not() {
    let text = "fn a() { invariant!(true, \"x\"); }\n\
                fn b() { // assert!(no)\n let s = \"assert!(no)\"; debug_assert!(s.is_empty()); my_assert!(1) }\n\
                const _: () = assert!(1 < 2);\n\
                #[cfg(test)]\nmod tests { fn c() { assert!(true); } }\n";
    let source = |path: &str| vec![Source::new(path, text)];
    assert_eq!(counts(&source("crates/duramen-engine/src/x.rs")), (3, 2));
    assert_eq!(counts(&source("crates/duramen-engine/src/x/tests.rs")), (0, 0));
    assert_eq!(counts(&source("crates/duramen/src/x.rs")), (0, 0));
}

#[test]
fn too_few_assertions_are_found() {
    let of = |functions: usize| {
        let text = "fn a() {}\n".repeat(functions - 1) + "fn b() { assert!(true) }\n";
        violations(&[Source::new("crates/duramen-engine/src/x.rs", &text)])
    };
    assert!(of(1000 / PER_1000_MIN).is_empty());
    assert_eq!(of(1000 / PER_1000_MIN + 1).len(), 1);
}
