//! Casts between all element types, by the language's rules: floats to the nearest even, to the eight- and four-bit ones
//! saturating, to `ue8m0` upwards; floats to integers towards zero and saturating, NaN to 0; integers wrap.
//!
//! Where the target has a conversion it is used, else the same bits come from integer arithmetic.

use tesserine_set::DType;

use super::{
    builder::{BF16, Effect, F16, F32, F64, I1, I8, I16, I32, I64, Val},
    lower::{Lower, register_type},
    ptx_table,
};
use crate::{diagnostics::Diagnostic, target::legality::Instruction};

/// A float of eight bits or fewer, as far as rounding to it goes.
struct Small {
    /// Bits of mantissa.
    mantissa: u32,
    /// What its exponent is less than f32's.
    rebias: u32,
    /// The largest finite value.
    max: f32,
    /// The smallest normal value.
    min_normal: f32,
    /// Adding it to a subnormal value rounds that to the type's last place.
    magic: f32,
    nan: u32,
    sign: bool,
}

const E4M3: Small = Small {
    mantissa: 3,
    rebias: 120,
    max: 448.0,
    min_normal: 0.015625,
    magic: 16384.0,
    nan: 0x7F,
    sign: true,
};

const UE4M3: Small = Small {
    sign: false,
    ..E4M3
};

const E5M2: Small = Small {
    mantissa: 2,
    rebias: 112,
    max: 57344.0,
    min_normal: 6.103_515_6e-5,
    magic: 128.0,
    nan: 0x7F,
    sign: true,
};

impl Lower<'_> {
    /// Casts registers of one element type to another.
    pub fn cast_all(
        &mut self,
        values: &[Val],
        from: DType,
        to: DType,
    ) -> Result<Vec<Val>, Diagnostic> {
        if from == to {
            return Ok(values.to_vec());
        }
        // Halves and their like are rounded two at a time.
        if matches!(to, DType::F16 | DType::Bf16)
            && from.is_float()
            && from != DType::F64
            && values.len() > 1
            && self.may_use(Instruction::CvtPacked16)
        {
            let wide = self.cast_all(values, from, DType::F32)?;
            let ty = register_type(to);
            let mut out = Vec::with_capacity(values.len());
            for pair in wide.chunks(2) {
                match pair {
                    [_, _] => {
                        // A truncation of vectors would make LLVM compute in vectors all that leads there: on targets
                        // with instructions for two floats, values then wait for each other in registers.
                        let name = match to {
                            DType::F16 => "llvm.nvvm.ff2f16x2.rn",
                            _ => "llvm.nvvm.ff2bf16x2.rn",
                        };
                        let (ty, operands) = (Some(ty.vector(2)), [pair[1], pair[0]]);
                        let both = self.b.call(ty, name, &operands, Effect::Pure);
                        out.push(self.b.extract(both, 0));
                        out.push(self.b.extract(both, 1));
                    }
                    _ => out.push(self.b.cast("fptrunc", pair[0], ty)),
                }
            }
            return Ok(out);
        }
        if matches!(to, DType::E4m3 | DType::E5m2)
            && from.is_float()
            && self.may_use(Instruction::CvtFp8)
        {
            return self.round_to_fp8(values, from, to);
        }
        if to == DType::E2m1 && from.is_float() && self.may_use(Instruction::CvtFp4) {
            return self.round_to_fp4(values, from);
        }
        if matches!(from, DType::E4m3 | DType::E5m2)
            && to.is_float()
            && self.may_use(Instruction::CvtFp8)
        {
            let wide = self.widen_fp8(values, from);
            return self.cast_all(&wide, DType::F16, to);
        }
        values.iter().map(|&v| self.cast_one(v, from, to)).collect()
    }

    fn cast_one(&mut self, v: Val, from: DType, to: DType) -> Result<Val, Diagnostic> {
        match (from.is_float(), to.is_float()) {
            (true, true) => self.float_to_float(v, from, to),
            (true, false) => self.float_to_int(v, from, to),
            (false, true) => self.int_to_float(v, from, to),
            (false, false) => Ok(self.int_to_int(v, from, to)),
        }
    }

    fn int_to_int(&mut self, v: Val, from: DType, to: DType) -> Val {
        if matches!(to, DType::Bool | DType::U1) {
            return match v.ty {
                I1 => v,
                ty => self.b.icmp("ne", v, Val::int(0, ty)),
            };
        }
        let wide = self.b.resize(v, register_type(to), from.is_signed());
        match to {
            // Four bits live in eight, extended.
            DType::U4 => self.b.and(wide, Val::int(15, I8)),
            DType::I4 => {
                let up = self.b.shl(wide, 4);
                self.b.ashr(up, 4)
            }
            _ => wide,
        }
    }

    fn int_to_float(&mut self, v: Val, from: DType, to: DType) -> Result<Val, Diagnostic> {
        let op = if from.is_signed() { "sitofp" } else { "uitofp" };
        let bits = v.ty.bits();
        Ok(match to {
            DType::F64 => self.b.cast(op, v, F64),
            DType::F32 | DType::Tf32 => self.b.cast(op, v, F32),
            // Up to 16 bits are exact in f32, up to 32 in f64.
            _ if bits <= 16 => {
                let single = self.b.cast(op, v, F32);
                self.cast_all(&[single], DType::F32, to)?[0]
            }
            _ if bits <= 32 => {
                let double = self.b.cast(op, v, F64);
                self.cast_all(&[double], DType::F64, to)?[0]
            }
            _ => {
                // Of 64 bits, the lowest ones only tell whether there are any.
                let high = self.b.and(v, Val::int(!0x7FF, I64));
                let low = self.b.and(v, Val::int(0x7FF, I64));
                let some = self.b.icmp("ne", low, Val::int(0, I64));
                let sticky = self.b.select(some, Val::int(0x400, I64), Val::int(0, I64));
                let whole = self.b.or(high, sticky);
                let large = {
                    let up = self.b.add(v, Val::int(1 << 52, I64));
                    self.b.icmp("ugt", up, Val::int(1 << 53, I64))
                };
                let v = self.b.select(large, whole, v);
                let double = self.b.cast(op, v, F64);
                self.cast_all(&[double], DType::F64, to)?[0]
            }
        })
    }

    fn float_to_int(&mut self, v: Val, from: DType, to: DType) -> Result<Val, Diagnostic> {
        let wide = match from {
            DType::F64 => v,
            _ => self.cast_all(&[v], from, DType::F32)?[0],
        };
        if matches!(to, DType::Bool | DType::U1) {
            return Ok(self.b.fcmp("une", wide, Val::float(0.0, wide.ty)));
        }
        let (low, high, ty) = match to {
            DType::I4 => (-8.0, 7.0, I8),
            DType::U4 => (0.0, 15.0, I8),
            DType::I8 => (-128.0, 127.0, I8),
            DType::U8 => (0.0, 255.0, I8),
            DType::I16 => (-32768.0, 32767.0, I16),
            DType::U16 => (0.0, 65535.0, I16),
            _ => {
                let ty = register_type(to);
                let op = if to.is_signed() {
                    "fptosi.sat"
                } else {
                    "fptoui.sat"
                };
                let name = format!("llvm.{op}.{}.{}", ty.suffix(), wide.ty.suffix());
                return Ok(self.b.call(Some(ty), &name, &[wide], Effect::Pure));
            }
        };
        // A NaN becomes 0 before the bounds are applied, which would take the bound.
        let number = self.b.fcmp("ord", wide, wide);
        let bounded = self
            .b
            .intrinsic("llvm.maxnum", &[wide, Val::float(low, wide.ty)]);
        let bounded = self
            .b
            .intrinsic("llvm.minnum", &[bounded, Val::float(high, wide.ty)]);
        let bounded = self.b.select(number, bounded, Val::float(0.0, wide.ty));
        let whole = self.b.cast("fptosi", bounded, I32);
        Ok(self.b.resize(whole, ty, true))
    }

    fn float_to_float(&mut self, v: Val, from: DType, to: DType) -> Result<Val, Diagnostic> {
        if from == DType::F64 {
            return match to {
                DType::F32 | DType::Tf32 => Ok(self.b.cast("fptrunc", v, F32)),
                DType::F16 => Ok(self.b.cast("fptrunc", v, F16)),
                _ => {
                    let odd = self.round_to_odd(v)?;
                    Ok(self.cast_all(&[odd], DType::F32, to)?[0])
                }
            };
        }
        let single = self.widen_to_f32(v, from)?;
        self.round_from_f32(single, to)
    }

    /// f64 to f32 so that rounding once more gives what rounding once would: what is lost sets the last bit.
    fn round_to_odd(&mut self, v: Val) -> Result<Val, Diagnostic> {
        self.need(Instruction::CvtTowardsZero)?;
        let near = self
            .b
            .call(Some(F32), "llvm.nvvm.d2f.rz", &[v], Effect::Pure);
        let back = self.b.cast("fpext", near, F64);
        let lost = self.b.fcmp("one", back, v);
        let bit = self.b.cast("zext", lost, I32);
        let bits = self.b.bitcast(near, I32);
        let bits = self.b.or(bits, bit);
        Ok(self.b.bitcast(bits, F32))
    }

    /// Exact.
    fn widen_to_f32(&mut self, v: Val, from: DType) -> Result<Val, Diagnostic> {
        Ok(match from {
            DType::F32 | DType::Tf32 => v,
            DType::F64 => self.b.cast("fptrunc", v, F32),
            DType::F16 => self.b.cast("fpext", v, F32),
            DType::Bf16 => {
                // The upper half of an f32: one integer instruction on every target.
                let bits = self.b.bitcast(v, I16);
                let wide = self.b.cast("zext", bits, I32);
                let up = self.b.shl(wide, 16);
                self.b.bitcast(up, F32)
            }
            DType::E5m2 => {
                // The upper half of an f16.
                let wide = self.b.cast("zext", v, I16);
                let up = self.b.shl(wide, 8);
                let half = self.b.bitcast(up, F16);
                self.b.cast("fpext", half, F32)
            }
            DType::E4m3 | DType::Ue4m3 => {
                let wide = self.b.cast("zext", v, I32);
                let size = self.b.and(wide, Val::i32(0x7F));
                let small = self.scaled(size, 20, 120);
                let nan = self.b.icmp("eq", size, Val::i32(0x7F));
                let value = self.b.select(nan, Val::float(f64::NAN, F32), small);
                match from {
                    DType::E4m3 => self.signed(value, wide, 7),
                    _ => value,
                }
            }
            DType::E2m1 => {
                let wide = self.b.cast("zext", v, I32);
                let size = self.b.and(wide, Val::i32(7));
                let value = self.scaled(size, 22, 126);
                self.signed(value, wide, 3)
            }
            DType::Ue8m0 => {
                let wide = self.b.cast("zext", v, I32);
                let power = self.b.shl(wide, 23);
                let least = self.b.icmp("eq", wide, Val::i32(0));
                let nan = self.b.icmp("eq", wide, Val::i32(255));
                // 2⁻¹²⁷ is subnormal in f32.
                let bits = self.b.select(least, Val::i32(0x0040_0000), power);
                let bits = self.b.select(nan, Val::i32(0x7FC0_0000), bits);
                self.b.bitcast(bits, F32)
            }
            other => unreachable!("{other} is no float"),
        })
    }

    /// Bits of a small float as an f32: shifted into place, then multiplied by the difference of the exponents' biases,
    /// which also makes subnormal values right.
    fn scaled(&mut self, bits: Val, shift: u32, rebias: i32) -> Val {
        let up = self.b.shl(bits, shift);
        let value = self.b.bitcast(up, F32);
        self.b
            .binary("fmul", value, Val::float(2f64.powi(rebias), F32))
    }

    /// `value` with bit `bit` of `bits` as its sign.
    fn signed(&mut self, value: Val, bits: Val, bit: u32) -> Val {
        let sign = self.b.shl(bits, 31 - bit);
        let sign = self.b.and(sign, Val::int(i32::MIN as i64, I32));
        let value = self.b.bitcast(value, I32);
        let value = self.b.or(value, sign);
        self.b.bitcast(value, F32)
    }

    /// Rounds once.
    fn round_from_f32(&mut self, v: Val, to: DType) -> Result<Val, Diagnostic> {
        Ok(match to {
            DType::F32 | DType::Tf32 => v,
            DType::F64 => self.b.cast("fpext", v, F64),
            DType::F16 => self.b.cast("fptrunc", v, F16),
            DType::Bf16 if self.may_use(Instruction::CvtBf16) => self.b.cast("fptrunc", v, BF16),
            DType::Bf16 => {
                let bits = self.b.bitcast(v, I32);
                let odd = self.b.lshr(bits, 16);
                let odd = self.b.and(odd, Val::i32(1));
                let up = self.b.add(bits, Val::i32(0x7FFF));
                let up = self.b.add(up, odd);
                let rounded = self.b.lshr(up, 16);
                let number = self.b.fcmp("ord", v, v);
                let bits = self.b.select(number, rounded, Val::i32(0x7FFF));
                let half = self.b.resize(bits, I16, false);
                self.b.bitcast(half, BF16)
            }
            DType::E4m3 => self.round_to_small(v, &E4M3),
            DType::Ue4m3 => self.round_to_small(v, &UE4M3),
            DType::E5m2 => self.round_to_small(v, &E5M2),
            DType::E2m1 => self.round_to_e2m1(v),
            DType::Ue8m0 => {
                let bits = self.b.bitcast(v, I32);
                let exponent = self.b.lshr(bits, 23);
                let mantissa = self.b.and(bits, Val::i32(0x007F_FFFF));
                let some = self.b.icmp("ne", mantissa, Val::i32(0));
                let some = self.b.cast("zext", some, I32);
                let up = self.b.add(exponent, some);
                let up = self.b.intrinsic("llvm.umin", &[up, Val::i32(254)]);
                // Up to 2⁻¹²⁷, and everything that is not positive.
                let low = self.b.icmp("sle", bits, Val::i32(0x0040_0000));
                let power = self.b.select(low, Val::i32(0), up);
                let number = self.b.fcmp("ord", v, v);
                let power = self.b.select(number, power, Val::i32(255));
                self.b.resize(power, I8, false)
            }
            other => unreachable!("{other} is no float"),
        })
    }

    fn round_to_small(&mut self, v: Val, small: &Small) -> Val {
        let bits = self.b.bitcast(v, I32);
        let size = if small.sign {
            self.b.intrinsic("llvm.fabs", &[v])
        } else {
            self.b.intrinsic("llvm.maxnum", &[v, Val::f32(0.0)])
        };
        let size = self
            .b
            .intrinsic("llvm.minnum", &[size, Val::f32(small.max)]);
        let shift = 23 - small.mantissa;
        let plain = self.b.bitcast(size, I32);
        let odd = self.b.lshr(plain, shift);
        let odd = self.b.and(odd, Val::i32(1));
        let up = self.b.add(plain, Val::i32((1 << (shift - 1)) - 1));
        let up = self.b.add(up, odd);
        let normal = self.b.lshr(up, shift);
        let normal = self.b.sub(normal, Val::i32(small.rebias << small.mantissa));
        let sum = self.b.binary("fadd", size, Val::f32(small.magic));
        let sum = self.b.bitcast(sum, I32);
        let subnormal = self.b.sub(sum, Val::i32(small.magic.to_bits()));
        let is_small = self.b.fcmp("olt", size, Val::f32(small.min_normal));
        let code = self.b.select(is_small, subnormal, normal);
        let code = if small.sign {
            let sign = self.b.lshr(bits, 31);
            let sign = self.b.shl(sign, 7);
            self.b.or(code, sign)
        } else {
            code
        };
        let number = self.b.fcmp("ord", v, v);
        let code = self.b.select(number, code, Val::i32(small.nan));
        self.b.resize(code, I8, false)
    }

    /// Adding 2^(22 + e) to a size of exponent e rounds it to the type's last place there and leaves how many such places it has in the low bits:
    /// up to 2 those are the code, and each exponent after that has two codes for four places.
    fn round_to_e2m1(&mut self, v: Val) -> Val {
        let one = 1.0f32.to_bits();
        let places = 22 << 23;
        let size = self.b.intrinsic("llvm.fabs", &[v]);
        let size = self.b.intrinsic("llvm.minnum", &[size, Val::f32(6.0)]);
        let plain = self.b.bitcast(size, I32);
        let exponent = self.b.and(plain, Val::i32(0x7F80_0000));
        let exponent = self.b.intrinsic("llvm.umax", &[exponent, Val::i32(one)]);
        let magic = self.b.add(exponent, Val::i32(places));
        let magic = self.b.bitcast(magic, F32);
        let sum = self.b.binary("fadd", size, magic);
        let sum = self.b.bitcast(sum, I32);
        let code = self.b.sub(sum, exponent);
        let skipped = self.b.lshr(exponent, 22);
        let code = self.b.add(code, skipped);
        let code = self.b.sub(code, Val::i32(places + (one >> 22)));
        let sign = self.b.bitcast(v, I32);
        let sign = self.b.lshr(sign, 28);
        let sign = self.b.and(sign, Val::i32(8));
        let code = self.b.or(code, sign);
        let number = self.b.fcmp("ord", v, v);
        let code = self.b.select(number, code, Val::i32(7));
        self.b.resize(code, I8, false)
    }

    /// Through the instruction that rounds two at a time, to four bits each.
    fn round_to_fp4(&mut self, values: &[Val], from: DType) -> Result<Vec<Val>, Diagnostic> {
        let wide = self.rounded_to_f32_once(values, from)?;
        let template = ptx_table::to_fp4();
        let mut out = Vec::with_capacity(wide.len());
        for pair in wide.chunks(2) {
            let low = pair[0];
            let high = *pair.last().expect("chunks are not empty");
            let word = self.b.asm(
                &template.text,
                &template.constraints,
                &[I32],
                &[high, low],
                Effect::Pure,
            )[0];
            let first = self.b.and(word, Val::i32(15));
            out.push(self.b.resize(first, I8, false));
            if pair.len() == 2 {
                let second = self.b.lshr(word, 4);
                let second = self.b.and(second, Val::i32(15));
                out.push(self.b.resize(second, I8, false));
            }
        }
        Ok(out)
    }

    /// To f32, so that what is rounded from there to fewer bits is as if rounded once.
    fn rounded_to_f32_once(&mut self, values: &[Val], from: DType) -> Result<Vec<Val>, Diagnostic> {
        match from {
            DType::F64 => values.iter().map(|&v| self.round_to_odd(v)).collect(),
            _ => self.cast_all(values, from, DType::F32),
        }
    }

    /// Through the instruction that rounds two at a time.
    fn round_to_fp8(
        &mut self,
        values: &[Val],
        from: DType,
        to: DType,
    ) -> Result<Vec<Val>, Diagnostic> {
        let wide = self.rounded_to_f32_once(values, from)?;
        let kind = if to == DType::E4m3 {
            "e4m3x2"
        } else {
            "e5m2x2"
        };
        let template = ptx_table::to_fp8(kind);
        let mut out = Vec::with_capacity(wide.len());
        for pair in wide.chunks(2) {
            let low = pair[0];
            let high = *pair.last().expect("chunks are not empty");
            let word = self.b.asm(
                &template.text,
                &template.constraints,
                &[I32],
                &[high, low],
                Effect::Pure,
            )[0];
            out.push(self.b.resize(word, I8, false));
            if pair.len() == 2 {
                let upper = self.b.lshr(word, 8);
                out.push(self.b.resize(upper, I8, false));
            }
        }
        Ok(out)
    }

    /// Exactly, to f16, through the instruction that takes two at a time.
    fn widen_fp8(&mut self, values: &[Val], from: DType) -> Vec<Val> {
        let kind = if from == DType::E4m3 {
            "e4m3x2"
        } else {
            "e5m2x2"
        };
        let template = ptx_table::from_fp8(kind);
        let mut out = Vec::with_capacity(values.len());
        for pair in values.chunks(2) {
            let word = self.pack(pair, from)[0];
            let both = self.b.asm(
                &template.text,
                &template.constraints,
                &[I32],
                &[word],
                Effect::Pure,
            )[0];
            let both = self.b.bitcast(both, F16.vector(2));
            out.extend((0..pair.len()).map(|i| self.b.extract(both, i)));
        }
        out
    }
}
