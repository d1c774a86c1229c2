//! Philox 4×32-10: random numbers by position, the same on every machine and in any order.

/// Four words for one counter and key.
pub fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for round in 0..10 {
        if round > 0 {
            key[0] = key[0].wrapping_add(0x9E37_79B9);
            key[1] = key[1].wrapping_add(0xBB67_AE85);
        }
        let a = u64::from(counter[0]) * 0xD251_1F53;
        let b = u64::from(counter[2]) * 0xCD9E_8D57;
        counter = [
            (b >> 32) as u32 ^ counter[1] ^ key[0],
            b as u32,
            (a >> 32) as u32 ^ counter[3] ^ key[1],
            a as u32,
        ];
    }
    counter
}

/// A stream of numbers with a seed.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    pub seed: u64,
}

impl Stream {
    fn words(self, position: u64) -> [u32; 4] {
        philox(
            [position as u32, (position >> 32) as u32, 0, 0],
            [self.seed as u32, (self.seed >> 32) as u32],
        )
    }

    /// Uniform over [0, 1), 53 bits.
    pub fn uniform(self, index: u64) -> f64 {
        let words = self.words(index);
        unit(words[0], words[1])
    }

    /// Uniform over 0..limit, `limit` at most 2³².
    pub fn below(self, index: u64, limit: u64) -> u64 {
        let words = self.words(index);
        (u64::from(words[0]) * limit) >> 32
    }

    /// Normal with mean 0 and variance 1, by Box and Muller's method: element pairs share their four words.
    pub fn normal(self, index: u64) -> f64 {
        let words = self.words(index / 2);
        let radius = (-2.0 * (1.0 - unit(words[0], words[1])).ln()).sqrt();
        let angle = std::f64::consts::TAU * unit(words[2], words[3]);
        radius
            * if index.is_multiple_of(2) {
                angle.cos()
            } else {
                angle.sin()
            }
    }
}

fn unit(high: u32, low: u32) -> f64 {
    let bits = (u64::from(high) << 32 | u64::from(low)) >> 11;
    bits as f64 * (1.0 / (1u64 << 53) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers() {
        // The reference vectors of the generator's authors.
        assert_eq!(
            philox([0; 4], [0; 2]),
            [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]
        );
        assert_eq!(
            philox([u32::MAX; 4], [u32::MAX; 2]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
    }

    #[test]
    fn normal_numbers_have_mean_zero_and_variance_one() {
        let stream = Stream { seed: 3 };
        let n = 100_000;
        let (mut sum, mut squares) = (0.0, 0.0);
        for i in 0..n {
            let x = stream.normal(i);
            sum += x;
            squares += x * x;
        }
        assert!((sum / n as f64).abs() < 0.02);
        assert!((squares / n as f64 - 1.0).abs() < 0.02);
    }
}
