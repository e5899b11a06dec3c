//! Small cases with exact answers, made by `testdata/golden/make_resample.py` with rational
//! arithmetic and independent of the engine. The Python tests read the same files.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::path::{Path, PathBuf};

use robocache::ops::Resample;
use robocache::ops::resample::Method;
use robocache::{DType, Tensor, run};
use serde::Deserialize;

#[derive(Deserialize)]
struct File {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    values: Bits,
    times: Bits,
    targets: Bits,
    method: String,
    extrapolate: String,
    max_gap: Option<f64>,
    lengths: Option<Vec<i64>>,
    target_lengths: Option<Vec<i64>>,
    expect: Bits,
    valid: Vec<u8>,
    ulp: u64,
}

#[derive(Deserialize)]
struct Bits {
    dtype: String,
    shape: Vec<usize>,
    bits: Vec<String>,
}

impl Bits {
    fn words(&self) -> Vec<u64> {
        self.bits.iter().map(|bits| u64::from_str_radix(bits, 16).unwrap()).collect()
    }

    fn tensor(&self) -> Tensor {
        let words = self.words();
        let shape = &self.shape;
        match self.dtype.as_str() {
            "float32" => {
                Tensor::from_slice(&words.iter().map(|&w| f32::from_bits(w as u32)).collect::<Vec<_>>(), shape)
            }
            "float64" => Tensor::from_slice(&words.iter().map(|&w| f64::from_bits(w)).collect::<Vec<_>>(), shape),
            "int64" => Tensor::from_slice(&words.iter().map(|&w| w as i64).collect::<Vec<_>>(), shape),
            "uint8" => Tensor::from_slice(&words.iter().map(|&w| w as u8).collect::<Vec<_>>(), shape),
            other => panic!("the goldens hold no {other}"),
        }
        .unwrap()
    }
}

/// Bits of a result, and the distance in units in the last place; NaN is only near NaN.
fn distance(out: &Tensor, expect: &[u64]) -> Vec<u64> {
    match out.dtype() {
        DType::F32 => {
            let ordered = |x: f32| {
                if x.to_bits() >> 31 == 1 { -((x.to_bits() & 0x7fff_ffff) as i64) } else { x.to_bits() as i64 }
            };
            let near = |(&x, &w): (&f32, &u64)| {
                let y = f32::from_bits(w as u32);
                if x.is_nan() || y.is_nan() {
                    u64::from(x.is_nan() != y.is_nan()) * u64::MAX
                } else {
                    ordered(x).abs_diff(ordered(y))
                }
            };
            out.as_slice::<f32>().unwrap().iter().zip(expect).map(near).collect()
        }
        DType::F64 => {
            let ordered = |x: f64| {
                if x.to_bits() >> 63 == 1 { -((x.to_bits() & (u64::MAX >> 1)) as i64) } else { x.to_bits() as i64 }
            };
            let near = |(&x, &w): (&f64, &u64)| {
                let y = f64::from_bits(w);
                if x.is_nan() || y.is_nan() {
                    u64::from(x.is_nan() != y.is_nan()) * u64::MAX
                } else {
                    ordered(x).abs_diff(ordered(y))
                }
            };
            out.as_slice::<f64>().unwrap().iter().zip(expect).map(near).collect()
        }
        _ => out.as_slice::<u8>().unwrap().iter().zip(expect).map(|(&x, &w)| u64::from(x).abs_diff(w)).collect(),
    }
}

fn check(case: &Case) {
    let (values, times, targets) = (case.values.tensor(), case.times.tensor(), case.targets.tensor());
    let integers = |lengths: &Option<Vec<i64>>| lengths.as_ref().map(|l| Tensor::from_slice(l, &[l.len()]).unwrap());
    let (lengths, target_lengths) = (integers(&case.lengths), integers(&case.target_lengths));
    let op = Resample {
        method: case.method.parse::<Method>().unwrap().into(),
        extrapolate: case.extrapolate.parse().unwrap(),
        max_gap: case.max_gap,
        lengths: lengths.as_ref().map(Tensor::view),
        target_lengths: target_lengths.as_ref().map(Tensor::view),
        return_valid: true,
        ..Resample::new(values.view(), times.view(), targets.view())
    };
    let out = run(&op).unwrap_or_else(|error| panic!("{}: {error}", case.name));
    assert_eq!(out[0].shape(), case.expect.shape, "{}", case.name);
    let expect = case.expect.words();
    assert_eq!(out[0].shape().iter().product::<usize>(), expect.len(), "{}", case.name);
    let worst = distance(&out[0], &expect).into_iter().max().unwrap_or(0);
    assert!(worst <= case.ulp, "{}: {worst} units in the last place off, got {:?}", case.name, out[0]);
    let valid: Vec<u8> = out[1].as_slice::<bool>().unwrap().iter().map(|&v| u8::from(v)).collect();
    assert_eq!(valid, case.valid, "{}: valid", case.name);
}

#[test]
fn goldens() {
    // Test programs also run on machines without the checkout, which name the folder.
    let checkout = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata");
    let testdata = std::env::var_os("ROBOCACHE_TESTDATA").map_or_else(checkout, PathBuf::from);
    let folder = testdata.join("golden/resample");
    let mut cases = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let file: File = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        file.cases.iter().for_each(check);
        cases += file.cases.len();
    }
    println!("{cases} golden cases");
    assert!(cases >= 20);
}
