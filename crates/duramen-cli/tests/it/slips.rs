//! Slips of a first import: each message names a way that works.

use crate::runner::{Ran, Scratch};

fn import(rows: &str, flags: &[&str]) -> (Scratch, Ran) {
    let scratch = Scratch::new();
    let ran = again(&scratch, rows, &[&["--key", "id"], flags].concat());
    (scratch, ran)
}

fn again(scratch: &Scratch, rows: &str, flags: &[&str]) -> Ran {
    scratch.write("rows.csv", rows);
    scratch.run(&[&["import", "db", "rows.csv", "-c", "rows", "--durability", "process"], flags].concat())
}

fn said(ran: &Ran, words: &str) {
    assert!(ran.stderr.contains(words), "{words}: {}", ran.stderr);
}

const DROP: &str = "`duramen drop db -c rows --yes`";

/// The words of the hint, run as they are, lead to a column of numbers.
#[test]
fn a_stray_word_leads_to_one_import_with_numbers() {
    let rows = "id,n\n1,5\n2,unknown\n3,7\n";
    let (scratch, ran) = import(rows, &[]);
    said(&ran, &format!("to change the type of n: {DROP}, then the same import with --null unknown\n"));
    let ran = again(&scratch, rows, &["--null", "unknown"]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(!ran.stderr.contains("--replace puts"), "{}", ran.stderr);
    let hint = format!("hint: the type of a stored column does not change: {DROP}, then the same import");
    assert_eq!(ran.stderr.matches(&hint).count(), 2, "{}", ran.stderr);
    scratch.ok(&["drop", "db", "-c", "rows", "--yes"]);
    assert_eq!(again(&scratch, rows, &["--key", "id", "--null", "unknown"]).code, Some(0));
    assert_eq!(scratch.ok(&["find", "db", "-c", "rows", "n>5", "--json"]), "{\"id\":3,\"n\":7}\n");
}

/// Each cell that is no integer, with what can be done about it.
#[test]
fn a_cell_of_another_type_leads_to_a_flag_that_takes_it() {
    for (kind, cell, hint) in [
        ("int", "7.5", "to store such numbers, import with --type n=float\n"),
        (
            "int",
            "+5",
            "write the numbers in the input without a plus sign, 5; to keep the column text, import with --type n=text",
        ),
        ("int", " 5", "remove the blanks around the numbers from the input; to keep"),
        ("int", "\"1,234\"", "write the numbers in the input without separators, 1234; to keep"),
        ("int", "007", "write it in its plain form, such as 5, -0.5 or 1e9; to keep"),
        (
            "int",
            "unknown",
            "if it stands for null, use --null unknown; if the column is text, import with --type n=text",
        ),
        (
            "float",
            "99999999999999999999",
            "no float is exactly this integer: 99999999999999999999.0 is read as the nearest one; to keep all digits, import with --type n=text",
        ),
    ] {
        let (_, ran) = import(&format!("id,n\n1,{cell}\n"), &["--type", &format!("n={kind}")]);
        assert_eq!(ran.code, Some(1), "{cell}");
        said(&ran, &format!("hint: {hint}"));
    }
    assert_eq!(import("id,n\n1,99999999999999999999.0\n", &["--type", "n=float"]).1.code, Some(0));
}

#[test]
fn rows_before_a_bad_one_are_removed_by_the_command_in_the_hint() {
    let mut rows = "id,n\n".to_owned();
    (1..=3001).for_each(|id| rows.push_str(&format!("{id},{}\n", if id == 3001 { "unknown" } else { "1" })));
    let (scratch, ran) = import(&rows, &["--type", "n=int"]);
    said(&ran, "line 3002, column n: holds \"unknown\"");
    said(
        &ran,
        &format!(
            "use --null unknown; if the column is text, import with --type n=text; {DROP} removes what is stored"
        ),
    );
    let ran = again(&scratch, &rows, &["--key", "n"]);
    said(
        &ran,
        &format!(
            "leave --key out to use what is stored, or choose another collection; or drop it with its documents: {DROP}"
        ),
    );
    // A collection from before is not to be dropped for it.
    scratch.write("other.csv", "id,n\n9,9\n");
    scratch.ok(&["drop", "db", "-c", "rows", "--yes"]);
    scratch.ok(&["import", "db", "other.csv", "-c", "rows", "--key", "id"]);
    let ran = again(&scratch, &rows, &["--replace"]);
    assert!(ran.code == Some(1) && !ran.stderr.contains("duramen drop"), "{}", ran.stderr);
}

/// A hint whose command fails leads around in a circle.
#[test]
fn numbers_in_another_form_are_numbers_for_find_too() {
    let (scratch, ran) = import("id,n\n1,+5\n2,6\n3,007\n", &[]);
    said(&ran, "warning: the column n is text, not int: line 2 holds \"+5\", which has a plus sign");
    let ran = scratch.run(&["find", "db", "-c", "rows", "--sum", "n"]);
    said(
        &ran,
        "to sum numbers, write \"+5\" and the like in the input in plain form, such as 5 or -0.5, and import again",
    );
    said(&scratch.run(&["find", "db", "-c", "rows", "n>5"]), "to compare numbers, write \"+5\" and the like");
}

#[test]
fn ids_that_an_import_assigns_are_named_where_they_are_missing() {
    let scratch = Scratch::new();
    scratch.write("log.csv", "at,what\n10:00,login\n");
    scratch.ok(&["import", "db", "log.csv", "-c", "log", "--assign-id", "id"]);
    said(
        &scratch.run(&["import", "db", "log.csv", "-c", "log"]),
        "hint: to give the rows ids, add --assign-id id; ",
    );
    scratch.ok(&["import", "db", "log.csv", "-c", "log", "--assign-id", "id"]);
}

#[test]
fn what_is_wrong_with_a_line_is_said_with_its_place() {
    for (rows, words) in [
        (
            ",a,b\n1,2,3\n",
            "column 1 has no name in the first line\nhint: give it a name there, such as id; pandas",
        ),
        ("id,a,b,a\n1,2,3,4\n", "has the column \"a\" twice in its header: columns 2 and 4\n"),
        (
            "id,a\n1,2\n  \n3,4\n",
            "line 3: it has only blanks, and the header has 2 cells\nhint: remove the line",
        ),
        ("id,a\n1\n", "line 2: 1 cell, and the header has 2\n"),
    ] {
        let (_, ran) = import(rows, &[]);
        assert_eq!(ran.code, Some(1), "{rows}");
        let stderr = ran.stderr.replace("; nothing of this import is stored", "");
        assert!(stderr.contains(words), "{words}: {stderr}");
    }
    for (line, words) in [
        (
            "{\"id\":99999999999999999999}",
            "line 1: at byte 7: the integer 99999999999999999999 does not fit in 64 bits\nhint: write it as text, in quotes",
        ),
        ("{\"id\":5 \"n\":1}", "hint: NDJSON is one JSON object a line: look for a comma or a quote"),
        ("{\"id\":5,\n\"n\":1}", "objects over several lines need --format json"),
    ] {
        let scratch = Scratch::new();
        scratch.write("rows.ndjson", line);
        let ran = scratch.run(&["import", "db", "rows.ndjson", "-c", "rows", "--key", "id"]);
        said(&ran, words);
    }
}

#[test]
fn a_word_for_null_in_json_has_no_effect_and_the_import_says_so() {
    let scratch = Scratch::new();
    scratch.write("rows.ndjson", "{\"id\":1,\"n\":\"NA\"}\n");
    let ran = scratch.run(&["import", "db", "rows.ndjson", "-c", "rows", "--key", "id", "--null", "NA"]);
    said(&ran, "warning: --null NA is for CSV: the values of this input stay as they are\n");
}

#[test]
fn commands_of_other_programs_lead_to_the_ones_here() {
    let scratch = Scratch::new();
    let hints = |command: &str| scratch.run(&[command, "db"]).stderr;
    assert!(hints("restore").contains("hint: a backup is a database"), "{}", hints("restore"));
    assert!(hints("select").contains("duramen find DB"), "{}", hints("select"));
    assert!(hints("vacuum").contains("duramen compact DB"), "{}", hints("vacuum"));
}

#[test]
fn a_file_without_names_of_columns_is_warned_of() {
    let scratch = Scratch::new();
    scratch.write("nohead.csv", "1,Ann,10\n2,Bob,20\n");
    let said = scratch.run(&["import", "db", "nohead.csv", "-c", "nohead", "--key", "1"]);
    assert!(said.code == Some(0) && said.stderr.contains("the first of them is 1"), "{}", said.stderr);
    scratch.write("years.csv", "country,2019,2020\nNorway,5,6\n");
    let said = scratch.run(&["import", "db", "years.csv", "-c", "years", "--key", "country"]);
    assert!(said.code == Some(0) && !said.stderr.contains("first line"), "{}", said.stderr);
}
