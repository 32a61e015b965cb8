//! Building views while the caller waits.

use std::collections::BTreeSet;

use crate::access::collection::Collection;
use crate::access::documents::auto_commit::Documents;
use crate::access::handle::Db;
use crate::access::reads::sealed::Readable;
use crate::access::type_descriptor::TypeDescriptor;
use crate::store::error::{Error, Result};

use crate::access::views::build::Progress;
use crate::access::views::state::migrating;
use crate::db::views::in_background::{Unbuilt, is_of_a_view, unbuilt_of};
use crate::view::spec::ViewSpec;

impl Db {
    /// Builds the incomplete views of a collection, and returns once they are complete. The same goes for
    /// references whose documents are not all checked.
    ///
    /// The background builds them as well, unless it is switched off: call this to wait for it. Readers and
    /// writers continue meanwhile; a view that is being built answers `Rebuilding`. After a restart the build
    /// continues where it was. Reductions in code that are missing on disk, because a program without their
    /// code wrote documents, are written to disk.
    ///
    /// An error of one view is returned once the others are built. An error from `progress` stops the walk.
    ///
    /// # Errors
    /// As [`Db::register`], and those of [writing a document](crate::Error#documents); after
    /// `UniqueViolation` (E0214) change one of the two documents, and build again. `MissingTarget` (E0216)
    /// for documents whose reference leads nowhere: change them, and build again. `Unsupported` (E0211) if
    /// this program lacks the code of a view; `Rebuilding` (E0802) while the documents are migrated;
    /// `InvalidArgument` (E0201) if a view was dropped meanwhile.
    pub fn build_views<C: Collection>(&self, progress: impl FnMut(&Progress) -> Result<()>) -> Result<()> {
        let descriptor = TypeDescriptor::of::<C>();
        self.seen_by_all().transact(|tx| tx.registered(descriptor))?;
        self.build_all(C::NAME, progress)?;
        let entry = self.snapshot()?.entry(C::NAME)?;
        let own = descriptor.schema();
        let there =
            |spec: &ViewSpec| entry.views.iter().any(|view| view.spec.ready && view.spec.same_terms(spec));
        match own.views().iter().find(|spec| !there(spec)) {
            None => Ok(()),
            Some(spec) => Err(Error::invalid(format!(
                "the view {} of {} was built, and dropped or replaced since",
                spec.name(),
                own.name()
            ))
            .with_hint("another program changes the views of this collection: build again")),
        }
    }

    /// Builds the incomplete views of a collection.
    fn build_all(&self, collection: &str, mut progress: impl FnMut(&Progress) -> Result<()>) -> Result<()> {
        let (mut failed, mut first) = (BTreeSet::new(), None);
        loop {
            let unbuilt = unbuilt_of(&self.snapshot()?, collection)?;
            let can_build = |view: &&Unbuilt| self.open_state().can_make_rows(collection, &view.spec);
            // Views that can be built are built before an error of the others is returned.
            let left = || unbuilt.iter().filter(|view| !failed.contains(&view.tree));
            let Some(view) = left().find(can_build).or(left().next()) else {
                if let Some(error) = first {
                    return Err(error);
                }
                let entry = self.snapshot()?.entry(collection)?;
                if let Some(view) = entry.own_views().next().filter(|_| entry.schema.is_migrating()) {
                    return Err(migrating(collection, view.spec.name()));
                }
                return self.mend_views(collection);
            };
            match view.step(self) {
                Ok(Some(walked)) => progress(&walked)?,
                Ok(None) => {}
                Err(error) => {
                    let error = view.about_all(self, error);
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
    /// Builds the incomplete views of this collection, and returns once they are complete.
    ///
    /// See [`Db::build_views`].
    ///
    /// # Errors
    /// As [`Db::build_views`]; `NoSuchTree` (E0901) if the collection is not there.
    pub fn build_views(&self, progress: impl FnMut(&Progress) -> Result<()>) -> Result<()> {
        self.db().build_all(self.name(), progress)
    }
}
