//! `count` and `reduce` with `--view`: reductions of a view's rows, from the nodes of its tree.

use duramen::schema::ColumnType;
use duramen::view::KeyField;
use duramen::{Schema, Span, Value, ViewSpec, doc};

use super::{reductions, shown};
use crate::args::{RangeFlags, ReduceArgs};
use crate::backend::{Group, GroupPart, Reading};
use crate::failure::{Failure, Result};
use crate::keys;
use crate::names::listed;
use crate::numbers::{counted, grouped};
use crate::output::{Output, align_right, new_table, printable};

/// The queried rows of a view of a collection.
pub(crate) struct ViewQuery {
    /// The rows.
    pub(crate) span: Span,
    /// A schema with the view's key in the place of the collection's, for parsing ranges.
    pub(crate) keyed: Schema,
}

impl ViewQuery {
    /// Finds the view, and parses the range by the types of its fields.
    pub(crate) fn of(schema: &Schema, view: &ViewSpec, range: &RangeFlags) -> Result<ViewQuery> {
        let keyed = keyed(schema, view);
        Ok(ViewQuery { span: keys::span(&keyed, range)?, keyed })
    }
}

/// The fields of a view's key as a key, with their types.
fn keyed(schema: &Schema, view: &ViewSpec) -> Schema {
    let fields = view.key_fields();
    let last = fields.last().filter(|_| view.is_each());
    let kind = |field: &KeyField| match schema.kind(field.name()) {
        // An item of the list, or a part of a field: the type is unknown.
        _ if Some(field) == last || field.is_path() => ColumnType::Any,
        Some(kind) => kind,
        None => ColumnType::Any,
    };
    let named = Schema::new(format!("{}, view {}", schema.name(), view.name()));
    let named = named.key(fields.iter().map(KeyField::name));
    fields.iter().fold(named, |keyed, field| keyed.column(field.name(), kind(field)))
}

/// Count and reductions of a view, of all queried rows or of each group.
pub(super) fn reduce(
    reading: &Reading,
    schema: &Schema,
    name: &str,
    args: &ReduceArgs,
    out: Output,
) -> Result<()> {
    let spec = reading.view(schema, name)?;
    let query = ViewQuery::of(schema, &spec, &args.range)?;
    let elements = query.keyed.key_columns().len();
    // A view in code has no named fields.
    if let Some(group) = args.group.filter(|group| *group > elements && elements > 0) {
        let fields = listed(query.keyed.key_columns());
        return Err(Failure::usage(
            format!(
                "--group {group}: the key of the view {name} has {}: {fields}",
                counted(elements as u64, "field")
            ),
            format!("use --group with 1 to {elements}"),
        ));
    }
    if args.explain {
        return reductions::explain_view(reading, schema, (&spec, query.span), args, out);
    }
    let groups = reading.groups(schema.name(), name, query.span.clone(), args.group)?;
    if out.is_json() {
        let collection = args.target.collection.as_str();
        if args.group.is_none() {
            let all = &groups[0];
            let fields =
                doc! { "collection": collection, "view": name, "count": all.count, "reductions": parts(all) };
            return out.object("reduce_view", fields);
        }
        let groups = groups.iter().map(|group| {
            let key = group.key.iter().map(|element| Value::from(element.clone())).collect::<Vec<_>>();
            Value::Map(doc! { "key": key, "count": group.count, "reductions": parts(group) })
        });
        let groups = groups.collect::<Vec<_>>();
        return out
            .object("reduce_groups", doc! { "collection": collection, "view": name, "groups": groups });
    }
    table(&query, args.group.unwrap_or(0), &groups, out)
}

fn table(query: &ViewQuery, elements: usize, groups: &[Group], out: Output) -> Result<()> {
    let mut header: Vec<String> =
        query.keyed.key_columns().iter().take(elements).map(|field| printable(field)).collect();
    header.resize(elements, String::new());
    header.push("rows".to_owned());
    if let Some(group) = groups.first() {
        let shown = |part: &GroupPart| name(&part.reduce, part.value_index, part.field.as_deref());
        header.extend(group.parts.iter().map(|part| printable(&shown(part))));
    }
    let mut table = new_table(&header.iter().map(String::as_str).collect::<Vec<_>>());
    for group in groups {
        let mut row: Vec<String> = group.key.iter().map(|element| printable(&element.to_string())).collect();
        row.push(grouped(group.count));
        row.extend(group.parts.iter().map(|part| match &part.value {
            Value::Int(number) => grouped(*number),
            other => printable(&shown(other)),
        }));
        table.add_row(row);
    }
    align_right(&mut table, elements..header.len());
    out.table(&table)
}

/// A reduction with its field. The values of a view in code have numbers, and the first one none.
pub(super) fn name(reduce: &str, value_index: usize, field: Option<&str>) -> String {
    match (field, value_index) {
        (Some(field), _) => format!("{reduce} of {field}"),
        (None, 0) => reduce.to_owned(),
        (None, index) => format!("{reduce} of value {}", index + 1),
    }
}

fn parts(group: &Group) -> Vec<Value> {
    let part = |part: &GroupPart| {
        Value::Map(doc! {
            "reduce": part.reduce.as_str(), "field": part.field.as_deref(), "value": part.exact(),
            "seen": part.seen,
        })
    };
    group.parts.iter().map(part).collect()
}
