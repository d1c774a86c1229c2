//! Linear maps over GF(2): what layouts are made of.
//!
//! A map is a list of columns, the images of the input's bits from the low one up; adding is XOR. Inputs and outputs have
//! at most 64 bits.

/// A linear map over bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinearMap {
    columns: Vec<u64>,
}

impl LinearMap {
    /// The map whose input bit `i` gives `columns[i]`; at most 64 columns.
    pub fn new(columns: Vec<u64>) -> LinearMap {
        assert!(columns.len() <= 64, "a map of more than 64 bits");
        LinearMap { columns }
    }

    /// The image of `input`.
    pub fn apply(&self, input: u64) -> u64 {
        self.columns
            .iter()
            .enumerate()
            .filter(|(i, _)| input >> i & 1 == 1)
            .fold(0, |sum, (_, column)| sum ^ column)
    }

    /// `self` after `first`.
    pub fn compose(&self, first: &LinearMap) -> LinearMap {
        LinearMap::new(first.columns.iter().map(|&c| self.apply(c)).collect())
    }

    /// The dimension of the image.
    pub fn rank(&self) -> u32 {
        self.eliminated().len() as u32
    }

    /// An input whose image is `target`, `None` if there is none. Columns that are sums of earlier ones (zeros among
    /// them) get bit 0.
    pub fn solve(&self, mut target: u64) -> Option<u64> {
        let mut input = 0;
        for (column, combination) in self.eliminated() {
            if target & high_bit(column) != 0 {
                target ^= column;
                input ^= combination;
            }
        }
        (target == 0).then_some(input)
    }

    /// The inverse, if the map is a bijection between the bits of its input and the low bits of its output.
    pub fn invert(&self) -> Option<LinearMap> {
        let bits = self.columns.len();
        let fits = self.columns.iter().all(|c| bits == 64 || c >> bits == 0);
        (fits && self.rank() as usize == bits)
            .then(|| (0..bits).map(|i| self.solve(1 << i)).collect::<Option<_>>())
            .flatten()
            .map(LinearMap::new)
    }

    /// Independent sums of columns, by falling high bit, each with the inputs that it is a sum of. No high bit occurs in
    /// two of them as a high bit.
    fn eliminated(&self) -> Vec<(u64, u64)> {
        let mut rows: Vec<(u64, u64)> = Vec::new();
        for (i, &column) in self.columns.iter().enumerate() {
            let (mut column, mut combination) = (column, 1u64 << i);
            for &(row, from) in &rows {
                if column & high_bit(row) != 0 {
                    column ^= row;
                    combination ^= from;
                }
            }
            if column != 0 {
                let at = rows.partition_point(|(row, _)| *row > column);
                rows.insert(at, (column, combination));
            }
        }
        rows
    }
}

fn high_bit(x: u64) -> u64 {
    debug_assert!(x != 0);
    1 << x.ilog2()
}
