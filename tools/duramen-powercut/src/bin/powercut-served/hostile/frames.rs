//! Frames of HTTP/2 and messages of gRPC, written by hand: no library sends such.

/// The preface, and settings that let the server send without end.
pub(super) fn begin() -> Vec<u8> {
    let window = [0, 4, 0x7f, 0xff, 0xff, 0xff];
    let settings = frame(4, 0, 0, &window);
    let update = frame(8, 0, 0, &0x7fff_0000_u32.to_be_bytes());
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &settings, &update].concat()
}

/// The head of a call on a stream, with a token if there is one.
pub(super) fn headers(stream: u32, path: &str, token: Option<&str>) -> Vec<u8> {
    let bearer = token.map(|token| format!("Bearer {token}"));
    let mut fields = vec![
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "duramen"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    fields.extend(bearer.as_deref().map(|bearer| ("authorization", bearer)));
    let mut block = Vec::new();
    for (name, value) in fields {
        // Without index and without Huffman's code; all are short.
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).expect("short"));
            block.extend_from_slice(text.as_bytes());
        }
    }
    frame(1, 0x4, stream, &block)
}

pub(super) fn data(stream: u32, bytes: &[u8], is_last: bool) -> Vec<u8> {
    frame(0, u8::from(is_last), stream, bytes)
}

/// A whole message, at most as long as a frame may be.
pub(super) fn message(stream: u32, bytes: &[u8], is_last: bool) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).expect("short").to_be_bytes();
    data(stream, &[&[0], &length[..], bytes].concat(), is_last)
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A field of a message, with its tag and its length.
pub(super) fn within(tag: u8, bytes: &[u8]) -> Vec<u8> {
    let mut field = vec![tag];
    let mut length = bytes.len();
    while length >= 0x80 {
        field.push(u8::try_from(length & 0x7f).expect("7 bits") | 0x80);
        length >>= 7;
    }
    field.push(u8::try_from(length).expect("7 bits"));
    field.extend_from_slice(bytes);
    field
}
