//! The section `# Errors` of every public function that can fail: it names codes, with their numbers.
//!
//! Public is what the `lib.rs` of the library or of the engine exports. Codes that many functions share are
//! lists in the documentation of `Error`; a section may refer to one of them, or to the section of another
//! item that names codes itself.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{Declared, Source, words};

/// The crates whose functions are checked.
const CRATES: &[&str] = &["crates/duramen/src", "crates/duramen-engine/src"];

/// The file with the codes, and with the lists in the documentation of `Error`.
const ERRORS: &str = "crates/duramen-engine/src/error.rs";

/// The link to a list, without its name.
const LIST: &str = "](crate::Error#";

/// Words for errors without a code.
const VAGUE: &[&str] = &[
    "errors of reading",
    "errors of the engine",
    "errors of the operating system",
    "errors of a commit",
    "errors that ",
    "in practice",
];

/// What a section may name.
pub(crate) struct Known {
    /// Each code with its number: `NoSuchTree`, `E0901`.
    codes: BTreeMap<String, String>,
    /// The lists of shared codes: `reads`.
    lists: BTreeSet<String>,
}

/// A public function that can fail.
struct Fallible<'a> {
    source: &'a Source,
    function: Declared<'a>,
    /// `Db::put`.
    name: String,
    section: Option<String>,
}

impl Known {
    /// The codes and lists of the engine's `error.rs`.
    pub(crate) fn new(error_rs: &Source) -> Known {
        let codes = error_rs.text.lines().filter_map(|line| {
            let (name, rest) = line.trim().split_once(" = ")?;
            let number: u32 = rest.split(',').next()?.parse().ok()?;
            Some((name.to_owned(), format!("E{number:04}")))
        });
        let of_error = words(&error_rs.code)
            .windows(2)
            .find(|pair| pair[0].1 == "struct" && pair[1].1 == "Error")
            .map_or(Vec::new(), |pair| error_rs.doc(pair[0].0));
        let lists = of_error.iter().filter_map(|line| line.strip_prefix("# "));
        Known { codes: codes.collect(), lists: lists.map(str::to_lowercase).collect() }
    }

    /// Whether a section names a code, or refers to a list of codes.
    fn is_named_in(&self, section: &str) -> bool {
        quoted(section).any(|(name, _)| self.codes.contains_key(name)) || section.contains(LIST)
    }

    /// Codes without their number, and links to lists that do not exist.
    fn mistakes(&self, section: &str) -> Vec<String> {
        let mut found = Vec::new();
        for (name, rest) in quoted(section) {
            if let Some(number) = self.codes.get(name)
                && !rest.starts_with(&format!(" ({number})"))
            {
                found.push(format!("write `{name}` ({number})"));
            }
        }
        for rest in section.split(LIST).skip(1) {
            let list = rest.split(')').next().unwrap_or_default();
            if !self.lists.contains(list) {
                found.push(format!("`Error` has no list {list:?}"));
            }
        }
        let lower = section.to_lowercase();
        let vague = VAGUE.iter().filter(|vague| lower.contains(*vague));
        found.extend(vague.map(|vague| format!("{vague:?} names no code")));
        found
    }
}

/// What a text has in backticks, and what follows each.
fn quoted(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let ticks: Vec<usize> = text.match_indices('`').map(|(at, _)| at).collect();
    let pairs: Vec<(usize, usize)> = ticks.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
    pairs.into_iter().map(move |(open, close)| (&text[open + 1..close], &text[close + 1..]))
}

/// The items that a section refers to: the names in ``[`...`]``.
fn links(section: &str) -> impl Iterator<Item = &str> {
    section.split("[`").skip(1).filter_map(|rest| rest.split_once("`]").map(|(name, _)| name))
}

/// The text of the section `# Errors` of a comment.
fn section(doc: &[&str]) -> Option<String> {
    let begin = doc.iter().position(|line| *line == "# Errors")?;
    let lines = doc[begin + 1..].iter().take_while(|line| !line.starts_with("# "));
    Some(lines.copied().collect::<Vec<_>>().join(" ").trim().to_owned())
}

/// The names that the modules of a crate export, followed from its `lib.rs`.
fn exported(sources: &[Source], folder: &str) -> BTreeSet<String> {
    let (mut names, mut modules) = (BTreeSet::new(), vec![(String::new(), format!("{folder}/lib.rs"))]);
    while let Some((inside, path)) = modules.pop() {
        let Some(source) = sources.iter().find(|source| source.path == path) else { continue };
        let mut items = public_items(source);
        if inside.is_empty() {
            // What stands in `lib.rs` itself is seldom more than modules.
            items.retain(|(kind, _)| matches!(*kind, "use" | "mod"));
        }
        for (kind, item) in items {
            match kind {
                "use" => {
                    for leaf in leaves(&item) {
                        let place =
                            leaf.strip_prefix("crate/").map_or(format!("{inside}{leaf}"), str::to_owned);
                        let file = format!("{folder}/{place}.rs");
                        if sources.iter().any(|source| source.path == file) {
                            modules.push((format!("{place}/"), file));
                        } else {
                            names.extend(leaf.rsplit('/').next().map(str::to_owned));
                        }
                    }
                }
                "mod" => modules.push((format!("{inside}{item}/"), format!("{folder}/{inside}{item}.rs"))),
                _ => drop(names.insert(item)),
            }
        }
    }
    names
}

/// The `pub` items at the left edge of a file: their kinds, and names or paths.
fn public_items(source: &Source) -> Vec<(&str, String)> {
    let mut found = Vec::new();
    for (start, _) in source.code.match_indices("pub ") {
        if start > 0 && !source.code[..start].ends_with('\n') {
            continue;
        }
        let rest = &source.code[start + 4..];
        let Some(&(at, kind)) = words(&rest[..rest.find('\n').unwrap_or(rest.len())]).first() else {
            continue;
        };
        let after = &rest[at + kind.len()..];
        if kind == "use" {
            found.push((kind, after.split(';').next().unwrap_or_default().split_whitespace().collect()));
        } else if let Some((_, name)) = words(after).first() {
            found.push((kind, (*name).to_owned()));
        }
    }
    found
}

/// The single paths of a `use` without blanks: `a::{b, c::d}` is `a/b` and `a/c/d`.
fn leaves(path: &str) -> Vec<String> {
    let Some((prefix, group)) = path.split_once('{') else { return vec![path.replace("::", "/")] };
    let group = group.strip_suffix('}').unwrap_or(group);
    let (mut parts, mut depth, mut begin) = (Vec::new(), 0, 0);
    for (at, byte) in group.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            b',' if depth == 0 => {
                parts.push(&group[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&group[begin..]);
    let parts = parts.into_iter().filter(|part| !part.is_empty());
    parts.flat_map(|part| leaves(&format!("{prefix}{part}"))).collect()
}

/// The type of an `impl`, or the trait of a `trait`, without generics.
fn owner(head: &str) -> &str {
    let after = ["impl", "trait"].iter().find_map(|word| {
        let at = words(head).into_iter().find(|(_, found)| found == word)?.0;
        Some(&head[at + word.len()..])
    });
    let mut rest = after.unwrap_or_default().trim_start();
    if rest.starts_with('<') {
        let mut depth = 0;
        let end = rest.bytes().position(|byte| {
            depth += i32::from(byte == b'<') - i32::from(byte == b'>');
            depth == 0
        });
        rest = rest[end.map_or(rest.len(), |end| end + 1)..].trim_start();
    }
    rest.split(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap_or_default()
}

/// The public functions of a file that return a `Result`.
fn fallible<'a>(source: &'a Source, exported: &BTreeSet<String>) -> Vec<Fallible<'a>> {
    let blocks = source.blocks();
    let private: Vec<_> = source
        .modules()
        .into_iter()
        .filter(|module| !source.code[..module.offset].ends_with("pub "))
        .filter_map(|module| module.body)
        .collect();
    let mut found = Vec::new();
    for function in source.declared() {
        let block = blocks.iter().rfind(|(_, body)| body.contains(&function.offset));
        let owner_name = block.map_or(function.name, |(head, _)| owner(head));
        let in_public_trait = block.is_some_and(|(head, _)| {
            head.starts_with("pub ") && words(head).iter().any(|(_, word)| *word == "trait")
        });
        let is_public = words(function.before).iter().any(|(_, word)| *word == "pub")
            && !function.before.contains("pub(");
        let can_fail = function
            .returned
            .is_some_and(|returned| words(returned).iter().any(|(_, word)| *word == "Result"));
        if !can_fail
            || !(is_public || in_public_trait)
            || !exported.contains(owner_name)
            || function.before.contains("doc(hidden)")
            || source.is_test_at(function.offset)
            || private.iter().any(|body| body.contains(&function.offset))
        {
            continue;
        }
        let name = block.map_or(function.name.to_owned(), |_| format!("{owner_name}::{}", function.name));
        let section = section(&source.doc(function.offset));
        found.push(Fallible { source, function, name, section });
    }
    found
}

/// Whether what a function returns holds an `Error`, and no error type of its own.
fn returns_error(returned: &str) -> bool {
    let Some((path, arguments)) = returned.split_once("Result<") else { return false };
    let mut depth = 0;
    let mut second = None;
    for (at, byte) in arguments.bytes().enumerate() {
        match byte {
            b'<' | b'(' | b'[' => depth += 1,
            b'>' | b')' | b']' if depth == 0 => {
                return !path.ends_with("io::")
                    && second.is_none_or(|from: usize| arguments[from..at].trim() == "Error");
            }
            b'>' | b')' | b']' => depth -= 1,
            b',' if depth == 0 => second = Some(at + 1),
            _ => {}
        }
    }
    false
}

/// The sections of the public types of a file, by their names.
fn type_sections(source: &Source) -> Vec<(String, String)> {
    let all = words(&source.code);
    let types = all.windows(2).filter(|pair| matches!(pair[0].1, "struct" | "enum" | "trait"));
    types.filter_map(|pair| Some((pair[1].1.to_owned(), section(&source.doc(pair[0].0))?))).collect()
}

/// Every public function that can fail, by crate.
fn by_crate(sources: &[Source]) -> Vec<(&'static str, Vec<Fallible<'_>>)> {
    let of_crate = |folder: &&'static str| {
        let names = exported(sources, folder);
        let inside = sources.iter().filter(|source| source.path.starts_with(&format!("{folder}/")));
        (*folder, inside.flat_map(|source| fallible(source, &names)).collect())
    };
    CRATES.iter().map(of_crate).collect()
}

/// The number of functions that are checked: a search that finds none would pass.
pub(crate) fn count(sources: &[Source]) -> usize {
    by_crate(sources).iter().map(|(_, functions)| functions.len()).sum()
}

/// Public functions that can fail and do not name their codes.
pub(crate) fn violations(sources: &[Source]) -> Vec<String> {
    let Some(error_rs) = sources.iter().find(|source| source.path == ERRORS) else {
        return vec![format!("{ERRORS} is not there: say where the codes are")];
    };
    let known = Known::new(error_rs);
    let crates = by_crate(sources);
    let mut naming = BTreeSet::new();
    for (folder, functions) in &crates {
        let of_types = sources.iter().filter(|source| source.path.starts_with(&format!("{folder}/")));
        let of_types = of_types.flat_map(type_sections);
        let of_functions = functions.iter().filter_map(|f| Some((f.name.clone(), f.section.clone()?)));
        let sections = of_types.chain(of_functions);
        naming.extend(sections.filter(|(_, text)| known.is_named_in(text)).map(|(name, _)| name));
    }
    crates.iter().flat_map(|(_, functions)| functions).flat_map(|f| problems(f, &known, &naming)).collect()
}

fn problems(of: &Fallible<'_>, known: &Known, naming: &BTreeSet<String>) -> Vec<String> {
    let told = |what: &str| format!("{}: fn {}: {what}", of.source.place(of.function.offset), of.name);
    let Some(section) = of.section.as_deref().filter(|section| !section.is_empty()) else {
        return vec![told("it can fail, and has no section `# Errors`: name its codes")];
    };
    let mut found: Vec<String> = known.mistakes(section).iter().map(|mistake| told(mistake)).collect();
    // Without a code: what the caller's own closure returned is the caller's to know.
    let is_named = known.is_named_in(section) || links(section).any(|link| naming.contains(link));
    if !is_named && of.function.returned.is_some_and(returns_error) {
        found.push(told(
            "its section names no code: name them, a list of `Error`, or an item that names some",
        ));
    }
    found
}

#[cfg(test)]
fn check(section: &str, violation_count: usize) {
    let errors = "/// An error.\n///\n/// # Reads\n/// - `System` (E1001).\npub struct Error;\ncodes! {\n    NoSuchTree = 901, NotFound, \"no\";\n    System = 1001, Io, \"refused\";\n}\n";
    let lib = "mod db;\npub use db::{Db, Named};\n";
    let db = format!(
        "/// # Errors\n/// `System` (E1001).\npub struct Named;\nimpl Db {{\n    /// Gets.\n{section}    pub fn get(&self) -> Result<u8> {{ }}\n}}\n"
    );
    let sources = [
        Source::new(ERRORS, errors),
        Source::new("crates/duramen/src/lib.rs", lib),
        Source::new("crates/duramen/src/db.rs", &db),
    ];
    assert_eq!(count(&sources), 1, "{section}");
    let found = violations(&sources);
    assert_eq!(found.len(), violation_count, "{section}: {found:?}");
}

#[test]
fn a_section_that_names_no_code_is_found() {
    check("", 1);
    check("    /// # Errors\n", 1);
    check("    /// # Errors\n    /// What the disk said.\n", 1);
    check("    /// # Errors\n    /// `NotFound` if it is not there.\n", 1);
    check("    /// # Errors\n    /// `NoSuchTree` (E0901) if it is not there.\n", 0);
    check("    /// # Errors\n    /// Those of a [read](crate::Error#reads).\n", 0);
    check("    /// # Errors\n    /// As [`Named`].\n", 0);
    check("    /// # Errors\n    /// As [`Db::get`].\n", 1);
    check("    /// # Panics\n    /// `NoSuchTree` (E0901).\n", 1);
}

#[test]
fn a_code_without_its_number_a_list_that_is_not_there_and_vague_words_are_found() {
    check("    /// # Errors\n    /// `NoSuchTree` if it is not there.\n", 1);
    check("    /// # Errors\n    /// `NoSuchTree` (E0902) if it is not there.\n", 1);
    check("    /// # Errors\n    /// Those of a [write](crate::Error#writes).\n", 1);
    check("    /// # Errors\n    /// `NoSuchTree` (E0901); errors of reading the disk.\n", 1);
}

#[test]
fn only_what_is_exported_and_can_fail_is_checked() {
    let count_of = |lib: &str, text: &str| {
        count(&[
            Source::new("crates/duramen/src/lib.rs", lib),
            Source::new("crates/duramen/src/a.rs", text),
            Source::new("crates/duramen/src/a/b.rs", "pub fn in_b() -> Result<u8> { }\n"),
        ])
    };
    let used = "mod a;\npub use a::{A, T};\n";
    assert_eq!(count_of(used, "impl A {\n    pub fn f() -> Result<u8> { }\n}\n"), 1);
    assert_eq!(
        count_of(
            used,
            "impl<'e> A<'e> {\n    pub async fn f(g: impl Fn() -> u8) -> Option<Result<u8>> { }\n}\n"
        ),
        1
    );
    assert_eq!(count_of(used, "pub trait T: U {\n    fn f() -> Result<u8>;\n    fn g() -> u8;\n}\n"), 1);
    assert_eq!(
        count_of(
            used,
            "impl A {\n    pub(crate) fn f() -> Result<u8> { }\n    fn g() -> Result<u8> { }\n}\n"
        ),
        0
    );
    assert_eq!(count_of(used, "impl B {\n    pub fn f() -> Result<u8> { }\n}\n"), 0);
    assert_eq!(count_of(used, "impl T for A {\n    fn f() -> Result<u8> { }\n}\n"), 0);
    assert_eq!(count_of(used, "impl A {\n    #[doc(hidden)]\n    pub fn f() -> Result<u8> { }\n}\n"), 0);
    assert_eq!(
        count_of(used, "mod sealed {\n    pub trait T {\n        fn f() -> Result<u8>;\n    }\n}\n"),
        0
    );
    assert_eq!(count_of(used, "impl A {\n    pub fn f(g: impl Fn() -> Result<u8>) -> u8 { }\n}\n"), 0);
    assert_eq!(count_of("pub mod a;\n", "pub mod b;\npub fn f() -> Result<u8> { }\n"), 2);
    assert_eq!(count_of("mod a;\npub use a::b;\n", ""), 1);
}

#[test]
fn an_error_type_of_its_own_needs_no_code() {
    for returned in ["Result<u8>", "Option<Result<T>>", "std::result::Result<(u8, T<U>), Error>"] {
        assert!(returns_error(returned), "{returned}");
    }
    for returned in ["std::result::Result<(), BadCell>", "io::Result<u8>", "Result<(u8, u8), E>"] {
        assert!(!returns_error(returned), "{returned}");
    }
}
