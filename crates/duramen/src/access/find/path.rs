//! What a path means for the documents of a schema.
//!
//! Pure. A column of exactly the text's name comes first, so a column `a.b` of a CSV file stays a column.

use crate::catalog::schema::{ColumnType, Schema};
use crate::store::error::{Error, Result};
use crate::value::document::{Document, Value};
pub(super) use crate::value::path::Path;

impl Path {
    /// The path that a text means for documents of this schema.
    ///
    /// # Errors
    /// `InvalidArgument` for a text that is no path, a field that the schema does not have, and a path into a
    /// column that has no parts.
    pub(super) fn of(schema: &Schema, text: &str) -> Result<Path> {
        if schema.kind(text).is_some() {
            return Ok(Path::of_field(text));
        }
        let path = Path::parse(text)?;
        let field = path.field();
        match schema.kind(field) {
            None => Err(unknown(schema, field)),
            Some(ColumnType::Any | ColumnType::Unknown) => Ok(path),
            Some(kind) => Err(Error::invalid(format!(
                "{text}: the field {field} is of type {kind}, which has no parts"
            ))
            .with_hint(format!("name the whole field: {field}"))),
        }
    }

    /// Whether it is a column, whose values have the column's type.
    pub(super) fn is_column(&self) -> bool {
        self.is_field()
    }

    /// Whether a value at the path satisfies `test`. An absent value is null; a path through every item of a
    /// list leads to as many values as there are items, and to none where there is no list.
    pub(super) fn any<'d>(
        &self,
        schema: &Schema,
        document: &'d Document,
        test: &mut dyn FnMut(&'d Value) -> bool,
    ) -> bool {
        self.any_inside(self.whole_field(schema, document), test)
    }

    fn whole_field<'d>(&self, schema: &Schema, document: &'d Document) -> &'d Value {
        document.get_in(schema, self.field()).unwrap_or(&Value::Null)
    }

    /// The only value at a path without `is_each`; null if it is absent.
    pub(super) fn value<'d>(&self, schema: &Schema, document: &'d Document) -> &'d Value {
        self.inside(self.whole_field(schema, document))
    }
}

/// The error of a field that a schema does not have.
pub(super) fn unknown(schema: &Schema, field: &str) -> Error {
    const SHOWN_MAX: usize = 8;
    let columns = schema.columns();
    let some: Vec<&str> = columns.iter().take(SHOWN_MAX).map(|column| column.name.as_str()).collect();
    let more = if columns.len() > SHOWN_MAX { ", ..." } else { "" };
    Error::invalid(format!("{} has no field {field}", schema.name()))
        .with_hint(format!("the fields are {}{more}", some.join(", ")))
}

#[cfg(test)]
mod tests {
    //! A path that is misread finds another value.
    use super::*;
    use crate::catalog::schema::Field;
    use crate::doc;

    fn schema() -> Schema {
        let any = |schema: Schema, name: &str| schema.column(name, ColumnType::Any);
        let schema = ["home", "tags", "lines", "new"].into_iter().fold(Schema::new("people"), any);
        schema.column("a.b", ColumnType::Int).column("town", ColumnType::Text)
    }

    fn person() -> Document {
        let line = |price: i64| Value::Map(doc! { "price": price });
        doc! {
            "home": Value::Map(doc! { "city": "Oslo", "0": "zero" }), "tags": vec![Value::from("a"), Value::from("b")],
            "lines": vec![line(5), line(7)], "a.b": 1, "town": "Voss",
        }
    }

    fn check(text: &str, expected: &[Value]) {
        let mut found = Vec::new();
        let path = Path::of(&schema(), text).unwrap();
        path.any(&schema(), &person(), &mut |value| {
            found.push(value.clone());
            false
        });
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn each_step_leads_into_the_value() {
        check("town", &["Voss".into()]);
        check("a.b", &[1.into()]);
        check("home.city", &["Oslo".into()]);
        check("home.0", &["zero".into()]);
        check("home[0]", &[Value::Null]);
        check("home.city.more", &[Value::Null]);
        check("tags[1]", &["b".into()]);
        check("tags.1", &["b".into()]);
        check("tags[2]", &[Value::Null]);
        check("tags[]", &["a".into(), "b".into()]);
        check("lines[].price", &[5.into(), 7.into()]);
        check("lines[].name", &[Value::Null, Value::Null]);
        check("new.x", &[Value::Null]);
        check("home[]", &[]);
    }

    #[test]
    fn a_part_is_found_under_a_name_that_its_field_has_had() {
        let mut field = Field::of::<i64>("new", "i64");
        field.also.push("old".to_owned());
        let schema = Schema::new("people").field(field, ColumnType::Any);
        let path = Path::of(&schema, "new.x").unwrap();
        let document = doc! { "old": Value::Map(doc! { "x": 1 }) };
        assert_eq!(path.value(&schema, &document), &Value::from(1));
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for (text, hint) in [
            ("", "a[0]"),
            (".x", "a[0]"),
            ("home.", "a[0]"),
            ("home..x", "a[0]"),
            ("tags[x]", "a[0]"),
            ("tags[1", "a[0]"),
            ("none.x", "the fields are"),
            ("town.x", "name the whole field: town"),
        ] {
            let error = Path::of(&schema(), text).unwrap_err();
            assert!(error.hint().contains(hint), "{text}: {error}: {}", error.hint());
        }
    }
}
