//! Moves of 8x8 matrices of 16-bit elements between rows of shared memory and fragments.
//!
//! In a fragment, lane `l` holds elements `2 (l % 4)` and the next of row `l / 4`, the first in the lower half of the register.

/// Bytes of a matrix's row.
pub const ROW: usize = 16;

/// The lane whose address says where a row lies: lane `8 m + r` for row `r` of matrix `m` (PTX ISA §9.7.14.5.15, `ldmatrix`).
pub fn lane_of_row(matrix: usize, row: usize) -> usize {
    8 * matrix + row
}

/// Both halves of row `row` that hold elements `2 pair` and the next.
fn pair(row: &[u8; ROW], pair: usize) -> u32 {
    let at = 4 * pair;
    u32::from_le_bytes([row[at], row[at + 1], row[at + 2], row[at + 3]])
}

/// The fragment of a matrix from its rows (PTX ISA §9.7.14.5.15, `ldmatrix.m8n8.b16`); with `.trans`, of its transpose.
pub fn load(rows: &[[u8; ROW]; 8], transposed: bool) -> [u32; 32] {
    let plain = std::array::from_fn(|lane| pair(&rows[lane / 4], lane % 4));
    if transposed { transpose(&plain) } else { plain }
}

/// The rows of a matrix from its fragment (PTX ISA §9.7.14.5.16, `stmatrix.m8n8.b16`); with `.trans`, of its transpose.
pub fn store(fragment: &[u32; 32], transposed: bool) -> [[u8; ROW]; 8] {
    let turned;
    let fragment = if transposed {
        turned = transpose(fragment);
        &turned
    } else {
        fragment
    };
    let mut rows = [[0; ROW]; 8];
    for (lane, word) in fragment.iter().enumerate() {
        let at = 4 * (lane % 4);
        rows[lane / 4][at..at + 4].copy_from_slice(&word.to_le_bytes());
    }
    rows
}

/// The fragment of the transpose (PTX ISA §9.7.14.5.17, `movmatrix.sync.aligned.m8n8.trans.b16`).
pub fn transpose(fragment: &[u32; 32]) -> [u32; 32] {
    let element = |row: usize, column: usize| {
        let word = fragment[4 * row + column / 2];
        if column.is_multiple_of(2) {
            word & 0xffff
        } else {
            word >> 16
        }
    };
    std::array::from_fn(|lane| {
        let (row, column) = (lane / 4, 2 * (lane % 4));
        element(column, row) | element(column + 1, row) << 16
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Element (r, c) is `16 r + c + 0x100 (c + 1)`.
    fn value(row: usize, column: usize) -> u16 {
        (16 * row + column + 0x100 * (column + 1)) as u16
    }

    fn rows() -> [[u8; ROW]; 8] {
        std::array::from_fn(|r| {
            let bytes: Vec<u8> = (0..8).flat_map(|c| value(r, c).to_le_bytes()).collect();
            bytes.try_into().unwrap()
        })
    }

    #[test]
    fn each_lane_gets_its_two_elements() {
        let (plain, turned) = (load(&rows(), false), load(&rows(), true));
        for thread in 0..32 {
            for half in 0..2 {
                let (a, b) = (thread >> 2, (thread & 3) * 2 + half);
                let of = |word: u32| (word >> (16 * half)) as u16;
                assert_eq!(of(plain[thread]), value(a, b));
                assert_eq!(of(turned[thread]), value(b, a));
            }
        }
    }

    #[test]
    fn stores_undo_loads() {
        for transposed in [false, true] {
            assert_eq!(store(&load(&rows(), transposed), transposed), rows());
        }
        let fragment = load(&rows(), false);
        assert_ne!(transpose(&fragment), fragment);
        assert_eq!(transpose(&transpose(&fragment)), fragment);
    }

    #[test]
    fn addresses_come_from_lanes_in_order() {
        let lanes: Vec<usize> = (0..4)
            .flat_map(|m| (0..8).map(move |r| lane_of_row(m, r)))
            .collect();
        assert_eq!(lanes, (0..32).collect::<Vec<_>>());
    }
}
