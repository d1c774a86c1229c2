//! Which products a warpgroup's instruction (`wgmma`) computes, and what stands in the way of others.

use std::fmt;

use tesserine_set::DType;

/// Bits of K that one instruction takes.
const STEP: u32 = 256;

/// Rows of a warpgroup.
const ROWS: u32 = 64;

/// Where a factor lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lies {
    Registers,
    /// In a slot, K along its rows in memory, or the other dimension.
    Slot {
        along_k: bool,
    },
}

/// A product as the author wrote it: `left` times `right`, added up in `sum`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    pub(super) left: (DType, Lies),
    pub(super) right: (DType, Lies),
    pub(super) sum: DType,
    /// M, N and K.
    pub(super) shape: [u32; 3],
    /// Warpgroups that divide M.
    pub(super) groups: u32,
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [m, n, k] = self.shape;
        let lies = |lies| match lies {
            Lies::Registers => "in registers",
            Lies::Slot { along_k: true } => "in a slot, K along its rows",
            Lies::Slot { along_k: false } => "in a slot, K along its columns",
        };
        let ((a, left), (b, right)) = (self.left, self.right);
        write!(
            f,
            "a product of {a} [{m}, {k}] ({}) and {b} [{k}, {n}] ({}) in sums of {}",
            lies(left),
            lies(right),
            self.sum
        )
    }
}

impl Form {
    /// Why there is no instruction for it.
    pub(super) fn missing(&self) -> Option<String> {
        let [m, n, k] = self.shape;
        let ((a, left), (b, right)) = (self.left, self.right);
        let eight_bit_float = |t| matches!(t, DType::E4m3 | DType::E5m2);
        let eight_bit_integer = |t| matches!(t, DType::I8 | DType::U8);
        let sum = match (a, b) {
            (DType::F16, DType::F16) | (DType::Bf16, DType::Bf16) | (DType::Tf32, DType::Tf32) => {
                DType::F32
            }
            (DType::F32, DType::F32) => {
                return Some(
                    "`wgmma` takes f32 as tf32 only: write `x as tf32` where that is enough".into(),
                );
            }
            (a, b) if eight_bit_float(a) && eight_bit_float(b) => DType::F32,
            (a, b) if eight_bit_integer(a) && eight_bit_integer(b) => DType::I32,
            _ => return Some(format!("`wgmma` multiplies no {a} by {b}")),
        };
        if self.sum != sum {
            return Some(format!("its sums are {sum} here"));
        }
        if self.groups == 0 || !m.is_multiple_of(ROWS * self.groups) {
            let rows = ROWS * self.groups.max(1);
            return Some(format!(
                "M is a multiple of {rows}, {ROWS} for each warpgroup of the role"
            ));
        }
        let integers = eight_bit_integer(a);
        let steps_of_sixteen = n.is_multiple_of(16) || n == 8 || n == 24;
        if n > 256 || !n.is_multiple_of(8) || integers && !steps_of_sixteen {
            return Some(match integers {
                true => "of integers, N is 8, 24, or a multiple of 16 up to 256".into(),
                false => "N is a multiple of 8 up to 256".into(),
            });
        }
        if !(k * a.bits()).is_multiple_of(STEP) {
            return Some(format!("K of {a} is a multiple of {}", STEP / a.bits()));
        }
        if right == Lies::Registers {
            return Some("the right factor lies in a channel's slot".into());
        }
        let turned = |lies| lies == Lies::Slot { along_k: false };
        if a.bits() != 16 && (turned(left) || turned(right)) {
            return Some(format!("of {a}, K runs along the rows of both factors"));
        }
        None
    }
}
