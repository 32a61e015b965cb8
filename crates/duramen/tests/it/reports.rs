//! What a program prints of an error, and what it says where a database does not open.

use duramen::Code;
use duramen::prelude::*;

// A `main` that returns the error prints it with `{:?}`.
#[test]
fn the_debug_form_is_a_report() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("none");
    let error = Db::options().create(false).open(&path).unwrap_err();
    let report = format!("{error:?}");
    let lines: Vec<&str> = report.lines().collect();
    assert_eq!(lines[0], format!("there is no database at {} (E0902)", path.display()));
    assert!(
        lines.len() == 2 && lines[1].starts_with("hint: ") && lines[1].contains("create(false)"),
        "{report}"
    );
    assert!(format!("{error:#?}").contains("NoSuchDatabase"), "{error:#?}");
}

// The closure's own words are all there is to say.
#[test]
fn the_error_of_a_closure_has_no_hint_of_ours() {
    let db = Db::in_memory().unwrap();
    let error = db.transact(|_| Err::<(), _>(Error::invalid("the account has too little"))).unwrap_err();
    assert_eq!(format!("{error:?}"), "the account has too little (E0201)");
    assert_eq!(error.hint(), "");
    let error = db.transact(|_| Err::<(), _>(Error::invalid("no").with_hint("pay in"))).unwrap_err();
    assert_eq!(format!("{error:?}"), "no (E0201)\nhint: pay in");
}

#[test]
fn a_path_that_is_no_database_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file.txt");
    std::fs::write(&file, "words").unwrap();
    let empty = directory.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    for (error, code, message, hint) in [
        (Db::open(&file).unwrap_err(), Code::NotADatabase, "it is a file", "directory"),
        (Db::open("").unwrap_err(), Code::InvalidArgument, "path of the database is empty", "directory"),
        (Db::options().create(false).open(&empty).unwrap_err(), Code::NotADatabase, "empty", "create(false)"),
    ] {
        assert_eq!(error.code(), code, "{error:?}");
        assert!(error.message().contains(message) && error.hint().contains(hint), "{error:?}");
    }
}

#[test]
fn levels_of_durability_are_their_names() {
    for level in Durability::ALL {
        assert_eq!(level.to_string().parse::<Durability>().unwrap(), level);
    }
    assert_eq!(format!("{:>8}", Durability::Disk), "    disk");
    let error = "Disk!".parse::<Durability>().unwrap_err();
    assert!(
        error.code() == Code::InvalidArgument && error.hint().contains("memory, process or disk"),
        "{error:?}"
    );
}
