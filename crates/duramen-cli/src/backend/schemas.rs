//! Definitions of collections and views, local or served.

use duramen::view::Progress;
use duramen::{Durability, LocalReads as _, ReferenceState, Schema, Snapshot, Span, ViewSpec, ViewState};
use duramen_proto::{v1, view};

use super::{Reading, Writing};
use crate::failure::Result;

/// Views are built until this says otherwise.
type OnProgress<'a> = &'a mut dyn FnMut(&Progress) -> duramen::Result<()>;

impl Reading {
    /// The collection of this name, or all.
    pub(crate) fn schemas(&self, collection: Option<&str>) -> Result<Vec<Schema>> {
        match (self, collection) {
            (_, Some(name)) => Ok(vec![self.schema(name)?]),
            (Reading::Local { snapshot, .. }, None) => Ok(snapshot.collections()?),
            (Reading::Served(served), None) => served.schemas(),
        }
    }

    /// The views of collections, with the number of rows of those that are ready.
    pub(crate) fn views(&self, schemas: &[Schema]) -> Result<Vec<(ViewState, Option<u64>)>> {
        let snapshot = match self {
            Reading::Local { snapshot, .. } => snapshot,
            Reading::Served(_) if schemas.is_empty() => return Ok(Vec::new()),
            Reading::Served(served) => {
                let names = schemas.iter().map(|schema| schema.name().to_owned()).collect();
                let counted = |message: &v1::ViewState| {
                    let (state, rows) = view::state(message)?;
                    let rows = state.is_ready().then_some(rows);
                    Ok((state, rows))
                };
                return served.views(names)?.iter().map(counted).collect();
            }
        };
        views_in(snapshot, schemas)
    }

    /// The references of collections.
    pub(crate) fn references(&self, schemas: &[Schema]) -> Result<Vec<ReferenceState>> {
        let snapshot = match self {
            Reading::Local { snapshot, .. } => snapshot,
            Reading::Served(_) if schemas.is_empty() => return Ok(Vec::new()),
            Reading::Served(served) => {
                return served.references(schemas.iter().map(|schema| schema.name().to_owned()).collect());
            }
        };
        let mut states = Vec::new();
        for schema in schemas {
            states.extend(snapshot.documents(schema.name()).references()?);
        }
        Ok(states)
    }
}

/// The views of collections.
fn views_in(snapshot: &Snapshot, schemas: &[Schema]) -> Result<Vec<(ViewState, Option<u64>)>> {
    let mut states = Vec::new();
    for schema in schemas {
        for state in snapshot.documents(schema.name()).views()? {
            let documents = snapshot.documents(&state.collection);
            let rows = match state.is_ready() {
                true => Some(documents.view(state.view.name()).count()?),
                false => None,
            };
            states.push((state, rows));
        }
    }
    Ok(states)
}

impl Writing {
    /// Removes a collection. Returns how many documents it had, and the number of the commit.
    pub(crate) fn drop_collection(&self, name: &str, level: Durability) -> Result<(u64, u64)> {
        let db = match self {
            Writing::Local(db) => db,
            Writing::Served(served) => return served.drop_collection(name, level),
        };
        let (rows, receipt) = db.transact_with_receipt(|tx| {
            let rows = tx.documents(name).count(Span::all())?;
            tx.drop_collection(name)?;
            Ok(rows)
        })?;
        Ok((rows, receipt.seq().0))
    }

    /// Adds a view. Returns whether it is new, and the number of the commit.
    pub(crate) fn add_view(
        &self,
        schema: &Schema,
        spec: &ViewSpec,
        replaces: bool,
        level: Durability,
    ) -> Result<(bool, u64)> {
        let db = match self {
            Writing::Local(db) => db,
            Writing::Served(served) => return served.add_view(schema, spec, replaces, level),
        };
        let (is_new, receipt) =
            db.transact_with_receipt(|tx| view::add(tx, schema.name(), spec, replaces))?;
        Ok((is_new, receipt.seq().0))
    }

    /// Removes a view, or only what is built of one that is not complete. Returns the number of the commit.
    pub(crate) fn drop_view(
        &self,
        collection: &str,
        view: &str,
        is_unfinished: bool,
        level: Durability,
    ) -> Result<u64> {
        let db = match self {
            Writing::Local(db) => db,
            Writing::Served(served) => return served.drop_view(collection, view, is_unfinished, level),
        };
        let (_, receipt) = db.transact_with_receipt(|tx| match is_unfinished {
            true => tx.drop_unfinished_view(collection, view),
            false => tx.drop_view(collection, view),
        })?;
        Ok(receipt.seq().0)
    }

    /// Builds a view anew. Returns the number of the commit.
    pub(crate) fn rebuild_view(&self, collection: &str, view: &str, level: Durability) -> Result<u64> {
        let db = match self {
            Writing::Local(db) => db,
            Writing::Served(served) => return served.rebuild_view(collection, view, level),
        };
        let (_, receipt) = db.transact_with_receipt(|tx| tx.rebuild_view(collection, view))?;
        Ok(receipt.seq().0)
    }

    /// Builds the unfinished views of a collection. Once the one of this name is complete, errors of others
    /// are not reported.
    pub(crate) fn build_views(
        &self,
        collection: &str,
        name: &str,
        on_progress: OnProgress<'_>,
    ) -> Result<()> {
        let served = match self {
            Writing::Local(db) => {
                let built = db.documents(collection).build_views(on_progress);
                let states = db.documents(collection).views()?;
                // Once it is complete, an error is that of another view, which had failed before.
                return if view::is_complete(&states, name) { Ok(()) } else { Ok(built?) };
            }
            Writing::Served(served) => served,
        };
        loop {
            let v1::BuildViewsReply { is_complete, view, documents, of } =
                served.build_views(collection, name)?;
            if is_complete {
                return Ok(());
            }
            on_progress(&Progress { view, documents, of })?;
        }
    }

    /// How many rows a view has.
    pub(crate) fn rows_of(&self, collection: &str, view: &str) -> Result<u64> {
        match self {
            Writing::Local(db) => Ok(db.documents(collection).view(view).count()?),
            Writing::Served(served) => served.count(collection, Some(view), Span::all()),
        }
    }
}
