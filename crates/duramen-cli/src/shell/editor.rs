//! The shell on a terminal: editing, completion and history. A failed line is reported, and the loop
//! continues.

use std::borrow::Cow;
use std::path::Path;

use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::{Hinter, HistoryHinter};
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{CompletionType, Config, Context, Editor, Helper};

use super::vocabulary::Vocabulary;
use super::words::{Line, split};
use super::{Next, Shell, history};
use crate::failure::{Failure, Result};
use crate::signals::Signals;

/// The size of the history, in lines.
const HISTORY_LINES_MAX: usize = 10_000;

/// Reads lines until there are no more.
pub(super) fn converse(shell: &mut Shell<'_>) -> Result<()> {
    let mut editor = editor().map_err(|error| terminal(&error))?;
    let file = history::file();
    if let Some(file) = &file {
        // The first shell has no history file.
        let _ = editor.load_history(file);
    }
    greet(shell);
    loop {
        if let Some(helper) = editor.helper_mut() {
            helper.vocabulary = shell.vocabulary.clone();
            helper.vocabulary.used.clone_from(&shell.collection);
        }
        Signals::rest();
        let line = match editor.readline(&shell.prompt()) {
            Ok(line) => line,
            Err(ReadlineError::Interrupted) => continue,
            Err(ReadlineError::Eof) => return Ok(()),
            Err(error) => return Err(terminal(&error)),
        };
        // A line that begins with a blank is not kept.
        let _ = editor.add_history_entry(&line);
        if let Some(file) = &file {
            let _ = editor.append_history(file);
        }
        let Line::Whole(words) = split(&line) else { continue };
        match shell.line(words) {
            Ok(Next::Line) => {}
            Ok(Next::End) => return Ok(()),
            Err(Failure::OutputClosed) => return Err(Failure::OutputClosed),
            Err(failure) => shell.out.failure(&failure),
        }
    }
}

fn editor() -> rustyline::Result<Editor<Words, FileHistory>> {
    let config = Config::builder()
        .history_ignore_space(true)
        .max_history_size(HISTORY_LINES_MAX)?
        .completion_type(CompletionType::List)
        .build();
    let mut editor = Editor::with_config(config)?;
    editor.set_helper(Some(Words::default()));
    Ok(editor)
}

fn greet(shell: &Shell<'_>) {
    let names: Vec<&str> = shell.vocabulary.collections.iter().map(duramen::Schema::name).collect();
    let collections = match names.as_slice() {
        [] => "no collections yet".to_owned(),
        names => crate::output::printable(&names.join(", ")),
    };
    shell
        .out
        .note(&format!("{collections}; read-only until a command writes. `help` lists commands, ^D ends"));
}

fn terminal(error: &ReadlineError) -> Failure {
    match error {
        ReadlineError::Io(error) => Failure::io("read from", Path::new("the terminal"), error),
        other => Failure::data(format!("the terminal cannot be read: {other}"), "say lines with --execute"),
    }
}

/// The editor's callbacks while a line is typed.
#[derive(Default)]
struct Words {
    vocabulary: Vocabulary,
    history: HistoryHinter,
}

impl Helper for Words {}

impl Completer for Words {
    type Candidate = String;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        let (start, mut offered) = self.vocabulary.completions(&line[..at]);
        if let [only] = offered.as_mut_slice()
            && !only.ends_with('=')
        {
            only.push(' ');
        }
        Ok((start, offered))
    }
}

impl Hinter for Words {
    type Hint = String;

    fn hint(&self, line: &str, at: usize, context: &Context<'_>) -> Option<String> {
        if at < line.len() {
            return None;
        }
        self.vocabulary.hint(line).or_else(|| self.history.hint(line, at, context))
    }
}

impl Highlighter for Words {
    fn highlight_hint<'h>(&self, hint: &'h str) -> Cow<'h, str> {
        if std::env::var_os("NO_COLOR").is_some_and(|set| !set.is_empty()) {
            return Cow::Borrowed(hint);
        }
        Cow::Owned(format!("\x1b[2m{hint}\x1b[0m"))
    }
}

impl Validator for Words {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        Ok(match split(context.input()) {
            Line::Whole(_) => ValidationResult::Valid(None),
            Line::Open => ValidationResult::Incomplete,
        })
    }
}
