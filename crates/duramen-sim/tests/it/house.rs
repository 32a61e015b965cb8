//! The rules of this repository, checked on its own files. CONTRIBUTING.md lists them for people.
//!
//! Each rule is a pure function from sources to violations; beside it, tests on planted violations show that
//! it can fail. The tests here run the rules on the real files, and check that these were found.

mod arrows;
mod assertions;
mod errors_sections;
mod errors_table;
mod format;
mod layers;
mod limits_table;
mod packages;
mod promises;
mod prose;
mod reach;
mod shape;
mod source;

use std::fs;
use std::path::{Path, PathBuf};

use source::Source;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .expect("the repository is around this crate")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("cannot read {path}: {error}"))
}

/// Every file below `crates/`, `tools/` and `examples/` with this ending, by its path from the root, sorted.
fn files(ending: &str) -> Vec<(String, String)> {
    let root = root();
    let mut found = Vec::new();
    let mut folders = ["crates", "tools", "examples"].map(|folder| root.join(folder)).to_vec();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the repository can be listed") {
            let path = entry.expect("an entry can be read").path();
            if path.is_dir() {
                if path.file_name().is_none_or(|name| name != "target") {
                    folders.push(path);
                }
            } else if path.to_string_lossy().ends_with(ending) {
                let inside = path.strip_prefix(&root).expect("the walk began at the root");
                let parts: Vec<_> = inside.iter().map(|part| part.to_string_lossy()).collect();
                found.push((parts.join("/"), read(&inside.to_string_lossy())));
            }
        }
    }
    found.sort();
    found
}

fn sources() -> Vec<Source> {
    // Programs below tests/ui contain mistakes on purpose, for the messages of the compiler. Another test
    // compares generated code with its source.
    let kept =
        |(path, _): &&(String, String)| !path.contains("/tests/ui/") && !path.contains("/src/generated/");
    let found: Vec<Source> =
        files(".rs").iter().filter(kept).map(|(path, text)| Source::new(path, text)).collect();
    // A search that finds no files would pass every rule.
    for known in [
        "crates/duramen-disk/src/lib.rs",
        "crates/duramen-engine/src/lib.rs",
        "crates/duramen-sim/tests/it/house.rs",
        "tools/duramen-bench/src/main.rs",
        "examples/tickets/src/main.rs",
    ] {
        assert!(found.iter().any(|source| source.path == known), "the walk did not find {known}");
    }
    found
}

/// Every document of the repository: the pages at its root and those below `docs/`.
fn documents() -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![String::new(), "docs".to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).expect("a folder of the repository can be listed") {
            let entry = entry.expect("an entry can be read");
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
            if path.ends_with(".md") {
                found.push((path.clone(), read(&path)));
            } else if !folder.is_empty() && entry.path().is_dir() {
                folders.push(path);
            }
        }
    }
    found.sort();
    found
}

fn assert_none(violations: &[String]) {
    assert!(
        violations.is_empty(),
        "{} violation(s) of a house rule:\n{}",
        violations.len(),
        violations.join("\n")
    );
}

#[test]
fn crates_depend_along_the_arrows() {
    let manifests = files("/Cargo.toml");
    assert!(manifests.len() >= 5, "found only {} manifests", manifests.len());
    assert_none(&arrows::violations(&manifests));
}

/// The crates that will be published, with what a registry shows of them.
fn packages() -> Vec<packages::Package> {
    let package = |name: &&str| {
        let folder = format!("crates/{name}");
        let root = ["src/lib.rs", "src/main.rs"].map(|file| format!("{folder}/{file}"));
        let root = root.iter().find(|path| exists(path)).expect("a crate is a library or a program");
        packages::Package {
            name: (*name).to_owned(),
            manifest: read(&format!("{folder}/Cargo.toml")),
            readme: read(&format!("{folder}/README.md")),
            root: read(root),
        }
    };
    packages::PUBLISHED_LATER.iter().map(package).collect()
}

fn exists(path: &str) -> bool {
    root().join(path).exists()
}

#[test]
fn nothing_is_published_before_the_format_of_documents_is_fixed() {
    let mut manifests = files("/Cargo.toml");
    manifests.push(("fuzz/Cargo.toml".to_owned(), read("fuzz/Cargo.toml")));
    assert_none(&packages::publishing_violations(&read("Cargo.toml"), &manifests));
}

#[test]
fn manifests_have_what_a_registry_and_the_host_of_documentation_ask_for() {
    assert_none(&packages().iter().flat_map(packages::manifest_violations).collect::<Vec<_>>());
    for name in packages::PUBLISHED_LATER {
        for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
            assert_eq!(read(&format!("crates/{name}/{licence}")), read(licence), "{name}: {licence}");
        }
    }
}

#[test]
fn links_of_readmes_work_on_the_page_of_a_registry() {
    let workspace = read("Cargo.toml");
    let repository = workspace.split("\nrepository = \"").nth(1).and_then(|rest| rest.split('"').next());
    let repository = repository.expect("the workspace names its repository");
    let check = |package| packages::readme_violations(package, repository, &exists);
    assert_none(&packages().iter().flat_map(check).collect::<Vec<_>>());
}

#[test]
fn every_feature_is_in_the_table_of_its_crate() {
    assert_none(&packages().iter().flat_map(packages::feature_violations).collect::<Vec<_>>());
}

#[test]
fn modules_name_only_lower_layers() {
    let sources = sources();
    assert_none(&layers::violations(&sources));
    assert_none(&layers::needless_exceptions(&sources));
}

#[test]
fn files_and_functions_are_short() {
    let sources = sources();
    for told in shape::long_test_functions(&sources) {
        println!("allowed in tests: {told}");
    }
    assert!(
        sources.iter().map(|source| source.functions().len()).sum::<usize>() > 50,
        "functions are not found"
    );
    assert_none(&shape::length_violations(&sources));
}

#[test]
fn every_file_says_what_it_owns() {
    assert_none(&shape::opening_violations(&sources()));
}

#[test]
fn every_name_says_something() {
    assert_none(&shape::name_violations(&sources()));
}

#[test]
fn nothing_is_switched_off_left_open_or_slept_through() {
    assert_none(&shape::unfinished_violations(&sources()));
}

#[test]
fn exceptions_from_the_one_door_stand_at_the_doors() {
    assert_none(&shape::door_violations(&sources()));
}

#[test]
fn no_file_is_forgotten() {
    assert_none(&reach::violations(&sources()));
}

#[test]
fn promises_are_held_by_tests_that_exist() {
    let document = read("docs/durability.md");
    for told in promises::without_test(&document) {
        println!("{told}");
    }
    assert_none(&promises::violations(&document, &sources()));
}

#[test]
fn the_table_of_limits_is_the_one_in_the_code() {
    let path = "crates/duramen-engine/src/limits.rs";
    let limits_rs = Source::new(path, &read(path));
    assert_none(&limits_table::violations(&read("docs/durability.md"), &limits_rs));
}

#[test]
fn limits_are_read_as_the_compiler_reads_them() {
    use duramen_engine::limits::{BIG_VALUE_BYTES, KEY_BYTES_MAX, SEGMENT_BYTES_MAX};
    let path = "crates/duramen-engine/src/limits.rs";
    let limits =
        limits_table::limits(&Source::new(path, &read(path))).expect("limits are integer arithmetic");
    let compiled = [
        ("KEY_BYTES_MAX", KEY_BYTES_MAX as u128),
        ("BIG_VALUE_BYTES", BIG_VALUE_BYTES as u128),
        ("SEGMENT_BYTES_MAX", u128::from(SEGMENT_BYTES_MAX)),
    ];
    for (name, value) in compiled {
        let read = limits.iter().find(|limit| limit.name == name).map(|limit| limit.value);
        assert_eq!(read, Some(value), "{name}");
    }
}

#[test]
fn the_format_document_is_pinned_to_the_code() {
    let document = read("docs/format.md");
    assert_none(&format::constant_violations(&document, &sources()));
    assert_none(&format::table_violations(&document));
    assert_none(&format::layout_violations(&document));
}

#[test]
fn the_table_of_errors_is_the_one_in_the_code() {
    assert_none(&errors_table::violations(&read("docs/durability.md")));
}

#[test]
fn public_functions_name_the_codes_of_their_errors() {
    let sources = sources();
    assert!(errors_sections::count(&sources) > 300, "public functions are not found");
    assert_none(&errors_sections::violations(&sources));
}

#[test]
fn the_engine_asserts_what_its_data_depends_on() {
    let sources = sources();
    let (assertions, functions) = assertions::counts(&sources);
    println!("{assertions} assertions in {functions} functions of the engine");
    assert_none(&assertions::violations(&sources));
}

#[test]
fn lines_are_short_and_comments_name_things() {
    let sources = sources();
    let (persons, all) = prose::persons(&sources);
    assert!(all > 50_000, "only {all} words of comments were found");
    println!("{persons} words for persons in {all} words of comments");
    let documents = documents();
    assert!(documents.len() > 20, "found only {} documents", documents.len());
    assert_none(&prose::comment_length_violations(&sources));
    assert_none(&prose::markdown_length_violations(&documents));
    assert_none(&prose::person_violations(&sources));
    assert_none(&prose::glossary_violations(&read("ARCHITECTURE.md")));
}
