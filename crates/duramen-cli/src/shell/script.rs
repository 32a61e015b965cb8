//! Lines without a terminal: of `--execute`, or of standard input. The first failure ends them, unless set
//! otherwise.

use std::io::BufRead;
use std::path::Path;

use super::words::{Line, split};
use super::{Next, Shell};
use crate::failure::{Failure, Result};

/// Runs the lines of `--execute`.
pub(super) fn execute(shell: &mut Shell<'_>, lines: &[String], keep_going: bool) -> Result<()> {
    let mut script = Script { shell, keep_going, first_failure: None };
    for line in lines {
        match split(line) {
            Line::Whole(words) => {
                if script.run(words, line)? == Next::End {
                    break;
                }
            }
            Line::Open => script.failed(open(line), line)?,
        }
    }
    script.end()
}

/// Runs the lines of standard input.
pub(super) fn from_standard_input(shell: &mut Shell<'_>, keep_going: bool) -> Result<()> {
    let mut script = Script { shell, keep_going, first_failure: None };
    let mut input = std::io::stdin().lock();
    let mut pending = String::new();
    let (mut number, mut begun) = (0_u64, 1_u64);
    loop {
        let read = input.read_line(&mut pending).map_err(|error| match error.kind() {
            std::io::ErrorKind::InvalidData => {
                Failure::data(format!("line {} is not UTF-8", number + 1), "fix the line")
            }
            _ => Failure::io("read", Path::new("standard input"), &error),
        })?;
        number += 1;
        match split(&pending) {
            Line::Whole(words) => {
                if script.run(words, &format!("line {begun}"))? == Next::End {
                    break;
                }
                pending.clear();
                begun = number + 1;
            }
            Line::Open if read == 0 => {
                script.failed(open(&format!("line {begun}")), &format!("line {begun}"))?;
                break;
            }
            Line::Open => {}
        }
        if read == 0 {
            break;
        }
    }
    script.end()
}

fn open(place: &str) -> Failure {
    Failure::usage(format!("{place}: a quote or a bracket is opened and never closed"), "close it")
}

struct Script<'a, 'b> {
    shell: &'a mut Shell<'b>,
    keep_going: bool,
    first_failure: Option<u8>,
}

impl Script<'_, '_> {
    fn run(&mut self, words: Vec<String>, place: &str) -> Result<Next> {
        match self.shell.line(words) {
            Ok(next) => Ok(next),
            Err(failure) => self.failed(failure, place).map(|()| Next::Line),
        }
    }

    /// Reports where it failed, and ends unless it should continue. A closed output and a signal always end
    /// it.
    fn failed(&mut self, failure: Failure, place: &str) -> Result<()> {
        let exit = failure.exit();
        if exit == 0 {
            return if let Failure::OutputClosed = failure { Err(failure) } else { Ok(()) };
        }
        self.shell.out.failure(&failure);
        self.shell.out.note(&format!("in {place}"));
        if self.keep_going && exit < 128 {
            self.first_failure.get_or_insert(exit);
            return Ok(());
        }
        Err(Failure::Exit(exit))
    }

    fn end(self) -> Result<()> {
        self.first_failure.map_or(Ok(()), |exit| Err(Failure::Exit(exit)))
    }
}
