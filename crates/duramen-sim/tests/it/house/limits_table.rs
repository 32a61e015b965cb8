//! The table of limits in docs/durability.md, compared in full with duramen-engine's `limits.rs`.

use std::collections::BTreeMap;

use super::source::Source;

const BEGIN: &str = "<!-- limits: begin -->\n";
const END: &str = "<!-- limits: end -->";

/// A constant of `limits.rs`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    pub(crate) name: String,
    pub(crate) value: u128,
    about: String,
}

/// The public integer constants, in order.
pub(crate) fn limits(source: &Source) -> Result<Vec<Limit>, String> {
    let mut known = BTreeMap::new();
    let mut found = Vec::new();
    for (start, _) in source.code.match_indices("pub const ") {
        let statement = source.code[start..].split(';').next().unwrap_or_default();
        let Some((head, expression)) = statement["pub const ".len()..].split_once('=') else { continue };
        let Some((name, kind)) = head.split_once(':').map(|(name, kind)| (name.trim(), kind.trim())) else {
            continue;
        };
        if !matches!(kind, "usize" | "u128" | "u64" | "u32" | "u16" | "u8") {
            continue;
        }
        let value = evaluate(expression, &known)
            .map_err(|why| format!("{}: {name} = {}: {why}", source.place(start), expression.trim()))?;
        known.insert(name.to_owned(), value);
        found.push(Limit { name: name.to_owned(), value, about: doc_comment(&source.text[..start]) });
    }
    Ok(found)
}

/// The `///` lines directly before an offset, as one line without links.
fn doc_comment(before: &str) -> String {
    let mut lines: Vec<&str> =
        before.lines().rev().map_while(|line| line.trim().strip_prefix("///")).collect();
    lines.reverse();
    let text = lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ");
    text.replace("[`", "`").replace("`]", "`").replace('|', "\\|")
}

/// The rows, with a header.
pub(crate) fn table(limits: &[Limit]) -> String {
    let rows =
        limits.iter().map(|limit| format!("| `{}` | {} | {} |\n", limit.name, amount(limit), limit.about));
    format!("| limit | value | about |\n|---|---:|---|\n{}", rows.collect::<String>())
}

/// `1,048,576 (1 MiB)`, `100 ms`, `8`.
fn amount(limit: &Limit) -> String {
    let grouped = grouped(limit.value);
    if limit.name.contains("_MS") {
        return format!("{grouped} ms");
    }
    let units = [("GiB", 1u128 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let unit = units.into_iter().find(|(_, bytes)| limit.value > 0 && limit.value.is_multiple_of(*bytes));
    match unit {
        Some((unit, bytes)) if limit.name.contains("_BYTES") => {
            format!("{grouped} ({} {unit})", limit.value / bytes)
        }
        _ => grouped,
    }
}

fn grouped(value: u128) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

pub(crate) fn violations(document: &str, limits_rs: &Source) -> Vec<String> {
    let limits = match limits(limits_rs) {
        Ok(limits) => limits,
        Err(why) => return vec![why],
    };
    let wanted = table(&limits);
    let Some((_, rest)) = document.split_once(BEGIN) else {
        return vec![format!("docs/durability.md: no line `{}`", BEGIN.trim())];
    };
    let Some((found, _)) = rest.split_once(END) else {
        return vec![format!("docs/durability.md: no line `{END}`")];
    };
    if found == wanted {
        return Vec::new();
    }
    vec![format!(
        "docs/durability.md: the table of limits differs from {}; put there:\n{wanted}",
        limits_rs.path
    )]
}

/// Integer arithmetic: `64 * 1024`, `1 << 20`, `2 * OTHER as u64`, parentheses.
fn evaluate(expression: &str, known: &BTreeMap<String, u128>) -> Result<u128, String> {
    let tokens = tokens(expression);
    let mut at = 0;
    let value = shift(&tokens, &mut at, known)?;
    if at < tokens.len() { Err(format!("cannot read `{}`", tokens[at])) } else { Ok(value) }
}

fn tokens(expression: &str) -> Vec<String> {
    let spaced = ["<<", "+", "-", "*", "/", "%", "(", ")"]
        .iter()
        .fold(expression.to_owned(), |text, operator| text.replace(operator, &format!(" {operator} ")));
    spaced.split_whitespace().map(str::to_owned).collect()
}

fn shift(tokens: &[String], at: &mut usize, known: &BTreeMap<String, u128>) -> Result<u128, String> {
    let mut value = sum(tokens, at, known)?;
    while tokens.get(*at).is_some_and(|token| token == "<<") {
        *at += 1;
        let by = u32::try_from(sum(tokens, at, known)?).map_err(|error| error.to_string())?;
        value = value.checked_shl(by).ok_or("a shift is too large")?;
    }
    Ok(value)
}

fn sum(tokens: &[String], at: &mut usize, known: &BTreeMap<String, u128>) -> Result<u128, String> {
    let mut value = product(tokens, at, known)?;
    while let Some(operator) = tokens.get(*at).filter(|token| ["+", "-"].contains(&token.as_str())) {
        *at += 1;
        let other = product(tokens, at, known)?;
        let result = if operator == "+" { value.checked_add(other) } else { value.checked_sub(other) };
        value = result.ok_or("a sum overflows")?;
    }
    Ok(value)
}

fn product(tokens: &[String], at: &mut usize, known: &BTreeMap<String, u128>) -> Result<u128, String> {
    let mut value = atom(tokens, at, known)?;
    while let Some(operator) = tokens.get(*at).filter(|token| ["*", "/", "%"].contains(&token.as_str())) {
        *at += 1;
        let other = atom(tokens, at, known)?;
        let result = match operator.as_str() {
            "*" => value.checked_mul(other),
            "/" => value.checked_div(other),
            _ => value.checked_rem(other),
        };
        value = result.ok_or("a product overflows")?;
    }
    Ok(value)
}

fn atom(tokens: &[String], at: &mut usize, known: &BTreeMap<String, u128>) -> Result<u128, String> {
    let token = tokens.get(*at).ok_or("the expression ends too early")?;
    *at += 1;
    let value = if token == "(" {
        let value = shift(tokens, at, known)?;
        if tokens.get(*at).is_none_or(|token| token != ")") {
            return Err("a parenthesis is not closed".to_owned());
        }
        *at += 1;
        value
    } else if let Some(value) = known.get(token) {
        *value
    } else {
        literal(token).ok_or_else(|| format!("cannot read `{token}`: write integer arithmetic"))?
    };
    if tokens.get(*at).is_some_and(|token| token == "as") {
        *at += 2;
    }
    Ok(value)
}

fn literal(token: &str) -> Option<u128> {
    let digits = token.replace('_', "");
    let digits = ["usize", "u128", "u64", "u32", "u16", "u8"]
        .iter()
        .find_map(|suffix| digits.strip_suffix(suffix))
        .unwrap_or(&digits);
    match digits.strip_prefix("0x") {
        Some(hexadecimal) => u128::from_str_radix(hexadecimal, 16).ok(),
        None => digits.parse().ok(),
    }
}

#[cfg(test)]
const PLANTED: &str = "//! Limits.\n\n/// Longest key;\n/// see [`B`].\npub const KEY_BYTES_MAX: usize = 2 * 1024;\n\n/// Wait.\npub const WAIT_MS: u64 = 1_000;\npub const NAME: &str = \"x\";\n";

#[cfg(test)]
fn document(rows: &str) -> String {
    format!("# Title\n\n{BEGIN}| limit | value | about |\n|---|---:|---|\n{rows}{END}\n")
}

#[test]
fn a_table_that_differs_is_found_and_the_right_one_is_told() {
    let limits_rs = Source::new("limits.rs", PLANTED);
    let key = "| `KEY_BYTES_MAX` | 2,048 (2 KiB) | Longest key; see `B`. |\n";
    let wait = "| `WAIT_MS` | 1,000 ms | Wait. |\n";
    let check = |document: &str, count: usize| {
        let found = violations(document, &limits_rs);
        assert_eq!(found.len(), count, "{document}: {found:?}");
    };
    check(&document(&format!("{key}{wait}")), 0);
    check(&document(key), 1);
    check(&document(&format!("{key}{}", wait.replace("1,000", "1,001"))), 1);
    check(&document(&format!("{key}{wait}| `GONE` | 1 | x |\n")), 1);
    check("# No table\n", 1);
    assert!(violations(&document(""), &limits_rs)[0].contains(key));
}

#[test]
fn arithmetic_is_read_like_the_compiler_reads_it() {
    let known = BTreeMap::from([("OTHER".to_owned(), 3)]);
    let check = |expression: &str, expected: u128| {
        assert_eq!(evaluate(expression, &known), Ok(expected), "{expression}")
    };
    check("64 * 1024 * 1024", 64 << 20);
    check("1 + 2 * 3 - 4 / 2", 5);
    check("(1 + 2) * 3 % 5", 4);
    check("1 << 10 + 2", 4096);
    check("OTHER as u64 * 0x10u64", 48);
    assert!(evaluate("size_of::<u8>()", &known).is_err());
    assert!(evaluate("1 +", &known).is_err());
}
