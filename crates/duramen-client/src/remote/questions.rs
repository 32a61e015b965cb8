//! What typed queries ask a server, as messages and back: the same in a transaction and outside of one.

use bytes::Bytes;
use duramen::error::Result;
use duramen::tuple::{self, KeyFor};
use duramen::wire::{self, Far, FarGroup, FarRows, StoredType};
use duramen::{Collection, Direction};
use duramen_proto::v1;
use duramen_proto::v1::read::Kind as Asked;
use duramen_proto::v1::read_result::Kind as Told;

use super::transaction::lacks;

/// The document under a key.
pub(super) fn get(of: StoredType, key: &[u8]) -> Asked {
    Asked::Get(document_key(of, key))
}

/// The document of a type under a key.
///
/// # Errors
/// As [`duramen::Reads::get`].
pub(super) fn get_typed<C: Collection>(far: &impl Far, key: &impl KeyFor<C::Key>) -> Result<Option<C>> {
    let key = tuple::encode(key)?;
    let found = far.get(StoredType::of::<C>(), &key)?;
    found.map(|named| wire::read_named(&key, &named)).transpose()
}

/// A key of a document.
pub(super) fn document_key(of: StoredType, key: &[u8]) -> v1::DocumentKey {
    v1::DocumentKey { collection: of.name().to_owned(), key: Some(encoded_key(key)) }
}

/// A key that is encoded.
pub(super) fn encoded_key(key: &[u8]) -> v1::Key {
    v1::Key { elements: Vec::new(), encoded: Bytes::copy_from_slice(key) }
}

/// The document of an answer.
///
/// # Errors
/// `WrongVersion` (E1109) if it is none.
pub(super) fn document(told: Told) -> Result<Option<Vec<u8>>> {
    match told {
        Told::Found(v1::Found { document: None }) => Ok(None),
        Told::Found(v1::Found {
            document: Some(v1::Document { form: Some(v1::document::Form::Msgpack(bytes)) }),
        }) => Ok(Some(bytes.to_vec())),
        _ => Err(lacks("document")),
    }
}

fn range(rows: &FarRows) -> Option<v1::Range> {
    let from = Bytes::copy_from_slice(&rows.range.from);
    let to = rows.range.to.as_ref().map(|to| Bytes::copy_from_slice(to));
    Some(v1::Range { encoded: Some(v1::EncodedRange { from, to }), ..v1::Range::default() })
}

/// How many rows there are.
pub(super) fn count(rows: &FarRows, generation: Option<u64>) -> Asked {
    let (collection, view) = (rows.of.name().to_owned(), rows.view_name().to_owned());
    Asked::Count(v1::RangeOf { collection, range: range(rows), view, generation })
}

/// The number of an answer.
///
/// # Errors
/// `WrongVersion` (E1109) if it is none.
pub(super) fn number(told: &Told) -> Result<u64> {
    if let Told::Number(number) = told { Ok(*number) } else { Err(lacks("number")) }
}

/// Rows.
pub(super) fn rows(rows: &FarRows, generation: Option<u64>, with_documents: bool) -> v1::RowsOf {
    v1::RowsOf {
        collection: rows.of.name().to_owned(),
        view: rows.view_name().to_owned(),
        range: range(rows),
        reverse: rows.direction == Direction::Reverse,
        limit: if rows.limit == u64::MAX { 0 } else { rows.limit },
        with_documents,
        skip: 0,
        generation,
    }
}

/// The row that has so many others before it.
pub(super) fn nth(of: &FarRows, generation: Option<u64>, index: u64) -> Asked {
    Asked::Rows(v1::RowsOf { skip: index, limit: 1, ..rows(of, generation, of.view.is_none()) })
}

/// The rows of an answer.
///
/// # Errors
/// `WrongVersion` (E1109) if it has none.
pub(super) fn found_rows(told: Told) -> Result<v1::Rows> {
    if let Told::Rows(rows) = told { Ok(rows) } else { Err(lacks("rows")) }
}

/// The only row of an answer.
///
/// # Errors
/// As [`found_rows`].
pub(super) fn one_row(told: Told) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
    let row = found_rows(told)?.rows.into_iter().next();
    Ok(row.map(|row| (row.key.to_vec(), row.document.to_vec())))
}

/// The reductions of groups; with 0 elements, that of all rows.
pub(super) fn reduce(rows: &FarRows, generation: Option<u64>, elements: usize) -> Asked {
    Asked::ReduceView(v1::ReduceView {
        collection: rows.of.name().to_owned(),
        view: rows.view_name().to_owned(),
        range: range(rows),
        group_by: u32::try_from(elements).unwrap_or(u32::MAX),
        encoded: true,
        reverse: rows.direction == Direction::Reverse,
        limit: if rows.limit == u64::MAX { 0 } else { rows.limit },
        generation,
    })
}

/// The groups of an answer.
///
/// # Errors
/// `WrongVersion` (E1109) if it has none.
pub(super) fn groups(told: Told) -> Result<Vec<FarGroup>> {
    let Told::ViewReductions(v1::ViewReductions { groups }) = told else { return Err(lacks("reductions")) };
    let group = |group: v1::ReductionGroup| FarGroup {
        key: group.key.map(|key| key.encoded.to_vec()).unwrap_or_default(),
        count: group.count,
        reduction: group.encoded.to_vec(),
    };
    Ok(groups.into_iter().map(group).collect())
}

/// The only group of an answer.
///
/// # Errors
/// As [`groups`].
pub(super) fn one_group(told: Told) -> Result<(u64, Vec<u8>)> {
    let group = groups(told)?.into_iter().next().ok_or_else(|| lacks("reduction"))?;
    Ok((group.count, group.reduction))
}

/// The key-value of a key.
pub(super) fn key_value(namespace: &str, key: &[u8]) -> v1::KeyValueKey {
    v1::KeyValueKey { namespace: namespace.to_owned(), key: Some(encoded_key(key)) }
}

/// The value of an answer.
///
/// # Errors
/// `WrongVersion` (E1109) if it is none.
pub(super) fn value(told: Told) -> Result<Option<Bytes>> {
    match told {
        Told::Value(v1::FoundValue { value: None }) => Ok(None),
        Told::Value(v1::FoundValue {
            value: Some(v1::Value { form: Some(v1::value::Form::Msgpack(bytes)) }),
        }) => Ok(Some(bytes)),
        _ => Err(lacks("value")),
    }
}

/// Leaves out the rows up to a key.
pub(super) fn go_on_behind(of: &mut v1::RowsOf, key: &Bytes) {
    let range = of.range.get_or_insert_default().encoded.get_or_insert_default();
    match of.reverse {
        true => range.to = Some(key.clone()),
        // The first key behind another one is that with another byte.
        false => range.from = [key, &[0][..]].concat().into(),
    }
    of.skip = 0;
}
