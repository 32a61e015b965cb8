//! Power cuts under typed documents: what survives is a prefix of the commits with all acknowledged ones (D1,
//! D2).
//!
//! Then every view answers what its documents imply, unique views are unique, and no id is assigned twice.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use duramen::prelude::*;
use duramen_disk::MemDisk;
use duramen_disk::memory::CrashChoice;
use duramen_engine::Background;
use duramen_sim::contents::Dice;
use duramen_sim::search::shapes::GEOMETRY;
use duramen_sim::seeds;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(
    name = "accounts",
    view(ByOwner, key = owner, value = cents, reduce = (Count, Sum, Min, TopK(2), Distinct(email), Quantiles)),
    view(ByTag, key = tags, each, reduce = Sum(cents)),
    view(ByEmail, key = email, unique),
)]
struct Account {
    #[key(assigned)]
    id: u64,
    owner: String,
    cents: i64,
    tags: Vec<String>,
    email: Option<String>,
}

/// The same documents before the views were added.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "accounts")]
struct Plain {
    #[key(assigned)]
    id: u64,
    owner: String,
    cents: i64,
    tags: Vec<String>,
    email: Option<String>,
}

type Accounts = BTreeMap<u64, Account>;

/// Count, sum, minimum, the two largest, number of documents with an address.
type OfOwner = (u64, i128, Option<i64>, Vec<i64>, u64);

fn open(disk: &MemDisk) -> Result<Db> {
    let options = Db::options().engine(|options| {
        options.geometry = GEOMETRY;
        options.background = Background::Stepped;
    });
    options.open_on(Arc::new(disk.clone()), Path::new("/db"))
}

fn account(dice: &mut Dice) -> Account {
    let tags = (0..dice.below(3)).map(|_| format!("tag {}", dice.below(4))).collect();
    let email = (dice.below(2) == 0).then(|| format!("{}@example.org", dice.below(12)));
    let cents = i64::try_from(dice.below(1_000)).unwrap() - 500;
    Account { id: 0, owner: format!("owner {}", dice.below(5)), cents, tags, email }
}

/// Makes one transaction on the database and on the model.
fn commit(db: &Db, model: &mut Accounts, dice: &mut Dice) {
    let mut next = model.clone();
    let ids: Vec<u64> = model.keys().copied().collect();
    let kind = dice.below(6);
    let fresh = account(dice);
    let picked = ids.get(dice.index(ids.len().max(1))).copied();
    let committed = db.transact(|tx| {
        next.clone_from(model);
        match picked {
            Some(id) if kind == 0 => {
                tx.delete::<Account>(id)?;
                next.remove(&id);
            }
            Some(id) if kind < 3 => {
                let changed = Account { id, ..fresh.clone() };
                tx.put(&changed)?;
                next.insert(id, changed);
            }
            _ => {
                let pushed = tx.push(fresh.clone())?;
                next.insert(pushed.id, pushed);
            }
        }
        Ok(())
    });
    match committed {
        Ok(()) => *model = next,
        Err(error) => assert_eq!(error.code(), duramen::Code::UniqueViolation, "{error}"),
    }
}

/// The model after each commit, and the length of the recording when the commit was acknowledged.
struct Run {
    disk: MemDisk,
    states: Vec<(usize, Accounts)>,
}

fn run(seed: u64) -> Run {
    let (disk, mut dice, mut model) = (MemDisk::new(seed), Dice::new(seed), Accounts::new());
    disk.record();
    let mut states = vec![(0, Accounts::new())];
    let mut db = open(&disk).unwrap();
    for round in 0..4 {
        if round == 0 {
            // Documents stored before their views exist.
            for _ in 0..8 {
                let Account { owner, cents, tags, .. } = account(&mut dice);
                let plain = Plain { id: 0, owner, cents, tags, email: None };
                let pushed = db.transact(|tx| tx.push(plain.clone())).unwrap();
                let Plain { id, owner, cents, tags, email } = pushed;
                model.insert(id, Account { id, owner, cents, tags, email });
                states.push((disk.recorded_len(), model.clone()));
            }
            db.build_views::<Account>(|_| Ok(())).unwrap();
        }
        for _ in 0..12 {
            commit(&db, &mut model, &mut dice);
            states.push((disk.recorded_len(), model.clone()));
        }
        db.close().unwrap();
        drop(db);
        db = open(&disk).unwrap();
    }
    Run { disk, states }
}

/// Compares each view with the answers computed from the documents.
fn check_views(db: &Db, accounts: &Accounts, when: &str) {
    let mut owners: BTreeMap<String, OfOwner> = BTreeMap::new();
    let mut tags: BTreeMap<String, i128> = BTreeMap::new();
    let mut emails = BTreeSet::new();
    for account in accounts.values() {
        let owner = owners.entry(account.owner.clone()).or_default();
        let least = owner.2.map_or(account.cents, |least| least.min(account.cents));
        let mut best = [&owner.3[..], &[account.cents]].concat();
        best.sort_unstable_by(|a, b| b.cmp(a));
        best.truncate(2);
        let with_email = owner.4 + u64::from(account.email.is_some());
        *owner = (owner.0 + 1, owner.1 + i128::from(account.cents), Some(least), best, with_email);
        let own: BTreeSet<&String> = account.tags.iter().collect();
        own.into_iter().for_each(|tag| *tags.entry(tag.clone()).or_default() += i128::from(account.cents));
        assert!(
            account.email.as_ref().is_none_or(|email| emails.insert(email.clone())),
            "{when}: {account:?}"
        );
    }
    let mut found = BTreeMap::new();
    for (owner, (count, sum, least, best, emails, cents)) in
        db.view::<ByOwner>().group_by::<String>().unwrap()
    {
        assert_eq!(cents.count(), count, "{when}");
        found.insert(owner, (count, sum, least, best, emails));
    }
    assert_eq!(found, owners, "{when}");
    let found: BTreeMap<_, _> = db.view::<ByTag>().group_by::<String>().unwrap().into_iter().collect();
    assert_eq!(found, tags, "{when}");
    let found: BTreeSet<String> = db.view::<ByEmail>().iter().unwrap().map(|row| row.unwrap().key).collect();
    assert_eq!(found, emails, "{when}");
}

fn check_cut(run: &Run, at: usize, choice: &CrashChoice, given: &BTreeSet<u64>) -> bool {
    let when = format!("cut at operation {at}, {choice:?}");
    let image = run.disk.trace().crash_image(at, choice);
    let acknowledged = run.states.partition_point(|(recorded, _)| *recorded <= at) - 1;
    let db = match open(&image) {
        Ok(db) => db,
        Err(error) => panic!("{when}: {error}"),
    };
    let found: Accounts = db
        .collection::<Account>()
        .to_vec()
        .unwrap()
        .into_iter()
        .map(|account| (account.id, account))
        .collect();
    let matches = run.states[acknowledged..].iter().position(|(_, state)| *state == found);
    assert!(matches.is_some(), "{when}: not what any {acknowledged} commits or more made: {found:?}");
    db.build_views::<Account>(|_| Ok(())).unwrap();
    check_views(&db, &found, &when);
    // An id that a client may have seen is not assigned to another document.
    let told =
        given.iter().filter(|id| run.states[..=acknowledged].iter().any(|(_, state)| state.contains_key(id)));
    let new =
        db.push(Account { id: 0, owner: String::new(), cents: 0, tags: Vec::new(), email: None }).unwrap().id;
    assert!(told.clone().all(|id| *id < new), "{when}: {new} was given again");
    assert!(db.check().unwrap().is_clean(), "{when}");
    matches > Some(0)
}

#[test]
fn documents_and_views_survive_power_cuts_together() {
    let (mut cuts, mut ahead) = (0, 0);
    let fresh = seeds::of_this_commit("documents", 1);
    for seed in [1, 2, 3].into_iter().chain(fresh.range) {
        println!("seed {seed}");
        let run = run(seed);
        let given: BTreeSet<u64> = run.states.iter().flat_map(|(_, state)| state.keys().copied()).collect();
        let operations = run.disk.recorded_len();
        let mut dice = Dice::new(seed);
        for at in (0..operations).step_by(operations / 150 + 1) {
            let choices =
                [CrashChoice::None, CrashChoice::All, CrashChoice::Random { seed: dice.below(u64::MAX) }];
            for choice in choices {
                cuts += 1;
                ahead += usize::from(check_cut(&run, at, &choice, &given));
            }
        }
    }
    println!("{cuts} cuts, {ahead} with an unacknowledged commit");
    assert!(cuts > 800 && ahead > 0, "{cuts} cuts, {ahead} with an unacknowledged commit");
}
