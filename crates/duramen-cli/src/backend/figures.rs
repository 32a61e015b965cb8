//! What a database consists of; and, of one that is served, how its commits fare.

use std::path::Path;
use std::time::Duration;

use duramen::{Document, Time, Value, doc};
use duramen_client::{Address, Client};
use duramen_proto::{document, v1};

use super::Reading;
use crate::failure::Result;
use crate::keys;
use crate::numbers::{counted, grouped, time};
use crate::output::printable;

/// Hot keys and slow commits that text shows.
const SHOWN: usize = 5;

impl Reading {
    /// Path, sizes, collections and views with their counts.
    pub(crate) fn facts(&self) -> Result<(Document, Option<v1::StatsReply>)> {
        match self {
            Reading::Local { db, .. } => Ok((duramen_server::facts(db)?, None)),
            Reading::Served(served) => {
                let stats = served.stats()?;
                Ok((document::required(stats.facts.as_ref())?, Some(stats)))
            }
        }
    }
}

/// Adds how commits fare to what is shown as JSON.
pub(crate) fn add_to(shown: &mut Document, stats: &v1::StatsReply) {
    let timings = stats.timings.iter().fold(Document::new(), |all, of| {
        let each = doc! {
            "count": of.count, "mean_ns": of.mean_ns, "p50_ns": of.p50_ns, "p99_ns": of.p99_ns, "max_ns": of.max_ns,
        };
        all.with(of.part.as_str(), Value::Map(each))
    });
    let slow = stats.slow_commits.iter().map(|commit| {
        let trees = commit.trees.iter().map(|tree| Value::from(tree.as_str())).collect::<Vec<_>>();
        Value::Map(doc! {
            "seq": commit.seq, "published_at": published_at(commit), "order_ns": commit.order_ns,
            "queue_ns": commit.queue_ns, "write_ns": commit.write_ns, "sync_ns": commit.sync_ns,
            "publish_ns": commit.publish_ns, "group": commit.group, "trees": trees,
        })
    });
    let hot = stats.hot_keys.iter().map(|hot| {
        Value::Map(doc! {
            "tree": hot.tree.as_str(), "key": keys::shown(&hot.key), "conflicts": hot.conflicts,
            "conflicts_min": hot.conflicts_min,
        })
    });
    let held = stats.held_snapshots.iter().map(|held| {
        let age = held.age_ns.map_or(Value::Null, Value::from);
        Value::Map(doc! { "seq": held.seq, "age_ns": age })
    });
    shown.set("timings", timings);
    shown.set("slow_commits", slow.collect::<Vec<_>>());
    shown.set("hot_keys", hot.collect::<Vec<_>>());
    shown.set("held_snapshots", held.collect::<Vec<_>>());
    let listeners = stats.listeners.iter().map(|of| {
        Value::Map(doc! { "address": of.address.as_str(), "tls": of.has_tls, "auth": of.has_auth })
    });
    shown.set("listeners", listeners.collect::<Vec<_>>());
}

fn published_at(commit: &v1::SlowCommit) -> Value {
    let at = commit.published_at.unwrap_or_default();
    Time::new(at.seconds, at.nanoseconds).map_or(Value::Null, Value::Time)
}

/// The process that serves a database, if one does.
#[derive(Default)]
pub(crate) struct Holder(Option<Client>);

impl Holder {
    /// How its commits fare; `None` if no process serves the database, or it takes longer.
    pub(crate) fn stats(&mut self, directory: &Path, within: Duration) -> Option<v1::StatsReply> {
        if self.0.is_none() {
            let client = Client::connect(&Address::Directory(directory.to_owned())).ok()?;
            super::check_identity(directory, &client).ok()?;
            self.0 = Some(client);
        }
        let stats = self.0.as_ref().and_then(|client| client.stats(within).ok());
        if stats.is_none() {
            // It may have ended, and another one begun.
            self.0 = None;
        }
        stats
    }
}

/// How commits fare, as names and texts.
pub(crate) fn as_text(stats: &v1::StatsReply) -> Vec<(String, String)> {
    let shown = |ns: u64| time(Duration::from_nanos(ns));
    let mut rows = Vec::new();
    for of in stats.timings.iter().filter(|of| of.count > 0) {
        let text = format!(
            "{}, half of them up to {}, 99 % up to {}, at most {}",
            grouped(of.count),
            shown(of.p50_ns),
            shown(of.p99_ns),
            shown(of.max_ns)
        );
        rows.push((format!("commits: {}", of.part), text));
    }
    for commit in stats.slow_commits.iter().rev().take(SHOWN) {
        let parts = [
            ("order", commit.order_ns),
            ("queue", commit.queue_ns),
            ("write", commit.write_ns),
            ("sync", commit.sync_ns),
            ("publish", commit.publish_ns),
        ];
        let parts: Vec<String> = parts.iter().map(|(part, ns)| format!("{part} {}", shown(*ns))).collect();
        let text = format!(
            "{}; {} in its group; {}",
            parts.join(", "),
            counted(commit.group, "commit"),
            commit.trees.join(", ")
        );
        rows.push((format!("slow: commit {}", grouped(commit.seq)), printable(&text)));
    }
    for hot in stats.hot_keys.iter().take(SHOWN) {
        let text = counted(hot.conflicts, "conflict");
        rows.push((printable(&format!("hot key: {} {}", hot.tree, keys::shown(&hot.key))), text));
    }
    if let Some(oldest) = stats.held_snapshots.first() {
        let age = oldest.age_ns.map_or_else(String::new, |ns| format!(" for {}", shown(ns)));
        let text = format!(
            "{}, the oldest of commit {}{age}",
            grouped(stats.held_snapshots.len() as u64),
            grouped(oldest.seq)
        );
        rows.push(("held snapshots".to_owned(), text));
    }
    for listener in &stats.listeners {
        let who = if listener.has_auth { "tokens or certificates" } else { "everybody may do everything" };
        let tls = if listener.has_tls { "with TLS" } else { "without TLS" };
        rows.push((format!("listener: {}", listener.address), format!("{tls}; {who}")));
    }
    rows
}
