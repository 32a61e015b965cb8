//! Nested objects as flat ones, and columns for them: `{"at":{"lat":1}}` has the column `at.lat`.
//!
//! Lists stay as they are, and so do objects without fields: nothing would be left of them.

use duramen::{Document, Schema, Value};

/// The same document without nested objects.
///
/// # Errors
/// The name that two fields would have.
pub(crate) fn flattened(document: &Document) -> Result<Document, String> {
    let mut flat = Document::new();
    document.iter().try_for_each(|(name, value)| add(&mut flat, name.to_owned(), value))?;
    Ok(flat)
}

fn add(flat: &mut Document, name: String, value: &Value) -> Result<(), String> {
    match value {
        Value::Map(fields) if fields.iter().len() > 0 => {
            fields.iter().try_for_each(|(field, value)| add(flat, format!("{name}.{field}"), value))
        }
        _ if flat.get(&name).is_some() => Err(name),
        value => {
            flat.set(name, value.clone());
            Ok(())
        }
    }
}

/// The columns of flat documents, in the order of the columns that they come from.
pub(crate) struct FlatColumns {
    /// The fields of each column.
    columns: Vec<(String, Vec<String>)>,
}

impl FlatColumns {
    pub(crate) fn new(schema: &Schema) -> FlatColumns {
        let columns = schema.columns().iter().map(|column| (column.name.clone(), Vec::new()));
        FlatColumns { columns: columns.collect() }
    }

    /// Adds the columns that a document needs. A null needs none beside the others of its field.
    pub(crate) fn look(&mut self, document: &Document) {
        for (top, value) in document.iter() {
            let mut field = Document::new();
            field.set(top, value.clone());
            // Below one field no two names are the same unless they have points; `flattened` refuses those.
            let Ok(flat) = flattened(&field) else { continue };
            let at = self.columns.iter().position(|(column, _)| column == top).unwrap_or_else(|| {
                self.columns.push((top.to_owned(), Vec::new()));
                self.columns.len() - 1
            });
            let names = &mut self.columns[at].1;
            for (name, value) in flat.iter() {
                if *value != Value::Null && !names.iter().any(|known| known == name) {
                    names.push(name.to_owned());
                }
            }
        }
    }

    /// The names of the columns. A field without any value keeps its own.
    pub(crate) fn names(self) -> Vec<String> {
        let names = self.columns.into_iter().flat_map(|(column, names)| match names.is_empty() {
            true => vec![column],
            false => names,
        });
        names.collect()
    }
}
