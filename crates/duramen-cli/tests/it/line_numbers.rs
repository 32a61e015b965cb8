//! Messages name the line of the file, whatever ends its lines.

use crate::runner::Scratch;

/// Imports these lines with each line end, from a file and from standard input. Messages must hold `wanted`.
fn check(lines: &[&str], flags: &[&str], wanted: &str) {
    for end in ["\n", "\r\n", "\r"] {
        let scratch = Scratch::new();
        let text = lines.join(end) + end;
        scratch.write("rows.csv", &text);
        let rows = [&["-c", "rows", "--key", "id", "--format", "csv"], flags].concat();
        let of_file = scratch.run(&[&["import", "db", "rows.csv"], &rows[..]].concat());
        let of_stream =
            scratch.run_with_input(&[&["import", "new", "-"], &rows[..]].concat(), text.as_bytes());
        for ran in [of_file, of_stream] {
            assert!(ran.stderr.contains(wanted), "{text:?}: {}", ran.stderr);
        }
    }
}

#[test]
fn a_message_names_the_line_whatever_ends_the_lines() {
    check(&["id,n", "1,2", "2,3", "3"], &[], "line 4: 1 cell");
    check(&["id,n", "1,2", "2,NA", "3,4"], &[], "line 3 holds \"NA\"");
    check(&["id,n", "1,2", "2,x"], &["--type", "n=int"], "line 3, column n");
    check(&["id,n", "1,\"2", "2,3"], &[], "line 2: a quote is opened");
}

/// The reader of CSV skips empty lines, and cells in quotes may hold ends of lines.
#[test]
fn lines_without_a_record_are_counted() {
    for text in [
        "id,n\n\n\n1,\"a\nb\"\n\n2\n",
        "id,n\r\n\r\n\r\n1,\"a\r\nb\"\r\n\r\n2\r\n",
        "id,n\n\r\n\n1,\"a\nb\"\r\n\n2\n",
    ] {
        let scratch = Scratch::new();
        scratch.write("rows.csv", text);
        let ran = scratch.run(&["import", "db", "rows.csv", "-c", "rows", "--key", "id"]);
        assert!(ran.stderr.contains("line 7: 1 cell"), "{text:?}: {}", ran.stderr);
    }
}

/// A chunk of the input may end between the CR and the LF.
#[test]
fn lines_of_a_long_file_are_counted() {
    let scratch = Scratch::new();
    let mut text = "id,n\r\n".to_owned();
    (1..=99_999).for_each(|id| text.push_str(&format!("{id},{}\r\n", id % 7)));
    scratch.write("rows.csv", text + "100000\r\n");
    let ran = scratch.run(&["import", "db", "rows.csv", "-c", "rows", "--key", "id"]);
    assert!(ran.stderr.contains("line 100001: 1 cell"), "{}", ran.stderr);
}
