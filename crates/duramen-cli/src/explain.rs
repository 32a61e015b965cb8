//! `duramen explain`: prints the page of an error code, offline.
//!
//! Contains no text of its own: the pages are docs/errors.md, which is part of the binary. A test checks that
//! each code has one.

use duramen::{Code, Value, doc};
use unicode_width::UnicodeWidthStr;

use crate::args::ExplainArgs;
use crate::failure::{Failure, Result};
use crate::output::{Output, new_table, terminal_columns};

/// docs/errors.md.
const PAGES: &str = include_str!("../errors.md");

/// Longer lines are hard to read.
const COLUMNS_MAX: usize = 100;

/// The beginning of a page, before its code.
const HEADING: &str = "\n## ";

/// Shows the page of one code, or lists all of them.
pub(crate) fn run(args: &ExplainArgs, out: Output) -> Result<()> {
    match &args.code {
        Some(text) => show(parse(text)?, out),
        None => list(out),
    }
}

fn show(code: Code, out: Output) -> Result<()> {
    let page = page(code).expect("a test holds every code to have a page");
    if !out.is_json() {
        return out.line(&plain(page, terminal_columns().map_or(COLUMNS_MAX, usize::from).min(COLUMNS_MAX)));
    }
    let fields = doc! {
        "code": code.to_string(),
        "name": name_in_json(code),
        "kind_of_error": format!("{:?}", code.kind()),
        "summary": code.summary(),
        "page": page,
    };
    out.object("explain", fields)
}

fn list(out: Output) -> Result<()> {
    if out.is_json() {
        let codes = Code::ALL.iter().map(|code| {
            Value::Map(doc! {
                "code": code.to_string(),
                "name": name_in_json(*code),
                "kind_of_error": format!("{:?}", code.kind()),
                "summary": code.summary(),
            })
        });
        return out.object("errors", doc! { "codes": codes.collect::<Vec<_>>() });
    }
    let mut table = new_table(&["code", "name", "kind", "meaning"]);
    for code in Code::ALL {
        let kind = format!("{:?}", code.kind());
        table.add_row([code.to_string(), format!("{code:?}"), kind, code.summary().to_owned()]);
    }
    out.table(&table)?;
    out.note("`duramen explain CODE` explains why it happens and what to do");
    Ok(())
}

/// The name of a code in JSON, where it never changes.
fn name_in_json(code: Code) -> String {
    match code {
        Code::CorruptData => "DamagedData".to_owned(),
        Code::CorruptLog => "DamagedLog".to_owned(),
        Code::CorruptSuperblock => "DamagedSuperblock".to_owned(),
        Code::CorruptFeed => "DamagedFeed".to_owned(),
        code => format!("{code:?}"),
    }
}

/// `E0213`, `e213`, `213` or the name of a code; the name in JSON is accepted, too.
fn parse(text: &str) -> Result<Code> {
    let digits = text.strip_prefix(['E', 'e']).unwrap_or(text);
    let number = digits.parse::<u32>().ok();
    let is_named = |code: Code| {
        format!("{code:?}").eq_ignore_ascii_case(text) || name_in_json(code).eq_ignore_ascii_case(text)
    };
    let is_meant = |code: &&Code| number == Some(**code as u32) || is_named(**code);
    Code::ALL.iter().find(is_meant).copied().ok_or_else(|| {
        let same_kind = |code: &&Code| number.is_some_and(|number| number / 100 == **code as u32 / 100);
        let near: Vec<String> = Code::ALL.iter().filter(same_kind).map(ToString::to_string).collect();
        let hint = match near.as_slice() {
            [] => "`duramen explain` lists all codes".to_owned(),
            near => format!("there are {}; `duramen explain` lists all codes", near.join(", ")),
        };
        Failure::usage(format!("there is no error {text}"), hint)
    })
}

/// A page of Markdown as text of a width. The pages have headings, paragraphs, bold words and code, no more.
fn plain(page: &str, columns: usize) -> String {
    let paragraphs = page.split("\n\n").map(|paragraph| {
        let mut lines = vec![String::new()];
        for word in paragraph.trim_start_matches("## ").replace("**", "").split_whitespace() {
            let line = lines.last_mut().expect("it begins with one");
            match line.width() {
                0 => line.push_str(word),
                width if width + 1 + word.width() <= columns => line.extend([" ", word]),
                _ => lines.push(word.to_owned()),
            }
        }
        lines.join("\n")
    });
    paragraphs.collect::<Vec<_>>().join("\n\n")
}

/// The page of a code, from its heading to the next.
fn page(code: Code) -> Option<&'static str> {
    let heading = format!("{HEADING}{code}:");
    let start = PAGES.find(&heading)? + 1;
    let end = PAGES[start..].find(HEADING).map_or(PAGES.len(), |end| start + end);
    Some(PAGES[start..end].trim_end())
}

#[cfg(test)]
mod tests {
    //! Every error code has a page, and the page is about that error.
    use clap::Parser;

    use super::*;
    use crate::args::Cli;

    /// The parts of every page, in this order.
    const PARTS: [&str; 5] =
        ["**What happened.** ", "**Why.** ", "**What to do.** ", "**Next.** ", "**Example.** "];

    #[test]
    fn every_code_has_a_page_with_its_summary_and_all_parts() {
        for code in Code::ALL {
            let page = page(*code).unwrap_or_else(|| panic!("docs/errors.md has no page for {code}"));
            let heading = format!("## {code}: {}\n", code.summary());
            assert!(page.starts_with(&heading), "docs/errors.md should say {heading:?}");
            let mut rest = page;
            for part in PARTS {
                let (_, after) =
                    rest.split_once(part).unwrap_or_else(|| panic!("the page of {code} has no {part}"));
                assert!(!after.trim().is_empty() && !after.starts_with("**"), "{code}: {part} is empty");
                rest = after;
            }
        }
        assert_eq!(PAGES.matches(HEADING).count(), Code::ALL.len(), "a page is of no code");
    }

    /// The code in a paragraph, without its backticks.
    fn codes(paragraph: &str) -> Vec<&str> {
        paragraph.split('`').skip(1).step_by(2).collect()
    }

    #[test]
    fn every_page_names_the_next_command_and_it_exists() {
        for code in Code::ALL {
            let (_, next) = page(*code).unwrap().split_once("**Next.** ").unwrap();
            let (next, _) = next.split_once("**Example.**").unwrap();
            assert!(!codes(next).is_empty(), "the page of {code} names no command");
            for command in codes(next).into_iter().filter(|command| command.starts_with("duramen ")) {
                let words = command.replace("COMMAND", "import").replace('\n', " ");
                let parsed = Cli::try_parse_from(words.split(' '));
                let is_shown = |error: &clap::Error| !error.use_stderr();
                assert!(parsed.as_ref().err().is_none_or(is_shown), "{code}: `{command}`: {parsed:?}");
            }
        }
    }

    #[test]
    fn a_code_can_be_said_in_several_ways() {
        for text in ["E0213", "e0213", "213", "E213", "Unreadable", "unreadable"] {
            assert_eq!(parse(text).unwrap(), Code::Unreadable, "{text}");
        }
        let Err(Failure::Said(said)) = parse("E0299") else { panic!("there is no such code") };
        assert!(said.hint.contains("E0214"), "{}", said.hint);
        assert!(parse("").is_err());
    }
}
