//! What a log says of names, where it says it in a way that nobody knows.

use super::replaying::naming;
use crate::catalog::{CATALOG, CatalogRow};
use crate::commit::RecordChange;
use crate::ids::TreeId;
use crate::tree::StoredValue;

// A row taken for no row would drop the tree that the name stands for, and all that is in it.
#[test]
fn a_row_that_does_not_decode_is_no_drop() {
    let row = CatalogRow { id: TreeId(7), spec: None };
    let encoded = row.encode();
    let change = |key, bytes: Option<&'static [u8]>| RecordChange {
        tree: CATALOG,
        key,
        value: bytes.map(|bytes| StoredValue { big: false, bytes }),
    };
    let whole = RecordChange {
        tree: CATALOG,
        key: b"name",
        value: Some(StoredValue { big: false, bytes: &encoded }),
    };
    assert_eq!(naming(&whole), Ok(("name".to_owned(), Some(row))));
    assert_eq!(naming(&change(b"name", None)), Ok(("name".to_owned(), None)));
    assert!(naming(&change(b"name", Some(b"\x63of a later release"))).is_err());
    assert!(naming(&change(b"\xff\xfe", None)).is_err());
}
