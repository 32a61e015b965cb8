//! `find`: the same documents by any access path, which is reported.

use std::collections::BTreeSet;

use duramen::prelude::*;

use crate::runner::{Scratch, json, no_child_starts};

fn find(scratch: &Scratch, words: &[&str]) -> usize {
    let found = scratch.ok(&[&["find", "db", "-c", "flights", "--json"], words].concat());
    found.lines().count()
}

fn plan(scratch: &Scratch, words: &[&str]) -> serde_json::Value {
    json(&scratch.ok(&[&["find", "db", "-c", "flights", "--json", "--explain"], words].concat()))
}

/// By the key, with a range of it, and past it: counts of the data, and the rows that each access path reads.
#[test]
fn the_key_leads_to_documents_as_far_as_it_goes() {
    let scratch = Scratch::with_january();
    assert_eq!(find(&scratch, &["carrier=UA"]), 4_637);
    assert_eq!(
        find(&scratch, &["origin=EWR", "carrier=UA"]),
        find(&scratch, &["carrier=UA", "origin=EWR", "month=1"])
    );
    let hour = ["carrier=UA", "time_hour>=2013-01-01T10:00:00Z", "time_hour<=2013-01-01T10:00:00Z"];
    assert_eq!(find(&scratch, &hour), 3);
    let hour = plan(&scratch, &hour);
    assert_eq!((&hour["way"], &hour["reads"], &hour["exact"]), (&"key".into(), &3.into(), &true.into()));
    let origin = plan(&scratch, &["carrier=UA", "origin=EWR"]);
    assert_eq!((&origin["reads"], &origin["exact"]), (&4_637.into(), &false.into()));
    assert_eq!(origin["suggestion"], "duramen view add db -c flights by_carrier_origin --key carrier,origin");
}

#[test]
fn fields_outside_of_the_key_are_found_by_reading_all() {
    let scratch = Scratch::with_january();
    assert_eq!(find(&scratch, &["dep_delay:=null"]), 521);
    let late = find(&scratch, &["dep_delay>=60"]);
    assert_eq!(late + find(&scratch, &["dep_delay<60"]) + 521, 27_004);
    let plan = plan(&scratch, &["dep_delay>=60"]);
    assert_eq!(
        (&plan["way"], &plan["reads"], &plan["needs_scan"]),
        (&"scan".into(), &27_004.into(), &false.into())
    );
}

#[test]
fn order_and_limit() {
    let scratch = Scratch::with_rows("id,n\n1,5\n2,6\n3,7\n", &["--key", "id"]);
    let ids = |words: &[&str]| -> Vec<i64> {
        let found = scratch.ok(&[&["find", "db", "-c", "rows", "--json"], words].concat());
        found.lines().map(|line| json(line)["id"].as_i64().unwrap()).collect()
    };
    assert_eq!(ids(&["n>=6"]), [2, 3]);
    assert_eq!(ids(&["n>=6", "--reverse", "--limit", "1"]), [3]);
    assert_eq!(ids(&[]), [1, 2, 3]);
    let shown = scratch.run(&["find", "db", "-c", "rows", "n>5"]);
    assert_eq!(shown.stdout, " id    n\nint  int\n───  ───\n  2    6\n  3    7\n");
    assert!(shown.stderr.contains("2 rows; 3 documents read by a scan of all"), "{}", shown.stderr);
}

#[test]
fn what_cannot_be_asked_is_refused_with_what_could() {
    let scratch = Scratch::with_rows("id,town\n1,Oslo\n", &["--key", "id"]);
    for (condition, hint) in
        [("twon=Oslo", "did you mean town?"), ("town", "write town=VALUE"), ("id=x", "'id is null'")]
    {
        let ran = scratch.run(&["find", "db", "-c", "rows", condition]);
        assert_eq!(ran.code, Some(2), "{condition}");
        assert!(ran.stderr.contains(hint), "{condition}: {}", ran.stderr);
    }
}

/// As text 10 comes before 9: the answer is right for text, and wrong for the question.
#[test]
fn a_number_that_is_compared_with_text_is_warned_about() {
    let scratch = Scratch::with_rows("id,n,t\n1,9,5\n2,10,6\n3,NA,7\n", &["--key", "id", "--type", "t=text"]);
    let check = |condition: &str, words: Option<&str>| {
        let ran = scratch.run(&["find", "db", "-c", "rows", condition]);
        assert_eq!(ran.code, Some(0), "{condition}: {}", ran.stderr);
        let said = format!("warning: the column n is text, and {condition} compares text: ");
        match words {
            Some(words) => {
                assert!(ran.stderr.starts_with(&said) && ran.stderr.contains(words), "{}", ran.stderr);
                assert!(ran.stderr.contains("\nhint: to compare numbers, import again"), "{}", ran.stderr);
                assert!(ran.stderr.contains("--type n=int"), "{}", ran.stderr);
            }
            None => assert!(!ran.stderr.contains("warning"), "{condition}: {}", ran.stderr),
        }
    };
    check("n>5", Some("as text 10 comes before 9"));
    check("n<=-1.5", Some("as text 10 comes before 9"));
    check("n=10", Some("10 and 10.0 are different texts"));
    check("n!=10", Some("different texts"));
    for condition in ["n:=\"10\"", "n:=null", "n>A", "n=NA", "n=", "id>1"] {
        check(condition, None);
    }
    let ran = scratch.run(&["find", "db", "-c", "rows", "n>5", "--json"]);
    let warning = json(ran.stderr.trim_end());
    assert_eq!((&warning["kind"], ran.stdout.lines().count()), (&"warning".into(), 2));
    assert!(warning["hint"].as_str().unwrap().contains("--type n=int"));
    let plan = json(&scratch.ok(&["find", "db", "-c", "rows", "n>5", "--json", "--explain"]));
    assert_eq!(plan["warnings"].as_array().unwrap().len(), 1, "{plan}");
    let quiet = scratch.run(&["find", "db", "-c", "rows", "n>5", "-q"]);
    assert_eq!(quiet.stderr, "");
}

/// A search that would read a large collection does not start by mistake; the error shows how to make it
/// cheap.
#[test]
fn reading_very_many_documents_needs_a_word() {
    let mut rows = String::from("id,n\n");
    for id in 0..100_001 {
        rows.push_str(&format!("{id},{}\n", id % 7));
    }
    let scratch = Scratch::with_rows(&rows, &["--key", "id", "--durability", "process", "--batch", "20000"]);
    let ran = scratch.run(&["find", "db", "-c", "rows", "n=3", "--limit", "1"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("reads 100,001 of 100,001 documents"), "{}", ran.stderr);
    assert!(ran.stderr.contains("`duramen view add db -c rows by_n --key n`"), "{}", ran.stderr);
    let found = scratch.ok(&["find", "db", "-c", "rows", "n=3", "--scan", "--json"]);
    assert_eq!(found.lines().count(), 14_286);
    assert_eq!(scratch.ok(&["find", "db", "-c", "rows", "id<5", "n=3"]).lines().count(), 4);
}

mod renamed {
    use super::*;

    #[derive(Serialize, Deserialize, Collection)]
    #[collection(name = "customers")]
    pub(super) struct Before {
        #[key]
        pub(super) id: u64,
        pub(super) mail: Option<String>,
    }

    #[derive(Serialize, Deserialize, Collection)]
    #[collection(name = "customers", view(ByEmail, key = email))]
    pub(super) struct After {
        #[key]
        pub(super) id: u64,
        #[serde(alias = "mail")]
        pub(super) email: Option<String>,
    }
}

/// A renamed field is one field with two names: both find documents from before the rename, by any access
/// path.
#[test]
fn documents_from_before_a_field_was_renamed_are_found_by_its_new_name() {
    let scratch = Scratch::new();
    {
        let _alone = no_child_starts();
        let db = Db::open(scratch.path("db")).unwrap();
        let mail = |id: u64| Some(format!("{id}@example.org"));
        (1..=2).for_each(|id| drop(db.put(&renamed::Before { id, mail: mail(id) }).unwrap()));
        db.put(&renamed::Before { id: 3, mail: None }).unwrap();
        (4..=5).for_each(|id| drop(db.put(&renamed::After { id, email: mail(id) }).unwrap()));
        db.build_views::<renamed::After>(|_| Ok(())).unwrap();
        db.close().unwrap();
    }
    let ids = |words: &[&str]| -> BTreeSet<u64> {
        let found = scratch.ok(&[&["find", "db", "-c", "customers", "--json"], words].concat());
        found.lines().map(|line| json(line)["id"].as_u64().unwrap()).collect()
    };
    let way = scratch.ok(&["find", "db", "-c", "customers", "email=2@example.org", "--explain", "--json"]);
    assert!(way.contains("by_email"), "{way}");
    for field in ["email", "mail"] {
        assert_eq!(ids(&[&format!("{field}=2@example.org")]), [2].into());
        assert_eq!(ids(&[&format!("{field}=4@example.org")]), [4].into());
        assert_eq!(ids(&[&format!("{field}:=null")]), [3].into());
        assert_eq!(ids(&[&format!("{field}!=2@example.org")]), [1, 3, 4, 5].into());
        assert_eq!(ids(&[&format!("{field}>=2"), "id<5"]), [2, 4].into());
    }
}

/// Counts of the January flights, each found without Duramen.
#[test]
fn conditions_combine_and_are_counted() {
    let scratch = Scratch::with_january();
    let check = |words: &[&str], expected: &str| {
        let counted = scratch.ok(&[&["find", "db", "-c", "flights", "--count"], words].concat());
        assert_eq!(counted.trim(), expected, "{words:?}");
        assert_eq!(find(&scratch, words), expected.parse::<usize>().unwrap(), "{words:?}");
    };
    check(&[], "27004");
    check(&["carrier=UA"], "4637");
    check(&["carrier in UA,EV"], "8808");
    check(&["carrier=UA", "or", "carrier=EV"], "8808");
    check(&["dep_delay is null"], "521");
    check(&["dep_delay is not null"], "26483");
    check(&["carrier starts with E"], "4171");
    check(&["carrier=UA", "(", "dep_delay is null", "or", "dep_delay is not null", ")"], "4637");
    let json = json(&scratch.ok(&["find", "db", "-c", "flights", "--count", "--json", "carrier=UA"]));
    assert_eq!((&json["kind"], &json["count"]), (&"count".into(), &4_637.into()));
    let plan = plan(&scratch, &["carrier in UA,EV"]);
    assert_eq!((&plan["way"], &plan["reads"], &plan["exact"]), (&"key".into(), &8_808.into(), &true.into()));
}

/// The rows of a query in JSON, and the same as a table without failing.
fn rows(scratch: &Scratch, words: &[&str]) -> Vec<serde_json::Value> {
    let command = [&["find", "db", "-c", "flights"], words].concat();
    assert!(!scratch.ok(&command).is_empty());
    scratch.ok(&[&command[..], &["--json"]].concat()).lines().map(json).collect()
}

/// Groups of the January flights against sums of the contract, which awk finds too.
#[test]
fn groups_orders_and_fields() {
    let scratch = Scratch::with_january();
    let by_carrier = rows(&scratch, &["--group-by", "carrier", "--sum", "dep_delay", "carrier in UA,EV"]);
    assert_eq!(by_carrier[0].to_string(), r#"{"carrier":"EV","count":4171,"sum_dep_delay":96649}"#);
    assert_eq!(by_carrier[1].to_string(), r#"{"carrier":"UA","count":4637,"sum_dep_delay":38342}"#);
    let all = rows(&scratch, &["--sum", "distance", "--distinct", "carrier", "--quantile", "dep_delay:0.5"]);
    let (sum, distinct) = (&all[0]["sum_distance"], &all[0]["distinct_carrier"]);
    assert_eq!((all.len(), sum, distinct), (1, &27_188_805.into(), &16.into()));
    let most = rows(&scratch, &["--group-by", "carrier", "--order-by", "count:desc", "--limit", "1"]);
    assert_eq!((most.len(), &most[0]["carrier"], &most[0]["count"]), (1, &"UA".into(), &4_637.into()));
    let late =
        rows(&scratch, &["--order-by", "dep_delay:desc", "--limit", "2", "--fields", "carrier,dep_delay"]);
    assert_eq!(late[0].to_string(), r#"{"carrier":"HA","dep_delay":1301}"#);
    assert_eq!(late.len(), 2);
    let plan = plan(&scratch, &["--order-by", "dep_delay:desc", "--limit", "2"]);
    assert_eq!((&plan["sort"], &plan["reads"]), (&"first".into(), &27_004.into()));
    let shown = scratch.ok(&["find", "db", "-c", "flights", "--order-by", "dep_delay", "--explain"]);
    assert!(shown.contains("sorts what is found, in memory up to 65536 KiB"), "{shown}");
    let shown = scratch.ok(&[
        "find",
        "db",
        "-c",
        "flights",
        "--group-by",
        "carrier",
        "--max",
        "distance",
        "--explain",
    ]);
    assert!(shown.contains("by carrier: count, max_distance"), "{shown}");
}

#[test]
fn threads_count_and_group_what_one_does() {
    let scratch = Scratch::with_january();
    let run = |words: &[&str]| scratch.ok(&[&["find", "db", "-c", "flights"], words].concat());
    for words in [&["--count", "dep_delay>=60"] as &[&str], &["--group-by", "carrier", "--sum", "distance"]] {
        assert_eq!(run(&[words, &["--threads", "2"]].concat()), run(words));
    }
    let ran = scratch.run(&["find", "db", "-c", "flights", "carrier=UA", "--threads", "2"]);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(ran.stderr.contains("leave --threads out, or ask for --count, --group-by"), "{}", ran.stderr);
}

#[test]
fn a_join_shows_what_it_finds() {
    let scratch = Scratch::with_rows("id,town\n1,Oslo\n2,Voss\n3,\n", &["--key", "id"]);
    std::fs::write(scratch.path("towns.csv"), "name,people\nOslo,700\n").unwrap();
    scratch.ok(&["import", "db", "towns.csv", "-c", "towns", "--key", "name"]);
    let found = |words: &[&str]| scratch.ok(&[&["find", "db", "-c", "rows", "--json"], words].concat());
    let fields = ["--fields", "id,towns.people"];
    assert_eq!(
        found(&[&["--join", "towns=town"][..], &fields].concat()),
        "{\"id\":1,\"towns.people\":700}\n"
    );
    let left = found(&[&["--left-join", "towns=town"][..], &fields].concat());
    assert_eq!(left.lines().count(), 3);
    let large = ["--left-join", "towns=town", "towns.people>=100", "--count"];
    assert_eq!(scratch.ok(&[&["find", "db", "-c", "rows"], &large[..]].concat()), "1\n");
    let shown =
        scratch.run(&["find", "db", "-c", "rows", "--join", "towns=town", "towns.people is not null"]);
    assert!(shown.stdout.contains("Oslo"), "{}", shown.stdout);
    for words in
        [&["--join", "towns"][..], &["--join", "twons=town"], &["--quantile", "id"], &["--order-by", ":desc"]]
    {
        let ran = scratch.run(&[&["find", "db", "-c", "rows"], words].concat());
        assert!(matches!(ran.code, Some(1 | 2)) && ran.stderr.contains("hint"), "{words:?}: {}", ran.stderr);
    }
}

/// Results as CSV are imported again as they were, and groups are written like documents.
#[test]
fn results_can_be_written_as_csv() {
    let scratch = Scratch::with_rows("id,n,t\n1,5,a\n2,,\"b,c\"\n3,7,\n", &["--key", "id", "--null", ""]);
    let find = |words: &[&str]| scratch.ok(&[&["find", "db", "-c", "rows"], words].concat());
    assert_eq!(find(&["id>=2", "--format", "csv"]), "id,n,t\n2,,\"b,c\"\n3,7,\n");
    assert_eq!(find(&["--format", "csv", "--fields", "t", "--limit", "1"]), "t\na\n");
    assert_eq!(find(&["--sum", "n", "--format", "csv"]), "count,sum_n\n3,12\n");
    assert_eq!(find(&["id=1", "--format", "ndjson"]), "{\"id\":1,\"n\":5,\"t\":\"a\"}\n");
}

/// A count that the tree keeps reads no document, and its plan says so.
#[test]
fn the_plan_of_an_exact_count_reads_nothing() {
    let scratch = Scratch::with_january();
    assert_eq!(plan(&scratch, &["carrier=UA", "--count"])["reads"], 0);
    assert_eq!(plan(&scratch, &["carrier=UA", "origin=EWR", "--count"])["reads"], 4_637);
    let shown = scratch.ok(&["find", "db", "-c", "flights", "carrier=UA", "--count", "--explain"]);
    assert!(shown.contains("0 of 27,004 documents") && shown.contains("which the tree keeps"), "{shown}");
}

/// Slips on a column of text are understood or refused: they found nothing, or something else, in silence.
#[test]
fn slips_on_a_column_of_text_find_no_wrong_number() {
    let scratch = Scratch::with_january();
    let count = |text: &str| scratch.run(&["find", "db", "-c", "flights", "--scan", "--count", text]);
    for (text, same) in [
        ("carrier in UA, AA", "carrier in UA,AA"),
        ("carrier in (UA, AA)", "carrier in UA,AA"),
        ("carrier<>UA", "carrier!=UA"),
        ("origin==JFK", "origin=JFK"),
        ("origin=\"JFK\"", "origin=JFK"),
    ] {
        let (found, wanted) = (count(text).stdout, count(same).stdout);
        assert!(found == wanted && found.trim() != "0", "{text}: {found}, want {wanted}");
    }
    for text in ["tailnum=null", "tailnum!=NA", "carrier=UA and month=2", "carrier=UA, month=2"] {
        assert_ne!(count(text).code, Some(0), "{text}");
    }
}
