use super::*;
use crate::Limits;
use crate::image::{Pixels, decode_image};

/// A picture in planes, with edges, noise, and colours everywhere.
fn planes(height: usize, width: usize) -> Vec<u8> {
    let mut state = 1u32;
    let mut noise = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 29) as usize
    };
    let mut out = Vec::new();
    let (half_height, half_width) = halves(height, width);
    for (rows, columns, low, high) in
        [(height, width, 16, 235), (half_height, half_width, 40, 200), (half_height, half_width, 60, 220)]
    {
        for row in 0..rows {
            for column in 0..columns {
                let ramp = low + (row * 3 + column * 2) % (high - low - 8);
                let edge = if (row / 11 + column / 13) % 2 == 0 { 0 } else { (high - ramp - 8) / 2 };
                out.push((ramp + edge + noise()) as u8);
            }
        }
    }
    out
}

fn decoded(encoded: &[u8]) -> (usize, usize, Vec<u8>) {
    let image = decode_image(std::path::Path::new("x.jpg"), encoded, &Limits::default()).unwrap();
    let Pixels::U8(pixels) = image.pixels else { panic!("8 bits") };
    assert_eq!(image.size.channels, 3);
    (image.size.height, image.size.width, pixels)
}

fn psnr(a: &[u8], b: &[u8]) -> f64 {
    let error: f64 = a.iter().zip(b).map(|(&a, &b)| (f64::from(a) - f64::from(b)).powi(2)).sum();
    10.0 * (255.0f64.powi(2) / (error / a.len() as f64)).log10()
}

fn rgb(planes: &Planes<'_>) -> Vec<u8> {
    planes.pixels(1).flatten().collect()
}

#[test]
fn pictures_are_as_good_as_those_that_went_through_rgb() {
    for (height, width) in [(64, 80), (48, 48), (47, 63), (1, 1), (8, 17), (16, 16), (33, 15)] {
        let bytes = planes(height, width);
        for levels in [Levels::Limited, Levels::Full] {
            for quality in [1, 10, 50, 80, 90, 95, 100] {
                let planes = Planes::new(&bytes, height, width, levels).unwrap();
                let expected = rgb(&planes);
                let encoded = JpegEncoder::new(quality, levels).encode(&planes).unwrap();
                let (found_height, found_width, found) = decoded(&encoded);
                assert_eq!((found_height, found_width), (height, width));
                let other = super::super::pictures::encode_jpeg(
                    &expected,
                    height,
                    width,
                    3,
                    quality,
                    super::super::pictures::Chroma::Half,
                )
                .unwrap();
                let (own, through_rgb) = (psnr(&expected, &found), psnr(&expected, &decoded(&other).2));
                assert!(
                    own > through_rgb - 0.15,
                    "{height} x {width}, {levels:?}, quality {quality}: {own:.2} dB, through RGB {through_rgb:.2} dB"
                );
                let room = other.len() + other.len() / 20 + 64;
                assert!(encoded.len() <= room, "quality {quality}: {} bytes, {} before", encoded.len(), other.len());
            }
        }
    }
}

#[test]
fn all_machines_make_the_same_bytes() {
    let (height, width) = (45, 70);
    let bytes = planes(height, width);
    let picture = Planes::new(&bytes, height, width, Levels::Limited).unwrap();
    let encoder = JpegEncoder::new(95, Levels::Limited);
    let plain = encoder.blocks(&picture, transposed).finish(Vec::new());
    assert!(encoder.encode(&picture).unwrap().ends_with(&plain));
}

#[test]
fn levels_beyond_black_and_white_stay_black_and_white() {
    for (value, expected) in [(0u8, 0u8), (255, 255)] {
        // Alternating blocks: the largest distance from one to the next.
        let mut bytes: Vec<u8> = (0..32 * 32).map(|at| if (at / 8) % 2 == 0 { value } else { 255 - value }).collect();
        bytes.resize(32 * 32 * 3 / 2, 128);
        let planes = Planes::new(&bytes, 32, 32, Levels::Limited).unwrap();
        let (_, _, found) = decoded(&JpegEncoder::new(100, Levels::Limited).encode(&planes).unwrap());
        assert_eq!(found[0], expected);
        assert_eq!(found[8 * 3], 255 - expected);
    }
}

#[test]
fn noise_at_the_best_quality_fits() {
    // Every number of every block is there, and bytes of ones are.
    let mut state = 7u64;
    let bytes: Vec<u8> = (0..64 * 64 * 3 / 2)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            if state >> 63 == 1 { 255 } else { 0 }
        })
        .collect();
    let planes = Planes::new(&bytes, 64, 64, Levels::Full).unwrap();
    let (_, _, found) = decoded(&JpegEncoder::new(100, Levels::Full).encode(&planes).unwrap());
    let luma =
        |pixels: &[u8]| 0.299 * f64::from(pixels[0]) + 0.587 * f64::from(pixels[1]) + 0.114 * f64::from(pixels[2]);
    let expected = rgb(&planes);
    let off = expected.chunks(3).zip(found.chunks(3)).map(|(a, b)| (luma(a) - luma(b)).abs()).sum::<f64>() / 4096.0;
    assert!(off < 64.0, "{off}");
}

#[test]
fn what_is_no_picture_is_refused() {
    assert!(Planes::new(&[0; 5], 2, 2, Levels::Full).is_err());
    assert!(Planes::new(&[0; 7], 2, 2, Levels::Full).is_err());
    let nothing = Planes::new(&[], 0, 0, Levels::Full).unwrap();
    assert!(JpegEncoder::new(90, Levels::Full).encode(&nothing).is_err());
    let bytes = vec![0; 65_536 * 3 / 2 + 65_536];
    let wide = Planes::new(&bytes[..65_536 + 2 * 32_768], 1, 65_536, Levels::Full).unwrap();
    assert!(JpegEncoder::new(90, Levels::Full).encode(&wide).is_err());
    let planes = Planes::new(&[0; 6], 2, 2, Levels::Full).unwrap();
    assert!(JpegEncoder::new(90, Levels::Limited).encode(&planes).is_err(), "other levels");
}
