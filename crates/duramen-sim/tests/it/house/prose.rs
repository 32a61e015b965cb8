//! Comments and Markdown: lines short enough to read beside code, few words for persons where a thing is
//! meant, and a glossary that stays small.

use super::source::{Source, words};

/// The maximum length of a line that is only a comment, in characters.
const COMMENT_CHARS_MAX: usize = 110;

/// The maximum length of a line of Markdown outside tables and code, in characters.
const MARKDOWN_CHARS_MAX: usize = 120;

/// The maximum number of words for persons per 1,000 words of comments. Threads and files are things.
const PERSONS_PER_1000_MAX: f64 = 0.5;

const PERSONS: &[&str] = &["who", "whoever", "whom", "nobody", "somebody", "anybody", "everybody"];

/// The maximum number of terms in the glossary.
const GLOSSARY_TERMS_MAX: usize = 35;

/// Comment lines that are too long. Rows of tables and lines that are mostly one link cannot be broken.
pub(crate) fn comment_length_violations(sources: &[Source]) -> Vec<String> {
    let in_source = |source: &Source| {
        let long = comment_lines(source).into_iter().filter(|(_, line)| is_long(line, COMMENT_CHARS_MAX));
        let told = |(number, line): (usize, &str)| {
            format!(
                "{}:{number}: a comment of {} columns, at most {COMMENT_CHARS_MAX}: break the line",
                source.path,
                line.chars().count()
            )
        };
        long.map(told).collect::<Vec<_>>()
    };
    sources.iter().flat_map(in_source).collect()
}

/// Lines of Markdown that are too long, in (path, text) of each document.
pub(crate) fn markdown_length_violations(documents: &[(String, String)]) -> Vec<String> {
    let mut found = Vec::new();
    for (path, text) in documents {
        let mut in_code = false;
        for (index, line) in text.lines().enumerate() {
            in_code ^= line.trim_start().starts_with("```");
            if !in_code && !line.starts_with("    ") && is_long(line, MARKDOWN_CHARS_MAX) {
                found.push(format!(
                    "{path}:{}: {} columns, at most {MARKDOWN_CHARS_MAX}: break the line",
                    index + 1,
                    line.chars().count()
                ));
            }
        }
    }
    found
}

/// Whether a line is too long and can be broken.
fn is_long(line: &str, chars_max: usize) -> bool {
    let text = line.trim_start_matches([' ', '/', '!', '-', '*']);
    let is_row = text.starts_with('|');
    let longest = text.split_whitespace().map(|word| word.chars().count()).max().unwrap_or(0);
    line.chars().count() > chars_max && !is_row && longest < chars_max / 2
}

/// Lines with nothing but a comment, with their numbers.
fn comment_lines(source: &Source) -> Vec<(usize, &str)> {
    let lines = source.text.lines().zip(source.code.lines()).enumerate();
    lines
        .filter(|(_, (text, code))| text.trim_start().starts_with("//") && code.trim().is_empty())
        .map(|(index, (text, _))| (index + 1, text))
        .collect()
}

/// Words for persons and all words, in the comments of all sources.
pub(crate) fn persons(sources: &[Source]) -> (usize, usize) {
    let mut counts = (0, 0);
    for (_, line) in sources.iter().flat_map(comment_lines) {
        for (_, word) in words(line) {
            counts.0 += usize::from(PERSONS.contains(&word.to_lowercase().as_str()));
            counts.1 += 1;
        }
    }
    counts
}

/// The rate of words for persons, if it is too high.
pub(crate) fn person_violations(sources: &[Source]) -> Vec<String> {
    let (persons, all) = persons(sources);
    #[allow(clippy::cast_precision_loss, reason = "a count of words is far below 2^52")]
    let rate = persons as f64 * 1000.0 / all.max(1) as f64;
    if rate < PERSONS_PER_1000_MAX {
        return Vec::new();
    }
    let named = sources.iter().flat_map(|source| {
        let lines = comment_lines(source).into_iter();
        let is_named =
            |line: &str| words(line).iter().any(|(_, word)| PERSONS.contains(&word.to_lowercase().as_str()));
        lines.filter(move |(_, line)| is_named(line)).map(|(number, _)| format!("{}:{number}", source.path))
    });
    let places: Vec<String> = named.take(20).collect();
    vec![format!(
        "{persons} words for persons in {all} words of comments, {rate:.2} per 1,000, want less than \
         {PERSONS_PER_1000_MAX}: name the thread, the file or the caller; the first are in {}",
        places.join(", ")
    )]
}

/// A glossary that is missing or too long.
pub(crate) fn glossary_violations(architecture: &str) -> Vec<String> {
    let Some((_, glossary)) = architecture.split_once("\n## Glossary\n") else {
        return vec!["ARCHITECTURE.md has no section `## Glossary`".to_owned()];
    };
    let section = glossary.split("\n## ").next().unwrap_or_default();
    let count = section.lines().filter(|line| line.starts_with('|')).count().saturating_sub(2);
    match count {
        1..=GLOSSARY_TERMS_MAX => Vec::new(),
        _ => vec![format!(
            "the glossary of ARCHITECTURE.md has {count} terms, want 1 to {GLOSSARY_TERMS_MAX}: use the field's \
             term, which needs no entry"
        )],
    }
}

#[test]
fn long_comments_are_found_and_tables_are_not() {
    let long = "word ".repeat(23);
    let count = |text: &str| comment_length_violations(&[Source::new("x.rs", text)]).len();
    assert_eq!(count(&format!("// {long}\n    /// {long}\n//! {long}\n")), 3);
    assert_eq!(count(&format!("// {}\n", "word ".repeat(20))), 0);
    assert_eq!(count(&format!("/// | {long} |\nlet x = \"{long}\";\n")), 0);
    assert_eq!(count(&format!("// see https://example.org/{}\n", "x".repeat(100))), 0);
    assert_eq!(count(&format!("let x = r\"\n// {long}\n\";\n")), 1, "a scanner sees no difference");
}

#[test]
fn long_markdown_is_found_and_code_is_not() {
    let long = "word ".repeat(25);
    let count = |text: String| markdown_length_violations(&[("x.md".to_owned(), text)]).len();
    assert_eq!(count(format!("{long}\n- {long}\n")), 2);
    assert_eq!(count(format!("```\n{long}\n```\n    {long}\n| {long} |\n")), 0);
}

#[test]
fn persons_are_counted() {
    let sources = [Source::new("x.rs", "// whoever reads\n//! Nobody.\nlet who = 1;\n")];
    assert_eq!(persons(&sources), (2, 3));
    assert_eq!(person_violations(&sources).len(), 1);
    assert!(person_violations(&[Source::new("x.rs", "// the reader\n")]).is_empty());
}

#[test]
fn a_long_glossary_is_found() {
    let glossary =
        |count| format!("# A\n\n## Glossary\n\n| a | b |\n|---|---|\n{}", "| x | y |\n".repeat(count));
    assert_eq!([0, 1, 35, 36].map(|count| glossary_violations(&glossary(count)).len()), [1, 0, 0, 1]);
    assert_eq!(glossary_violations("").len(), 1);
}
