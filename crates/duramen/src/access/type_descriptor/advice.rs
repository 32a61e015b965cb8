//! Error texts for a type that does not fit: what differs, the change to make, and the old shape as a struct.
//!
//! Owns sentences and source text. Makes no decisions.

use std::fmt::Write as _;

use super::TypeDefinition;
use super::fields::Problems;
use crate::catalog::schema::{ColumnType, Field, Older, Schema};
use crate::store::error::{Error, Result};
use crate::value::version;

impl TypeDefinition {
    /// Returns an error if a type has problems with the documents of its own version.
    pub(crate) fn refuse(&self, problems: Problems, stored: &Schema) -> Result<()> {
        if problems.what.is_empty() {
            return Ok(());
        }
        let kind = self.short_name();
        let message = format!(
            "the collection {} in the database does not fit {kind}: {}",
            self.name(),
            problems.what.join("; ")
        );
        let hint = if problems.key { self.another_key() } else { self.another_shape(&problems, stored) };
        Err(Error::invalid(message).with_hint(hint))
    }

    fn another_shape(&self, problems: &Problems, stored: &Schema) -> String {
        let kind = self.short_name();
        let now = stored.versions().pop().expect("there is always this version");
        let mut hint = String::new();
        for cure in &problems.cures {
            let _ = write!(hint, "{cure}; ");
        }
        let carried = if self.migrates() {
            format!(", with the #[migrate_from] that {kind} has now")
        } else {
            String::new()
        };
        let _ = write!(
            hint,
            "or keep the old shape{carried} beside the new one, and convert:\n\n{}\n#[migrate_from(Old{kind})] // above {kind}\n",
            self.old_struct(stored, &now)
        );
        hint
    }

    /// Another key means another order, so other rows: documents are copied, not converted.
    fn another_key(&self) -> String {
        let (kind, name) = (self.short_name(), self.name());
        format!(
            "change the key back; to rename a key field keep its stored name with #[serde(rename = \"...\")]; for a new key copy \
             the documents: name the new collection #[collection(name = \"{name}_2\")], keep the old struct as Old{kind} with \
             #[collection(name = \"{name}\")], and once\n\n    for old in db.collection::<Old{kind}>().iter()? {{\n        \
             db.put(&{kind}::from(old?))?;\n    }}\n    db.transact(|tx| tx.drop_collection(\"{name}\"))?;\n"
        )
    }

    /// The error for stored documents of a later version than the type.
    #[cold]
    pub(crate) fn older_than(&self, stored: &Schema) -> Error {
        let (kind, held, own) = (self.short_name(), stored.version(), self.version());
        Error::invalid(format!(
            "the collection {} in the database does not fit {kind}: its documents are of version {held}, and {kind} is of \
             version {own}",
            self.name()
        ))
        .with_hint(format!(
            "a later program has migrated it: use that one, nothing is lost; if {kind} is the newest, and its #[migrate_from] was \
             taken away because no older documents are left, write #[collection(version = {held})] above it"
        ))
    }

    /// The error if no type reads the documents of an earlier version.
    #[cold]
    pub(crate) fn no_ancestor(&self, stored: &Schema, earlier: &Older) -> Error {
        let (kind, held, own) = (self.short_name(), earlier.version, self.version());
        Error::invalid(format!(
            "the collection {} in the database does not fit {kind}: it has documents of version {held}, and {kind}, of version \
             {own}, says of none of its #[migrate_from] that it reads them",
            self.name()
        ))
        .with_hint(format!(
            "keep that shape as the first in the chain of #[migrate_from]:\n\n{}",
            self.old_struct(stored, earlier)
        ))
    }

    /// Returns an error if one of a type's ancestors has problems with the documents that it should read.
    pub(crate) fn refuse_ancestor(&self, problems: Problems, stored: &Schema, earlier: &Older) -> Result<()> {
        if problems.what.is_empty() {
            return Ok(());
        }
        let (kind, held) = (self.short_name(), earlier.version);
        let message = format!(
            "the collection {} in the database does not fit {kind}: its documents of version {held} are not what the type says from \
             which {kind} migrates: {}",
            self.name(),
            problems.what.join("; ")
        );
        let hint = format!(
            "{}\n\nthat type should be\n\n{}",
            problems.cures.join("; "),
            self.old_struct(stored, earlier)
        );
        Err(Error::invalid(message).with_hint(hint))
    }

    /// Checks summed fields: a reducer finds fields by name, in documents of every version.
    pub(crate) fn check_sums(&self, stored: &Schema, own: &Schema) -> Result<()> {
        let lost = stored.sum_columns().iter().find(|column| own.kind(column) != Some(ColumnType::Int));
        let Some(column) = lost else { return Ok(()) };
        let kind = self.short_name();
        Err(Error::invalid(format!(
            "the collection {} in the database does not fit {kind}: it sums {column}, which is no integer of {kind}",
            self.name()
        ))
        .with_hint(format!("keep {column} in {kind} as it is, under this stored name")))
    }

    /// The source of a struct that reads the documents of a version.
    fn old_struct(&self, stored: &Schema, of: &Older) -> String {
        let kind = self.short_name();
        let mut about = format!("name = {:?}", self.name());
        if !of.positional.is_empty() {
            about.push_str(", positional");
        }
        if of.version > version::FIRST && !(self.migrates() && self.version() == of.version) {
            let _ = write!(about, ", version = {}", of.version);
        }
        let mut out = format!(
            "#[derive(Serialize, Deserialize, Collection)]\n#[collection({about})]\nstruct Old{kind} {{\n"
        );
        let columns = stored.columns().iter().map(of_column).collect::<Vec<Field>>();
        let fields = if of.fields.is_empty() { &columns } else { &of.fields };
        for (place, field) in fields.iter().enumerate() {
            one_field(&mut out, field, place, of.key.contains(&field.name));
        }
        let _ = write!(
            out,
            "}}\n\nimpl From<Old{kind}> for {kind} {{\n    fn from(old: Old{kind}) -> {kind} {{ ... }}\n}}\n"
        );
        out
    }
}

fn of_column(column: &crate::catalog::schema::Column) -> Field {
    let kind = match column.kind {
        ColumnType::Int => "i64",
        ColumnType::Float => "f64",
        ColumnType::Text => "String",
        ColumnType::Bool => "bool",
        ColumnType::Time => "Time",
        ColumnType::Any | ColumnType::Unknown => "",
    };
    Field::of::<()>(&column.name, kind)
}

fn one_field(out: &mut String, field: &Field, place: usize, in_key: bool) {
    if in_key {
        out.push_str("    #[key]\n");
    }
    if !field.always {
        out.push_str("    #[serde(default)]\n");
    }
    for also in &field.also {
        let _ = writeln!(out, "    #[serde(alias = {also:?})]");
    }
    let name = &field.name;
    let is_word = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    let ident = match (is_word, KEYWORDS.contains(&name.as_str())) {
        (true, false) => name.clone(),
        (true, true) => format!("r#{name}"),
        (false, _) => {
            let _ = writeln!(out, "    #[serde(rename = {name:?})]");
            format!("field_{place}")
        }
    };
    let kind =
        if field.kind.is_empty() { "/* what it is written as */".to_owned() } else { field.type_name() };
    let _ = writeln!(out, "    {ident}: {kind},");
}

const KEYWORDS: [&str; 38] = [
    "as", "async", "await", "break", "const", "continue", "dyn", "else", "enum", "extern", "false", "fn",
    "for", "gen", "if", "impl", "in", "let", "loop", "match", "mod", "move", "mut", "pub", "ref", "return",
    "static", "struct", "trait", "true", "try", "type", "unsafe", "use", "where", "while", "yield", "box",
];

/// The most similar of some names.
pub(crate) fn nearest<'n>(name: &str, others: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let shared = |other: &str| {
        let begin = name.chars().zip(other.chars()).take_while(|(a, b)| a == b).count();
        let end = name.chars().rev().zip(other.chars().rev()).take_while(|(a, b)| a == b).count();
        begin.max(end)
    };
    others.max_by_key(|other| shared(other))
}
