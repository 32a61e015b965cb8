//! Escapes text and JSON for HTML: no given string can end the element or attribute that contains it.
//!
//! Owns the only two ways from a caller's string into a page. Characters that are invisible, or change the
//! direction of the text, are spelt out.

/// Text for an element or a quoted attribute.
pub(crate) fn text(given: &str) -> String {
    let mut out = String::with_capacity(given.len() + 8);
    for character in given.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(character),
            _ if is_unseen(character) => out.extend(character.escape_unicode()),
            _ => out.push(character),
        }
    }
    out
}

/// JSON for a data block. `<`, `>` and `&` occur only inside its strings, where they may be escaped.
pub(crate) fn json(given: &str) -> String {
    let mut out = String::with_capacity(given.len() + 8);
    for character in given.chars() {
        match character {
            '<' => out.push_str("\\u003c"),
            '>' => out.push_str("\\u003e"),
            '&' => out.push_str("\\u0026"),
            // White space between values is not part of a string.
            '\n' | '\r' | '\t' => out.push(character),
            // All of these have four digits.
            _ if is_unseen(character) => out.push_str(&format!("\\u{:04x}", u32::from(character))),
            _ => out.push(character),
        }
    }
    out
}

/// Control characters, characters that change the writing direction, and those without width.
fn is_unseen(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}
