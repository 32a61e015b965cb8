//! Names that are in files: they must never come out otherwise.
#![allow(clippy::unwrap_used)]

use super::*;
use proc_macro2::Span;

// A collection's name is in every database it is stored in: how it is made of the struct's must never change.
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

// A key column must be called what serde calls the field, or tools would look for a field that is not there.
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
