//! Rows as people have them: other delimiters and formats, in and out.

use crate::runner::Scratch;

/// A database `db` with the collection `rows` of a file, imported with these flags.
fn imported(file: &str, bytes: impl AsRef<[u8]>, flags: &[&str]) -> Scratch {
    let scratch = Scratch::new();
    scratch.write(file, bytes);
    scratch.ok(&[&["import", "db", file, "-c", "rows"], flags].concat());
    scratch
}

/// The documents of `rows`, one a line.
fn documents(scratch: &Scratch) -> String {
    scratch.ok(&["export", "db", "-c", "rows", "--format", "ndjson"])
}

#[test]
fn cells_may_have_another_delimiter() {
    let wanted = "{\"id\":1,\"t\":\"a,b;c\",\"n\":5}\n{\"id\":2,\"t\":\"d\",\"n\":null}\n";
    let check = |file: &str, rows: &str, flags: &[&str], exported_with: &[&str]| {
        let scratch = imported(file, rows, &[flags, &["--key", "id"]].concat());
        assert_eq!(documents(&scratch), wanted, "{rows:?}");
        let export = [&["export", "db", "-c", "rows", "--format", "csv"], exported_with].concat();
        let ran = scratch.run(&export);
        assert_eq!(ran.stdout, rows);
        let said = exported_with.join(" ").replace("\\t", "tab").replace(';', "';'");
        assert!(ran.stderr.trim_end().ends_with(&said), "{}", ran.stderr);
    };
    let semicolons = "id;t;n\n1;\"a,b;c\";5\n2;d;\n";
    check("rows.csv", semicolons, &["--delimiter", ";"], &["--delimiter", ";"]);
    let tabs = "id\tt\tn\n1\ta,b;c\t5\n2\td\t\n";
    check("rows.tsv", tabs, &[], &["--delimiter", "tab"]);
    check("rows.csv", tabs, &["--delimiter", "tab"], &["--delimiter", "\\t"]);
}

#[test]
fn a_wrong_delimiter_is_refused_with_the_right_one() {
    let scratch = Scratch::new();
    scratch.write("rows.csv", "id;t\n1;a\n");
    scratch.write("rows.ndjson", "{\"id\":1}\n");
    for (file, flags, code, words) in [
        ("rows.csv", &[][..], 1, "its only column is \"id;t\": use --delimiter ';'"),
        ("rows.csv", &["--delimiter", "x"], 2, "one ASCII character"),
        ("rows.csv", &["--delimiter", "\""], 2, "one ASCII character"),
        ("rows.ndjson", &["--delimiter", ";"], 2, "--delimiter is for CSV"),
    ] {
        let ran = scratch.run(&[&["import", "db", file, "-c", "rows", "--key", "id"], flags].concat());
        assert_eq!(ran.code, Some(code), "{flags:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(words), "{flags:?}: {}", ran.stderr);
    }
}
