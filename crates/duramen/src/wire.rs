//! What the crates of the server and its clients need of this one. It may change with any release.

pub use crate::access::anywhere::{KvRead, KvWrite};
pub use crate::access::codec::{read_named, store_named};
pub use crate::access::encoded::{EncodedRows, get_named};
pub use crate::access::far::{Far, FarCursor, FarGroup, FarRows};
pub use crate::access::selection::Target;
pub use crate::access::type_descriptor::{StoredType, TypeDefinition};
pub use crate::access::typed::encoded::{
    Wanted, check_mark, declare_types, ensure_types, mark_of, new_id, put_typed,
};
pub use crate::access::user_rows::{
    audit_row, delete_user_row, put_audit_row, put_user_row, user_row, user_rows, user_rows_version,
};
#[cfg(feature = "async")]
pub use crate::asynchronous::CallThreads;
pub use crate::db::backup::{BackupSource, BackupTarget, CopyPart};
pub use crate::db::node::{begin_node, begin_node_anew, open_node};
pub use crate::feed::consumer::{advance, consumer_named};
pub use crate::kv::Lifetime;
pub use crate::store::{Features, ReducerSpec};
