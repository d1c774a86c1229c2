//! Elementwise operations on single registers: integers here, floats through f32 where they are narrower.

use tesserine_set::DType;

use super::{
    builder::{F64, I1, I32, I64, Ty, Val},
    lower::Lower,
};
use crate::{
    diagnostics::Diagnostic,
    ir::tile::{BinaryOp, CompareOp, UnaryOp},
};

/// Whether arithmetic is done in f32 and rounded after each operation.
fn is_narrow(elem: DType) -> bool {
    elem.is_float() && !matches!(elem, DType::F64 | DType::F32 | DType::Tf32)
}

impl Lower<'_> {
    pub fn unary(&mut self, op: UnaryOp, a: Val, elem: DType) -> Result<Val, Diagnostic> {
        if elem == DType::Bool || elem.is_int() {
            return self.unary_int(op, a, elem);
        }
        if elem == DType::F64 {
            return self.unary_f64(op, a);
        }
        let x = self.cast_all(&[a], elem, DType::F32)?[0];
        let y = self.unary_f32(op, x)?;
        Ok(self.cast_all(&[y], DType::F32, elem)?[0])
    }

    fn unary_int(&mut self, op: UnaryOp, a: Val, elem: DType) -> Result<Val, Diagnostic> {
        Ok(match op {
            UnaryOp::Neg => self.b.sub(Val::int(0, a.ty), a),
            UnaryOp::Not => self.b.not(a),
            UnaryOp::Abs if elem.is_signed() => self.with_flag("llvm.abs", a),
            UnaryOp::Abs => a,
            UnaryOp::Popcount if a.ty == I1 => a,
            UnaryOp::Popcount => self.b.intrinsic("llvm.ctpop", &[a]),
            UnaryOp::Clz => self.with_flag("llvm.ctlz", a),
            _ => return Err(self.not_yet("this function of an integer")),
        })
    }

    /// An intrinsic with a flag that says that no operand is special.
    fn with_flag(&mut self, name: &str, a: Val) -> Val {
        let name = format!("{name}.{}", a.ty.suffix());
        self.b.call(
            Some(a.ty),
            &name,
            &[a, Val::bool(false)],
            super::builder::Effect::Pure,
        )
    }

    fn unary_f64(&mut self, op: UnaryOp, a: Val) -> Result<Val, Diagnostic> {
        Ok(match op {
            UnaryOp::Neg => self.b.fneg(a),
            UnaryOp::Abs => self.b.intrinsic("llvm.fabs", &[a]),
            UnaryOp::Sqrt => self.b.intrinsic("llvm.sqrt", &[a]),
            UnaryOp::Rsqrt => {
                let root = self.b.intrinsic("llvm.sqrt", &[a]);
                self.b.binary("fdiv", Val::float(1.0, F64), root)
            }
            UnaryOp::Rcp => self.b.binary("fdiv", Val::float(1.0, F64), a),
            UnaryOp::Floor => self.b.intrinsic("llvm.floor", &[a]),
            UnaryOp::Ceil => self.b.intrinsic("llvm.ceil", &[a]),
            UnaryOp::Round => self.b.intrinsic("llvm.rint", &[a]),
            _ => return Err(self.not_yet("this function in f64 on a device")),
        })
    }

    /// `positive`: neither operand is negative.
    pub fn binary(
        &mut self,
        op: BinaryOp,
        a: Val,
        b: Val,
        elem: DType,
        positive: bool,
    ) -> Result<Val, Diagnostic> {
        if elem == DType::Bool || elem.is_int() {
            return self.binary_int(op, a, b, elem, positive);
        }
        if is_narrow(elem) {
            let wide = [
                self.cast_all(&[a], elem, DType::F32)?[0],
                self.cast_all(&[b], elem, DType::F32)?[0],
            ];
            let y = self.binary_float(op, wide[0], wide[1])?;
            return Ok(self.cast_all(&[y], DType::F32, elem)?[0]);
        }
        self.binary_float(op, a, b)
    }

    fn binary_float(&mut self, op: BinaryOp, a: Val, b: Val) -> Result<Val, Diagnostic> {
        Ok(match op {
            BinaryOp::Add => self.b.binary("fadd contract", a, b),
            BinaryOp::Sub => self.b.binary("fsub contract", a, b),
            BinaryOp::Mul => self.b.binary("fmul contract", a, b),
            BinaryOp::MulExact => self.b.binary("fmul", a, b),
            BinaryOp::Div => self.b.binary("fdiv", a, b),
            BinaryOp::Rem => self.float_rem(a, b),
            BinaryOp::Min => self.b.intrinsic("llvm.minnum", &[a, b]),
            BinaryOp::Max => self.b.intrinsic("llvm.maxnum", &[a, b]),
            _ => return Err(self.not_yet("this operation on floats")),
        })
    }

    /// The rest of a division rounded down, exactly: it has the sign of the divisor. The quotient is taken off in pieces
    /// that a float holds, the largest first.
    fn float_rem(&mut self, a: Val, b: Val) -> Val {
        let ty = a.ty;
        let (int, mantissa) = match ty {
            F64 => (I64, 52),
            _ => (I32, 23),
        };
        let infinity = Val::float(f64::INFINITY, ty);
        let zero = Val::float(0.0, ty);
        let size = self.b.intrinsic("llvm.fabs", &[b]);
        let magnitude = self.b.intrinsic("llvm.fabs", &[a]);
        let finite = self.b.fcmp("olt", magnitude, infinity);
        let divides = self.b.fcmp("ogt", size, zero);
        let valid = self.b.and(finite, divides);

        let (head, work, after) = (self.b.label(), self.b.label(), self.b.label());
        let before = self.b.block();
        self.b.jump(head);
        self.b.begin(head);
        let slot = self.b.phis(&[ty]);
        let rest = slot.results()[0];
        let magnitude = self.b.intrinsic("llvm.fabs", &[rest]);
        let more = self.b.fcmp("oge", magnitude, size);
        let more = self.b.and(more, valid);
        self.b.branch(more, work, after, false);
        self.b.begin(work);
        // The divisor times a power of two, so that the quotient has few bits. Powers beyond the largest go in two steps.
        let exponent = |this: &mut Self, v: Val| {
            let bits = this.b.bitcast(v, int);
            this.b.lshr(bits, mantissa)
        };
        let (high, low) = (exponent(self, magnitude), exponent(self, size));
        let apart = self.b.sub(high, low);
        let spare = Val::int(i64::from(mantissa) - 3, int);
        let up = self.b.sub(apart, spare);
        let up = self.b.intrinsic("llvm.smax", &[up, Val::int(0, int)]);
        let half = self.b.lshr(up, 1);
        let other = self.b.sub(up, half);
        let bias = (1i64 << (ty.bits() - mantissa - 2)) - 1;
        let mut step = size;
        for power in [half, other] {
            let biased = self.b.add(power, Val::int(bias, int));
            let bits = self.b.shl(biased, mantissa);
            let factor = self.b.bitcast(bits, ty);
            step = self.b.binary("fmul", step, factor);
        }
        let quotient = self.b.binary("fdiv", rest, step);
        let quotient = self.b.intrinsic("llvm.trunc", &[quotient]);
        let back = self.b.fneg(quotient);
        let next = self.b.intrinsic("llvm.fma", &[back, step, rest]);
        let latch = self.b.block();
        self.b.jump_back(head);
        self.b.fill(slot, &[(before, vec![a]), (latch, vec![next])]);
        self.b.begin(after);

        let negative = self.b.fcmp("olt", rest, zero);
        let wants = self.b.fcmp("olt", b, zero);
        let differs = self.b.xor(negative, wants);
        let some = self.b.fcmp("one", rest, zero);
        let differs = self.b.and(differs, some);
        let turned = self.b.binary("fadd", rest, b);
        let rest = self.b.select(differs, turned, rest);
        self.b.select(valid, rest, Val::float(f64::NAN, ty))
    }

    fn binary_int(
        &mut self,
        op: BinaryOp,
        a: Val,
        b: Val,
        elem: DType,
        positive: bool,
    ) -> Result<Val, Diagnostic> {
        let signed = elem.is_signed();
        Ok(match op {
            BinaryOp::Add => self.b.add(a, b),
            BinaryOp::Sub => self.b.sub(a, b),
            BinaryOp::Mul | BinaryOp::MulExact => self.b.mul(a, b),
            BinaryOp::MulHi => {
                let wide = Ty::int(2 * a.ty.bits());
                let (x, y) = (
                    self.b.resize(a, wide, signed),
                    self.b.resize(b, wide, signed),
                );
                let product = self.b.mul(x, y);
                let high = self.b.lshr(product, a.ty.bits());
                self.b.resize(high, a.ty, false)
            }
            BinaryOp::Div if signed => self.floor_div(a, b, positive),
            BinaryOp::Rem if signed => self.floor_rem(a, b, positive),
            BinaryOp::Div => {
                let b = self.nonzero(b);
                self.b.binary("udiv", a, b)
            }
            BinaryOp::Rem => {
                let b = self.nonzero(b);
                self.b.binary("urem", a, b)
            }
            BinaryOp::Min | BinaryOp::Max if elem == DType::Bool => match op {
                BinaryOp::Min => self.b.and(a, b),
                _ => self.b.or(a, b),
            },
            BinaryOp::Min => {
                let name = if signed { "llvm.smin" } else { "llvm.umin" };
                self.b.intrinsic(name, &[a, b])
            }
            BinaryOp::Max => {
                let name = if signed { "llvm.smax" } else { "llvm.umax" };
                self.b.intrinsic(name, &[a, b])
            }
            BinaryOp::And => self.b.and(a, b),
            BinaryOp::Or => self.b.or(a, b),
            BinaryOp::Xor => self.b.xor(a, b),
            BinaryOp::Shl | BinaryOp::Shr => self.shift(op, a, b, signed),
        })
    }

    /// By the width or more: zero, or the sign. LLVM leaves that undefined, so the count is bounded first.
    fn shift(&mut self, op: BinaryOp, a: Val, b: Val, signed: bool) -> Val {
        let width = a.ty.bits();
        let name = match (op, signed) {
            (BinaryOp::Shl, _) => "shl",
            (_, true) => "ashr",
            _ => "lshr",
        };
        if let Some(count) = b.as_int() {
            let inside = (0..width as i64).contains(&count);
            return match (inside, name) {
                (true, "shl") => self.b.shl(a, count as u32),
                (true, "ashr") => self.b.ashr(a, count as u32),
                (true, _) => self.b.lshr(a, count as u32),
                (false, "ashr") => self.b.ashr(a, width - 1),
                (false, _) => Val::int(0, a.ty),
            };
        }
        let last = Val::int(width as i64 - 1, a.ty);
        let bounded = self.b.intrinsic("llvm.umin", &[b, last]);
        let shifted = self.b.binary(name, a, bounded);
        if name == "ashr" {
            return shifted;
        }
        let inside = self.b.icmp("ule", b, last);
        self.b.select(inside, shifted, Val::int(0, a.ty))
    }

    /// The divisor, or 1 for 0: the quotient is unspecified then, but what stands around it is not.
    fn nonzero(&mut self, b: Val) -> Val {
        match b.as_int() {
            Some(0) => Val::int(1, b.ty),
            Some(_) => b,
            None => {
                let zero = self.b.icmp("eq", b, Val::int(0, b.ty));
                self.b.select(zero, Val::int(1, b.ty), b)
            }
        }
    }

    /// The quotient, rounded down. `positive`: neither operand is negative.
    pub fn floor_div(&mut self, a: Val, b: Val, positive: bool) -> Val {
        if let Some(divisor) = b.as_int()
            && divisor > 0
            && (divisor as u64).is_power_of_two()
        {
            return self.b.ashr(a, divisor.trailing_zeros());
        }
        if positive {
            let b = self.nonzero(b);
            return self.b.binary("udiv", a, b);
        }
        let (quotient, rest) = self.truncated(a, b);
        let down = self.rounds_down(rest, b);
        let less = self.b.cast("sext", down, a.ty);
        self.b.add(quotient, less)
    }

    /// The rest that belongs to the quotient rounded down: it has the divisor's sign.
    pub fn floor_rem(&mut self, a: Val, b: Val, positive: bool) -> Val {
        if let Some(divisor) = b.as_int()
            && divisor > 0
            && (divisor as u64).is_power_of_two()
        {
            return self.b.and(a, Val::int(divisor - 1, a.ty));
        }
        if positive {
            let b = self.nonzero(b);
            return self.b.binary("urem", a, b);
        }
        let (_, rest) = self.truncated(a, b);
        let down = self.rounds_down(rest, b);
        let back = self.b.select(down, b, Val::int(0, a.ty));
        self.b.add(rest, back)
    }

    /// Quotient and rest, rounded towards zero; for a divisor of 0 or −1 without what LLVM leaves undefined.
    fn truncated(&mut self, a: Val, b: Val) -> (Val, Val) {
        let safe = match b.as_int() {
            Some(-1) | Some(0) => Val::int(1, b.ty),
            Some(_) => b,
            None => {
                // −1, 0 and nothing else become 1.
                let next = self.b.add(b, Val::int(1, b.ty));
                let special = self.b.icmp("ult", next, Val::int(2, b.ty));
                self.b.select(special, Val::int(1, b.ty), b)
            }
        };
        let quotient = self.b.binary("sdiv", a, safe);
        let product = self.b.mul(quotient, safe);
        let rest = self.b.sub(a, product);
        let minus = self.b.icmp("eq", b, Val::int(-1, b.ty));
        let negated = self.b.sub(Val::int(0, a.ty), a);
        (self.b.select(minus, negated, quotient), rest)
    }

    fn rounds_down(&mut self, rest: Val, b: Val) -> Val {
        let signs = self.b.xor(rest, b);
        let differ = self.b.icmp("slt", signs, Val::int(0, b.ty));
        let some = self.b.icmp("ne", rest, Val::int(0, b.ty));
        self.b.and(differ, some)
    }

    pub fn compare(
        &mut self,
        op: CompareOp,
        a: Val,
        b: Val,
        elem: DType,
    ) -> Result<Val, Diagnostic> {
        if elem.is_float() {
            let (a, b) = if is_narrow(elem) {
                (
                    self.cast_all(&[a], elem, DType::F32)?[0],
                    self.cast_all(&[b], elem, DType::F32)?[0],
                )
            } else {
                (a, b)
            };
            let predicate = match op {
                CompareOp::Eq => "oeq",
                // Comparisons with NaN are false, this one too.
                CompareOp::Ne => "one",
                CompareOp::Lt => "olt",
                CompareOp::Le => "ole",
                CompareOp::Gt => "ogt",
                CompareOp::Ge => "oge",
            };
            return Ok(self.b.fcmp(predicate, a, b));
        }
        let signed = elem.is_signed();
        let predicate = match (op, signed) {
            (CompareOp::Eq, _) => "eq",
            (CompareOp::Ne, _) => "ne",
            (CompareOp::Lt, true) => "slt",
            (CompareOp::Le, true) => "sle",
            (CompareOp::Gt, true) => "sgt",
            (CompareOp::Ge, true) => "sge",
            (CompareOp::Lt, false) => "ult",
            (CompareOp::Le, false) => "ule",
            (CompareOp::Gt, false) => "ugt",
            (CompareOp::Ge, false) => "uge",
        };
        Ok(self.b.icmp(predicate, a, b))
    }

    /// `a * b + c`, rounded once.
    pub fn fma(&mut self, a: Val, b: Val, c: Val, elem: DType) -> Result<Val, Diagnostic> {
        if elem.is_int() {
            let product = self.b.mul(a, b);
            return Ok(self.b.add(product, c));
        }
        if !is_narrow(elem) {
            return Ok(self.b.intrinsic("llvm.fma", &[a, b, c]));
        }
        let mut wide = [a, b, c];
        for value in &mut wide {
            *value = self.cast_all(&[*value], elem, DType::F32)?[0];
        }
        let sum = self.b.intrinsic("llvm.fma", &wide);
        Ok(self.cast_all(&[sum], DType::F32, elem)?[0])
    }
}
