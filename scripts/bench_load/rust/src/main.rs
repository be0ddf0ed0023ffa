//! The reference crate, measured: bench-load-peer OP FILE [OUT] [REPEAT].
//!
//! Does OP on FILE, REPEAT times in this process, and prints one line of JSON: the seconds of each time and
//! the most memory that the process ever held. What is set up before an operation, and what is given back after
//! it, is not timed.

use std::env;
use std::error::Error;
use std::fs::{self, File};
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use memmap2::{Mmap, MmapOptions};
use safetensors::tensor::{serialize_to_file, TensorView};
use safetensors::SafeTensors;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const PAGE: usize = 4096;

fn main() -> Result<()> {
    let args: Vec<String> = env::args().collect();
    let [_, op, file, rest @ ..] = args.as_slice() else {
        return Err("usage: bench-load-peer OP FILE [OUT] [REPEAT]".into());
    };
    let out = rest.first().map(String::as_str).unwrap_or_default();
    let repeat: usize = rest.get(1).map_or(Ok(1), |r| r.parse())?;
    let mut seconds = Vec::with_capacity(repeat);
    match op.as_str() {
        "open" => {
            for _ in 0..repeat {
                let start = Instant::now();
                let mapping = map(file)?;
                let views = SafeTensors::deserialize(&mapping)?.tensors();
                seconds.push(start.elapsed());
                black_box(views);
            }
        }
        "touch" => {
            for _ in 0..repeat {
                let start = Instant::now();
                let mapping = map(file)?;
                let mut sum = 0u8;
                for (_, view) in SafeTensors::deserialize(&mapping)?.tensors() {
                    for byte in view.data().iter().step_by(PAGE) {
                        sum = sum.wrapping_add(*byte);
                    }
                }
                black_box(sum);
                seconds.push(start.elapsed());
            }
        }
        "copy" => {
            for _ in 0..repeat {
                let start = Instant::now();
                let mapping = map(file)?;
                let mut copies: Vec<(String, Vec<u8>)> = Vec::new();
                for (name, view) in SafeTensors::deserialize(&mapping)?.tensors() {
                    copies.push((name, view.data().to_vec()));
                }
                seconds.push(start.elapsed());
                black_box(copies);
            }
        }
        "read" => {
            for _ in 0..repeat {
                let start = Instant::now();
                let buffer = fs::read(file)?;
                let views = SafeTensors::deserialize(&buffer)?.tensors();
                seconds.push(start.elapsed());
                black_box(views);
            }
        }
        "read_metadata" => {
            let buffer = fs::read(file)?;
            for _ in 0..repeat {
                let start = Instant::now();
                let parsed = SafeTensors::read_metadata(&buffer)?;
                seconds.push(start.elapsed());
                black_box(parsed);
            }
        }
        "deserialize" => {
            let buffer = fs::read(file)?;
            for _ in 0..repeat {
                let start = Instant::now();
                let parsed = SafeTensors::deserialize(&buffer)?;
                seconds.push(start.elapsed());
                black_box(parsed);
            }
        }
        "save" => {
            let buffer = fs::read(file)?;
            let views: Vec<(String, TensorView)> = SafeTensors::deserialize(&buffer)?.tensors();
            for _ in 0..repeat {
                let views = views.iter().map(|(name, view)| (name, view));
                let start = Instant::now();
                serialize_to_file(views, None, Path::new(out))?;
                seconds.push(start.elapsed());
            }
        }
        _ => return Err(format!("unknown operation {op}").into()),
    }
    let seconds: Vec<String> = seconds.iter().map(|s| format!("{:e}", s.as_secs_f64())).collect();
    println!("{{\"seconds\": [{}], \"peak_rss\": {}}}", seconds.join(", "), peak_rss()?);
    Ok(())
}

fn map(file: &str) -> Result<Mmap> {
    // The file is not written to while it is mapped.
    Ok(unsafe { MmapOptions::new().map(&File::open(file)?)? })
}

/// The most bytes that this process has held in memory, 0 where the system does not tell.
fn peak_rss() -> Result<u64> {
    let Ok(status) = fs::read_to_string("/proc/self/status") else {
        return Ok(0);
    };
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    let kib = line.and_then(|l| l.split_whitespace().next()).unwrap_or("0");
    Ok(kib.parse::<u64>()? * 1024)
}
