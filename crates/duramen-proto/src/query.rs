//! Queries, between messages and the library.

use duramen::error::{Code, Error, Result};
use duramen::find::{AccessPath, Aggregate, Condition, Find, FindPlan, Grouped, Join, OrderBy, Sorting};
use duramen::{LocalReads, Schema};

use crate::{key, v1};

/// A query of a message, on a state.
///
/// # Errors
/// `InvalidArgument` (E0201) for a condition, an order or a join that is none; those of [`Find`].
pub fn find<'a, S: LocalReads>(state: &'a S, query: &'a v1::Find) -> Result<Find<'a>> {
    let mut find = joined(state, query)?;
    if !query.conditions.is_empty() {
        let schema = find.schema()?;
        let conditions =
            Condition::parse_words(query.conditions.iter(), |text| Condition::parse(&schema, text))?;
        find = find.and(conditions);
    }
    if !query.view.is_empty() {
        find = find.view(&query.view);
    }
    if let Some(range) = &query.range {
        find = find.range(key::span(Some(range))?);
    }
    if query.reverse {
        find = find.reverse();
    }
    if query.threads > 0 {
        find = find.threads(usize::try_from(query.threads).unwrap_or(usize::MAX));
    }
    if query.grouping.is_some() {
        // The order and the limit are those of the groups.
        return Ok(find);
    }
    find = find.order_by(order(query)?);
    if let Some(limit) = query.limit {
        find = find.limit(limit);
    }
    Ok(if query.fields.is_empty() { find } else { find.fields(query.fields.iter()) })
}

/// The conditions of a query, on documents of a schema.
fn conditions(schema: &Schema, query: &v1::Find) -> Result<Vec<Condition>> {
    Condition::parse_words(&query.conditions, |text| Condition::parse(schema, text))
}

/// The query with its joins, and nothing else.
///
/// # Errors
/// `InvalidArgument` (E0201) for a join that is none.
pub fn joined<'a, S: LocalReads>(state: &'a S, query: &'a v1::Find) -> Result<Find<'a>> {
    query.joins.iter().try_fold(state.documents(&query.collection).find([]), |find, join| {
        let parsed = Join::parse(&join.text)?;
        Ok(find.join(if join.or_null { parsed.or_null() } else { parsed }))
    })
}

fn order(query: &v1::Find) -> Result<Vec<OrderBy>> {
    query.order_by.iter().map(|text| OrderBy::parse(text)).collect()
}

/// The groups of a query, if it asks for groups.
///
/// # Errors
/// `InvalidArgument` (E0201) for an order or an aggregate that is none.
pub fn grouped<'a>(find: &Find<'a>, query: &v1::Find) -> Result<Option<Grouped<'a>>> {
    let Some(grouping) = &query.grouping else { return Ok(None) };
    let aggregates = grouping.aggregates.iter().map(aggregate).collect::<Result<Vec<_>>>()?;
    let grouped = find.group_by(grouping.fields.iter(), aggregates).order_by(order(query)?);
    Ok(Some(match query.limit {
        Some(limit) => grouped.limit(limit),
        None => grouped,
    }))
}

/// An aggregate of a message.
///
/// # Errors
/// `InvalidArgument` (E0201) for an unknown kind.
pub fn aggregate(aggregate: &v1::Aggregate) -> Result<Aggregate> {
    use v1::AggregateKind as Kind;
    let field = aggregate.field.as_str();
    Ok(match Kind::try_from(aggregate.kind) {
        Ok(Kind::Count) => Aggregate::count(),
        Ok(Kind::Sum) => Aggregate::sum(field),
        Ok(Kind::Mean) => Aggregate::mean(field),
        Ok(Kind::Min) => Aggregate::min(field),
        Ok(Kind::Max) => Aggregate::max(field),
        Ok(Kind::Distinct) => Aggregate::distinct(field),
        Ok(Kind::Quantile) => Aggregate::quantile(field, aggregate.part),
        Err(_) => return Err(Error::invalid(format!("there is no aggregate {}", aggregate.kind))),
    })
}

/// How a query is run, in so much memory, as a message; with the schema of what it finds.
///
/// # Errors
/// As [`Schema::to_bytes`].
pub fn of_plan(plan: &FindPlan, schema: &Schema, memory_bytes: usize) -> Result<v1::FindPlan> {
    use v1::AccessPathKind as Kind;
    let kind = match &plan.path {
        AccessPath::Scan => Kind::Scan,
        AccessPath::Key { .. } => Kind::Key,
        AccessPath::View { .. } => Kind::View,
        AccessPath::ViewReductions { .. } => Kind::ViewReductions,
    };
    let sorting = match plan.sorting {
        Sorting::None => v1::Sorting::None,
        Sorting::AlongPath => v1::Sorting::AlongPath,
        Sorting::First { .. } => v1::Sorting::First,
        Sorting::All { .. } => v1::Sorting::All,
    };
    Ok(v1::FindPlan {
        path: Some(v1::AccessPath {
            kind: kind.into(),
            view: plan.path.view().unwrap_or_default().to_owned(),
            fields: plan.path.fields().to_vec(),
        }),
        read_count: plan.read_count,
        document_count: plan.document_count,
        is_exact: plan.is_exact,
        sorting: sorting.into(),
        memory_bytes: memory_bytes as u64,
        helpful_view: plan.helpful_view.clone(),
        definition: schema.to_bytes()?.into(),
    })
}

/// How a query is run, from the answer of a server.
///
/// # Errors
/// `WrongVersion` (E1109) for what this release does not know.
pub fn plan(plan: &v1::FindPlan, query: &v1::Find) -> Result<FindPlan> {
    use v1::AccessPathKind as Kind;
    let unknown = |what: &str| {
        Error::new(
            Code::WrongVersion,
            format!("the server's answer has {what} that this release does not know"),
        )
        .with_hint("use a server and a client of the same release")
    };
    let path = plan.path.clone().unwrap_or_default();
    let (view, fields) = (path.view, path.fields);
    let path = match Kind::try_from(path.kind).map_err(|_| unknown("an access path"))? {
        Kind::Scan => AccessPath::Scan,
        Kind::Key => AccessPath::Key { fields },
        Kind::View => AccessPath::View { name: view, fields },
        Kind::ViewReductions => AccessPath::ViewReductions { view, fields },
    };
    let memory_bytes = usize::try_from(plan.memory_bytes).unwrap_or(usize::MAX);
    let limit = query.limit.filter(|_| query.grouping.is_none());
    let sorting = match v1::Sorting::try_from(plan.sorting).map_err(|_| unknown("a sort"))? {
        v1::Sorting::None => Sorting::None,
        v1::Sorting::AlongPath => Sorting::AlongPath,
        v1::Sorting::First => Sorting::First { limit: limit.unwrap_or(u64::MAX), memory_bytes },
        v1::Sorting::All => Sorting::All { memory_bytes },
    };
    Ok(FindPlan {
        collection: query.collection.clone(),
        conditions: conditions(&Schema::from_bytes(&plan.definition)?, query)?,
        path,
        read_count: plan.read_count,
        document_count: plan.document_count,
        is_exact: plan.is_exact,
        sorting,
        limit,
        helpful_view: plan.helpful_view.clone(),
    })
}
