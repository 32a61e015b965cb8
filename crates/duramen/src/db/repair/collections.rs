//! Collections of a repaired database: entries that fit their trees, documents that decode, views built anew.

use std::collections::BTreeSet;

use super::batch::Batch;
use super::mentions::{RECOVERED, name_of_entry};
use super::report::{StoreKind, WaitingView};
use super::{ALL, Mending};
use crate::access::reads::sealed::Readable;
use crate::access::views::state::ViewState;
use crate::catalog::entries::{self, ENTRIES, ROWS, rows_tree};
use crate::catalog::schema::{Referrer, Schema};
use crate::db::verify::problem_of;
use crate::store::error::{Code, Error, Result};
use crate::store::{Direction, Shared, Source, TreeId};
use crate::view::spec::{TREES as VIEW_TREES, ViewSpec};

impl Mending<'_> {
    /// Makes catalogue entries and trees consistent: every entry gets its trees, and all its views are to be
    /// built.
    ///
    /// Documents without an entry become trees of bytes.
    pub(crate) fn collections(&mut self) -> Result<Vec<Schema>> {
        let mut schemas = Vec::new();
        let state = self.db.snapshot()?;
        if let Some(entries) = state.source().tree(ENTRIES)? {
            let mut rows = state.source().cursor(entries, ALL, Direction::Forward)?;
            let mut batch = Batch::new(self.db);
            while let Some((key, stored)) = rows.next()? {
                self.report.mentions.entry(key);
                match Schema::from_bytes(stored) {
                    Ok(schema) => {
                        schemas.push(schema.decoded_by(&self.db.open_state().catalog.shapes));
                    }
                    // An entry of a later release is intact, but this build cannot judge it.
                    Err(error) if error.code() == Code::Unsupported => return Err(error),
                    Err(error) => {
                        let name = name_of_entry(key).unwrap_or_default();
                        self.leave_out(
                            StoreKind::Own,
                            "collections",
                            key,
                            format!("{name}: {}", error.message()),
                        );
                        batch.delete(entries, key)?;
                    }
                }
            }
            batch.commit()?;
        }
        self.references(&mut schemas);
        for schema in &mut schemas {
            if state.source().tree(&rows_tree(schema.name()))?.is_none() {
                self.report.made_anew.insert((StoreKind::Collection, schema.name().to_owned()));
            }
            let waiting = self.db.transact(|tx| fit(tx.shared(), schema))?;
            let collection = schema.name().to_owned();
            let waiting = waiting.into_iter().map(|(view, why)| WaitingView {
                collection: collection.clone(),
                view,
                why,
            });
            self.report.views_waiting.extend(waiting);
        }
        self.rename_unknown(&schemas)?;
        self.drop_views_of_nobody(&schemas)?;
        Ok(schemas)
    }

    /// Makes the references of all entries agree. One to a collection whose entry is lost goes; all others
    /// are checked anew, because what they refer to may be lost.
    fn references(&mut self, schemas: &mut [Schema]) {
        let names: BTreeSet<String> = schemas.iter().map(|schema| schema.name().to_owned()).collect();
        let mut referrers: Vec<(String, Referrer)> = Vec::new();
        for schema in schemas.iter_mut() {
            let collection = schema.name().to_owned();
            schema.retain_references(|reference| {
                let is_kept = names.contains(reference.to());
                if is_kept {
                    let referrer =
                        Referrer { collection: collection.clone(), field: reference.field().to_owned() };
                    referrers.push((reference.to().to_owned(), referrer));
                } else {
                    self.report.mentions.add(StoreKind::Collection, reference.to(), || {
                        format!("the collection {collection} refers to it")
                    });
                    self.report.views_waiting.push(WaitingView {
                        collection: collection.clone(),
                        view: reference.field().to_owned(),
                        why: format!(
                            "the reference was taken away: there is no collection {}",
                            reference.to()
                        ),
                    });
                }
                is_kept
            });
        }
        for schema in schemas.iter_mut() {
            let to_this = referrers.iter().filter(|(to, _)| to == schema.name());
            schema.set_referrers(to_this.map(|(_, referrer)| referrer.clone()).collect());
        }
    }

    /// Drops trees of views that no entry mentions. Their names would collide with a collection that is
    /// created anew.
    fn drop_views_of_nobody(&mut self, schemas: &[Schema]) -> Result<()> {
        let of = |schema: &Schema| {
            let kept = schema.kept_views();
            let views = schema.views().iter().chain(&kept);
            views.flat_map(|view| view.tree_names(schema.name())).collect::<Vec<_>>()
        };
        let known: BTreeSet<String> = schemas.iter().flat_map(of).collect();
        let state = self.db.snapshot()?;
        for (name, _) in state.trees_from(VIEW_TREES)?.iter().filter(|(name, _)| !known.contains(name)) {
            self.report.mentions.view_tree(name);
            self.db.transact(|tx| tx.shared().drop_tree(name))?;
        }
        Ok(())
    }

    /// Renames the documents of collections without an entry: they can be read, but their meaning is unknown.
    fn rename_unknown(&mut self, schemas: &[Schema]) -> Result<()> {
        let known: BTreeSet<String> = schemas.iter().map(|schema| rows_tree(schema.name())).collect();
        let state = self.db.snapshot()?;
        let names = state.source().tree_names()?;
        for tree in names.iter().filter(|name| name.starts_with(ROWS) && !known.contains(*name)) {
            let name = free_name(&tree[ROWS.len()..], &names);
            let Some(from) = state.source().tree(tree)? else { continue };
            let into = self.db.transact(|tx| tx.shared().create_tree(&name, None))?;
            let mut rows = state.source().cursor(from, ALL, Direction::Forward)?;
            let mut batch = Batch::new(self.db);
            while let Some((key, value)) = rows.next()? {
                batch.put(into, key.to_vec(), value.to_vec())?;
                self.pass()?;
            }
            batch.commit()?;
            self.db.transact(|tx| tx.shared().drop_tree(tree))?;
            self.of_collections.insert(name.clone());
            self.report.renamed.push(name);
        }
        Ok(())
    }

    /// Leaves out documents that do not fit their collection. Those whose shape is lost become a tree of
    /// bytes.
    pub(crate) fn documents(&mut self, schema: &Schema) -> Result<()> {
        let state = self.db.snapshot()?;
        let Some(tree) = state.source().tree(&rows_tree(schema.name()))? else { return Ok(()) };
        let mut rows = state.source().cursor(tree, ALL, Direction::Forward)?;
        let mut batch = Batch::new(self.db);
        let mut without_shape = None;
        while let Some((key, stored)) = rows.next()? {
            let Some(problem) = problem_of(schema, key, stored) else {
                self.pass()?;
                continue;
            };
            let shape = schema.shape_number_of(stored);
            if schema.lacks_shape_of(stored) || shape.is_some_and(|number| self.guessed.contains(&number)) {
                let into = match without_shape {
                    Some(into) => into,
                    None => *without_shape.insert(self.without_shape(schema.name())?),
                };
                batch.put(into, key.to_vec(), stored.to_vec())?;
            } else {
                self.leave_out(StoreKind::Collection, schema.name(), key, problem);
            }
            batch.delete(tree, key)?;
            self.pass()?;
        }
        batch.commit()
    }

    /// Creates the tree for documents of a collection whose shape is lost.
    fn without_shape(&mut self, collection: &str) -> Result<TreeId> {
        let names = self.db.snapshot()?.source().tree_names()?;
        let name = free_name(collection, &names);
        let tree = self.db.transact(|tx| tx.shared().create_tree(&name, None))?;
        self.of_collections.insert(name.clone());
        self.report.renamed.push(name);
        Ok(tree)
    }

    /// Builds the views of a collection that need no code.
    pub(crate) fn views_of(&mut self, collection: &str) -> Result<()> {
        let (at, progress) = (&mut self.at, &mut *self.progress);
        let built = self.db.documents(collection).build_views(|walked| {
            (at.done, at.of) = (walked.documents, walked.of);
            progress(at)
        });
        let why = match built {
            Ok(()) => None,
            Err(error) if waits(&error) => Some(error.message().to_owned()),
            Err(error) => return Err(error),
        };
        let states = self.db.documents(collection).views()?;
        let (ready, unready): (Vec<_>, Vec<_>) = states.into_iter().partition(ViewState::is_ready);
        // If every view is built and the collection still fails, it waits for a program that migrates it.
        let is_migrating = self.db.documents(collection).schema()?.is_migrating();
        let of_all =
            if unready.is_empty() && why.is_some() && is_migrating { ready.as_slice() } else { &unready };
        for state in of_all {
            let why = match (&state.failed, &why) {
                (Some(failed), _) => failed.clone(),
                (None, _) if !state.has_code => "it waits for a program that has its code".to_owned(),
                (None, why) => why.clone().unwrap_or_else(|| "it is not built yet".to_owned()),
            };
            let (collection, view) = (collection.to_owned(), state.view.name().to_owned());
            self.report.views_waiting.push(WaitingView { collection, view, why });
        }
        self.report.views_built += ready.len() as u64;
        for state in
            self.db.documents(collection).references()?.into_iter().filter(|state| !state.is_checked())
        {
            let why = state.failed.unwrap_or_else(|| "it is not checked yet".to_owned());
            let (collection, view) = (collection.to_owned(), state.reference.field().to_owned());
            self.report.views_waiting.push(WaitingView { collection, view, why });
        }
        Ok(())
    }
}

/// A name for a tree of bytes with the documents of a collection.
fn free_name(collection: &str, names: &[String]) -> String {
    let mut name = format!("{RECOVERED}{collection}");
    while names.contains(&name) {
        name.push('\'');
    }
    name
}

/// Whether an error is about a view, and not about the database.
fn waits(error: &Error) -> bool {
    matches!(
        error.code(),
        Code::Unsupported
            | Code::Rebuilding
            | Code::UniqueViolation
            | Code::MissingTarget
            | Code::Unreadable
            | Code::ReducerPanicked
    )
}

/// Creates the trees that an entry lacks, and marks its views as to be built.
///
/// Returns the views that cannot be built, with the reasons.
fn fit(tx: &Shared<'_>, schema: &mut Schema) -> Result<Vec<(String, String)>> {
    if tx.tree(&rows_tree(schema.name()))?.is_none() {
        let reducer = schema.reducer()?;
        let spec = if reducer.fields().is_empty() { None } else { Some(reducer.spec()?) };
        tx.create_tree(&rows_tree(schema.name()), spec)?;
    }
    let mut gone = Vec::new();
    for view in schema.views().to_vec() {
        if let Err(error) = fit_view(tx, schema.name(), &view) {
            if !waits(&error) {
                return Err(error);
            }
            schema.drop_generation(&view);
            gone.push((view.name().to_owned(), format!("it was taken away: {}", error.message())));
        }
    }
    for view in schema.kept_views() {
        fit_view(tx, schema.name(), &view)?;
    }
    schema.views_mut().for_each(|view| view.ready = false);
    schema.references_mut().for_each(|reference| reference.ready = false);
    entries::store(tx, schema)?;
    Ok(gone)
}

/// Creates the trees of a view anew unless all of them exist.
fn fit_view(tx: &Shared<'_>, collection: &str, view: &ViewSpec) -> Result<()> {
    let names = view.tree_names(collection);
    let there = names.iter().map(|name| tx.tree(name)).collect::<Result<Vec<Option<TreeId>>>>()?;
    if there.iter().all(Option::is_some) {
        return Ok(());
    }
    for (name, tree) in names.iter().zip(there) {
        if tree.is_some() {
            tx.drop_tree(name)?;
        }
    }
    entries::create_view(tx, collection, view).map(drop)
}
