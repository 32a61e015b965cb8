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
//! | keep hourly states | [hourly backups](#hourly-backups) |
//! | change a struct | [a type that changes](#a-type-that-changes) |
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
//! use duramen::Ttl;
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
//! nothing else. If a field changes its meaning, keep the old struct under another name, and convert one to
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
//! `Db::in_memory` is the same database on a disk in memory: the same errors, the same conflicts, nothing to
//! clean up.
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
