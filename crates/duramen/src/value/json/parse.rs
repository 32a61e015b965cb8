//! Parses JSON text (RFC 8259, strict).
//!
//! Owns the grammar. Rejects what would lose data: integers beyond 64 bits, floats that overflow, repeated
//! names.

use crate::store::error::{Error, Result};
use crate::value::document::{Document, Value};
use crate::value::msgpack::DEPTH_MAX;

/// One JSON value, followed by nothing but white space.
///
/// # Errors
/// `InvalidArgument` (E0201), naming the byte, for anything else.
pub fn parse(text: &str) -> Result<Value> {
    let mut parser = Parser { text, bytes: text.as_bytes(), at: 0 };
    parser.space();
    let value = parser.value(DEPTH_MAX)?;
    parser.space();
    if parser.at < parser.bytes.len() {
        return Err(parser.wrong("something follows the value"));
    }
    Ok(value)
}

struct Parser<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
}

impl Parser<'_> {
    #[cold]
    fn wrong(&self, what: &str) -> Error {
        Error::invalid(format!("this is not JSON: at byte {}: {what}", self.at + 1))
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn expect(&mut self, byte: u8) -> Result<()> {
        if self.peek() == Some(byte) {
            self.at += 1;
            return Ok(());
        }
        Err(self.wrong(&format!("'{}' was wanted", char::from(byte))))
    }

    fn word(&mut self, word: &str, value: Value) -> Result<Value> {
        if self.bytes[self.at..].starts_with(word.as_bytes()) {
            self.at += word.len();
            return Ok(value);
        }
        Err(self.wrong("a value was wanted"))
    }

    fn value(&mut self, depth: usize) -> Result<Value> {
        match self.peek() {
            Some(b'"') => self.string().map(Value::Text),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b'{') => self.object(depth).map(Value::Map),
            Some(b'[') => self.list(depth).map(Value::List),
            Some(b't') => self.word("true", Value::Bool(true)),
            Some(b'f') => self.word("false", Value::Bool(false)),
            Some(b'n') => self.word("null", Value::Null),
            Some(_) => Err(self.wrong("a value was wanted")),
            None => Err(self.wrong("it ends where a value was wanted")),
        }
    }

    fn deeper(&self, depth: usize) -> Result<usize> {
        depth.checked_sub(1).ok_or_else(|| self.wrong(&format!("it nests more than {DEPTH_MAX} deep")))
    }

    fn object(&mut self, depth: usize) -> Result<Document> {
        let depth = self.deeper(depth)?;
        let mut document = Document::new();
        self.expect(b'{')?;
        self.space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(document);
        }
        loop {
            self.space();
            let name = self.string()?;
            self.space();
            self.expect(b':')?;
            self.space();
            let value = self.value(depth)?;
            document.push(name, value);
            self.space();
            if self.peek() != Some(b',') {
                break;
            }
            self.at += 1;
        }
        self.expect(b'}')?;
        match document.repeated_name() {
            Some(name) => Err(self.wrong(&format!("the name {name:?} is there twice before here"))),
            None => Ok(document),
        }
    }

    fn list(&mut self, depth: usize) -> Result<Vec<Value>> {
        let depth = self.deeper(depth)?;
        let mut values = Vec::new();
        self.expect(b'[')?;
        self.space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(values);
        }
        loop {
            self.space();
            values.push(self.value(depth)?);
            self.space();
            if self.peek() != Some(b',') {
                break;
            }
            self.at += 1;
        }
        self.expect(b']')?;
        Ok(values)
    }

    fn digits(&mut self) -> Result<()> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at == start { Err(self.wrong("a digit was wanted")) } else { Ok(()) }
    }

    fn number(&mut self) -> Result<Value> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        let first = self.at;
        self.digits()?;
        if self.bytes[first] == b'0' && self.at - first > 1 {
            return Err(self.wrong("a number begins with 0"));
        }
        let mut integer = true;
        if self.peek() == Some(b'.') {
            integer = false;
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            integer = false;
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
        }
        let text = &self.text[start..self.at];
        if integer && text != "-0" {
            return self.integer(text);
        }
        match text.parse::<f64>() {
            Ok(value) if value.is_finite() => Ok(Value::Float(value)),
            _ => Err(self.wrong(&format!("{text} is more than a float holds"))),
        }
    }

    fn integer(&self, text: &str) -> Result<Value> {
        if let Ok(value) = text.parse::<i64>() {
            return Ok(Value::Int(i128::from(value)));
        }
        match text.parse::<u64>() {
            Ok(value) => Ok(Value::Int(i128::from(value))),
            Err(_) => Err(Error::invalid(format!(
                "at byte {}: the integer {text} does not fit in 64 bits",
                self.at - text.len() + 1
            ))
            .with_hint("write it as text, in quotes, or as a float, with .0")),
        }
    }

    fn string(&mut self) -> Result<String> {
        self.expect(b'"')?;
        let mut value = String::new();
        loop {
            let start = self.at;
            while self.peek().is_some_and(|byte| byte >= 0x20 && byte != b'"' && byte != b'\\') {
                self.at += 1;
            }
            value.push_str(&self.text[start..self.at]);
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(value);
                }
                Some(b'\\') => {
                    self.at += 1;
                    value.push(self.escape()?);
                }
                Some(_) => return Err(self.wrong("a control character in a string must be escaped")),
                None => return Err(self.wrong("a string without an end")),
            }
        }
    }

    fn escape(&mut self) -> Result<char> {
        let byte = self.peek().ok_or_else(|| self.wrong("a string without an end"))?;
        self.at += 1;
        Ok(match byte {
            b'"' | b'\\' | b'/' => char::from(byte),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => return self.code_point(),
            _ => return Err(self.wrong("no such escape")),
        })
    }

    fn code_point(&mut self) -> Result<char> {
        let mut code = self.hex()?;
        if (0xd800..0xdc00).contains(&code) && self.bytes[self.at..].starts_with(b"\\u") {
            self.at += 2;
            let low = self.hex()?;
            if (0xdc00..0xe000).contains(&low) {
                code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
            }
        }
        char::from_u32(code).ok_or_else(|| self.wrong("half of a surrogate pair"))
    }

    fn hex(&mut self) -> Result<u32> {
        let digits =
            self.bytes.get(self.at..self.at + 4).ok_or_else(|| self.wrong("four hex digits wanted"))?;
        let mut code = 0;
        for &digit in digits {
            let value = char::from(digit).to_digit(16).ok_or_else(|| self.wrong("four hex digits wanted"))?;
            code = code << 4 | value;
        }
        self.at += 4;
        Ok(code)
    }
}
