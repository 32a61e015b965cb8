//! Commands that would make a query cheaper: views to add, and reductions that are kept already.

use duramen::Schema;
use duramen::find::{AccessPath, FindPlan, Sorting};
use duramen::schema::ColumnType;

use super::groups;
use crate::args::{AggregateFlags, FindArgs};
use crate::names::{list_item, listed};
use crate::output::shell_word;

/// The command that adds a view with which this `find` would read only its results.
pub(super) fn view_of_conditions(stored: &Schema, plan: &FindPlan, args: &FindArgs) -> Option<String> {
    let fields = &plan.helpful_view;
    (!fields.is_empty()).then(|| view_add(stored, args, &fields.join("_"), &listed(fields), ""))
}

/// Sentences about other ways to the same answer.
pub(super) fn others(stored: &Schema, plan: &FindPlan, args: &FindArgs) -> Vec<String> {
    let is_plain = args.conditions.is_empty() && args.join.is_empty() && args.left_join.is_empty();
    if !is_plain || args.view.is_some() {
        return Vec::new();
    }
    let found = match groups::are_wanted(args) {
        true => kept_sums(stored, args).or_else(|| view_of_groups(stored, plan, args)),
        false => view_of_order(stored, plan, args),
    };
    found.into_iter().collect()
}

/// The sums of all documents, which the tree of the collection keeps.
fn kept_sums(stored: &Schema, args: &FindArgs) -> Option<String> {
    let sums = sums_only(args).filter(|sums| !sums.is_empty() && args.group_by.is_empty())?;
    let database = args.target.database.words();
    sums.iter().all(|field| stored.sum_columns().contains(field)).then(|| {
        format!(
            "the collection keeps these sums: `duramen reduce {database} -c {}` reads no document",
            shell_word(stored.name())
        )
    })
}

/// The view that would keep the sums of each group.
fn view_of_groups(stored: &Schema, plan: &FindPlan, args: &FindArgs) -> Option<String> {
    let fields: Vec<String> = args.group_by.iter().flatten().cloned().collect();
    let sums = sums_only(args)?;
    let is_integer = |field: &String| stored.kind(field) == Some(ColumnType::Int);
    let is_served = matches!(plan.path, AccessPath::ViewReductions { .. });
    let are_columns = fields.iter().all(|field| stored.kind(field).is_some());
    if is_served || fields.is_empty() || !are_columns || !sums.iter().all(is_integer) {
        return None;
    }
    let mut flags = " --nulls".to_owned();
    if !sums.is_empty() {
        flags.push_str(&format!(" --sum {}", shell_word(&listed(&sums))));
    }
    let command = view_add(stored, args, &fields.join("_"), &listed(&fields), &flags);
    Some(format!("a view would answer without reading documents: {command}"))
}

/// The view that would have the order.
fn view_of_order(stored: &Schema, plan: &FindPlan, args: &FindArgs) -> Option<String> {
    let order: Vec<&String> = args.order_by.iter().flatten().collect();
    let name = |text: &str| text.rsplit_once(':').map_or(text, |(field, _)| field).to_owned();
    let fields: Vec<String> = order.iter().map(|text| name(text)).collect();
    let are_columns = fields.iter().all(|field| stored.kind(field).is_some());
    if !matches!(plan.sorting, Sorting::First { .. }) || !are_columns {
        return None;
    }
    let directed = |text: &&String| match text.rsplit_once(':') {
        Some((field, direction)) => format!("{}:{direction}", list_item(field)),
        None => list_item(text).into_owned(),
    };
    let key = order.iter().map(directed).collect::<Vec<_>>().join(",");
    let command = view_add(stored, args, &fields.join("_"), &key, " --nulls");
    Some(format!("a view would make the sort unnecessary: {command}"))
}

/// The fields that are summed, if nothing else is asked than counts, sums and means.
fn sums_only(args: &FindArgs) -> Option<Vec<String>> {
    let AggregateFlags { sum, mean, min, max, distinct, quantile } = &args.aggregates;
    if [min, max, distinct, quantile].iter().any(|fields| !fields.is_empty()) {
        return None;
    }
    let mut fields: Vec<String> = sum.iter().chain(mean).flatten().cloned().collect();
    fields.sort_unstable();
    fields.dedup();
    Some(fields)
}

/// The command that adds a view, under a name that no view has.
fn view_add(stored: &Schema, args: &FindArgs, fields: &str, key: &str, flags: &str) -> String {
    format!(
        "duramen view add {} -c {} {} --key {}{flags}",
        args.target.database.words(),
        shell_word(stored.name()),
        shell_word(&free_name(stored, &format!("by_{fields}"))),
        shell_word(key),
    )
}

fn free_name(stored: &Schema, name: &str) -> String {
    let is_taken = |name: &String| stored.views().iter().any(|view| view.name() == name);
    let numbered = (2..).map(|number: u32| format!("{name}_{number}"));
    std::iter::once(name.to_owned())
        .chain(numbered)
        .find(|name| !is_taken(name))
        .expect("a collection has few views")
}
