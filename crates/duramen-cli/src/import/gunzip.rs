//! The plain bytes of a gzip input: all of its members, and nothing after them.

use std::fmt;
use std::io::{self, BufRead, Read};

use flate2::bufread::GzDecoder;

/// The first bytes of every gzip member.
pub(super) const MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Decompresses one member after the other.
pub(super) struct Gunzip<R> {
    /// `None` after the last.
    member: Option<GzDecoder<R>>,
}

/// The error of an input with other data after its last member.
#[derive(Debug)]
pub(super) struct Trailing;

impl<R: BufRead> Gunzip<R> {
    pub(super) fn new(compressed: R) -> Gunzip<R> {
        Gunzip { member: Some(GzDecoder::new(compressed)) }
    }

    /// Continues with the next member, or ends.
    fn next_member(&mut self) -> io::Result<()> {
        let Some(ended) = self.member.take() else { return Ok(()) };
        let mut rest = ended.into_inner();
        let first = first_byte(&mut rest);
        if matches!(first, Ok(None)) {
            return Ok(());
        }
        self.member = Some(GzDecoder::new(rest));
        match first? {
            Some(first) if first != MAGIC[0] => Err(io::Error::new(io::ErrorKind::InvalidData, Trailing)),
            _ => Ok(()),
        }
    }
}

/// The next byte, without consuming it.
fn first_byte(reader: &mut impl BufRead) -> io::Result<Option<u8>> {
    loop {
        match reader.fill_buf() {
            Ok(bytes) => return Ok(bytes.first().copied()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

impl<R: BufRead> Read for Gunzip<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member {
            let count = member.read(buffer)?;
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            self.next_member()?;
        }
        Ok(0)
    }
}

impl fmt::Display for Trailing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes that are no gzip follow the end of the gzip stream")
    }
}

impl std::error::Error for Trailing {}

#[cfg(test)]
mod tests {
    //! Members are joined. Data after them is distinguished from a truncated file.
    use std::io::Write;

    use super::*;

    fn zipped(text: &str) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    }

    /// Reads with a buffer of one byte, so that every boundary falls between two reads.
    fn check(bytes: &[u8], text: &str, kind: Option<io::ErrorKind>) {
        let mut gunzip = Gunzip::new(io::BufReader::with_capacity(1, bytes));
        let mut found = Vec::new();
        let ended = gunzip.read_to_end(&mut found);
        let ended = ended.and_then(|_| gunzip.read(&mut [0; 9]));
        assert_eq!((String::from_utf8(found).unwrap().as_str(), ended.err().map(|e| e.kind())), (text, kind));
    }

    #[test]
    fn members_are_joined_and_nothing_else() {
        let two = [zipped("ab"), zipped(""), zipped("cd")].concat();
        check(&two, "abcd", None);
        check(&two[..two.len() - 1], "abcd", Some(io::ErrorKind::UnexpectedEof));
        check(&[two.as_slice(), b"junk"].concat(), "abcd", Some(io::ErrorKind::InvalidData));
        check(&[two.as_slice(), b"\0"].concat(), "abcd", Some(io::ErrorKind::InvalidData));
    }
}
