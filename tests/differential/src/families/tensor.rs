//! Bulk tensor copies (PTX ISA §9.7.9.27: `cp.async.bulk.tensor`, `cp.reduce.async.bulk.tensor`) in tile mode: ranks, types, swizzles, boxes that
//! reach outside, element strides.

use tesserine_emulator::tensor_map::{DataType, L2Promotion, OobFill, Swizzle};

use crate::{
    kind::{B32, B64, Bound, Draw, Element, Operand},
    snippet::{SM_90A, Snippet, Tensor},
};

const FAMILY: &str = "tensor";

/// Bytes of shared memory that a box may take; each thread looks at 32 of them.
const BOX: u32 = 4096;

/// A tensor without gaps but those that alignment asks for.
fn tensor(data_type: DataType, dims: &[u64], box_dim: &[u32], swizzle: Swizzle) -> Tensor {
    let size = data_type.bits() as u64 / 8;
    let mut strides = Vec::new();
    let mut stride = dims[0] * size;
    for extent in &dims[1..] {
        stride = stride.next_multiple_of(16);
        strides.push(stride);
        stride *= extent;
    }
    Tensor {
        data_type,
        dims: dims.to_vec(),
        strides,
        box_dim: box_dim.to_vec(),
        element_strides: vec![1; dims.len()],
        swizzle,
        promotion: L2Promotion::None,
        fill: OobFill::Zero,
        of: B64,
        // Stores reach the end of the last 16 bytes.
        words: 2 * (stride as usize).div_ceil(16),
        bound: Bound::Bits,
    }
}

impl Tensor {
    /// Bytes that a copy of a box counts.
    fn box_bytes(&self) -> u32 {
        let dims = self.box_dim.iter().zip(&self.element_strides).enumerate();
        let elements = dims.map(|(d, (b, s))| if d == 0 { *b } else { b.div_ceil(*s) });
        elements.product::<u32>() * self.data_type.bits() / 8
    }

    /// What a name says of it.
    fn remark(&self) -> String {
        let swizzle = match self.swizzle {
            Swizzle::None => String::new(),
            other => format!(", swizzle {other:?}"),
        };
        let strides = match self.element_strides.iter().all(|s| *s == 1) {
            true => String::new(),
            false => format!(", every {:?}", self.element_strides),
        };
        let fill = if self.fill == OobFill::Nan {
            ", NaN outside"
        } else {
            ""
        };
        format!(
            "{:?} {:?} of {:?}{swizzle}{strides}{fill}",
            self.data_type, self.box_dim, self.dims
        )
    }
}

/// Elements of 16 bytes: the innermost coordinate is a multiple of them.
fn grain(t: &Tensor) -> u32 {
    128 / t.data_type.bits()
}

/// The coordinates of a block's box: its thread 0's operands, from a few elements before the start on.
fn coordinates(t: &Tensor) -> (String, String) {
    let mut text = String::new();
    let mut names = Vec::new();
    let grain = grain(t);
    for d in 0..t.dims.len() {
        text += &match d {
            0 => format!(
                "and.b32 %r20, %i0, {};\nsub.s32 %r20, %r20, {grain};\n",
                !(grain - 1) as i32
            ),
            _ => format!("sub.s32 %r{}, %i{d}, 6;\n", 20 + d),
        };
        names.push(format!("%r{}", 20 + d));
    }
    (text, format!("{{{}}}", names.join(", ")))
}

/// A load of one box a block, at random coordinates; a copy that never ends is given up, and shows in the last output.
fn load(t: Tensor) -> Snippet {
    let rank = t.dims.len();
    let (setup, names) = coordinates(&t);
    let inputs: Vec<Operand> = t.dims.iter().map(|d| B32.below(d + 9)).collect();
    Snippet::new(FAMILY, format!("load {rank}d, {}", t.remark()))
        .since(SM_90A)
        .launch(24, 128)
        .takes(&inputs)
        .gives(B64, Bound::Bits)
        .gives(B64, Bound::Bits)
        .gives(B64, Bound::Bits)
        .gives(B64, Bound::Bits)
        .gives(B32, Bound::Bits)
        .shared(BOX + 64)
        .body(format!(
            "{setup}mov.u32 %r9, shared;\nadd.u32 %r10, %r9, {BOX};\nmad.lo.u32 %r0, %tid_, 32, %r9;\nst.shared.v4.b32 [%r0], {{-1, -1, -1, -1}};\nst.shared.v4.b32 [%r0+16], {{-1, -1, -1, -1}};\n\
             setp.eq.u32 %p9, %tid_, 0;\n@%p9 mbarrier.init.shared.b64 [%r10], 1;\nfence.proxy.async;\nbar.sync 0;\n@!%p9 bra wait_t;\n{FETCH}\
             mbarrier.arrive.expect_tx.shared.b64 _, [%r10], {};\ncp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes [%r9], [%raw, {names}], [%r10];\n\
             wait_t:\nmov.b32 %o4, 0;\nmov.u32 %r11, 0;\nspin_t:\nadd.u32 %r11, %r11, 1;\nsetp.gt.u32 %p1, %r11, 100000;\n@%p1 bra late_t;\nmbarrier.try_wait.parity.shared.b64 %p0, [%r10], 0;\n@%p0 bra read_t;\nbra spin_t;\n\
             late_t:\nmov.b32 %o4, 1;\nread_t:\nld.shared.v2.b64 {{%o0, %o1}}, [%r0];\nld.shared.v2.b64 {{%o2, %o3}}, [%r0+16];\nbar.sync 0;\n@%p9 mbarrier.inval.shared.b64 [%r10];",
            t.box_bytes()
        ))
        .tensor(t)
}

/// Makes the map visible to the copies' proxy: the host wrote it to global memory, not to a parameter (PTX ISA §9.7.13.4).
const FETCH: &str = "fence.proxy.tensormap::generic.acquire.sys [%raw], 128;\n";

/// Boxes of the threads' operands, side by side along the innermost dimension, stored or combined with what is there.
fn store(t: Tensor, op: Option<&str>) -> Snippet {
    let rank = t.dims.len();
    let size = t.box_dim[0];
    let mut setup = format!(
        "mov.u32 %r1, %ctaid.x;\nmul.lo.u32 %r20, %r1, {size};\nadd.s32 %r20, %r20, {};\n",
        grain(&t)
    );
    let mut names = vec!["%r20".to_string()];
    for d in 1..rank {
        // The box hangs over the end of some dimensions; stores begin inside.
        let at = if d % 2 == 1 { 1 } else { t.dims[d] as i64 - 2 };
        setup += &format!("mov.b32 %r{}, {at};\n", 20 + d);
        names.push(format!("%r{}", 20 + d));
    }
    let instruction = match op {
        None => format!("cp.async.bulk.tensor.{rank}d.global.shared::cta.bulk_group"),
        Some(op) => {
            format!("cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.{op}.tile.bulk_group")
        }
    };
    let name = match op {
        None => format!("store {rank}d, {}", t.remark()),
        Some(op) => format!("reduce {op} {rank}d, {}", t.remark()),
    };
    let blocks = (t.dims[0] as u32 + grain(&t)).div_ceil(size) + 1;
    Snippet::new(FAMILY, name)
        .since(SM_90A)
        .launch(blocks, 128)
        .takes(&[t.of; 4])
        .shared(BOX)
        .body(format!(
            "{setup}mov.u32 %r9, shared;\nmad.lo.u32 %r0, %tid_, 32, %r9;\nst.shared.v2.b64 [%r0], {{%i0, %i1}};\nst.shared.v2.b64 [%r0+16], {{%i2, %i3}};\nfence.proxy.async.shared::cta;\nbar.sync 0;\n\
             setp.ne.u32 %p9, %tid_, 0;\n@%p9 bra end_t;\n{FETCH}{instruction} [%raw, {{{}}}], [%r9];\ncp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\nend_t:",
            names.join(", ")
        ))
        .tensor(t)
}

fn floats(element: Element) -> Operand {
    Operand {
        width: 64,
        element,
        draw: Draw::Near,
    }
}

pub fn snippets() -> Vec<Snippet> {
    use DataType::*;
    let mut all = Vec::new();
    for (data_type, n, b) in [
        (Uint32, 300, 64),
        (Uint8, 1000, 256),
        (Float64, 200, 32),
        (Bfloat16, 77, 8),
    ] {
        all.push(load(tensor(data_type, &[n], &[b], Swizzle::None)));
        all.push(store(tensor(data_type, &[n], &[b], Swizzle::None), None));
    }
    for swizzle in [Swizzle::None, Swizzle::B32, Swizzle::B64, Swizzle::B128] {
        let span = swizzle.span().unwrap_or(64);
        for (data_type, size) in [
            (Uint8, 1),
            (Uint16, 2),
            (Float16, 2),
            (Bfloat16, 2),
            (Uint32, 4),
            (Float32, 4),
            (Tfloat32, 4),
            (Int64, 8),
        ] {
            let t = tensor(data_type, &[100, 40], &[span / size, 24], swizzle);
            all.push(load(t.clone()));
            all.push(store(t, None));
        }
        // A box narrower than the swizzle's span.
        all.push(load(tensor(Float16, &[100, 40], &[8, 20], swizzle)));
        all.push(load(tensor(
            Uint8,
            &[64, 6, 20],
            &[span.min(32), 3, 9],
            swizzle,
        )));
        all.push(store(
            tensor(Float32, &[40, 6, 20], &[8, 4, 8], swizzle),
            None,
        ));
        all.push(load(tensor(
            Uint16,
            &[40, 5, 4, 7],
            &[16, 2, 3, 4],
            swizzle,
        )));
        all.push(load(tensor(
            Float32,
            &[20, 5, 4, 3, 6],
            &[8, 2, 2, 2, 3],
            swizzle,
        )));
        all.push(store(
            tensor(Uint16, &[20, 5, 4, 3, 6], &[8, 2, 2, 2, 3], swizzle),
            None,
        ));
    }
    for (data_type, n) in [(Float16, 16), (Bfloat16, 16), (Float32, 16), (Float64, 8)] {
        let t = tensor(data_type, &[50, 20], &[n, 10], Swizzle::None);
        all.push(load(Tensor {
            fill: OobFill::Nan,
            ..t
        }));
    }
    for element_strides in [vec![1, 2], vec![1, 3], vec![1, 8]] {
        let t = tensor(Uint32, &[50, 60], &[16, 24], Swizzle::None);
        all.push(load(Tensor {
            element_strides,
            ..t
        }));
    }
    for promotion in [L2Promotion::B64, L2Promotion::B128, L2Promotion::B256] {
        let t = tensor(Uint16, &[104, 41], &[32, 16], Swizzle::B64);
        let snippet = load(Tensor { promotion, ..t });
        let name = format!("{}, promotion {promotion:?}", snippet.name);
        all.push(Snippet { name, ..snippet });
    }
    for swizzle in [Swizzle::None, Swizzle::B128] {
        for (data_type, ops) in [
            (
                Uint32,
                &["add", "min", "max", "inc", "dec", "and", "or", "xor"][..],
            ),
            (Int32, &["add", "min", "max"]),
            (Uint64, &["add", "min", "max", "and", "or", "xor"]),
            (Int64, &["min", "max"]),
        ] {
            for op in ops {
                let inner = 128 / (data_type.bits() / 8);
                all.push(store(
                    tensor(data_type, &[70, 20], &[inner, 8], swizzle),
                    Some(op),
                ));
            }
        }
        for (data_type, element, ops) in [
            (Float16, Element::F16, &["add", "min", "max"][..]),
            (Bfloat16, Element::Bf16, &["add", "min", "max"]),
            (Float32, Element::F32, &["add"]),
        ] {
            for op in ops {
                let inner = 128 / (data_type.bits() / 8);
                let t = tensor(data_type, &[70, 20], &[inner, 8], swizzle);
                let of = floats(element);
                all.push(store(
                    Tensor {
                        of,
                        bound: Bound::Numbers,
                        ..t
                    },
                    Some(op),
                ));
            }
        }
    }
    all.push(prefetch());
    all
}

fn prefetch() -> Snippet {
    Snippet::new(FAMILY, "prefetch.tensormap, cp.async.bulk.prefetch.tensor.2d")
        .since(SM_90A)
        .launch(1, 32)
        .takes(&[B32])
        .gives(B32, Bound::Bits)
        .body(
            "mov.b32 %o0, %i0;\nsetp.ne.u32 %p9, %tid_, 0;\n@%p9 bra end_t;\nprefetch.tensormap [%raw];\nmov.b32 %r20, 16;\ncp.async.bulk.prefetch.tensor.2d.L2.global [%raw, {%r20, %r20}];\nend_t:",
        )
        .refer_all(|x| vec![x[0].clone()])
        .tensor(tensor(DataType::Uint32, &[64, 8], &[16, 4], Swizzle::None))
}
