//! Options of other programs, and the ones that do the same here.

use duramen::find::Condition;

use crate::names::{Names, listed};
use crate::output::shell_word;

/// Options of `find` under other names; `{}` is the value.
const FIND: [(&[&str], &str); 13] = [
    (&["avg", "average"], "--mean {}"),
    (&["total"], "--sum {}"),
    (&["minimum", "smallest"], "--min {}"),
    (&["maximum", "largest"], "--max {}"),
    (&["unique", "nunique", "count-distinct"], "--distinct {}"),
    (&["sort", "sort-by", "order", "orderby"], "--order-by {}"),
    (&["desc", "descending"], "--order-by FIELD:desc"),
    (&["group", "groupby", "by"], "--group-by {}"),
    (&["select", "columns", "cols", "field"], "--fields {}"),
    (&["top", "head", "rows", "max-rows"], "--limit {}"),
    (&["where", "filter"], "{}"),
    (&["median"], ":0.5"),
    (&["percentile", "percentiles", "quantiles"], ":0.9"),
];

/// Options of `view add` under other names.
const VIEW: [(&[&str], &str); 3] = [
    (&["mean", "avg", "average"], "--sum {}"),
    (&["median", "quantile", "percentile"], "--quantiles {}"),
    (&["field", "fields", "columns", "by"], "--key {}"),
];

/// What to write instead of an option, with its value. `words` are those of the whole command.
pub(crate) fn instead(option: &str, words: &[String]) -> Option<String> {
    let name = option.trim_start_matches('-').split('=').next()?;
    let command = words.iter().skip(1).find(|word| !word.starts_with('-'))?;
    let known: &[(&[&str], &str)] = match command.as_str() {
        "find" => &FIND,
        "view" => &VIEW,
        "get" | "del" | "scan" | "count" | "reduce" | "export" if !option.starts_with('-') => {
            return keys_instead(command, option);
        }
        _ => return None,
    };
    let (_, form) = known.iter().find(|(names, _)| names.contains(&name))?;
    let value = value_of(name, words).unwrap_or_else(|| "FIELD".to_owned());
    Some(match form.strip_prefix(':') {
        Some(part) => format!("write --quantile {}", shell_word(&with_part(&value, part))),
        None => format!("write {}", form.replace("{}", &shell_word(&value))),
    })
}

/// What to write instead of a command of another program.
pub(crate) fn command_instead(command: &str) -> Option<&'static str> {
    Some(match command {
        "restore" => {
            "a backup is a database: end the programs that use DB, move it away, and `cp -r BACKUP DB`"
        }
        "select" | "query" | "sql" => {
            "`duramen find DB -c NAME CONDITION...` queries; `duramen find --help` has examples"
        }
        "insert" | "update" | "upsert" => {
            "`duramen put DB -c NAME JSON` stores a document; `duramen import` many"
        }
        "delete" | "rm" | "remove" => {
            "`duramen del DB -c NAME --key KEY` deletes a document; `duramen drop` a collection"
        }
        "load" => "`duramen import DB FILE -c NAME`",
        "dump" => "`duramen export DB -c NAME`; `duramen backup DB COPY` copies the database",
        "vacuum" => "`duramen compact DB`",
        "tables" | "ls" | "list" => "`duramen collections DB`",
        _ => return None,
    })
}

/// What to write instead of a word, in a command that takes keys.
fn keys_instead(command: &str, word: &str) -> Option<String> {
    const REDIRECTED: [&str; 2] = [">", ">>"];
    let is_condition = Condition::field_of(word).is_some();
    let text = match command {
        _ if REDIRECTED.contains(&word) => {
            "`>` is for your system's shell: run the command there, with the database's name".to_owned()
        }
        "get" => format!("write --key {}", shell_word(word)),
        "del" if is_condition => "del takes keys and key ranges; `duramen find` lists the keys".to_owned(),
        "del" => format!("write --key {0}, or --prefix {0}", shell_word(word)),
        "count" if is_condition => format!("`duramen find DB -c NAME --count {}` counts", shell_word(word)),
        "scan" | "export" if is_condition => format!("`duramen find DB -c NAME {}` finds", shell_word(word)),
        "reduce" if is_condition => {
            format!("`duramen find DB -c NAME {} --sum FIELD` sums", shell_word(word))
        }
        _ => format!("write --prefix {}", shell_word(word)),
    };
    Some(text)
}

/// What to leave out of options that exclude each other.
pub(crate) fn without(words: &[String]) -> Option<&'static str> {
    let has =
        |option: &str| words.iter().any(|word| word == option || word.starts_with(&format!("{option}=")));
    let groups = ["--group-by", "--sum", "--mean", "--min", "--max", "--distinct", "--quantile"];
    (has("--count") && groups.iter().any(|option| has(option)))
        .then_some("leave --count out: the number of documents is shown with every group")
}

/// The value of an option among the words.
fn value_of(name: &str, words: &[String]) -> Option<String> {
    let own = format!("--{name}");
    let at = words.iter().position(|word| word.split('=').next() == Some(&own))?;
    match words[at].split_once('=') {
        Some((_, value)) => Some(value.to_owned()),
        None => words.get(at + 1).filter(|word| !word.starts_with('-')).cloned(),
    }
}

/// Fields, each with the part of its values below a quantile.
fn with_part(fields: &str, part: &str) -> String {
    let Ok(names) = Names::parse(fields) else { return format!("{fields}:{part}") };
    let with: Vec<String> = names.into_iter().map(|name| format!("{name}:{part}")).collect();
    listed(&with)
}

#[cfg(test)]
mod tests {
    //! A wrong suggestion is worse than none.
    use clap::Parser;

    use super::*;
    use crate::args::Cli;

    fn check(line: &str, expected: Option<&str>) {
        let words: Vec<String> = line.split(' ').map(ToOwned::to_owned).collect();
        let option = words.iter().find(|word| word.starts_with("--")).unwrap();
        assert_eq!(instead(option, &words).as_deref(), expected, "{line}");
        if let Some(hint) = expected {
            let written = hint.strip_prefix("write ").unwrap().replace('\'', "");
            let known = ["duramen", &words[1], "db", "-c", "x"].map(ToOwned::to_owned).into_iter();
            let known: Vec<String> = match words[1].as_str() {
                "view" => ["duramen", "view", "add", "db", "-c", "x", "name", "--key", "k"]
                    .map(ToOwned::to_owned)
                    .into(),
                _ => known.collect(),
            };
            let parsed = Cli::try_parse_from(known.iter().map(String::as_str).chain(written.split(' ')));
            assert!(parsed.is_ok() || written.contains("--limit FIELD"), "{hint}: {parsed:?}");
        }
    }

    #[test]
    fn each_option_leads_to_the_one_that_does_the_same() {
        check("duramen find db --median tip", Some("write --quantile tip:0.5"));
        check("duramen find db --median tip,fare", Some("write --quantile tip:0.5,fare:0.5"));
        check("duramen find db --median=tip", Some("write --quantile tip:0.5"));
        check("duramen find db --percentile tip", Some("write --quantile tip:0.9"));
        check("duramen find db --avg tip", Some("write --mean tip"));
        check("duramen find db --average tip", Some("write --mean tip"));
        check("duramen find db --total tip", Some("write --sum tip"));
        check("duramen find db --sort tip:desc", Some("write --order-by tip:desc"));
        check("duramen find db --group day", Some("write --group-by day"));
        check("duramen find db --select day,tip", Some("write --fields day,tip"));
        check("duramen find db --head 5", Some("write --limit 5"));
        check("duramen find db --where tip>5", Some("write 'tip>5'"));
        check("duramen find db --desc", Some("write --order-by FIELD:desc"));
        check("duramen find db --avg", Some("write --mean FIELD"));
        check("duramen view add db --mean tip", Some("write --sum tip"));
        check("duramen find db --nonsense 5", None);
        check("duramen scan db --sort 5", None);
    }

    #[test]
    fn a_word_that_is_no_argument_leads_to_a_flag_or_to_find() {
        for (line, hint) in [
            (
                "duramen del db -c x what=login",
                "del takes keys and key ranges; `duramen find` lists the keys",
            ),
            ("duramen del db -c x UA", "write --key UA, or --prefix UA"),
            ("duramen get db -c x UA,1", "write --key UA,1"),
            ("duramen count db -c x a>5", "`duramen find DB -c NAME --count 'a>5'` counts"),
            (
                "duramen export db -c x >",
                "`>` is for your system's shell: run the command there, with the database's name",
            ),
        ] {
            let words: Vec<String> = line.split(' ').map(ToOwned::to_owned).collect();
            assert_eq!(instead(words.last().unwrap(), &words).as_deref(), Some(hint), "{line}");
        }
        let words = ["find", "--group-by=a", "--count"].map(ToOwned::to_owned);
        assert!(without(&words).is_some() && without(&words[..2]).is_none());
    }

    #[test]
    fn no_other_name_is_an_option_already() {
        let options = |command: &str| {
            let mut cli = <Cli as clap::CommandFactory>::command();
            cli.build();
            let command = cli.find_subcommand(command).unwrap();
            let command = command.find_subcommand("add").unwrap_or(command);
            command
                .get_arguments()
                .filter_map(|arg| arg.get_long().map(ToOwned::to_owned))
                .collect::<Vec<_>>()
        };
        for (names, _) in FIND {
            assert!(names.iter().all(|name| !options("find").contains(&(*name).to_owned())), "{names:?}");
        }
        for (names, _) in VIEW {
            assert!(names.iter().all(|name| !options("view").contains(&(*name).to_owned())), "{names:?}");
        }
    }
}
