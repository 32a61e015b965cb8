//! Documents and values, between messages and the library.
//!
//! Those of a message are checked whole before anything is done with them: MessagePack by the library's own
//! reader, JSON by its own parser.

use duramen::error::{Code, Error, Result};
use duramen::{Document, Value, json};

use crate::v1::{self, DocumentForm};

/// The most values and names of fields in the documents and values of a message. One byte on the wire can be
/// one, and takes up to [`PART_BYTES`] in memory.
pub const PARTS_MAX: usize = 262_144;

/// What a value or the name of a field takes in memory at most, beside its own bytes.
pub const PART_BYTES: usize = 128;

/// How many values and names of fields the documents, values and columns of a batch hold.
///
/// # Errors
/// `TooLarge` (E0203) for more than [`PARTS_MAX`].
pub fn parts_of(batch: &v1::BatchRequest) -> Result<usize> {
    use v1::condition::Kind as Condition;
    let conditions = batch.conditions.iter().map(|condition| match &condition.kind {
        Some(Condition::KeyValueIs(is)) => parts_of_value(is.value.as_ref()),
        _ => 0,
    });
    check_parts(all_parts(&batch.operations) + conditions.sum::<usize>())
}

/// As [`parts_of`], of operations.
///
/// # Errors
/// `TooLarge` (E0203) for more than [`PARTS_MAX`].
pub fn parts_of_operations(operations: &[v1::Operation]) -> Result<usize> {
    check_parts(all_parts(operations))
}

fn all_parts(operations: &[v1::Operation]) -> usize {
    use v1::operation::Kind as Operation;
    let parts = operations.iter().map(|operation| match &operation.kind {
        Some(Operation::Put(put) | Operation::Insert(put)) => parts_of_document(put.document.as_ref()),
        Some(Operation::PutKeyValue(put)) => parts_of_value(put.value.as_ref()),
        // It is checked in two copies.
        Some(Operation::PutTyped(put)) => 2 * Value::parts_of_msgpack(&put.document),
        // A name and a type in the message, and both again in the schema.
        Some(Operation::Ensure(ensure)) => 4 * (ensure.columns.len() + ensure.key.len() + ensure.sums.len()),
        _ => 0,
    });
    parts.sum()
}

fn check_parts(parts: usize) -> Result<usize> {
    if parts <= PARTS_MAX {
        return Ok(parts);
    }
    let what =
        format!("the documents of the batch hold {parts} values and names, at most {PARTS_MAX} are taken");
    Err(Error::new(Code::TooLarge, what).with_hint("send several smaller batches"))
}

fn parts_of_document(document: Option<&v1::Document>) -> usize {
    use v1::document::Form;
    match document.and_then(|document| document.form.as_ref()) {
        Some(Form::Msgpack(bytes)) => Value::parts_of_msgpack(bytes),
        Some(Form::Json(text)) => json::parts_of(text),
        None => 0,
    }
}

fn parts_of_value(value: Option<&v1::Value>) -> usize {
    use v1::value::Form;
    match value.and_then(|value| value.form.as_ref()) {
        Some(Form::Msgpack(bytes)) => Value::parts_of_msgpack(bytes),
        Some(Form::Json(text)) => json::parts_of(text),
        None => 0,
    }
}

/// The document of a message.
///
/// # Errors
/// `InvalidArgument` (E0201) if there is none or it is no document.
pub fn required(document: Option<&v1::Document>) -> Result<Document> {
    use v1::document::Form;
    match document.and_then(|document| document.form.as_ref()) {
        Some(Form::Msgpack(bytes)) => Document::from_bytes(bytes),
        Some(Form::Json(text)) => Document::from_json(text),
        None => Err(Error::invalid("the call has no document").with_hint("set its msgpack or its json")),
    }
}

/// A document as a message, in a form.
///
/// # Errors
/// `InvalidArgument` (E0201) if it cannot be written in that form.
pub fn of(document: &Document, form: DocumentForm) -> Result<v1::Document> {
    of_stored(&document.to_bytes()?, form)
}

/// A stored document as a message, in a form.
///
/// # Errors
/// `InvalidArgument` (E0201) if it cannot be written in that form.
pub fn of_stored(stored: &[u8], form: DocumentForm) -> Result<v1::Document> {
    use v1::document::Form;
    let form = match form {
        DocumentForm::Msgpack => Form::Msgpack(bytes::Bytes::copy_from_slice(stored)),
        DocumentForm::Json => Form::Json(json::from_stored(stored)?),
    };
    Ok(v1::Document { form: Some(form) })
}

/// The value of a message.
///
/// # Errors
/// `InvalidArgument` (E0201) if there is none or it is no value.
pub fn required_value(value: Option<&v1::Value>) -> Result<Value> {
    use v1::value::Form;
    match value.and_then(|value| value.form.as_ref()) {
        Some(Form::Msgpack(bytes)) => Value::from_msgpack(bytes),
        Some(Form::Json(text)) => json::parse(text),
        None => Err(Error::invalid("the call has no value").with_hint("set its msgpack or its json")),
    }
}

/// A value as a message, in a form.
///
/// # Errors
/// `InvalidArgument` (E0201) if it cannot be written in that form.
pub fn of_value(value: &Value, form: DocumentForm) -> Result<v1::Value> {
    use v1::value::Form;
    let form = match form {
        DocumentForm::Msgpack => Form::Msgpack(value.to_msgpack()?.into()),
        DocumentForm::Json => Form::Json(value.to_json()?),
    };
    Ok(v1::Value { form: Some(form) })
}
