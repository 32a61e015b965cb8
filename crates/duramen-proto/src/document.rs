//! Documents and values, between messages and the library.
//!
//! Those of a message are checked whole before anything is done with them: MessagePack by the library's own
//! reader, JSON by its own parser.

use duramen::error::{Error, Result};
use duramen::{Document, Value, json};

use crate::v1::{self, DocumentForm};

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
