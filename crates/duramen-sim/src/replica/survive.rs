//! What is judged after a cut: the node starts, catches up with what is decided, leads, and commits.

use std::path::Path;
use std::sync::Arc;

use duramen_disk::MemDisk;
use duramen_engine::{Code, CommitSeq, Durability, Engine, Entry, Fate, Hooks, OpenReplica};

use super::life::{Lived, Proposals, compare, done, open, options};
use super::text;
use crate::search::random::Random;

impl Lived {
    /// Judges what a cut after so many operations has left. Returns whether less survived than was decided.
    pub(super) fn survive(&self, op: usize, image: &MemDisk, random: &mut Random) -> Result<bool, String> {
        let after = self.moments.partition_point(|moment| moment.at_op <= op);
        let floor = self.moments[..after].last();
        let (kept, decided) = floor
            .map_or((self.truth.begins.id.seq.0, self.truth.begins.id.seq.0), |moment| {
                (moment.kept, moment.decided)
            });
        // The event that was under way may have decided on more.
        let ceiling = self.moments.get(after).map_or(self.truth.last(), |moment| moment.decided);
        let proposals = Arc::new(Proposals::default());
        let node = open(image, &proposals)?;
        let applied = node.replica.end().map_err(text)?.id.seq.0;
        if applied > ceiling {
            return Err(format!("the database is at {applied}, and {ceiling} is decided"));
        }
        compare(&node, self.truth.contents(applied))?;
        self.has_kept(&node, kept)?;
        let decided = decided.max(applied);
        self.catch_up(&node, decided)?;
        compare(&node, self.truth.contents(decided))?;
        self.commit(&node, &proposals, decided)?;
        self.end(node, image, random)?;
        Ok(applied < decided)
    }

    /// What was decided and acknowledged as synced is in Raft's log.
    fn has_kept(&self, node: &OpenReplica, kept: u64) -> Result<(), String> {
        let (purged, last) = (node.found.purged.id.seq.0, node.found.last.seq.0);
        if last < kept {
            return Err(format!("Raft's log ends with {last}, and {kept} was acknowledged"));
        }
        for wanted in self.truth.entries(purged.max(self.truth.begins.id.seq.0), kept.max(purged)) {
            let seq = wanted.id.seq;
            let found = node.log.entries(seq..seq.next(), 0).map_err(text)?;
            if found[0] != *wanted {
                return Err(format!("entry {seq} of Raft's log is {:?}, want {wanted:?}", found[0]));
            }
        }
        Ok(())
    }

    /// Takes over from the others what is decided, and applies it.
    fn catch_up(&self, node: &OpenReplica, decided: u64) -> Result<(), String> {
        let log = &node.log;
        let mut same = log.purged().id.seq.0.max(self.truth.begins.id.seq.0);
        while same < decided.min(log.end().id.seq.0)
            && log.end_after(CommitSeq(same + 1)).map_err(text)? == self.truth.end(same + 1)
        {
            same += 1;
        }
        if same < log.end().id.seq.0 {
            log.cut_after(CommitSeq(same), done()).map_err(text)?;
        }
        if same < decided {
            log.append(self.truth.entries(same, decided).to_vec(), done()).map_err(text)?;
        }
        log.step().map_err(text)?;
        log.decide(CommitSeq(decided)).map_err(text)?;
        let applied = node.replica.end().map_err(text)?.id.seq.0;
        node.replica.apply(self.truth.entries(applied, decided)).map_err(text)
    }

    /// Leads in a new term, and commits a transaction.
    fn commit(&self, node: &OpenReplica, proposals: &Proposals, decided: u64) -> Result<(), String> {
        let term = self.term + 1;
        let blank = Entry::blank(&node.log.end(), term);
        let decide = |entries: Vec<Entry>| -> Result<(), String> {
            node.log.append(entries.clone(), done()).map_err(text)?;
            node.log.step().map_err(text)?;
            node.log.decide(node.log.end().id.seq).map_err(text)?;
            node.replica.apply(&entries).map_err(text)
        };
        decide(vec![blank])?;
        node.replica.lead(term, node.log.end()).map_err(text)?;
        let (id, receipt) = node
            .engine
            .transact_and_wait_later(Durability::Disk, |tx| {
                let id = tx.create_tree("after", None)?;
                tx.put(id, b"key", b"value")?;
                Ok(id)
            })
            .map_err(text)?;
        node.engine.step().map_err(text)?;
        let (_, entries) = proposals.take().ok_or("nothing was proposed")?;
        decide(entries)?;
        let fate = node.replica.fate(&receipt).map_err(text)?;
        let found = node.engine.get(id, b"key").map_err(text)?;
        if fate != Fate::Happened || found.as_deref() != Some(b"value") {
            return Err(format!("a commit after the cut is {fate:?}, and reads {found:?}"));
        }
        let mut wanted = self.truth.contents(decided).clone();
        wanted.tree_mut("after").rows.insert(b"key".to_vec(), b"value".to_vec());
        compare(node, &wanted)
    }

    /// Closes the node and opens it again, or makes it a plain database.
    fn end(&self, node: OpenReplica, image: &MemDisk, random: &mut Random) -> Result<(), String> {
        let seq = node.engine.snapshot().map_err(text)?.seq();
        let OpenReplica { engine, replica, log, .. } = node;
        let disk = Arc::new(image.clone());
        let path = Path::new(super::life::PATH);
        if random.chance(1, 3) {
            replica.detach(&log).map_err(text)?;
            drop((engine, replica, log));
            let plain = Engine::open(disk, path, options(), Hooks::default()).map_err(text)?;
            let found = plain.snapshot().map_err(text)?.seq();
            let put = |tx: &mut duramen_engine::Transaction| tx.create_tree("plain", None);
            plain.transact(Durability::Disk, put).map_err(text)?;
            let is_whole = found == seq && plain.check().map_err(text)?.problems.is_empty();
            return if is_whole { Ok(()) } else { Err(format!("detached at {found}, want {seq}")) };
        }
        drop(replica);
        if random.chance(1, 2) {
            log.close().map_err(text)?;
            engine.close().map_err(text)?;
            drop((engine, log));
        } else {
            drop(log);
            engine.abandon();
        }
        let alone = Engine::open(disk, path, options(), Hooks::default()).map(drop);
        let code = alone.err().map(|error| error.code());
        if code != Some(Code::IsReplica) {
            return Err(format!("a node was opened as a database alone: {code:?}"));
        }
        let node = open(image, &Arc::new(Proposals::default()))?;
        let found = node.replica.end().map_err(text)?.id.seq;
        if found == seq { Ok(()) } else { Err(format!("opened again at {found}, want {seq}")) }
    }
}
