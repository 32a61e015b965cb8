//! What the database must hold: the state after every commit, and the commits it has promised to keep.
//!
//! Owns the model and nothing of the engine. D1 and D2 are judged by it: a recovered database equals one of
//! these states, not older than the newest promise made before the power cut.

use std::collections::BTreeMap;
use std::sync::Arc;

use duramen_engine::TreeId;

/// The rows of one tree.
pub type RowsModel = BTreeMap<Vec<u8>, Arc<[u8]>>;

/// One tree.
#[derive(Debug, Clone)]
pub struct TreeModel {
    /// Its id.
    pub id: TreeId,
    /// Whether it has the reducer `sum`.
    pub sums: bool,
    /// What it holds.
    pub rows: Arc<RowsModel>,
}

/// The whole database after one commit.
#[derive(Debug, Clone, Default)]
pub struct State {
    /// Its trees by name.
    pub trees: BTreeMap<String, TreeModel>,
}

/// One change of a transaction.
#[derive(Debug, Clone)]
pub enum Effect {
    /// Sets the value of a key.
    Put {
        /// The tree.
        tree: TreeId,
        /// The key.
        key: Vec<u8>,
        /// The value.
        value: Arc<[u8]>,
    },
    /// Deletes a key.
    Delete {
        /// The tree.
        tree: TreeId,
        /// The key.
        key: Vec<u8>,
    },
    /// Creates a tree.
    Create {
        /// Its name.
        name: String,
        /// Its id.
        id: TreeId,
        /// Whether it gets the reducer `sum`.
        sums: bool,
    },
    /// Drops a tree.
    Drop {
        /// Its name.
        name: String,
    },
}

impl State {
    /// The tree of an id.
    #[must_use]
    pub fn tree(&self, id: TreeId) -> Option<&TreeModel> {
        self.trees.values().find(|tree| tree.id == id)
    }

    /// Applies a transaction.
    pub fn apply(&mut self, effects: &[Effect]) {
        for effect in effects {
            match effect {
                Effect::Put { tree, key, value } => {
                    self.rows(*tree).insert(key.clone(), Arc::clone(value));
                }
                Effect::Delete { tree, key } => {
                    self.rows(*tree).remove(key);
                }
                Effect::Create { name, id, sums } => {
                    let tree = TreeModel { id: *id, sums: *sums, rows: Arc::default() };
                    self.trees.insert(name.clone(), tree);
                }
                Effect::Drop { name } => {
                    self.trees.remove(name);
                }
            }
        }
    }

    fn rows(&mut self, id: TreeId) -> &mut RowsModel {
        let tree = self.trees.values_mut().find(|tree| tree.id == id);
        Arc::make_mut(&mut tree.expect("a transaction writes to trees that exist").rows)
    }
}

/// One commit of many by concurrent threads.
#[derive(Debug, Clone)]
pub struct Commit {
    /// Its place in the order, from its receipt.
    pub seq: u64,
    /// The number of operations of the disk before its call began.
    pub began_at: usize,
    /// What it does.
    pub effects: Vec<Effect>,
}

/// A transaction in progress: its changes, and the operation of the disk at which its commit began.
#[derive(Debug)]
struct Pending {
    effects: Vec<Effect>,
    began_at: usize,
    seq: Option<u64>,
}

/// Every state in the order of commits, and every promise.
#[derive(Debug)]
pub struct History {
    /// Sequence of the first state.
    base: u64,
    states: Vec<State>,
    /// For each state the operation of the disk at which its commit began.
    began: Vec<usize>,
    /// Each operation from which a commit survives.
    promises: Vec<(usize, u64)>,
    /// Commits in progress, the outermost first.
    pending: Vec<Pending>,
}

impl History {
    /// Begins with one state, which is already promised.
    #[must_use]
    pub fn starting(base: u64, state: State) -> History {
        History { base, states: vec![state], began: vec![0], promises: vec![(0, base)], pending: Vec::new() }
    }

    /// From commits of concurrent threads, by their receipts, and the promises made at each operation.
    ///
    /// The sequences between them are commits of the engine that change nothing.
    ///
    /// # Errors
    /// Two receipts have the same sequence.
    pub fn of_commits(mut commits: Vec<Commit>, promises: &[(usize, u64)]) -> Result<History, String> {
        commits.sort_by_key(|commit| commit.seq);
        let mut history = History::starting(0, State::default());
        for commit in commits {
            if commit.seq <= history.last_seq() {
                return Err(format!("two transactions were both told that they are commit {}", commit.seq));
            }
            history.nothing_until(commit.seq - 1, 0);
            let mut state = history.latest().clone();
            state.apply(&commit.effects);
            history.states.push(state);
            history.began.push(commit.began_at);
        }
        for (at_op, seq) in promises {
            history.nothing_until(*seq, *at_op);
            history.promise(*at_op, *seq);
        }
        Ok(history)
    }

    /// The commit of its first state.
    #[must_use]
    pub fn base(&self) -> u64 {
        self.base
    }

    /// The newest commit.
    #[must_use]
    pub fn last_seq(&self) -> u64 {
        self.base + self.states.len() as u64 - 1
    }

    /// The newest state.
    #[must_use]
    pub fn latest(&self) -> &State {
        self.states.last().expect("there is always a first state")
    }

    /// The state after a commit.
    #[must_use]
    pub fn at(&self, seq: u64) -> Option<&State> {
        self.states.get(usize::try_from(seq.checked_sub(self.base)?).ok()?)
    }

    /// Notes that a commit begins.
    pub fn begin(&mut self, effects: Vec<Effect>, at_op: usize) {
        self.pending.push(Pending { effects, began_at: at_op, seq: None });
    }

    /// Notes that the innermost commit in progress was refused.
    pub fn refused(&mut self) {
        let gone = self.pending.pop().expect("a commit that ends has begun");
        assert_eq!(gone.seq, None, "a refused commit was followed by one that builds on it");
    }

    /// Notes the sequence of the innermost commit in progress.
    ///
    /// Where commits were made inside another's sync, that one was ordered before them, without a note.
    pub fn committed(&mut self, seq: u64) {
        while self.last_seq() + 1 < seq {
            let index = self.pending.iter().position(|pending| pending.seq.is_none());
            let index = index.expect("the order of commits has no holes");
            assert!(index + 1 < self.pending.len(), "commit {seq} follows {}", self.last_seq());
            self.settle(index);
        }
        let last = self.pending.len() - 1;
        if self.pending[last].seq.is_none() {
            self.settle(last);
        }
        let done = self.pending.pop().expect("a commit that ends has begun");
        assert_eq!(done.seq, Some(seq), "the place of a commit in the order");
    }

    /// Adds empty commits up to this one, made while no other commit was in progress: the engine makes them
    /// to reclaim dropped trees.
    pub fn nothing_until(&mut self, seq: u64, began_at: usize) {
        assert!(self.pending.is_empty(), "an empty commit came beside another");
        while self.last_seq() < seq {
            self.states.push(self.latest().clone());
            self.began.push(began_at);
        }
    }

    fn settle(&mut self, index: usize) {
        let mut state = self.latest().clone();
        state.apply(&self.pending[index].effects);
        self.states.push(state);
        self.began.push(self.pending[index].began_at);
        self.pending[index].seq = Some(self.last_seq());
    }

    /// Notes that commit `seq` survives a power cut from operation `at_op` on.
    pub fn promise(&mut self, at_op: usize, seq: u64) {
        if self.promises.last().is_none_or(|(_, known)| *known < seq) {
            self.promises.push((at_op, seq));
        }
    }

    /// The newest commit that must survive a cut after the first `at_op` operations.
    #[must_use]
    pub fn floor(&self, at_op: usize) -> u64 {
        let known = self.promises.partition_point(|(at, _)| *at <= at_op);
        self.promises[..known].last().map_or(self.base, |(_, seq)| *seq)
    }

    /// The newest commit that can exist after the first `at_op` operations.
    #[must_use]
    pub fn ceiling(&self, at_op: usize) -> u64 {
        let began = self.began.iter().rposition(|began| *began <= at_op);
        self.base + began.expect("the first state was there at the start") as u64
    }
}
