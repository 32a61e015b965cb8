//! What a shop keeps: categories, products, customers, orders, carts, reviews; and what is asked of it.
//!
//! Owns the shapes only. Who makes them is `generator`, who stores them `shops`.

/// Numbers that name one row of a kind, counted from 1 as SQL does.
macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident),+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl $name {
            /// From the number that a database holds.
            ///
            /// # Errors
            /// A number that no row can have.
            #[cfg(any(feature = "postgres", feature = "sqlite"))]
            pub fn read(number: i64) -> crate::engine::Result<$name> {
                Ok($name(u32::try_from(number)?))
            }
        }
    )+};
}

ids!(
    /// Of a category.
    CategoryId,
    /// Of a product.
    ProductId,
    /// Of a customer.
    CustomerId,
    /// Of an order.
    OrderId,
    /// Of a cart.
    CartId
);

/// Those of rows that are made before the run.
macro_rules! numbered {
    ($($name:ident),+) => {$(
        impl $name {
            /// Of the row with so many before it.
            pub fn of(index: usize) -> $name {
                $name(u32::try_from(index + 1).expect("data sets have fewer than 2^32 rows"))
            }
        }
    )+};
}

numbered!(CategoryId, ProductId, CustomerId, OrderId);

impl ProductId {
    /// How many products come before it.
    pub fn index(self) -> usize {
        self.0 as usize - 1
    }
}

/// What is sold. No two have one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Product {
    /// By which it is found.
    pub name: String,
    /// Distinct, in order.
    pub categories: Vec<CategoryId>,
}

/// Who buys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Customer {
    /// Name, mail, street, city, region, country, postal code, telephone.
    pub fields: [String; Customer::FIELDS.len()],
}

impl Customer {
    /// What the fields are called.
    pub const FIELDS: [&'static str; 8] =
        ["name", "email", "address", "city", "region", "country", "postal_code", "phone"];
}

/// What was bought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// By whom.
    pub customer: CustomerId,
    /// What; a product may be there twice.
    pub products: Vec<ProductId>,
}

/// What a customer thinks of a product: at most one for each pair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Review {
    /// Who.
    pub customer: CustomerId,
    /// Of what.
    pub product: ProductId,
    /// 1 to 5.
    pub rating: u8,
    /// Some have words.
    pub text: Option<String>,
}

/// All ratings of one product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rating {
    /// Of the ratings.
    pub sum: u64,
    /// How many.
    pub count: u64,
}

/// One row, as it is loaded before a run and shown after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// A category's name.
    Category(CategoryId, String),
    /// A product.
    Product(ProductId, Product),
    /// A customer.
    Customer(CustomerId, Customer),
    /// An order.
    Order(OrderId, Order),
    /// What lies in a cart. Never loaded.
    Cart(CartId, Vec<ProductId>),
    /// A review.
    Review(Review),
    /// What the shop answers for a product's ratings. Never loaded.
    Rating(ProductId, Rating),
    /// How many of a product are left; in the mix `hot` only.
    Stock(ProductId, i64),
}

/// The answer to LookupProduct and FindProduct.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// Which.
    pub id: ProductId,
    /// What is known of it.
    pub product: Product,
    /// What is thought of it.
    pub rating: Rating,
}

/// What a shopper may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// A product with its ratings, by id.
    LookupProduct,
    /// The same by name.
    FindProduct,
    /// An empty cart.
    CreateCart,
    /// One more product in it.
    AddProductToCart,
    /// The cart becomes an order, in one transaction.
    Checkout,
    /// A review is written, or written over.
    RateProduct,
}

impl Operation {
    /// All, with their names.
    pub const ALL: [(Operation, &'static str); 6] = [
        (Operation::LookupProduct, "LookupProduct"),
        (Operation::FindProduct, "FindProduct"),
        (Operation::CreateCart, "CreateCart"),
        (Operation::AddProductToCart, "AddProductToCart"),
        (Operation::Checkout, "Checkout"),
        (Operation::RateProduct, "RateProduct"),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        Operation::ALL[self as usize].1
    }

    /// Whether it changes anything.
    pub fn writes(self) -> bool {
        !matches!(self, Operation::LookupProduct | Operation::FindProduct)
    }
}
