//! The shell without a terminal: lines of a script and of `--execute` run like commands.

use crate::runner::{Ran, Scratch};

const ROWS: &str = "id,town,n\n1,Oslo,5\n2,Oslo,6\n3,Bergen,7\n";

fn rows() -> Scratch {
    Scratch::with_rows(ROWS, &["--key", "town,id", "--sum", "n", "--durability", "process"])
}

fn script(scratch: &Scratch, flags: &[&str], lines: &str) -> Ran {
    scratch.run_with_input(&[&["shell", "db"], flags].concat(), lines.as_bytes())
}

#[test]
fn a_script_leaves_out_the_database_and_the_collection() {
    let scratch = rows();
    let ran =
        script(&scratch, &[], "count rows\nuse rows\n# a remark\n\ncount --prefix Oslo\nfind n>=6 --json\n");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let json = "{\"id\":3,\"town\":\"Bergen\",\"n\":7}\n{\"id\":2,\"town\":\"Oslo\",\"n\":6}\n";
    assert_eq!(ran.stdout, format!("3\n2\n{json}"));
}

#[test]
fn the_short_form_opens_a_shell_on_a_database() {
    let scratch = rows();
    assert_eq!(scratch.ok(&["./db", "-e", "count rows", "-e", "exit", "-e", "count rows"]), "3\n");
    let ran = scratch.run(&["nothing.duramen", "-e", "count rows"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("there is no database at nothing.duramen"), "{}", ran.stderr);
}

#[test]
fn a_script_stops_at_the_first_error_with_its_exit_code() {
    let scratch = rows();
    let ran = script(&scratch, &[], "count rows\ncount rwos\ncount rows\n");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), "3\n"));
    assert!(ran.stderr.contains("did you mean rows?") && ran.stderr.contains("in line 2"), "{}", ran.stderr);
    let ran = script(&scratch, &["--keep-going"], "cuont\ncount rwos\ncount rows\n");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), "3\n"));
    assert!(ran.stderr.contains("did you mean count?"), "{}", ran.stderr);
}

/// A hint that asks for what the line has sends its reader around in a circle.
#[test]
fn a_line_with_a_collection_is_not_asked_for_one() {
    let scratch = rows();
    for (line, hint) in [
        ("get rows Oslo,1", "hint: write --key Oslo,1\n"),
        ("use rows\nexport --format csv > out.csv", "hint: `>` is for your system's shell"),
        ("get --key Oslo,1", "hint: name a collection after the command, or `use` one"),
        (
            "select rows",
            "hint: the commands are import, export, get, put, del, drop, scan, find, count, reduce, view",
        ),
        ("find rows nothing=5", "hint: the fields are id, town, n\n"),
        ("find rows --group-by town --count", "hint: leave --count out: "),
    ] {
        let ran = script(&scratch, &[], &format!("{line}\n"));
        assert!(ran.code == Some(2) && ran.stderr.contains(hint), "{line}: {}", ran.stderr);
    }
}

/// A document may contain line ends; an unclosed one is an error and not a document.
#[test]
fn json_goes_on_over_lines() {
    let scratch = rows();
    let put = "use rows\nput {\"id\": 4,\n  \"town\": \"it's } \\\" here\"} --durability process\ncount\n";
    let ran = script(&scratch, &[], put);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stdout.ends_with("\n4\n"), "{}", ran.stdout);
    let ran = script(&scratch, &[], "use rows\nput {\"id\": 5,\ncount\n");
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("line 2: a quote or a bracket is opened"), "{}", ran.stderr);
    assert_eq!(scratch.ok(&["count", "db", "-c", "rows"]), "4\n");
}

/// Reading must not lock out other readers; after a write the shell keeps the lock until it ends.
#[test]
fn a_shell_that_only_reads_leaves_no_trace() {
    let scratch = rows();
    let before = scratch.listing("db");
    script(&scratch, &[], "count rows\nscan rows\ncheck\ninspect\ncollections\n");
    assert_eq!(scratch.listing("db"), before);
}

#[test]
fn writes_and_reads_of_a_shell_share_one_database() {
    let scratch = rows();
    let lines = "use rows\ncount\nput {\"id\":9,\"town\":\"Voss\"} --durability process\ncount\ndel --prefix Oslo --durability process\ncount\n\
                 drop --yes --durability process\ncount\n";
    let ran = script(&scratch, &[], lines);
    assert_eq!(ran.code, Some(2), "nothing is in use once it is dropped: {}", ran.stderr);
    let counts: Vec<&str> = ran.stdout.lines().filter(|line| line.len() == 1).collect();
    assert_eq!(counts, ["3", "4", "2"]);
    assert!(scratch.ok(&["check", "db", "--deep"]).contains("nothing is wrong"));
}

/// Standard input holds the lines: a command that read it would consume them.
#[test]
fn commands_of_a_script_do_not_read_it() {
    let scratch = rows();
    let ran = script(&scratch, &[], "use rows\nput\n{\"id\":9,\"town\":\"Voss\"}\n");
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("cannot read standard input in a shell"), "{}", ran.stderr);
}

#[test]
fn json_is_asked_for_a_line_or_for_all() {
    let scratch = rows();
    let object = "{\"v\":1,\"kind\":\"count\",\"collection\":\"rows\",\"count\":3}\n";
    assert_eq!(
        scratch.ok(&["shell", "db", "-e", "count rows --json", "-e", "count rows"]),
        format!("{object}3\n")
    );
    assert_eq!(scratch.ok(&["shell", "db", "--json", "-e", "count rows"]), object);
    let ran = scratch.run(&["shell", "db", "--json", "-e", "count rwos"]);
    assert!(ran.stderr.starts_with("{\"v\":1,\"code\":\"E0901\""), "{}", ran.stderr);
}
