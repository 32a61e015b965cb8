//! The report of a repair as JSON.

use std::time::Duration;

use duramen::{
    Document, LeftOut, Lost, LostCommits, Missing, RepairReport, Repaired, StoreKind, UncertainRows, Value,
    doc,
};

use super::elements_of;
use crate::args::RepairArgs;

/// The whole report.
pub(super) fn as_json(report: &RepairReport, args: &RepairArgs, took: Duration) -> Document {
    let texts = |all: &[String]| all.iter().map(|one| Value::from(one.as_str())).collect::<Vec<_>>();
    let waiting = report.views_waiting.iter().map(|view| {
        Value::Map(doc! {
            "collection": view.collection.as_str(), "view": view.view.as_str(), "why": view.why.as_str(),
        })
    });
    doc! {
        "path": args.new.display().to_string(),
        "whole": report.is_whole(),
        "seq": report.seq.0,
        "checkpoint": report.checkpoint.0,
        "log_commits": report.log_commits,
        "log_torn": report.log_torn,
        "superblocks": report.superblocks,
        "newest_checkpoint": report.is_newest,
        "lost_commits": report.lost_commits.as_ref().map(lost_commits_json),
        "rows": report.rows(),
        "lost_rows": report.lost_rows(),
        "lost_unknown": report.may_have_lost_more(),
        "recovered": report.repaired.iter().map(repaired_json).collect::<Vec<_>>(),
        "missing": report.missing.iter().map(missing_json).collect::<Vec<_>>(),
        "lost": report.lost.iter().map(lost_json).collect::<Vec<_>>(),
        "left_out_count": report.left_out_count,
        "left_out": report.left_out.iter().map(left_out_json).collect::<Vec<_>>(),
        "unnamed_blobs": report.unnamed_blobs,
        "renamed": texts(&report.renamed),
        "found_rows": report.found_rows,
        "uncertain": report.uncertain.iter().map(uncertain_json).collect::<Vec<_>>(),
        "views_built": report.views_built,
        "views_waiting": waiting.collect::<Vec<_>>(),
        "consumers": texts(&report.consumers),
        "ids_may_repeat": report.ids_may_repeat,
        "seconds": took.as_secs_f64(),
    }
}

fn lost_commits_json(lost: &LostCommits) -> Value {
    Value::Map(doc! {
        "after": lost.after.0, "until": lost.until.0, "frames": lost.frames, "log_bytes": lost.bytes,
        "why": lost.why.as_str(),
    })
}

fn repaired_json(one: &Repaired) -> Value {
    Value::Map(doc! {
        "store": one.store.name(), "name": one.name.as_str(), "rows": one.rows, "stretches": one.ranges,
        "lost": one.lost, "may_be_more": one.may_be_more, "lost_unknown": one.lost_unknown.is_some(),
        "why_unknown": one.lost_unknown.as_deref(),
    })
}

fn missing_json(one: &Missing) -> Value {
    Value::Map(doc! { "store": one.store.name(), "name": one.name.as_str(), "why": one.why.as_str() })
}

fn lost_json(lost: &Lost) -> Value {
    Value::Map(doc! {
        "store": lost.store.name(),
        "name": lost.name.as_str(),
        "after": key_json(lost.store, lost.after.as_ref()),
        "before": key_json(lost.store, lost.before.as_ref()),
        "rows": lost.rows,
        "why": lost.why.as_str(),
    })
}

fn uncertain_json(rows: &UncertainRows) -> Value {
    Value::Map(doc! {
        "store": rows.store.name(), "of": rows.of.as_str(), "name": rows.name.as_str(), "rows": rows.rows,
        "unreadable": rows.unreadable,
    })
}

fn left_out_json(one: &LeftOut) -> Value {
    Value::Map(doc! {
        "store": one.store.name(), "name": one.name.as_str(), "key": key_json(one.store, Some(&one.key)),
        "why": one.why.as_str(),
    })
}

fn key_json(store: StoreKind, key: Option<&Vec<u8>>) -> Value {
    let Some(key) = key else { return Value::Null };
    elements_of(store, key).map_or_else(|| Value::Bytes(key.clone()), Value::from)
}
