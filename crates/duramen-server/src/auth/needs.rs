//! What the parts of a message need: each operation, condition and read names what it is about.
//!
//! A part of no kind needs nothing here: it is refused when it is read. A view belongs to its collection.

use duramen::error::Result;
use duramen::find::Join;
use duramen_proto::v1;

use super::directory::Caller;
use super::rights::{Named, Right};

/// Checks the conditions, operations and reads of a batch. Each operation is told before it is checked, by
/// its number from 1, and 0 behind the last.
pub(crate) fn batch(caller: &Caller, request: &v1::BatchRequest, told: impl Fn(usize)) -> Result<()> {
    request.conditions.iter().try_for_each(|of| condition(caller, of))?;
    for (number, of) in (1..).zip(&request.operations) {
        told(number);
        if let Some((right, named, name)) = of_operation(of) {
            caller.needs(right, Some((named, name)))?;
        }
    }
    told(0);
    reads(caller, &request.reads)
}

fn condition(caller: &Caller, of: &v1::Condition) -> Result<()> {
    use v1::condition::Kind;
    let (named, name) = match &of.kind {
        Some(Kind::Absent(of) | Kind::Present(of)) => (Named::Collection, &of.collection),
        Some(Kind::CountIs(of)) => (Named::Collection, &of.collection),
        Some(Kind::KeyValueIs(of)) => (Named::Kv, &of.namespace),
        None => return Ok(()),
    };
    caller.needs(Right::Reader, Some((named, name)))
}

/// What an operation needs; `None` if it is of no kind.
pub(crate) fn of_operation(of: &v1::Operation) -> Option<(Right, Named, &str)> {
    use v1::operation::Kind;
    let (right, named, name) = match of.kind.as_ref()? {
        Kind::Put(of) | Kind::Insert(of) => (Right::Writer, Named::Collection, &of.collection),
        Kind::Delete(of) => (Right::Writer, Named::Collection, &of.collection),
        Kind::DeleteRange(of) => (Right::Writer, Named::Collection, &of.collection),
        Kind::PutTyped(of) => (Right::Writer, Named::Collection, &of.collection),
        Kind::AssignId(of) => (Right::Writer, Named::Collection, &of.collection),
        Kind::PutKeyValue(of) => (Right::Writer, Named::Kv, &of.namespace),
        Kind::DeleteKeyValue(of) => (Right::Writer, Named::Kv, &of.namespace),
        Kind::Increment(of) => (Right::Writer, Named::Kv, &of.namespace),
        Kind::AttachBlob(of) => (Right::Writer, Named::Blob, &of.namespace),
        Kind::DeleteBlob(of) => (Right::Writer, Named::Blob, &of.namespace),
        Kind::RenameBlob(of) => (Right::Writer, Named::Blob, &of.namespace),
        Kind::Ensure(of) => (Right::Schema, Named::Collection, &of.collection),
        Kind::AdvanceConsumer(of) => (Right::Consumer, Named::Consumer, &of.name),
    };
    Some((right, named, name))
}

/// Checks reads.
///
/// # Errors
/// `Forbidden` (E1102); `Unauthenticated` (E1101).
pub(crate) fn reads(caller: &Caller, all: &[v1::Read]) -> Result<()> {
    all.iter().try_for_each(|of| read(caller, of))
}

fn read(caller: &Caller, of: &v1::Read) -> Result<()> {
    use v1::read::Kind;
    let collection = match &of.kind {
        Some(Kind::Get(of) | Kind::Rank(of)) => &of.collection,
        Some(Kind::Count(of) | Kind::Reduce(of)) => &of.collection,
        Some(Kind::Nth(of)) => &of.collection,
        Some(Kind::ReduceView(of)) => &of.collection,
        Some(Kind::Rows(of)) => &of.collection,
        Some(Kind::Find(of) | Kind::Explain(of)) => return find(caller, of),
        Some(Kind::GetKeyValue(of)) => {
            return caller.needs(Right::Reader, Some((Named::Kv, &of.namespace)));
        }
        None => return Ok(()),
    };
    reads_collection(caller, collection)
}

fn reads_collection(caller: &Caller, name: &str) -> Result<()> {
    caller.needs(Right::Reader, Some((Named::Collection, name)))
}

/// A query needs to read what it joins, too. A join that is none is refused when it is read.
fn find(caller: &Caller, of: &v1::Find) -> Result<()> {
    reads_collection(caller, &of.collection)?;
    for join in &of.joins {
        if let Ok(join) = Join::parse(&join.text) {
            reads_collection(caller, join.collection())?;
        }
    }
    Ok(())
}

/// Checks a scan.
///
/// # Errors
/// As [`reads`].
pub(crate) fn scan(caller: &Caller, of: &v1::ScanRequest) -> Result<()> {
    match (&of.find, &of.rows) {
        (Some(query), _) => find(caller, query),
        (None, Some(rows)) => reads_collection(caller, &rows.collection),
        (None, None) => reads_collection(caller, &of.collection),
    }
}
