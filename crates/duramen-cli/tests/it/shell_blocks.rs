//! The shell blocks of the documentation produce the documented output.
//!
//! Each fenced `sh` block of README.md and docs runs. Those of one file run in order in one directory, with
//! the repository's `data` and `duramen` on the path. Each must succeed, and print what the `text` and `json`
//! blocks under the same heading contain. The fence of a block that cannot run here has the reason: `sh
//! skip-needs-root`.

use std::path::{Path, PathBuf};

use crate::runner::{Scratch, output, skipped};
use crate::serving::{Serve, masked};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// A fenced block.
struct Block<'a> {
    line: usize,
    /// The number of headings before it.
    section: usize,
    fence: &'a str,
    text: String,
}

impl Block<'_> {
    fn language(&self) -> &str {
        self.fence.split([' ', ',']).next().unwrap_or_default()
    }

    fn is_shell(&self) -> bool {
        ["sh", "bash", "shell", "console"].contains(&self.language())
    }

    /// The reason why it is not run, if it has one.
    fn skip_reason(&self) -> Option<&str> {
        self.fence.split(' ').find_map(|word| word.strip_prefix("skip-"))
    }
}

fn blocks(document: &str) -> Vec<Block<'_>> {
    let mut blocks: Vec<Block<'_>> = Vec::new();
    let (mut section, mut is_open, mut indent) = (0, false, 0);
    for (index, line) in document.lines().enumerate() {
        // A block in a list is indented.
        if !is_open {
            indent = line.len() - line.trim_start().len();
        }
        let line = line.get(indent..).unwrap_or_default();
        match line.strip_prefix("```") {
            Some(_) if is_open => is_open = false,
            Some(fence) => {
                blocks.push(Block { line: index + 1, section, fence, text: String::new() });
                is_open = true;
            }
            None if is_open => {
                let text = &mut blocks.last_mut().unwrap().text;
                text.push_str(line);
                text.push('\n');
            }
            None => section += usize::from(line.starts_with('#')),
        }
    }
    blocks
}

/// The documents, by their paths from the root.
fn documents() -> Vec<PathBuf> {
    let mut found = vec![PathBuf::from("README.md"), PathBuf::from("CONTRIBUTING.md")];
    let mut directories = vec![PathBuf::from("docs")];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(Path::new(ROOT).join(&directory)).unwrap() {
            let path = directory.join(entry.unwrap().file_name());
            if Path::new(ROOT).join(&path).is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|end| end == "md") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Runs the blocks of one document; returns how many ran.
fn run(name: &str, document: &str) -> usize {
    let scratch = Scratch::new();
    std::os::unix::fs::symlink(Path::new(ROOT).join("data").canonicalize().unwrap(), scratch.path("data"))
        .unwrap();
    let binaries = Path::new(env!("CARGO_BIN_EXE_duramen")).parent().unwrap();
    let path = format!("{}:{}", binaries.display(), std::env::var("PATH").unwrap());
    let (mut printed, mut section, mut count) = (None::<String>, 0, 0);
    for block in blocks(document) {
        let place = format!("{name}:{}", block.line);
        if block.section != section {
            (printed, section) = (None, block.section);
        }
        if block.is_shell() && block.skip_reason().is_none() {
            assert_eq!(block.language(), "sh", "{place}: shell blocks are called sh");
            let mut command = scratch.shell(&block.text);
            let ran = output(command.env("PATH", &path)).unwrap();
            let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
            assert!(ran.status.success(), "{place}: {}\n{out}{err}", ran.status);
            printed.get_or_insert_default().push_str(&out);
            count += 1;
        } else if let (Some(printed), "text" | "json") = (&printed, block.language()) {
            assert!(printed.contains(&block.text), "{place}: this is not printed there, but\n{printed}");
        }
    }
    count
}

#[test]
fn every_shell_block_of_the_documentation_runs() {
    if Scratch::new().lies_in_memory() {
        return skipped(
            "shell blocks of the documentation — the target directory lies in memory, and they say level disk",
        );
    }
    let mut count = 0;
    for path in documents() {
        let document = std::fs::read_to_string(Path::new(ROOT).join(&path)).unwrap();
        count += run(&path.display().to_string(), &document);
    }
    assert!(count >= 2, "only {count} blocks ran: they were not found");
}

/// The commands of README.md on its database, one a line.
fn commands_of_the_readme() -> Vec<String> {
    let readme = std::fs::read_to_string(Path::new(ROOT).join("README.md")).unwrap();
    let joined = |block: Block<'_>| block.text.replace("\\\n", " ");
    let runs = |block: &Block<'_>| block.is_shell() && block.skip_reason().is_none();
    let texts: Vec<String> = blocks(&readme).into_iter().filter(runs).map(joined).collect();
    let lines = texts.iter().flat_map(|text| text.lines());
    lines.filter(|line| line.contains("flights.duramen")).map(str::to_owned).collect()
}

/// Prints what a command prints, with the path of the database masked.
fn printed(scratch: &Scratch, line: &str, database: &str) -> String {
    let binaries = Path::new(env!("CARGO_BIN_EXE_duramen")).parent().unwrap();
    let path = format!("{}:{}", binaries.display(), std::env::var("PATH").unwrap());
    let ran = output(scratch.shell(line).env("PATH", path)).unwrap();
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    masked(&format!("{:?}\n{out}{err}", ran.status.code()).replace(database, "DATABASE"))
}

#[test]
fn the_commands_of_the_readme_print_the_same_by_a_server() {
    let scratch = || {
        let scratch = Scratch::new();
        let data = Path::new(ROOT).join("data").canonicalize().unwrap();
        std::os::unix::fs::symlink(data, scratch.path("data")).unwrap();
        scratch
    };
    let (local, beside, by_at) = (scratch(), scratch(), scratch());
    if local.lies_in_memory() {
        return skipped("commands of README.md by a server — the target directory lies in memory");
    }
    let commands = commands_of_the_readme();
    assert!(commands[0].starts_with("duramen import ") && commands.len() >= 11, "{commands:?}");
    let name = "flights.duramen";
    let wanted: Vec<String> = commands.iter().map(|line| printed(&local, line, name)).collect();
    let _servers = [&beside, &by_at].map(|scratch| Serve::of(scratch, name));
    for (line, wanted) in commands.iter().zip(wanted) {
        assert!(wanted.starts_with("Some(0)"), "{line}: {wanted}");
        assert_eq!(printed(&beside, line, name), wanted, "{line}, beside a server");
        let at = "--at unix:flights.duramen/serve.sock";
        let line = match line.strip_prefix("duramen flights.duramen") {
            Some(rest) => format!("duramen {at} shell{rest}"),
            None => line.replace(name, at),
        };
        assert_eq!(printed(&by_at, &line, at), wanted, "{line}");
    }
}

#[test]
fn a_block_that_does_not_run_says_why() {
    for path in documents() {
        let document = std::fs::read_to_string(Path::new(ROOT).join(&path)).unwrap();
        for block in blocks(&document).iter().filter(|block| block.is_shell()) {
            let reason = block.skip_reason().unwrap_or("it runs");
            assert!(reason.len() >= 5, "{}:{}: a reason is wanted", path.display(), block.line);
        }
    }
}

#[test]
#[should_panic(expected = "planted:6: this is not printed there")]
fn what_is_not_printed_is_found() {
    run("planted", "# A\n```sh\necho one\necho two\n```\n```text\none\nthree\n```\n");
}

#[test]
#[should_panic(expected = "planted:1: exit status: 1")]
fn a_block_that_fails_is_found() {
    run("planted", "```sh\nfalse\necho one\n```\n");
}
