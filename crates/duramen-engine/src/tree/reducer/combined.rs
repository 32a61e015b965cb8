//! Several reducers as one: a tree keeps their reductions side by side.
//!
//! Parameters of the spec: for each part its version (u32), then name and parameters with their lengths
//! (u32). A reduction: that of each part in the same order, with its length (u16).

use std::sync::Arc;

use super::{Reducer, ReducerSpec, Reducers};

const NAME: &str = "combined";

/// Combined parts are refused: they would need a limit of their own, and one list expresses the same.
const PARTS_MAX: usize = 16;

/// Several reducers as one.
pub struct Combined {
    parts: Vec<Arc<dyn Reducer>>,
}

impl ReducerSpec {
    /// The spec of a reducer that keeps the reductions of all of these, decoded by [`Combined::parts`].
    ///
    /// At most 16 parts, none of them combined itself: a tree cannot be created with others.
    #[must_use]
    pub fn combined(parts: &[ReducerSpec]) -> ReducerSpec {
        let mut params = Vec::new();
        for part in parts {
            params.extend_from_slice(&part.version.to_le_bytes());
            for bytes in [part.name.as_bytes(), &part.params] {
                let length = u32::try_from(bytes.len()).expect("names and parameters are short");
                params.extend_from_slice(&length.to_le_bytes());
                params.extend_from_slice(bytes);
            }
        }
        ReducerSpec { name: NAME.to_owned(), version: 1, params }
    }
}

impl Combined {
    /// The reducer of a combined spec; `None` if the spec is not a combined one, or a part is unknown.
    pub(super) fn find(spec: &ReducerSpec, known: &Reducers) -> Option<Combined> {
        if (spec.name.as_str(), spec.version) != (NAME, 1) {
            return None;
        }
        let mut rest = spec.params.as_slice();
        let mut parts = Vec::new();
        while !rest.is_empty() {
            let part = take_spec(&mut rest).filter(|part| part.name != NAME && parts.len() < PARTS_MAX)?;
            parts.push(known.find(&part)?);
        }
        (!parts.is_empty()).then_some(Combined { parts })
    }

    /// The reductions of the parts, in the order of the spec; `None` if the bytes are not a combined
    /// reduction.
    #[must_use]
    pub fn parts(reduction: &[u8]) -> Option<Vec<&[u8]>> {
        let mut rest = reduction;
        let mut parts = Vec::new();
        while !rest.is_empty() {
            parts.push(take_part(&mut rest)?);
        }
        Some(parts)
    }
}

impl Reducer for Combined {
    fn reads_keys(&self) -> bool {
        self.parts.iter().any(|part| part.reads_keys())
    }

    fn is_commutative(&self) -> bool {
        self.parts.iter().all(|part| part.is_commutative())
    }

    fn one(&self, key: &[u8], value: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        let mut own = Vec::new();
        for part in &self.parts {
            own.clear();
            part.one(key, value, &mut own)?;
            put_part(&own, out);
        }
        Ok(())
    }

    fn join(&self, left: &[u8], right: &[u8], out: &mut Vec<u8>) {
        let (mut left, mut right) = (left, right);
        let mut own = Vec::new();
        for part in &self.parts {
            own.clear();
            let (a, b) =
                (take_part(&mut left).unwrap_or_default(), take_part(&mut right).unwrap_or_default());
            part.join(a, b, &mut own);
            put_part(&own, out);
        }
    }
}

fn put_part(part: &[u8], out: &mut Vec<u8>) {
    // Longer than any reduction may be: the length check then refuses the whole.
    let length = u16::try_from(part.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(part);
}

fn take_part<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, after) = rest.split_first_chunk()?;
    let (part, after) = after.split_at_checked(u16::from_le_bytes(*length).into())?;
    *rest = after;
    Some(part)
}

fn take_spec(rest: &mut &[u8]) -> Option<ReducerSpec> {
    let (version, after) = rest.split_first_chunk()?;
    *rest = after;
    let mut bytes = || {
        let (length, after) = rest.split_first_chunk()?;
        let (bytes, after) = after.split_at_checked(u32::from_le_bytes(*length).try_into().ok()?)?;
        *rest = after;
        Some(bytes.to_vec())
    };
    let name = String::from_utf8(bytes()?).ok()?;
    Some(ReducerSpec { name, version: u32::from_le_bytes(*version), params: bytes()? })
}
