//! The final program of docs/tutorial.md: `cargo run -p duramen --example tutorial -- DIR`.
#![allow(clippy::print_stdout, reason = "a program that shows what it does")]

use duramen::prelude::*;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
struct Product {
    #[key]
    name: String,
    cents: i64,
    stock: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(
    view(SalesByCity, key = city, value = cents, reduce = (Count, Sum, Max)),
    view(SalesByDay, key = (city, placed), value = cents, reduce = Sum),
    view(OrderByNumber, key = number, unique),
)]
struct Order {
    #[key(assigned)]
    id: u64,
    city: String,
    product: String,
    cents: i64,
    placed: Time,
    #[serde(default)]
    number: Option<String>,
}

fn main() -> Result<()> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "tutorial.duramen".to_owned());
    run(&Db::open(path)?)
}

/// Everything that the tutorial does, on any database.
pub(crate) fn run(db: &Db) -> Result<()> {
    stock(db)?;
    look(db)?;
    for (day, city, product) in [(20, "Oslo", "saw"), (20, "Bergen", "axe"), (21, "Oslo", "axe")] {
        let order = buy(db, city, product, &format!("2026-11-{day}T12:00:00Z"))?;
        println!("order {}: a {} for {}", order.id, order.product, order.city);
    }
    leaf(db)?;
    edit(db)?;
    sales(db)?;
    basket(db)?;
    photo(db)?;
    levels(db)
}

fn stock(db: &Db) -> Result<()> {
    db.put(&Product { name: "saw".into(), cents: 2_500, stock: 3 })?;
    db.put(&Product { name: "axe".into(), cents: 4_000, stock: 2 })?;
    Ok(())
}

fn look(db: &Db) -> Result<()> {
    let saw: Option<Product> = db.get("saw")?;
    println!("{saw:?}");

    for product in db.collection::<Product>().range("a".."b").iter()? {
        println!("{}", product?.name);
    }
    Ok(())
}

fn buy(db: &Db, city: &str, product: &str, at: &str) -> Result<Order> {
    let placed = Time::parse(at).ok_or_else(|| Error::invalid("no time"))?;
    db.transact(|tx| {
        let mut wanted: Product = tx.get(product)?.ok_or_else(|| Error::invalid("no such product"))?;
        wanted.stock = wanted.stock.checked_sub(1).ok_or_else(|| Error::invalid("sold out"))?;
        tx.put(&wanted)?;
        tx.push(Order {
            id: 0,
            city: city.into(),
            product: product.into(),
            cents: wanted.cents,
            placed,
            number: None,
        })
    })
}

fn leaf(db: &Db) -> Result<()> {
    let mut after = None;
    loop {
        let page = db.collection::<Order>().reverse().page(2, after.as_ref())?;
        println!("{} on this page", page.items.len());
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(()),
        }
    }
}

fn edit(db: &Db) -> Result<()> {
    let Some(read) = db.get_versioned::<Product>("saw")? else { return Ok(()) };
    let cheaper = Product { cents: 2_000, ..read.document };
    match db.replace(&cheaper, read.revision) {
        Ok(_) => println!("the saw is cheaper now"),
        Err(ReplaceError::Changed(now)) => println!("somebody was faster: {now:?}"),
        Err(ReplaceError::Failed(error)) => return Err(error),
    }
    Ok(())
}

fn sales(db: &Db) -> Result<()> {
    let (orders, cents, dearest) = db.view::<SalesByCity>().key("Oslo").reduce()?;
    println!("Oslo: {orders} orders, {cents} cents, the dearest {dearest:?}");

    for (city, (orders, cents, _)) in db.view::<SalesByCity>().group_by::<String>()? {
        println!("{city}: {orders} orders, {cents} cents");
    }

    let day = Time::parse("2026-11-21T00:00:00Z").ok_or_else(|| Error::invalid("no time"))?;
    let since = db.view::<SalesByDay>().prefix("Oslo").range(("Oslo", day)..);
    println!("Oslo since the 21st: {}", since.reduce()?);
    for order in since.docs()? {
        println!("{order:?}");
    }

    let number = Some("2026-0001".to_owned());
    db.modify::<Order>(1, |order| {
        order.number.clone_from(&number);
        Ok(())
    })?;
    let twice = db.modify::<Order>(2, |order| {
        order.number.clone_from(&number);
        Ok(())
    });
    println!("{}", twice.map_or_else(|error| error.to_string(), |_| "never".into()));
    Ok(())
}

fn basket(db: &Db) -> Result<()> {
    db.kv("baskets").put_with("ann", &vec!["saw", "axe"], Ttl::hours(2))?;
    let visits = db.kv("visits").increment("/saw", 1)?;
    println!("visit {visits}");

    let bought = db.transact(|tx| {
        let Some(products) = tx.kv("baskets").take::<Vec<String>>("ann")? else { return Ok(0) };
        for name in &products {
            tx.modify::<Product>(name.as_str(), |product| {
                product.stock = product.stock.saturating_sub(1);
                Ok(())
            })?;
        }
        Ok(products.len())
    })?;
    println!("{bought} bought, the basket is gone: {}", !db.kv("baskets").exists("ann")?);
    Ok(())
}

fn photo(db: &Db) -> Result<()> {
    let file = std::io::Cursor::new(vec![7; 3_000_000]);
    let photos = db.blobs("photos");
    photos.put("saw", file)?;

    let mut reader = photos.get("saw")?.ok_or_else(|| Error::invalid("no photo"))?;
    std::io::copy(&mut reader, &mut std::io::sink()).map_err(|error| Error::invalid(error.to_string()))?;
    println!("{} bytes", reader.len());

    let upload = photos.upload(std::io::Cursor::new(vec![8; 1_000]))?;
    db.transact(|tx| {
        tx.put(&Product { name: "hammer".into(), cents: 1_500, stock: 9 })?;
        tx.blobs("photos").attach("hammer", &upload)
    })
}

fn levels(db: &Db) -> Result<()> {
    let quick = db.at(Durability::Process);
    let mut last = None;
    for page in ["/", "/saw", "/axe"] {
        last = Some(quick.write(|tx| tx.kv("visits").increment(page, 1).map(drop))?);
    }
    if let Some(receipt) = last {
        receipt.wait(Durability::Disk)?;
        println!("commit {} and all before it are on the disk", receipt.seq());
    }
    println!("a commit waits for {}", db.durability_status().sync_call);
    Ok(())
}
