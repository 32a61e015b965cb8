//! Columns that a person takes for numbers or times, and that become text: the import says so.

use crate::runner::{Scratch, json};

/// Imports a column `n` of these cells; returns what is printed of it, and the summary.
fn import(cells: &[&str], flags: &[&str]) -> (Vec<String>, serde_json::Value) {
    let cell = |cell: &&str| if cell.contains(',') { format!("\"{cell}\"") } else { (*cell).to_owned() };
    let rows: String = (1..).zip(cells).map(|(id, text)| format!("{id},{}\n", cell(text))).collect();
    let ran = |json: &[&str]| {
        let scratch = Scratch::new();
        scratch.write("rows.csv", format!("id,n\n{rows}"));
        let ran =
            scratch.run(&[&["import", "db", "rows.csv", "-c", "rows", "--key", "id"], flags, json].concat());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        ran
    };
    let said = ran(&[]).stderr;
    let is_of_columns =
        |line: &&str| !line.contains(" batch into ") && !line.starts_with("to change the type of n: ");
    let lines = said.lines().filter(is_of_columns).map(str::to_owned);
    (lines.collect(), json(&ran(&["--json"]).stdout))
}

fn check(cells: &[&str], kinds: &str, cause: &str, remedy: &str) {
    let (said, summary) = import(cells, &[]);
    let keeps = "; --type n=text keeps the column text without this warning";
    let wanted =
        [format!("warning: the column n is {kinds}: {cause} values)"), format!("hint: {remedy}{keeps}")];
    assert_eq!(said, wanted, "{cells:?}");
    assert_eq!(summary["fallbacks"].as_array().unwrap().len(), 1, "{summary}");
    assert_eq!(import(cells, &["--type", "n=text"]).0, [""; 0]);
}

#[test]
fn words_for_null_that_are_most_of_a_column_are_named() {
    let int = "text, not int";
    check(&["-", "-", "3", "-"], int, "line 2 holds \"-\" (3 of 4", "--null=- reads it as null");
    check(
        &["NA", "3", "n/a", "NA"],
        int,
        "line 2 holds \"NA\" (3 of 4",
        "--null NA --null n/a read them as null",
    );
}

#[test]
fn numbers_in_another_form_are_named() {
    let float = "text, not float";
    let decimals = "write decimal points in the input, 1.5";
    let comma = "line 2 holds \"1,5\", which has a decimal comma (2 of 2";
    check(&["1,5", "-2,25"], float, comma, decimals);
    let among = "line 3 holds \"2,5\", which has a decimal comma (2 of 3";
    check(&["1", "2,5", "NA"], float, among, decimals);
    let thousands = "line 3 holds \"1,234\", which has a separator of thousands (1 of 2";
    check(
        &["1", "1,234"],
        "text, not int",
        thousands,
        "write the numbers in the input without separators, 1234",
    );
    let blanks = "line 2 holds \" 5\", which has blanks around the number (2 of 2";
    check(&[" 5", " 7"], "text, not int", blanks, "remove the blanks around the numbers from the input");
}

#[test]
fn text_is_not_reported() {
    for cells in [&["Oslo, 5", "5 a"][..], &["Alien", "1984", "Heat"], &["x", "1,5", "y"]] {
        assert_eq!(import(cells, &[]).0, [""; 0], "{cells:?}");
    }
}

#[test]
fn times_are_noted() {
    let note = ["text that looks like times: n; to store times: --type n=time"];
    let cells = ["2013-01-01T10:00:00Z", "2013-01-02 10:00:00"];
    let (said, summary) = import(&cells, &[]);
    assert_eq!(said, note);
    assert_eq!(summary["time_columns"], serde_json::json!(["n"]));
    assert_eq!(import(&cells, &["--type", "n=time"]).0, [""; 0]);
    assert_eq!(import(&["2013-01-01T10:00:00Z", "later"], &[]).0, [""; 0]);
}

/// The types of the first import stay, also where a later one names the words for null.
#[test]
fn a_column_that_stays_text_is_reported_again() {
    let scratch = Scratch::with_rows("id,n,zip\n1,2,0150\n2,NA,x\n", &["--key", "id"]);
    let again = |flags: &[&str]| {
        let args = ["import", "db", "rows.csv", "-c", "rows", "--replace"];
        let ran = scratch.run(&[&args, flags].concat());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        ran.stderr.lines().filter(|line| line.starts_with("warning: ")).map(str::to_owned).collect::<Vec<_>>()
    };
    let warning = "warning: the column n stays text, and has only numbers besides null";
    assert_eq!(again(&["--null", "NA"]), [warning]);
    assert_eq!(again(&["--null", "NA", "--type", "n=text"]), [""; 0]);
    assert_eq!(again(&[]), [""; 0]);
}
