//! Exact sums of floats: a fixed-point number wide enough for every float, rounded once at the end.
//!
//! Pure. So a sum does not depend on the order of the additions, and not on the access path of a query.

/// Bits of a limb. Each has room above them for carries.
const LIMB_BITS: usize = 32;

/// 2,098 bits from the smallest float to the largest, and room for 2^63 additions and a sign.
const LIMBS: usize = 68;

/// The bit of 2^0.
const ONE_BIT: usize = 1074;

/// Additions before carries must be moved up: each adds less than 2^32 to a limb.
const ADDITIONS_MAX: u32 = 1 << 30;

const MANTISSA_BITS: usize = 52;

/// A sum of floats and integers.
#[derive(Debug, Clone)]
pub(super) struct FloatSum {
    limbs: [i64; LIMBS],
    additions: u32,
    has_nan: bool,
    has_infinity: bool,
    has_negative_infinity: bool,
}

impl FloatSum {
    pub(super) fn new() -> FloatSum {
        FloatSum {
            limbs: [0; LIMBS],
            additions: 0,
            has_nan: false,
            has_infinity: false,
            has_negative_infinity: false,
        }
    }

    pub(super) fn add(&mut self, value: f64) {
        if !value.is_finite() {
            self.has_nan |= value.is_nan();
            self.has_infinity |= value == f64::INFINITY;
            self.has_negative_infinity |= value == f64::NEG_INFINITY;
            return;
        }
        let bits = value.to_bits();
        let fraction = bits & ((1 << MANTISSA_BITS) - 1);
        let exponent = usize::try_from(bits >> MANTISSA_BITS & 0x7ff).expect("eleven bits");
        let (mantissa, at) = match exponent {
            0 => (fraction, 0),
            _ => (fraction | 1 << MANTISSA_BITS, exponent - 1),
        };
        self.add_bits(mantissa, at, value.is_sign_negative());
    }

    pub(super) fn add_int(&mut self, value: i128) {
        let magnitude = value.unsigned_abs();
        for part in 0..4 {
            let digits = u64::try_from(magnitude >> (part * LIMB_BITS) & 0xffff_ffff).expect("32 bits");
            self.add_bits(digits, ONE_BIT + part * LIMB_BITS, value < 0);
        }
    }

    pub(super) fn merge(&mut self, other: &FloatSum) {
        self.carry();
        let mut other = other.clone();
        other.carry();
        self.limbs.iter_mut().zip(other.limbs).for_each(|(own, their)| *own += their);
        self.has_nan |= other.has_nan;
        self.has_infinity |= other.has_infinity;
        self.has_negative_infinity |= other.has_negative_infinity;
    }

    /// The nearest float; of two equally near the even one.
    pub(super) fn value(&self) -> f64 {
        if self.has_nan || (self.has_infinity && self.has_negative_infinity) {
            return f64::NAN;
        }
        if self.has_infinity || self.has_negative_infinity {
            return if self.has_infinity { f64::INFINITY } else { f64::NEG_INFINITY };
        }
        let mut sum = self.clone();
        sum.carry();
        let is_negative = sum.limbs[LIMBS - 1] < 0;
        if is_negative {
            sum.limbs.iter_mut().for_each(|limb| *limb = -*limb);
            sum.carry();
        }
        let magnitude = sum.rounded();
        if is_negative { -magnitude } else { magnitude }
    }

    /// The sum as bytes, for [`FloatSum::from_bytes`].
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut sum = self.clone();
        sum.carry();
        let flags = [sum.has_nan, sum.has_infinity, sum.has_negative_infinity].map(u8::from);
        sum.limbs.iter().flat_map(|limb| limb.to_le_bytes()).chain(flags).collect()
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<FloatSum> {
        let (limbs, flags) = bytes.split_at_checked(8 * LIMBS)?;
        let [nan, infinity, negative] = <[u8; 3]>::try_from(flags).ok()?.map(|flag| flag != 0);
        let mut sum = FloatSum::new();
        for (limb, bytes) in sum.limbs.iter_mut().zip(limbs.chunks_exact(8)) {
            *limb = i64::from_le_bytes(bytes.try_into().ok()?);
        }
        (sum.has_nan, sum.has_infinity, sum.has_negative_infinity) = (nan, infinity, negative);
        Some(sum)
    }

    /// Adds digits that begin at a bit.
    fn add_bits(&mut self, digits: u64, at: usize, is_negative: bool) {
        if self.additions == ADDITIONS_MAX {
            self.carry();
        }
        self.additions += 1;
        let mut wide = u128::from(digits) << (at % LIMB_BITS);
        for limb in &mut self.limbs[at / LIMB_BITS..] {
            let part = i64::try_from(wide & 0xffff_ffff).expect("32 bits");
            *limb += if is_negative { -part } else { part };
            wide >>= LIMB_BITS;
            if wide == 0 {
                return;
            }
        }
    }

    /// Leaves 32 bits in each limb but the last, which has the sign.
    fn carry(&mut self) {
        let mut carry = 0;
        for limb in &mut self.limbs[..LIMBS - 1] {
            let sum = *limb + carry;
            *limb = sum & 0xffff_ffff;
            carry = sum >> LIMB_BITS;
        }
        self.limbs[LIMBS - 1] += carry;
        self.additions = 0;
    }

    /// A carried sum that is not negative, as a float.
    fn rounded(&self) -> f64 {
        let bit = |at: usize| self.limbs[at / LIMB_BITS] >> (at % LIMB_BITS) & 1 == 1;
        let Some(top) = (0..LIMBS * LIMB_BITS).rev().find(|at| bit(*at)) else { return 0.0 };
        let from = top.saturating_sub(MANTISSA_BITS);
        let mut mantissa = (from..=top).rev().fold(0_u64, |bits, at| bits << 1 | u64::from(bit(at)));
        if from == 0 {
            return f64::from_bits(mantissa);
        }
        let mut exponent = from as u64 + 1;
        let is_half = bit(from - 1);
        let is_more = || (0..from - 1).any(bit);
        if is_half && (mantissa & 1 == 1 || is_more()) {
            mantissa += 1;
            if mantissa == 1 << (MANTISSA_BITS + 1) {
                mantissa >>= 1;
                exponent += 1;
            }
        }
        if exponent > 2046 {
            return f64::INFINITY;
        }
        f64::from_bits(exponent << MANTISSA_BITS | mantissa & ((1 << MANTISSA_BITS) - 1))
    }
}

#[cfg(test)]
mod tests {
    //! A sum is the float nearest to the true sum, in any order.
    use super::*;
    use duramen_disk::memory::Random;

    fn sum(values: &[f64]) -> f64 {
        let mut sum = FloatSum::new();
        values.iter().for_each(|value| sum.add(*value));
        sum.value()
    }

    #[test]
    fn sums_are_exact() {
        for (values, expected) in [
            (&[][..], 0.0),
            (&[0.1; 10], 1.0),
            (&[1e308, 1e308, -1e308], 1e308),
            (&[1e308, 1e308], f64::INFINITY),
            (&[1e16, 1.0, -1e16], 1.0),
            (&[f64::MAX, f64::MIN_POSITIVE, -f64::MAX], f64::MIN_POSITIVE),
            (&[5e-324, 5e-324], 1e-323),
            (&[-5e-324], -5e-324),
            (&[2.0_f64.powi(53), 1.0], 2.0_f64.powi(53)),
            (&[2.0_f64.powi(53), 1.0, 5e-324], 2.0_f64.powi(53) + 2.0),
            (&[2.0_f64.powi(53) - 1.0, 0.5], 2.0_f64.powi(53)),
            (&[-1.5, 0.25], -1.25),
            (&[f64::INFINITY, 1.0], f64::INFINITY),
        ] {
            assert_eq!(sum(values), expected, "{values:?}");
        }
        assert!(sum(&[f64::INFINITY, f64::NEG_INFINITY]).is_nan() && sum(&[f64::NAN]).is_nan());
    }

    #[test]
    fn a_sum_of_one_is_that_float() {
        let mut random = Random::new(5);
        for _ in 0..10_000 {
            let value = f64::from_bits(random.bits());
            if value.is_finite() && value != 0.0 {
                assert_eq!(sum(&[value]), value);
            }
        }
    }

    #[test]
    fn neither_order_nor_grouping_changes_a_sum() {
        let mut random = Random::new(6);
        let mut values: Vec<f64> = std::iter::repeat_with(|| f64::from_bits(random.bits()))
            .filter(|value| value.is_finite())
            .take(500)
            .collect();
        let expected = sum(&values);
        for _ in 0..20 {
            random.shuffle(&mut values);
            assert_eq!(sum(&values), expected);
            let mut halves = [FloatSum::new(), FloatSum::new()];
            values.iter().enumerate().for_each(|(at, value)| halves[at % 2].add(*value));
            let read = FloatSum::from_bytes(&halves[0].to_bytes()).unwrap();
            halves[1].merge(&read);
            assert_eq!(halves[1].value(), expected);
        }
    }

    #[test]
    fn integers_are_added_exactly() {
        for (ints, expected) in [
            (&[i128::from(u64::MAX), -i128::from(u64::MAX), 7][..], 7.0),
            (&[i128::MAX / 2], 8.507_059_173_023_462e37),
            (&[i128::from(i64::MIN)], -9_223_372_036_854_775_808.0),
        ] {
            let mut sum = FloatSum::new();
            ints.iter().for_each(|value| sum.add_int(*value));
            assert_eq!(sum.value(), expected, "{ints:?}");
        }
        let mut sum = FloatSum::new();
        sum.add_int(1 << 60);
        sum.add(0.5);
        sum.add_int(-(1 << 60));
        assert_eq!(sum.value(), 0.5);
    }
}
