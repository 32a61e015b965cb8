//! The errors of references: which documents break one, and what to do.

use std::sync::Arc;

use super::FOLLOWED_MAX;
use crate::catalog::entries::Entry;
use crate::catalog::reference::Reference;
use crate::store::error::{Code, Error};
use crate::value::tuple::show;

/// The error of a delete that reaches too many documents. `entry` and `key` are of the document that was to
/// be deleted.
#[cold]
pub(super) fn too_many(entry: &Entry, key: &[u8], is_one_of_several: bool) -> Error {
    let name = entry.schema.name();
    let also = if is_one_of_several { ", with what the transaction deleted before," } else { "" };
    let message = format!(
        "deleting {} of {name}{also} reaches more than {FOLLOWED_MAX} documents through references, and a transaction \
         may reach so many",
        show(key)
    );
    let error = Error::new(Code::TooLarge, message);
    if is_one_of_several {
        return error.with_hint("delete fewer documents in one transaction");
    }
    let referrers = entry.schema.referred_by().iter();
    let fields: Vec<String> = referrers.map(|by| format!("{}.{}", by.collection, by.field)).collect();
    error.with_hint(format!(
        "first delete documents that refer to it, by {}, in several transactions: Db::delete_range of their \
         collection, or `duramen del` there with a range",
        fields.join(" or ")
    ))
}

#[cold]
pub(super) fn still_referenced(
    target: &Entry,
    key: &[u8],
    total: u64,
    first: &[(Arc<Entry>, String, Vec<u8>)],
) -> Error {
    let named =
        first.iter().map(|(entry, field, key)| format!("{} {} by {field}", entry.schema.name(), show(key)));
    Error::new(
        Code::StillReferenced,
        format!(
            "{} {} to the document {} of {}: {}{}",
            documents(total),
            if total == 1 { "refers" } else { "refer" },
            show(key),
            target.schema.name(),
            named.collect::<Vec<_>>().join(", "),
            more(total, first.len())
        ),
    )
    .with_hint(
        "delete or change them first, in the same transaction or before; or let the reference delete them \
         (on_delete = cascade) or clear their field (on_delete = clear)",
    )
}

/// The error of documents that refer to nothing, by their keys and those that they refer to.
#[cold]
pub(crate) fn dangling(
    entry: &Entry,
    reference: &Reference,
    total: u64,
    first: &[(Vec<u8>, Vec<u8>)],
) -> Error {
    let (collection, field, to) = (entry.schema.name(), reference.field(), reference.to());
    if let ([(key, target)], 1) = (first, total) {
        let (key, target) = (show(key), show(target));
        let has = match reference.is_each() {
            true => format!("{target} in {field}"),
            false => format!("{field} = {target}"),
        };
        let message = format!("document {key} of {collection} has {has}, and {to} has no document {target}");
        return Error::new(Code::MissingTarget, message).with_hint(format!(
            "put document {target} of {to} first or in the same transaction, or give document {key} another {field}"
        ));
    }
    let named = first.iter().map(|(key, target)| format!("{} to {}", show(key), show(target)));
    Error::new(
        Code::MissingTarget,
        format!(
            "{} of {collection} refer by {field} to documents of {to} that are not there: {}{}",
            documents(total),
            named.collect::<Vec<_>>().join(", "),
            more(total, first.len())
        ),
    )
    .with_hint(format!(
        "put what is missing in {to}, or change {field} of these documents or delete them; `duramen check --deep DB` \
         lists those that are stored"
    ))
}

fn documents(count: u64) -> String {
    if count == 1 { "1 document".to_owned() } else { format!("{count} documents") }
}

fn more(total: u64, named: usize) -> String {
    match total.saturating_sub(named as u64) {
        0 => String::new(),
        left => format!(" and {left} more"),
    }
}
