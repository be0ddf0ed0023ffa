//! Writes safetensors/testdata/written/every_dtype.safetensors with the Rust crate, which alone of the Hugging Face
//! writers has all 22 element types. Run it in this folder: cargo run
use safetensors::tensor::{serialize, Dtype, TensorView};

fn main() {
    let all = [
        ("bool", Dtype::BOOL),
        ("f4", Dtype::F4),
        ("f6_e2m3", Dtype::F6_E2M3),
        ("f6_e3m2", Dtype::F6_E3M2),
        ("u8", Dtype::U8),
        ("i8", Dtype::I8),
        ("f8_e5m2", Dtype::F8_E5M2),
        ("f8_e4m3", Dtype::F8_E4M3),
        ("f8_e8m0", Dtype::F8_E8M0),
        ("f8_e4m3fnuz", Dtype::F8_E4M3FNUZ),
        ("f8_e5m2fnuz", Dtype::F8_E5M2FNUZ),
        ("i16", Dtype::I16),
        ("u16", Dtype::U16),
        ("f16", Dtype::F16),
        ("bf16", Dtype::BF16),
        ("i32", Dtype::I32),
        ("u32", Dtype::U32),
        ("f32", Dtype::F32),
        ("c64", Dtype::C64),
        ("f64", Dtype::F64),
        ("i64", Dtype::I64),
        ("u64", Dtype::U64),
    ];
    let data: Vec<u8> = (0..=255).collect();
    let mut tensors = vec![];
    for (i, (name, dtype)) in all.iter().enumerate() {
        let bytes = &data[i..i + 8 * dtype.bitsize() / 8];
        tensors.push((name.to_string(), TensorView::new(*dtype, vec![2, 4], bytes).unwrap()));
        if dtype.bitsize() < 8 {
            // a size that is whole bytes, and no multiple of the others' alignment
            tensors.push((format!("{name} odd"), TensorView::new(*dtype, vec![4, 1, 3], &data[i..i + 12 * dtype.bitsize() / 8]).unwrap()));
        }
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../safetensors/testdata/written/every_dtype.safetensors");
    std::fs::write(path, serialize(tensors, None).unwrap()).unwrap();
}
