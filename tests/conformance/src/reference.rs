//! What each kernel computes, in f64, one row or element at a time.
//!
//! Written from the operators' definitions; nothing here is shared with the compiler or the kernels.

/// x / √(mean(x²) + eps) · weight.
pub fn rmsnorm(x: &[f64], weight: &[f64], eps: f64) -> Vec<f64> {
    let mean = x.iter().map(|v| v * v).sum::<f64>() / x.len() as f64;
    let scale = 1.0 / (mean + eps).sqrt();
    x.iter().zip(weight).map(|(v, w)| v * scale * w).collect()
}

/// (x − mean) / √(variance + eps) · gamma + beta.
pub fn layernorm(x: &[f64], gamma: &[f64], beta: &[f64], eps: f64) -> Vec<f64> {
    let n = x.len() as f64;
    let mean = x.iter().sum::<f64>() / n;
    let variance = x.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / n;
    let scale = 1.0 / (variance + eps).sqrt();
    x.iter()
        .zip(gamma.iter().zip(beta))
        .map(|(v, (g, b))| (v - mean) * scale * g + b)
        .collect()
}

/// exp(x − max) / Σ exp(x − max). A NaN anywhere makes the row NaN.
pub fn softmax(x: &[f64]) -> Vec<f64> {
    let top = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let e: Vec<f64> = x.iter().map(|v| (v - top).exp()).collect();
    let sum: f64 = e.iter().sum();
    e.iter().map(|v| v / sum).collect()
}

/// x · σ(x).
pub fn silu(x: f64) -> f64 {
    x * (1.0 / (1.0 + (-x).exp()))
}

/// The GELU in its tanh form.
pub fn gelu_tanh(x: f64) -> f64 {
    let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
    0.5 * x * (1.0 + inner.tanh())
}

/// x · Φ(x).
pub fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + erf(x / std::f64::consts::SQRT_2))
}

/// The error function: its power series, and far from 0 the continued fraction of its complement.
fn erf(x: f64) -> f64 {
    let far = x.abs();
    if far < 3.0 {
        let (mut power, mut sum) = (x, x);
        for n in 1..60 {
            power *= -x * x / f64::from(n);
            sum += power / f64::from(2 * n + 1);
        }
        return sum * std::f64::consts::FRAC_2_SQRT_PI;
    }
    if far.is_nan() {
        return far;
    }
    let fraction = (1..60)
        .rev()
        .fold(far, |tail, n| far + f64::from(n) / 2.0 / tail);
    let complement = (-far * far).exp() / fraction * std::f64::consts::FRAC_2_SQRT_PI / 2.0;
    (1.0 - complement).copysign(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-12, "{a} and {b}");
    }

    #[test]
    fn hand_computed_values() {
        let r = rmsnorm(&[3.0, 4.0], &[1.0, 2.0], 0.0);
        near(r[0], 3.0 / 12.5f64.sqrt());
        near(r[1], 8.0 / 12.5f64.sqrt());
        let l = layernorm(&[1.0, 3.0], &[1.0, 2.0], &[0.0, 1.0], 0.0);
        near(l[0], -1.0);
        near(l[1], 3.0);
        let s = softmax(&[0.0, 2.0f64.ln(), f64::NEG_INFINITY]);
        near(s[0], 1.0 / 3.0);
        near(s[1], 2.0 / 3.0);
        assert_eq!(s[2], 0.0);
        assert!(softmax(&[f64::NEG_INFINITY; 2]).iter().all(|v| v.is_nan()));
        near(silu(0.0), 0.0);
        near(silu(1.0), 0.731_058_578_630_004_9);
        near(gelu_tanh(1.0), 0.841_191_990_608_276_6);
        near(gelu_tanh(-30.0), 0.0);
        near(gelu(1.0), 0.841_344_746_068_542_9);
        near(gelu(-30.0), 0.0);
        assert_eq!(gelu(f64::INFINITY), f64::INFINITY);
        near(erf(0.5), 0.520_499_877_813_046_5);
        near(erf(-2.0), -0.995_322_265_018_952_7);
        near(erf(3.5), 0.999_999_256_901_627_7);
        near(erf(3.0), erf(3.0f64.next_down()));
    }
}
