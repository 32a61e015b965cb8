//! The state of a view: ready, being built, or failed; and which view answers a query.

use crate::access::reads::sealed::Readable;
use crate::catalog::entries::{Entry, OpenView};
use crate::catalog::schema::Schema;
use crate::store::error::{Code, Error, Result};

use crate::access::views::View;
use crate::access::views::build;
use crate::access::views::{failures, mapped};
use crate::view::key_field::KeyField;
use crate::view::spec::ViewSpec;

/// A view of a collection, and its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewState {
    /// The collection.
    pub collection: String,
    /// The view.
    pub view: ViewSpec,
    /// Its build phase.
    pub phase: ViewPhase,
    /// The error of the last attempt to build it, as text. The background work retries.
    pub failed: Option<String>,
    /// Whether this program can build it. A view in code needs its code, which is known once the collection's
    /// type was used.
    pub has_code: bool,
}

/// The build phase of a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ViewPhase {
    /// It covers every document, and answers.
    Ready,
    /// It is being built from documents that existed before it.
    Building {
        /// Documents that the walk has passed.
        documents: u64,
        /// Documents in the collection.
        of: u64,
    },
    /// A view in code that lacks rows of some documents. Programs without its code wrote them; they wait for
    /// a program that has it.
    Behind {
        /// Documents that wait.
        documents: u64,
    },
}

impl ViewState {
    /// Whether the view answers queries.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.phase == ViewPhase::Ready
    }
}

/// Every view of a collection, in the order in which they were added, then those that it keeps for
/// references. A name repeats while its view is being changed.
pub(crate) fn states(state: &dyn Readable, entry: &Entry) -> Result<Vec<ViewState>> {
    entry.views.iter().map(|view| state_of(state, entry, view)).collect()
}

pub(crate) fn state_of(state: &dyn Readable, entry: &Entry, view: &OpenView) -> Result<ViewState> {
    let (source, collection) = (state.source(), entry.schema.name());
    let phase = if view.spec.ready {
        match mapped::waiting(source, view)? {
            0 => ViewPhase::Ready,
            documents => ViewPhase::Behind { documents },
        }
    } else {
        let progress = build::progress(source, entry, &view.spec)?;
        ViewPhase::Building { documents: progress.documents, of: progress.of }
    };
    let failed = match phase {
        ViewPhase::Ready => None,
        _ => failures::why(source, &state.open_state().builds.failures, collection, view)?,
    };
    let has_code = state.open_state().can_make_rows(collection, &view.spec);
    Ok(ViewState { collection: collection.to_owned(), view: view.spec.clone(), phase, failed, has_code })
}

/// The view that answers for a type.
///
/// # Errors
/// `Rebuilding`, with the progress, or the reason why it is not built.
pub(crate) fn answering<'e, V: View>(state: &dyn Readable, entry: &'e Entry) -> Result<&'e OpenView> {
    for view in entry.views.iter().filter(|view| view.is_of::<V>()) {
        if is_current(state, view)? {
            return Ok(view);
        }
    }
    answering_instead(state, entry, &V::spec())
}

/// An earlier version of a view in code, if the program declares that it may answer.
#[cold]
fn answering_instead<'e>(state: &dyn Readable, entry: &'e Entry, wanted: &ViewSpec) -> Result<&'e OpenView> {
    for view in entry.own_views().filter(|view| view.spec.name() == wanted.name()) {
        if wanted.code_version().is_some()
            && view.spec.same_shape(wanted)
            && state.open_state().types.is_followed(entry.schema.name(), &view.spec, wanted)
            && is_current(state, view)?
        {
            return Ok(view);
        }
    }
    match entry.views.iter().find(|view| view.spec.same_terms(wanted)) {
        Some(own) => Err(not_ready(state, entry, wanted.name(), own)?),
        None => Err(not_registered(&entry.schema, wanted)),
    }
}

/// Whether a view now covers every document.
fn is_current(state: &dyn Readable, view: &OpenView) -> Result<bool> {
    Ok(view.spec.ready && mapped::waiting(state.source(), view)? == 0)
}

/// The newest view of a name that can answer.
///
/// # Errors
/// `NoSuchTree` if there is none of that name; `Rebuilding`, with the progress, or the reason why it is not
/// built.
pub(crate) fn answering_by_name<'e>(
    state: &dyn Readable,
    entry: &'e Entry,
    name: &str,
) -> Result<&'e OpenView> {
    if entry.schema.is_migrating() {
        return Err(migrating(entry.schema.name(), name));
    }
    let named = || entry.own_views().filter(|view| view.spec.name() == name);
    let mut newest_first: Vec<&OpenView> = named().collect();
    newest_first.sort_by_key(|view| std::cmp::Reverse(view.spec.generation));
    for view in &newest_first {
        if is_current(state, view)? {
            return Ok(view);
        }
    }
    match newest_first.first() {
        Some(view) => Err(not_ready(state, entry, name, view)?),
        None => Err(unknown(entry, name)),
    }
}

/// The view of a name and a generation, if it can answer; without one, as [`answering_by_name`].
///
/// # Errors
/// As [`answering_by_name`].
pub(crate) fn answering_generation<'e>(
    state: &dyn Readable,
    entry: &'e Entry,
    name: &str,
    generation: Option<u64>,
) -> Result<&'e OpenView> {
    let Some(generation) = generation.filter(|_| !entry.schema.is_migrating()) else {
        return answering_by_name(state, entry, name);
    };
    let is_meant = |view: &&OpenView| view.spec.name() == name && view.spec.generation == generation;
    let view = entry.own_views().find(is_meant).ok_or_else(|| unknown(entry, name))?;
    if is_current(state, view)? { Ok(view) } else { Err(not_ready(state, entry, name, view)?) }
}

#[cold]
pub(crate) fn migrating(collection: &str, view: &str) -> Error {
    let message =
        format!("the view {view} does not hold every document: those of {collection} are to be migrated");
    Error::new(Code::Rebuilding, message).with_hint("Db::migrate converts them and reports its progress")
}

#[cold]
fn not_ready(state: &dyn Readable, entry: &Entry, name: &str, view: &OpenView) -> Result<Error> {
    let collection = entry.schema.name();
    let error = |how: &str| {
        Error::new(
            Code::Rebuilding,
            format!("the view {name} of {collection} does not hold every document yet: {how}"),
        )
    };
    let ViewState { phase, failed, has_code, .. } = state_of(state, entry, view)?;
    Ok(match (phase, failed) {
        (ViewPhase::Behind { documents }, None) if !has_code => {
            error(&format!("{documents} document(s) were written by programs without its code"))
                .with_hint("a program that has the code maps them as soon as it uses the collection's type")
        }
        (ViewPhase::Building { documents, of }, None) if !has_code => {
            error(&format!("it has {documents} of {of}"))
                .with_hint("a program that has its code builds it as soon as it uses the collection's type")
        }
        (ViewPhase::Behind { documents }, None) => {
            error(&format!("{documents} document(s) were written by programs without its code"))
                .with_hint("they are being mapped in the background; Db::build_views waits until they are")
        }
        (_, Some(why)) => error(&format!("building it failed: {why}"))
            .with_hint("once that is fixed it is built in the background; Db::build_views builds it now"),
        (ViewPhase::Building { documents, of }, None) => error(&format!("it has {documents} of {of}"))
            .with_hint("it is being built in the background; Db::build_views waits until it is"),
        (ViewPhase::Ready, None) => error("it just became ready").with_hint("ask again"),
    })
}

/// The error of a view that a type declares and the collection does not have. A program that only reads adds
/// none.
#[cold]
pub(crate) fn not_registered(stored: &Schema, wanted: &ViewSpec) -> Error {
    let (collection, name) = (stored.name(), wanted.name());
    let known = stored.views().iter().rfind(|view| view.name() == name);
    let how = match known.map(definition) {
        None => format!("the collection {collection} has no view {name} yet, and the type declares one"),
        Some(held) if held == definition(wanted) => {
            format!("the view {name} of {collection} is stored with other reductions than the type declares")
        }
        Some(held) => {
            let wanted = definition(wanted);
            format!("the view {name} of {collection} is stored with {held}, and the type declares {wanted}")
        }
    };
    Error::new(Code::Rebuilding, format!("{how}: reading does not change the collection")).with_hint(
        "call Db::register for the type once, or write a document: the view is then built in the background, and \
         Db::build_views waits for it; if this program opens the database read-only, let one do it that writes",
    )
}

/// A view's definition without its reductions, as a text.
fn definition(spec: &ViewSpec) -> String {
    if let Some(version) = spec.code_version() {
        return format!("code of version {version}");
    }
    let element = |field: &KeyField| {
        let name = field.name();
        if field.is_descending() { format!("desc({name})") } else { name.to_owned() }
    };
    let key: Vec<String> = spec.key_fields().iter().map(element).collect();
    let flags = [(spec.is_each(), ", each"), (spec.is_unique(), ", unique"), (spec.has_nulls(), ", nulls")];
    let flags = flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| *flag);
    format!("the key ({}){}", key.join(", "), flags.collect::<String>())
}

/// The error of a view that is not there.
#[cold]
pub(crate) fn unknown(entry: &Entry, name: &str) -> Error {
    let names: Vec<&str> = entry.own_views().map(|view| view.spec.name()).collect();
    let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    Error::new(Code::NoSuchTree, format!("the collection {} has no view {name}", entry.schema.name()))
        .with_hint(format!("there is {there}"))
}
