//! Building views while somebody waits for them.

use std::collections::BTreeSet;

use crate::access::collection::Collection;
use crate::access::documents::Documents;
use crate::access::handle::Db;
use crate::access::reads::sealed::Readable;
use crate::access::typed::Asked;
use crate::store::error::{Error, Result};

use crate::access::views::build::Progress;
use crate::access::views::state::migrating;
use crate::db::views::in_background::{Unbuilt, is_of_a_view, unbuilt_of};
use crate::view::spec::ViewSpec;

impl Db {
    /// Builds the views of a collection that do not hold every document yet, and returns once they do. They would be built in the
    /// background as well, unless that is switched off: this is the way to wait for it. Others may read and write meanwhile; a view
    /// that is being built answers `Rebuilding`. After a restart it goes on where it was. Reductions in code that are not on disk, because a
    /// program without their code wrote documents, are brought there.
    ///
    /// # Errors
    /// `UniqueViolation` naming two documents with the same key of a unique view: change one, and build again. What is wrong with one
    /// view is said once the others are built. What `progress` returned: the walk stops there. Those of a commit.
    pub fn build_views<C: Collection>(&self, progress: impl FnMut(&Progress) -> Result<()>) -> Result<()> {
        let asked = Asked::of::<C>();
        self.seen_by_all().transact(|tx| tx.fitted(asked))?;
        self.build_all(C::NAME, progress)?;
        let entry = self.snapshot()?.entry(C::NAME)?;
        let own = asked.schema();
        let there =
            |spec: &ViewSpec| entry.views.iter().any(|view| view.spec.ready && view.spec.same_terms(spec));
        match own.views().iter().find(|spec| !there(spec)) {
            None => Ok(()),
            Some(spec) => Err(Error::invalid(format!(
                "the view {} of {} was built, and dropped or replaced since",
                spec.name(),
                own.name()
            ))
            .with_hint("somebody else works on the views of this collection: ask who, or build again")),
        }
    }

    /// Builds what is unready in a collection.
    fn build_all(&self, collection: &str, mut progress: impl FnMut(&Progress) -> Result<()>) -> Result<()> {
        let (mut failed, mut first) = (BTreeSet::new(), None);
        loop {
            let unbuilt = unbuilt_of(&self.snapshot()?, collection)?;
            let can_build = |view: &&Unbuilt| self.open_state().can_make_rows(collection, &view.spec);
            // What can be built is built before anybody hears of what cannot.
            let left = || unbuilt.iter().filter(|view| !failed.contains(&view.tree));
            let Some(view) = left().find(can_build).or(left().next()) else {
                if let Some(error) = first {
                    return Err(error);
                }
                let entry = self.snapshot()?.entry(collection)?;
                if let Some(view) = entry.views.first().filter(|_| entry.schema.is_migrating()) {
                    return Err(migrating(collection, view.spec.name()));
                }
                return self.mend_views(collection);
            };
            match view.step(self) {
                Ok(Some(walked)) => progress(&walked)?,
                Ok(None) => {}
                Err(error) => {
                    view.note(self, &error, None);
                    if !is_of_a_view(&error) {
                        return Err(error);
                    }
                    failed.insert(view.tree);
                    first.get_or_insert(error);
                }
            }
        }
    }
}

impl Documents {
    /// Builds the views of this collection that do not hold every document yet, and returns once they do: see
    /// [`Db::build_views`].
    ///
    /// # Errors
    /// As [`Db::build_views`]; `NoSuchTree` if the collection is not there.
    pub fn build_views(&self, progress: impl FnMut(&Progress) -> Result<()>) -> Result<()> {
        self.db().build_all(self.name(), progress)
    }
}
