//! Compatibility field by field: what prevents a type from reading documents, and the catalogue's fields
//! after it writes.
//!
//! Owns the rules of compatible change. A new field needs a default; a removed one needs nothing. A renamed
//! field needs its old names; a retyped one must read all stored values. A column is a name that documents
//! may have, whether a type or a tool wrote it.

use super::advice;
use super::definition::joined;
use crate::catalog::schema::{Column, Field, Schema};
use crate::view::key_field::KeyField;

/// Incompatibilities, and the changes that fix them.
#[derive(Default)]
pub(crate) struct Problems {
    pub(crate) what: Vec<String>,
    pub(crate) cures: Vec<String>,
    /// Whether the stored collection has another key. No conversion changes a key.
    pub(crate) key: bool,
}

impl Problems {
    pub(super) fn add(&mut self, what: String, cure: String) {
        self.what.push(what);
        if !cure.is_empty() {
            self.cures.push(cure);
        }
    }

    pub(crate) fn key(&mut self, own: &[String], held: &[String]) {
        if own != held {
            self.key = true;
            self.what.push(format!(
                "its key is ({}), and the type's is ({})",
                held.join(", "),
                own.join(", ")
            ));
        }
    }

    /// Fields of positional documents are identified by position: a reader must have these fields first, in
    /// this order.
    pub(crate) fn positional(&mut self, own: &Schema, held: &[String]) {
        let fields: Vec<&str> = own.columns().iter().map(|column| column.name.as_str()).collect();
        let is_called = |held: &str, name: &str| {
            held == name || own.fields().iter().any(|field| field.name == name && field.is_called(held))
        };
        if held.len() <= fields.len() && held.iter().zip(&fields).all(|(held, own)| is_called(held, own)) {
            return;
        }
        self.add(
            format!(
                "its positional documents hold ({}) in this order, and the type has ({})",
                held.join(", "),
                fields.join(", ")
            ),
            "keep these fields first, in this order, and add new ones after them, with #[serde(default)]"
                .to_owned(),
        );
    }

    /// Checks that tools could still show a column.
    pub(crate) fn column(&mut self, stored: &Schema, own: &Column) {
        // A field that already has a problem needs no second message.
        let said = format!("its field {} ", own.name);
        if joined(stored, own).is_none() && !self.what.iter().any(|what| what.starts_with(&said)) {
            let held = stored.kind(&own.name).unwrap_or_default();
            self.add(format!("{said}holds {held}, and the type has {} there", own.kind), String::new());
        }
    }

    /// Notes whether a problem is the type of a key field. The key of a document cannot be migrated.
    pub(crate) fn key_types(&mut self, key: &[String]) {
        let is_of_key =
            |what: &String| key.iter().any(|field| what.starts_with(&format!("its field {field} holds ")));
        self.key |= self.what.iter().any(is_of_key);
    }

    /// Checks that a type that only reads can read documents with these fields.
    pub(crate) fn reads(&mut self, own: &[Field], held: &[Field]) {
        if held.is_empty() {
            return;
        }
        for field in own {
            self.pair(field, own, held);
        }
    }

    /// The fields of documents once the type writes them too, or with `writes` false once it is known.
    ///
    /// Only writing makes a field absent, or gives it other values.
    pub(crate) fn fields(&mut self, own: &Schema, stored: &Schema, writes: bool) -> Vec<Field> {
        if own.fields().is_empty() {
            // A type without the derive declares no fields.
            return stored.fields().to_vec();
        }
        if stored.fields().is_empty() {
            // A document without a field that has no default would not be read anyway.
            let is_always = |field: &Field| field.always && !field.default;
            let adopted = |field: &Field| Field { always: is_always(field), ..self.unheld(stored, field) };
            return own.fields().iter().map(adopted).collect();
        }
        let mut fields: Vec<Field> = stored.fields().to_vec();
        let mut written = vec![false; fields.len()];
        let mut new = Vec::new();
        for field in own.fields() {
            let Some(place) = self.pair(field, own.fields(), stored.fields()) else {
                new.push(self.unheld(stored, field));
                continue;
            };
            written[place] = true;
            let held = &mut fields[place];
            if writes {
                held.widen(field);
            }
            let before: Vec<String> = held.names().map(str::to_owned).collect();
            let more = self.more_names(stored, &before, field);
            if !held.is_called(&field.name) {
                let before = std::mem::replace(&mut held.name, field.name.clone());
                held.also.push(before);
            }
            held.also.extend(more);
        }
        for (field, written) in fields.iter_mut().zip(written) {
            field.always &= written || !writes;
        }
        fields.extend(new);
        fields
    }

    /// The stored field that a field of the type corresponds to. Notes its problems.
    fn pair(&mut self, own: &Field, all: &[Field], held: &[Field]) -> Option<usize> {
        let same = |held: &Field| held.names().any(|name| own.is_called(name));
        let mut places = (0..held.len()).filter(|place| same(&held[*place]));
        let Some(place) = places.next() else {
            let gone = |held: &&Field| !held.names().any(|name| all.iter().any(|own| own.is_called(name)));
            self.absent(own, held.iter().filter(gone));
            return None;
        };
        let name = &own.name;
        if let Some(other) = places.next() {
            self.add(
                format!(
                    "its documents may have both {} and {}, which the type reads as one field",
                    held[place].name, held[other].name
                ),
                format!("take the alias of {name} away"),
            );
            return Some(place);
        }
        let held = &held[place];
        if let Some(unread) = held.names().find(|unread| !own.is_called(unread)) {
            let what = format!("its field {name} is called {unread} in some documents");
            self.add(what, format!("write #[serde(alias = \"{unread}\")] above {name}"));
        } else if own.is_other_form(held) {
            let (held, own) = (held.type_name(), own.type_name());
            self.add(
                format!("its field {name} holds an enum as {held}, and the type stores {own} there"),
                "let the enum choose as it did, by_name or by_number; to change it, keep the old enum under another \
                 name in the old struct"
                    .to_owned(),
            );
        } else if !own.reads(held) {
            let (held, own) = (held.type_name(), own.type_name());
            self.add(
                format!("its field {name} holds {held}, and the type has {own} there"),
                format!("make {name} a type that reads every {held}"),
            );
        } else if !held.always && !own.default {
            self.add(
                format!("its field {name} is not in every document, and the type wants it in each"),
                format!("write #[serde(default)] above {name}"),
            );
        }
        Some(place)
    }

    /// Handles a field that documents do not have. `gone` holds the stored fields that the type no longer
    /// has.
    fn absent<'f>(&mut self, own: &Field, gone: impl Iterator<Item = &'f Field>) {
        if own.default {
            return;
        }
        let (name, kind) = (&own.name, own.type_name());
        let mut cure = format!("write #[serde(default)] above {name}");
        let like = gone.filter(|gone| own.reads(gone)).map(|gone| gone.name.as_str());
        if let Some(like) = advice::nearest(name, like) {
            cure.push_str(&format!(", or #[serde(alias = \"{like}\")] if it is {like} under a new name"));
        }
        self.add(
            format!("its documents have no field {name} ({kind}), and the type wants one in each"),
            cure,
        );
    }

    /// A field that no type wrote until now, in the form that the catalogue keeps.
    fn unheld(&mut self, stored: &Schema, own: &Field) -> Field {
        let also = self.more_names(stored, &[], own);
        Field { always: false, also, ..own.to_keep() }
    }

    /// The other names under which a type reads the field from documents of tools. Notes problems of all of
    /// its names.
    ///
    /// `before` holds the names that the field had until now.
    fn more_names(&mut self, stored: &Schema, before: &[String], own: &Field) -> Vec<String> {
        let is_new = |name: &&String| !before.contains(name) && **name != own.name && is_column(stored, name);
        let more: Vec<String> = own.also.iter().filter(is_new).cloned().collect();
        if before.contains(&own.name) && more.is_empty() {
            return more;
        }
        self.renamed(stored, before, &[before, &more].concat(), &own.name);
        more
    }

    /// Checks renamed fields: a lookup by one name does not find a field under another.
    ///
    /// This always affects sums, and of a view the existing rows. `before` holds the names that the field had
    /// until now. `others` holds all names from now on except the type's name, `now`.
    fn renamed(&mut self, stored: &Schema, before: &[String], others: &[String], now: &String) {
        let names = || others.iter().filter(|name| *name != now).chain([now]);
        // Documents may have the field under a name that was not an alias of the other one.
        let missed = |name: &String| {
            let was_found = |other: &String| before.contains(name) && before.contains(other);
            let is_held = |other: &String| before.contains(other) || is_column(stored, other);
            names().find(|other| *other != name && is_held(other) && !was_found(other))
        };
        for sum in stored.sum_columns().iter().filter(|sum| names().any(|name| name == *sum)) {
            if sum != now {
                self.add(
                    format!("its field {sum} is summed under this name, and the type calls it {now}"),
                    format!("keep its stored name: #[serde(rename = \"{sum}\")]"),
                );
            } else if let Some(other) = missed(sum) {
                self.add(
                    format!(
                        "its field {now} is summed under this name, and documents may have it as {other}"
                    ),
                    format!("take the alias {other} of {now} away"),
                );
            }
        }
        for view in stored.views() {
            let mut fields =
                view.key.iter().map(KeyField::own_field).chain(view.values.iter().map(String::as_str));
            let found = fields
                .find_map(|field| Some((field, names().find(|name| **name == *field).and_then(missed)?)));
            let Some((field, other)) = found else { continue };
            self.add(
                format!("its view {} finds {field} under this name only, and documents may have it as {other}", view.name()),
                format!(
                    "drop that view first, it is made anew from all documents: Transaction::drop_view({:?}, {:?})",
                    stored.name(),
                    view.name()
                ),
            );
        }
    }
}

/// Whether documents of this version may have a field of this name that no type wrote.
///
/// While a migration lasts, tools write no documents, and columns are of earlier versions.
fn is_column(stored: &Schema, name: &str) -> bool {
    !stored.is_migrating() && stored.kind(name).is_some()
}
