//! Views, between messages and the library.

use duramen::error::{Code, Error, Result};
use duramen::view::{KeyField, Reduce};
use duramen::{LocalReads as _, Schema, Transaction, ViewPhase, ViewSpec, ViewState};

use crate::v1;

/// The most values, and the most reductions, of a view.
const PARTS_MAX: usize = 64;

/// Adds a view. Returns whether it is new.
///
/// # Errors
/// As [`Transaction::add_view`]; `AlreadyExists` (E0210) if there is one of the same name with another
/// definition, and it is not to be replaced.
pub fn add(tx: &mut Transaction<'_>, collection: &str, spec: &ViewSpec, replaces: bool) -> Result<bool> {
    let schema = tx.documents(collection).schema()?;
    let is_known = schema.views().iter().any(|view| view.name() == spec.name());
    let is_new = tx.add_view(collection, spec)?;
    if is_new && is_known && !replaces {
        let what = format!("{collection} has a view {} with other terms", spec.name());
        return Err(Error::new(Code::AlreadyExists, what).with_hint("replace it, or choose another name"));
    }
    Ok(is_new)
}

/// Whether the view of this name is complete, and not being built anew.
#[must_use]
pub fn is_complete(states: &[ViewState], view: &str) -> bool {
    let mut own = states.iter().filter(|state| state.view.name() == view).peekable();
    own.peek().is_some() && own.all(ViewState::is_ready)
}

/// The view of a message.
///
/// # Errors
/// `InvalidArgument` (E0201) if there is none, and for an unknown reduction; `TooLarge` (E0203) for too many
/// values or reductions.
pub fn required(view: Option<&v1::ViewDefinition>) -> Result<ViewSpec> {
    let view = view.ok_or_else(|| Error::invalid("the call has no view"))?;
    let parts = view.values.len().max(view.reductions.len());
    if parts > PARTS_MAX {
        let what = format!("the view has {parts} values or reductions, at most {PARTS_MAX} are taken");
        return Err(Error::new(Code::TooLarge, what).with_hint("reduce fewer fields, or add several views"));
    }
    let key = view.key.iter().map(|field| {
        let named = if field.is_path { KeyField::path(&field.name) } else { KeyField::field(&field.name) };
        if field.descending { named.descending() } else { named }
    });
    let reductions = view.reductions.iter().map(reduce).collect::<Result<Vec<_>>>()?;
    let mut spec = ViewSpec::new(view.name.as_str(), key).values(&view.values).reduce(reductions);
    if view.each {
        spec = spec.each();
    }
    if view.nulls {
        spec = spec.nulls();
    }
    Ok(if view.unique { spec.unique() } else { spec })
}

fn reduce(reduce: &v1::Reduce) -> Result<Reduce> {
    let (value, count) = (reduce.value_index as usize, reduce.count as usize);
    Ok(match reduce.reduce.as_str() {
        "sum" => Reduce::Sum(value),
        "min" => Reduce::Min(value),
        "max" => Reduce::Max(value),
        "top" => Reduce::TopK(value, count),
        "bottom" => Reduce::BottomK(value, count),
        "distinct" => Reduce::Distinct(value),
        "quantiles" => Reduce::Quantiles(value),
        other => {
            return Err(Error::invalid(format!("there is no reduction {other:?}"))
                .with_hint("use sum, min, max, top, bottom, distinct or quantiles; code runs in the server's program only"));
        }
    })
}

/// A view as a message.
///
/// # Errors
/// `Unsupported` (E0211) for a view in code.
pub fn of(view: &ViewSpec) -> Result<v1::ViewDefinition> {
    let is_code = view.code_version().is_some()
        || view.reductions().iter().any(|reduce| matches!(reduce, Reduce::Code { .. }));
    if is_code {
        return Err(Error::new(Code::Unsupported, format!("the view {} is made by code", view.name()))
            .with_hint("add it in the program that has its code and serves the database"));
    }
    let key = view.key_fields().iter().map(|field| v1::ViewKeyField {
        name: field.name().to_owned(),
        is_path: field.is_path(),
        descending: field.is_descending(),
    });
    let reductions = view.reductions().iter().map(|reduce| v1::Reduce {
        reduce: reduce.name().to_owned(),
        value_index: u32::try_from(reduce.value()).unwrap_or(u32::MAX),
        count: match reduce {
            Reduce::TopK(_, count) | Reduce::BottomK(_, count) => u32::try_from(*count).unwrap_or(u32::MAX),
            _ => 0,
        },
    });
    Ok(v1::ViewDefinition {
        name: view.name().to_owned(),
        key: key.collect(),
        values: view.value_fields().to_vec(),
        reductions: reductions.collect(),
        each: view.is_each(),
        nulls: view.has_nulls(),
        unique: view.is_unique(),
    })
}

/// The state of a view of a collection as a message, with the number of its rows.
///
/// # Errors
/// As [`Schema::to_bytes`].
pub fn of_state(schema: &Schema, state: &ViewState, rows: u64) -> Result<v1::ViewState> {
    let (phase, documents, of) = match state.phase {
        ViewPhase::Ready => (v1::ViewPhase::Ready, 0, 0),
        ViewPhase::Building { documents, of } => (v1::ViewPhase::Building, documents, of),
        ViewPhase::Behind { documents } => (v1::ViewPhase::Behind, documents, 0),
        _ => (v1::ViewPhase::Unknown, 0, 0),
    };
    Ok(v1::ViewState {
        collection: state.collection.clone(),
        name: state.view.name().to_owned(),
        phase: phase.into(),
        documents,
        of,
        failed: state.failed.clone().unwrap_or_default(),
        rows,
        has_code: state.has_code,
        definition: Schema::new(schema.name())
            .key(schema.key_columns())
            .view(state.view.clone())
            .to_bytes()?
            .into(),
    })
}

/// The state of a view from a message, with the number of its rows.
///
/// # Errors
/// `WrongVersion` (E1109) for what this release does not know.
pub fn state(message: &v1::ViewState) -> Result<(ViewState, u64)> {
    let unknown = || {
        Error::new(Code::WrongVersion, "the server's answer has a view that this release does not know")
            .with_hint("use a server and a client of the same release")
    };
    let (documents, of) = (message.documents, message.of);
    let phase = match v1::ViewPhase::try_from(message.phase) {
        Ok(v1::ViewPhase::Ready) => ViewPhase::Ready,
        Ok(v1::ViewPhase::Building) => ViewPhase::Building { documents, of },
        Ok(v1::ViewPhase::Behind) => ViewPhase::Behind { documents },
        Ok(v1::ViewPhase::Unknown) | Err(_) => return Err(unknown()),
    };
    let schema = Schema::from_bytes(&message.definition)?;
    let view = schema.views().first().cloned().ok_or_else(unknown)?;
    let failed = Some(message.failed.clone()).filter(|failed| !failed.is_empty());
    let collection = message.collection.clone();
    Ok((ViewState { collection, view, phase, failed, has_code: message.has_code }, message.rows))
}
