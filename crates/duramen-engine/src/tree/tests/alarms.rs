//! A node or a page that contradicts what the tree relies on raises the alarm before it does harm.

use super::*;
use crate::alarm::cause_of;
use crate::tree::inner::Inner;
use crate::tree::separators::Separators;

/// What is done must break an invariant whose message contains `what`.
fn raises(what: &str, done: impl FnOnce()) {
    let cause = cause_of(done);
    assert!(cause.contains(what), "{cause}");
}

fn small_root(pages: &Pages) -> Slot {
    apply(pages, None, &[(vec![1], Some(vec![1]))].into()).unwrap()
}

#[test]
fn a_node_is_written_once() {
    let disk = MemDisk::new(1);
    let pages = pages(&disk);
    let root = small_root(&pages);
    let pointer = write_tree(&pages, &root, None, &mut Sequential::new(&pages, 0)).unwrap();
    let node = root.peek().unwrap();
    raises("not yet written", || assert!(node.set_pointer(pointer.clone()).is_none()));
    assert_eq!(node.pointer(), Some(&pointer));
}

#[test]
fn a_page_of_another_kind_is_not_given_to_a_node() {
    let disk = MemDisk::new(1);
    let pages = pages(&disk);
    let root = small_root(&pages);
    let inner = Page::build(PageKind::Inner, 1, 0, |_| ());
    let pointer = NodePointer::whole(pages.data().locate(&inner, 9), Reduction::UNKNOWN);
    let node = root.peek().unwrap();
    raises("the page of a node of height 0 is inner: true", || assert!(node.set_pointer(pointer).is_none()));
    assert!(node.pointer().is_none());
}

#[test]
fn a_node_has_one_separator_fewer_than_children() {
    let disk = MemDisk::new(1);
    let pages = pages(&disk);
    let children = || vec![small_root(&pages), small_root(&pages)];
    let build = |keys: &[Vec<u8>]| Inner::build(1, Separators::pack(keys), children(), 0);
    assert_eq!(build(&[vec![5]]).len(), 2);
    raises("0 separators are between 2 children", || drop(build(&[])));
}

#[test]
fn a_node_is_not_written_above_a_child_of_another_height() {
    let disk = MemDisk::new(1);
    let pages = pages(&disk);
    let root = small_root(&pages);
    let pointers = [write_tree(&pages, &root, None, &mut Sequential::new(&pages, 0)).unwrap()];
    let above = |level| Inner::build(level, Separators::pack(&[]), vec![root.clone()], 0);
    assert!(!above(1).to_page(1, &pointers).bytes().is_empty());
    raises("a child of a node of height 2 is inner: false", || drop(above(2).to_page(1, &pointers)));
    raises("0 of 1 children have a pointer", || drop(above(1).to_page(1, &[])));
}

#[test]
fn a_separator_lies_between_its_neighbours() {
    let separators = Separators::pack(&[b"b".to_vec(), b"d".to_vec()]);
    assert_eq!(separators.with(&[(1, &b"c"[..])]).unwrap().len(), 3);
    let wrong: [(usize, &[u8]); 4] = [(0, b"c"), (2, b"c"), (1, b"b"), (1, b"d")];
    for (before, key) in wrong {
        raises("lies between its neighbours", || drop(separators.with(&[(before, key)])));
    }
}
