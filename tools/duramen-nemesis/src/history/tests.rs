//! Histories by hand: right ones, and each way in which one can be wrong.

use super::*;

/// Two transactions that appended to list 1, and a read of it.
fn of(reads: Option<Vec<u64>>) -> History {
    let history = History::default();
    for id in [10, 11] {
        let parts = [Part::Append(1, id)];
        history.begins(id, &parts);
        history.ends(id, &parts, End::Happened);
    }
    let parts = [Part::Read(1, reads)];
    history.begins(5, &parts);
    history.ends(5, &parts, End::Happened);
    history
}

fn lists(ids: &[u64]) -> (BTreeMap<u64, Vec<u64>>, BTreeSet<u64>) {
    (BTreeMap::from([(1, ids.to_vec())]), ids.iter().copied().collect())
}

#[test]
fn answers_that_have_an_order_are_right() {
    let (lists, documents) = lists(&[10, 11]);
    assert_eq!(of(Some(vec![10, 11])).judge(&lists, &documents), Vec::<String>::new());
}

#[test]
fn an_acknowledged_append_that_is_gone_is_lost() {
    let (lists, documents) = lists(&[10]);
    let wrong = of(Some(vec![10])).judge(&lists, &documents);
    assert!(wrong[0].contains("transaction 11 ended as Happened with 1 appends; 0 of them"), "{wrong:?}");
}

#[test]
fn a_read_that_is_older_than_what_was_acknowledged_before_it_is_wrong() {
    let (lists, documents) = lists(&[10, 11]);
    let history = of(Some(vec![10]));
    // What is there at the end: nothing is lost.
    let parts = [Part::Read(1, Some(vec![10, 11]))];
    history.begins(6, &parts);
    history.ends(6, &parts, End::Happened);
    let wrong = history.judge(&lists, &documents);
    assert!(wrong[0].contains("realtime"), "{wrong:?}");
}

#[test]
fn half_of_a_transaction_is_wrong_even_if_its_end_is_unknown() {
    let history = History::default();
    let parts = [Part::Append(1, 7), Part::Append(2, 7)];
    history.begins(1, &parts);
    history.ends(1, &parts, End::Unknown);
    let there = |ids: &[(u64, u64)]| -> BTreeMap<u64, Vec<u64>> {
        ids.iter().map(|(list, id)| (*list, vec![*id])).collect()
    };
    let document = BTreeSet::from([7]);
    assert_eq!(history.lost_or_invented(&there(&[(1, 7), (2, 7)]), &document), Vec::<String>::new());
    assert_eq!(history.lost_or_invented(&there(&[]), &BTreeSet::new()), Vec::<String>::new());
    assert_eq!(history.lost_or_invented(&there(&[(1, 7)]), &document).len(), 1);
    assert_eq!(history.lost_or_invented(&there(&[(1, 7), (2, 7)]), &BTreeSet::new()).len(), 1);
}

/// The power went while a line was written, and while a transaction was under way.
#[test]
fn a_history_goes_on_where_it_was_cut_off() {
    let before = of(Some(vec![10, 11]));
    before.begins(12, &[Part::Append(1, 12)]);
    let lines = before.lock().lines.join("\n");
    let (history, last_id) = History::after(&format!("{lines}\n{{\"type\":\"ok\",\"proc")).unwrap();
    assert_eq!((last_id, history.counts()), (12, (2, 1)));
    let (whole, documents) = lists(&[10, 11, 12]);
    assert_eq!(history.judge(&whole, &documents), Vec::<String>::new());
    let (without, documents) = lists(&[10, 11]);
    assert_eq!(history.judge(&without, &documents), Vec::<String>::new());
    let (lost, documents) = lists(&[10]);
    assert!(history.judge(&lost, &documents)[0].contains("transaction 11 ended as Happened"));
    assert!(History::after("no line\n").is_err());
}
