//! Slips of first queries: each message names a way that works.

use crate::runner::{Ran, Scratch};

fn said(ran: &Ran, words: &str) {
    assert!(ran.stderr.contains(words), "{words}: {}", ran.stderr);
}

/// Conditions as other languages have them, or as a shell leaves them without quotes.
#[test]
fn conditions_of_other_languages_are_translated() {
    let scratch = Scratch::with_rows("id,town,n\n1,UA1,5\n2,Oslo,7\n", &["--key", "id"]);
    for (words, hint) in [
        (&["town like '%UA%'"][..], "write 'town contains UA'\n"),
        (&["town like 'UA%'"], "write 'town starts with UA'\n"),
        (&["town like UA1"], "write town=UA1\n"),
        (&["n between 5 and 10"], "write 'n>=5' 'n<=10'\n"),
        (&["town not in UA1,Voss"], "write 'town!=UA1' 'town!=Voss'\n"),
        (&["town not in ('UA1', 'Voss')"], "write 'town!=UA1' 'town!=Voss'\n"),
        (&["town is not Oslo"], "write 'town!=Oslo'\n"),
        (&["town", "contains", "UA"], "a condition with blanks is one word: quote it, 'town contains UA'\n"),
        (&["n=5", "town", "is", "not", "null"], "quote it, 'town is not null'\n"),
        (&["Town=UA1"], "did you mean town?\n"),
        (&["--fields", "id, town"], "write --fields without blanks after the commas: town is a field\n"),
        (&["--order-by", "n desc"], "write --order-by n:desc\n"),
    ] {
        let ran = scratch.run(&[&["find", "db", "-c", "rows"], words].concat());
        assert_eq!(ran.code, Some(2), "{words:?}: {}", ran.stderr);
        said(&ran, hint);
    }
}

/// A proposal is a command that works, and then is the way that the query takes.
#[test]
fn proposed_views_have_a_free_name_and_serve_the_query() {
    let scratch = Scratch::with_rows("id,town,n\n1,Oslo,5\n2,Voss,7\n3,,8\n", &["--key", "id", "--sum", "n"]);
    scratch.ok(&["view", "add", "db", "-c", "rows", "by_town", "--key", "n"]);
    let explain = |words: &[&str]| scratch.run(&[&["find", "db", "-c", "rows", "--explain"], words].concat());
    let follow = |words: &[&str], part: &str| {
        let ran = explain(words);
        let line = ran.stderr.lines().find(|line| line.contains("duramen view add")).unwrap_or_default();
        let (_, command) =
            line.split_once(": duramen ").unwrap_or_else(|| panic!("{words:?}: {}", ran.stderr));
        scratch.ok(&command.split(' ').collect::<Vec<_>>());
        let after = explain(words);
        assert!(after.stdout.contains(part), "{command}: {}", after.stdout);
        assert!(!after.stderr.contains("duramen view add"), "{command}: {}", after.stderr);
    };
    follow(&["town=Oslo"], "the view by_town_2: town = Oslo");
    follow(&["--group-by", "town", "--mean", "n"], "the reductions of the view by_town_3");
    follow(&["--order-by", "town,n:desc", "--limit", "1"], "the view by_town_n");
    let kept = "`duramen reduce db -c rows` reads no document";
    said(&explain(&["--sum", "n"]), kept);
    assert!(!explain(&["--sum", "n", "id>1"]).stderr.contains(kept));
}

#[test]
fn a_join_that_finds_nothing_names_the_key() {
    let scratch =
        Scratch::with_rows("id,hour,place\n1,9,JFK\n2,10,LGA\n", &["--key", "id", "--type", "hour=text"]);
    scratch.write("weather.csv", "place,hour,wind\nJFK,9,5\n");
    scratch.ok(&[
        "import",
        "db",
        "weather.csv",
        "-c",
        "weather",
        "--key",
        "place,hour",
        "--type",
        "hour=text",
    ]);
    let find = |join: &str| scratch.run(&["find", "db", "-c", "rows", "--join", join]);
    said(
        &find("weather=hour,place"),
        "warning: --join weather=hour,place: no document has a counterpart\n\
         hint: the key of weather is place,hour: name fields with these values, in this order\n",
    );
    assert!(!find("weather=place,hour").stderr.contains("warning"));
    said(&find("wether=place,hour"), "hint: did you mean weather?\n");
}
