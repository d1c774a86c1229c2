//! What a launch costs on the host, beside the driver's call alone.
//!
//! `cargo run --release -p tesserine --example launch_cost SET.tset`. The set has `gemm_nt<bf16>` for sm_90a, whose body by roles
//! takes three tensor maps. Five ways of queueing the same product take turns in an order that is drawn anew each round:
//! the driver's call with arguments made beforehand; a launch on tensors that are known from the launch before; one on tensors
//! that are all new, so that three maps are encoded; the driver's call with three maps encoded before it; and the replay of a
//! captured launch. Products are checked at the end, the replayed one after its data changed. Exits 1 if one is wrong.

use std::{
    error::Error,
    ffi::{CString, c_void},
    process::ExitCode,
    ptr,
    time::Instant,
};

use cudarc::driver::sys;
use tesserine::{
    Args, DType, Device, KernelSet, Stream, TensorRef,
    set::{AbiArg, BodyRecord, TensorMapRecord},
};

const KERNEL: &str = "gemm_nt<bf16>";
/// Short on the device, so that the queue never fills.
const M: i64 = 128;
const N: i64 = 256;
const K: i64 = 64;
/// Launches that are timed together, and how often.
const BATCH: usize = 200;
const ROUNDS: usize = 301;
/// Places in memory that take turns as the new tensors.
const PLACES: usize = 97;

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Memory for as many matrices as there are places, and the shape of one.
struct Places {
    memory: tesserine::DeviceTensor,
    shape: [i64; 2],
    strides: [i64; 2],
}

impl Places {
    fn new(device: &Device, shape: [i64; 2]) -> Result<Places, tesserine::Error> {
        let memory = device.alloc(DType::Bf16, &[PLACES as i64, shape[0], shape[1]])?;
        memory.fill(0)?;
        Ok(Places {
            memory,
            shape,
            strides: [shape[1], 1],
        })
    }

    fn elements(&self) -> usize {
        (self.shape[0] * self.shape[1]) as usize
    }

    fn address(&self, place: usize) -> u64 {
        self.memory.view().pointer() + (place * self.elements() * 2) as u64
    }

    fn at(&self, place: usize) -> TensorRef<'_> {
        // SAFETY: the memory holds as many matrices as there are places, and lives as long as the result.
        unsafe { TensorRef::from_raw(self.address(place), DType::Bf16, &self.shape, &self.strides) }
    }

    /// The same numbers at all places.
    fn write(&self, values: &[half::bf16]) -> Result<(), tesserine::Error> {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.memory.write(&bytes.repeat(PLACES))
    }

    fn read(&self, place: usize) -> Result<Vec<half::bf16>, tesserine::Error> {
        let bytes = self.memory.read()?;
        let start = place * self.elements() * 2;
        let bytes = &bytes[start..start + self.elements() * 2];
        let values = bytes.chunks_exact(2);
        Ok(values
            .map(|b| half::bf16::from_le_bytes([b[0], b[1]]))
            .collect())
    }
}

fn run() -> Result<bool, Box<dyn Error>> {
    let path = std::env::args_os()
        .nth(1)
        .ok_or("usage: launch_cost SET.tset")?;
    let set = KernelSet::open(path)?;
    let kernel = set.kernel(KERNEL)?;
    let device = Device::cuda(0)?;
    let raw = new_stream()?;
    // SAFETY: the stream was made on the device's primary context, and is never destroyed.
    let stream = unsafe { device.borrow_stream(raw.cast()) };

    let a = Places::new(&device, [M, K])?;
    let b = Places::new(&device, [N, K])?;
    let c = Places::new(&device, [M, N])?;
    let (left, right) = (random(a.elements(), 1), random(b.elements(), 2));
    a.write(&left)?;
    b.write(&right)?;
    let queue = |stream: &Stream, place: usize| {
        let args = Args::new()
            .tensor("a", a.at(place))
            .tensor("b", b.at(place))
            .tensor("c", c.at(place));
        kernel.launch(stream, &args)
    };

    let launch = queue(&stream, 0)?;
    stream.synchronize()?;
    let body = &kernel.instance().bodies[launch.body];
    let maps = body.tensor_maps.len();
    println!(
        "{KERNEL} {M} x {N} x {K} on {device} ({}): body {} of {}, {} blocks, {maps} tensor maps, {} arguments",
        device.info().name,
        launch.body,
        launch.target,
        launch.blocks,
        body.abi.len(),
    );
    let image = set.file().module(body.cubin.unwrap_or(body.ptx))?;
    let bare = Bare::new(image, body, launch.blocks, raw, |param, place| {
        [&a, &b, &c][param].address(place)
    })?;
    let graph = stream.capture(|stream| queue(stream, 0).map(|_| ()))?;

    let names = [
        "bare cuLaunchKernel",
        "known tensors",
        "new tensors",
        "bare, maps encoded",
        "replay of a graph",
    ];
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); names.len()];
    let mut place = 0;
    let mut random_state = 7u64;
    for _ in 0..ROUNDS {
        let mut order: Vec<usize> = (0..names.len()).collect();
        for i in (1..order.len()).rev() {
            order.swap(i, next(&mut random_state) as usize % (i + 1));
        }
        for case in order {
            stream.synchronize()?;
            let start = Instant::now();
            for _ in 0..BATCH {
                match case {
                    0 => bare.launch()?,
                    1 => drop(queue(&stream, 0)?),
                    2 => {
                        place = (place + 1) % PLACES;
                        queue(&stream, place)?;
                    }
                    3 => {
                        place = (place + 1) % PLACES;
                        bare.encode_and_launch(place)?;
                    }
                    _ => graph.launch(&stream)?,
                }
            }
            let spent = start.elapsed().as_secs_f64() / BATCH as f64;
            times[case].push(spent * 1e6);
        }
    }
    stream.synchronize()?;

    let medians: Vec<f64> = times.iter_mut().map(|t| quantile(t, 0.5)).collect();
    println!(
        "{:<22}{:>10}{:>10}{:>10}{:>12}",
        "us a launch", "median", "10 %", "90 %", "above bare"
    );
    for (name, (times, median)) in names.iter().zip(times.iter_mut().zip(&medians)) {
        let (low, high) = (quantile(times, 0.1), quantile(times, 0.9));
        let above = median - medians[0];
        println!("{name:<22}{median:>10.3}{low:>10.3}{high:>10.3}{above:>+12.3}");
    }

    let mut right_so_far = true;
    for place in [0, 1, PLACES - 1] {
        let error = worst(&left, &right, &c.read(place)?);
        println!("largest error at place {place}: {error:.2e}");
        right_so_far &= error < 0.05;
    }
    let (left, right) = (random(a.elements(), 3), random(b.elements(), 4));
    a.write(&left)?;
    b.write(&right)?;
    c.memory.fill(0xff)?;
    graph.launch(&stream)?;
    stream.synchronize()?;
    let error = worst(&left, &right, &c.read(0)?);
    println!("largest error of the replay after the data changed: {error:.2e}");
    right_so_far &= error < 0.05;
    let verdict = if right_so_far {
        "all products are right"
    } else {
        "a product is WRONG"
    };
    println!("{verdict}");
    Ok(right_so_far)
}

/// The driver's call with arguments that were made beforehand.
struct Bare<'a> {
    function: sys::CUfunction,
    stream: sys::CUstream,
    body: &'a BodyRecord,
    blocks: u32,
    words: Vec<u64>,
    maps: Vec<Map>,
    address: Box<dyn Fn(usize, usize) -> u64 + 'a>,
}

#[derive(Clone, Copy)]
#[repr(C, align(128))]
struct Map([u64; 16]);

fn shape_of(param: usize) -> [i64; 2] {
    [[M, K], [N, K], [M, N]][param]
}

impl<'a> Bare<'a> {
    fn new(
        mut image: Vec<u8>,
        body: &'a BodyRecord,
        blocks: u32,
        stream: sys::CUstream,
        address: impl Fn(usize, usize) -> u64 + 'a,
    ) -> Result<Bare<'a>, Box<dyn Error>> {
        image.push(0);
        let mut module = ptr::null_mut();
        let mut function = ptr::null_mut();
        let entry = CString::new(body.entry.as_str())?;
        let which = sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the context of `new_stream` is current; the image ends in zero; the module is never unloaded.
        unsafe {
            driver(sys::cuModuleLoadData(&mut module, image.as_ptr().cast()))?;
            driver(sys::cuModuleGetFunction(
                &mut function,
                module,
                entry.as_ptr(),
            ))?;
            driver(sys::cuFuncSetAttribute(
                function,
                which,
                body.shared_bytes as i32,
            ))?;
        }
        let mut words = Vec::new();
        for arg in &body.abi {
            words.push(match *arg {
                AbiArg::Pointer { param } => address(param as usize, 0),
                AbiArg::Stride { param, dim } => match dim {
                    0 => shape_of(param as usize)[1] as u64,
                    _ => 1,
                },
                // The signature's dimensions are m, k, n, in the order in which its views name them.
                AbiArg::Dim { dim } => [M, K, N][dim as usize] as u64,
                AbiArg::TensorMap { .. } => 0,
                AbiArg::Scalar { .. } | AbiArg::Counter => {
                    return Err("the kernel takes more than tensors".into());
                }
            });
        }
        let mut bare = Bare {
            function,
            stream,
            body,
            blocks,
            words,
            maps: vec![Map([0; 16]); body.tensor_maps.len()],
            address: Box::new(address),
        };
        for (map, record) in bare.maps.iter_mut().zip(&body.tensor_maps) {
            *map = encode(record, (bare.address)(record.param as usize, 0))?;
        }
        Ok(bare)
    }

    fn launch(&self) -> Result<(), Box<dyn Error>> {
        self.queue(&self.words, &self.maps)
    }

    fn queue(&self, words: &[u64], maps: &[Map]) -> Result<(), Box<dyn Error>> {
        let mut pointers = [ptr::null_mut::<c_void>(); 64];
        for ((pointer, word), arg) in pointers.iter_mut().zip(words).zip(&self.body.abi) {
            *pointer = match *arg {
                AbiArg::TensorMap { map } => ptr::from_ref(&maps[map as usize]).cast_mut().cast(),
                _ => ptr::from_ref(word).cast_mut().cast(),
            };
        }
        // SAFETY: the arguments are those of the manifest, and their memory outlives the launches.
        driver(unsafe {
            sys::cuLaunchKernel(
                self.function,
                self.blocks,
                1,
                1,
                self.body.threads,
                1,
                1,
                self.body.shared_bytes,
                self.stream,
                pointers.as_mut_ptr(),
                ptr::null_mut(),
            )
        })
    }

    fn encode_and_launch(&self, place: usize) -> Result<(), Box<dyn Error>> {
        let mut words = [0u64; 64];
        words[..self.words.len()].copy_from_slice(&self.words);
        for (word, arg) in words.iter_mut().zip(&self.body.abi) {
            if let AbiArg::Pointer { param } = *arg {
                *word = (self.address)(param as usize, place);
            }
        }
        let mut maps = [Map([0; 16]); 8];
        for (map, record) in maps.iter_mut().zip(&self.body.tensor_maps) {
            *map = encode(record, (self.address)(record.param as usize, place))?;
        }
        self.queue(&words[..self.words.len()], &maps)
    }
}

fn encode(record: &TensorMapRecord, address: u64) -> Result<Map, Box<dyn Error>> {
    use sys::{
        CUtensorMapDataType_enum as Type, CUtensorMapFloatOOBfill_enum as Fill,
        CUtensorMapInterleave_enum as Interleave, CUtensorMapL2promotion_enum as Promotion,
        CUtensorMapSwizzle_enum as Swizzle,
    };
    let (mut dims, mut strides, mut extent_of_box) = ([1u64; 5], [16u64; 5], [1u32; 5]);
    let shape = shape_of(record.param as usize);
    for (i, dim) in record.dims.iter().enumerate() {
        let whole = (shape[dim.dim as usize] as u64).div_ceil(u64::from(dim.step));
        dims[i] = dim.extent.map_or(whole, u64::from);
        extent_of_box[i] = dim.extent_of_box;
        if i > 0 {
            let stride = if dim.dim == 0 { shape[1] as u64 } else { 1 };
            strides[i - 1] = stride * u64::from(dim.step) * 2;
        }
    }
    let swizzle = match record.swizzle {
        0 => Swizzle::CU_TENSOR_MAP_SWIZZLE_NONE,
        32 => Swizzle::CU_TENSOR_MAP_SWIZZLE_32B,
        64 => Swizzle::CU_TENSOR_MAP_SWIZZLE_64B,
        _ => Swizzle::CU_TENSOR_MAP_SWIZZLE_128B,
    };
    let mut map = Map([0; 16]);
    // SAFETY: the arrays hold five dimensions, and the map has the driver's size and alignment.
    driver(unsafe {
        sys::cuTensorMapEncodeTiled(
            ptr::from_mut(&mut map).cast(),
            Type::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
            record.dims.len() as u32,
            address as *mut c_void,
            dims.as_ptr(),
            strides.as_ptr(),
            extent_of_box.as_ptr(),
            [1u32; 5].as_ptr(),
            Interleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            swizzle,
            Promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            Fill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    })?;
    Ok(map)
}

/// A stream on the primary context of device 0, which stays current.
fn new_stream() -> Result<sys::CUstream, Box<dyn Error>> {
    let (mut context, mut stream) = (ptr::null_mut(), ptr::null_mut());
    let flags = sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32;
    // SAFETY: the driver was started when the device was opened; each call stores a handle.
    unsafe {
        driver(sys::cuDevicePrimaryCtxRetain(&mut context, 0))?;
        driver(sys::cuCtxSetCurrent(context))?;
        driver(sys::cuStreamCreate(&mut stream, flags))?;
    }
    Ok(stream)
}

fn driver(result: sys::CUresult) -> Result<(), Box<dyn Error>> {
    match result {
        sys::CUresult::CUDA_SUCCESS => Ok(()),
        result => Err(format!("the driver refused: {result:?}").into()),
    }
}

/// The largest difference from the product in higher precision.
fn worst(a: &[half::bf16], b: &[half::bf16], c: &[half::bf16]) -> f64 {
    let k = K as usize;
    let mut worst = 0f64;
    for (i, a) in a.chunks_exact(k).enumerate() {
        for (j, b) in b.chunks_exact(k).enumerate() {
            let sum: f64 = a.iter().zip(b).map(|(x, y)| x.to_f64() * y.to_f64()).sum();
            let stored = c[i * N as usize + j].to_f64();
            if stored.is_nan() {
                return f64::INFINITY;
            }
            worst = worst.max((sum - stored).abs());
        }
    }
    worst
}

fn quantile(times: &mut [f64], part: f64) -> f64 {
    times.sort_by(f64::total_cmp);
    times[((times.len() - 1) as f64 * part) as usize]
}

fn next(state: &mut u64) -> u64 {
    *state = state
        .wrapping_mul(6364136223846793005)
        .wrapping_add(1442695040888963407);
    *state >> 33
}

/// Numbers from -1 to 1, the same at each call.
fn random(count: usize, seed: u64) -> Vec<half::bf16> {
    let mut state = seed;
    let mut draw = || half::bf16::from_f64(next(&mut state) as f64 / (1u64 << 30) as f64 - 1.0);
    (0..count).map(|_| draw()).collect()
}
