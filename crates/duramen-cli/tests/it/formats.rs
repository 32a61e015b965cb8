//! Rows as people have them: other delimiters and formats, in and out.

use crate::runner::{Scratch, json};

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

/// The floats that are no numbers make no column of numbers text: they are refused where they stand.
#[test]
fn nan_and_infinities_in_a_column_of_numbers_are_refused_with_line_and_column() {
    for word in ["NaN", "nan", "inf", "-inf", "+Infinity", "-INF"] {
        let scratch = Scratch::new();
        scratch.write("rows.csv", format!("id,f\n1,1.5\n2,{word}\n3,7\n"));
        let import = ["import", "db", "rows.csv", "-c", "rows", "--key", "id"];
        let ran = scratch.run(&import);
        assert_eq!(ran.code, Some(1), "{word}: {}", ran.stderr);
        let message = format!("line 3, column f: holds {word:?}, and a float has to be finite");
        assert!(ran.stderr.contains(&message), "{}", ran.stderr);
        let sign = if word.starts_with('-') { '=' } else { ' ' };
        let hint = format!("hint: --null{sign}{word} reads it as null; --type f=text keeps the column text");
        assert!(ran.stderr.contains(&hint), "{}", ran.stderr);
        assert!(!scratch.path("db").exists(), "refused before anything was created");
        scratch.ok(&[&import[..], &[&format!("--null={word}")]].concat());
        scratch.ok(&["import", "other", "rows.csv", "-c", "rows", "--key", "id", "--type", "f=text"]);
        let ran =
            scratch.run(&["import", "third", "rows.csv", "-c", "rows", "--key", "id", "--type", "f=float"]);
        assert!(ran.code == Some(1) && ran.stderr.contains("line 3, column f: holds"), "{}", ran.stderr);
    }
    let scratch = imported("rows.csv", "id,t\n1,NaN\n2,x\n3,5\n", &["--key", "id"]);
    assert!(documents(&scratch).contains("NaN"), "a column of text may hold any text");
    let scratch = Scratch::new();
    scratch.write("rows.ndjson", "{\"id\":1,\"f\":1.5}\n{\"id\":2,\"f\":NaN}\n");
    let ran = scratch.run(&["import", "db", "rows.ndjson", "-c", "rows", "--key", "id", "--json"]);
    let error = json(&ran.stderr);
    assert!(error["message"].as_str().unwrap().starts_with("line 2"), "{error}");
}

/// As programs write it, and as files called `.json` have it: also with white space, and without the array.
#[test]
fn an_array_of_objects_is_imported_and_exported() {
    let rows = ["{\"id\":1,\"t\":\"a]\\\"}{\\\\\",\"m\":{\"x\":[1,{}]}}", "{\"id\":2,\"t\":\"é\"}"];
    let lines = format!("{}\n{}\n", rows[0], rows[1]);
    for text in [
        format!("[{},{}]", rows[0], rows[1]),
        format!(" [\n {} \n,\n\t{}\r\n]\n\n", rows[0], rows[1]),
        lines.replace("\"t\"", "\n  \"t\""),
        format!("{}{}", rows[0], rows[1]),
    ] {
        let scratch = imported("rows.json", &text, &["--key", "id"]);
        assert_eq!(documents(&scratch), lines, "{text:?}");
        let array = scratch.ok(&["export", "db", "-c", "rows", "--format", "json"]);
        assert_eq!(array, format!("[\n{},\n{}\n]\n", rows[0], rows[1]));
        let gzipped = gzip(&array);
        let again = imported("rows.json.gz", gzipped, &["--key", "id"]);
        assert_eq!(documents(&again), lines);
    }
    let scratch = imported("rows.json", "[]", &["--key", "id"]);
    assert_eq!(scratch.ok(&["export", "db", "-c", "rows", "--format", "json"]), "[\n]\n");
    assert_eq!(documents(&scratch), "");
}

fn gzip(text: &str) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn json_that_is_wrong_is_refused_with_its_line() {
    for (text, words) in [
        ("[{\"id\":1},\n{\"id\":2}", "line 2: the input ends before the array does"),
        ("[{\"id\":1}\n{\"id\":2}]", "line 2: a comma or the end of the array is wanted"),
        ("[{\"id\":1},\n]", "line 2: an object is wanted after the comma"),
        ("[{\"id\":1},\n\n{\"id\":\n2", "line 3: this object has no end"),
        ("[{\"id\":1},\n{\"id\":\"2]}", "line 2: this object has no end"),
        ("[{\"id\":1}]\n x", "line 2: something follows the array"),
        ("[1]", "line 1: an object is wanted"),
        ("5", "line 1: an object is wanted"),
        ("[{\"id\":1},{\"id\":1e}]", "line 1: this is not JSON"),
        ("[{\"id\":1],\n{}]", "line 1: this is not JSON"),
    ] {
        let scratch = Scratch::new();
        scratch.write("rows.json", text);
        let ran = scratch.run(&["import", "db", "rows.json", "-c", "rows", "--key", "id"]);
        assert_eq!(ran.code, Some(1), "{text:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(words) && ran.stderr.contains("hint: "), "{text:?}: {}", ran.stderr);
        let same = scratch.run_with_input(
            &["import", "db", "-", "--format", "json", "-c", "rows", "--key", "id"],
            text.as_bytes(),
        );
        assert!(same.code == Some(1) && same.stderr.contains(words), "{text:?}: {}", same.stderr);
    }
    let scratch = Scratch::new();
    scratch.write("rows.ndjson", "[{\"id\":1}]\n");
    let ran = scratch.run(&["import", "db", "rows.ndjson", "-c", "rows", "--key", "id"]);
    assert!(ran.code == Some(1) && ran.stderr.contains("a JSON array needs --format json"), "{}", ran.stderr);
}

#[test]
fn fields_of_nested_objects_become_columns() {
    let nested = "{\"id\":1,\"at\":{\"lat\":59.9,\"by\":{\"x\":\"a\"}},\"l\":[1,\"b\"],\"none\":{}}\n\
                  {\"id\":2,\"at\":null,\"l\":[]}\n{\"id\":3,\"at\":{\"lat\":60.5}}\n";
    let flat = "{\"id\":1,\"at.lat\":59.9,\"at.by.x\":\"a\",\"l\":[1,\"b\"],\"none\":{}}\n\
                {\"id\":2,\"at\":null,\"l\":[]}\n{\"id\":3,\"at.lat\":60.5}\n";
    let csv = "id,at.lat,at.by.x,l,none\n1,59.9,a,\"[1,\"\"b\"\"]\",{}\n2,,,[],\n3,60.5,,,\n";
    let scratch = imported("rows.ndjson", nested, &["--key", "id", "--flatten"]);
    assert_eq!(documents(&scratch), flat);
    assert_eq!(scratch.ok(&["find", "db", "-c", "rows", "at.lat>60", "--json"]).lines().count(), 1);
    let scratch = imported("rows.ndjson", nested, &["--key", "id"]);
    assert_eq!(documents(&scratch), nested, "nested objects are stored as they are");
    let ran = scratch.run(&["export", "db", "-c", "rows", "--format", "csv"]);
    assert!(ran.code == Some(1) && ran.stderr.contains("--flatten"), "{}", ran.stderr);
    assert_eq!(scratch.ok(&["export", "db", "-c", "rows", "--format", "csv", "--flatten"]), csv);
    let scratch = imported("rows.csv", csv, &["--key", "id"]);
    assert_eq!(scratch.ok(&["find", "db", "-c", "rows", "at.lat>60", "--json"]).lines().count(), 1);
}

#[test]
fn fields_that_would_get_one_name_are_refused() {
    let twice = "{\"id\":1}\n{\"id\":2,\"a\":{\"b\":1},\"a.b\":2}\n";
    let scratch = Scratch::new();
    scratch.write("rows.ndjson", twice);
    let import = ["import", "db", "rows.ndjson", "-c", "rows", "--key", "id"];
    let ran = scratch.run(&[&import[..], &["--flatten"]].concat());
    assert!(
        ran.code == Some(1) && ran.stderr.contains("line 2: two fields have the name a.b"),
        "{}",
        ran.stderr
    );
    scratch.ok(&import);
    let ran = scratch.run(&["export", "db", "-c", "rows", "--format", "csv", "--flatten"]);
    assert!(
        ran.code == Some(1) && ran.stderr.contains("rows 2: two fields have the name a.b"),
        "{}",
        ran.stderr
    );
    for words in [
        ["import", "db", "x.csv", "--flatten", "--format", "csv"],
        ["export", "db", "--flatten", "--format", "ndjson", "-q"],
    ] {
        scratch.write("x.csv", "id\n1\n");
        let ran = scratch.run(&[&words[..], &["-c", "rows"]].concat());
        assert!(ran.code == Some(2) && ran.stderr.contains("--flatten is for"), "{}", ran.stderr);
    }
}

/// A date is the first instant of its day in UTC, in cells, in JSON and in conditions.
#[test]
fn dates_without_a_time_are_times() {
    let check = |file: &str, rows: &str| {
        let scratch = imported(file, rows, &["--key", "day", "--type", "day=time"]);
        let wanted =
            "{\"day\":\"2013-01-01T00:00:00Z\",\"n\":1}\n{\"day\":\"2013-01-02T10:00:00Z\",\"n\":2}\n";
        assert_eq!(documents(&scratch), wanted);
        let found = |words: &[&str]| {
            let words = [words, &["--json"]].concat();
            scratch.ok(&words).lines().count()
        };
        assert_eq!(found(&["find", "db", "-c", "rows", "day>=2013-01-02"]), 1);
        assert_eq!(found(&["find", "db", "-c", "rows", "day=2013-01-01"]), 1);
        assert_eq!(found(&["scan", "db", "-c", "rows", "--from", "2013-01-01", "--to", "2013-01-02"]), 1);
    };
    check("rows.csv", "day,n\n2013-01-01,1\n2013-01-02T10:00:00Z,2\n");
    check("rows.ndjson", "{\"day\":\"2013-01-01\",\"n\":1}\n{\"day\":\"2013-01-02T10:00:00Z\",\"n\":2}\n");
    let scratch = Scratch::new();
    scratch.write("rows.csv", "day,n\n2013-01-01,1\n01/02/2013,2\n");
    let ran = scratch.run(&["import", "db", "rows.csv", "-c", "rows", "--key", "day", "--type", "day=time"]);
    let words = "line 3, column day: holds \"01/02/2013\", which is not a time";
    assert!(ran.code == Some(1) && ran.stderr.contains(words), "{}", ran.stderr);
}

#[test]
fn rows_without_a_key_get_ids() {
    let check = |file: &str, bytes: &str, more: &str| {
        let scratch = imported(file, bytes, &["--assign-id", "no"]);
        assert_eq!(documents(&scratch), "{\"no\":1,\"t\":\"a\",\"n\":5}\n{\"no\":2,\"t\":\"b\",\"n\":6}\n");
        scratch.write(file, more);
        let again = ["import", "db", file, "-c", "rows", "--assign-id", "no"];
        let summary = json(&scratch.ok(&[&again[..], &["--json", "--threads", "3"]].concat()));
        assert_eq!((&summary["first_id"], &summary["rows"]), (&3.into(), &1.into()));
        assert_eq!(
            scratch.ok(&["get", "db", "-c", "rows", "--key", "3", "--json"]).matches("\"c\"").count(),
            1
        );
        // The same rows again under the same ids complete an import that was ended.
        let ran = scratch.run(&[&again[..], &["--replace"]].concat());
        assert!(ran.code == Some(2) && ran.stderr.contains("--first-id ID"), "{}", ran.stderr);
        scratch.ok(&[&again[..], &["--replace", "--first-id", "3"]].concat());
        assert_eq!(scratch.ok(&["count", "db", "-c", "rows"]), "3\n");
        scratch.ok(&["check", "db", "--deep"]);
        let other = scratch.run(&["import", "db", file, "-c", "rows", "--assign-id", "id"]);
        assert!(other.stderr.contains("rows has the key (no), and --assign-id names id"), "{}", other.stderr);
        let taken = scratch.run(&["import", "db", file, "-c", "new", "--assign-id", "t"]);
        assert!(taken.code == Some(1) && taken.stderr.contains("has the column t"), "{}", taken.stderr);
    };
    check("rows.csv", "t,n\na,5\nb,6\n", "t,n\nc,7\n");
    check("rows.ndjson", "{\"t\":\"a\",\"n\":5}\n{\"t\":\"b\",\"n\":6}\n", "{\"t\":\"c\"}\n");
}

/// The first id is what completes the import: the message names it.
#[test]
fn an_import_with_ids_that_fails_says_how_to_complete_it() {
    let scratch = imported("rows.csv", "t,n\na,5\n", &["--assign-id", "id"]);
    scratch.write("rows.csv", "t,n\nb,1\nc,2\nd,x\n");
    let import =
        ["import", "db", "rows.csv", "-c", "rows", "--assign-id", "id", "--batch", "1", "--threads", "2"];
    let ran = scratch.run(&import);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.contains("rows get the ids from 2 on, in the column id"), "{}", ran.stderr);
    assert!(ran.stderr.contains("line 4, column n: holds \"x\""), "{}", ran.stderr);
    assert!(ran.stderr.contains("the same command with --replace --first-id 2 completes"), "{}", ran.stderr);
    scratch.write("rows.csv", "t,n\nb,1\nc,2\nd,3\n");
    scratch.ok(&[&import[..], &["--replace", "--first-id", "2"]].concat());
    assert_eq!(scratch.ok(&["count", "db", "-c", "rows"]), "4\n");
}

/// A header with some commas has more of the right delimiter.
#[test]
fn a_header_with_more_of_another_delimiter_names_it() {
    let check = |header: &str, flags: &[&str], wanted: &str| {
        let scratch = Scratch::new();
        scratch.write("rows.csv", format!("{header}\n{header}\n"));
        let ran = scratch.run(&[&["import", "db", "rows.csv", "-c", "rows"], flags].concat());
        assert!(ran.stderr.contains(wanted), "{flags:?}: {}", ran.stderr);
        ran.code
    };
    let more = "its header has more of ';' than of ',': use --delimiter ';'";
    assert_eq!(check("id;price,eur;town", &["--key", "id"], more), Some(1));
    assert_eq!(check("id;price,eur;town", &["--assign-id", "n"], more), Some(1));
    assert_eq!(check("id;town", &["--assign-id", "n"], "use --delimiter ';'"), Some(1));
    let tab = "its header has more of tab than of ',': use --delimiter tab";
    assert_eq!(check("id\tprice,eur\ttown", &["--assign-id", "n"], tab), Some(1));
    assert_eq!(check("id;town", &["--assign-id", "n", "--delimiter", ","], "1 row in 1 batch"), Some(0));
    assert_eq!(check("id,a;b", &["--assign-id", "n"], "1 row in 1 batch"), Some(0));
}

#[test]
fn a_list_of_null_words_is_warned_of() {
    let scratch = Scratch::new();
    scratch.write("rows.csv", "id,n\n1,2\n2,NA\n3,5\n");
    let ran = scratch.run(&["import", "db", "rows.csv", "-c", "rows", "--key", "id", "--null", "NA,-"]);
    assert!(ran.stderr.contains("only the cell \"NA,-\" is null"), "{}", ran.stderr);
    assert!(ran.stderr.contains("repeat the flag: --null NA --null=-"), "{}", ran.stderr);
}

#[test]
fn a_refused_row_leaves_no_part_of_it() {
    let scratch = Scratch::new();
    scratch.write("rows.ndjson", "{\"id\":1,\"t\":\"a\",\"l\":\"b\"}\n{\"id\":2,\"t\":\"c\",\"l\":[1]}\n");
    scratch.ok(&["import", "db", "rows.ndjson", "-c", "rows", "--key", "id"]);
    let ran = scratch.run(&["export", "db", "-c", "rows", "--format", "csv"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), "id,t,l\n1,a,b\n"));
}
