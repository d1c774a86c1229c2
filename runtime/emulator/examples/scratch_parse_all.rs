use std::{env, fs, time::Instant};
fn main() {
    let (mut files, mut bytes, mut bad) = (0, 0, 0);
    let start = Instant::now();
    let mut ops = std::collections::BTreeMap::<String, usize>::new();
    for entry in fs::read_dir(env::args().nth(1).unwrap()).unwrap() {
        let path = entry.unwrap().path();
        let Ok(text) = fs::read_to_string(&path) else {
            continue;
        };
        files += 1;
        bytes += text.len();
        match tesserine_emulator::ptx::parse(&text) {
            Ok(m) => {
                for f in &m.functions {
                    for i in &f.body {
                        *ops.entry(i.mnemonic()).or_default() += 1;
                    }
                }
            }
            Err(e) => {
                bad += 1;
                println!("{}: {e}", path.display());
            }
        }
    }
    println!(
        "{files} files, {bytes} bytes, {bad} bad, {:?}, {} mnemonics",
        start.elapsed(),
        ops.len()
    );
    if let Some(out) = env::args().nth(2) {
        let mut s = String::new();
        for (k, v) in ops {
            s += &format!("{v} {k}\n");
        }
        fs::write(out, s).unwrap();
    }
}
