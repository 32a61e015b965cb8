//! Whole fields of documents, read where they are stored.
//!
//! A scan tests or sums a few fields of most documents. Of these no value is made: a scalar is compared or
//! added where it lies. Documents with names, conditions on parts of fields, and fields that hold lists or
//! maps go the long way, through [`Document`](crate::Document)s.

use super::path::Path;
use crate::catalog::schema::Schema;
use crate::catalog::shapes::Shape;
use crate::store::error::Result;
use crate::value::msgpack::{Reader, Token};

/// Finds some fields in documents that are stored by shape.
#[derive(Debug, Clone)]
pub(super) struct FieldFinder {
    /// The fields that are wanted; nothing in place of `None`.
    fields: Vec<Option<String>>,
    /// The shape of the last document.
    shape: Option<u32>,
    /// The positions of the fields among the values of this shape, rising, each with the index of its field.
    positions: Vec<(usize, usize)>,
    /// The indexes of fields that this shape lacks.
    absent: Vec<usize>,
    /// A field has two values in this shape, under names that it has had.
    is_twice: bool,
    /// Where the fields of the last document begin; `None` for one that it lacks.
    starts: Vec<Option<usize>>,
}

/// Fields of one document that are all absent or scalars.
#[derive(Debug, Clone, Copy)]
pub(super) struct StoredFields<'d> {
    values: &'d [u8],
    starts: &'d [Option<usize>],
}

impl FieldFinder {
    /// A finder of these fields; `None` if one of the paths is only a part of a field. `None` among the paths
    /// stands for nothing.
    pub(super) fn new<'p>(paths: impl Iterator<Item = Option<&'p Path>>) -> Option<FieldFinder> {
        let fields: Vec<Option<String>> = paths
            .map(|path| match path {
                None => Some(None),
                Some(path) => path.is_column().then(|| Some(path.field().to_owned())),
            })
            .collect::<Option<_>>()?;
        let starts = vec![None; fields.len()];
        let (shape, positions, absent, is_twice) = Default::default();
        Some(FieldFinder { fields, shape, positions, absent, is_twice, starts })
    }

    /// Whether fields pass a test, which is given their indexes and scalars, or null for one that is absent.
    /// They are tested in the order in which they are stored, and nothing is read after the first that fails.
    /// `None` if one that is reached is a list or map, or one is there twice.
    ///
    /// # Errors
    /// `InvalidArgument` for bytes that are no values.
    pub(super) fn all_pass(
        &mut self,
        schema: &Schema,
        shape: &Shape,
        values: &[u8],
        mut passes: impl FnMut(usize, &Token<'_>) -> bool,
    ) -> Result<Option<bool>> {
        if !self.knows(schema, shape) {
            return Ok(None);
        }
        if !self.absent.iter().all(|index| passes(*index, &Token::Null)) {
            return Ok(Some(false));
        }
        visit(&self.positions, values, |index, field| match &field.peek() {
            Ok(found) => Ok(passes(index, found)),
            Err(error) => Err(error.clone()),
        })
    }

    /// The fields in the values of a document; `None` if one of them is a list or map, or there twice.
    ///
    /// # Errors
    /// `InvalidArgument` for bytes that are no values.
    pub(super) fn find<'d>(
        &'d mut self,
        schema: &Schema,
        shape: &Shape,
        values: &'d [u8],
    ) -> Result<Option<StoredFields<'d>>> {
        if !self.knows(schema, shape) {
            return Ok(None);
        }
        let starts = &mut self.starts;
        let found = visit(&self.positions, values, |index, field| {
            starts[index] = Some(values.len() - field.rest().len());
            Ok(true)
        })?;
        Ok(found.map(|_| StoredFields { values, starts: &self.starts }))
    }

    /// Looks the fields up in a shape, unless it is that of the last document. `false` if one is there twice.
    fn knows(&mut self, schema: &Schema, shape: &Shape) -> bool {
        if self.shape != Some(shape.number()) {
            self.look_up(schema, shape);
        }
        !self.is_twice
    }

    fn look_up(&mut self, schema: &Schema, shape: &Shape) {
        let called = |name: &str, field: &str| schema.same_field(name.as_bytes(), field.as_bytes());
        self.shape = Some(shape.number());
        self.positions.clear();
        self.starts.fill(None);
        for (position, name) in shape.layout().names().iter().enumerate() {
            let wanted = self.fields.iter().enumerate();
            let is_it = |field: &Option<String>| field.as_deref().is_some_and(|field| called(name, field));
            self.positions
                .extend(wanted.filter(|(_, field)| is_it(field)).map(|(index, _)| (position, index)));
        }
        let found = |index: usize| self.positions.iter().filter(|(_, other)| *other == index).count();
        self.is_twice = (0..self.fields.len()).any(|index| found(index) > 1);
        self.absent = (0..self.fields.len()).filter(|index| found(*index) == 0).collect();
    }
}

/// Calls `at_field` with the index of each field and a reader that stands before its value, until it returns
/// `false`. `None` if a field that is reached is a list or map.
fn visit(
    positions: &[(usize, usize)],
    values: &[u8],
    mut at_field: impl FnMut(usize, &Reader<'_>) -> Result<bool>,
) -> Result<Option<bool>> {
    let (mut reader, mut next) = (Reader::new(values), 0);
    for (position, index) in positions {
        reader.skip_values(position - next)?;
        next = *position;
        if reader.is_before_items() {
            return Ok(None);
        }
        if !at_field(*index, &reader)? {
            return Ok(Some(false));
        }
    }
    Ok(Some(true))
}

impl<'d> StoredFields<'d> {
    /// Calls `read` with the field of an index: a scalar, null if it is absent. It is lent, because to copy a
    /// token right after it was made is slow.
    ///
    /// # Errors
    /// `InvalidArgument` for bytes that are no value; those of `read`.
    pub(super) fn scalar<T>(&self, index: usize, read: impl FnOnce(&Token<'d>) -> Result<T>) -> Result<T> {
        let Some(start) = self.starts[index] else { return read(&Token::Null) };
        match &Reader::new(&self.values[start..]).peek() {
            Ok(token) => read(token),
            Err(error) => Err(error.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    //! What is read where it is stored must be what the document has.
    use super::*;
    use crate::access::find::condition::Condition;
    use crate::catalog::schema::{ColumnType, Field};
    use crate::catalog::shapes::{CollectionShapes, LastShape, Shapes};
    use crate::doc;
    use crate::store::error::Code;
    use crate::value::document::{Document, Value};

    /// Scalars of the fields, and nothing if they are not read where they are stored.
    fn found(shapes: &Shapes, schema: &Schema, finder: &mut FieldFinder, document: &Document) -> Vec<Value> {
        let last = LastShape::default();
        let of = CollectionShapes { collection: "c", sums: &[], last: &last };
        let (_, stored) = shapes.shaped(&of, &document.to_bytes().unwrap()).unwrap().unwrap();
        let (shape, values) = shapes.split(&stored).unwrap();
        let Some(fields) = finder.find(schema, shape, values).unwrap() else { return Vec::new() };
        let value = |index| fields.scalar(index, |found| Ok(Value::of_scalar(*found))).unwrap();
        (0..fields.starts.len()).map(value).collect()
    }

    #[test]
    fn fields_are_found_in_documents_of_any_shape() {
        let (shapes, schema) = (Shapes::default(), Schema::new("c"));
        let paths = ["b", "a", "b", "none"].map(Path::of_field);
        let mut finder = FieldFinder::new([None].into_iter().chain(paths.iter().map(Some))).unwrap();
        let mut check = |document: Document, expected: &[Value]| {
            assert_eq!(found(&shapes, &schema, &mut finder, &document), expected, "{document}");
        };
        let null = || Value::Null;
        for _ in 0..2 {
            check(
                doc! { "a": 1, "x": vec![Value::from(5)], "b": "two" },
                &[null(), "two".into(), 1.into(), "two".into(), null()],
            );
            check(doc! { "b": 2.5, "a": true }, &[null(), 2.5.into(), true.into(), 2.5.into(), null()]);
            check(doc! { "a": 1 }, &[null(), null(), 1.into(), null(), null()]);
            check(doc! { "x": 1 }, &[null(), null(), null(), null(), null()]);
            check(doc! { "a": 1, "b": vec![Value::from(1)] }, &[]);
            check(doc! { "a": Value::Map(Document::new()), "b": 1 }, &[]);
        }
    }

    #[test]
    fn a_part_of_a_field_and_a_field_under_two_names_go_the_long_way() {
        let part = Path::parse("a.b").unwrap();
        assert!(FieldFinder::new([Some(&part)].into_iter()).is_none());
        let mut field = Field::of::<i64>("new", "i64");
        field.also.push("old".to_owned());
        let schema = Schema::new("c").field(field, ColumnType::Int);
        let path = Path::of_field("new");
        let mut finder = FieldFinder::new([Some(&path)].into_iter()).unwrap();
        let shapes = Shapes::default();
        assert_eq!(found(&shapes, &schema, &mut finder, &doc! { "old": 1 }), [Value::from(1)]);
        assert_eq!(found(&shapes, &schema, &mut finder, &doc! { "old": 1, "new": 2 }), []);
        assert_eq!(found(&shapes, &schema, &mut finder, &doc! { "x": 1, "new": 2 }), [Value::from(2)]);
    }

    #[test]
    fn values_that_end_early_are_an_error() {
        let (shapes, schema) = (Shapes::default(), Schema::new("c"));
        let last = LastShape::default();
        let of = CollectionShapes { collection: "c", sums: &[], last: &last };
        let document = doc! { "a": 1, "b": "two" };
        let (_, stored) = shapes.shaped(&of, &document.to_bytes().unwrap()).unwrap().unwrap();
        let condition = Condition::parse(&schema.column("b", ColumnType::Any), "b=two").unwrap();
        let (shape, values) = shapes.split(&stored).unwrap();
        for end in 0..values.len() {
            let mut finder = FieldFinder::new([condition.one_path()].into_iter()).unwrap();
            let found = finder.find(&Schema::new("c"), shape, &values[..end]);
            let read =
                found.and_then(|found| found.unwrap().scalar(0, |found| Ok(condition.test_scalar(found))));
            assert_eq!(read.unwrap_err().code(), Code::InvalidArgument, "{end} bytes");
            let passed = finder.all_pass(&Schema::new("c"), shape, &values[..end], |_, _| true);
            assert_eq!(passed.unwrap_err().code(), Code::InvalidArgument, "{end} bytes");
        }
    }
}
