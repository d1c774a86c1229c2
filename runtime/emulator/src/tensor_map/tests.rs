//! Limits by name, bytes there and back, swizzles against the drawings of the PTX ISA, and boxes against a loop over elements.

use std::collections::BTreeMap;

use super::*;

/// A small generator of random numbers (xorshift*).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % limit
    }

    fn between(&mut self, low: i64, high: i64) -> i64 {
        low + self.below((high - low + 1) as u64) as i64
    }

    fn of<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// A matrix of 64 rows of 64 `f16`, and a box of 8 rows of 64.
const MATRIX: Parameters<'static> = Parameters {
    data_type: DataType::Float16,
    rank: 2,
    global_address: 0x1000,
    global_dim: &[64, 64],
    global_strides: &[128],
    box_dim: &[64, 8],
    element_strides: &[1, 1],
    interleave: Interleave::None,
    swizzle: Swizzle::B128,
    l2_promotion: L2Promotion::B256,
    oob_fill: OobFill::Zero,
};

/// Rank 3, as interleaved maps need.
const CUBE: Parameters<'static> = Parameters {
    rank: 3,
    global_dim: &[64, 64, 4],
    global_strides: &[128, 128 * 64],
    box_dim: &[16, 8, 1],
    element_strides: &[1, 1, 1],
    ..MATRIX
};

#[test]
fn limits_name_the_parameter() {
    assert!(TensorMap::encode(&MATRIX).is_ok());
    assert!(TensorMap::encode(&CUBE).is_ok());
    let packed = |data_type| Parameters {
        data_type,
        global_dim: &[128, 4],
        box_dim: &[128, 4],
        ..MATRIX
    };
    let six = packed(DataType::Packed6Align16);
    let cases: Vec<(&str, &str, Parameters<'_>)> = vec![
        ("tensorRank", "0", Parameters { rank: 0, ..MATRIX }),
        ("tensorRank", "6", Parameters { rank: 6, ..MATRIX }),
        (
            "tensorRank",
            "interleaved",
            Parameters {
                interleave: Interleave::B16,
                ..MATRIX
            },
        ),
        (
            "globalAddress",
            "multiple of 16",
            Parameters {
                global_address: 0x1008,
                ..MATRIX
            },
        ),
        (
            "globalAddress",
            "multiple of 32",
            Parameters {
                global_address: 0x1010,
                interleave: Interleave::B32,
                swizzle: Swizzle::B32,
                ..CUBE
            },
        ),
        (
            "globalAddress",
            "multiple of 32",
            Parameters {
                global_address: 0x1010,
                ..six
            },
        ),
        (
            "globalDim",
            "1 values",
            Parameters {
                global_dim: &[64],
                ..MATRIX
            },
        ),
        (
            "globalDim",
            "[1] is 0",
            Parameters {
                global_dim: &[64, 0],
                ..MATRIX
            },
        ),
        (
            "globalDim",
            "[0] is",
            Parameters {
                global_dim: &[(1 << 32) + 1, 4],
                ..MATRIX
            },
        ),
        (
            "globalDim",
            "multiple of 128",
            Parameters {
                global_dim: &[192, 4],
                ..six
            },
        ),
        (
            "globalDim",
            "multiple of 2",
            Parameters {
                global_dim: &[33, 4],
                ..packed(DataType::Packed4Align8)
            },
        ),
        (
            "globalDim",
            "64-bit",
            Parameters {
                global_address: u64::MAX - 4095,
                ..MATRIX
            },
        ),
        (
            "globalStrides",
            "0 values",
            Parameters {
                global_strides: &[],
                ..MATRIX
            },
        ),
        (
            "globalStrides",
            "[0] is 136",
            Parameters {
                global_strides: &[136],
                ..MATRIX
            },
        ),
        (
            "globalStrides",
            "2^40",
            Parameters {
                global_strides: &[1 << 40],
                ..MATRIX
            },
        ),
        (
            "globalStrides",
            "multiple of 32",
            Parameters {
                global_strides: &[144],
                ..six
            },
        ),
        (
            "boxDim",
            "[1] is 257",
            Parameters {
                box_dim: &[64, 257],
                ..MATRIX
            },
        ),
        (
            "boxDim",
            "[1] is 0",
            Parameters {
                box_dim: &[64, 0],
                ..MATRIX
            },
        ),
        (
            "boxDim",
            "multiple of 16",
            Parameters {
                box_dim: &[60, 8],
                ..MATRIX
            },
        ),
        (
            "boxDim",
            "128 of the swizzle",
            Parameters {
                box_dim: &[72, 8],
                ..MATRIX
            },
        ),
        (
            "boxDim",
            "64 of the swizzle",
            Parameters {
                swizzle: Swizzle::B64,
                box_dim: &[40, 8],
                ..MATRIX
            },
        ),
        (
            "boxDim",
            "32 of the swizzle",
            Parameters {
                swizzle: Swizzle::B32,
                box_dim: &[24, 8],
                ..MATRIX
            },
        ),
        (
            "boxDim",
            "not 128",
            Parameters {
                box_dim: &[64, 4],
                ..six
            },
        ),
        (
            "elementStrides",
            "[1] is 9",
            Parameters {
                element_strides: &[1, 9],
                ..MATRIX
            },
        ),
        (
            "elementStrides",
            "[1] is 0",
            Parameters {
                element_strides: &[1, 0],
                ..MATRIX
            },
        ),
        (
            "elementStrides",
            "1 values",
            Parameters {
                element_strides: &[1],
                ..MATRIX
            },
        ),
        (
            "interleave",
            "NONE",
            Parameters {
                data_type: DataType::Packed6Align16,
                interleave: Interleave::B16,
                ..CUBE
            },
        ),
        (
            "swizzle",
            "32B",
            Parameters {
                interleave: Interleave::B32,
                swizzle: Swizzle::B64,
                ..CUBE
            },
        ),
        (
            "swizzle",
            "B128Atom32Flip8",
            Parameters {
                swizzle: Swizzle::B128Atom32Flip8,
                ..six
            },
        ),
        (
            "swizzle",
            "B128Atom64",
            Parameters {
                swizzle: Swizzle::B128Atom64,
                ..packed(DataType::Packed4Align16)
            },
        ),
        (
            "oobFill",
            "Uint16",
            Parameters {
                data_type: DataType::Uint16,
                oob_fill: OobFill::Nan,
                ..MATRIX
            },
        ),
    ];
    for (name, part, parameters) in cases {
        match TensorMap::encode(&parameters) {
            Err(EncodeError::Invalid { parameter, message }) => {
                assert_eq!(parameter, name, "{message}: {parameters:?}");
                assert!(message.contains(part), "{message:?} lacks {part:?}");
            }
            other => panic!("{other:?} for {parameters:?}"),
        }
    }
}

#[test]
fn what_the_documents_leave_open_is_refused() {
    let of = |data_type| Parameters {
        data_type,
        ..MATRIX
    };
    let cases = [
        Parameters {
            interleave: Interleave::B16,
            ..CUBE
        },
        Parameters {
            global_dim: &[128, 4],
            box_dim: &[128, 4],
            ..of(DataType::Packed6Align16)
        },
    ];
    for parameters in cases {
        let refused = TensorMap::encode(&parameters);
        assert!(
            matches!(refused, Err(EncodeError::NotImplemented(_))),
            "{refused:?}"
        );
    }
}

#[test]
fn the_element_stride_of_the_innermost_dimension_is_ignored() {
    let map = TensorMap::encode(&Parameters {
        element_strides: &[3, 1],
        ..MATRIX
    });
    assert_eq!(map, TensorMap::encode(&MATRIX));
}

/// A map with everything drawn at random, but legal, small in global memory.
fn draw(random: &mut Random) -> TensorMap {
    use DataType::*;
    loop {
        let data_type = random.of(&[
            Uint8,
            Uint16,
            Uint32,
            Int32,
            Uint64,
            Int64,
            Float16,
            Float32,
            Float64,
            Bfloat16,
            Packed4Align8,
        ]);
        let rank = random.between(1, 5) as usize;
        let swizzle = random.of(Swizzle::ALL);
        let step = 128 / data_type.bits();
        let limit = swizzle.span().unwrap_or(64) / 16;
        let mut box_dim = vec![step * random.between(1, i64::from(limit)) as u32];
        box_dim.extend((1..rank).map(|_| random.between(1, 5) as u32));
        let even = if data_type == Packed4Align8 { 2 } else { 1 };
        let global_dim: Vec<u64> = (0..rank)
            .map(|d| {
                if d == 0 {
                    even * (1 + random.below(40))
                } else {
                    2 + random.below(7)
                }
            })
            .collect();
        let strides: Vec<u64> = (1..rank).map(|_| 16 * random.below(50)).collect();
        let element_strides: Vec<u32> = (0..rank).map(|_| random.between(1, 3) as u32).collect();
        let made = TensorMap::encode(&Parameters {
            data_type,
            rank: rank as u32,
            global_address: 1 << 20,
            global_dim: &global_dim,
            global_strides: &strides,
            box_dim: &box_dim,
            element_strides: &element_strides,
            interleave: Interleave::None,
            swizzle,
            l2_promotion: random.of(L2Promotion::ALL),
            oob_fill: random.of(if data_type.is_float() {
                OobFill::ALL
            } else {
                &[OobFill::Zero]
            }),
        });
        if let Ok(map) = made {
            return map;
        }
    }
}

#[test]
fn bytes_give_the_map_back_and_nothing_else_does() {
    let mut random = Random(7);
    for _ in 0..200 {
        let map = draw(&mut random);
        let bytes = map.to_bytes();
        assert_eq!(TensorMap::from_bytes(&bytes), Ok(map));
        let mut broken = bytes;
        let at = random.below(MAP_BYTES as u64) as usize;
        broken[at] ^= 1 << random.below(8);
        let refused = TensorMap::from_bytes(&broken);
        assert!(
            matches!(refused, Err(EncodeError::Bytes(_))),
            "byte {at}: {refused:?}"
        );
    }
    let huge = Parameters {
        global_dim: &[1 << 32, 1 << 20],
        global_strides: &[1 << 39],
        ..MATRIX
    };
    let map = TensorMap::encode(&huge).expect("at the limits");
    assert_eq!(TensorMap::from_bytes(&map.to_bytes()), Ok(map));
    assert!(TensorMap::from_bytes(&[0; MAP_BYTES]).is_err());
}

/// The patterns as the PTX ISA draws them: for each row of 128 bytes, where the 16-byte chunks 0 to 7 go.
#[test]
fn swizzles_are_those_of_the_drawings() {
    let rows = |mode, rows: &[[u64; 8]]| {
        for (r, chunks) in rows.iter().enumerate() {
            for (c, &to) in chunks.iter().enumerate() {
                let from = 4096 + 128 * r as u64 + 16 * c as u64;
                let to = 4096 + 128 * r as u64 + 16 * to;
                assert_eq!(swizzle(mode, from), to, "{mode:?} row {r} chunk {c}");
                assert_eq!(swizzle(mode, from + 5), to + 5);
            }
        }
    };
    rows(Swizzle::None, &[[0, 1, 2, 3, 4, 5, 6, 7]; 8]);
    rows(
        Swizzle::B32,
        &[
            [0, 1, 2, 3, 4, 5, 6, 7],
            [1, 0, 3, 2, 5, 4, 7, 6],
            [0, 1, 2, 3, 4, 5, 6, 7],
        ],
    );
    rows(
        Swizzle::B64,
        &[
            [0, 1, 2, 3, 4, 5, 6, 7],
            [1, 0, 3, 2, 5, 4, 7, 6],
            [2, 3, 0, 1, 6, 7, 4, 5],
            [3, 2, 1, 0, 7, 6, 5, 4],
            [0, 1, 2, 3, 4, 5, 6, 7],
        ],
    );
    rows(
        Swizzle::B128,
        &[
            [0, 1, 2, 3, 4, 5, 6, 7],
            [1, 0, 3, 2, 5, 4, 7, 6],
            [2, 3, 0, 1, 6, 7, 4, 5],
            [3, 2, 1, 0, 7, 6, 5, 4],
            [4, 5, 6, 7, 0, 1, 2, 3],
            [5, 4, 7, 6, 1, 0, 3, 2],
            [6, 7, 4, 5, 2, 3, 0, 1],
            [7, 6, 5, 4, 3, 2, 1, 0],
            [0, 1, 2, 3, 4, 5, 6, 7],
        ],
    );
    rows(
        Swizzle::B128Atom32,
        &[
            [0, 1, 2, 3, 4, 5, 6, 7],
            [2, 3, 0, 1, 6, 7, 4, 5],
            [4, 5, 6, 7, 0, 1, 2, 3],
            [6, 7, 4, 5, 2, 3, 0, 1],
            [0, 1, 2, 3, 4, 5, 6, 7],
        ],
    );
    rows(
        Swizzle::B128Atom64,
        &[
            [0, 1, 2, 3, 4, 5, 6, 7],
            [4, 5, 6, 7, 0, 1, 2, 3],
            [0, 1, 2, 3, 4, 5, 6, 7],
        ],
    );
    let flip = Swizzle::B128Atom32Flip8;
    assert_eq!(swizzle(flip, 20), 20);
    assert_eq!(swizzle(flip, 128 + 4), 128 + 32 + 8 + 4);
    assert_eq!(swizzle(flip, 128 + 8), 128 + 32);
    assert_eq!(swizzle(flip, 256 + 8), 256 + 64 + 8);
}

#[test]
fn swizzles_are_their_own_inverse_and_stay_in_their_row() {
    for &mode in Swizzle::ALL {
        let span = u64::from(mode.span().unwrap_or(1));
        let unit = u64::from(mode.unit().unwrap_or(1));
        for address in 0..4096 {
            let to = swizzle(mode, address);
            assert_eq!(swizzle(mode, to), address, "{mode:?} {address}");
            assert_eq!(to / span, address / span, "{mode:?} {address}");
            assert_eq!(to % unit, address % unit, "{mode:?} {address}");
        }
    }
}

/// Byte by byte, element by element: where each byte of a box lies. In steps of half bytes, for packed elements.
fn naive(map: &TensorMap, coordinates: &[i32], shared: u64) -> BTreeMap<u64, Option<u64>> {
    let bits = i128::from(map.data_type.bits());
    let counts: Vec<u32> = (0..map.rank).map(|d| map.elements(d)).collect();
    let pitch = match map.swizzle {
        Swizzle::None => i128::from(counts[0]) * bits / 8,
        Swizzle::B32 => 32,
        Swizzle::B64 => 64,
        _ => 128,
    };
    let total: u32 = counts.iter().product();
    let mut found = BTreeMap::new();
    for element in 0..total {
        let mut rest = element;
        let mut index = Vec::new();
        for &count in &counts {
            index.push(rest % count);
            rest /= count;
        }
        let row = element / counts[0];
        let mut inside = true;
        let mut half = i128::from(map.global_address) * 2;
        for d in 0..map.rank {
            let at = i128::from(coordinates[d])
                + i128::from(index[d]) * i128::from(map.element_strides[d]);
            inside &= at >= 0 && at < i128::from(map.global_dim[d]);
            half += match d {
                0 => at * bits / 4,
                _ => at * i128::from(map.global_strides[d - 1]) * 2,
            };
        }
        let local = 2 * (i128::from(row) * pitch) + i128::from(index[0]) * bits / 4;
        for h in 0..bits / 4 {
            let byte = shared + ((local + h) / 2) as u64;
            let global = inside.then_some(((half + h) / 2) as u64);
            let before = found.insert(swizzle(map.swizzle, byte), global);
            assert!(
                before.is_none_or(|b| b == global),
                "two elements of a byte differ"
            );
        }
    }
    found
}

#[test]
fn boxes_are_those_of_a_loop_over_elements() {
    let mut random = Random(1);
    let (mut filled, mut copied) = (0, 0);
    for round in 0..600 {
        let map = draw(&mut random);
        let even = if map.data_type.bits() < 8 { 2 } else { 1 };
        let coordinates: Vec<i32> = (0..map.rank)
            .map(|d| match d {
                0 => even * random.between(-8, 20) as i32,
                _ => random.between(-2, 4) as i32,
            })
            .collect();
        let shared = 1024 + 128 * random.below(9);
        let mut pieces = BTreeMap::new();
        let mut bytes = 0;
        let done = map.pieces(&coordinates, shared, |piece| {
            bytes += piece.bytes;
            for i in 0..u64::from(piece.bytes) {
                let twice = pieces.insert(piece.shared + i, piece.global.map(|g| g + i));
                assert_eq!(twice, None);
                *if piece.global.is_some() {
                    &mut copied
                } else {
                    &mut filled
                } += 1;
            }
            let end = piece.shared + u64::from(piece.bytes);
            assert!(piece.shared >= shared && end <= shared + u64::from(map.shared_bytes()));
            Ok::<(), CoordinateError>(())
        });
        assert_eq!(done, Ok(()));
        assert_eq!(bytes, map.box_bytes());
        assert_eq!(
            pieces,
            naive(&map, &coordinates, shared),
            "round {round}: {map:?} at {coordinates:?}"
        );
    }
    assert!(filled > 10_000 && copied > 10_000, "{filled} {copied}");
}

#[test]
fn far_coordinates_are_all_out_of_bounds() {
    let map = TensorMap::encode(&MATRIX).expect("legal");
    for at in [
        [i32::MIN, 0],
        [i32::MAX, 0],
        [0, i32::MIN],
        [0, i32::MAX],
        [i32::MAX; 2],
    ] {
        let done = map.pieces(&at, u64::from(u32::MAX), |piece| {
            assert_eq!(piece.global, None);
            Ok::<(), CoordinateError>(())
        });
        assert_eq!(done, Ok(()));
    }
    let wrong = map.pieces(&[0], 0, |_| Ok::<(), CoordinateError>(()));
    assert_eq!(wrong, Err(CoordinateError::Rank { given: 1, rank: 2 }));
    let packed = TensorMap::encode(&Parameters {
        data_type: DataType::Packed4Align8,
        ..MATRIX
    });
    let odd = packed
        .expect("legal")
        .pieces(&[1, 0], 0, |_| Ok::<(), CoordinateError>(()));
    assert_eq!(odd, Err(CoordinateError::Packed(1)));
}

#[test]
fn fills_are_nans_of_the_type() {
    let of = |data_type, box_dim| {
        TensorMap::encode(&Parameters {
            data_type,
            box_dim,
            oob_fill: OobFill::Nan,
            ..MATRIX
        })
        .expect("legal")
    };
    let mut bytes = [1; 16];
    of(DataType::Float32, &[32, 8]).fill(&mut bytes);
    assert!(
        bytes
            .chunks(4)
            .all(|b| f32::from_le_bytes(b.try_into().expect("4")).is_nan())
    );
    of(DataType::Float64, &[16, 8]).fill(&mut bytes);
    assert!(
        bytes
            .chunks(8)
            .all(|b| f64::from_le_bytes(b.try_into().expect("8")).is_nan())
    );
    of(DataType::Bfloat16, &[64, 8]).fill(&mut bytes);
    let bf16 = |b: &[u8]| f32::from_bits(u32::from(u16::from_le_bytes([b[0], b[1]])) << 16);
    assert!(bytes.chunks(2).all(|b| bf16(b).is_nan()));
    of(DataType::Float16, &[64, 8]).fill(&mut bytes);
    // All ones in the exponent, and a fraction.
    let f16 = |b: &[u8]| u16::from_le_bytes([b[0], b[1]]) & 0x7fff;
    assert!(bytes.chunks(2).all(|b| f16(b) > 0x7c00));
    let zero = TensorMap::encode(&MATRIX).expect("legal");
    zero.fill(&mut bytes);
    assert_eq!(bytes, [0; 16]);
}

#[test]
fn loads_convert_as_an_h200_does() {
    let of = |data_type| {
        TensorMap::encode(&Parameters {
            data_type,
            box_dim: &[32, 8],
            ..MATRIX
        })
        .expect("legal")
    };
    // What a probe of the hardware printed.
    let pairs = [
        (0x3f80_1000, 0x3f80_0000),
        (0x3f80_3000, 0x3f80_4000),
        (0xbf80_1000, 0xbf80_0000),
        (0x3f80_0fff, 0x3f80_0000),
        (0x3f80_1001, 0x3f80_2000),
        (0x0001_16c2, 0x0001_2000),
        (0x8000_0001, 0x8000_0000),
        (0x007f_ffff, 0x0080_0000),
        (0x7f80_0001, 0x7fff_e000),
        (0xff80_0001, 0x7fff_e000),
        (0x7fff_ffff, 0x7fff_e000),
        (0x7f7f_ffff, 0x7f80_0000),
        (0x7f7f_efff, 0x7f7f_e000),
        // Which TF32 has, infinities among them.
        (0x7f80_0000, 0x7f80_0000),
        (0x4049_0000, 0x4049_0000),
    ];
    for data_type in [DataType::Tfloat32, DataType::Tfloat32Ftz] {
        for (from, to) in pairs {
            let mut bytes = u32::to_le_bytes(from);
            of(data_type).convert(&mut bytes);
            assert_eq!(u32::from_le_bytes(bytes), to, "{from:#x}");
        }
    }
    for data_type in [DataType::Float32, DataType::Float32Ftz] {
        let mut bytes = 0x0001_16c2_u32.to_le_bytes();
        of(data_type).convert(&mut bytes);
        assert_eq!(bytes, 0x0001_16c2_u32.to_le_bytes());
    }
    // The fill is one of half-words.
    let map = TensorMap::encode(&Parameters {
        data_type: DataType::Float64,
        box_dim: &[16, 8],
        oob_fill: OobFill::Nan,
        ..MATRIX
    });
    let mut bytes = [0; 8];
    map.expect("legal").fill(&mut bytes);
    assert_eq!(u64::from_le_bytes(bytes), 0x7ff7_7ff7_7ff7_7ff7);
}
