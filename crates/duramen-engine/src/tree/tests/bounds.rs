//! Pages with a valid checksum and valid contents where these keys do not belong (D4).

use super::*;
use crate::tree::inner::Inner;
use crate::tree::separators::Separators;

/// The keys of a leaf.
type Keys = &'static [&'static [u8]];

/// A page outside the bounds that its parent records.
const OUTSIDE: &str = "outside the bounds";

/// Writes subtrees and above them a node with these separators; returns the node as read from disk.
fn above(pages: &Pages, level: u8, separators: &[Vec<u8>], children: &[Slot]) -> Slot {
    let mut sink = Sequential::new(pages, 0);
    sink.next_block = pages.data().file().len().unwrap().div_ceil(512);
    let pointers: Vec<NodePointer> =
        children.iter().map(|child| write_tree(pages, child, None, &mut sink).unwrap()).collect();
    let unread = children
        .iter()
        .zip(&pointers)
        .map(|(child, pointer)| Slot::below(pages.meter(), child.count, pointer.clone(), level));
    let inner = Inner::build(level, Separators::pack(separators), unread.collect(), 0);
    let page = inner.to_page(1, &pointers);
    let pointer = pages.data().locate(&page, sink.next_block);
    pages.data().file().write_at(page.bytes(), pages.data().offset(pointer.block)).unwrap();
    Slot::of_unknown_count(pages, pointer).unwrap()
}

fn leaf_of(pages: &Pages, keys: &[&[u8]]) -> Slot {
    apply(pages, None, &keys.iter().map(|key| (key.to_vec(), Some(vec![1; 40]))).collect()).unwrap()
}

fn error_of(pages: &Pages, root: &Slot, edits: &Edits) -> Option<crate::error::Error> {
    let mut apply = Apply::new(pages, &TINY, CommitSeq(2), Loading::Allowed);
    apply.tree(Some(root), &listed(edits)).map_err(ApplyError::into_error).err()
}

fn deletion(key: &[u8]) -> Edits {
    Edits::from([(key.to_vec(), None)])
}

fn put(key: &[u8]) -> Edits {
    Edits::from([(key.to_vec(), Some(vec![2; 40]))])
}

/// The first of three leaves changes, and each of them in turn lies outside its bounds.
#[test]
fn a_leaf_outside_its_bounds_is_refused_when_it_takes_part_in_a_change() {
    let disk = MemDisk::new(1);
    let pages = pages(&disk);
    let of = |lists: [Keys; 3]| {
        let leaves = lists.map(|keys| leaf_of(&pages, keys));
        above(&pages, 1, &[b"h".to_vec(), b"p".to_vec()], &leaves)
    };
    let first: Keys = &[b"aa1", b"aa2"];
    let second: Keys = &[b"ha", b"hb"];
    let third: Keys = &[b"pa", b"pb"];
    assert!(error_of(&pages, &of([first, second, third]), &deletion(b"aa1")).is_none());
    let changed: [([Keys; 3], Edits); 5] = [
        // The leaf that changes.
        ([&[b"aa1", b"ha"], second, third], put(b"b")),
        ([first, &[b"a", b"hb"], third], put(b"hc")),
        ([first, second, &[b"oz", b"pb"]], put(b"pc")),
        // A neighbour that it merges with.
        ([first, &[b"a", b"ha"], third], deletion(b"aa1")),
        ([first, &[b"ha", b"x"], third], deletion(b"aa1")),
    ];
    for (lists, edits) in changed {
        let error = error_of(&pages, &of(lists), &edits).expect("it is refused");
        assert!(error.is_corruption() && error.message().contains(OUTSIDE), "{lists:?}: {error}");
    }
}

/// The same one level up: separators of a node that lie outside its bounds.
#[test]
fn an_inner_node_outside_its_bounds_is_refused_when_it_takes_part_in_a_change() {
    let disk = MemDisk::new(1);
    let pages = pages(&disk);
    let of = |separators: [&[u8]; 2]| {
        let leaf = |keys: &[&[u8]]| leaf_of(&pages, keys);
        let first = above(&pages, 1, &[separators[0].to_vec()], &[leaf(&[b"a", b"b"]), leaf(&[b"d", b"e"])]);
        let second = above(&pages, 1, &[separators[1].to_vec()], &[leaf(&[b"i", b"j"]), leaf(&[b"q", b"r"])]);
        above(&pages, 2, &[b"h".to_vec()], &[first, second])
    };
    assert!(error_of(&pages, &of([b"c", b"p"]), &deletion(b"a")).is_none());
    assert!(error_of(&pages, &of([b"c", b"p"]), &deletion(b"r")).is_none());
    for (separators, edits) in
        [([b"x", b"p"], put(b"c")), ([b"c", b"b"], put(b"qa")), ([b"c", b"b"], deletion(b"a"))]
    {
        let error = error_of(&pages, &of([separators[0], separators[1]]), &edits).expect("it is refused");
        assert!(error.is_corruption() && error.message().contains(OUTSIDE), "{separators:?}: {error}");
    }
}

/// A pointer says only whether a node is a leaf. Nodes of two heights do not merge.
#[test]
fn neighbours_of_different_heights_are_refused() {
    let disk = MemDisk::new(1);
    let pages = pages(&disk);
    let one = |keys: &[&[u8]]| above(&pages, 1, &[], &[leaf_of(&pages, keys)]);
    let two = above(&pages, 2, &[], &[one(&[b"p", b"q"])]);
    let root = above(&pages, 3, &[b"h".to_vec()], &[one(&[b"a", b"b"]), two]);
    let error = error_of(&pages, &root, &deletion(b"a")).expect("it is refused");
    assert!(error.is_corruption() && error.message().contains("another height"), "{error}");
}

/// Leaves in any wrong order take any changes or refuse them: no panic, and no change without an end.
#[test]
fn exchanged_leaves_make_no_change_panic() {
    let disk = MemDisk::new(1);
    let pages = pages(&disk);
    let mut random = Random(11);
    let mut refused_count = 0;
    for _ in 0..300 {
        let short = |_| Some(random.key()).filter(|key| key.len() < 12);
        let keys: Vec<Vec<u8>> = (0..200).filter_map(short).take(40).collect();
        let leaves: Vec<Slot> = (0..6)
            .map(|_| {
                let count = usize::try_from(1 + random.below(5)).unwrap();
                let start = usize::try_from(random.below(30)).unwrap();
                let some: Vec<&[u8]> = keys[start..start + count].iter().map(Vec::as_slice).collect();
                leaf_of(&pages, &some)
            })
            .collect();
        let mut separators: Vec<Vec<u8>> = (0..5u8).map(|n| vec![b'a' + n % 3, b'a' + n / 3]).collect();
        separators.sort();
        let mut root = above(&pages, 1, &separators, &leaves);
        for _ in 0..4 {
            let pick = |random: &mut Random| keys[usize::try_from(random.below(40)).unwrap()].clone();
            let edits: Edits =
                (0..6).map(|_| (pick(&mut random), (random.below(2) == 0).then(|| vec![3; 60]))).collect();
            let changed =
                Apply::new(&pages, &TINY, CommitSeq(2), Loading::Allowed).tree(Some(&root), &listed(&edits));
            match changed {
                Ok(Some(changed)) => root = changed,
                Ok(None) => break,
                Err(error) => {
                    refused_count += 1;
                    assert!(error.into_error().is_corruption());
                }
            }
        }
    }
    assert!(refused_count > 100, "{refused_count}");
}

/// A root that splits gets a root one higher: no height may be the last one that its byte can hold.
#[test]
fn a_node_higher_than_any_tree_is_refused() {
    let disk = MemDisk::new(1);
    let pages = pages(&disk);
    let child = above(&pages, 1, &[], &[leaf_of(&pages, &[b"a"])]);
    let pointer = child.pointer().unwrap();
    for (level, is_read) in [(2, true), (64, true), (65, false), (255, false)] {
        let inner = Inner::build(level, Separators::pack(&[]), vec![child.clone()], 0);
        let page = inner.to_page(1, std::slice::from_ref(&pointer));
        assert_eq!(Inner::from_page(pages.meter(), &page).is_ok(), is_read, "height {level}");
    }
}

/// The end of a range is looked for beside its start: it is where a search of the whole leaf finds it.
#[test]
fn the_end_of_a_range_is_where_a_search_finds_it() {
    let disk = MemDisk::new(1);
    let pages = pages(&disk);
    let mut random = Random(9);
    for round in 0..300 {
        let prefix = [&b""[..], b"a", b"abc"][round % 3];
        let key = |random: &mut Random| -> Vec<u8> {
            let letters = |random: &mut Random| [0, b'a', 0xff][usize::try_from(random.below(3)).unwrap()];
            let rest = (0..random.below(3)).map(|_| letters(random));
            prefix.iter().copied().chain(rest).collect()
        };
        let mut edits =
            || -> Edits { (0..=random.below(6)).map(|_| (key(&mut random), Some(vec![1]))).collect() };
        let (first, more) = (edits(), edits());
        let root = apply(&pages, None, &first).unwrap();
        // A patch beside the leaf.
        let root = apply(&pages, Some(&root), &more).unwrap();
        let node = root.peek().unwrap();
        let Body::Leaf(leaf) = node.body() else { continue };
        let (mut from, mut to) = (key(&mut random), key(&mut random));
        if random.below(4) == 0 {
            to.truncate(usize::try_from(random.below(2)).unwrap());
        }
        if to < from {
            std::mem::swap(&mut from, &mut to);
        }
        let (start, end) = (leaf.lower_bound(&from), leaf.lower_bound(&to));
        assert_eq!(leaf.lower_bound_from(start, &to), end, "{from:?} to {to:?} of {first:?}, {more:?}");
    }
}
