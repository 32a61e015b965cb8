//! Which module of the engine and of the user's crate may name which: lower layers and its own, no higher
//! one.

use super::source::{Source, words};

/// A crate whose modules form layers.
struct Layered {
    source: &'static str,
    /// Modules, lowest layer first. A module may name those of its own layer and of lower ones. A module
    /// listed here need not exist yet; every existing one must be listed.
    layers: &'static [&'static [&'static str]],
    /// Above all layers: files that re-export the crate's interface.
    above: &'static [&'static str],
    exceptions: &'static [Exception],
}

/// A file that names a higher layer nevertheless. This list may only shrink.
struct Exception {
    file: &'static str,
    names: &'static str,
    /// Why it is not one of the mistakes that layers prevent.
    why: &'static str,
}

const ENGINE: Layered = Layered {
    source: "crates/duramen-engine/src/",
    layers: &[
        &["alarm", "error", "features", "histogram", "ids", "limits", "options", "sync", "threads"],
        &["wal", "data_file"],
        &["raft_log"],
        &["page_cache"],
        &["tree", "allocator"],
        &["catalog", "snapshot", "checkpoint", "verify"],
        &["commit", "overlay"],
        &["transaction", "recovery", "repair", "feed"],
        &["engine"],
    ],
    above: &["lib.rs"],
    exceptions: &[],
};

const DURAMEN: Layered = Layered {
    source: "crates/duramen/src/",
    layers: &[
        &["store"],
        &["value"],
        &["view"],
        &["catalog"],
        &["access"],
        &["kv"],
        &["blobs"],
        &["feed", "requests"],
        &["db"],
        &["asynchronous"],
    ],
    above: &["lib.rs", "prelude.rs", "cookbook.rs", "wire.rs"],
    exceptions: &[
        Exception {
            file: "view.rs",
            names: "access",
            why: "a program finds what a view is and what asks it under one public path",
        },
        Exception {
            file: "access/reads.rs",
            names: "kv",
            why: "one trait has all that can be read; a snapshot and a transaction hand out key-values by it",
        },
        Exception {
            file: "access/reads.rs",
            names: "blobs",
            why: "one trait has all that can be read; a snapshot and a transaction hand out blobs by it",
        },
    ],
};

/// The one folder of the user's crate that names the engine.
const DOOR: &str = "store";

impl Layered {
    fn layer_of(&self, module: &str) -> Option<usize> {
        self.layers.iter().position(|layer| layer.contains(&module))
    }

    /// What the file names in higher layers without permission, and modules without a layer.
    fn violations(&self, source: &Source) -> Vec<String> {
        let Some(inner_path) = source.path.strip_prefix(self.source) else { return Vec::new() };
        if self.above.contains(&inner_path) {
            return Vec::new();
        }
        let module_path: Vec<&str> = inner_path.trim_end_matches(".rs").split('/').collect();
        let module = module_path[0];
        let Some(layer) = self.layer_of(module) else {
            return vec![format!(
                "{}: module `{module}` has no layer: add it to the layers in {}",
                source.path,
                file!()
            )];
        };
        let mut found = Vec::new();
        for (offset, name) in names_of_root(source, module_path.len()) {
            let place = source.place(offset);
            match self.layer_of(&name) {
                Some(named_layer) if named_layer <= layer => {}
                Some(_) if self.excepts(inner_path, &name) => {}
                Some(named_layer) => found.push(format!(
                    "{place}: `{module}` (layer {layer}) names `{name}` (layer {named_layer}): move the shared part \
                     down, or let the higher layer pass it in"
                )),
                None => found.push(format!(
                    "{place}: `{module}` names `{name}` at the crate's root: name the module that owns it \
                     (a new module is added to the layers in {})",
                    file!()
                )),
            }
        }
        found
    }

    fn excepts(&self, file: &str, name: &str) -> bool {
        self.exceptions.iter().any(|exception| exception.file == file && exception.names == name)
    }

    /// Exceptions that are no longer needed, or whose reason is too short.
    fn needless_exceptions(&self, sources: &[Source]) -> Vec<String> {
        let is_needed = |exception: &Exception| {
            let path = format!("{}{}", self.source, exception.file);
            let depth = exception.file.split('/').count();
            sources
                .iter()
                .filter(|source| source.path == path)
                .any(|source| names_of_root(source, depth).iter().any(|(_, name)| name == exception.names))
        };
        let needless =
            self.exceptions.iter().filter(|exception| !is_needed(exception) || exception.why.len() < 20);
        let told = |exception: &Exception| {
            format!(
                "{}{} names `{}` no more: remove the exception",
                self.source, exception.file, exception.names
            )
        };
        needless.map(told).collect()
    }
}

/// Takes every source; checks those of layered crates that are not tests.
pub(crate) fn violations(sources: &[Source]) -> Vec<String> {
    let code = || sources.iter().filter(|source| !source.is_test());
    let mut found: Vec<String> = [ENGINE, DURAMEN]
        .iter()
        .flat_map(|layered| code().flat_map(|source| layered.violations(source)))
        .collect();
    found.extend(code().flat_map(engine_named_outside_of_its_door));
    found
}

/// Exceptions that can be removed; takes every source.
pub(crate) fn needless_exceptions(sources: &[Source]) -> Vec<String> {
    [ENGINE, DURAMEN].iter().flat_map(|layered| layered.needless_exceptions(sources)).collect()
}

fn engine_named_outside_of_its_door(source: &Source) -> Vec<String> {
    let Some(inner_path) = source.path.strip_prefix(DURAMEN.source) else { return Vec::new() };
    let module = inner_path.trim_end_matches(".rs").split('/').next();
    if module == Some(DOOR) || DURAMEN.above.contains(&inner_path) {
        return Vec::new();
    }
    let named = words(source.code.as_str())
        .into_iter()
        .filter(|(offset, word)| *word == "duramen_engine" && !source.is_test_at(*offset));
    named
        .map(|(offset, _)| format!("{}: names the engine: only `{DOOR}` does", source.place(offset)))
        .collect()
}

/// The names below the crate's root that code uses by `crate::` or enough `super::`, outside of tests and of
/// exported macros.
fn names_of_root(source: &Source, file_depth: usize) -> Vec<(usize, String)> {
    let code = source.code.as_str();
    let inline_modules: Vec<_> = source.modules().into_iter().filter_map(|module| module.body).collect();
    let exported_macros = source.exported_macros();
    let is_exported = |offset| exported_macros.iter().any(|item| item.contains(&offset));
    let mut found = Vec::new();
    let mut chain_end = 0;
    for (offset, word) in words(code) {
        // The later words of a chain `super::super::` were read with the first one.
        if source.is_test_at(offset) || is_exported(offset) || offset < chain_end {
            continue;
        }
        let path = match word {
            "crate" => path_after(code, offset + word.len()),
            "super" => {
                let (up_count, end) = super_chain(code, offset);
                chain_end = end;
                let depth = file_depth + inline_modules.iter().filter(|body| body.contains(&offset)).count();
                if depth == up_count { path_after(code, end) } else { None }
            }
            _ => None,
        };
        found.extend(path.map(first_names).unwrap_or_default().into_iter().map(|name| (offset, name)));
    }
    found
}

/// The number of consecutive `super` from `offset`, and where the last of them ends.
fn super_chain(code: &str, offset: usize) -> (usize, usize) {
    let mut count = 1;
    let mut end = offset + "super".len();
    while let Some(rest) = path_after(code, end).filter(|rest| words(rest).first() == Some(&(0, "super"))) {
        end = code.len() - rest.len() + "super".len();
        count += 1;
    }
    (count, end)
}

/// The text after the `::` that follows, if one does.
fn path_after(code: &str, end: usize) -> Option<&str> {
    code[end..].trim_start().strip_prefix("::").map(str::trim_start)
}

/// The first name of a path, or of each path in a group: `a::b` gives a; `{a::b, c::{d, e}}` gives a, c; `*`
/// itself.
fn first_names(path: &str) -> Vec<String> {
    let Some(group) = path.strip_prefix('{') else {
        return vec![first_name(path)];
    };
    let mut found = Vec::new();
    let mut depth = 0usize;
    let mut start = 0;
    for (at, byte) in group.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b',' if depth == 0 => {
                found.push(first_name(&group[start..at]));
                start = at + 1;
            }
            b'}' if depth == 0 => {
                found.push(first_name(&group[start..at]));
                break;
            }
            b'}' => depth -= 1,
            _ => {}
        }
    }
    // A trailing comma leaves an empty last part.
    found.retain(|name| !name.is_empty());
    found
}

fn first_name(path: &str) -> String {
    let path = path.trim();
    if path.starts_with('*') {
        return "*".to_owned();
    }
    words(path).first().map(|(_, word)| (*word).to_owned()).unwrap_or_default()
}

#[cfg(test)]
fn check(inner_path: &str, text: &str, expected: &[&str]) {
    let found = violations(&[Source::new(&format!("{}{inner_path}", ENGINE.source), text)]);
    assert_eq!(found.len(), expected.len(), "{inner_path}: {text}: {found:?}");
    for (violation, part) in found.iter().zip(expected) {
        assert!(violation.contains(part), "{violation} does not say {part}");
    }
}

#[test]
fn a_module_may_name_its_own_layer_and_lower_ones() {
    check(
        "commit.rs",
        "use crate::{error::Error, tree::{Node, Slot}, wal};\nfn f() { crate::ids::f() }",
        &[],
    );
    check("wal.rs", "use crate::data_file::X;", &[]);
    check(
        "wal/segment.rs",
        "use super::frame;\nuse super::super::error::Error;\nmod x { use super::Y; }",
        &[],
    );
    check("lib.rs", "pub use crate::engine::Engine;", &[]);
}

#[test]
fn a_module_that_names_a_higher_layer_is_found() {
    check("wal.rs", "use crate::commit::Group;", &["`wal` (layer 1) names `commit` (layer 6)"]);
    check("wal.rs", "\n\nfn f() -> crate::engine::Engine {}", &["wal.rs:3"]);
    check(
        "wal/segment.rs",
        "use crate::{\n    error::Error,\n    tree::{self, Node},\n};",
        &["names `tree`"],
    );
    check("wal.rs", "use super::tree::Node;", &["names `tree`"]);
    check("wal/segment.rs", "use super::super::tree::Node;", &["names `tree`"]);
    check("wal/segment.rs", "mod x { use super::super::super::tree::Node; }", &["names `tree`"]);
    check("error.rs", "macro_rules! m { () => { $crate::wal::f() } }", &["names `wal`"]);
    check("error.rs", "#[macro_export]\nmacro_rules! m { () => { $crate::wal::f() } }", &[]);
}

#[test]
fn a_module_without_a_layer_is_found_and_told_where_to_go() {
    check("novelty.rs", "", &["add it to the layers"]);
    check("novelty/part.rs", "", &["`novelty` has no layer"]);
    check("commit.rs", "use crate::novelty::X;", &["names `novelty`"]);
}

#[test]
fn a_name_at_the_root_hides_its_layer_and_is_found() {
    check("wal.rs", "use crate::Engine;\nuse super::*;", &["names `Engine`", "names `*`"]);
}

#[test]
fn comments_strings_and_tests_may_name_anything() {
    check("wal.rs", "// crate::engine::X\n//! [`crate::engine`]\nconst A: &str = \"crate::engine::X\";", &[]);
    check("wal.rs", "#[cfg(test)]\nmod tests { use crate::engine::Engine; }", &[]);
    check("wal/tests.rs", "use crate::engine::Engine;", &[]);
}

#[test]
fn only_the_door_of_the_users_crate_names_the_engine() {
    let found = |inner_path: &str, text: &str| {
        violations(&[Source::new(&format!("{}{inner_path}", DURAMEN.source), text)]).len()
    };
    let text = "use duramen_engine::Receipt;";
    assert_eq!(["store.rs", "store/x.rs", "lib.rs", "kv/tests.rs"].map(|path| found(path, text)), [0; 4]);
    assert_eq!(["kv.rs", "db/options.rs"].map(|path| found(path, text)), [1; 2]);
}

#[test]
fn an_exception_that_nothing_needs_is_found() {
    let path = format!("{}view.rs", DURAMEN.source);
    let count = |text: &str| needless_exceptions(&[Source::new(&path, text)]).len();
    assert_eq!(count("pub use crate::access::views::View;"), DURAMEN.exceptions.len() - 1);
    assert_eq!(count(""), DURAMEN.exceptions.len());
}
