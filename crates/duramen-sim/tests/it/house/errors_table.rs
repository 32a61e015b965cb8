//! The table of error codes in docs/durability.md, compared in full with duramen-engine's codes.

use duramen_engine::Code;

const BEGIN: &str = "<!-- errors: begin -->\n";
const END: &str = "<!-- errors: end -->";

/// The rows, with a header.
fn table() -> String {
    let row = |code: &Code| format!("| {code} | `{code:?}` | `{:?}` | {} |\n", code.kind(), code.summary());
    let rows: String = Code::ALL.iter().map(row).collect();
    format!("| code | name | kind | meaning |\n|---|---|---|---|\n{rows}")
}

pub(crate) fn violations(document: &str) -> Vec<String> {
    let wanted = table();
    let found = document.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END)).map(|(found, _)| found);
    if found == Some(wanted.as_str()) {
        return Vec::new();
    }
    vec![format!("docs/durability.md: the table of errors differs from the codes; put there:\n{wanted}")]
}

#[test]
fn a_table_of_errors_that_differs_is_found() {
    let right = format!("# T\n{BEGIN}{}{END}\n", table());
    assert_eq!(violations(&right), Vec::<String>::new());
    assert_eq!(violations(&right.replace("E0101", "E0102")).len(), 1);
    assert_eq!(violations("# no table\n").len(), 1);
}
