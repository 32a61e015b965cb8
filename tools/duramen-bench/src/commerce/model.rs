//! The data of a shop: categories, products, customers, orders, carts, reviews; and its operations.
//!
//! Owns the types only. `generator` makes their values; `shops` stores them.

/// Ids of the rows of a kind, counted from 1 as SQL does.
macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident),+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(crate) struct $name(pub(crate) u32);

        impl $name {
            /// From the number in a database.
            ///
            /// # Errors
            /// `Err` for a number that no row can have.
            #[cfg(any(feature = "postgres", feature = "sqlite"))]
            pub(crate) fn read(number: i64) -> crate::engine::Result<$name> {
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

/// Ids of rows that are made before the run.
macro_rules! numbered {
    ($($name:ident),+) => {$(
        impl $name {
            /// The id of the row at an index.
            pub(crate) fn of(index: usize) -> $name {
                $name(u32::try_from(index + 1).expect("data sets have fewer than 2^32 rows"))
            }
        }
    )+};
}

numbered!(CategoryId, ProductId, CustomerId, OrderId);

impl ProductId {
    /// The index of the row.
    pub(super) fn index(self) -> usize {
        self.0 as usize - 1
    }
}

/// A product. Names are unique.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Product {
    /// Its name, a search key.
    pub name: String,
    /// Distinct, in order.
    pub categories: Vec<CategoryId>,
}

/// A customer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Customer {
    /// Name, mail, street, city, region, country, postal code, telephone.
    pub fields: [String; Customer::FIELDS.len()],
}

impl Customer {
    /// The names of the fields.
    pub(super) const FIELDS: [&'static str; 8] =
        ["name", "email", "address", "city", "region", "country", "postal_code", "phone"];
}

/// An order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Order {
    /// The customer who placed it.
    pub customer: CustomerId,
    /// The products; one may occur twice.
    pub products: Vec<ProductId>,
}

/// A review of a product by a customer: at most one for each pair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Review {
    /// The customer.
    pub customer: CustomerId,
    /// The product.
    pub product: ProductId,
    /// 1 to 5.
    pub rating: u8,
    /// The text, if there is one.
    pub text: Option<String>,
}

/// All ratings of one product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Rating {
    /// The sum of the ratings.
    pub sum: u64,
    /// Their number.
    pub count: u64,
}

/// One row, as it is loaded before a run and read after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Item {
    /// A category's name.
    Category(CategoryId, String),
    /// A product.
    Product(ProductId, Product),
    /// A customer.
    Customer(CustomerId, Customer),
    /// An order.
    Order(OrderId, Order),
    /// The contents of a cart. Never loaded.
    Cart(CartId, Vec<ProductId>),
    /// A review.
    Review(Review),
    /// The shop's answer for a product's ratings. Never loaded.
    Rating(ProductId, Rating),
    /// The remaining stock of a product; in the mix `hot` only.
    Stock(ProductId, i64),
}

/// The answer to LookupProduct and FindProduct.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Listing {
    /// The product's id.
    pub id: ProductId,
    /// The product.
    pub product: Product,
    /// Its ratings.
    pub rating: Rating,
}

/// The operations of shoppers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    /// A product with its ratings, by id.
    LookupProduct,
    /// The same, by name.
    FindProduct,
    /// Creates an empty cart.
    CreateCart,
    /// Adds a product to a cart.
    AddProductToCart,
    /// Makes the cart an order, in one transaction.
    Checkout,
    /// Writes or overwrites a review.
    RateProduct,
}

impl Operation {
    /// All, with their names.
    pub(super) const ALL: [(Operation, &'static str); 6] = [
        (Operation::LookupProduct, "LookupProduct"),
        (Operation::FindProduct, "FindProduct"),
        (Operation::CreateCart, "CreateCart"),
        (Operation::AddProductToCart, "AddProductToCart"),
        (Operation::Checkout, "Checkout"),
        (Operation::RateProduct, "RateProduct"),
    ];

    /// Its name.
    pub(super) fn name(self) -> &'static str {
        Operation::ALL[self as usize].1
    }

    /// Whether it writes.
    pub(super) fn writes(self) -> bool {
        !matches!(self, Operation::LookupProduct | Operation::FindProduct)
    }
}
