//! Recipes: common tasks, each a whole example that the tests run.
//!
//! | to | see |
//! |---|---|
//! | require unique e-mail addresses | [a unique field](#a-unique-field) |
//! | count with many concurrent writers | [a counter under contention](#a-counter-under-contention) |
//! | find a player's rank | [a leaderboard](#a-leaderboard) |
//! | sum by day | [a time series by day](#a-time-series-by-day) |
//! | show a list page by page | [pages](#pages) |
//! | export data to another program | [export](#export) |
//! | expire old entries | [a cache that expires](#a-cache-that-expires) |
//! | process each change once | [an outbox](#an-outbox) |
//! | keep a copy of a collection elsewhere | [first copy, then follow](#first-copy-then-follow) |
//! | keep hourly states | [hourly backups](#hourly-backups) |
//! | change a struct | [a type that changes](#a-type-that-changes) |
//! | place an order once, however often it is sent | [a request that is tried again](#a-request-that-is-tried-again) |
//! | hold a transaction while a user thinks | [a transaction that waits for a user](#a-transaction-that-waits-for-a-user) |
//! | serve HTTP | [a web service with axum](#a-web-service-with-axum) |
//! | test without a disk | [tests in memory](#tests-in-memory) |
//!
//! # A unique field
//!
//! A `unique` view refuses the second document with its key, however many writers there are. It also looks
//! up the document with a key.
//!
//! ```
//! use duramen::prelude::*;
//! use duramen::Code;
//!
//! #[derive(Debug, Serialize, Deserialize, Collection)]
//! #[collection(view(UserByEmail, key = email, unique))]
//! struct User {
//!     #[key(assigned)]
//!     id: u64,
//!     email: String,
//! }
//!
//! # fn main() -> Result<()> {
//! # let db = Db::in_memory()?;
//! let ada = db.push(User { id: 0, email: "ada@example.org".into() })?;
//! let refused = db.push(User { id: 0, email: "ada@example.org".into() }).unwrap_err();
//! assert_eq!(refused.code(), Code::UniqueViolation);
//! let found = db.view::<UserByEmail>().key("ada@example.org").first_doc()?;
//! assert_eq!(found.map(|user| user.id), Some(ada.id));
//! # Ok(()) }
//! ```
//!
//! # A counter under contention
//!
//! `increment` reads and writes in one transaction. After a conflict it runs again, so no count is lost. Many
//! writers share each sync of the disk.
//!
//! ```
//! use duramen::prelude::*;
//!
//! # fn main() -> Result<()> {
//! # let db = Db::in_memory()?;
//! std::thread::scope(|scope| {
//!     for _ in 0..4 {
//!         scope.spawn(|| (0..25).try_for_each(|_| db.kv("visits").increment("front page", 1).map(drop)));
//!     }
//! });
//! assert_eq!(db.kv("visits").get::<i64>("front page")?, Some(100));
//! # Ok(()) }
//! ```
//!
//! All writers of one counter conflict with each other. To count documents, write the documents and let a
//! view count them: writers of different documents do not conflict, and the count is just as current.
//!
//! # A leaderboard
//!
//! A view is ordered by its key, and counts the rows before each of them: `rank` and `nth` cost O(log n).
//!
//! ```
//! use duramen::prelude::*;
//!
//! #[derive(Debug, Serialize, Deserialize, Collection)]
//! #[collection(view(ByPoints, key = points))]
//! struct Player {
//!     #[key]
//!     name: String,
//!     points: u32,
//! }
//!
//! # fn main() -> Result<()> {
//! # let db = Db::in_memory()?;
//! for (name, points) in [("Ada", 30), ("Bo", 50), ("Cy", 40), ("Di", 40)] {
//!     db.put(&Player { name: name.into(), points })?;
//! }
//! let best_first = db.view::<ByPoints>().reverse();
//! let top = best_first.limit(2).docs()?;
//! assert_eq!(top.iter().map(|player| player.name.as_str()).collect::<Vec<_>>(), ["Bo", "Di"]);
//! assert_eq!(best_first.rank(30)?, 3, "three are better than 30 points");
//! assert_eq!(best_first.nth(3)?.map(|row| row.document), Some("Ada".to_owned()));
//! # Ok(()) }
//! ```
//!
//! # A time series by day
//!
//! With a key of place, day and time, every place, day and interval is a range, and has its sums.
//!
//! ```
//! use duramen::prelude::*;
//!
//! #[derive(Debug, Serialize, Deserialize, Collection)]
//! #[collection(view(ByDay, key = (place, day), value = millimetres, reduce = (Count, Sum, Max)))]
//! struct Rain {
//!     #[key]
//!     place: String,
//!     #[key]
//!     at: Time,
//!     day: u32,
//!     millimetres: i64,
//! }
//!
//! # fn main() -> Result<()> {
//! # let db = Db::in_memory()?;
//! for (at, day, millimetres) in
//!     [
//!         ("2026-11-20T06:00:00Z", 20261120, 3),
//!         ("2026-11-20T18:00:00Z", 20261120, 9),
//!         ("2026-11-21T06:00:00Z", 20261121, 1),
//!     ]
//! {
//!     let at = Time::parse(at).expect("a time");
//!     db.put(&Rain { place: "Bergen".into(), at, day, millimetres })?;
//! }
//! assert_eq!(db.view::<ByDay>().key(("Bergen", 20261120)).reduce()?, (2, 12, Some(9)));
//! let days = db.view::<ByDay>().prefix("Bergen").group_by::<(String, u32)>()?;
//! assert_eq!(days.len(), 2);
//! # Ok(()) }
//! ```
//!
//! # Pages
//!
//! A page ends with a token: text that can be put in a link. The next page begins after the last document of
//! the previous one, even if documents were added or removed meanwhile.
//!
//! ```
//! use duramen::prelude::*;
//!
//! #[derive(Debug, Serialize, Deserialize, Collection)]
//! struct Note {
//!     #[key]
//!     id: u32,
//! }
//!
//! # fn main() -> Result<()> {
//! # let db = Db::in_memory()?;
//! for id in 0..5 {
//!     db.put(&Note { id })?;
//! }
//! let first = db.collection::<Note>().page(2, None)?;
//! let second = db.collection::<Note>().page(2, first.next.as_ref())?;
//! assert_eq!(second.items.iter().map(|note| note.id).collect::<Vec<_>>(), [2, 3]);
//! # Ok(()) }
//! ```
//!
//! # Export
//!
//! Every collection can be read by its name, without its type: its documents are then JSON. `duramen export`
//! does the same on the command line, as NDJSON or CSV.
//!
//! ```
//! use duramen::prelude::*;
//! use duramen::{Direction, json};
//!
//! #[derive(Debug, Serialize, Deserialize, Collection)]
//! #[collection(name = "notes")]
//! struct Note {
//!     #[key]
//!     id: u32,
//!     text: String,
//! }
//!
//! # fn main() -> Result<()> {
//! # let db = Db::in_memory()?;
//! db.put(&Note { id: 1, text: "rain".into() })?;
//! let snapshot = db.snapshot()?;
//! let mut lines = Vec::new();
//! let mut rows = snapshot.documents("notes").rows(Span::all(), Direction::Forward)?;
//! while let Some((_, stored)) = rows.next()? {
//!     lines.push(json::from_stored(stored)?);
//! }
//! assert_eq!(lines, [r#"{"id":1,"text":"rain"}"#]);
//! # Ok(()) }
//! ```
//!
//! # A cache that expires
//!
//! A key-value with a time to live expires at the end of that time, to the millisecond. No later read
//! returns it, even before its space is freed. It can be written in the same transaction as documents.
//!
//! ```
//! use duramen::prelude::*;
//!
//! # fn main() -> Result<()> {
//! # let db = Db::in_memory()?;
//! fn weather(db: &Db, place: &str) -> Result<String> {
//!     if let Some(known) = db.kv("weather").get(place)? {
//!         return Ok(known);
//!     }
//!     let asked = format!("rain in {place}");
//!     db.kv("weather").put_with(place, &asked, Ttl::minutes(30))?;
//!     Ok(asked)
//! }
//! assert_eq!(weather(&db, "Bergen")?, "rain in Bergen");
//! assert!(db.kv("weather").ttl("Bergen")?.is_some());
//! # Ok(()) }
//! ```
//!
//! # An outbox
//!
//! A consumer receives every change of a collection, in order. Its writes and its new position are one
//! transaction, so a crash repeats nothing and skips nothing. Effects outside the database, such as a mail,
//! are first written to an outbox and sent from there.
//!
//! ```
//! use duramen::prelude::*;
//! use duramen::Change;
//!
//! #[derive(Debug, Serialize, Deserialize, Collection)]
//! struct Order {
//!     #[key]
//!     id: u64,
//! }
//!
//! #[derive(Debug, Serialize, Deserialize, Collection)]
//! struct Mail {
//!     #[key(assigned)]
//!     id: u64,
//!     text: String,
//! }
//!
//! # fn main() -> Result<()> {
//! # let db = Db::in_memory()?;
//! let mailer = db.consumer("mailer").register()?;
//! db.put(&Order { id: 7 })?;
//! let handled = mailer.read::<Change<Order>>()?.run(|tx, changes| {
//!     for order in changes.iter().filter_map(Change::document) {
//!         tx.push(Mail { id: 0, text: format!("thank you for order {}", order.id) })?;
//!     }
//!     Ok(())
//! })?;
//! assert_eq!(handled, 1);
//! assert_eq!(db.collection::<Mail>().count()?, 1);
//! # Ok(()) }
//! ```
//!
//! # A consumer that runs for good
//!
//! A thread follows the changes as long as the program runs. After a restart it continues where it was: the
//! position is stored with its work. On a full disk it waits, and begins again. Other errors end it: the
//! program reports them. The consumer counts every order there ever was: `from_beginning` is refused where
//! older changes are gone. A change that the closure can never handle would end it at every start. So the
//! closure stores such a change in a collection for people to look at, and goes on.
//!
//! ```
//! use std::thread;
//! use std::time::Duration;
//!
//! use duramen::prelude::*;
//! use duramen::{Change, ErrorKind};
//!
//! #[derive(Debug, Serialize, Deserialize, Collection)]
//! struct Order {
//!     #[key]
//!     id: u64,
//!     city: String,
//! }
//!
//! #[derive(Debug, Serialize, Deserialize, Collection)]
//! struct Rejected {
//!     #[key]
//!     order: u64,
//!     why: String,
//! }
//!
//! /// Counts the orders of each city.
//! fn count(tx: &mut Transaction<'_>, changes: &[Change<Order>]) -> Result<()> {
//!     for order in changes.iter().filter_map(Change::document) {
//!         if order.city.is_empty() {
//!             tx.put(&Rejected { order: order.id, why: "no city".into() })?;
//!         } else {
//!             tx.kv("orders by city").increment(order.city.as_str(), 1)?;
//!         }
//!     }
//!     Ok(())
//! }
//!
//! /// Follows the orders until the database is closed, or must be opened again.
//! fn follow(db: &Db) -> Result<()> {
//!     let counter = db.consumer("counter").from_beginning().register()?;
//!     loop {
//!         match counter.read::<Change<Order>>()?.follow(count) {
//!             Ok(_) => return Ok(()),
//!             Err(error) if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Full) => {
//!                 eprintln!("the counter begins again: {error}");
//!                 thread::sleep(Duration::from_secs(1));
//!             }
//!             Err(error) => return Err(error),
//!         }
//!     }
//! }
//!
//! # fn main() -> Result<()> {
//! # let db = Db::in_memory()?;
//! let follower = thread::spawn({
//!     let db = db.clone();
//!     move || follow(&db)
//! });
//! db.put(&Order { id: 1, city: "Oslo".into() })?;
//! // ... the program's work. At its end:
//! # while db.kv("orders by city").get::<i64>("Oslo")?.is_none() { thread::yield_now(); }
//! db.close()?;
//! follower.join().expect("the follower did not panic")?;
//! # assert_eq!(db.kv("orders by city").get::<i64>("Oslo")?, Some(1));
//! # Ok(()) }
//! ```
//!
//! # First copy, then follow
//!
//! The feed keeps changes for its consumers, not all changes since the database was created. A consumer of
//! a database that is in use already copies the collection first. It is registered before the snapshot is
//! taken, so no change is missed in between. Some changes are in the snapshot already and come once more:
//! applying a change twice must be harmless, as with `put` and `delete`.
//!
//! After `FeedGap` the mirror is built anew in the same way. That is also the error after a backup was
//! restored.
//!
//! ```
//! use duramen::prelude::*;
//! use duramen::{Change, Changed, Code};
//!
//! #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
//! #[collection(name = "orders")]
//! struct Order {
//!     #[key]
//!     id: u64,
//!     city: String,
//! }
//!
//! /// The mirror: the same orders, stored for another purpose.
//! #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
//! #[collection(name = "orders_of_the_mirror")]
//! struct Mirrored {
//!     #[key]
//!     id: u64,
//!     city: String,
//! }
//!
//! impl From<&Order> for Mirrored {
//!     fn from(order: &Order) -> Mirrored {
//!         Mirrored { id: order.id, city: order.city.clone() }
//!     }
//! }
//!
//! /// Applies changes. A change that is in the mirror already does nothing.
//! fn apply(tx: &mut Transaction<'_>, changes: &[Change<Order>]) -> Result<()> {
//!     for change in changes {
//!         match &change.what {
//!             Changed::Put(order) => tx.put(&Mirrored::from(order))?,
//!             Changed::Deleted(id) => drop(tx.delete::<Mirrored>(*id)?),
//!             Changed::Dropped => drop(tx.drop_collection("orders_of_the_mirror")?),
//!         }
//!     }
//!     Ok(())
//! }
//!
//! /// Brings the mirror up to date. A new mirror, and one that has missed changes, is copied first.
//! fn mirror(db: &Db) -> Result<()> {
//!     let consumer = db.consumer("mirror").register()?;
//!     let is_copied = db.kv("mirrors").get::<bool>("orders")?.unwrap_or(false);
//!     if is_copied {
//!         match consumer.read::<Change<Order>>().and_then(|mut changes| changes.run(apply)) {
//!             Ok(_) => return Ok(()),
//!             Err(error) if error.code() == Code::FeedGap => {}
//!             Err(error) => return Err(error),
//!         }
//!     }
//!     // A crash in here begins anew.
//!     db.transact(|tx| {
//!         tx.kv("mirrors").put("orders", &false)?;
//!         tx.drop_collection("orders_of_the_mirror").map(drop)
//!     })?;
//!     consumer.seek(db.feed().newest)?;
//!     let snapshot = db.snapshot()?;
//!     let mut orders = snapshot.collection::<Order>().iter()?.peekable();
//!     while orders.peek().is_some() {
//!         let batch = orders.by_ref().take(1_000).collect::<Result<Vec<_>>>()?;
//!         db.transact(|tx| batch.iter().try_for_each(|order| tx.put(&Mirrored::from(order))))?;
//!     }
//!     db.kv("mirrors").put("orders", &true)?;
//!     consumer.read::<Change<Order>>()?.run(apply).map(drop)
//! }
//!
//! # fn main() -> Result<()> {
//! # let directory = tempfile::tempdir().expect("a place for the example");
//! # let db = Db::open(directory.path().join("shop.duramen"))?;
//! # let mirrored = |db: &Db| Ok::<_, Error>(db.collection::<Mirrored>().to_vec()?.iter().map(|one| one.id).collect::<Vec<_>>());
//! db.put(&Order { id: 1, city: "Oslo".into() })?;
//! # db.checkpoint_with(&mut || ())?;
//! mirror(&db)?;
//! # assert_eq!(mirrored(&db)?, [1]);
//! db.put(&Order { id: 2, city: "Voss".into() })?;
//! db.delete::<Order>(1)?;
//! mirror(&db)?;
//! # assert_eq!(mirrored(&db)?, [2]);
//! // A restored backup begins anew.
//! db.backup(directory.path().join("backup.duramen"))?;
//! let restored = Db::open(directory.path().join("backup.duramen"))?;
//! mirror(&restored)?;
//! restored.put(&Order { id: 3, city: "Moss".into() })?;
//! mirror(&restored)?;
//! # assert_eq!(mirrored(&restored)?, [2, 3]);
//! # Ok(()) }
//! ```
//!
//! A mirror outside of the database stores its own position beside what it holds, and both at once: in one
//! transaction if it is another database, in one file that replaces the last one if it is a file. The
//! position is a `FeedPosition`, which names the database, too: `resume` in a restored database is
//! `FeedGap`, not silence. Changes are kept for it as far as `feed_retain_bytes` and `feed_retain_age` say;
//! if it was away for longer, it copies again. At a level below `Disk` a snapshot may have commits that a
//! power cut undoes: wait until `db.feed().newest` has reached them before the copy is stored.
//!
//! ```
//! use std::fs;
//! use std::path::Path;
//!
//! use duramen::prelude::*;
//! use duramen::{Changed, Code, FeedPosition};
//!
//! #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
//! #[collection(name = "orders")]
//! struct Order {
//!     #[key]
//!     id: u64,
//!     city: String,
//! }
//!
//! /// What the file holds: the orders, and the position up to which they are complete.
//! #[derive(Debug, Serialize, Deserialize)]
//! struct Mirror {
//!     position: FeedPosition,
//!     orders: std::collections::BTreeMap<u64, Order>,
//! }
//!
//! /// The position first, then the snapshot: changes in between come again, and none is missed.
//! fn copy(db: &Db) -> Result<Mirror> {
//!     let position = db.feed_position();
//!     let orders = db.collection::<Order>().to_vec()?;
//!     Ok(Mirror { position, orders: orders.into_iter().map(|order| (order.id, order)).collect() })
//! }
//!
//! fn follow(db: &Db, mirror: &mut Mirror) -> Result<()> {
//!     for change in db.changes::<Order>().resume(mirror.position) {
//!         let change = change?;
//!         match change.what {
//!             Changed::Put(order) => drop(mirror.orders.insert(order.id, order)),
//!             Changed::Deleted(id) => drop(mirror.orders.remove(&id)),
//!             Changed::Dropped => mirror.orders.clear(),
//!         }
//!         mirror.position = mirror.position.at(change.seq);
//!     }
//!     Ok(())
//! }
//!
//! fn mirror(db: &Db, file: &Path) -> Result<()> {
//!     let stored = fs::read(file).ok().and_then(|json| serde_json::from_slice::<Mirror>(&json).ok());
//!     let mut mirror = stored.map_or_else(|| copy(db), Ok)?;
//!     match follow(db, &mut mirror) {
//!         Err(error) if error.code() == Code::FeedGap => mirror = copy(db)?,
//!         done => done?,
//!     }
//!     let json = serde_json::to_vec(&mirror).expect("orders are JSON");
//!     let new = file.with_extension("new");
//!     fs::write(&new, json).and_then(|()| fs::rename(&new, file)).expect("a place for the mirror");
//!     Ok(())
//! }
//!
//! # fn main() -> Result<()> {
//! # let directory = tempfile::tempdir().expect("a place for the example");
//! # let (file, backup) = (directory.path().join("mirror.json"), directory.path().join("backup.duramen"));
//! # let db = Db::open(directory.path().join("shop.duramen"))?;
//! # let ids = || serde_json::from_slice::<Mirror>(&fs::read(&file).unwrap()).unwrap().orders.into_keys().collect::<Vec<_>>();
//! db.put(&Order { id: 1, city: "Oslo".into() })?;
//! db.backup(&backup)?;
//! mirror(&db, &file)?;
//! # assert_eq!(ids(), [1]);
//! db.put(&Order { id: 2, city: "Voss".into() })?;
//! mirror(&db, &file)?;
//! # assert_eq!(ids(), [1, 2]);
//! // The backup is restored: order 2 never was, and the position of the mirror means nothing.
//! let restored = Db::open(&backup)?;
//! for id in 10..30 {
//!     restored.put(&Order { id, city: "Moss".into() })?;
//! }
//! mirror(&restored, &file)?;
//! # let expected: Vec<u64> = [1].into_iter().chain(10..30).collect();
//! # assert_eq!(ids(), expected);
//! # Ok(()) }
//! ```
//!
//! # Hourly backups
//!
//! A backup is one state of the database, taken while others write. It can be opened like any database. Give
//! each a new name. An interrupted backup cannot be opened.
//!
//! ```
//! use duramen::prelude::*;
//!
//! # fn main() -> Result<()> {
//! # let directory = tempfile::tempdir().expect("a place for the example");
//! # let (path, backups) = (directory.path().join("shop.duramen"), directory.path());
//! let db = Db::open(path)?;
//! db.kv("settings").put("colour", "green")?;
//! let hour = "2026-11-21T14";
//! let backup = backups.join(format!("{hour}.duramen"));
//! db.backup(&backup)?;
//! assert_eq!(Db::open(&backup)?.kv("settings").get::<String>("colour")?.as_deref(), Some("green"));
//! # Ok(()) }
//! ```
//!
//! # A type that changes
//!
//! A new field with `#[serde(default)]`, a removed field, a new name with `#[serde(alias)]`: these need
//! nothing else. If a view has the renamed field, call `Db::register` at the start. A new field in a view is
//! an `Option`, since older documents lack it. If a field changes its
//! meaning, or a view needs it in every document, keep the old struct under another name, and convert one to
//! the other.
//!
//! ```
//! use duramen::prelude::*;
//!
//! #[derive(Debug, Serialize, Deserialize, Collection)]
//! #[collection(name = "products")]
//! struct OldProduct {
//!     #[key]
//!     name: String,
//!     euros: i64,
//! }
//!
//! #[derive(Debug, Serialize, Deserialize, Collection)]
//! #[collection(name = "products")]
//! #[migrate_from(OldProduct)]
//! struct Product {
//!     #[key]
//!     name: String,
//!     cents: i64,
//! }
//!
//! impl From<OldProduct> for Product {
//!     fn from(old: OldProduct) -> Product {
//!         Product { name: old.name, cents: old.euros * 100 }
//!     }
//! }
//!
//! # fn main() -> Result<()> {
//! # let db = Db::in_memory()?;
//! db.put(&OldProduct { name: "saw".into(), euros: 25 })?;
//! db.migrate::<Product>(|_| Ok(()))?;
//! assert_eq!(db.get::<Product>("saw")?.map(|saw| saw.cents), Some(2_500));
//! # Ok(()) }
//! ```
//!
//! # A request that is tried again
//!
//! A client whose connection broke sends its order again, under the id of its first try. The answer is stored
//! beside the order, in one commit: the second try gets it, and places nothing. [`requests`](crate::requests)
//! says for how long, and by which clock ids are made.
//!
//! ```
//! use duramen::prelude::*;
//! use duramen::requests::{self, Request, RequestId};
//!
//! #[derive(Serialize, Deserialize, Collection)]
//! struct Order {
//!     #[key(assigned)]
//!     id: u64,
//!     item: String,
//! }
//!
//! /// Places an order, and answers with its number.
//! fn place(db: &Db, id: RequestId, item: &str) -> Result<u64> {
//!     let answered = requests::once(db, &Request::new(id, item.as_bytes()), |tx| {
//!         let order = tx.push(Order { id: 0, item: item.to_owned() })?;
//!         Ok(order.id.to_le_bytes().to_vec())
//!     })?;
//!     let number = answered.answer.try_into().map_err(|_| Error::invalid("the answer is no number"))?;
//!     Ok(u64::from_le_bytes(number))
//! }
//!
//! # fn main() -> Result<()> {
//! # let db = Db::in_memory()?;
//! let id = requests::new_id(&db)?;
//! let first = place(&db, id, "lamp")?;
//! assert_eq!(place(&db, id, "lamp")?, first);
//! assert_eq!(db.collection::<Order>().count()?, 1);
//! # Ok(()) }
//! ```
//!
//! # A transaction that waits for a user
//!
//! It blocks no one. If what it read has changed by the time of its commit, the user is asked again. Give it
//! a time limit: while it is open, space that it may still read is not used again.
//!
//! ```
//! use duramen::prelude::*;
//! use duramen::OpenTransaction;
//!
//! /// Shows what is left, and holds the transaction until the user has decided.
//! fn show(db: &Db) -> Result<(OpenTransaction, i64)> {
//!     let mut sale = db.begin()?;
//!     let left = sale.with(|tx| tx.kv("stock").get("lamp"))?.unwrap_or(0);
//!     Ok((sale, left))
//! }
//!
//! /// Sells one; `false` if the stock has changed since it was shown.
//! fn sell(mut sale: OpenTransaction) -> Result<bool> {
//!     sale.with(|tx| tx.kv("stock").decrement("lamp", 1))?;
//!     match sale.commit() {
//!         Ok(_) => Ok(true),
//!         Err(error) if error.is_retryable() => Ok(false),
//!         Err(error) => Err(error),
//!     }
//! }
//!
//! # fn main() -> Result<()> {
//! # let db = Db::in_memory()?;
//! db.kv("stock").put("lamp", &2)?;
//! let ((quick, seen), (slow, _)) = (show(&db)?, show(&db)?);
//! assert_eq!(seen, 2);
//! assert!(sell(quick)?);
//! assert!(!sell(slow)?, "one was sold since: show it again");
//! # Ok(()) }
//! ```
//!
//! # A web service with axum
//!
//! With the feature `async` the handle is an `AsyncDb`, which is the state of the router. It is cheap to
//! clone, and no handler blocks the runtime's threads to wait for the disk. `201 Created` is sent once the
//! order survives a power cut; concurrent handlers share a sync. A disconnected client drops the handler's
//! future: an order whose closure had begun is stored all the same.
//!
//! ```
//! use axum::extract::{Path, State};
//! use axum::http::StatusCode;
//! use axum::routing::{get, post};
//! use axum::{Json, Router};
//! use duramen::Code;
//! use duramen::prelude::*;
//!
//! #[derive(Serialize, Deserialize, Collection)]
//! #[collection(view(SalesByCity, key = city, value = cents, reduce = (Count, Sum)))]
//! struct Order {
//!     #[key]
//!     id: u64,
//!     city: String,
//!     cents: i64,
//! }
//!
//! fn status(error: &Error) -> StatusCode {
//!     match error.code() {
//!         Code::AlreadyExists => StatusCode::CONFLICT,
//!         _ => StatusCode::INTERNAL_SERVER_ERROR,
//!     }
//! }
//!
//! async fn take(State(db): State<AsyncDb>, Json(order): Json<Order>) -> StatusCode {
//!     match db.insert(order).await {
//!         Ok(_) => StatusCode::CREATED,
//!         Err(error) => status(&error),
//!     }
//! }
//!
//! type Answer<T> = std::result::Result<T, StatusCode>;
//!
//! async fn show(State(db): State<AsyncDb>, Path(id): Path<u64>) -> Answer<Json<Order>> {
//!     let order = db.get::<Order>(id).await.map_err(|error| status(&error))?;
//!     order.map(Json).ok_or(StatusCode::NOT_FOUND)
//! }
//!
//! async fn sales(State(db): State<AsyncDb>, Path(city): Path<String>) -> Answer<String> {
//!     let sales = db.read(move |at| at.view::<SalesByCity>().key(city).reduce()).await;
//!     let (orders, cents) = sales.map_err(|error| status(&error))?;
//!     Ok(format!("{orders} order(s), {cents} cents"))
//! }
//!
//! fn shop(db: AsyncDb) -> Router {
//!     Router::new()
//!         .route("/orders", post(take))
//!         .route("/orders/{id}", get(show))
//!         .route("/sales/{city}", get(sales))
//!         .with_state(db)
//! }
//!
//! # fn main() {
//! # use axum::body::{Body, to_bytes};
//! # use axum::http::Request;
//! # use tower::ServiceExt;
//! # let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().expect("a runtime");
//! # runtime.block_on(async {
//! // In `main`: `axum::serve(listener, shop(AsyncDb::open("shop.duramen").await?)).await`, and then
//! // `db.close().await`.
//! # let db = Db::in_memory().expect("a database").into_async();
//! # let shop = shop(db.clone());
//! # let order = r#"{"id":1,"city":"Oslo","cents":1250}"#;
//! # let post = || {
//! #     let request = Request::post("/orders").header("content-type", "application/json");
//! #     shop.clone().oneshot(request.body(Body::from(order)).expect("a request"))
//! # };
//! # assert_eq!(post().await.expect("an answer").status(), StatusCode::CREATED);
//! # assert_eq!(post().await.expect("an answer").status(), StatusCode::CONFLICT);
//! # let wanted = [("/sales/Oslo", "1 order(s), 1250 cents"), ("/orders/1", order), ("/orders/2", "")];
//! # for (path, want) in wanted {
//! #     let request = Request::get(path).body(Body::empty()).expect("a request");
//! #     let answer = shop.clone().oneshot(request).await.expect("an answer");
//! #     assert_eq!(to_bytes(answer.into_body(), 1_000).await.expect("a body"), want);
//! # }
//! # db.close().await.expect("closed");
//! # });
//! # }
//! ```
//!
//! # Tests in memory
//!
//! `Db::in_memory` is the same database on a disk in memory: the same errors, the same conflicts, the same
//! clock, nothing to clean up.
//!
//! ```
//! use duramen::prelude::*;
//!
//! fn greet(db: &Db, name: &str) -> Result<i64> {
//!     db.kv("greetings").increment(name, 1)
//! }
//!
//! # fn main() -> Result<()> {
//! let db = Db::in_memory()?;
//! assert_eq!(greet(&db, "Ada")?, 1);
//! assert_eq!(greet(&db, "Ada")?, 2);
//! # Ok(()) }
//! ```
//!
//! A test that waits for no clock sets it. On a `MemDisk` of its own, time passes only as the test says:
//!
//! ```
//! use std::sync::Arc;
//!
//! use duramen::MemDisk;
//! use duramen::prelude::*;
//!
//! # fn main() -> Result<()> {
//! let disk = MemDisk::new(1);
//! let db = Db::options().open_on(Arc::new(disk.clone()), "/shop.duramen")?;
//! db.kv("sessions").put_with("ann", &42, Ttl::hours(2))?;
//! disk.advance_clock(3_600_000_000_000);
//! assert_eq!(db.kv("sessions").get::<i64>("ann")?, Some(42));
//! disk.advance_clock(3_600_000_000_000);
//! assert_eq!(db.kv("sessions").get::<i64>("ann")?, None);
//! # Ok(()) }
//! ```
