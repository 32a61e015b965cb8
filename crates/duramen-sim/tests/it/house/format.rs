//! docs/format.md against the code: the constants it names, the magic strings, and the byte tables, whose
//! fields must be contiguous and at the offsets that the encoders use.
//!
//! A constant is written `NAME = value` between backticks, with the value as in the source; a variant of an
//! enumeration likewise. The size of a table is in its heading: `### Superblock (512 bytes)`.

use super::source::Source;

/// Where the constants are.
const ENGINE: &str = "crates/duramen-engine/src/";

/// The constants that the document must name, so that the check cannot become empty.
const NAMED: &[&str] = &[
    "BIG_BIT",
    "DELETE",
    "DROPPED",
    "FORMAT_VERSION",
    "INNER_FLAG",
    "Inner",
    "POINTER_BYTES",
    "Leaf",
    "MAGIC",
    "NO_REDUCTION",
    "PAGE_HEADER_BYTES",
    "PAGE_MAGIC",
    "PAGE_WORDS",
    "PUT_BIG",
    "RECORD_VERSION",
    "ROW_VERSION",
    "SUPERBLOCK_BYTES",
    "SUPERBLOCK_OFFSETS",
    "UNKNOWN_REDUCTION",
];

/// A field of a table: its offset, length and name.
#[derive(Debug, PartialEq, Eq)]
struct Field {
    offset: usize,
    bytes: usize,
    name: String,
}

/// The constants and magic strings.
pub(crate) fn constant_violations(document: &str, sources: &[Source]) -> Vec<String> {
    let engine: Vec<&Source> =
        sources.iter().filter(|source| source.path.starts_with(ENGINE) && !source.is_test()).collect();
    let tokens = tokens(document);
    let mut found = Vec::new();
    for (name, value) in &tokens {
        let values: Vec<String> = engine.iter().flat_map(|source| values_of(source, name)).collect();
        if !values.contains(value) {
            let there = if values.is_empty() { "no such constant".to_owned() } else { values.join(" or ") };
            found.push(format!("docs/format.md: `{name} = {value}`, the code has {there}"));
        }
    }
    for name in NAMED.iter().filter(|name| tokens.iter().all(|(known, _)| known != *name)) {
        found.push(format!("docs/format.md: names no `{name} = ...`"));
    }
    for magic in engine.iter().flat_map(|source| magics(source)) {
        if !document.contains(&format!("`{magic}`")) && !document.contains(&format!("b\"{magic}\"`")) {
            found.push(format!("docs/format.md: does not name the magic `{magic}`"));
        }
    }
    found
}

/// Each `NAME = value` between backticks.
fn tokens(document: &str) -> Vec<(String, String)> {
    let quoted = document.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    let pairs = quoted.filter_map(|text| text.split_once(" = "));
    let is_name = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_uppercase())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && name != "NAME"
    };
    pairs.filter(|(name, _)| is_name(name)).map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// The values in `const NAME: T = value;` and `Name = value,` of a source.
fn values_of(source: &Source, name: &str) -> Vec<String> {
    let mut values = Vec::new();
    for (start, _) in source.code.match_indices(&format!("const {name}:")) {
        let statement = source.text[start..].split(";\n").next().unwrap_or_default();
        values.extend(statement.split_once(" = ").map(|(_, value)| plain(value)));
    }
    for line in source.code.lines() {
        let variant = line.trim().strip_prefix(name).and_then(|rest| rest.strip_prefix(" = "));
        values.extend(variant.and_then(|rest| rest.strip_suffix(',')).map(plain));
    }
    values
}

/// A value as the document writes it: a byte string without its surroundings, a number without `_`.
fn plain(value: &str) -> String {
    match value.find("b\"").zip(value.rfind('"')) {
        Some((from, to)) if from + 1 < to => value[from..=to].to_owned(),
        _ => value.trim().replace('_', if value.contains("::") { "_" } else { "" }),
    }
}

/// The bytes of every constant whose name ends in MAGIC.
fn magics(source: &Source) -> Vec<String> {
    let mut found = Vec::new();
    for (start, _) in source.code.match_indices("MAGIC: ") {
        let statement = source.text[start..].split(";\n").next().unwrap_or_default();
        found.extend(statement.split('"').nth(1).map(str::to_owned));
    }
    found
}

/// Tables whose fields overlap, leave a gap, or do not end at the size in their heading.
pub(crate) fn table_violations(document: &str) -> Vec<String> {
    let mut found = Vec::new();
    for section in document.split("\n### ").skip(1) {
        let heading = section.lines().next().unwrap_or_default();
        let fields = fields(section);
        let mut end = 0;
        for field in &fields {
            if field.offset != end {
                let (name, offset) = (&field.name, field.offset);
                found.push(format!(
                    "docs/format.md: {heading}: `{name}` at {offset}, the one before ends at {end}"
                ));
            }
            end = field.offset + field.bytes;
        }
        let size = heading.split_once('(').and_then(|(_, rest)| rest.split_once(" bytes"));
        if let Some((size, _)) = size
            && size.parse() != Ok(end)
        {
            found.push(format!("docs/format.md: {heading}: its fields end at {end}"));
        }
    }
    found
}

/// The fields of the first table in a section that begins with a column of offsets, up to the first field
/// whose offset or length is not a number.
fn fields(section: &str) -> Vec<Field> {
    let rows = section.lines().skip_while(|line| !line.starts_with("| offset")).skip(2);
    let rows = rows.take_while(|line| line.starts_with('|'));
    let read = |row: &str| {
        let mut cells = row.trim_matches('|').split('|').map(str::trim);
        let (offset, bytes) = (cells.next()?.parse().ok()?, cells.next()?.parse().ok()?);
        Some(Field { offset, bytes, name: cells.next()?.to_owned() })
    };
    rows.map_while(read).collect()
}

/// Differences between a table and an encoder's output: `expected` are the bytes of each field in `encoded`.
fn encoded_violations(
    document: &str,
    heading: &str,
    encoded: &[u8],
    expected: &[(&str, &[u8])],
) -> Vec<String> {
    let section = document.split("\n### ").find(|section| section.starts_with(heading)).unwrap_or_default();
    let fields = fields(section);
    let mut found = Vec::new();
    for (name, bytes) in expected {
        let Some(field) = fields.iter().find(|field| field.name == *name) else {
            found.push(format!("docs/format.md: {heading}: no field `{name}`"));
            continue;
        };
        let there = encoded.get(field.offset..field.offset + field.bytes);
        if there != Some(bytes) {
            found.push(format!(
                "docs/format.md: {heading}: `{name}` is {bytes:02x?}, at its place is {there:02x?}"
            ));
        }
    }
    found
}

/// Checks the tables of structures that the engine encodes by public functions.
pub(crate) fn layout_violations(document: &str) -> Vec<String> {
    let mut found = superblock_violations(document);
    found.extend(page_violations(document));
    found
}

fn superblock_violations(document: &str) -> Vec<String> {
    use duramen_disk::SyncMethod;
    use duramen_engine::data_file::{Measured, PagePointer, Superblock, SyncChoice};
    use duramen_engine::ids::{CommitSeq, DatabaseId, Generation, LogId, TreeId};
    use duramen_engine::wal::LogPosition;
    use duramen_engine::{Features, Geometry};

    let at = |block| PagePointer { block, block_count: 2, raw_bytes: 3, flags: 1, tag: [0x5a; 16] };
    let encode = |pointer: PagePointer| {
        let mut bytes = Vec::new();
        pointer.encode(&mut bytes);
        bytes
    };
    let replay =
        LogPosition { offset: 0x1122, seq: CommitSeq(9), checksum: u128::MAX / 5, ..LogPosition::default() };
    let superblock = Superblock {
        write_features: 0x0a0b,
        features: Features::SHAPES,
        database: DatabaseId(u128::MAX / 3),
        log: LogId(u128::MAX / 11),
        generation: Generation(0x0102_0304),
        replay,
        marked: CommitSeq(0x0506),
        roots: Some(at(41)),
        space: Some(at(42)),
        hot: Some(at(43)),
        end_block: 0x0708,
        next_tree: TreeId(0x090a),
        geometry: Geometry::default(),
        clean: true,
        sync: Some(SyncChoice {
            method: SyncMethod::DirectDsync,
            measured: Measured { fdatasync_us: 0x0b0c, dsync_us: 0x0d0e, direct_us: 0x0f10 },
        }),
    };
    let measured = [0x0b0c_u32, 0x0d0e, 0x0f10].map(u32::to_le_bytes).concat();
    let geometry = superblock.geometry;
    let size = |bytes: usize| u32::try_from(bytes).unwrap().to_le_bytes();
    encoded_violations(
        document,
        "Superblock",
        &superblock.encode(),
        &[
            ("magic", b"DURAMEN\x1a"),
            ("format", &[1, 0, 0, 0]),
            ("compatible features", &[0; 8]),
            ("read-only compatible features", &superblock.write_features.to_le_bytes()),
            ("incompatible features", &superblock.features.bits().to_le_bytes()),
            ("database", &superblock.database.0.to_le_bytes()),
            ("log", &superblock.log.0.to_le_bytes()),
            ("generation", &superblock.generation.0.to_le_bytes()),
            ("replay", &replay.encode()),
            ("marked", &superblock.marked.0.to_le_bytes()),
            ("has roots", &[1]),
            ("roots", &encode(at(41))),
            ("has space", &[1]),
            ("space", &encode(at(42))),
            ("has hot", &[1]),
            ("hot", &encode(at(43))),
            ("end block", &superblock.end_block.to_le_bytes()),
            ("next tree", &superblock.next_tree.0.to_le_bytes()),
            ("block bytes", &size(geometry.block_bytes)),
            ("leaf bytes max", &size(geometry.leaf_bytes_max)),
            ("inner bytes max", &size(geometry.inner_bytes_max)),
            ("big value bytes", &size(geometry.big_value_bytes)),
            ("big value extent bytes", &size(geometry.big_value_extent_bytes)),
            ("segment bytes min", &geometry.segment_bytes_min.to_le_bytes()),
            ("segment bytes max", &geometry.segment_bytes_max.to_le_bytes()),
            ("clean", &[1]),
            ("sync method", &[3]),
            ("measured", &measured),
            ("reserved", &[0; 187]),
        ],
    )
}

fn page_violations(document: &str) -> Vec<String> {
    use duramen_engine::data_file::{Page, PageKind, PagePointer};

    let page = Page::build(PageKind::SpaceMap, 0x0102, 5, |out| out.extend_from_slice(b"bytes"));
    let header: &[(&str, &[u8])] = &[
        ("magic", b"DPAG"),
        ("kind", &[5]),
        ("codec", &[0]),
        ("key id", &[0; 2]),
        ("generation", &0x0102_u64.to_le_bytes()),
        ("nonce", &[0; 16]),
        ("payload bytes", &5_u32.to_le_bytes()),
        ("stored bytes", &[0; 4]),
        ("tree", &[0; 4]),
        ("own checksum", &[0; 4]),
    ];
    let mut found = encoded_violations(document, "Page header", page.bytes(), header);
    let pointer = PagePointer { block: 0x0708, block_count: 2, raw_bytes: 3, flags: 1, tag: [0x5a; 16] };
    let mut encoded = Vec::new();
    pointer.encode(&mut encoded);
    let fields: &[(&str, &[u8])] = &[
        ("block", &pointer.block.to_le_bytes()),
        ("block count", &pointer.block_count.to_le_bytes()),
        ("page bytes", &pointer.raw_bytes.to_le_bytes()),
        ("flags", &pointer.flags.to_le_bytes()),
        ("tag", &pointer.tag),
    ];
    found.extend(encoded_violations(document, "Page pointer", &encoded, fields));
    found
}

#[test]
fn a_constant_that_differs_is_found() {
    let code =
        "const A_BYTES: usize = 1_024;\nconst MAGIC: [u8; 4] = *b\"DuXx\";\nenum Kind {\n    Leaf = 1,\n}\n";
    let sources = [Source::new("crates/duramen-engine/src/planted.rs", code)];
    let check = |document: &str, wrong: &[&str]| {
        let found = constant_violations(document, &sources);
        let found: Vec<&String> = found.iter().filter(|text| !text.contains("names no")).collect();
        assert_eq!(found.len(), wrong.len(), "{document}: {found:?}");
        for text in wrong {
            assert!(found.iter().any(|found| found.contains(text)), "{document}: {found:?}");
        }
    };
    check("`A_BYTES = 1024`, `MAGIC = b\"DuXx\"`, `Leaf = 1`", &[]);
    check("`A_BYTES = 1025` and `DuXx`", &["the code has 1024"]);
    check("`Leaf = 2` and `DuXx`", &["the code has 1"]);
    check("`GONE_BYTES = 3` and `DuXx`", &["no such constant"]);
    check("`A_BYTES = 1024`", &["the magic `DuXx`"]);
    assert!(constant_violations("", &sources).iter().any(|text| text.contains("names no `MAGIC")));
}

#[test]
fn a_table_with_a_gap_or_a_wrong_end_is_found() {
    let table = |first: &str, size: &str| {
        format!(
            "# T\n\n### Head ({size} bytes)\n\n| offset | bytes | field |\n|---|---|---|\n| 0 | {first} | a |\n| 4 | 4 | b |\n| 8 | `n` | c |\n"
        )
    };
    assert_eq!(table_violations(&table("4", "8")), Vec::<String>::new());
    assert_eq!(table_violations(&table("3", "8")).len(), 1);
    assert_eq!(table_violations(&table("4", "9")).len(), 1);
    let encoded = [1, 0, 0, 0, 2, 0, 0, 0];
    let check = |name, bytes: &[u8], count: usize| {
        let found = encoded_violations(&table("4", "8"), "Head", &encoded, &[(name, bytes)]);
        assert_eq!(found.len(), count, "{name}: {found:?}");
    };
    check("b", &[2, 0, 0, 0], 0);
    check("b", &[1, 0, 0, 0], 1);
    check("c", &[], 1);
}
