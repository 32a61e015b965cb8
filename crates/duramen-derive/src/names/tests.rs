//! Names that are on disk: the rules for them must never change.
#![allow(clippy::unwrap_used)]

use super::*;
use proc_macro2::Span;

// A collection's name is stored in its database, so its derivation from the struct's name must never change.
#[test]
fn names_of_structs_become_snake_case() {
    for (name, expected) in [
        ("Order", "order"),
        ("SalesOrder", "sales_order"),
        ("HTTPRequest", "http_request"),
        ("Order2", "order2"),
        ("Order2Line", "order2_line"),
        ("Already_Split", "already_split"),
        ("X", "x"),
        ("ÄußereForm", "äußere_form"),
    ] {
        assert_eq!(snake_case(name), expected, "{name}");
    }
}

// A key column must have serde's name of the field; otherwise tools would look for a field that does not
// exist.
#[test]
fn renamed_fields_are_called_as_serde_writes_them() {
    let rule = |rule: &str| LitStr::new(rule, Span::call_site());
    for (rule_name, expected) in [
        ("lowercase", "sales_tax2"),
        ("snake_case", "sales_tax2"),
        ("UPPERCASE", "SALES_TAX2"),
        ("SCREAMING_SNAKE_CASE", "SALES_TAX2"),
        ("PascalCase", "SalesTax2"),
        ("camelCase", "salesTax2"),
        ("kebab-case", "sales-tax2"),
        ("SCREAMING-KEBAB-CASE", "SALES-TAX2"),
    ] {
        assert_eq!(renamed("sales_tax2", &rule(rule_name)).unwrap(), expected, "{rule_name}");
    }
    assert!(renamed("a", &rule("Capital")).is_err());
}

// The same for the names of variants, which serde splits at every capital.
#[test]
fn renamed_variants_are_called_as_serde_writes_them() {
    for (rule, expected) in [
        ("lowercase", "inprogress2"),
        ("snake_case", "in_progress2"),
        ("UPPERCASE", "INPROGRESS2"),
        ("SCREAMING_SNAKE_CASE", "IN_PROGRESS2"),
        ("PascalCase", "InProgress2"),
        ("camelCase", "inProgress2"),
        ("kebab-case", "in-progress2"),
        ("SCREAMING-KEBAB-CASE", "IN-PROGRESS2"),
    ] {
        let name = renamed_variant("InProgress2", &LitStr::new(rule, Span::call_site()));
        assert_eq!(name.unwrap(), expected, "{rule}");
    }
}
