//! The access path for some conditions: the key, a view, or a full scan.
//!
//! Pure: an index is its fields in order. The best index leaves the fewest rows as far as the conditions
//! show: most fields with one value, then a range on the next. At a tie the first wins.

use duramen::Span;
use duramen::tuple::Element;

use super::condition::{Condition, Leaves};
use crate::failure::Result;

/// An order of documents: the key, or a view.
#[derive(Debug, Clone)]
pub(super) struct Index {
    /// The view's name; `None` for the key.
    pub(super) view: Option<String>,
    pub(super) fields: Vec<String>,
    /// Whether every document is in it, including those without some of its fields.
    pub(super) is_complete: bool,
}

/// An access path.
#[derive(Debug, Clone)]
pub(super) struct Way {
    pub(super) index: Index,
    /// The number of leading fields with one value.
    pub(super) equal: usize,
    /// Whether a range of the next field is used.
    pub(super) is_range: bool,
    pub(super) span: Span,
}

impl Way {
    /// The fields that select the rows.
    pub(super) fn fields(&self) -> &[String] {
        &self.index.fields[..self.equal + usize::from(self.is_range)]
    }

    /// Whether all of its rows satisfy the conditions, so that none is read in vain.
    pub(super) fn is_exact(&self, conditions: &[Condition]) -> bool {
        conditions.iter().all(|condition| {
            condition.leaves() != Leaves::Anything && self.fields().contains(&condition.field)
        })
    }
}

/// The best access path by one of the indices. The first of them is the key, which covers all documents.
pub(super) fn choose(indices: &[Index], conditions: &[Condition]) -> Result<Option<Way>> {
    let mut best: Option<Way> = None;
    for index in indices {
        let is_asked = |field: &String| {
            conditions.iter().any(|condition| condition.field == *field && condition.excludes_null())
        };
        if !index.is_complete && !index.fields.iter().all(is_asked) {
            continue;
        }
        let way = way(index, conditions)?;
        let rank = |way: &Way| (way.equal, way.is_range);
        if best.as_ref().is_none_or(|best| rank(best) < rank(&way)) {
            best = Some(way);
        }
    }
    Ok(best)
}

/// The access path along a named index, within a span of it.
pub(super) fn along(index: &Index, conditions: &[Condition], span: Span) -> Result<Way> {
    let way = way(index, conditions)?;
    Ok(Way { span: way.span.and(span), ..way })
}

fn way(index: &Index, conditions: &[Condition]) -> Result<Way> {
    let one = |field: &String| {
        conditions.iter().find(|condition| condition.field == *field && condition.leaves() == Leaves::One)
    };
    let prefix: Vec<Element> =
        index.fields.iter().map_while(one).map(|condition| condition.value.clone()).collect();
    let equal = prefix.len();
    let mut span = if prefix.is_empty() { Span::all() } else { Span::prefix(prefix.clone())? };
    let mut is_range = false;
    let next = index.fields.get(equal);
    for condition in conditions.iter().filter(|condition| Some(&condition.field) == next) {
        let with = |element: Element| [prefix.as_slice(), &[element]].concat();
        let part = match condition.leaves() {
            Leaves::From(element) => Span::from(with(element))?,
            Leaves::Before(element) => Span::to(with(element))?,
            Leaves::One | Leaves::Anything => continue,
        };
        span = span.and(part);
        is_range = true;
    }
    Ok(Way { index: index.clone(), equal, is_range, span })
}

/// The fields of a view that would select the documents: those with one value, then one with a range.
pub(super) fn helpful_view(conditions: &[Condition]) -> Vec<&str> {
    let of = |wanted: fn(&Leaves) -> bool| {
        conditions
            .iter()
            .filter(move |condition| wanted(&condition.leaves()) && condition.excludes_null())
            .map(|condition| condition.field.as_str())
    };
    let mut fields: Vec<&str> = Vec::new();
    for field in of(|leaves| *leaves == Leaves::One) {
        if !fields.contains(&field) {
            fields.push(field);
        }
    }
    let is_range = |leaves: &Leaves| matches!(leaves, Leaves::From(_) | Leaves::Before(_));
    let range = of(is_range).find(|field| !fields.contains(field));
    fields.extend(range);
    fields.truncate(8);
    fields
}

#[cfg(test)]
mod tests {
    //! A view that lacks documents must not be used for them, and the best index must be chosen.
    use super::*;
    use duramen::Schema;
    use duramen::schema::ColumnType;

    fn conditions(texts: &[&str]) -> Vec<Condition> {
        let schema = ["a", "b", "c", "d"]
            .into_iter()
            .fold(Schema::new("x"), |schema, name| schema.column(name, ColumnType::Int));
        texts.iter().map(|text| Condition::parse(&schema, text).unwrap()).collect()
    }

    fn index(view: Option<&str>, fields: &[&str], is_complete: bool) -> Index {
        let fields = fields.iter().map(ToString::to_string).collect();
        Index { view: view.map(ToOwned::to_owned), fields, is_complete }
    }

    fn check(texts: &[&str], view: Option<&str>, fields: &[&str], exact: bool) {
        let indices = [
            index(None, &["a", "b"], true),
            index(Some("partial"), &["c", "d"], false),
            index(Some("whole"), &["d", "a"], true),
        ];
        let conditions = conditions(texts);
        let way = choose(&indices, &conditions).unwrap().unwrap();
        assert_eq!(way.index.view.as_deref(), view, "{texts:?}");
        assert_eq!(way.fields(), fields, "{texts:?}");
        assert_eq!(way.is_exact(&conditions), exact, "{texts:?}");
    }

    #[test]
    fn the_index_with_most_leading_fields_is_taken() {
        check(&["a=1"], None, &["a"], true);
        check(&["a=1", "b>=2", "b<9"], None, &["a", "b"], true);
        check(&["b=1"], None, &[], false);
        check(&["a>1", "b=1"], None, &["a"], false);
        check(&["d=1", "a=1"], Some("whole"), &["d", "a"], true);
        check(&["a=1", "d!=2"], None, &["a"], false);
    }

    #[test]
    fn an_index_that_may_lack_documents_needs_a_condition_on_each_field() {
        check(&["c=1"], None, &[], false);
        check(&["c=1", "d=2"], Some("partial"), &["c", "d"], true);
        check(&["c=1", "d!=2"], None, &[], false);
        check(&["c=1", "d:=null"], Some("whole"), &["d"], false);
    }

    #[test]
    fn the_view_that_would_help_has_the_range_last() {
        for (texts, fields) in [
            (&["b>1", "c=1", "d=2"][..], &["c", "d", "b"][..]),
            (&["c!=1"], &[]),
            (&["c:=null"], &[]),
            (&["b>1", "c<2"], &["b"]),
        ] {
            assert_eq!(helpful_view(&conditions(texts)), fields, "{texts:?}");
        }
    }

    #[test]
    fn the_span_holds_what_the_conditions_leave() {
        let indices = [index(None, &["a", "b"], true)];
        let way = choose(&indices, &conditions(&["a=1", "b>2", "b<=9"])).unwrap().unwrap();
        let key = |a: i64, b: i64| duramen::tuple::encode(&(a, b)).unwrap();
        let range = way.span.into_bytes();
        let holds =
            |key: &[u8]| key >= range.from.as_slice() && range.to.as_deref().is_none_or(|to| key < to);
        let found: Vec<i64> = (0..12).filter(|b| holds(&key(1, *b))).collect();
        assert_eq!(found, [3, 4, 5, 6, 7, 8, 9]);
        assert!(!holds(&key(0, 5)) && !holds(&key(2, 5)));
    }
}
