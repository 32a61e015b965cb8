//! Splits a line of the shell into words: by blanks, except in quotes, after backslashes and in JSON.

/// The state of a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// Its words.
    Whole(Vec<String>),
    /// A quote or a bracket is open: the line continues.
    Open,
}

/// Splits a line into words.
///
/// A word that begins with `{` or `[` is JSON up to its last bracket, including blanks and line ends. `#`
/// begins a comment where a word could begin.
pub(super) fn split(line: &str) -> Line {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while let Some(first) = rest.chars().next() {
        let taken = match first {
            '#' => {
                rest = rest.split_once('\n').map_or("", |(_, after)| after).trim_start();
                continue;
            }
            '{' | '[' => json(rest).map(|end| (rest[..end].to_owned(), end)),
            _ => plain(rest),
        };
        let Some((word, end)) = taken else { return Line::Open };
        words.push(word);
        rest = rest[end..].trim_start();
    }
    Line::Whole(words)
}

/// The end of JSON that begins here: after the bracket that closes the first.
fn json(text: &str) -> Option<usize> {
    let (mut depth, mut in_text, mut escaped) = (0_usize, false, false);
    for (at, character) in text.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' if in_text => escaped = true,
            '"' => in_text = !in_text,
            '{' | '[' if !in_text => depth += 1,
            '}' | ']' if !in_text => {
                depth -= 1;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

/// A word in the syntax of a Unix shell: single quotes protect everything, double quotes all but backslashes.
fn plain(text: &str) -> Option<(String, usize)> {
    let mut word = String::new();
    let mut quote = None;
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match (quote, character) {
            (None, blank) if blank.is_whitespace() => return Some((word, at)),
            (None, '\'' | '"') => quote = Some(character),
            (Some(open), close) if open == close => quote = None,
            (None, '\\') => word.push(characters.next()?.1),
            (Some('"'), '\\') => match characters.next()?.1 {
                escaped @ ('"' | '\\') => word.push(escaped),
                other => word.extend(['\\', other]),
            },
            (_, other) => word.push(other),
        }
    }
    quote.is_none().then_some((word, text.len()))
}

#[cfg(test)]
mod tests {
    //! A wrong word would store a wrong document.
    use super::*;

    fn check(line: &str, words: &[&str]) {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        assert_eq!(split(line), Line::Whole(words), "{line}");
    }

    #[test]
    fn words_are_divided_as_in_a_unix_shell() {
        check("", &[]);
        check("  count   flights ", &["count", "flights"]);
        check("get --key 'a b',\"c\\\"d\\n\"", &["get", "--key", "a b,c\"d\\n"]);
        check("a\\ b ''", &["a b", ""]);
        check("count flights # all of them", &["count", "flights"]);
        check("# nothing", &[]);
        check("find town=#5", &["find", "town=#5"]);
    }

    #[test]
    fn json_stays_as_it_is() {
        check(
            "put {\"a\": \"it's } \\\" {\",\n \"b\": [1]} --durability disk",
            &["put", "{\"a\": \"it's } \\\" {\",\n \"b\": [1]}", "--durability", "disk"],
        );
        check("get --key [\"a b\",1]", &["get", "--key", "[\"a b\",1]"]);
    }

    #[test]
    fn what_is_open_goes_on() {
        for line in ["put {", "put {\"a\": \"}", "get 'a", "get \"a\\\"", "a\\"] {
            assert_eq!(split(line), Line::Open, "{line}");
        }
    }
}
