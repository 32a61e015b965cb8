//! Backups of a served database: its parts come from the server, and the copy is made and checked here.

use std::path::Path;
use std::time::Duration;

use duramen::error::{Code, Error, Result};
use duramen::wire::{BackupTarget, CopyPart, Features, ReducerSpec};
use duramen::{CommitSeq, CopyProgress, Db};
use duramen_proto::v1::{self, backup_reply::Kind};
use tokio_stream::StreamExt as _;
use tonic::Streaming;

use crate::client::{Client, with_deadline};
use crate::remote::Remote;
use crate::stream::unexpected;

/// A backup may take this long: a server gives no more.
const DEADLINE: Duration = Duration::from_secs(24 * 3600);

impl Remote {
    /// Copies the newest state of the database into a new database in a directory of this machine, as
    /// [`Db::backup`] does.
    ///
    /// # Errors
    /// As [`Remote::backup_with`].
    pub fn backup(&self, path: impl AsRef<Path>) -> Result<CopyProgress> {
        self.backup_with(path, |_| Ok(()))
    }

    /// As [`Remote::backup`], and reports its progress. An error from `progress` stops it.
    ///
    /// Readers and writers go on meanwhile. When this returns, what came is what the server has read, and the
    /// copy was read back, checked and synced. A backup that was interrupted is marked as `UnfinishedCopy`
    /// (E0215), cannot be opened, and is begun again in another directory. Reductions of code that this
    /// library does not have are left out: a program with the code computes them from the rows.
    ///
    /// # Errors
    /// `Forbidden` (E1102) without the right `backup`; `Overloaded` (E1103); `AlreadyExists` (E0210) if there
    /// is something at the path. Those of [opening](duramen::Error#opening) and a
    /// [commit](duramen::Error#commits) of the copy; `CorruptData` (E0501) if it is not what the server has
    /// read. `Unreachable` (E1111) if the connection is lost; `SnapshotExpired` (E0801) if this machine is
    /// too slow for it; errors of `progress`.
    pub fn backup_with(
        &self,
        path: impl AsRef<Path>,
        mut progress: impl FnMut(&CopyProgress) -> Result<()>,
    ) -> Result<CopyProgress> {
        let mut parts = Parts::begin(self.client())?;
        let Part::Begun(seq, entries) = parts.next()? else { return Err(unexpected()) };
        let mut target = BackupTarget::begin(Db::options(), path.as_ref(), seq, entries)?;
        loop {
            match parts.next()? {
                Part::Copied(part) => {
                    let is_tree = matches!(part, CopyPart::Tree { .. });
                    let done = target.take(part)?;
                    if !is_tree {
                        progress(&done)?;
                    }
                }
                Part::Ended(digest) => return target.finish(digest),
                Part::Begun(..) => return Err(unexpected()),
            }
        }
    }
}

/// The parts of a backup, as they come from a server.
struct Parts {
    client: Client,
    messages: Streaming<v1::BackupReply>,
}

enum Part {
    Begun(CommitSeq, u64),
    Copied(CopyPart),
    Ended(u128),
}

impl Parts {
    fn begin(client: &Client) -> Result<Parts> {
        let mut admin = client.admin();
        let call = async move { admin.backup(with_deadline(v1::BackupRequest {}, DEADLINE)).await };
        Ok(Parts { messages: client.wait(call)?, client: client.clone() })
    }

    fn message(&mut self) -> Result<Kind> {
        let message = self.client.runtime().block_on(self.messages.next())?;
        let message = message.transpose().map_err(|status| self.client.failed(&status))?;
        // Only the last part ends it.
        message.and_then(|message| message.kind).ok_or_else(unexpected)
    }

    fn next(&mut self) -> Result<Part> {
        Ok(match self.message()? {
            Kind::Begun(begun) => Part::Begun(CommitSeq(begun.at.unwrap_or_default().seq), begun.entries),
            Kind::Tree(tree) => Part::Copied(tree_of(tree)?),
            Kind::Entries(entries) => Part::Copied(self.entries(entries)?),
            Kind::Piece(_) => return Err(unexpected()),
            Kind::Ended(ended) => {
                let digest = ended.digest.as_ref().try_into().map_err(|_| unexpected())?;
                Part::Ended(u128::from_be_bytes(digest))
            }
        })
    }

    /// Entries, the last with all of its value.
    fn entries(&mut self, v1::BackupEntries { entries, mut goes_on }: v1::BackupEntries) -> Result<CopyPart> {
        let owned = |entry: v1::BackupEntry| (entry.key.to_vec(), entry.value.to_vec());
        let mut entries: Vec<(Vec<u8>, Vec<u8>)> = entries.into_iter().map(owned).collect();
        while goes_on {
            let (Kind::Piece(piece), Some((_, value))) = (self.message()?, entries.last_mut()) else {
                return Err(unexpected());
            };
            value.extend_from_slice(&piece.bytes);
            goes_on = piece.goes_on;
        }
        Ok(CopyPart::Entries(entries))
    }
}

fn tree_of(v1::BackupTree { name, reducer, features }: v1::BackupTree) -> Result<CopyPart> {
    let Some(features) = Features::from_bits(features) else {
        let what = format!("the server has the tree {name:?} in a form that this release does not know");
        return Err(Error::new(Code::Unsupported, what)
            .with_hint("make the backup with the release of the server, or a later one"));
    };
    let reducer = reducer.map(|v1::BackupReducer { name, version, parameters }| ReducerSpec {
        name,
        version,
        params: parameters.to_vec(),
    });
    Ok(CopyPart::Tree { name, reducer, features })
}
