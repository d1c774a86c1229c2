//! Numbers for test data: by seed and position, the same on every machine. Nothing but integer arithmetic and exact
//! operations of floats, so that no library's rounding shows.

/// A well-mixed word for a position in a seed's sequence.
fn word(seed: u64, position: u64) -> u64 {
    let mut x = seed
        .wrapping_mul(0xD134_2543_DE82_EF95)
        .wrapping_add(position.wrapping_mul(0x9E37_79B9_7F4A_7C15))
        .wrapping_add(0x9E37_79B9_7F4A_7C15);
    for shift in [30, 27] {
        x = (x ^ (x >> shift)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    }
    x = (x ^ (x >> 31)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 32)
}

/// Mean 0 and variance 1, nearly normal: the sum of sixteen even numbers, within ±7.
pub(super) fn normal(seed: u64, index: u64) -> f64 {
    let mut sum = 0;
    for part in 0..4 {
        let word = word(seed, index.wrapping_mul(4).wrapping_add(part));
        sum += (0..4).map(|i| (word >> (16 * i)) & 0xFFFF).sum::<u64>();
    }
    // Sixteen numbers over 0..2^16 have mean 16 · (2^16 − 1) / 2 and variance 16 · 2^32 / 12.
    let centred = sum as f64 - 8.0 * 65_535.0;
    centred / 65_536.0 * 0.75f64.sqrt()
}

/// Even over lo..hi, which is not empty.
pub(super) fn within(seed: u64, index: u64, lo: i64, hi: i64) -> i64 {
    let range = (i128::from(hi) - i128::from(lo)) as u128;
    let offset = (u128::from(word(seed, index)) * range) >> 64;
    (i128::from(lo) + offset as i128) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_numbers_have_mean_zero_and_variance_one() {
        for seed in 0..4 {
            let n = 50_000;
            let (mut sum, mut squares, mut products) = (0.0, 0.0, 0.0);
            for i in 0..n {
                let x = normal(seed, i);
                sum += x;
                squares += x * x;
                products += x * normal(seed + 1, i);
            }
            let n = n as f64;
            assert!((sum / n).abs() < 0.02, "seed {seed}");
            assert!((squares / n - 1.0).abs() < 0.03, "seed {seed}");
            assert!((products / n).abs() < 0.02, "seeds {seed} and the next");
        }
    }

    #[test]
    fn integers_stay_within_their_range_and_reach_all_of_it() {
        let mut seen = [0; 7];
        for i in 0..7000 {
            let x = within(9, i, -3, 4);
            seen[usize::try_from(x + 3).unwrap()] += 1;
        }
        assert!(seen.iter().all(|&n| (800..1200).contains(&n)), "{seen:?}");
        assert_eq!(within(1, 2, i64::MAX - 1, i64::MAX), i64::MAX - 1);
    }
}
