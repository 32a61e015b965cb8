//! `duramen man` and `completions`: generated from the command line's arguments.

use std::path::Path;

use clap::CommandFactory;
use clap_mangen::Man;
use duramen::{Value, doc};

use crate::args::{Cli, CompletionsArgs, ManArgs};
use crate::failure::{Failure, Result};
use crate::numbers::counted;
use crate::output::Output;

/// Prints the page of the program, or writes one for each command.
pub(crate) fn man(args: &ManArgs, out: Output) -> Result<()> {
    match &args.dir {
        Some(dir) => write_all(dir, out),
        None => {
            let page = String::from_utf8_lossy(&rendered(Man::new(Cli::command()))?).into_owned();
            if out.is_json() {
                return out.object("man", doc! { "page": page });
            }
            out.line(page.trim_end())
        }
    }
}

fn write_all(dir: &Path, out: Output) -> Result<()> {
    std::fs::create_dir_all(dir).map_err(|error| Failure::io("create", dir, &error))?;
    let mut whole = Cli::command().disable_help_subcommand(true);
    whole.build();
    let mut files = Vec::new();
    write(&whole, dir, &mut files)?;
    if out.is_json() {
        let files = files.iter().map(|name| Value::from(name.as_str())).collect::<Vec<_>>();
        return out.object("man", doc! { "path": dir.display().to_string(), "files": files });
    }
    out.line(&format!("wrote {} to {}", counted(files.len() as u64, "page"), dir.display()))
}

/// Writes the page of a command and those of its own commands.
fn write(command: &clap::Command, dir: &Path, files: &mut Vec<String>) -> Result<()> {
    let man = Man::new(command.clone());
    let name = man.get_filename();
    let path = dir.join(&name);
    std::fs::write(&path, rendered(man)?).map_err(|error| Failure::io("write", &path, &error))?;
    files.push(name);
    command
        .get_subcommands()
        .filter(|inner| !inner.is_hide_set())
        .try_for_each(|inner| write(inner, dir, files))
}

fn rendered(man: Man) -> Result<Vec<u8>> {
    let mut page = Vec::new();
    man.render(&mut page).map_err(|error| Failure::io("render", Path::new("a page"), &error))?;
    Ok(page)
}

/// Prints the completions of a shell.
pub(crate) fn completions(args: &CompletionsArgs, out: Output) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "duramen", &mut script);
    let script = String::from_utf8_lossy(&script);
    if out.is_json() {
        return out
            .object("completions", doc! { "shell": args.shell.to_string(), "script": script.as_ref() });
    }
    out.line(script.trim_end())
}
