//! No forgotten file: every `.rs` is reached by `mod` from a root that cargo builds, and each crate has one
//! binary of integration tests.

use std::collections::BTreeSet;

use super::source::{Module, Source};

/// Roots that cargo finds by itself, by their path inside the crate.
fn is_root(inside_crate: &str) -> bool {
    let parts: Vec<&str> = inside_crate.split('/').collect();
    match parts.as_slice() {
        ["build.rs"] | ["src", "lib.rs" | "main.rs"] => true,
        ["src", "bin", file] | ["tests" | "examples" | "benches", file] => file.ends_with(".rs"),
        ["src", "bin", _, "main.rs"] | ["tests" | "examples" | "benches", _, "main.rs"] => true,
        _ => false,
    }
}

/// The path below `crates/NAME/`.
fn inside_crate(path: &str) -> &str {
    path.splitn(3, '/').nth(2).unwrap_or(path)
}

pub(crate) fn violations(sources: &[Source]) -> Vec<String> {
    let mut found = Vec::new();
    let mut reached: BTreeSet<String> = BTreeSet::new();
    let mut waiting: Vec<String> = Vec::new();
    for path in sources.iter().map(|source| &source.path).filter(|path| is_root(inside_crate(path))) {
        let inside = inside_crate(path);
        if inside.starts_with("tests/") && inside != "tests/it/main.rs" {
            found.push(format!(
                "{path}: a second binary of tests costs another link: make it a module of tests/it"
            ));
        }
        waiting.push(path.clone());
    }
    while let Some(path) = waiting.pop() {
        let Some(source) = sources.iter().find(|source| source.path == path) else { continue };
        if reached.insert(path) {
            waiting.extend(declared_files(source));
        }
    }
    for source in sources {
        if !reached.contains(&source.path) {
            found.push(format!("{}: no `mod` reaches it, so it is never compiled: declare it", source.path));
        }
    }
    found
}

/// Files that the `mod name;` items of a file refer to, whether they exist or not.
fn declared_files(source: &Source) -> Vec<String> {
    let folder = folder_of_modules(&source.path);
    let modules = source.modules();
    let declared = modules.iter().filter(|module| module.body.is_none());
    let file = |module: &Module| match path_attribute(source, module.offset) {
        Some(path) => format!("{}/{path}", folder_of(&source.path)),
        None => format!("{folder}/{}{}.rs", inline_folders(&modules, module.offset), module.name),
    };
    declared.map(file).collect()
}

/// The path in `#[path = "..."]` directly before a module, relative to the folder of its file.
fn path_attribute(source: &Source, module_offset: usize) -> Option<&str> {
    let item_start = source.code[..module_offset].rfind([';', '{', '}']).map_or(0, |at| at + 1);
    let attribute = item_start + source.code[item_start..module_offset].find("#[path")?;
    source.text[attribute..module_offset].split('"').nth(1)
}

fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// The folder for the modules of a file: beside a root, else the folder named like the file.
fn folder_of_modules(path: &str) -> &str {
    if is_root(inside_crate(path)) { folder_of(path) } else { path.trim_end_matches(".rs") }
}

/// `a/b/` for an offset inside `mod a { mod b { ... } }`.
fn inline_folders(modules: &[Module], offset: usize) -> String {
    let around =
        modules.iter().filter(|module| module.body.as_ref().is_some_and(|body| body.contains(&offset)));
    around.map(|module| format!("{}/", module.name)).collect()
}

#[cfg(test)]
fn check(files: &[(&str, &str)], expected: &[&str]) {
    let sources: Vec<Source> =
        files.iter().map(|(path, text)| Source::new(&format!("crates/x/{path}"), text)).collect();
    let found = violations(&sources);
    assert_eq!(found.len(), expected.len(), "{files:?}: {found:?}");
    for (violation, part) in found.iter().zip(expected) {
        assert!(violation.contains(part), "{violation} does not say {part}");
    }
}

#[test]
fn a_file_that_no_module_declares_is_found() {
    check(&[("src/lib.rs", "mod a;"), ("src/a.rs", "#[cfg(test)]\nmod tests;"), ("src/a/tests.rs", "")], &[]);
    check(&[("src/lib.rs", "mod a;"), ("src/a.rs", ""), ("src/a/tests.rs", "")], &["src/a/tests.rs"]);
    check(&[("src/lib.rs", "// mod a;"), ("src/a.rs", "")], &["src/a.rs"]);
    check(&[("src/lib.rs", "mod a { mod b; }"), ("src/a/b.rs", "")], &[]);
    check(
        &[("tests/it/main.rs", "mod a;"), ("tests/it/a.rs", ""), ("tests/it/b.rs", "")],
        &["tests/it/b.rs"],
    );
    check(
        &[("src/main.rs", "mod a;"), ("src/a.rs", "mod b;"), ("src/a/b.rs", ""), ("src/b.rs", "")],
        &["src/b.rs"],
    );
}

#[test]
fn a_second_binary_of_tests_is_found() {
    check(&[("tests/it/main.rs", ""), ("tests/more.rs", "")], &["tests/more.rs"]);
    check(&[("tests/it/main.rs", ""), ("tests/two/main.rs", "")], &["tests/two/main.rs"]);
}

#[test]
fn a_module_with_a_path_of_its_own_reaches_that_file_and_no_other() {
    let os = "#[cfg(unix)]\n#[path = \"os/unix.rs\"]\nmod platform;";
    check(&[("src/lib.rs", "mod os;"), ("src/os.rs", os), ("src/os/unix.rs", "")], &[]);
    check(
        &[("src/lib.rs", "mod os;"), ("src/os.rs", os), ("src/os/platform.rs", "")],
        &["src/os/platform.rs"],
    );
}
