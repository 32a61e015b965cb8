//! What a machine has at the end of a run.

use std::collections::BTreeMap;

use duramen::error::Error;
use duramen::prelude::*;
use duramen_client::Remote;

use crate::clients::{ByClient, COUNTS, Entry, List};
use crate::machine;

/// What a machine has at the end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) lists: BTreeMap<u64, Vec<u64>>,
    pub(crate) entries: Vec<(u64, u64)>,
    pub(crate) counts: Vec<Option<i64>>,
}

/// Reads everything at one machine, and checks that its view has what its documents have.
pub(crate) fn read(machine: usize, clients: u64) -> Result<Content> {
    let remote = Remote::connect(&machine::steward(machine).to_string())?;
    let snapshot = remote.snapshot()?;
    let lists = snapshot.collection::<List>().to_vec()?.into_iter().map(|list| (list.id, list.ids)).collect();
    let entries = snapshot.collection::<Entry>().to_vec()?;
    let (count, sum) = snapshot.view::<ByClient>().reduce()?;
    let amounts: i64 = entries.iter().map(|entry| entry.amount).sum();
    if (count, sum) != (entries.len() as u64, i128::from(amounts)) {
        return Err(Error::invalid(format!(
            "the view of machine {} has {count} documents of {sum}; there are {} of {amounts}",
            machine + 1,
            entries.len()
        )));
    }
    let counts = (0..clients).map(|client| snapshot.kv(COUNTS).get(client)).collect::<Result<_>>()?;
    let entries = entries.iter().map(|entry| (entry.id, entry.client)).collect();
    Ok(Content { lists, entries, counts })
}
