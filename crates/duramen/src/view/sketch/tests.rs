//! Sketches: their bytes are stored and do not depend on grouping; their errors are as documented.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::{Distinct, Distribution, Quantiles, Sketch, Top};
use crate::value::document::Value;

type Make = fn() -> Box<dyn Sketch>;

const ALL: [Make; 4] = [
    || Box::new(Top::largest(4)),
    || Box::new(Top::smallest(4)),
    || Box::<Distinct>::default(),
    || Box::<Quantiles>::default(),
];

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn stored(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    value.write(&mut out, 8).unwrap();
    out
}

fn of(make: Make, values: &[Value]) -> Vec<u8> {
    let mut sketch = make();
    values.iter().for_each(|value| sketch.value(&stored(value)).unwrap());
    let mut out = Vec::new();
    sketch.write(&mut out);
    out
}

/// Values cut into groups, and those into groups, until one is left. Groups are joined by their output, as
/// nodes are.
fn grouped(make: Make, values: &[Value], cuts: &[usize]) -> Vec<u8> {
    let [cut, rest @ ..] = cuts else { return of(make, values) };
    if values.len() < 2 {
        return of(make, values);
    }
    let (left, right) = values.split_at(1 + cut % (values.len() - 1));
    let half = rest.len() / 2;
    let mut joined = make();
    joined.merge(&grouped(make, left, &rest[..half])).unwrap();
    joined.merge(&grouped(make, right, &rest[half..])).unwrap();
    let mut out = Vec::new();
    joined.write(&mut out);
    out
}

#[test]
fn their_bytes_are_as_the_format_says() {
    let ints = |numbers: &[i128]| numbers.iter().map(|number| Value::Int(*number)).collect::<Vec<_>>();
    assert_eq!(hex(&of(ALL[0], &ints(&[3, 300, 3, 7, 1]))), "0316012c021507021503021503");
    assert_eq!(hex(&of(ALL[1], &ints(&[3, 300, 0]))), "01140215030316012c");
    assert_eq!(hex(&of(ALL[3], &ints(&[0, 0, -1, 1, 2, 300]))), "2d0381fe0f0581ff070381ff07038001039607");
    assert_eq!(hex(&of(ALL[2], &ints(&[1]))), "00c18203");
}

fn numbers(kind: u8) -> BoxedStrategy<Value> {
    match kind {
        0 => (-50_i64..1500).prop_map(|number| Value::Int(i128::from(number))).boxed(),
        1 => any::<i64>().prop_map(|number| Value::Int(i128::from(number))).boxed(),
        // Of every magnitude: buckets must become wider.
        _ => any::<f64>().prop_filter("a number", |number| !number.is_nan()).prop_map(Value::Float).boxed(),
    }
}

fn many() -> impl Strategy<Value = Vec<Value>> {
    (0_u8..3).prop_flat_map(|kind| prop::collection::vec(numbers(kind), 1..2500))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    // Page splits are arbitrary and rows come in any order: nodes must hold the same bits.
    #[test]
    fn grouping_and_order_do_not_show(
        values in many(),
        cuts in prop::collection::vec(any::<usize>(), 0..40),
        shift in any::<usize>(),
    ) {
        for make in ALL {
            let whole = of(make, &values);
            prop_assert_eq!(&whole, &grouped(make, &values, &cuts));
            let mut turned = values.clone();
            turned.rotate_left(shift % values.len());
            prop_assert_eq!(&whole, &grouped(make, &turned, &cuts));
            turned.reverse();
            prop_assert_eq!(&whole, &of(make, &turned));
            // Decoded and encoded again, they are the same.
            let mut again = make();
            again.merge(&whole).unwrap();
            let mut out = Vec::new();
            again.write(&mut out);
            prop_assert_eq!(whole, out);
        }
    }

    #[test]
    fn they_stay_within_their_bytes_and_their_error(values in many()) {
        prop_assert!(of(ALL[2], &values).len() <= Distinct::BYTES_MAX);
        let bytes = of(ALL[3], &values);
        prop_assert!(bytes.len() <= Quantiles::BYTES_MAX);
        let mut sketch = Quantiles::default();
        sketch.merge(&bytes).unwrap();
        let asked = Distribution::of(sketch);
        #[allow(clippy::cast_precision_loss)]
        let mut sorted: Vec<f64> = values
            .iter()
            .map(|value| match value {
                Value::Int(number) => *number as f64,
                Value::Float(number) => *number,
                _ => unreachable!("numbers"),
            })
            .collect();
        sorted.sort_unstable_by(f64::total_cmp);
        prop_assert_eq!(asked.count(), sorted.len() as u64);
        for q in [0.0, 0.05, 0.5, 0.95, 1.0] {
            #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let right = sorted[(q * (sorted.len() - 1) as f64) as usize];
            let found = asked.quantile(q).unwrap();
            let off = (found - right).abs();
            let is_near = found == right || off <= right.abs() * asked.relative_error() * (1.0 + 1e-9);
            prop_assert!(is_near || right.abs() < 1e-300 || right.abs() > 1e308, "{}: {} is {}", q, found, right);
        }
    }

    #[test]
    fn foreign_bytes_are_refused_or_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        for make in ALL {
            let mut sketch = make();
            if sketch.merge(&bytes).is_some() && !bytes.is_empty() {
                sketch.write(&mut Vec::new());
            }
        }
        drop(Top::elements(&bytes));
        let _ = Distinct::estimate(&bytes);
    }
}

// The documented error must hold for small and for large numbers.
#[test]
fn distinct_counts_are_within_their_error() {
    let mut squares = 0.0;
    let mut rounds = 0.0;
    for (round, count) in
        [100_u64, 700, 1500, 3000, 10_000, 50_000, 200_000].into_iter().cycle().take(35).enumerate()
    {
        let mut sketch = Distinct::default();
        for number in 0..count {
            let value = stored(&Value::Int(i128::from(number * 64 + round as u64)));
            sketch.value(&value).unwrap();
            sketch.value(&value).unwrap();
        }
        let mut bytes = Vec::new();
        sketch.write(&mut bytes);
        #[allow(clippy::cast_precision_loss)]
        let off = Distinct::estimate(&bytes).unwrap() as f64 / count as f64 - 1.0;
        assert!(off.abs() < 4.0 * 0.023, "{count} values, off by {off}");
        squares += off * off;
        rounds += 1.0;
    }
    let deviation = f64::sqrt(squares / rounds);
    assert!(deviation <= 0.025, "{deviation}");
}

// Each of the three forms of the registers is used where it is the shortest.
#[test]
fn registers_are_written_in_their_shortest_form() {
    let form = |count: i128| of(ALL[2], &(0..count).map(Value::Int).collect::<Vec<_>>());
    let forms: BTreeSet<u8> = [1, 40, 1000, 100_000].map(|count| form(count)[0]).into();
    assert_eq!(forms, BTreeSet::from([0, 1]));
    assert!(form(40).len() <= 90 && form(350).len() <= 430 && form(100_000).len() <= 900);
    // No values produce these registers: every other one is full.
    let mut packed = vec![2];
    packed.extend([0b1101_1011, 0b0110_0000, 0b0000_0011].repeat(512));
    let mut sketch = Distinct::default();
    sketch.merge(&packed).unwrap();
    let mut out = Vec::new();
    sketch.write(&mut out);
    assert_eq!(out[0], 2, "{}", out.len());
    assert!(out.len() <= Distinct::BYTES_MAX);
}

#[test]
fn what_has_no_place_in_a_sketch_is_refused() {
    let refused = |make: Make, value: &Value| make().value(&stored(value)).unwrap_err();
    assert!(refused(ALL[3], &Value::from("x")).contains("numbers have them"));
    assert!(refused(ALL[3], &Value::Float(f64::NAN)).contains("NaN"));
    assert!(refused(ALL[0], &Value::from("x".repeat(50))).contains("up to 40 bytes"));
    assert!(refused(ALL[2], &Value::Map(crate::doc! { "a": 1 })).contains("a map"));
    assert!(ALL[2]().value(&stored(&Value::from("x".repeat(5000)))).is_ok());
}
