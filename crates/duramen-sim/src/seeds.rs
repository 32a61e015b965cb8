//! Seeds that change with every commit of the repository: each `cargo test` searches where no earlier one
//! has.
//!
//! Owns how a commit becomes a number. Reads the repository's files, and runs no program. The same commit has
//! the same seeds, so that a failure is met again; a seed that fails becomes a named test. The output of a
//! test that passes is not shown, so that seeds are also appended to the file that `DURAMEN_TEST_SEEDS`
//! names, for `.ci/run` to print.

use std::fmt;
use std::fs;
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::search::random::joined;

/// Seeds drawn from the commit are larger than this; fixed seeds are smaller.
const FIRST: u64 = 1_000_000_000;

/// The range from which the first seed of a commit is drawn.
const SPREAD: u64 = 1_000_000_000;

/// Seeds of this commit, and where they come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seeds {
    /// The search that they are for.
    pub search: String,
    /// The seeds.
    pub range: Range<u64>,
    /// The commit, or what was used in its place.
    pub origin: String,
}

impl fmt::Display for Seeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: seeds {}..{} of {}", self.search, self.range.start, self.range.end, self.origin)
    }
}

/// So many seeds for the commit that is checked out, noted in the file that `DURAMEN_TEST_SEEDS` names.
/// Without a checkout, the sources themselves are hashed. Each search passes its name, and so has seeds of
/// its own.
///
/// # Panics
/// If that file cannot be written.
#[must_use]
pub fn of_this_commit(search: &str, count: u64) -> Seeds {
    let seeds = drawn(search, count);
    if let Some(path) = std::env::var_os("DURAMEN_TEST_SEEDS") {
        let file = fs::OpenOptions::new().append(true).create(true).open(path);
        // One write a line: tests of many threads and processes append.
        let line = format!("{seeds}\n");
        file.and_then(|mut file| file.write_all(line.as_bytes())).expect("the list of seeds is writable");
    }
    seeds
}

fn drawn(search: &str, count: u64) -> Seeds {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (text, origin) = match commit(&root) {
        Some(commit) => (commit.clone(), format!("commit {commit}")),
        None => {
            let hash = format!("{:016x}", hash_of_sources(&root));
            (hash.clone(), format!("sources with hash {hash} (no checkout)"))
        }
    };
    let start = FIRST + hash_of([text.as_bytes(), search.as_bytes()].concat().as_slice(), 0) % SPREAD;
    Seeds { search: search.to_owned(), range: start..start + count, origin }
}

/// The hash of the commit that is checked out.
fn commit(root: &Path) -> Option<String> {
    let entry = root.join(".git");
    let own = match fs::read_to_string(&entry) {
        // A worktree: a file that names its directory.
        Ok(text) => root.join(text.strip_prefix("gitdir:")?.trim()),
        Err(_) => entry,
    };
    let head = fs::read_to_string(own.join("HEAD")).ok()?;
    let Some(name) = head.strip_prefix("ref:").map(str::trim) else { return as_hash(&head) };
    let shared = match fs::read_to_string(own.join("commondir")) {
        Ok(text) => own.join(text.trim()),
        Err(_) => own,
    };
    if let Ok(text) = fs::read_to_string(shared.join(name)) {
        return as_hash(&text);
    }
    let packed = fs::read_to_string(shared.join("packed-refs")).ok()?;
    as_hash(packed.lines().find_map(|line| line.strip_suffix(name)?.strip_suffix(' '))?)
}

fn as_hash(text: &str) -> Option<String> {
    let text = text.trim();
    (text.len() >= 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit())).then(|| text.to_owned())
}

/// A hash of every source file of the workspace.
fn hash_of_sources(root: &Path) -> u64 {
    let mut files = vec![root.join("Cargo.lock")];
    collect(&root.join("crates"), &mut files);
    files.sort();
    files.iter().fold(0, |hash, file| hash_of(&fs::read(file).unwrap_or_default(), hash))
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() && entry.file_name() != "target" {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

fn hash_of(bytes: &[u8], before: u64) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let hash = words.iter().fold(before, |hash, word| joined(hash, u64::from_le_bytes(*word)));
    rest.iter().fold(joined(hash, bytes.len() as u64), |hash, byte| joined(hash, u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "0123456789abcdef0123456789abcdef01234567";
    const B: &str = "fedcba9876543210fedcba9876543210fedcba98";

    fn write(root: &Path, name: &str, text: &str) {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Every layout that a checkout can have: in none of them may the search always fall back to the same
    /// seeds.
    #[test]
    fn the_commit_is_found_in_every_kind_of_checkout() {
        let root = std::env::temp_dir().join(format!("duramen-seeds-{}", std::process::id()));
        assert_eq!(commit(&root), None, "no checkout");
        write(&root, "loose/.git/HEAD", "ref: refs/heads/main\n");
        write(&root, "loose/.git/refs/heads/main", &format!("{A}\n"));
        write(&root, "packed/.git/HEAD", "ref: refs/heads/main\n");
        write(
            &root,
            "packed/.git/packed-refs",
            &format!("# pack-refs\n{B} refs/heads/x-refs/heads/main\n{A} refs/heads/main\n"),
        );
        write(&root, "detached/.git/HEAD", &format!("{A}\n"));
        write(&root, "worktree/.git", "gitdir: ../loose/.git/worktrees/w\n");
        write(&root, "loose/.git/worktrees/w/HEAD", "ref: refs/heads/w\n");
        write(&root, "loose/.git/worktrees/w/commondir", "../..\n");
        write(&root, "loose/.git/refs/heads/w", &format!("{B}\n"));
        let found = ["loose", "packed", "detached", "worktree"].map(|name| commit(&root.join(name)));
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(found.map(Option::unwrap), [A, A, A, B]);
    }

    #[test]
    fn the_same_commit_has_the_same_seeds_and_each_search_its_own() {
        let seeds = drawn("a search", 3);
        assert_eq!(seeds, drawn("a search", 3));
        assert_eq!(seeds.range.end - seeds.range.start, 3);
        assert_ne!(seeds.range, drawn("another", 3).range);
    }
}
