//! Counts what a message would become in memory, before it is decoded.
//!
//! Two bytes on the wire, an empty message in a list, become a hundred in memory. A message of 16 MiB could
//! thus take a gigabyte. The walk here allocates nothing: it follows the wire by the committed descriptors,
//! and ends at the first message too many.

use std::collections::HashMap;
use std::sync::LazyLock;

use duramen::error::{Code, Error, Result};
use prost::Message as _;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FileDescriptorSet};

/// The most messages, and items of lists, inside of a message.
pub(crate) const ITEMS_MAX: usize = 65_536;

/// Messages lie in each other at most this deep.
pub(crate) const DEPTH_MAX: usize = 32;

/// What a field with a length holds.
#[derive(Clone, Copy)]
enum Field {
    /// A message of this number.
    Message(usize),
    /// An item of a list of text or bytes.
    Item,
}

/// The fields that hold other messages or items of lists, by their numbers.
type Shape = HashMap<u64, Field>;

struct Shapes {
    shapes: Vec<Shape>,
    numbers: HashMap<String, usize>,
}

static SHAPES: LazyLock<Shapes> = LazyLock::new(|| {
    let set = FileDescriptorSet::decode(crate::DESCRIPTORS).expect("the committed descriptors are valid");
    Shapes::of(&set)
});

impl Shapes {
    fn of(set: &FileDescriptorSet) -> Shapes {
        let messages: Vec<(String, &DescriptorProto)> = set
            .file
            .iter()
            .flat_map(|file| {
                let named = move |message| {
                    (format!("{}.{}", file.package(), DescriptorProto::name(message)), message)
                };
                file.message_type.iter().map(named)
            })
            .collect();
        let numbers: HashMap<String, usize> =
            messages.iter().enumerate().map(|(number, (name, _))| (name.clone(), number)).collect();
        let shapes = messages.iter().map(|(_, message)| shape(message, &numbers)).collect();
        Shapes { shapes, numbers }
    }
}

fn shape(message: &DescriptorProto, numbers: &HashMap<String, usize>) -> Shape {
    let field = |field: &prost_types::FieldDescriptorProto| {
        let number = u64::try_from(field.number()).expect("numbers of fields are positive");
        let held = match field.r#type() {
            Type::Message => Field::Message(numbers[field.type_name().trim_start_matches('.')]),
            Type::String | Type::Bytes if field.label() == Label::Repeated => Field::Item,
            _ => return None,
        };
        Some((number, held))
    };
    message.field.iter().filter_map(field).collect()
}

/// Refuses an encoded message that would become too much in memory.
///
/// # Errors
/// `TooLarge` (E0203) for too many messages and items, or too deep ones; `InvalidArgument` (E0201) if it is
/// no message.
pub(crate) fn check(name: &str, encoded: &[u8]) -> Result<()> {
    let shapes = &*SHAPES;
    let mut walk = Walk { shapes: &shapes.shapes, items_left: ITEMS_MAX };
    walk.message(shapes.numbers[name], encoded, DEPTH_MAX)
}

struct Walk<'a> {
    shapes: &'a [Shape],
    items_left: usize,
}

impl Walk<'_> {
    fn message(&mut self, number: usize, mut bytes: &[u8], depth_left: usize) -> Result<()> {
        let depth_left = depth_left.checked_sub(1).ok_or_else(|| {
            Error::new(Code::TooLarge, format!("the message is nested more than {DEPTH_MAX} deep"))
        })?;
        while !bytes.is_empty() {
            let key = varint(&mut bytes)?;
            let (field, wire_type) = (key >> 3, key & 7);
            match wire_type {
                0 => drop(varint(&mut bytes)?),
                1 => drop(take(&mut bytes, 8)?),
                5 => drop(take(&mut bytes, 4)?),
                2 => {
                    let length = varint(&mut bytes)?;
                    let inside = take(&mut bytes, length)?;
                    match self.shapes[number].get(&field) {
                        Some(Field::Message(inner)) => {
                            self.count()?;
                            self.message(*inner, inside, depth_left)?;
                        }
                        Some(Field::Item) => self.count()?,
                        None => {}
                    }
                }
                _ => return Err(no_message("it has a field of an unknown wire type")),
            }
        }
        Ok(())
    }

    fn count(&mut self) -> Result<()> {
        self.items_left = self.items_left.checked_sub(1).ok_or_else(|| {
            Error::new(Code::TooLarge, format!("the message has more than {ITEMS_MAX} parts"))
                .with_hint("send several smaller ones")
        })?;
        Ok(())
    }
}

fn varint(bytes: &mut &[u8]) -> Result<u64> {
    let mut value = 0_u64;
    for position in 0..10 {
        let (&byte, rest) = bytes.split_first().ok_or_else(|| no_message("it ends within a number"))?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << (7 * position);
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(no_message("a number in it takes more than 10 bytes"))
}

fn take<'a>(bytes: &mut &'a [u8], length: u64) -> Result<&'a [u8]> {
    let (taken, rest) = usize::try_from(length)
        .ok()
        .and_then(|length| bytes.split_at_checked(length))
        .ok_or_else(|| no_message("it ends within a field"))?;
    *bytes = rest;
    Ok(taken)
}

fn no_message(why: &str) -> Error {
    Error::invalid(format!("the message cannot be read: {why}"))
        .with_hint("encode it by the .proto files of this release")
}

#[cfg(test)]
mod tests {
    //! A message of 16 MiB must not take a gigabyte.
    use super::*;
    use crate::v1;

    const BATCH: &str = "duramen.v1.BatchRequest";

    #[test]
    fn as_many_parts_as_there_may_be() {
        let batch = |count| v1::BatchRequest {
            operations: vec![v1::Operation::default(); count],
            ..Default::default()
        };
        check(BATCH, &batch(ITEMS_MAX).encode_to_vec()).expect("as many as there may be");
        let error = check(BATCH, &batch(ITEMS_MAX + 1).encode_to_vec()).expect_err("one too many");
        assert_eq!(error.code(), Code::TooLarge);
        let names = v1::CollectionsRequest { names: vec![String::new(); ITEMS_MAX + 1] };
        let error = check("duramen.v1.CollectionsRequest", &names.encode_to_vec()).expect_err("one too many");
        assert_eq!(error.code(), Code::TooLarge);
    }

    #[test]
    fn as_deep_as_it_may_be() {
        let nested = |depth| {
            let mut key = v1::Key::default();
            for _ in 0..depth {
                let kind = Some(v1::element::Kind::TupleValue(key));
                key = v1::Key { elements: vec![v1::Element { kind }], ..v1::Key::default() };
            }
            key.encode_to_vec()
        };
        check("duramen.v1.Key", &nested(DEPTH_MAX / 2 - 1)).expect("as deep as it may be");
        let error = check("duramen.v1.Key", &nested(DEPTH_MAX / 2)).expect_err("too deep");
        assert_eq!(error.code(), Code::TooLarge);
    }

    /// What this accepts is what prost decodes: a cut message is refused by both.
    #[test]
    fn a_cut_message_is_refused_at_every_byte() {
        let key = crate::key::of(&[duramen::tuple::Element::Text("Oslo".into())]);
        let delete = v1::DocumentKey { collection: "c".into(), key: Some(key) };
        let operation = v1::Operation { kind: Some(v1::operation::Kind::Delete(delete)) };
        let whole = v1::BatchRequest { operations: vec![operation], ..Default::default() }.encode_to_vec();
        check(BATCH, &whole).expect("whole");
        for end in 1..whole.len() {
            let is_refused = check(BATCH, &whole[..end]).is_err();
            assert_eq!(is_refused, v1::BatchRequest::decode(&whole[..end]).is_err(), "cut at {end}");
            assert!(is_refused, "cut at {end}");
        }
        for wrong in [&[0x0b_u8] as &[u8], &[0xff; 11], &[0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f]] {
            assert_eq!(check(BATCH, wrong).expect_err("no message").code(), Code::InvalidArgument);
        }
    }

    /// What clients send is what is counted: the name says so.
    #[test]
    fn every_call_takes_a_request() {
        let set = FileDescriptorSet::decode(crate::DESCRIPTORS).expect("valid");
        let calls: Vec<_> =
            set.file.iter().flat_map(|file| &file.service).flat_map(|of| &of.method).collect();
        assert!(calls.len() >= 6);
        assert!(calls.iter().all(|call| call.input_type().ends_with("Request")));
        assert!(calls.iter().all(|call| !call.output_type().ends_with("Request")));
    }

    /// Lists of numbers would need a count of their own: eight bytes in memory for one on the wire.
    #[test]
    fn every_list_is_counted() {
        let set = FileDescriptorSet::decode(crate::DESCRIPTORS).expect("valid");
        let mut lists = 0;
        for message in set.file.iter().flat_map(|file| &file.message_type) {
            assert!(message.nested_type.is_empty(), "{}: nested types have no shape", message.name());
            for field in message.field.iter().filter(|field| field.label() == Label::Repeated) {
                let is_counted = matches!(field.r#type(), Type::Message | Type::String | Type::Bytes);
                assert!(is_counted, "{}.{}", message.name(), field.name());
                lists += 1;
            }
        }
        assert!(lists > 5, "the walk found {lists} lists");
    }
}
