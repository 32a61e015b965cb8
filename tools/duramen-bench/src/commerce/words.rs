//! Words for names, addresses and reviews.

use duramen_disk::memory::Random;

/// Adjectives for the look of products.
pub(super) const LOOKS: &[&str] =
    &["Rustic", "Sleek", "Modern", "Handmade", "Compact", "Royal", "Plain", "Folding"];
/// Materials of products.
pub(super) const MATERIALS: &[&str] =
    &["Granite", "Steel", "Cotton", "Maple", "Copper", "Leather", "Glass", "Wool"];
/// Kinds of products.
pub(super) const THINGS: &[&str] =
    &["Chair", "Lamp", "Table", "Kettle", "Shirt", "Knife", "Clock", "Bowl", "Blanket"];
/// First names.
pub(super) const FIRST_NAMES: &[&str] =
    &["Ada", "Boris", "Chen", "Dora", "Emil", "Fatima", "Goran", "Hana", "Ivan", "Jana"];
/// Last names.
pub(super) const LAST_NAMES: &[&str] = &[
    "Andersen", "Bauer", "Costa", "Dimitrov", "Eriksson", "Fischer", "Garcia", "Horvat", "Ivanova", "Jansen",
];
/// Kinds of street.
pub(super) const STREETS: &[&str] = &["Street", "Avenue", "Road", "Lane", "Square", "Boulevard"];
/// First halves of cities.
pub(super) const PLACES: &[&str] = &["North", "South", "East", "West", "New", "Old", "Upper", "Lower"];
/// Second halves of cities.
pub(super) const CITIES: &[&str] = &["Haven", "Bridge", "Field", "Harbour", "Mill", "Castle", "Ford", "Wood"];
/// Regions.
pub(super) const REGIONS: &[&str] =
    &["Bavaria", "Tuscany", "Scania", "Normandy", "Moravia", "Silesia", "Zeeland"];
/// Countries.
pub(super) const COUNTRIES: &[&str] =
    &["Germany", "Italy", "Sweden", "France", "Czechia", "Poland", "Netherlands"];

const LOREM: &[&str] = &[
    "lorem",
    "ipsum",
    "dolor",
    "sit",
    "amet",
    "consectetur",
    "adipiscing",
    "elit",
    "sed",
    "do",
    "eiusmod",
    "tempor",
    "incididunt",
    "ut",
    "labore",
    "et",
    "dolore",
    "magna",
    "aliqua",
    "enim",
    "minim",
    "veniam",
    "quis",
    "nostrud",
];

/// The word at an index, modulo their number.
pub(super) fn of(words: &'static [&'static str], index: usize) -> &'static str {
    words[index % words.len()]
}

/// One to four meaningless paragraphs.
pub(super) fn paragraphs(random: &mut Random) -> String {
    let count = random.between(1, 5);
    let paragraph = |random: &mut Random| {
        let words: Vec<&str> = (0..random.between(40, 90)).map(|_| *random.pick(LOREM)).collect();
        words.join(" ")
    };
    (0..count).map(|_| paragraph(random)).collect::<Vec<_>>().join("\n")
}
