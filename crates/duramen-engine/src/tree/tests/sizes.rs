//! Page lengths of inner nodes whose reductions grow between split and write, and pages that are too long.

use super::*;
use crate::tree::inner::page_bytes_max;

/// Reductions as long as the longest value of the range demands.
struct Longest;

impl Reducer for Longest {
    fn one(&self, _: &[u8], value: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        let bytes = u16::from_le_bytes([value[0], value[1]]);
        out.resize(usize::from(bytes), 7);
        Ok(())
    }

    fn join(&self, left: &[u8], right: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(if left.len() > right.len() { left } else { right });
    }
}

/// Room for 250 children with small reductions in one inner node, and a leaf for each entry.
const WIDE: Geometry = Geometry { inner_bytes_max: 16 * 1024, ..TINY };

const ENTRY_COUNT: u16 = 250;

/// Puts all entries again, with reductions of so many bytes.
fn put_all(pages: &Pages, root: Option<&Slot>, bytes: u16, reducer: Option<&dyn Reducer>) -> Slot {
    let mut value = vec![1; 300];
    value[..2].copy_from_slice(&bytes.to_le_bytes());
    let keys: Vec<[u8; 2]> = (0..ENTRY_COUNT).map(u16::to_be_bytes).collect();
    let value = StoredValue { big: false, bytes: &value };
    let changes: Vec<Change<'_>> = keys.iter().map(|key| Change { key, value: Some(value) }).collect();
    let mut apply = Apply::new(pages, &WIDE, CommitSeq(1), Loading::Allowed).reduced_by(reducer);
    apply.tree(root, &changes).unwrap().unwrap()
}

/// Writes a root; returns its inner nodes.
fn write(pages: &Pages, root: &Slot, reducer: Option<&dyn Reducer>, next_block: &mut u64) -> Vec<Arc<Node>> {
    let mut sink = Sequential { geometry: WIDE, ..Sequential::new(pages, *next_block) };
    write_tree(pages, root, reducer, &mut sink).unwrap();
    *next_block = sink.next_block;
    sink.nodes.retain(|node| node.level() > 0);
    sink.nodes
}

fn longest_page(nodes: &[Arc<Node>]) -> usize {
    let bytes = |node: &Arc<Node>| node.pointer().unwrap().page.raw_bytes as usize;
    nodes.iter().map(bytes).max().unwrap()
}

fn check_longest(pages: &Pages, root: &Slot, bytes: u16) {
    for from in [0u16, 1, 100, 249] {
        let range = KeyRange::between(from.to_be_bytes().to_vec(), vec![1]);
        let reduced = reduce(pages, Some(root), &Longest, &range).unwrap();
        assert_eq!(reduced.count, u64::from(ENTRY_COUNT - from));
        assert_eq!(reduced.value.map(|value| value.len()), Some(usize::from(bytes)));
    }
}

/// A program without the reducer wrote the tree, and one with it puts every entry: the node is split before
/// it is written.
#[test]
fn an_inner_node_of_unknown_reductions_is_cut_when_they_become_known() {
    let disk = MemDisk::new(1);
    let (pages, mut block) = (pages(&disk), 0);
    let root = put_all(&pages, None, 2_000, None);
    let nodes = write(&pages, &root, None, &mut block);
    assert!(matches!(nodes.last().unwrap().body(), Body::Inner(inner) if inner.len() == 250));
    let root = Slot::of_unknown_count(&pages, root.pointer().unwrap().page).unwrap();
    let root = put_all(&pages, Some(&root), 2_000, Some(&Longest));
    let nodes = write(&pages, &root, Some(&Longest), &mut block);
    assert!(longest_page(&nodes) < 2 * WIDE.inner_bytes_max, "{} bytes", longest_page(&nodes));
    assert!(root.pointer().unwrap().reduction.bytes().is_some());
    check_longest(&pages, &root, 2_000);
}

/// Reductions that were short when their node was split are computed when it is written. It cannot be split
/// then.
#[test]
fn an_inner_node_whose_reductions_grew_before_it_is_written_is_written_without_them() {
    let disk = MemDisk::new(1);
    let (pages, mut block) = (pages(&disk), 0);
    let root = put_all(&pages, None, 1, Some(&Longest));
    write(&pages, &root, Some(&Longest), &mut block);
    let root = put_all(&pages, Some(&root), 2_000, Some(&Longest));
    let nodes = write(&pages, &root, Some(&Longest), &mut block);
    assert_eq!(nodes.len(), 1, "it was not cut: nothing said how long they are");
    assert!(longest_page(&nodes) <= WIDE.inner_bytes_max, "{} bytes", longest_page(&nodes));
    check_longest(&pages, &root, 2_000);
    let again = Slot::of_unknown_count(&pages, root.pointer().unwrap().page).unwrap();
    check_longest(&pages, &again, 2_000);
    // A search for unknown reductions finds the node, and putting its entries again splits it.
    for root in [root, again] {
        let keys = stale_keys(&pages, &root, &[], 1_000).unwrap();
        assert!(!keys.is_empty());
        let root = put_all(&pages, Some(&root), 2_000, Some(&Longest));
        let nodes = write(&pages, &root, Some(&Longest), &mut block);
        assert!(nodes.len() > 10 && longest_page(&nodes) < 2 * WIDE.inner_bytes_max);
        assert!(stale_keys(&pages, &root, &[], 1_000).unwrap().is_empty());
        check_longest(&pages, &root, 2_000);
    }
}

/// Earlier releases wrote a node with all its reductions, however long the page became.
#[test]
fn an_inner_node_of_hundreds_of_kilobytes_is_read_and_cut_by_the_next_change() {
    let disk = MemDisk::new(1);
    let (pages, mut block) = (pages(&disk), 0);
    let root = put_all(&pages, None, 2_000, None);
    let nodes = write(&pages, &root, None, &mut block);
    let Body::Inner(inner) = nodes.last().unwrap().body() else { panic!("a root of 250 children") };
    let known =
        |slot: &Slot| NodePointer { reduction: Reduction::of(&[7; 2_000]), ..slot.pointer().unwrap() };
    let page = inner.to_page(1, &inner.slots().map(known).collect::<Vec<_>>());
    assert!(page.bytes().len() > 500_000 && page.bytes().len() > page_bytes_max(WIDE.inner_bytes_max));
    let pointer = pages.data().locate(&page, block);
    pages.data().file().write_at(page.bytes(), pages.data().offset(block)).unwrap();
    block += u64::from(pointer.block_count);

    let root = Slot::of_unknown_count(&pages, pointer).unwrap();
    assert_eq!(rows(&pages, Some(&root), KeyRange::all(), Direction::Forward).len(), 250);
    check_longest(&pages, &root, 2_000);
    let key = 100u16.to_be_bytes();
    let change = [Change { key: &key, value: None }];
    let mut apply = Apply::new(&pages, &WIDE, CommitSeq(2), Loading::Allowed).reduced_by(Some(&Longest));
    let root = apply.tree(Some(&root), &change).unwrap().unwrap();
    let nodes = write(&pages, &root, Some(&Longest), &mut block);
    assert!(nodes.len() > 10 && longest_page(&nodes) < 2 * WIDE.inner_bytes_max);
    assert_eq!(rows(&pages, Some(&root), KeyRange::all(), Direction::Forward).len(), 249);
}

/// Code that reads the first entry of a leaf relies on there being one.
#[test]
fn a_leaf_without_an_entry_is_corrupt() {
    let disk = MemDisk::new(1);
    let page = Page::build(PageKind::Leaf, 1, 8, |out| out.extend_from_slice(&[0; 8]));
    let error = Leaf::from_page(pages(&disk).meter(), page).err();
    assert_eq!(error, Some("leaf without an entry"));
}
