//! The largest or the smallest values, as many as requested, with repetitions.
//!
//! Its bytes: elements of a key, the best first, each with its length (one byte, for it is at most 40).

use super::{Sketch, element_of, value_of};
use crate::store::error::Result;
use crate::value::tuple::{Element, decode};
use crate::view::kinds::ELEMENT_BYTES_MAX;
use crate::view::reducer::unreadable;

/// The best values seen, the best first. The best of two parts are the best among those that each part keeps.
pub(crate) struct Top {
    is_largest: bool,
    at_most: usize,
    best: Vec<Vec<u8>>,
}

impl Top {
    pub(crate) fn largest(at_most: usize) -> Top {
        Top { is_largest: true, at_most, best: Vec::new() }
    }

    pub(crate) fn smallest(at_most: usize) -> Top {
        Top { is_largest: false, ..Top::largest(at_most) }
    }

    fn add(&mut self, element: &[u8]) {
        let is_before = |kept: &Vec<u8>| match self.is_largest {
            true => kept[..] >= *element,
            false => kept[..] <= *element,
        };
        let place = self.best.partition_point(is_before);
        if place < self.at_most {
            self.best.truncate(self.at_most - 1);
            self.best.insert(place, element.to_vec());
        }
    }

    /// Decodes its output: the elements, the best first.
    ///
    /// # Errors
    /// `CorruptData` for invalid bytes.
    pub(crate) fn elements(bytes: &[u8]) -> Result<Vec<Element>> {
        let mut elements = Vec::new();
        for element in split(bytes).ok_or_else(unreadable)? {
            elements.push(decode(element)?.pop().ok_or_else(unreadable)?);
        }
        Ok(elements)
    }
}

impl Sketch for Top {
    fn value(&mut self, stored: &[u8]) -> std::result::Result<(), String> {
        self.add(&element_of(&value_of(stored)?, ELEMENT_BYTES_MAX)?);
        Ok(())
    }

    fn merge(&mut self, bytes: &[u8]) -> Option<()> {
        split(bytes)?.into_iter().for_each(|element| self.add(element));
        Some(())
    }

    fn write(&mut self, out: &mut Vec<u8>) {
        for element in &self.best {
            out.push(u8::try_from(element.len()).expect("an element that is kept has at most 40 bytes"));
            out.extend_from_slice(element);
        }
    }
}

fn split(mut bytes: &[u8]) -> Option<Vec<&[u8]>> {
    let mut elements = Vec::new();
    while let Some((length, rest)) = bytes.split_first() {
        let (element, after) = rest.split_at_checked(usize::from(*length))?;
        if element.is_empty() || element.len() > ELEMENT_BYTES_MAX {
            return None;
        }
        elements.push(element);
        bytes = after;
    }
    Some(elements)
}
