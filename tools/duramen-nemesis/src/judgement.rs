//! The judgement at the end: of all machines, and of what clients were told.

use crate::clients::Load;
use crate::cluster::Cluster;
use crate::content;
use crate::failure::Result;

/// Compares all machines with each other and with what clients were told.
pub(crate) fn of(load: &Load, cluster: &mut Cluster) -> Result<Vec<String>> {
    let clients = load.clients();
    let read = |machine: usize| {
        content::read(machine, clients).map_err(|error| format!("machine {}: {error:?}", machine + 1))
    };
    let first = read(0)?;
    let mut wrong = Vec::new();
    for machine in 1..cluster.machines.len() {
        if read(machine)? != first {
            wrong.push(format!("machine {} has something else than machine 1", machine + 1));
        }
    }
    let documents = first.entries.iter().map(|(id, _)| *id).collect();
    wrong.extend(load.lost_counts(&first));
    load.history.ends_with(&first.lists);
    wrong.extend(load.history.judge(&first.lists, &documents));
    cluster.stop_and_check()?;
    Ok(wrong)
}
