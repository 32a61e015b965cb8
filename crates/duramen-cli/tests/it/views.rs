//! Views by name: added, queried, rebuilt, dropped; and kept current by every writer.

use crate::runner::{Scratch, json, no_child_starts};

const PROCESS: &[&str] = &["--durability", "process"];

fn view(scratch: &Scratch, words: &[&str]) -> String {
    scratch.ok(&[&["view"], words, PROCESS].concat())
}

/// January's flights with a view with known sums, and one without the flights that never departed.
fn january() -> Scratch {
    let scratch = Scratch::with_january();
    let added = view(
        &scratch,
        &["add", "db", "-c", "flights", "by_route", "--key", "origin,dest", "--sum", "distance"],
    );
    assert!(added.starts_with("added the view by_route of flights with 27,004 rows"), "{added}");
    let added = view(&scratch, &["add", "db", "-c", "flights", "by_delay", "--key", "dep_delay"]);
    assert!(added.contains("with 26,483 rows"), "{added}");
    scratch
}

#[test]
fn a_view_answers_counts_and_sums_of_any_range() {
    let scratch = january();
    let of = |command: &str, words: &[&str]| {
        json(
            &scratch.ok(&[&[command, "db", "-c", "flights", "--view", "by_route", "--json"], words].concat()),
        )
    };
    assert_eq!(of("reduce", &[])["reductions"][0]["value"], 27_188_805);
    assert_eq!(of("count", &["--prefix", "EWR,IAH"])["count"], 309);
    let groups = of("reduce", &["--group", "1"]);
    let groups = groups["groups"].as_array().unwrap();
    let counts: u64 = groups.iter().map(|group| group["count"].as_u64().unwrap()).sum();
    assert_eq!((groups.len(), counts), (3, 27_004));
    let distance: i64 = groups.iter().map(|group| group["reductions"][0]["value"].as_i64().unwrap()).sum();
    assert_eq!(distance, 27_188_805);
}

/// Every access path finds the same documents, and an incomplete view is not used for documents that it
/// lacks.
#[test]
fn find_takes_the_view_that_fits_and_finds_the_same() {
    let scratch = january();
    let find = |words: &[&str]| {
        let found = scratch.ok(&[&["find", "db", "-c", "flights", "--json"], words].concat());
        let mut lines: Vec<String> = found.lines().map(ToOwned::to_owned).collect();
        lines.sort_unstable();
        lines
    };
    let way = |words: &[&str]| {
        let plan =
            json(&scratch.ok(&[&["find", "db", "-c", "flights", "--json", "--explain"], words].concat()));
        (plan["view"].clone(), plan["reads"].as_u64().unwrap())
    };
    let asked = [
        (&["origin=EWR", "dest=IAH"][..], Some("by_route"), 309),
        (&["origin=EWR", "dest=IAH", "carrier=UA"], Some("by_route"), 309),
        (&["dep_delay>=1000"], Some("by_delay"), 2),
        (&["dep_delay:=null"], None, 27_004),
        (&["dep_delay!=5"], None, 27_004),
    ];
    let with_views: Vec<Vec<String>> = asked.iter().map(|(words, _, _)| find(words)).collect();
    for (words, view, reads) in &asked {
        assert_eq!(way(words), (serde_json::json!(view), *reads), "{words:?}");
    }
    view(&scratch, &["drop", "db", "-c", "flights", "by_route"]);
    view(&scratch, &["drop", "db", "-c", "flights", "by_delay"]);
    for ((words, _, _), found) in asked.iter().zip(&with_views) {
        assert_eq!(&find(words), found, "{words:?}");
        assert!(!found.is_empty(), "{words:?}");
    }
}

#[test]
fn a_named_view_gives_its_order() {
    let scratch = january();
    let latest = ["find", "db", "-c", "flights", "--view", "by_delay", "--reverse", "--limit", "1", "--json"];
    assert_eq!(json(&scratch.ok(&latest))["dep_delay"], 1_301);
    let prefix = ["find", "db", "-c", "flights", "--view", "by_route", "EWR,IAH", "carrier=UA", "--json"];
    let both = ["find", "db", "-c", "flights", "origin=EWR", "dest=IAH", "carrier=UA", "--json"];
    assert_eq!(scratch.ok(&prefix), scratch.ok(&both));
}

#[test]
fn writes_and_rebuilding_keep_a_view_what_its_documents_say() {
    let scratch = january();
    let count = || scratch.ok(&["count", "db", "-c", "flights", "--view", "by_route", "--prefix", "EWR,IAH"]);
    let deleted = scratch.ok(&[&["del", "db", "-c", "flights", "--prefix", "UA"], PROCESS].concat());
    assert!(deleted.starts_with("deleted 4,637"), "{deleted}");
    let left = count();
    assert!(left.trim().parse::<u64>().unwrap() < 309);
    view(&scratch, &["rebuild", "db", "-c", "flights", "by_route"]);
    assert_eq!(count(), left);
    assert!(scratch.ok(&["check", "db", "--deep"]).contains("nothing is wrong"));
}

#[test]
fn documents_without_a_value_have_rows_if_the_view_says_so() {
    let scratch = Scratch::with_rows("id,town\n1,Oslo\n2,NA\n3,NA\n", &["--key", "id", "--null", "NA"]);
    let count = |name: &str| scratch.ok(&["count", "db", "-c", "rows", "--view", name]).trim().to_owned();
    view(&scratch, &["add", "db", "-c", "rows", "by_town", "--key", "town"]);
    view(&scratch, &["add", "db", "-c", "rows", "any_town", "--key", "town", "--nulls"]);
    assert_eq!((count("by_town").as_str(), count("any_town").as_str()), ("1", "3"));
    let without = scratch.ok(&["find", "db", "-c", "rows", "town:=null", "--json"]);
    let ids: Vec<_> = without.lines().map(|line| json(line)["id"].clone()).collect();
    assert_eq!(ids, [2, 3]);
    assert!(scratch.ok(&["view", "list", "db"]).contains("(nulls)"));
}

#[test]
fn a_key_has_parts_of_fields_and_directions() {
    let rows = concat!(
        r#"{"id":1,"home":{"city":"Oslo"},"at":5,"tags":["a"],"a.b":1}"#,
        "\n",
        r#"{"id":2,"home":{"city":"Oslo"},"at":9,"tags":[],"a.b":2}"#,
        "\n",
        r#"{"id":3,"home":null,"at":7,"a.b":3}"#,
        "\n",
    );
    let scratch = Scratch::new();
    scratch.write("rows.ndjson", rows);
    scratch.ok(&["import", "db", "rows.ndjson", "--collection", "rows", "--key", "id"]);
    let add = |words: &[&str]| scratch.run(&[&["view", "add", "db", "-c", "rows"], words, PROCESS].concat());
    for (words, rows) in [
        (&["newest", "--key", "home.city,at:desc"][..], "2 rows"),
        (&["by_tag", "--key", "tags", "--each", "--nulls"], "3 rows"),
        (&["by_dot", "--key", "a.b:desc"], "3 rows"),
    ] {
        let ran = add(words);
        assert!(ran.stdout.contains(rows), "{words:?}: {}{}", ran.stdout, ran.stderr);
    }
    for (key, said) in
        [("at.x", "has no parts"), ("nome.city", "no field nome.city"), ("home..x", "names no field")]
    {
        let ran = add(&["x", "--key", key]);
        assert!(ran.code != Some(0) && ran.stderr.contains(said), "{key}: {}", ran.stderr);
    }
    let list = scratch.ok(&["view", "list", "db"]);
    assert!(list.contains("home.city,at:desc") && list.contains("tags (each) (nulls)"), "{list}");
    let listed = json(&scratch.ok(&["view", "list", "db", "--json"]));
    let form = |name: &str| {
        let views = listed["views"].as_array().unwrap();
        let view = views.iter().find(|view| view["name"] == name).unwrap();
        (view["key"].clone(), view["paths"].clone(), view["descending"].clone())
    };
    let texts = |texts: &[&str]| serde_json::json!(texts);
    assert_eq!(form("newest"), (texts(&["home.city", "at"]), texts(&["home.city"]), texts(&["at"])));
    assert_eq!(form("by_dot"), (texts(&["a.b"]), texts(&[]), texts(&["a.b"])), "a column comes first");

    let count =
        |words: &[&str]| scratch.ok(&[&["count", "db", "-c", "rows"], words].concat()).trim().to_owned();
    assert_eq!(count(&["--view", "newest", "--prefix", "Oslo,9"]), "1");
    assert_eq!(count(&["--view", "newest", "--from", "Oslo,9", "--to", "Oslo,5"]), "1");
    let order =
        ["find", "db", "-c", "rows", "home.city=Oslo", "at>0", "--order-by", "at:desc", "--limit", "1"];
    let plan = json(&scratch.ok(&[&order[..], &["--explain", "--json"]].concat()));
    assert_eq!((plan["view"].clone(), plan["reads"].as_u64()), (serde_json::json!("newest"), Some(2)));
    assert_eq!(json(&scratch.ok(&[&order[..], &["--json"]].concat()))["id"], 2);
    let groups =
        json(&scratch.ok(&["reduce", "db", "-c", "rows", "--view", "newest", "--group", "2", "--json"]));
    assert_eq!(groups["groups"][0]["key"], serde_json::json!(["Oslo", 9]));
    assert!(scratch.ok(&["check", "db", "--deep"]).contains("nothing is wrong"));
}

#[test]
fn what_cannot_be_a_view_is_refused_and_leaves_nothing() {
    let scratch = Scratch::with_rows("id,town\n1,Oslo\n2,Oslo\n", &["--key", "id"]);
    let add = |words: &[&str]| scratch.run(&[&["view", "add", "db", "-c", "rows"], words, PROCESS].concat());
    for (words, code, said) in [
        (&["by_town", "--key", "twon"][..], 2, "did you mean town?"),
        (&["by_town", "--key", "town", "--sum", "x"], 2, "rows has no field x"),
        (&["by_town"], 2, "--key"),
        (&["by_town", "--key", "town", "--unique"], 1, "E0214"),
    ] {
        let ran = add(words);
        assert_eq!(ran.code, Some(code), "{words:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(said), "{words:?}: {}", ran.stderr);
    }
    assert_eq!(json(&scratch.ok(&["view", "list", "db", "--json"]))["views"], serde_json::json!([]));
    assert_eq!(add(&["by_town", "--key", "town"]).code, Some(0));
    assert!(add(&["by_town", "--key", "town"]).stdout.starts_with("had already"));
    let other = add(&["by_town", "--key", "town,id"]);
    assert!(other.stderr.contains("E0210") && other.stderr.contains("--replace"), "{}", other.stderr);
    assert_eq!(add(&["by_town", "--key", "town,id", "--replace"]).code, Some(0));
    for words in [
        &["count", "db", "-c", "rows", "--view", "by_twon"][..],
        &["find", "db", "-c", "rows", "--view", "by_twon"],
    ] {
        let ran = scratch.run(words);
        assert_eq!(ran.code, Some(1), "{words:?}");
        assert!(ran.stderr.contains("did you mean by_town?"), "{}", ran.stderr);
    }
}

mod coded {
    use duramen::prelude::*;
    use duramen::view::{CodedView, Emitter, reduce};

    #[derive(Serialize, Deserialize, Collection)]
    #[collection(name = "notes", coded(ByWord))]
    pub(super) struct Note {
        #[key]
        pub(super) id: u64,
        pub(super) text: String,
    }

    pub(super) struct ByWord;

    impl CodedView for ByWord {
        type Collection = Note;
        type Key = String;
        type Value = (u64, u64);
        type Reduce = (reduce::Sum, reduce::At<reduce::Max<u64>, 1>);
        const NAME: &'static str = "by_word";
        const VERSION: u32 = 1;

        fn map(note: &Note, emit: &mut Emitter<'_, ByWord>) {
            note.text.split(' ').for_each(|word| emit.row(word, (1, word.len() as u64)));
        }
    }
}

/// The values of a view in code have no names, only places.
#[test]
fn reductions_of_a_view_in_code_have_a_heading() {
    let scratch = Scratch::new();
    {
        let _alone = no_child_starts();
        let db = duramen::Db::open(scratch.path("db")).unwrap();
        db.put(&coded::Note { id: 1, text: "one three".to_owned() }).unwrap();
        db.close().unwrap();
    }
    let text = scratch.ok(&["reduce", "db", "-c", "notes", "--view", "by_word"]);
    let header = text.lines().find(|line| line.contains("sum")).unwrap();
    assert!(header.contains(" sum ") && header.contains(" max of value 2 "), "{text}");
    assert!(!text.contains("of  ") && !text.contains("sum of"), "{text}");
    let text = scratch.ok(&["reduce", "db", "-c", "notes", "--view", "by_word", "--explain"]);
    assert!(text.contains("count, sum, max of value 2 of 2 of 2 rows"), "{text}");
}

#[test]
fn more_elements_than_the_key_of_a_view_has_are_refused() {
    let scratch = Scratch::with_rows("id,town,n\n1,Oslo,5\n", &["--key", "id"]);
    scratch.ok(&["view", "add", "db", "-c", "rows", "v", "--key", "town,n"]);
    let reduce = |group: &str| scratch.run(&["reduce", "db", "-c", "rows", "--view", "v", "--group", group]);
    assert_eq!(reduce("2").code, Some(0));
    let ran = reduce("3");
    assert_eq!(ran.code, Some(2), "{}", ran.stdout);
    let words = "--group 3: the key of the view v has 2 fields: town,n\nhint: use --group with 1 to 2\n";
    assert!(ran.stderr.contains(words), "{}", ran.stderr);
}
