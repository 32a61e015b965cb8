//! Encodes rows as bytes: numbers little-endian, with a length before texts and lists. Keys are big-endian
//! numbers, so that their order is the order of bytes.

use crate::commerce::model::{CategoryId, CustomerId, Order, Product, ProductId, Rating};

/// A key of one number.
pub(super) fn key(id: u32) -> [u8; 4] {
    id.to_be_bytes()
}

/// A key of two numbers, ordered by the first.
pub(super) fn pair(first: u32, second: u32) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&first.to_be_bytes());
    bytes[4..].copy_from_slice(&second.to_be_bytes());
    bytes
}

/// The numbers of such a key.
pub(super) fn read_pair(bytes: &[u8]) -> Option<(u32, u32)> {
    let (first, second) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_be_bytes(*first), read_key(second)?))
}

/// The number of a key.
pub(super) fn read_key(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.try_into().ok()?))
}

/// A row that is being written.
#[derive(Default)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    /// Appends a number.
    pub(super) fn number(mut self, number: u32) -> Writer {
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    /// Appends a text.
    pub(super) fn text(self, text: &str) -> Writer {
        let mut longer = self.number(length(text.len()));
        longer.0.extend_from_slice(text.as_bytes());
        longer
    }

    /// Appends a list of numbers.
    pub(super) fn numbers(self, numbers: impl ExactSizeIterator<Item = u32>) -> Writer {
        let counted = self.number(length(numbers.len()));
        numbers.fold(counted, Writer::number)
    }

    /// The bytes.
    pub(super) fn bytes(self) -> Vec<u8> {
        self.0
    }
}

fn length(count: usize) -> u32 {
    u32::try_from(count).expect("rows are far shorter than 4 GiB")
}

/// A row that is being read.
pub(super) struct Reader<'a>(pub &'a [u8]);

impl Reader<'_> {
    /// The next number.
    pub(super) fn number(&mut self) -> Option<u32> {
        let (number, rest) = self.0.split_first_chunk::<4>()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*number))
    }

    /// The next text.
    pub(super) fn text(&mut self) -> Option<String> {
        let count = self.number()? as usize;
        let (text, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        String::from_utf8(text.to_vec()).ok()
    }

    /// The next list of numbers.
    pub(super) fn numbers<T>(&mut self, of: impl Fn(u32) -> T) -> Option<Vec<T>> {
        (0..self.number()?).map(|_| self.number().map(&of)).collect()
    }
}

/// A product as bytes.
pub(super) fn product(product: &Product) -> Vec<u8> {
    Writer::default().text(&product.name).numbers(product.categories.iter().map(|id| id.0)).bytes()
}

/// Decodes a product.
pub(super) fn read_product(bytes: &[u8]) -> Option<Product> {
    let mut row = Reader(bytes);
    Some(Product { name: row.text()?, categories: row.numbers(CategoryId)? })
}

/// An order as bytes.
pub(super) fn order(customer: CustomerId, products: &[ProductId]) -> Vec<u8> {
    Writer::default().number(customer.0).numbers(products.iter().map(|id| id.0)).bytes()
}

/// Decodes an order.
pub(super) fn read_order(bytes: &[u8]) -> Option<Order> {
    let mut row = Reader(bytes);
    Some(Order { customer: CustomerId(row.number()?), products: row.numbers(ProductId)? })
}

/// The contents of a cart as bytes.
pub(super) fn cart(products: &[ProductId]) -> Vec<u8> {
    Writer::default().numbers(products.iter().map(|id| id.0)).bytes()
}

/// Decodes the contents of a cart.
pub(super) fn read_cart(bytes: &[u8]) -> Option<Vec<ProductId>> {
    Reader(bytes).numbers(ProductId)
}

/// A review as bytes: the rating, and text if there is any.
pub(super) fn review(rating: u8, text: Option<&str>) -> Vec<u8> {
    let row = Writer::default().number(u32::from(rating));
    text.map_or(row.0.clone(), |text| row.text(text).bytes())
}

/// Decodes rating and text of a review.
pub(super) fn read_review(bytes: &[u8]) -> Option<(u8, Option<String>)> {
    let mut row = Reader(bytes);
    let rating = u8::try_from(row.number()?).ok()?;
    let text = if row.0.is_empty() { None } else { Some(row.text()?) };
    Some((rating, text))
}

/// Ratings as bytes.
pub(super) fn rating(rating: Rating) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&rating.sum.to_le_bytes());
    bytes[8..].copy_from_slice(&rating.count.to_le_bytes());
    bytes
}

/// Decodes ratings.
pub(super) fn read_rating(bytes: &[u8]) -> Option<Rating> {
    let (sum, count) = bytes.split_first_chunk::<8>()?;
    Some(Rating { sum: u64::from_le_bytes(*sum), count: u64::from_le_bytes(count.try_into().ok()?) })
}
