//! A first question about a CSV file: numbers that became text, names with commas, options of other programs.

use crate::runner::{Scratch, json};

/// Numbers that `NA` made text, and a text of digits that is in the right order.
const ROWS: &str = "id,n,year\n1,9,2013\n2,10,2014\n3,NA,2015\n4,100,2016\n";

fn check_warning(scratch: &Scratch, words: &[&str], message: Option<&str>) {
    let words = [&["find", "db", "-c", "rows"], words].concat();
    let ran = scratch.run(&words);
    assert_eq!(ran.code, Some(0), "{words:?}: {}", ran.stderr);
    match message {
        Some(message) => {
            let wanted = format!("warning: the column n is text, and {message}\n");
            assert!(ran.stderr.starts_with(&wanted), "{words:?}: {}", ran.stderr);
            let hint =
                "hint: to compare numbers, import again into a new collection with --type n=int --null NA\n";
            assert!(ran.stderr.contains(hint), "{words:?}: {}", ran.stderr);
        }
        None => assert!(!ran.stderr.contains("warning"), "{words:?}: {}", ran.stderr),
    }
}

/// As text 100 comes before 9: an order, a largest value and a median are wrong for the question.
#[test]
fn flags_that_compare_numbers_as_text_are_warned_about() {
    let scratch = Scratch::with_rows(ROWS, &["--key", "id", "--type", "year=text"]);
    let how = "text: as text 10 comes before 9";
    let check = |words: &[&str], flags: Option<&str>| {
        let message = flags.map(|flags| format!("{flags} {how}"));
        check_warning(&scratch, words, message.as_deref());
    };
    check(&["--order-by", "n:desc", "--limit", "1"], Some("--order-by n:desc compares"));
    check(&["--max", "n"], Some("--max n compares"));
    check(&["--min", "n", "--max", "n"], Some("--min n and --max n compare"));
    check(&["--quantile", "n:0.5"], Some("--quantile n:0.5 compares"));
    check(&["--group-by", "n", "--order-by", "n"], Some("--order-by n compares"));
    check(&["--group-by", "n", "--order-by", "count"], None);
    check(&["--order-by", "id"], None);
    check(&["--distinct", "n"], None);
    check(&["--order-by", "year"], None);
    check(&["--max", "year"], None);
    check(&["--count"], None);
    let plan = ["find", "db", "-c", "rows", "--order-by", "n", "--explain", "--json"];
    let warnings = &json(&scratch.ok(&plan))["warnings"];
    assert_eq!(warnings[0], format!("the column n is text, and --order-by n compares {how}"));
}

#[test]
fn a_sum_of_numbers_that_are_text_tells_how_they_become_numbers() {
    let rows = "id,n,town\n1,1.5,Oslo\n2,10,Voss\n3,-,Oslo\n";
    let scratch = Scratch::with_rows(rows, &["--key", "id"]);
    for (flag, hint) in [
        ("--sum=n", "to sum numbers, import again into a new collection with --type n=float --null=-"),
        ("--mean=n", "--type n=float --null=-"),
        ("--sum=town", "town holds no numbers; --distinct, --min and --max take it"),
    ] {
        let ran = scratch.run(&["find", "db", "-c", "rows", flag]);
        assert_eq!(ran.code, Some(2), "{flag}");
        assert!(
            ran.stderr.contains("is text, which has no sum") && ran.stderr.contains(hint),
            "{}",
            ran.stderr
        );
    }
}

/// A list that is split inside of a name asks for other columns, or for none.
#[test]
fn a_name_with_a_comma_is_quoted_in_every_list() {
    let scratch = Scratch::with_rows("id,\"a,b\",c\n1,5,x\n2,7,x\n3,7,y\n", &["--key", "id"]);
    let find = |words: &[&str]| scratch.ok(&[&["find", "db", "-c", "rows", "--json"], words].concat());
    assert_eq!(find(&["--fields", "\"a,b\",c", "--limit", "1"]), "{\"a,b\":5,\"c\":\"x\"}\n");
    let last = ["--order-by", "\"a,b\":desc,id", "--limit", "1", "--fields", "id"];
    assert_eq!(find(&last), "{\"id\":2}\n");
    assert_eq!(
        find(&["--group-by", "c", "--sum", "\"a,b\"", "--quantile", "\"a,b\":0.5"]),
        "{\"c\":\"x\",\"count\":2,\"sum_a,b\":12,\"q0.5_a,b\":5}\n{\"c\":\"y\",\"count\":1,\"sum_a,b\":7,\"q0.5_a,b\":7}\n"
    );
    assert_eq!(find(&["--group-by", "\"a,b\"", "--limit", "1"]), "{\"a,b\":5,\"count\":1}\n");
    let plan = json(&find(&["a,b=7", "--explain"]));
    assert_eq!(plan["suggestion"], "duramen view add db -c rows by_a,b --key '\"a,b\"'");
    scratch.ok(&["view", "add", "db", "-c", "rows", "by_a,b", "--key", "\"a,b\""]);
    assert_eq!(json(&find(&["a,b=7", "--explain"]))["view"], "by_a,b");
    scratch.ok(&["view", "add", "db", "-c", "rows", "by_c", "--key", "c,\"a,b\":desc", "--sum", "\"a,b\""]);
    let shell = scratch.run_with_input(&["shell", "db"], b"find rows --fields '\"a,b\"' a,b=5 --json\n");
    assert_eq!(shell.stdout, "{\"a,b\":5}\n", "{}", shell.stderr);
    for (words, hint) in [
        (["--fields", "a,b"], "a name with a comma is in quotes in a list: '\"a,b\"'"),
        (["--group-by", "a,b"], "'\"a,b\"'"),
        (["--fields", "\"a,b"], "close it"),
    ] {
        let ran = scratch.run(&[&["find", "db", "-c", "rows"][..], &words].concat());
        assert_eq!(ran.code, Some(2), "{words:?}");
        assert!(ran.stderr.contains(hint), "{words:?}: {}", ran.stderr);
    }
}

fn check_hint(scratch: &Scratch, words: &[&str], hint: &str) {
    let ran = scratch.run(&[&["find", "db", "-c", "rows"], words].concat());
    assert_eq!(ran.code, Some(2), "{words:?}: {}", ran.stderr);
    assert!(ran.stderr.contains(&format!("hint: {hint}")), "{words:?}: {}", ran.stderr);
}

#[test]
fn hints_name_the_columns_and_values_of_the_query() {
    let scratch = Scratch::with_rows("id,town,n\n1,Oslo,5\n", &["--key", "id"]);
    let check = |words: &[&str], hint: &str| check_hint(&scratch, words, hint);
    check(&["--median", "n"], "write --quantile n:0.5\n");
    check(&["--avg", "n", "--group-by", "town"], "write --mean n\n");
    check(&["--sort", "n:desc"], "write --order-by n:desc\n");
    check(&["--quantil", "n:0.5"], "did you mean --quantile?");
    check(&["--quantile", "n"], "`--quantile n:0.5` is the median of n\n");
    check(&["--quantile", "n:90"], "`--quantile n:0.9` is 90 of 100\n");
    check(&["--quantile", "n:p50"], "`--quantile n:0.5` is the median of n\n");
    check(&["--sum", "nn"], "did you mean n?\n");
    check(&["--fields", "twon"], "did you mean town?\n");
    check(&["--order-by", "twon:desc"], "did you mean town?\n");
    check(&["town"], "write town=VALUE with the value to find; 'town is not null' finds all values\n");
    check(&["town Oslo"], "write town=Oslo\n");
    check(&["n gt 4"], "write 'n>4'\n");
    check(&["town like Os%"], "write 'town starts with Os'\n");
    check(&["nothing"], "write id=VALUE, with = != < <= > >=");
    check(
        &["n=x"],
        "an int is written -5 or 60, and an enum stored by number as its number; 'n is null' finds documents without it\n",
    );
}

/// The view keeps the sums: no document is read, and the plan says so.
#[test]
fn groups_of_a_view_are_answered_without_reading_documents() {
    let scratch = Scratch::with_january();
    let find = |words: &[&str]| scratch.run(&[&["find", "db", "-c", "flights"], words].concat());
    let query = ["--group-by", "origin", "--sum", "distance", "--mean", "distance"];
    let read = find(&query);
    assert!(read.stderr.contains("27,004 documents read by a scan of all"), "{}", read.stderr);
    scratch.ok(&["view", "add", "db", "-c", "flights", "by_origin", "--key", "origin", "--sum", "distance"]);
    let reduced = find(&query);
    assert_eq!(reduced.stdout, read.stdout);
    let how = "0 documents read by the reductions of the view by_origin";
    assert!(reduced.stderr.contains(how), "{}", reduced.stderr);
    let plan = json(&find(&[&query[..], &["--explain", "--json"]].concat()).stdout);
    assert_eq!(
        (&plan["way"], &plan["view"], &plan["reads"]),
        (&"reductions".into(), &"by_origin".into(), &0.into())
    );
    let shown = find(&[&query[..], &["--explain", "origin=JFK"]].concat()).stdout;
    assert!(shown.contains("the reductions of the view by_origin: origin = JFK"), "{shown}");
}

/// What a reduction reads, before it is asked for.
#[test]
fn the_plan_of_a_reduction_names_its_view_and_what_it_reads() {
    let scratch = Scratch::with_rows("id,town,n\n1,Oslo,5\n2,Voss,6\n3,Oslo,7\n4,,8\n", &["--key", "id"]);
    scratch.ok(&["view", "add", "db", "-c", "rows", "by_town", "--key", "town", "--sum", "n"]);
    let reduce = |words: &[&str]| scratch.ok(&[&["reduce", "db", "-c", "rows", "--explain"], words].concat());
    let shown = reduce(&["--view", "by_town", "--prefix", "Oslo"]);
    for part in [
        "the view by_town: prefix Oslo",
        "0 of 4 documents; the nodes on two paths of its tree, whatever",
        "count, sum of n of 2 of 3 rows",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let shown = reduce(&["--view", "by_town", "--group", "1"]);
    assert!(shown.contains("the nodes on two paths of its tree for each town"), "{shown}");
    let shown = reduce(&["--to", "3"]);
    assert!(shown.contains("the key: to 3") && shown.contains("count of 2 of 4 rows"), "{shown}");
}

/// Numbers of both types are one order, and text is in no order with them: an answer that lacks rows, or has
/// others, is wrong without a word.
#[test]
fn numbers_among_texts_are_compared_by_their_value() {
    let scratch = Scratch::new();
    let rows = ["5", "\"n/a\"", "7.5", "9", "\"1000\""];
    let line = |(id, n): (usize, &&str)| format!("{{\"id\":{id},\"n\":{n},\"a\":{{\"n\":{n}}}}}\n");
    scratch.write("rows.ndjson", rows.iter().enumerate().map(line).collect::<String>());
    scratch.ok(&["import", "db", "rows.ndjson", "-c", "rows", "--key", "id", "--durability", "process"]);
    let check = |words: &[&str], ids: &str, warning: bool| {
        let flags = ["find", "db", "-c", "rows", "--format", "csv", "--fields", "id"];
        let ran = scratch.run(&[&flags, words].concat());
        let mut found: Vec<&str> = ran.stdout.lines().skip(1).collect();
        found.sort_unstable();
        assert_eq!(found.concat(), ids, "{words:?}: {}", ran.stderr);
        assert_eq!(ran.stderr.contains("warning"), warning, "{words:?}: {}", ran.stderr);
    };
    let all = || {
        for field in ["n", "a.n"] {
            check(&[&format!("{field}>5")], "23", true);
            check(&[&format!("{field}>5.0")], "23", true);
            check(&[&format!("{field}<8")], "02", true);
            check(&[&format!("{field}=9.0")], "3", true);
            check(&[&format!("{field}>=\"1\"")], "14", false);
        }
    };
    all();
    let text = "warning: n is the text \"1000\" in some documents: n>5 compares numbers only\nhint: 'n>\"5\"' compares";
    let said = scratch.run(&["find", "db", "-c", "rows", "n>5"]).stderr;
    assert!(said.contains(text), "{said}");
    let sum = scratch.run(&["find", "db", "-c", "rows", "--sum", "n"]);
    assert!(sum.code == Some(1) && sum.stderr.contains("'n>=-1e308'"), "{}", sum.stderr);
    let means = scratch.ok(&["find", "db", "-c", "rows", "n>=-1e308", "--mean", "n", "--sum", "n", "--json"]);
    assert_eq!(means, "{\"count\":3,\"sum_n\":21.5,\"mean_n\":7.166666666666667}\n");
    scratch.ok(&["view", "add", "db", "-c", "rows", "by_n", "--key", "n"]);
    scratch.ok(&["view", "add", "db", "-c", "rows", "by_a", "--key", "a.n"]);
    all();
}

#[test]
fn a_column_of_any_type_in_csv_is_text_and_the_import_says_so() {
    let scratch = Scratch::new();
    scratch.write("rows.csv", "id,n\n1,5\n2,n/a\n3,7.5\n");
    let ran = scratch.run(&["import", "db", "rows.csv", "-c", "rows", "--key", "id", "--type", "n=any"]);
    assert!(ran.stderr.contains("warning: --type n=any: the values of CSV have no types"), "{}", ran.stderr);
    let ran = scratch.run(&["find", "db", "-c", "rows", "n>6"]);
    assert!(ran.stderr.contains("n is the text \"5\" in some documents"), "{}", ran.stderr);
}

/// A typo in the name of a column is an error. One inside of values would find nothing in silence.
#[test]
fn a_path_that_no_document_has_is_warned_about() {
    let rows = "{\"id\":1,\"home\":{\"city\":\"Oslo\"},\"lines\":[{\"price\":5}]}\n{\"id\":2,\"home\":{}}\n";
    let scratch = Scratch::new();
    scratch.write("rows.ndjson", rows);
    scratch.ok(&["import", "db", "rows.ndjson", "-c", "rows", "--key", "id", "--durability", "process"]);
    let check = |words: &[&str], wanted: Option<&str>| {
        let words = [&["find", "db", "-c", "rows"], words].concat();
        let ran = scratch.run(&words);
        assert_eq!(ran.code, Some(0), "{words:?}: {}", ran.stderr);
        match wanted {
            Some(wanted) => assert!(ran.stderr.contains(wanted), "{words:?}: {}", ran.stderr),
            None => assert!(!ran.stderr.contains("warning"), "{words:?}: {}", ran.stderr),
        }
    };
    let typo = "warning: no document has a value at home.ctiy\nhint: did you mean city?\n";
    check(&["home.ctiy=Oslo"], Some(typo));
    check(&["--fields", "home.ctiy"], Some(typo));
    check(&["--order-by", "home.ctiy:desc"], Some(typo));
    check(&["--group-by", "home.ctiy"], Some(typo));
    check(&["lines[].prize=5"], Some("no document has a value at lines[].prize\nhint: did you mean price?"));
    check(&["home.city=Voss"], None);
    check(&["lines[].price=5", "--fields", "id,home.city"], None);
}
