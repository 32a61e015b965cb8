//! Types that change: a compatible type continues, an incompatible one is refused with the change to make.

use std::sync::Arc;

use duramen::prelude::*;
use duramen::{Code, Disk, MemDisk, ViewSpec};

/// The same collection as several versions of a program declare it.
mod first {
    use super::*;

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
    #[collection(name = "customers", view(ByMail, key = mail))]
    pub(super) struct Customer {
        #[key]
        pub(super) id: u64,
        pub(super) name: String,
        pub(super) mail: String,
        pub(super) age: u8,
    }
}

fn database() -> Db {
    let db = Db::in_memory().unwrap();
    for id in 1..=3 {
        db.put(&first::Customer {
            id,
            name: format!("name {id}"),
            mail: format!("{id}@example.org"),
            age: 30,
        })
        .unwrap();
    }
    db
}

/// The error for a type that does not fit.
fn refused<C: Collection>(db: &Db) -> Error {
    let error = db.register::<C>().unwrap_err();
    assert_eq!(
        db.collection::<C>().count().unwrap_err().message(),
        error.message(),
        "reads are refused, too"
    );
    assert_eq!(error.code(), Code::InvalidArgument);
    error
}

fn says(error: &Error, message: &str, hint: &str) {
    assert!(error.message().contains(message), "{error}");
    assert!(error.hint().contains(hint), "{}", error.hint());
}

#[test]
fn a_field_with_a_default_and_a_field_less_just_work() {
    #[derive(Debug, PartialEq, Serialize, Deserialize, Collection)]
    #[collection(name = "customers")]
    struct Customer {
        #[key]
        id: u64,
        name: String,
        #[serde(default)]
        points: u32,
        note: Option<String>,
    }
    let db = database();
    let read = Customer { id: 1, name: "name 1".into(), points: 0, note: None };
    assert_eq!(db.get::<Customer>(1).unwrap(), Some(read));
    // The first program continues until a document lacks one of its fields.
    db.register::<first::Customer>().unwrap();
    db.put(&Customer { id: 4, name: "four".into(), points: 7, note: None }).unwrap();
    let error = refused::<first::Customer>(&db);
    says(&error, "its field mail is not in every document", "write #[serde(default)] above mail");
    assert_eq!(db.collection::<Customer>().count().unwrap(), 4);
}

// The struct in the advice of the error, as pasted by a user, reads the documents.
#[test]
fn a_field_without_default_is_refused_with_the_old_struct_spelled_out() {
    #[derive(Debug, Serialize, Deserialize, Collection)]
    #[collection(name = "customers")]
    struct Customer {
        #[key]
        id: u64,
        name: String,
        email: String,
        age: u8,
    }
    let db = database();
    let error = refused::<Customer>(&db);
    says(
        &error,
        "does not fit Customer: its documents have no field email (String), and the type wants one in each",
        "write #[serde(default)] above email, or #[serde(alias = \"mail\")] if it is mail under a new name; or keep",
    );
    let spelled = "#[derive(Serialize, Deserialize, Collection)]\n#[collection(name = \"customers\")]\nstruct OldCustomer {\n    \
                   #[key]\n    id: u64,\n    name: String,\n    mail: String,\n    age: u8,\n}\n";
    assert!(error.hint().contains(spelled), "{}", error.hint());
    assert!(error.hint().contains("#[migrate_from(OldCustomer)]"), "{}", error.hint());
    // Nothing was written.
    assert_eq!(db.collection::<first::Customer>().count().unwrap(), 3);
}

#[test]
fn a_field_of_another_type_is_refused_and_a_wider_one_is_not() {
    #[derive(Debug, Serialize, Deserialize, Collection)]
    #[collection(name = "customers")]
    struct Text {
        #[key]
        id: u64,
        age: String,
    }
    #[derive(Debug, Serialize, Deserialize, Collection)]
    #[collection(name = "customers")]
    struct Wider {
        #[key]
        id: u64,
        name: Option<String>,
        mail: String,
        age: i32,
    }
    let db = database();
    let error = refused::<Text>(&db);
    says(&error, "its field age holds u8, and the type has String there", "#[migrate_from(OldText)]");
    db.put(&Wider { id: 4, name: None, mail: String::new(), age: -1 }).unwrap();
    let error = refused::<first::Customer>(&db);
    says(&error, "its field name holds Option<String>, and the type has String there", "");
    says(
        &error,
        "its field age holds i32, and the type has u8 there",
        "make age a type that reads every i32",
    );
    assert_eq!(db.get::<Wider>(1).unwrap().unwrap().age, 30);
}

mod renamed {
    use super::*;

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
    #[collection(name = "customers", view(ByEmail, key = email))]
    pub(super) struct Customer {
        #[key]
        pub(super) id: u64,
        #[serde(rename = "name")]
        pub(super) full_name: String,
        #[serde(alias = "mail")]
        pub(super) email: String,
        pub(super) age: u8,
    }
}

// A view finds a field by its name: documents from before a rename must be in it too.
#[test]
fn a_renamed_field_is_found_by_views_in_old_documents_and_new() {
    let db = database();
    assert_eq!(db.get::<renamed::Customer>(2).unwrap().unwrap().email, "2@example.org");
    let new = renamed::Customer { id: 4, full_name: "four".into(), email: "4@example.org".into(), age: 40 };
    db.put(&new).unwrap();
    db.build_views::<renamed::Customer>(|_| Ok(())).unwrap();
    for id in [2, 4] {
        let key = format!("{id}@example.org");
        let found = db.view::<renamed::ByEmail>().key(&key).docs().unwrap();
        assert_eq!(found.iter().map(|customer| customer.id).collect::<Vec<_>>(), [id]);
    }
    db.modify::<renamed::Customer>(2, |customer| {
        customer.email = "two@example.org".into();
        Ok(())
    })
    .unwrap();
    assert_eq!(db.view::<renamed::ByEmail>().key("2@example.org").count().unwrap(), 0);
    assert_eq!(db.check_documents().unwrap().problems, Vec::<String>::new());
    let error = refused::<first::Customer>(&db);
    says(
        &error,
        "its field mail is called email in some documents",
        "#[serde(alias = \"email\")] above mail",
    );
    // Removing the alias later would read a default in the place of a value: that is refused as well.
    #[derive(Debug, Serialize, Deserialize, Collection)]
    #[collection(name = "customers")]
    struct Forgot {
        #[key]
        id: u64,
        #[serde(default)]
        email: String,
    }
    says(
        &refused::<Forgot>(&db),
        "its field email is called mail in some documents",
        "#[serde(alias = \"mail\")]",
    );
}

// While a new release is rolled out, the previous one, extended by the new name, continues beside it.
#[test]
fn two_types_that_know_both_names_go_on_side_by_side() {
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
    #[collection(name = "customers", view(ByMailToo, key = mail))]
    struct Before {
        #[key]
        id: u64,
        name: String,
        #[serde(alias = "email")]
        mail: String,
        age: u8,
    }
    let db = database();
    for id in 10..14 {
        let (name, mail) = (String::new(), format!("{id}@example.org"));
        if id % 2 == 0 {
            db.put(&renamed::Customer { id, full_name: name, email: mail, age: 1 }).unwrap();
        } else {
            db.put(&Before { id, name, mail, age: 1 }).unwrap();
        }
    }
    db.build_views::<renamed::Customer>(|_| Ok(())).unwrap();
    db.build_views::<Before>(|_| Ok(())).unwrap();
    assert_eq!(db.view::<renamed::ByEmail>().count().unwrap(), 7);
    assert_eq!(db.view::<ByMailToo>().count().unwrap(), 7);
    assert_eq!(db.check_documents().unwrap().problems, Vec::<String>::new());
}

#[test]
fn two_fields_of_documents_cannot_become_one() {
    #[derive(Debug, Serialize, Deserialize, Collection)]
    #[collection(name = "customers")]
    struct Customer {
        #[key]
        id: u64,
        #[serde(alias = "mail")]
        name: String,
    }
    says(&refused::<Customer>(&database()), "may have both name and mail", "take the alias of name away");
}

#[test]
fn another_key_is_refused_with_the_way_to_copy() {
    #[derive(Debug, Serialize, Deserialize, Collection)]
    #[collection(name = "customers")]
    struct Customer {
        #[key]
        mail: String,
        #[key]
        id: u64,
    }
    let error = refused::<Customer>(&database());
    says(&error, "its key is (id), and the type's is (mail, id)", "#[collection(name = \"customers_2\")]");
    says(&error, "", "for old in db.collection::<OldCustomer>().iter()?");
}

// `#[migrate_from]` converts documents, and leaves them under their keys.
#[test]
fn a_key_of_another_type_is_refused_with_the_way_to_copy() {
    #[derive(Debug, Serialize, Deserialize, Collection)]
    #[collection(name = "customers")]
    struct Customer {
        #[key]
        id: String,
        name: String,
    }
    let error = refused::<Customer>(&database());
    says(&error, "its field id holds ", "#[collection(name = \"customers_2\")]");
    assert!(!error.hint().contains("migrate_from"), "{}", error.hint());
}

// The view is in the database and not in the type. The error must say whose it is and how it ends.
#[test]
fn a_unique_view_that_no_type_declares_any_more_says_how_to_drop_it() {
    mod earlier {
        use duramen::prelude::*;
        #[derive(Debug, Serialize, Deserialize, Collection)]
        #[collection(name = "users", view(ByEmail, key = email, unique))]
        pub(super) struct User {
            #[key]
            pub(super) id: u64,
            pub(super) email: String,
        }
    }
    #[derive(Debug, Serialize, Deserialize, Collection)]
    #[collection(name = "users")]
    struct User {
        #[key]
        id: u64,
        email: String,
    }
    let disk = MemDisk::new(1);
    let open = || Db::options().open_on(Arc::new(disk.clone()), "/db").unwrap();
    let db = open();
    db.put(&earlier::User { id: 1, email: "a@b".into() }).unwrap();
    let error = db.put(&earlier::User { id: 2, email: "a@b".into() }).unwrap_err();
    assert!(!error.hint().contains("drop_view"), "the program declares it: {}", error.hint());
    db.close().unwrap();
    drop(db);
    let db = open();
    let error = db.put(&User { id: 2, email: "a@b".into() }).unwrap_err();
    assert_eq!(error.code(), Code::UniqueViolation);
    assert!(error.hint().contains("db.documents(\"users\").drop_view(\"by_email\")"), "{}", error.hint());
    db.documents("users").drop_view("by_email").unwrap();
    db.put(&User { id: 2, email: "a@b".into() }).unwrap();
}

// The write that is refused also undoes the change of the view. The error must say what makes the change.
#[test]
fn a_view_that_is_no_longer_unique_refuses_until_it_is_built_and_says_so() {
    mod earlier {
        use duramen::prelude::*;
        #[derive(Debug, Serialize, Deserialize, Collection)]
        #[collection(name = "users", view(ByEmail, key = email, unique))]
        pub(super) struct User {
            #[key]
            pub(super) id: u64,
            pub(super) email: String,
        }
    }
    #[derive(Debug, Serialize, Deserialize, Collection)]
    #[collection(name = "users", view(ByEmail, key = email))]
    struct User {
        #[key]
        id: u64,
        email: String,
    }
    let disk = MemDisk::new(1);
    let open = || Db::options().open_on(Arc::new(disk.clone()), "/db").unwrap();
    open().put(&earlier::User { id: 1, email: "a@b".into() }).unwrap();
    let db = open();
    let error = db.put(&User { id: 2, email: "a@b".into() }).unwrap_err();
    assert_eq!(error.code(), Code::UniqueViolation);
    assert!(
        error.hint().contains("Db::build_views") && !error.hint().contains("drop_view"),
        "{}",
        error.hint()
    );
    db.build_views::<User>(|_| Ok(())).unwrap();
    db.put(&User { id: 2, email: "a@b".into() }).unwrap();
    assert_eq!(db.view::<ByEmail>().key("a@b").count().unwrap(), 2);
}

#[test]
fn positional_documents_grow_at_the_end_and_their_fields_take_new_names() {
    #[derive(Debug, PartialEq, Serialize, Deserialize, Collection)]
    #[collection(name = "readings", positional)]
    struct Reading {
        #[key]
        sensor: u32,
        value: f64,
    }
    #[derive(Debug, PartialEq, Serialize, Deserialize, Collection)]
    #[collection(name = "readings", positional, view(ByLevel, key = level))]
    struct Longer {
        #[key]
        sensor: u32,
        #[serde(alias = "value")]
        level: f64,
        #[serde(default)]
        unit: Option<String>,
    }
    #[derive(Debug, Serialize, Deserialize, Collection)]
    #[collection(name = "readings", positional)]
    struct NoDefault {
        #[key]
        sensor: u32,
        value: f64,
        unit: Option<String>,
    }
    let db = Db::in_memory().unwrap();
    db.put(&Reading { sensor: 1, value: 2.5 }).unwrap();
    says(
        &refused::<NoDefault>(&db),
        "its documents have no field unit",
        "write #[serde(default)] above unit",
    );
    db.put(&Longer { sensor: 2, level: 3.5, unit: None }).unwrap();
    db.build_views::<Longer>(|_| Ok(())).unwrap();
    assert_eq!(db.view::<ByLevel>().key(2.5).count().unwrap(), 1);
    assert_eq!(db.get::<Longer>(1).unwrap(), Some(Longer { sensor: 1, level: 2.5, unit: None }));
    let shown = db.documents("readings").get(1).unwrap().unwrap();
    assert_eq!(shown.to_json().unwrap(), r#"{"sensor":1,"level":2.5}"#);
    assert_eq!(db.check_documents().unwrap().problems, Vec::<String>::new());
}

// A program that wants the check early requests it at opening, not at its first call.
#[test]
fn a_type_is_held_against_its_collection_when_it_opens() {
    #[derive(Debug, Serialize, Deserialize, Collection)]
    #[collection(name = "customers")]
    struct Other {
        #[key]
        id: String,
    }
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new(1));
    let open = |options: duramen::DbOptions| options.open_on(Arc::clone(&disk), "/db");
    let db = open(Db::options().collection::<first::Customer>()).unwrap();
    assert_eq!(db.collections().unwrap().len(), 1);
    db.close().unwrap();
    drop(db);
    for read_only in [true, false] {
        open(Db::options().read_only(read_only).collection::<first::Customer>()).unwrap();
    }
    for read_only in [true, false] {
        let error = open(Db::options().read_only(read_only).collection::<Other>()).unwrap_err();
        assert!(error.message().contains("its field id holds u64, and the type has String there"), "{error}");
    }
    open(Db::options().collection::<first::Customer>()).unwrap();
}

/// A collection made by tools, adopted by a type that uses another name for a field.
mod adopted {
    use super::*;

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
    #[collection(name = "orders", view(ByCity, key = city, unique))]
    pub(super) struct Order {
        #[key]
        pub(super) id: u64,
        #[serde(alias = "town")]
        pub(super) city: String,
        #[serde(alias = "cents", default)]
        pub(super) amount: i64,
    }
}

fn tools(schema: Schema, documents: impl IntoIterator<Item = Document>) -> Db {
    let db = Db::in_memory().unwrap();
    db.transact(|tx| tx.ensure(&schema.clone().key(["id"])).map(drop)).unwrap();
    documents.into_iter().for_each(|document| drop(db.documents("orders").put(document).unwrap()));
    db
}

// A sum finds its field by the one name in its definition: documents with another name would be missing from
// it.
#[test]
fn a_type_does_not_take_over_a_summed_column_under_another_name() {
    let documents = || [doc! { "id": 1, "city": "Oslo", "cents": 5 }];
    let db = tools(Schema::new("orders").sum(["cents"]), documents());
    let error = refused::<adopted::Order>(&db);
    says(
        &error,
        "its field cents is summed under this name, and the type calls it amount",
        "#[serde(rename = \"cents\")]",
    );
    let db = tools(Schema::new("orders").sum(["amount"]), documents());
    let error = refused::<adopted::Order>(&db);
    says(
        &error,
        "its field amount is summed under this name, and documents may have it as cents",
        "take the alias cents of amount away",
    );
    // With a single name there is nothing to miss.
    let db = tools(Schema::new("orders").sum(["amount"]), [doc! { "id": 1, "city": "Oslo", "amount": 5 }]);
    db.put(&adopted::Order { id: 2, city: "Voss".into(), amount: 3 }).unwrap();
}

// The existing rows of a view are of one name: documents with the other one would never get any.
#[test]
fn a_type_takes_over_a_column_under_another_name_once_no_view_has_rows_of_one_name() {
    let by_city = || ViewSpec::new("by_city", ["city"]).unique();
    let documents = [doc! { "id": 1, "town": "Oslo" }, doc! { "id": 2, "city": "Voss" }];
    let db = tools(Schema::new("orders").view(by_city()), documents);
    let error = refused::<adopted::Order>(&db);
    says(
        &error,
        "its view by_city finds city under this name only, and documents may have it as town",
        "drop that view first",
    );
    db.documents("orders").drop_view("by_city").unwrap();
    db.put(&adopted::Order { id: 3, city: "Bergen".into(), amount: 1 }).unwrap();
    db.build_views::<adopted::Order>(|_| Ok(())).unwrap();
    for city in ["Oslo", "Voss", "Bergen"] {
        assert_eq!(db.view::<adopted::ByCity>().key(city).count().unwrap(), 1, "{city}");
    }
    let error = db.put(&adopted::Order { id: 4, city: "Oslo".into(), amount: 1 }).unwrap_err();
    assert_eq!(error.code(), Code::UniqueViolation, "{error}");
    assert_eq!(db.check_documents().unwrap().problems, Vec::<String>::new());
}

// A tool may add a field that a later type reads under another name. The views of that type must include
// these documents, and the existing ones do not.
#[test]
fn what_tools_add_is_found_by_a_later_type_under_its_own_name() {
    #[derive(Debug, Serialize, Deserialize, Collection)]
    #[collection(name = "customers", view(ByEmail, key = email, unique))]
    struct Customer {
        #[key]
        id: u64,
        name: String,
        #[serde(default)]
        mail: String,
        #[serde(default)]
        age: u8,
        #[serde(alias = "contact", default)]
        email: Option<String>,
    }
    let db = database();
    let contact =
        |id: u64| doc! { "id": id, "name": "by a tool", "mail": "", "age": 1, "contact": "tool@example.org" };
    db.documents("customers").put(contact(10)).unwrap();
    let customer = |id: u64, email: Option<&str>| {
        let email = email.map(str::to_owned);
        Customer { id, name: String::new(), mail: String::new(), age: 1, email }
    };
    db.put(&customer(11, None)).unwrap();
    db.build_views::<Customer>(|_| Ok(())).unwrap();
    assert_eq!(db.get::<Customer>(10).unwrap().unwrap().email.as_deref(), Some("tool@example.org"));
    assert_eq!(db.view::<ByEmail>().key("tool@example.org").count().unwrap(), 1);
    let error = db.put(&customer(12, Some("tool@example.org"))).unwrap_err();
    assert_eq!(error.code(), Code::UniqueViolation, "{error}");
    assert_eq!(db.check_documents().unwrap().problems, Vec::<String>::new());
}

// Names of earlier versions do not concern this version: only types write its documents until the last is
// converted.
#[test]
fn an_alias_beside_a_migration_is_not_taken_for_what_tools_wrote() {
    #[derive(Debug, Clone, Serialize, Deserialize, Collection)]
    #[collection(name = "orders")]
    struct OldOrder {
        #[key]
        id: u64,
        town: String,
    }
    #[derive(Debug, Clone, Serialize, Deserialize, Collection)]
    #[collection(name = "orders", view(ByCity, key = city))]
    #[migrate_from(OldOrder)]
    struct Order {
        #[key]
        id: u64,
        #[serde(alias = "town")]
        city: String,
    }
    impl From<OldOrder> for Order {
        fn from(old: OldOrder) -> Order {
            Order { id: old.id, city: old.town }
        }
    }
    let db = Db::in_memory().unwrap();
    db.put(&OldOrder { id: 1, town: "Oslo".into() }).unwrap();
    db.register::<Order>().unwrap();
    db.register::<Order>().unwrap();
    db.put(&Order { id: 2, city: "Oslo".into() }).unwrap();
    db.migrate::<Order>(|_| Ok(())).unwrap();
    db.put(&Order { id: 3, city: "Oslo".into() }).unwrap();
    assert_eq!(db.view::<ByCity>().key("Oslo").count().unwrap(), 3);
}

// The type has the field already when a tool writes it under another of its names.
#[test]
fn a_view_whose_field_gets_another_name_from_a_tool_is_made_anew() {
    let db = Db::in_memory().unwrap();
    db.put(&adopted::Order { id: 1, city: "Oslo".into(), amount: 1 }).unwrap();
    db.documents("orders").put(doc! { "id": 2, "town": "Voss" }).unwrap();
    says(
        &refused::<adopted::Order>(&db),
        "its view by_city finds city under this name only, and documents may have it as town",
        "Transaction::drop_view(\"orders\", \"by_city\")",
    );
    db.documents("orders").drop_view("by_city").unwrap();
    db.register::<adopted::Order>().unwrap();
    db.build_views::<adopted::Order>(|_| Ok(())).unwrap();
    assert_eq!(db.view::<adopted::ByCity>().key("Voss").count().unwrap(), 1);
    assert_eq!(db.check_documents().unwrap().problems, Vec::<String>::new());
}

// A program that only reads adds no view. The error must say so, or it waits for a build that never begins.
#[test]
fn a_reader_with_a_changed_view_is_told_to_register_it() {
    mod changed {
        use duramen::prelude::*;
        #[derive(Debug, Serialize, Deserialize, Collection)]
        #[collection(name = "customers", view(ByMail, key = (name, mail), nulls), view(ByAge, key = desc(age)))]
        pub(super) struct Customer {
            #[key]
            pub(super) id: u64,
            pub(super) name: Option<String>,
            pub(super) mail: String,
            pub(super) age: u8,
        }
    }
    let db = database();
    assert_eq!(db.collection::<changed::Customer>().count().unwrap(), 3);
    let error = db.view::<changed::ByMail>().count().unwrap_err();
    assert_eq!(error.code(), Code::Rebuilding);
    says(
        &error,
        "the view by_mail of customers is stored with the key (mail), and the type declares the key (name, mail), nulls",
        "call Db::register for the type once, or write a document",
    );
    let error = db.view::<changed::ByAge>().count().unwrap_err();
    says(&error, "the collection customers has no view by_age yet, and the type declares one", "read-only");
    db.register::<changed::Customer>().unwrap();
    db.build_views::<changed::Customer>(|_| Ok(())).unwrap();
    assert_eq!(db.view::<changed::ByMail>().count().unwrap(), 3);
    assert_eq!(db.view::<changed::ByAge>().count().unwrap(), 3);
}
