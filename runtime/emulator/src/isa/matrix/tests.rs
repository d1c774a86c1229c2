//! Products against naive ones, with each element's place written as the ISA gives it: a formula in the element's number, the group
//! (`lane >> 2`) and the thread in the group (`lane & 3`).

use super::element::{Accumulator, Element};
use super::mma::{BitProduct, Mma};
use super::wgmma::{Descriptor, Left, Swizzle, Wgmma};

/// A generator of small numbers: a linear congruence, upper bits.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// The bits of a small integer in a format.
fn encode(element: Element, x: i32) -> u32 {
    let float = |exponent_bits: u32, fraction_bits: u32| {
        if x == 0 {
            return 0;
        }
        let magnitude = x.unsigned_abs();
        let log = magnitude.ilog2();
        let fraction = (magnitude << fraction_bits >> log) & ((1 << fraction_bits) - 1);
        let bias = (1 << (exponent_bits - 1)) - 1;
        let sign = u32::from(x < 0) << (exponent_bits + fraction_bits);
        sign | (log + bias) << fraction_bits | fraction
    };
    match element {
        Element::F16 => float(5, 10),
        Element::Bf16 => float(8, 7),
        // The lower 13 bits are not looked at.
        Element::Tf32 => float(8, 23) | 0x1abc,
        Element::E4m3 => float(4, 3),
        Element::E5m2 => float(5, 2),
        Element::S8 | Element::U8 => x as u8 as u32,
        Element::S4 | Element::U4 => x as u32 & 15,
        Element::B1 => x as u32 & 1,
        Element::F64 => panic!("of 64 bits"),
    }
}

fn random(element: Element, numbers: &mut Numbers) -> i32 {
    let x = match element {
        Element::U8 | Element::U4 => numbers.below(16) as i32,
        Element::S8 | Element::S4 => numbers.below(16) as i32 - 8,
        Element::B1 => numbers.below(2) as i32,
        _ => numbers.below(9) as i32 - 4,
    };
    if element == Element::U8 && x == 15 {
        255
    } else {
        x
    }
}

/// Row and column of A's element `i` (PTX ISA §9.7.14.5.1 to .13, "Matrix Fragments").
fn place_a(m: usize, k: usize, bits: usize, i: usize, lane: usize) -> (usize, usize) {
    let (group, thread) = (lane >> 2, lane & 3);
    match (m, k, bits) {
        // m16n8k8, .f16 and .bf16.
        (16, 8, 16) => (if i < 2 { group } else { group + 8 }, thread * 2 + (i & 1)),
        // m16n8k16, .f16 and .bf16.
        (16, 16, 16) => (
            if i < 2 || (4..6).contains(&i) {
                group
            } else {
                group + 8
            },
            thread * 2 + (i & 1) + if i >= 4 { 8 } else { 0 },
        ),
        // m16n8k4 and m16n8k8, .tf32.
        (16, 4, 32) => (if i == 0 { group } else { group + 8 }, thread),
        (16, 8, 32) => (
            if i == 0 || i == 2 { group } else { group + 8 },
            if i < 2 { thread } else { thread + 4 },
        ),
        // m8n8k16, m16n8k16 and m16n8k32 of 8 bits.
        (8, 16, 8) => (group, thread * 4 + i),
        (16, 16, 8) => (if i < 4 { group } else { group + 8 }, thread * 4 + (i & 3)),
        (16, 32, 8) => (
            if i < 4 || (8..12).contains(&i) {
                group
            } else {
                group + 8
            },
            thread * 4 + (i & 3) + if i >= 8 { 16 } else { 0 },
        ),
        // m8n8k32, m16n8k32 and m16n8k64 of 4 bits.
        (8, 32, 4) => (group, thread * 8 + i),
        (16, 32, 4) => (if i < 8 { group } else { group + 8 }, thread * 8 + (i & 7)),
        (16, 64, 4) => (
            if i < 8 || (16..24).contains(&i) {
                group
            } else {
                group + 8
            },
            thread * 8 + (i & 7) + if i >= 16 { 32 } else { 0 },
        ),
        // m8n8k128, m16n8k128 and m16n8k256 of single bits.
        (8, 128, 1) => (group, thread * 32 + i),
        (16, 128, 1) => (
            if i < 32 { group } else { group + 8 },
            thread * 32 + (i & 31),
        ),
        (16, 256, 1) => (
            if i < 32 || (64..96).contains(&i) {
                group
            } else {
                group + 8
            },
            thread * 32 + (i & 31) + if i >= 64 { 128 } else { 0 },
        ),
        // m8n8k4 and m16n8k4, m16n8k8, m16n8k16 of .f64.
        (8, 4, 64) => (group, thread),
        (16, _, 64) => (
            if i.is_multiple_of(2) {
                group
            } else {
                group + 8
            },
            i / 2 * 4 + thread,
        ),
        other => panic!("{other:?}"),
    }
}

/// Row and column of B's element `i`.
fn place_b(k: usize, bits: usize, i: usize, lane: usize) -> (usize, usize) {
    let (group, thread) = (lane >> 2, lane & 3);
    let row = match (k, bits) {
        (8, 16) => thread * 2 + i,
        (16, 16) => thread * 2 + (i & 1) + if i >= 2 { 8 } else { 0 },
        (4, 32) => thread,
        (8, 32) => {
            if i == 0 {
                thread
            } else {
                thread + 4
            }
        }
        (16, 8) => thread * 4 + i,
        (32, 8) => thread * 4 + (i & 3) + if i >= 4 { 16 } else { 0 },
        (32, 4) => thread * 8 + i,
        (64, 4) => thread * 8 + (i & 7) + if i >= 8 { 32 } else { 0 },
        (128, 1) => thread * 32 + i,
        (256, 1) => thread * 32 + (i & 31) + if i >= 32 { 128 } else { 0 },
        (_, 64) => thread + 4 * i,
        other => panic!("{other:?}"),
    };
    (row, group)
}

/// Row and column of C's or D's element `i`.
fn place_c(i: usize, lane: usize) -> (usize, usize) {
    let row = if i < 2 { lane >> 2 } else { (lane >> 2) + 8 };
    (row, (lane & 3) * 2 + (i & 1))
}

/// Puts elements of `bits` bits into registers, element `i` of a lane from `of(i, lane)`.
fn pack(registers: usize, bits: usize, of: impl Fn(usize, usize) -> u32) -> Vec<[u32; 32]> {
    let per = 32 / bits;
    (0..registers)
        .map(|r| {
            std::array::from_fn(|lane| {
                (0..per).fold(0, |word, i| word | of(r * per + i, lane) << (bits * i))
            })
        })
        .collect()
}

fn accumulator_bits(of: Accumulator, x: i32) -> u32 {
    match of {
        Accumulator::F16 => encode(Element::F16, x),
        Accumulator::F32 => (x as f32).to_bits(),
        Accumulator::S32 => x as u32,
        Accumulator::F64 => panic!("of 64 bits"),
    }
}

fn pack_accumulator(
    registers: usize,
    of: Accumulator,
    element: impl Fn(usize, usize) -> i32,
) -> Vec<[u32; 32]> {
    let bits = 32 / of.per_register();
    pack(registers, bits, |i, lane| {
        accumulator_bits(of, element(i, lane))
    })
}

fn check(mma: Mma, numbers: &mut Numbers) {
    assert!(mma.first_target().is_some(), "{mma:?}");
    let (m, k, bits) = (mma.m, mma.k, mma.a.bits());
    let a: Vec<i32> = (0..m * k).map(|_| random(mma.a, numbers)).collect();
    let b: Vec<i32> = (0..k * 8).map(|_| random(mma.b, numbers)).collect();
    let c: Vec<i32> = (0..m * 8).map(|_| numbers.below(100) as i32 - 50).collect();
    let expected = |row: usize, column: usize| {
        let products = (0..k).map(|i| {
            let (x, y) = (a[row * k + i], b[i * 8 + column]);
            match (mma.a, mma.bits) {
                (Element::B1, BitProduct::Xor) => x ^ y,
                (Element::B1, BitProduct::And) => x & y,
                _ => x * y,
            }
        });
        products.sum::<i32>() + c[row * 8 + column]
    };
    let a = pack(mma.a_registers(), bits, |i, lane| {
        let (row, column) = place_a(m, k, bits, i, lane);
        encode(mma.a, a[row * k + column])
    });
    let right = pack(mma.b_registers(), bits, |i, lane| {
        let (row, column) = place_b(k, bits, i, lane);
        encode(mma.b, b[row * 8 + column])
    });
    let place = |i, lane| {
        let (row, column) = place_c(i, lane);
        row * 8 + column
    };
    let start = pack_accumulator(mma.accumulator_registers(mma.c), mma.c, |i, lane| {
        c[place(i, lane)]
    });
    let count = mma.accumulator_registers(mma.d);
    let want = pack_accumulator(count, mma.d, |i, lane| {
        let (row, column) = place_c(i, lane);
        expected(row, column)
    });
    let mut got = vec![[0; 32]; count];
    mma.run(&a, &right, &start, &mut got);
    assert_eq!(got, want, "{mma:?}");
}

const PLAIN: Mma = Mma {
    m: 16,
    k: 16,
    a: Element::F16,
    b: Element::F16,
    c: Accumulator::F32,
    d: Accumulator::F32,
    saturate: false,
    bits: BitProduct::Xor,
};

#[test]
fn every_shape_and_type_is_the_naive_product() {
    use Accumulator as D;
    use Element::*;
    let mut numbers = Numbers(7);
    let mut done = 0;
    let elements = [F16, Bf16, Tf32, E4m3, E5m2, S8, U8, S4, U4, B1];
    for (a, b) in elements
        .iter()
        .flat_map(|&a| elements.iter().map(move |&b| (a, b)))
    {
        for (m, k) in [8, 16]
            .into_iter()
            .flat_map(|m| [4, 8, 16, 32, 64, 128, 256].map(|k| (m, k)))
        {
            for (c, d) in [(D::F32, D::F32), (D::F16, D::F16), (D::S32, D::S32)] {
                for bits in [BitProduct::Xor, BitProduct::And] {
                    let mma = Mma {
                        m,
                        k,
                        a,
                        b,
                        c,
                        d,
                        bits,
                        ..PLAIN
                    };
                    if mma.first_target().is_some() {
                        check(mma, &mut numbers);
                        done += 1;
                    }
                }
            }
        }
    }
    // Twice, for either product of bits: .f16 2 x 2, .bf16 2, .tf32 2, 8-bit floats 4 x 2 x 2, 8-bit integers 4 x 3, 4-bit ones 4 x 3, and
    // three shapes of single bits.
    assert_eq!(done, 2 * (4 + 2 + 2 + 16 + 12 + 12 + 3));
}

#[test]
fn every_element_meets_its_partners_only() {
    let one = encode(Element::Bf16, 1);
    let mma = Mma {
        a: Element::Bf16,
        b: Element::Bf16,
        ..PLAIN
    };
    for (i, k) in (0..16).flat_map(|i| (0..16).map(move |k| (i, k))) {
        let a = pack(4, 16, |e, lane| {
            u32::from(place_a(16, 16, 16, e, lane) == (i, k)) * one
        });
        // Row k of B is 16 k + column; numbers below 256 are exact.
        let b = pack(2, 16, |e, lane| {
            let (row, column) = place_b(16, 16, e, lane);
            encode(Element::Bf16, (16 * row + column) as i32)
        });
        let mut d = [[0; 32]; 4];
        mma.run(&a, &b, &[[0; 32]; 4], &mut d);
        for (register, lane) in (0..4).flat_map(|r| (0..32).map(move |l| (r, l))) {
            let (row, column) = place_c(register, lane);
            let want = if row == i {
                (16 * k + column) as f32
            } else {
                0.0
            };
            assert_eq!(f32::from_bits(d[register][lane]), want);
        }
    }
}

#[test]
fn doubles_are_the_naive_product() {
    let mut numbers = Numbers(3);
    for (m, k) in [(8, 4), (16, 4), (16, 8), (16, 16)] {
        let mma = Mma {
            m,
            k,
            a: Element::F64,
            b: Element::F64,
            c: Accumulator::F64,
            d: Accumulator::F64,
            ..PLAIN
        };
        assert_eq!(mma.first_target(), Some(if m == 8 { 80 } else { 90 }));
        let mut matrix = |rows: usize, columns: usize| -> Vec<f64> {
            (0..rows * columns)
                .map(|_| numbers.below(1000) as f64 - 500.0)
                .collect()
        };
        let (a, b, c) = (matrix(m, k), matrix(k, 8), matrix(m, 8));
        let pack = |count: usize, of: &dyn Fn(usize, usize) -> f64| -> Vec<[u64; 32]> {
            (0..count)
                .map(|r| std::array::from_fn(|lane| of(r, lane).to_bits()))
                .collect()
        };
        let left = pack(mma.a_registers(), &|i, lane| {
            let (row, column) = place_a(m, k, 64, i, lane);
            a[row * k + column]
        });
        let right = pack(mma.b_registers(), &|i, lane| {
            let (row, column) = place_b(k, 64, i, lane);
            b[row * 8 + column]
        });
        let place = |i, lane| {
            let (row, column) = place_c(i, lane);
            (row, column)
        };
        let count = mma.accumulator_registers(Accumulator::F64);
        let start = pack(count, &|i, lane| {
            let (row, column) = place(i, lane);
            c[row * 8 + column]
        });
        let want = pack(count, &|i, lane| {
            let (row, column) = place(i, lane);
            let sum: f64 = (0..k).map(|x| a[row * k + x] * b[x * 8 + column]).sum();
            sum + c[row * 8 + column]
        });
        let mut got = vec![[0; 32]; count];
        mma.run_doubles(&left, &right, &start, &mut got);
        assert_eq!(got, want);
    }
}

#[test]
fn integers_wrap_or_saturate() {
    for saturate in [false, true] {
        let mma = Mma {
            k: 32,
            a: Element::S8,
            b: Element::U8,
            c: Accumulator::S32,
            d: Accumulator::S32,
            saturate,
            ..PLAIN
        };
        let ones = [[0x0101_0101; 32]; 4];
        let mut d = [[0; 32]; 4];
        mma.run(&ones, &ones[..2], &[[i32::MAX as u32 - 31; 32]; 4], &mut d);
        let want = if saturate { i32::MAX } else { i32::MIN };
        assert_eq!(d, [[want as u32; 32]; 4]);
        let minus = [[0xffff_ffff; 32]; 4];
        mma.run(&minus, &ones[..2], &[[i32::MIN as u32 + 31; 32]; 4], &mut d);
        let want = if saturate { i32::MIN } else { i32::MAX };
        assert_eq!(d, [[want as u32; 32]; 4]);
    }
}

#[test]
fn sums_round_once_and_special_values_pass() {
    // 2^24 + 1 + 1 is a number of f32; each sum rounded by itself would stay at 2^24.
    let one = [[0x3c00_3c00; 32]; 4];
    let mut d = [[0; 32]; 4];
    let c = [[16_777_216_f32.to_bits(); 32]; 4];
    PLAIN.run(&one, &one[..2], &c, &mut d);
    assert_eq!(d, [[16_777_232_f32.to_bits(); 32]; 4]);
    let infinity = [[0x7c00_3c00; 32]; 4];
    PLAIN.run(&infinity, &one[..2], &c, &mut d);
    assert_eq!(d, [[f32::INFINITY.to_bits(); 32]; 4]);
    PLAIN.run(&infinity, &[[0; 32]; 2], &c, &mut d);
    assert_eq!(d, [[0x7fff_ffff; 32]; 4]);
    // The least subnormal of .f16, 2^-24, is not flushed.
    PLAIN.run(&[[1; 32]; 4], &[[0x3c00; 32]; 2], &[[0; 32]; 4], &mut d);
    assert_eq!(d, [[(8.0 * 2_f32.powi(-24)).to_bits(); 32]; 4]);
}

#[test]
fn what_the_isa_lacks_is_refused() {
    let lacking = [
        Mma { m: 8, ..PLAIN },
        Mma { k: 32, ..PLAIN },
        Mma {
            b: Element::Bf16,
            ..PLAIN
        },
        Mma {
            saturate: true,
            ..PLAIN
        },
        Mma {
            d: Accumulator::S32,
            ..PLAIN
        },
        Mma {
            d: Accumulator::F16,
            ..PLAIN
        },
    ];
    for mma in lacking {
        assert_eq!(mma.first_target(), None, "{mma:?}");
    }
}

/// Byte address of element (mn, k) of `bits` bits, relative to the start, in the canonical layouts of PTX ISA §9.7.15.5.1, written as the
/// nested shapes and strides by which NVIDIA's documents name them; `t` is the count of elements of 128 bits.
fn canonical(
    swizzle: Swizzle,
    k_major: bool,
    bits: usize,
    (leading, stride): (usize, usize),
    (mn, k): (usize, usize),
) -> usize {
    let t = 128 / bits;
    let width = match swizzle {
        Swizzle::None => 1,
        Swizzle::Bytes32 => 2,
        Swizzle::Bytes64 => 4,
        Swizzle::Bytes128 => 8,
    };
    let bytes = |elements: usize| elements * bits / 8;
    let linear = match (k_major, swizzle) {
        // ((8, m), (t, 2)) : ((t, stride), (1, leading))
        (true, Swizzle::None) => {
            mn % 8 * bytes(t) + mn / 8 * stride + bytes(k % t) + k / t * leading
        }
        // ((8, m), (t, 2)) : ((width t, stride), (1, t))
        (true, _) => mn % 8 * bytes(width * t) + mn / 8 * stride + bytes(k),
        // ((t, 1, m), (8, k)) : ((1, t, stride), (t, leading))
        (false, Swizzle::None) => {
            bytes(mn % t) + mn / t * stride + k % 8 * bytes(t) + k / 8 * leading
        }
        // ((t, width, m), (8, k)) : ((1, t, leading), (width t, stride))
        (false, _) => {
            bytes(mn % (width * t))
                + mn / (width * t) * leading
                + k % 8 * bytes(width * t)
                + k / 8 * stride
        }
    };
    // Which 16 bytes of the row of 128: exclusive or with the row of 128 within the pattern of 1024, 512 or 256.
    let (row, column) = (linear / 128, linear / 16 % 8);
    row * 128 + (column ^ (row % width)) * 16 + linear % 16
}

/// Sets `bits` bits of memory: an element at a byte, `bit` bits further.
fn put(memory: &mut [u8], at: usize, element: Element, index: usize, x: i32) {
    let bits = encode(element, x);
    match element.bits() {
        1 => memory[at] |= (bits << (index % 8)) as u8,
        8 => memory[at] = bits as u8,
        16 => memory[at..at + 2].copy_from_slice(&(bits as u16).to_le_bytes()),
        _ => memory[at..at + 4].copy_from_slice(&bits.to_le_bytes()),
    }
}

/// An operand of `count` rows (of A) or columns (of B) in memory, and the bits of its descriptor.
fn place_operand(
    memory: &mut [u8],
    start: usize,
    swizzle: Swizzle,
    k_major: bool,
    element: Element,
    count: usize,
    of: impl Fn(usize, usize) -> i32,
) -> u64 {
    let k_extent = 256 / element.bits();
    let width: usize = match swizzle {
        Swizzle::None => 16,
        Swizzle::Bytes32 => 32,
        Swizzle::Bytes64 => 64,
        Swizzle::Bytes128 => 128,
    };
    // An atom is 8 rows of `width` bytes. Groups of atoms lie apart by one more atom than they need.
    let atom = 8 * width;
    let (leading, stride) = match (k_major, swizzle) {
        (true, Swizzle::None) => (atom, 2 * atom),
        (true, _) => (16, atom),
        (false, Swizzle::None) => (64 * atom, atom),
        (false, _) => (2 * atom, atom),
    };
    for (mn, k) in (0..count).flat_map(|mn| (0..k_extent).map(move |k| (mn, k))) {
        let at = canonical(swizzle, k_major, element.bits(), (leading, stride), (mn, k));
        put(memory, start + at, element, k, of(mn, k));
    }
    let mode = match swizzle {
        Swizzle::None => 0_u64,
        Swizzle::Bytes128 => 1,
        Swizzle::Bytes64 => 2,
        Swizzle::Bytes32 => 3,
    };
    (start as u64 >> 4) | (leading as u64 >> 4) << 16 | (stride as u64 >> 4) << 32 | mode << 62
}

fn check_group(wgmma: Wgmma, swizzles: [Swizzle; 2], in_registers: bool, numbers: &mut Numbers) {
    wgmma.check().unwrap();
    let (n, k) = (wgmma.n, wgmma.k());
    let a: Vec<i32> = (0..64 * k).map(|_| random(wgmma.a, numbers)).collect();
    let b: Vec<i32> = (0..n * k).map(|_| random(wgmma.b, numbers)).collect();
    let c: Vec<i32> = (0..64 * n)
        .map(|_| numbers.below(100) as i32 - 50)
        .collect();
    let mut memory = vec![0; 1 << 18];
    let descriptor_a = place_operand(
        &mut memory,
        1 << 10,
        swizzles[0],
        !wgmma.transpose_a,
        wgmma.a,
        64,
        |row, i| a[row * k + i],
    );
    let descriptor_b = place_operand(
        &mut memory,
        1 << 17,
        swizzles[1],
        !wgmma.transpose_b,
        wgmma.b,
        n,
        |column, i| b[column * k + i],
    );
    let registers: Vec<[[u32; 32]; 4]> = (0..4)
        .map(|warp| {
            let packed = pack(4, wgmma.a.bits(), |i, lane| {
                let (row, column) = place_a(16, k, wgmma.a.bits(), i, lane);
                encode(wgmma.a, a[(16 * warp + row) * k + column])
            });
            packed.try_into().unwrap()
        })
        .collect();
    let left = |warp: usize| {
        if in_registers {
            Left::Registers(&registers[warp])
        } else {
            Left::Shared(Descriptor::decode(descriptor_a))
        }
    };
    let sign = if wgmma.negate_a != wgmma.negate_b {
        -1
    } else {
        1
    };
    // Element i of a thread: rows alternate each two elements, columns go on by 8 each four.
    let place = |warp: usize, i: usize, lane: usize| {
        let row = 16 * warp + (lane >> 2) + if i & 2 == 0 { 0 } else { 8 };
        (row, (lane & 3) * 2 + (i >> 2) * 8 + (i & 1))
    };
    let count = wgmma.accumulator_registers();
    for accumulate in [false, true] {
        let fragments = |of: &dyn Fn(usize, usize) -> i32| -> Vec<Vec<[u32; 32]>> {
            let warp = |warp| {
                pack_accumulator(count, wgmma.d, |i, lane| {
                    let (row, column) = place(warp, i, lane);
                    of(row, column)
                })
            };
            (0..4).map(warp).collect()
        };
        let mut d = fragments(&|row, column| c[row * n + column]);
        let want = fragments(&|row, column| {
            let sum: i32 = (0..k).map(|i| a[row * k + i] * b[column * k + i]).sum();
            sign * sum + if accumulate { c[row * n + column] } else { 0 }
        });
        for (warp, d) in d.iter_mut().enumerate() {
            let result = wgmma.run(
                warp,
                left(warp),
                Descriptor::decode(descriptor_b),
                accumulate,
                d,
                &mut |at| -> Result<[u8; 16], ()> {
                    assert_eq!(at % 16, 0);
                    Ok(memory[at as usize..][..16].try_into().unwrap())
                },
            );
            assert_eq!(result, Ok(()));
        }
        assert!(
            d == want,
            "{wgmma:?} {swizzles:?} {in_registers} {accumulate}"
        );
    }
}

const GROUP: Wgmma = Wgmma {
    n: 8,
    a: Element::F16,
    b: Element::F16,
    d: Accumulator::F32,
    negate_a: false,
    negate_b: false,
    transpose_a: false,
    transpose_b: false,
    saturate: false,
};

const SWIZZLES: [Swizzle; 4] = [
    Swizzle::None,
    Swizzle::Bytes32,
    Swizzle::Bytes64,
    Swizzle::Bytes128,
];

#[test]
fn groups_multiply_every_type() {
    use Accumulator as D;
    use Element::*;
    let mut numbers = Numbers(11);
    for (a, b, d) in [
        (F16, F16, D::F16),
        (F16, F16, D::F32),
        (Bf16, Bf16, D::F32),
        (Tf32, Tf32, D::F32),
        (E4m3, E4m3, D::F32),
        (E4m3, E5m2, D::F16),
        (E5m2, E4m3, D::F32),
        (S8, U8, D::S32),
        (U8, S8, D::S32),
        (B1, B1, D::S32),
    ] {
        for (n, swizzle) in [8, 24, 128, 256].into_iter().zip(SWIZZLES) {
            let wgmma = Wgmma {
                n,
                a,
                b,
                d,
                ..GROUP
            };
            check_group(wgmma, [swizzle; 2], false, &mut numbers);
            check_group(wgmma, [swizzle; 2], true, &mut numbers);
        }
    }
}

#[test]
fn groups_read_every_layout() {
    let mut numbers = Numbers(13);
    for (x, y) in SWIZZLES.into_iter().flat_map(|x| SWIZZLES.map(|y| (x, y))) {
        for (transpose_a, transpose_b) in
            [(false, false), (false, true), (true, false), (true, true)]
        {
            let wgmma = Wgmma {
                n: 136,
                transpose_a,
                transpose_b,
                negate_a: transpose_a,
                ..GROUP
            };
            check_group(wgmma, [x, y], false, &mut numbers);
        }
    }
}

#[test]
fn steps_of_k_move_the_start_within_a_pattern() {
    // 32 bytes further along a row of 128 is the same operand from its third unit on.
    let whole = Descriptor::decode(0x400 | 64 << 32 | 1 << 62);
    let step = Descriptor::decode(0x402 | 64 << 32 | 1 << 62);
    for row in 0..64 {
        for unit in 0..2 {
            assert_eq!(
                step.address(unit, row, true),
                whole.address(unit + 2, row, true)
            );
        }
    }
    // A pattern that starts at row 3 of the window's rows of 128 bytes has base offset 3.
    let moved = Descriptor::decode((0x4180 >> 4) | 64 << 32 | 3 << 49 | 1 << 62);
    for row in 0..8 {
        assert_eq!(moved.address(0, row, true), 0x4180 + row * 128 + (row << 4));
    }
}

#[test]
fn groups_refuse_what_the_isa_lacks() {
    let lacking = [
        Wgmma { n: 12, ..GROUP },
        Wgmma { n: 264, ..GROUP },
        Wgmma { n: 0, ..GROUP },
        Wgmma {
            a: Element::E4m3,
            b: Element::E4m3,
            transpose_b: true,
            ..GROUP
        },
        Wgmma {
            d: Accumulator::S32,
            ..GROUP
        },
        Wgmma {
            saturate: true,
            ..GROUP
        },
    ];
    for wgmma in lacking {
        assert!(wgmma.check().is_err(), "{wgmma:?}");
    }
}

#[test]
fn a_failed_read_leaves_the_accumulators() {
    let mut d = [[5; 32]; 4];
    let result = GROUP.run(
        0,
        Left::Shared(Descriptor::decode(0)),
        Descriptor::decode(0),
        false,
        &mut d,
        &mut |at| Err(at),
    );
    assert_eq!(result, Err(0));
    assert_eq!(d, [[5; 32]; 4]);
}
