//! January's flights imported and exported: exact figures, and nothing lost on the way.

use crate::runner::{FLIGHTS, JANUARY, Scratch, gunzip, json, sorted};

fn check_reduce(scratch: &Scratch, prefix: Option<&str>, count: u64, dep_delay: i64) {
    let mut args = vec!["reduce", "db", "-c", "flights", "--json"];
    args.extend(prefix.map(|prefix| ["--prefix", prefix]).into_iter().flatten());
    let found = json(&scratch.ok(&args));
    assert_eq!(found["count"], count, "{prefix:?}");
    assert_eq!(found["sum"]["dep_delay"], dep_delay, "{prefix:?}");
}

#[test]
fn the_numbers_of_january() {
    let scratch = Scratch::with_january();
    check_reduce(&scratch, None, 27_004, 265_801);
    check_reduce(&scratch, Some("EV"), 4_171, 96_649);
    check_reduce(&scratch, Some("UA"), 4_637, 38_342);
    check_reduce(&scratch, Some("UA,2013-01-01T10:00:00Z"), 3, 2);
    let all = json(&scratch.ok(&["reduce", "db", "-c", "flights", "--json"]));
    assert_eq!(all["sum"]["distance"], 27_188_805);
    assert_eq!(all["nulls"]["dep_delay"], 521);
    let checked = json(&scratch.ok(&["check", "db", "--json", "--deep"]));
    assert_eq!(checked["ok"], true);
    assert_eq!(checked["documents"], 27_004);
}

#[test]
fn csv_comes_out_as_it_went_in() {
    let scratch = Scratch::with_january();
    let exported = scratch.ok(&["export", "db", "-c", "flights", "--format", "csv"]);
    let original = gunzip(JANUARY.as_ref());
    assert_eq!(exported.lines().next(), original.lines().next());
    assert_eq!(sorted(&exported), sorted(&original));

    scratch.write("again.csv", &exported);
    scratch.ok(&[&["import", "again", "again.csv"], FLIGHTS].concat());
    assert_eq!(scratch.ok(&["export", "again", "-c", "flights", "--format", "csv"]), exported);
}

#[test]
fn ndjson_comes_out_as_it_went_in() {
    let scratch = Scratch::with_january();
    let exported = scratch.ok(&["export", "db", "-c", "flights", "--format", "ndjson"]);
    assert_eq!(exported.lines().count(), 27_004);
    assert_eq!(scratch.ok(&["scan", "db", "-c", "flights", "--json"]), exported);
    scratch.write("again.ndjson", &exported);
    scratch.ok(&[&["import", "again", "again.ndjson"], FLIGHTS].concat());
    assert_eq!(scratch.ok(&["export", "again", "-c", "flights", "--format", "ndjson"]), exported);
}

#[test]
fn a_stream_and_many_threads_store_the_same() {
    let scratch = Scratch::with_january();
    let exported = scratch.ok(&["export", "db", "-c", "flights", "--format", "ndjson"]);
    let args = ["import", "other", "-", "--format", "csv", "--threads", "4", "--batch", "333", "--ack"];
    let ran = scratch.run_with_input(&[&args, FLIGHTS].concat(), &std::fs::read(JANUARY).unwrap());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(scratch.ok(&["export", "other", "-c", "flights", "--format", "ndjson"]), exported);

    let acks: Vec<Vec<u64>> = ran
        .stdout
        .lines()
        .map(|line| line.strip_prefix("ack ").unwrap().split(' ').map(|word| word.parse().unwrap()).collect())
        .collect();
    let mut batches: Vec<u64> = acks.iter().map(|ack| ack[0]).collect();
    batches.sort_unstable();
    assert_eq!(batches, (1..=27_004_u64.div_ceil(333)).collect::<Vec<_>>());
    assert!(acks.is_sorted_by_key(|ack| ack[1]), "rows only grow");
    assert_eq!(acks.last().unwrap()[1], 27_004);
}

#[test]
fn a_key_that_is_there_is_refused_unless_it_is_to_be_replaced() {
    let scratch = Scratch::with_january();
    let again = [&["import", "db", JANUARY], FLIGHTS].concat();
    let ran = scratch.run(&again);
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.stderr.contains("line 2: flights has a document under UA,2013-01-01T10:00:00Z,1545,EWR"),
        "{}",
        ran.stderr
    );
    assert!(
        ran.stderr.contains("nothing of this import is stored") && ran.stderr.contains("--replace"),
        "{}",
        ran.stderr
    );
    scratch.ok(&[&again[..], &["--replace"]].concat());
    check_reduce(&scratch, None, 27_004, 265_801);
    // Key, sums and null marker are stored: a later import need not repeat them.
    scratch.ok(&["import", "db", JANUARY, "-c", "flights", "--replace"]);
    check_reduce(&scratch, None, 27_004, 265_801);
}

#[test]
fn other_terms_than_the_stored_ones_are_refused() {
    let scratch = Scratch::with_january();
    for (flags, words) in [
        (["--key", "flight,carrier"], "has the key (carrier,time_hour,flight,origin)"),
        (["--sum", "air_time"], "has the sums (dep_delay,distance)"),
        (["--type", "flight=text"], "the column flight of flights holds int"),
    ] {
        let ran =
            scratch.run(&[&["import", "db", JANUARY, "-c", "flights", "--replace"], &flags[..]].concat());
        assert!(matches!(ran.code, Some(1 | 2)), "{flags:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(words), "{flags:?}: {}", ran.stderr);
    }
}

/// A pipe that is closed early, as by `head`.
#[test]
fn a_reader_that_goes_away_is_no_error() {
    use std::io::{BufRead, BufReader, Read};

    let scratch = Scratch::with_january();
    for args in [
        &["scan", "db", "-c", "flights", "--json"][..],
        &["scan", "db", "-c", "flights"],
        &["export", "db", "-c", "flights", "--format", "csv"],
        &["export", "db", "-c", "flights", "--format", "ndjson"],
    ] {
        let mut child = scratch.spawn(args);
        let mut line = String::new();
        BufReader::with_capacity(16, child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!((child.wait().unwrap().code(), said.as_str()), (Some(0), ""), "{args:?}");
    }
}
