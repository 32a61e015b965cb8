//! `reduce --explain`: which tree answers, and how much of it is read.

use duramen::{Schema, Span, Value, ViewSpec, doc};

use super::of_view;
use crate::args::{RangeFlags, ReduceArgs};
use crate::backend::{Reading, unexpected};
use crate::failure::Result;
use crate::keys;
use crate::names::listed;
use crate::numbers::{counted, grouped};
use crate::output::{Output, new_table, printable};

/// What is reduced, and how.
struct Plan {
    view: Option<String>,
    path: String,
    rows: u64,
    rows_of_tree: u64,
    document_count: u64,
    reductions: Vec<String>,
    /// The key fields of each group.
    group_by: Vec<String>,
}

/// Explains the reductions of a range of the collection's key.
pub(super) fn explain_key(reading: &Reading, schema: &Schema, args: &ReduceArgs, out: Output) -> Result<()> {
    let counted = vec![(None, Span::all()), (None, keys::span(schema, &args.range)?)];
    let counts = reading.counts(schema.name(), counted)?;
    let [document_count, rows] = counts[..] else { return Err(unexpected("too few counts")) };
    let plan = Plan {
        view: None,
        path: format!("the key{}", range_shown(&args.range)),
        rows,
        rows_of_tree: document_count,
        document_count,
        reductions: schema.sum_columns().iter().map(|column| format!("sum of {column}")).collect(),
        group_by: Vec::new(),
    };
    plan.show(args, out)
}

/// Explains the reductions of rows of a view.
pub(super) fn explain_view(
    reading: &Reading,
    schema: &Schema,
    (spec, span): (&ViewSpec, Span),
    args: &ReduceArgs,
    out: Output,
) -> Result<()> {
    let name = Some(spec.name());
    let counted = vec![(name, span), (name, Span::all()), (None, Span::all())];
    let counts = reading.counts(schema.name(), counted)?;
    let [rows, rows_of_tree, document_count] = counts[..] else { return Err(unexpected("too few counts")) };
    let field = |at: usize| spec.value_fields().get(at).map(String::as_str);
    let reductions = spec
        .reductions()
        .iter()
        .map(|reduce| of_view::name(reduce.name(), reduce.value(), field(reduce.value())));
    let fields = spec.key_fields().iter().map(|field| field.name().to_owned());
    let plan = Plan {
        view: Some(spec.name().to_owned()),
        path: format!("the view {}{}", spec.name(), range_shown(&args.range)),
        rows,
        rows_of_tree,
        document_count,
        reductions: reductions.collect(),
        group_by: fields.take(args.group.unwrap_or(0)).collect(),
    };
    plan.show(args, out)
}

/// The flags that restrict the key.
fn range_shown(range: &RangeFlags) -> String {
    let flags = [("prefix", &range.prefix), ("from", &range.from), ("to", &range.to)];
    let given = flags.into_iter().filter_map(|(flag, text)| Some(format!("{flag} {}", text.as_ref()?)));
    let given: Vec<String> = given.collect();
    if given.is_empty() { String::new() } else { format!(": {}", given.join(", ")) }
}

impl Plan {
    fn show(self, args: &ReduceArgs, out: Output) -> Result<()> {
        let Plan { view, path, rows, rows_of_tree, document_count, reductions, group_by } = self;
        if out.is_json() {
            let texts = |texts: Vec<String>| texts.into_iter().map(Value::from).collect::<Vec<_>>();
            let fields = doc! {
                "collection": args.target.collection.as_str(),
                "way": if view.is_some() { "view" } else { "key" },
                "view": view,
                "reads": 0,
                "documents": document_count,
                "rows": rows,
                "of": rows_of_tree,
                "group_by": texts(group_by),
                "reductions": texts(reductions),
            };
            return out.object("reduce_plan", fields);
        }
        let paths = "the nodes on two paths of its tree";
        let nodes = match group_by.as_slice() {
            [] => format!("{paths}, whatever the range holds"),
            fields => format!("{paths} for each {}", listed(fields)),
        };
        let mut table = new_table(&["", ""]);
        table.add_row(["access path".to_owned(), printable(&path)]);
        let reads = format!("0 of {}; {nodes}", counted(document_count, "document"));
        table.add_row(["reads".to_owned(), printable(&reads)]);
        let of = format!("{} of {}", grouped(rows), counted(rows_of_tree, "row"));
        let reductions: Vec<String> = ["count".to_owned()].into_iter().chain(reductions).collect();
        table.add_row(["returns".to_owned(), printable(&format!("{} of {of}", reductions.join(", ")))]);
        out.table(&table)
    }
}
