//! A declared view as data, and its stored form in the catalogue entry of its collection.

use crate::store::limits::REDUCTION_BYTES_MAX;

use crate::store::error::{Error, Result};
use crate::value::document::{Document, Value};
use crate::view::key_field::KeyField;
use crate::view::kinds::{REDUCTIONS_MAX, Reduce};

/// The maximum length of a collection's name, in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// The prefix of the names of all trees of views.
pub(crate) const TREES: &str = "duramen/view/";

/// The maximum number of views of one collection.
pub(crate) const VIEWS_MAX: usize = 64;

/// The maximum number of their generations, including those that answer until later ones are built.
pub(crate) const GENERATIONS_MAX: usize = 4 * VIEWS_MAX;

/// The definition of a declared view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewSpec {
    pub(crate) name: String,
    pub(crate) key: Vec<KeyField>,
    pub(crate) each: bool,
    pub(crate) values: Vec<String>,
    pub(crate) reduce: Vec<Reduce>,
    pub(crate) unique: bool,
    /// Whether a null in a key field is a value like others, and not a reason for no row.
    pub(crate) nulls: bool,
    /// For a view in code, its version and shape. Such a view names no fields.
    pub(crate) coded: Option<Coded>,
    /// For the view that a reference keeps: how many elements the key has that the field refers to. Such a
    /// view is derived from the reference and never stored.
    pub(crate) of_reference: Option<usize>,
    /// The generation of its tree of rows; a changed view gets a new one.
    pub(crate) generation: u64,
    /// Whether the view covers every document.
    pub(crate) ready: bool,
}

/// The description of a view in code, without the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Coded {
    /// The version of the code.
    pub(crate) version: u32,
    /// How many elements its key has.
    pub(crate) elements: usize,
    /// How many values its rows have.
    pub(crate) values: usize,
}

impl ViewSpec {
    /// A view with this name, ordered by these fields: names, or [`KeyField`]s for parts of fields and for
    /// descending ones.
    #[must_use]
    pub fn new<T: Into<KeyField>>(name: impl Into<String>, key: impl IntoIterator<Item = T>) -> ViewSpec {
        ViewSpec {
            name: name.into(),
            key: key.into_iter().map(Into::into).collect(),
            each: false,
            values: Vec::new(),
            reduce: Vec::new(),
            unique: false,
            nulls: false,
            coded: None,
            of_reference: None,
            generation: 0,
            ready: false,
        }
    }

    /// A view in code.
    pub(crate) fn coded(name: &str, shape: Coded, reduce: Vec<Reduce>, unique: bool) -> ViewSpec {
        let named = ViewSpec::new::<String>(name, []);
        ViewSpec { coded: Some(shape), reduce, unique, ..named }
    }

    /// The version of the code, if code makes its rows
    /// ([`CodedView`](crate::access::views::coded::CodedView)).
    #[must_use]
    pub fn code_version(&self) -> Option<u32> {
        self.coded.map(|coded| coded.version)
    }

    /// Whether rows of another version of the code can be read as this one's.
    pub(crate) fn same_shape(&self, other: &ViewSpec) -> bool {
        let shape = |spec: &ViewSpec| spec.coded.map(|coded| (coded.elements, coded.values));
        shape(self) == shape(other) && self.reduce == other.reduce
    }

    /// Marks the last key field as a list: a document has a row for each different item. An item that is in
    /// the list twice has one row, and counts once. The last element may also be a value inside each item,
    /// `KeyField::path("lines[].product")`.
    #[must_use]
    pub fn each(mut self) -> ViewSpec {
        self.each = true;
        self
    }

    /// The fields that the view keeps in its rows beside the key.
    #[must_use]
    pub fn values<T: Into<String>>(mut self, fields: impl IntoIterator<Item = T>) -> ViewSpec {
        self.values = fields.into_iter().map(Into::into).collect();
        self
    }

    /// The reductions over them.
    #[must_use]
    pub fn reduce(mut self, reduce: impl IntoIterator<Item = Reduce>) -> ViewSpec {
        self.reduce = reduce.into_iter().collect();
        self
    }

    /// Requires that no two documents have the same key.
    #[must_use]
    pub fn unique(mut self) -> ViewSpec {
        self.unique = true;
        self
    }

    /// Gives documents a row whose key fields are null or absent: null is then a value, before all others.
    ///
    /// Without this such documents have no row. A unique view then allows one document with null. With
    /// [`ViewSpec::each`] a document whose list is empty, null or absent has one row, with null.
    #[must_use]
    pub fn nulls(mut self) -> ViewSpec {
        self.nulls = true;
        self
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The fields that make its key.
    #[must_use]
    pub fn key_fields(&self) -> &[KeyField] {
        &self.key
    }

    /// Whether an element of its rows' keys is descending, by its position. The document's key goes on in the
    /// direction of the last element, so that rows read backwards are those of the opposite order.
    pub(crate) fn is_descending(&self, position: usize) -> bool {
        self.key.get(position).or(self.key.last()).is_some_and(KeyField::is_descending)
    }

    /// Whether any element is descending.
    pub(crate) fn has_descending(&self) -> bool {
        self.key.iter().any(KeyField::is_descending)
    }

    /// Whether an element is a part of a field.
    pub(crate) fn has_paths(&self) -> bool {
        self.key.iter().any(KeyField::is_path)
    }

    /// How many elements its key has.
    pub(crate) fn key_elements(&self) -> usize {
        self.of_reference.unwrap_or_else(|| self.coded.map_or(self.key.len(), |coded| coded.elements))
    }

    fn value_count(&self) -> usize {
        self.coded.map_or(self.values.len(), |coded| coded.values)
    }

    /// The names of its trees: that of its rows, and for a view in code those of `mapped` and `unmapped`.
    pub(crate) fn tree_names(&self, collection: &str) -> Vec<String> {
        let rows = self.tree_name(collection);
        let more = self.coded.map(|_| [format!("{rows}\u{1}mapped"), format!("{rows}\u{1}unmapped")]);
        [rows].into_iter().chain(more.into_iter().flatten()).collect()
    }

    /// The fields that are kept beside the key, in the order of [`Reduce::value`].
    #[must_use]
    pub fn value_fields(&self) -> &[String] {
        &self.values
    }

    /// The reductions over them.
    #[must_use]
    pub fn reductions(&self) -> &[Reduce] {
        &self.reduce
    }

    /// Whether no two documents may have the same key.
    #[must_use]
    pub fn is_unique(&self) -> bool {
        self.unique
    }

    /// Whether the last key field is a list with a row for each of its items.
    #[must_use]
    pub fn is_each(&self) -> bool {
        self.each
    }

    /// Whether documents have a row where a key field is null or absent.
    #[must_use]
    pub fn has_nulls(&self) -> bool {
        self.nulls
    }

    /// Whether the view covers every document. Until then it is being built, and does not answer.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.ready
    }

    /// Whether two definitions are equal, apart from generation and readiness.
    pub(crate) fn same_terms(&self, other: &ViewSpec) -> bool {
        let ViewSpec { name, key, each, values, reduce, unique, nulls, coded, of_reference, .. } = self;
        (name, key, values, reduce) == (&other.name, &other.key, &other.values, &other.reduce)
            && (*each, *unique, *nulls, *coded) == (other.each, other.unique, other.nulls, other.coded)
            && *of_reference == other.of_reference
    }

    /// Whether two have their rows in the same tree.
    pub(crate) fn same_rows(&self, other: &ViewSpec) -> bool {
        (&self.name, self.generation) == (&other.name, other.generation)
    }

    /// The tree of its rows.
    pub(crate) fn tree_name(&self, collection: &str) -> String {
        // Names contain no control characters, so the parts cannot be confused.
        let kept = if self.of_reference.is_some() { "\u{1}" } else { "" };
        format!("{TREES}{collection}\u{1}{kept}{}\u{1}{}", self.name, self.generation)
    }

    /// Checks the definition.
    ///
    /// # Errors
    /// `InvalidArgument` with what is missing or wrong.
    pub(crate) fn validate(&self) -> Result<()> {
        let wrong = |what: &str| Err(Error::invalid(format!("the view {:?} {what}", self.name)));
        if self.name.is_empty() || self.name.len() > NAME_BYTES_MAX || self.name.chars().any(char::is_control)
        {
            return wrong("needs a name of 1 to 255 bytes without control characters");
        }
        if self.key_elements() == 0 || self.key_elements() > 8 {
            return wrong("needs one to eight key fields");
        }
        if self.coded.is_some() && (self.each || !self.key.is_empty() || !self.values.is_empty()) {
            return wrong("is in code, and names fields");
        }
        if self.nulls && self.coded.is_some() {
            return wrong(
                "has rows for nulls, which views in code do not have: their code emits what it likes",
            );
        }
        for (position, field) in self.key.iter().enumerate() {
            field.validate(self.each && position + 1 == self.key.len())?;
        }
        if self.reduce.len() > REDUCTIONS_MAX {
            return wrong(&format!(
                "has {} reductions, and a view can have {REDUCTIONS_MAX}",
                self.reduce.len()
            ));
        }
        if self.reduce.iter().any(|reduce| reduce.value() >= self.value_count()) {
            return wrong("has a reduction over a value that it does not keep");
        }
        self.reduce.iter().try_for_each(|reduce| reduce.validate().or_else(|what| wrong(&what)))?;
        let bytes: usize = self.reduce.iter().map(Reduce::bytes_max).sum();
        if bytes > REDUCTION_BYTES_MAX {
            return wrong(&format!(
                "has reductions of up to {bytes} bytes, and {REDUCTION_BYTES_MAX} are kept of every part of it: declare \
                 another view of the same key for some of them"
            ));
        }
        Ok(())
    }

    /// Its stored form.
    pub(crate) fn to_value(&self) -> Value {
        let texts = |names: &[String]| Value::List(names.iter().map(|name| name.as_str().into()).collect());
        let reduce = self.reduce.iter().map(Reduce::to_value);
        let mut stored = Document::new()
            .with("name", self.name.as_str())
            .with("key", Value::List(self.key.iter().map(|field| field.name().into()).collect()))
            .with("each", self.each)
            .with("values", texts(&self.values))
            .with("reduce", Value::List(reduce.collect()))
            .with("unique", self.unique)
            .with("generation", self.generation)
            .with("ready", self.ready);
        if self.nulls {
            stored.set("nulls", true);
        }
        for (name, is_one) in
            [("paths", KeyField::is_path as fn(&KeyField) -> bool), ("descending", KeyField::is_descending)]
        {
            let positions = (0..self.key.len()).filter(|at| is_one(&self.key[*at]));
            let positions: Vec<Value> = positions.map(|at| Value::from(at as u64)).collect();
            if !positions.is_empty() {
                stored.set(name, positions);
            }
        }
        if let Some(Coded { version, elements, values }) = self.coded {
            let shape = [u64::from(version), elements as u64, values as u64];
            stored.set("coded", shape.map(Value::from).to_vec());
        }
        Value::Map(stored)
    }

    /// Decodes a view; `None` for something else.
    pub(crate) fn from_value(value: &Value) -> Option<ViewSpec> {
        let Value::Map(document) = value else { return None };
        let flag = |name| match document.get(name) {
            Some(Value::Bool(flag)) => Some(*flag),
            _ => None,
        };
        let texts = |name| match document.get(name) {
            Some(Value::List(values)) => values.iter().map(text).collect::<Option<Vec<String>>>(),
            _ => None,
        };
        let Some(Value::List(reduce)) = document.get("reduce") else { return None };
        let fields = texts("key")?;
        let (paths, descending) = (positions(document, "paths")?, positions(document, "descending")?);
        if paths.iter().chain(&descending).any(|at| *at >= fields.len()) {
            return None;
        }
        let field = |(at, name): (usize, String)| {
            let field = if paths.contains(&at) { KeyField::path(&name) } else { KeyField::field(name) };
            if descending.contains(&at) { field.descending() } else { field }
        };
        let spec = ViewSpec {
            name: text(document.get("name")?)?,
            key: fields.into_iter().enumerate().map(field).collect(),
            each: flag("each")?,
            values: texts("values")?,
            reduce: reduce.iter().map(Reduce::from_value).collect::<Option<_>>()?,
            of_reference: None,
            unique: flag("unique")?,
            nulls: document.get("nulls").is_some() && flag("nulls")?,
            coded: match document.get("coded") {
                Some(shape) => Some(coded_from(shape)?),
                None => None,
            },
            generation: integer(document.get("generation")?)?,
            ready: flag("ready")?,
        };
        spec.validate().is_ok().then_some(spec)
    }
}

/// Positions in the key; none if they are not there.
fn positions(document: &Document, name: &str) -> Option<Vec<usize>> {
    match document.get(name) {
        None => Some(Vec::new()),
        Some(Value::List(values)) => {
            values.iter().map(|value| usize::try_from(integer(value)?).ok()).collect()
        }
        Some(_) => None,
    }
}

fn coded_from(value: &Value) -> Option<Coded> {
    let Value::List(shape) = value else { return None };
    let [version, elements, values] = shape.as_slice() else { return None };
    Some(Coded {
        version: u32::try_from(integer(version)?).ok()?,
        elements: usize::try_from(integer(elements)?).ok()?,
        values: usize::try_from(integer(values)?).ok()?,
    })
}

pub(crate) fn text(value: &Value) -> Option<String> {
    match value {
        Value::Text(text) => Some(text.clone()),
        _ => None,
    }
}

pub(crate) fn integer(value: &Value) -> Option<u64> {
    match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        _ => None,
    }
}
