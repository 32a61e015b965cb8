//! D9: databases of each stored form are read, and written to.

use super::*;

fn put_golden(db: &Db) {
    (0..30).for_each(|id| drop(db.put(&order(id)).unwrap()));
    db.ensure(&Schema::new("sales").key(["id"]).sum(["cents"])).unwrap();
    for id in 0..10_i64 {
        db.documents("sales").put(doc! { "id": id, "city": "Oslo", "cents": id }).unwrap();
    }
    db.documents("sales").put(doc! { "id": 10, "city": "Oslo" }).unwrap();
}

fn verify_golden(db: &Db) {
    for id in 0..30 {
        assert_eq!(db.get::<Order>(id).unwrap(), Some(order(id)));
    }
    assert_eq!(db.view::<ByCity>().key("Oslo").reduce().unwrap(), (15, 1500));
    let sales = db.documents("sales").reduce(Span::all()).unwrap();
    assert_eq!((sales.sum("cents"), sales.nulls("cents")), (Some(45), Some(1)));
    sound(db);
}

/// Enough documents for leaves of several blocks.
fn put_many(db: &Db) {
    db.transact(|tx| (100..1500).try_for_each(|id| tx.put(&order(id)))).unwrap();
}

fn verify_many(db: &Db) {
    let ids: Vec<u64> = (100..1500).collect();
    for id in &ids {
        assert_eq!(db.get::<Order>(*id).unwrap(), Some(order(*id)));
    }
    assert_eq!(db.collection::<Order>().count().unwrap(), 1400);
    assert_eq!(db.view::<ByCity>().key("Oslo").reduce().unwrap(), (700, 70_000));
    sound(db);
}

// D9: the stored form of compressed pages.
#[test]
fn databases_with_compressed_pages_are_read() {
    golden("pages-1", 3, put_many, verify_many);
}

fn put_patched(db: &Db) {
    put_many(db);
    db.checkpoint_with(&mut || ()).unwrap();
    db.transact(|tx| {
        (100..1500).step_by(50).try_for_each(|id| tx.put(&Order { cents: 7, ..order(id) }).map(drop))?;
        (101..1500).step_by(200).try_for_each(|id| tx.delete::<Order>(id).map(drop))
    })
    .unwrap();
}

fn verify_patched(db: &Db) {
    for id in 100..1500 {
        let expected = match id % 200 {
            101 => None,
            _ if id % 50 == 0 => Some(Order { cents: 7, ..order(id) }),
            _ => Some(order(id)),
        };
        assert_eq!(db.get::<Order>(id).unwrap(), expected);
    }
    assert_eq!(db.collection::<Order>().count().unwrap(), 1393);
    sound(db);
}

// D9: the stored form of patches.
#[test]
fn databases_with_patches_are_read() {
    golden("patches-1", 7, put_patched, verify_patched);
}

// D9: the stored form of shapes and of documents that name them.
#[test]
fn databases_with_shapes_are_read() {
    golden("shapes-1", 1, put_golden, verify_golden);
}

/// Opens the databases of a format, and writes to them. The closed one has these features.
fn golden(name: &str, wanted: u64, put: fn(&Db), verify: fn(&Db)) {
    for state in ["closed", "killed"] {
        let golden = Path::new(GOLDEN).join(name).join(state);
        if std::env::var("DURAMEN_WRITE_GOLDEN").is_ok() && !golden.exists() {
            let disk = MemDisk::new(1);
            let db = open_db(&disk, false);
            put(&db);
            if state == "closed" {
                db.close().unwrap();
            } else {
                db.checkpoint_with(&mut || ()).unwrap();
                put(&db);
            }
            let disk = disk.deep_clone();
            drop(db);
            store(&disk, &golden);
        }
        let disk = load(&golden);
        if state == "closed" {
            assert_eq!(features(&disk), [wanted; 2], "{name}");
        }
        verify(&open_db(&disk, true));
        let db = open_db(&disk, false);
        verify(&db);
        put(&db);
        verify(&db);
    }
}
