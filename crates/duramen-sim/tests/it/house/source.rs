//! Rust source as text: literals and comments blanked, items of tests found, functions measured.
//!
//! Not a parser: a scanner that is correct on code that compiles. Everything is a pure function of the text.

use std::ops::Range;

/// One `.rs` file: its path from the root of the repository, with `/` between the parts, and its text.
pub(crate) struct Source {
    pub(crate) path: String,
    pub(crate) text: String,
    /// The text with comments, strings and character literals blanked; offsets and lines are those of `text`.
    pub(crate) code: String,
    /// Items under `#[cfg(test)]`, attribute included.
    pub(crate) test_items: Vec<Range<usize>>,
}

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    /// The offset of its `fn`.
    pub(crate) offset: usize,
    /// From the line of `fn` to that of the closing brace.
    pub(crate) line_count: usize,
}

/// A function as it is declared, with a body or without.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Declared<'a> {
    pub(crate) name: &'a str,
    /// The offset of its `fn`.
    pub(crate) offset: usize,
    /// Attributes and visibility.
    pub(crate) before: &'a str,
    /// The type after `->`.
    pub(crate) returned: Option<&'a str>,
}

/// `mod name;` or `mod name { ... }`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Module {
    pub(crate) name: String,
    pub(crate) offset: usize,
    /// The braces and the text between them, if the module is inline.
    pub(crate) body: Option<Range<usize>>,
}

impl Source {
    pub(crate) fn new(path: &str, text: &str) -> Source {
        let code = blank_literals(text);
        let test_items = items_with(&code, &["#[cfg(test)]", "#[cfg(all(test,"]);
        Source { path: path.to_owned(), text: text.to_owned(), code, test_items }
    }

    /// Whether the whole file is a test: `tests.rs`, or anything below a directory `tests`.
    pub(crate) fn is_test(&self) -> bool {
        self.path.contains("/tests/") || self.path.ends_with("/tests.rs")
    }

    /// Whether an offset belongs to a test, by its file or by `#[cfg(test)]`.
    pub(crate) fn is_test_at(&self, offset: usize) -> bool {
        self.is_test() || self.test_items.iter().any(|item| item.contains(&offset))
    }

    /// `path:line`, for a message.
    pub(crate) fn place(&self, offset: usize) -> String {
        format!("{}:{}", self.path, self.line_at(offset))
    }

    /// The line number of an offset, from 1.
    pub(crate) fn line_at(&self, offset: usize) -> usize {
        newline_count(&self.text[..offset]) + 1
    }

    /// The number of lines outside of tests.
    pub(crate) fn line_count_without_tests(&self) -> usize {
        let in_tests: usize =
            self.test_items.iter().map(|item| newline_count(&self.text[item.clone()])).sum();
        self.text.lines().count() - in_tests
    }

    pub(crate) fn functions(&self) -> Vec<Function> {
        functions(&self.code)
    }

    pub(crate) fn modules(&self) -> Vec<Module> {
        modules(&self.code)
    }

    /// Every function, with those of traits that have no body.
    pub(crate) fn declared(&self) -> Vec<Declared<'_>> {
        let functions = words(&self.code).into_iter().filter(|(_, word)| *word == "fn");
        functions.filter_map(|(offset, _)| self.declared_at(offset)).collect()
    }

    fn declared_at(&self, offset: usize) -> Option<Declared<'_>> {
        let (name_offset, name) = name_after(&self.code, offset + 2)?;
        let after = parameters_end(&self.code, name_offset + name.len())?;
        let end = body_or_end(&self.code, after)?;
        let tail = &self.code[after..end];
        let bounds = words(tail).into_iter().find(|(_, word)| *word == "where");
        let tail = &tail[..bounds.map_or(tail.len(), |(at, _)| at)];
        let returned = tail.trim().strip_prefix("->").map(str::trim);
        let before = &self.code[self.item_start(offset)..offset];
        Some(Declared { name, offset, before, returned })
    }

    /// Where the item of an offset begins, with its attributes and comments.
    fn item_start(&self, offset: usize) -> usize {
        self.code[..offset].rfind(['}', ';', '{']).map_or(0, |at| at + 1)
    }

    /// The lines of an item's `///` comment, without the slashes.
    pub(crate) fn doc(&self, offset: usize) -> Vec<&str> {
        let lines = self.text[self.item_start(offset)..offset].lines();
        lines.filter_map(|line| line.trim().strip_prefix("///")).map(str::trim).collect()
    }

    /// Every `impl` and `trait` with its braces: what stands before them, and the range between them.
    pub(crate) fn blocks(&self) -> Vec<(&str, Range<usize>)> {
        let starts = words(&self.code).into_iter().filter(|(_, word)| matches!(*word, "impl" | "trait"));
        let block = |(offset, _): (usize, &str)| {
            // `impl Trait` in a type does not begin a line.
            let line = self.code[..offset].rfind('\n').map_or(0, |at| at + 1);
            let mut leading = words(&self.code[line..offset]).into_iter();
            if !leading.all(|(_, word)| matches!(word, "pub" | "crate" | "super" | "unsafe")) {
                return None;
            }
            let open = body_or_end(&self.code, offset)?;
            let is_block = self.code.as_bytes()[open] == b'{';
            is_block.then(|| (self.code[line..open].trim(), open..block_end(&self.code, open)))
        };
        starts.filter_map(block).collect()
    }

    /// Macros under `#[macro_export]`, attribute included. They expand in other crates, so their paths begin
    /// with the crate's public names.
    pub(crate) fn exported_macros(&self) -> Vec<Range<usize>> {
        items_with(&self.code, &["#[macro_export]"])
    }

    /// Names of the functions under `#[test]`.
    pub(crate) fn test_names(&self) -> Vec<String> {
        let is_test = |function: &Function| {
            let before = self.code[..function.offset].trim_end();
            // Goes back over the attributes directly before the function.
            let item_start = before.rfind(['}', ';', '{']).map_or(0, |at| at + 1);
            before[item_start..].contains("#[test]")
        };
        self.functions().into_iter().filter(is_test).map(|function| function.name).collect()
    }
}

fn newline_count(text: &str) -> usize {
    text.bytes().filter(|byte| *byte == b'\n').count()
}

fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii()
}

/// Every identifier, keyword and number, with its offset.
pub(crate) fn words(code: &str) -> Vec<(usize, &str)> {
    let bytes = code.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        while at < bytes.len() && is_word_byte(bytes[at]) {
            at += 1;
        }
        if at > start {
            found.push((start, &code[start..at]));
        } else {
            at += 1;
        }
    }
    found
}

/// The text with every comment, string and character literal turned into spaces; newlines stay.
pub(crate) fn blank_literals(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = literal_end(bytes, at);
        for byte in &mut code[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end.max(at + 1);
    }
    String::from_utf8(code).expect("literals begin and end at ASCII bytes, so whole characters were blanked")
}

/// The end of the literal or comment that begins at `at`; `at` itself if none does.
fn literal_end(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    let length = match rest[0] {
        b'/' if rest.starts_with(b"//") => line_length(rest),
        b'/' if rest.starts_with(b"/*") => block_comment_length(rest),
        b'"' => string_length(rest),
        b'\'' => char_length(rest),
        b'r' | b'b' | b'c' if at == 0 || !is_word_byte(bytes[at - 1]) => raw_string_length(rest),
        _ => 0,
    };
    at + length
}

fn line_length(rest: &[u8]) -> usize {
    rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len())
}

fn block_comment_length(rest: &[u8]) -> usize {
    let mut depth = 0usize;
    let mut at = 0;
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

fn string_length(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// `r"..."`, `br#"..."#` and the like; 0 if it is only a word that begins with such a letter.
fn raw_string_length(rest: &[u8]) -> usize {
    let prefix_length = if rest.starts_with(b"br") || rest.starts_with(b"cr") { 2 } else { 1 };
    if rest[prefix_length - 1] != b'r' {
        return 0;
    }
    let hash_count = rest[prefix_length..].iter().take_while(|byte| **byte == b'#').count();
    let quote = prefix_length + hash_count;
    if rest.get(quote) != Some(&b'"') {
        return 0;
    }
    let mut closing = vec![b'"'];
    closing.resize(1 + hash_count, b'#');
    let body = &rest[quote + 1..];
    match body.windows(closing.len()).position(|window| window == closing) {
        Some(body_length) => quote + 1 + body_length + closing.len(),
        None => rest.len(),
    }
}

/// `'a'`, `'\n'`, `'é'`; 0 for a lifetime.
fn char_length(rest: &[u8]) -> usize {
    if rest.get(1) == Some(&b'\\') {
        // The byte after the backslash may itself be a quote.
        return rest.iter().skip(3).position(|byte| *byte == b'\'').map_or(rest.len(), |found| found + 4);
    }
    let width = match rest.get(1) {
        Some(first) if first.is_ascii() => 1,
        Some(first) if *first >= 0xf0 => 4,
        Some(first) if *first >= 0xe0 => 3,
        Some(_) => 2,
        None => return 0,
    };
    if rest.get(1 + width) == Some(&b'\'') { width + 2 } else { 0 }
}

/// The offset after the brace that closes the one at `open`.
pub(crate) fn block_end(code: &str, open: usize) -> usize {
    let mut depth = 0usize;
    for (at, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' if depth <= 1 => return at + 1,
            b'}' => depth -= 1,
            _ => {}
        }
    }
    code.len()
}

/// The first `{` or `;` outside of parentheses and brackets.
fn body_or_end(code: &str, from: usize) -> Option<usize> {
    let mut depth = 0usize;
    for (at, byte) in code.bytes().enumerate().skip(from) {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth = depth.saturating_sub(1),
            b'{' | b';' if depth == 0 => return Some(at),
            _ => {}
        }
    }
    None
}

/// The offset after a function's parameters, searched from after its name. An arrow's `>` closes no bracket.
fn parameters_end(code: &str, from: usize) -> Option<usize> {
    let (mut angles, mut depth, mut previous) = (0usize, 0usize, b' ');
    for (at, byte) in code.bytes().enumerate().skip(from) {
        match byte {
            b'<' => angles += 1,
            b'>' if previous != b'-' => angles = angles.saturating_sub(1),
            b'(' => depth += 1,
            b')' if depth == 1 && angles == 0 => return Some(at + 1),
            b')' => depth = depth.saturating_sub(1),
            b'{' | b';' if depth == 0 => return None,
            _ => {}
        }
        previous = byte;
    }
    None
}

/// The word after a keyword and blanks; a macro's `$name` counts.
fn name_after(code: &str, keyword_end: usize) -> Option<(usize, &str)> {
    let rest = &code[keyword_end..];
    let start = keyword_end + rest.len() - rest.trim_start().len();
    let sigil = usize::from(code[start..].starts_with('$'));
    let length = code[start + sigil..].bytes().take_while(|byte| is_word_byte(*byte)).count();
    (length > 0 && start > keyword_end).then(|| (start, &code[start..start + sigil + length]))
}

fn functions(code: &str) -> Vec<Function> {
    let mut found = Vec::new();
    for (offset, _) in words(code).into_iter().filter(|(_, word)| *word == "fn") {
        // `fn(u8) -> u8` is a type and has no name.
        let Some((name_offset, name)) = name_after(code, offset + 2) else { continue };
        let Some(body) = body_or_end(code, name_offset) else { continue };
        if code.as_bytes()[body] == b'{' {
            let end = block_end(code, body);
            let line_count = newline_count(&code[offset..end]) + 1;
            found.push(Function { name: name.to_owned(), offset, line_count });
        }
    }
    found
}

fn modules(code: &str) -> Vec<Module> {
    let mut found = Vec::new();
    for (offset, _) in words(code).into_iter().filter(|(_, word)| *word == "mod") {
        let Some((name_offset, name)) = name_after(code, offset + 3) else { continue };
        let after = name_offset + name.len();
        let rest = code[after..].trim_start();
        let body = match rest.as_bytes().first() {
            Some(b';') => None,
            Some(b'{') => {
                let open = code.len() - rest.len();
                Some(open..block_end(code, open))
            }
            _ => continue,
        };
        found.push(Module { name: name.to_owned(), offset, body });
    }
    found
}

/// Items under one of the attributes (or what they begin with), from the attribute to the end of the item.
fn items_with(code: &str, attributes: &[&str]) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    for attribute in attributes {
        for (start, _) in code.match_indices(attribute) {
            if found.iter().any(|item| item.contains(&start)) {
                continue;
            }
            // `;` and `{` count only outside brackets, which skips the attributes' own.
            if let Some(end) = body_or_end(code, start) {
                let end = if code.as_bytes()[end] == b'{' { block_end(code, end) } else { end + 1 };
                found.push(start..end);
            }
        }
    }
    found
}

#[test]
fn literals_and_comments_are_blanked_and_lifetimes_are_not() {
    let check = |text: &str, expected: &str| assert_eq!(blank_literals(text), expected, "{text}");
    check("a// fn b\nc", "a       \nc");
    check("a/* /* fn */ \n */b", "a            \n   b");
    check(r#"f("{ \" fn", x)"#, "f(         , x)");
    check("f(r#\"a \" b\"#, br\"\\\", x)", "f(          ,      , x)");
    check("let r#fn ='a';", "let r#fn =   ;");
    check(r"('\'','{','é',b'\\')", "(    ,   ,    ,b    )");
    check("fn f<'a>(x: &'a str)", "fn f<'a>(x: &'a str)");
}

#[test]
fn functions_are_measured_by_their_braces_not_by_those_in_strings() {
    let code = "type F = fn(u8);\nfn a() {\n    f('}', \"}\");\n}\ntrait T {\n    fn b(x: [u8; 3]);\n    fn c() -> u8 { 1 }\n}\n";
    let found = Source::new("x.rs", code).functions();
    let measured: Vec<_> =
        found.iter().map(|function| (function.name.as_str(), function.line_count)).collect();
    assert_eq!(measured, [("a", 3), ("c", 1)]);
}

#[test]
fn a_declared_function_has_its_comment_and_what_it_returns() {
    let text = "/// A.\n#[must_use]\npub fn a<F: Fn() -> u8>(f: F, b: impl Fn() -> u8) -> Result<(u8, u8)>\nwhere\n    F: X,\n{ }\ntrait T {\n    /// B.\n    ///\n    /// # Errors\n    fn b(x: [u8; 3]);\n}\n";
    let source = Source::new("x.rs", text);
    let found = source.declared();
    let returned: Vec<_> = found.iter().map(|function| (function.name, function.returned)).collect();
    assert_eq!(returned, [("a", Some("Result<(u8, u8)>")), ("b", None)]);
    assert_eq!(found[0].before.trim(), "#[must_use]\npub");
    assert_eq!(source.doc(found[0].offset), ["A."]);
    assert_eq!(source.doc(found[1].offset), ["B.", "", "# Errors"]);
    let blocks: Vec<_> = source.blocks().into_iter().map(|(head, _)| head).collect();
    assert_eq!(blocks, ["trait T"]);
}

#[test]
fn items_of_tests_end_where_they_end() {
    let text = "use a;\n#[cfg(test)]\nmod tests;\n#[cfg(test)]\n#[allow(x)]\nmod more {\n    fn f() {}\n}\nfn g() {}\n";
    let source = Source::new("crates/x/src/a.rs", text);
    let of = |needle: &str| source.is_test_at(text.find(needle).unwrap());
    assert!(of("mod tests"));
    assert!(of("fn f"));
    assert!(!of("use a"));
    assert!(!of("fn g"));
    // Six lines hold tests and five line ends are inside them; the last line of each item is counted.
    assert_eq!(source.line_count_without_tests(), 4);
}

#[test]
fn a_test_is_a_function_under_the_attribute() {
    let text = "#[test]\n#[should_panic(expected = \"x\")]\nfn a() {}\n\nfn b() {}\n\nmod m {\n    // #[test]\n    fn c() {}\n    #[test]\n    fn d() {}\n}\n";
    assert_eq!(Source::new("x.rs", text).test_names(), ["a", "d"]);
}
