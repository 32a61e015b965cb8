//! The rows that a key, a prefix and a range select.

use crate::runner::{Scratch, json};

const ROWS: &str = "town,day,n\nA,1,1\nA,2,2\nA,10,4\nAB,1,8\nB,-3,16\nB,0,32\n";

fn rows() -> Scratch {
    Scratch::with_rows(ROWS, &["--key", "town,day", "--sum", "n"])
}

fn check_sum(scratch: &Scratch, flags: &[&str], sum: i64) {
    let found = json(&scratch.ok(&[&["reduce", "db", "-c", "rows", "--json"], flags].concat()));
    assert_eq!(found["sum"]["n"], sum, "{flags:?}");
    let counted = json(&scratch.ok(&[&["count", "db", "-c", "rows", "--json"], flags].concat()));
    assert_eq!(counted["count"], u64::from(sum.count_ones()), "{flags:?}");
    let scanned = scratch.ok(&[&["scan", "db", "-c", "rows", "--json"], flags].concat());
    assert_eq!(scanned.lines().count() as u64, u64::from(sum.count_ones()), "{flags:?}");
}

#[test]
fn ranges_are_half_open_and_prefixes_are_whole_elements() {
    let scratch = rows();
    check_sum(&scratch, &[], 63);
    check_sum(&scratch, &["--prefix", "A"], 7);
    check_sum(&scratch, &["--prefix", "A,2"], 2);
    check_sum(&scratch, &["--prefix", "a"], 0);
    check_sum(&scratch, &["--from", "A,2"], 62);
    check_sum(&scratch, &["--to", "A,10"], 3);
    check_sum(&scratch, &["--from", "A", "--to", "B"], 15);
    check_sum(&scratch, &["--from", "AB", "--to", "B,0"], 24);
    check_sum(&scratch, &["--from", "B", "--to", "A"], 0);
    check_sum(&scratch, &["--prefix", "[\"B\",-3]"], 16);
    check_sum(&scratch, &["--prefix", "\"A\""], 7);
}

#[test]
fn a_prefix_that_is_not_a_whole_element_finds_nothing_and_says_so() {
    let scratch = Scratch::with_january();
    let ran = scratch.run(&["count", "db", "-c", "flights", "--prefix", "U"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "0\n"));
    assert_eq!(ran.stderr, "no key of flights begins with carrier = U\n");
    let ran = scratch.run(&["scan", "db", "-c", "flights", "--prefix", "U"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), ""));
    assert_eq!(ran.stderr, "no key of flights begins with carrier = U\n");
}

#[test]
fn scans_go_both_ways_and_stop_where_told() {
    let scratch = rows();
    let days = |flags: &[&str]| -> Vec<i64> {
        let out = scratch.ok(&[&["scan", "db", "-c", "rows", "--json"], flags].concat());
        out.lines().map(|line| json(line)["n"].as_i64().unwrap()).collect()
    };
    assert_eq!(days(&[]), [1, 2, 4, 8, 16, 32]);
    assert_eq!(days(&["--reverse", "--limit", "2"]), [32, 16]);
    assert_eq!(days(&["--prefix", "A", "--reverse"]), [4, 2, 1]);
    assert_eq!(days(&["--limit", "0"]), [0; 0]);
    let table = scratch.ok(&["scan", "db", "-c", "rows", "--prefix", "AB"]);
    assert_eq!(table, "town  day    n\ntext  int  int\n────  ───  ───\nAB      1    8\n");
}

#[test]
fn one_document_is_put_got_and_deleted() {
    let scratch = rows();
    let get = |key: &str| scratch.run(&["get", "db", "-c", "rows", "--json", "--key", key]);
    assert_eq!(json(&get("A,10").stdout)["document"]["n"], 4);
    let absent = get("A,11");
    assert_eq!((absent.code, absent.stdout.as_str()), (Some(1), ""));
    assert!(json(&absent.stderr)["message"].as_str().unwrap().contains("no document under A,11"));

    scratch.ok(&["put", "db", "{\"town\":\"A\",\"day\":11,\"n\":64,\"new\":[1]}", "-c", "rows"]);
    assert_eq!(json(&get("[\"A\",11]").stdout)["document"]["new"][0], 1);
    let ran = scratch.run_with_input(&["put", "db", "-c", "rows", "--key", "C,-1"], b"{\"n\":128}");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    check_sum(&scratch, &["--from", "A,11", "--to", "A,12"], 64);
    check_sum(&scratch, &["--prefix", "C"], 128);

    assert!(
        scratch.ok(&["del", "db", "-c", "rows", "--key", "A,11"]).starts_with("deleted 1 document of rows")
    );
    assert_eq!(scratch.run(&["del", "db", "-c", "rows", "--key", "A,11"]).code, Some(1));
    assert!(scratch.ok(&["del", "db", "-c", "rows", "--prefix", "A"]).starts_with("deleted 3 documents"));
    check_sum(&scratch, &[], 8 + 16 + 32 + 128);
    assert_eq!(scratch.run(&["del", "db", "-c", "rows", "--all"]).code, Some(2));
    check_sum(&scratch, &[], 8 + 16 + 32 + 128);
    scratch.ok(&["del", "db", "-c", "rows", "--all", "--yes"]);
    check_sum(&scratch, &[], 0);
    scratch.ok(&["check", "db", "--deep"]);
}
