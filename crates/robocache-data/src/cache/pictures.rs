//! Pictures on their way into the cache: made smaller once, and encoded.

use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
use robocache::{Error, ErrorKind, Result, ensure};
pub(crate) use robocache_resize::Size;

/// Resizes 8-bit pixels `[height, width, channels]` with an antialiasing filter.
pub(crate) fn resize(pixels: &[u8], from: Size, to: Size, channels: usize) -> Result<Vec<u8>> {
    ensure!((1..=4).contains(&channels), "channels", "expected 1 to 4, got {channels}");
    robocache_resize::resize(pixels, from, to, channels)
        .map_err(|what| Error::new(ErrorKind::InvalidArgument, format!("cannot resize a picture: {what}")))
}

/// Resizes distances (little-endian `u16`): a mean of two surfaces would be neither, so the nearest
/// counts.
pub(crate) fn resize_depth(pixels: &[u8], from: Size, to: Size) -> Result<Vec<u8>> {
    ensure!(pixels.len() == from.0 * from.1 * 2, "pixels", "expected {from:?} distances, got {} bytes", pixels.len());
    let mut out = Vec::with_capacity(to.0 * to.1 * 2);
    for row in 0..to.0 {
        let from_row = (2 * row + 1) * from.0 / (2 * to.0.max(1));
        for column in 0..to.1 {
            let place = (from_row * from.1 + (2 * column + 1) * from.1 / (2 * to.1.max(1))) * 2;
            out.extend_from_slice(pixels.get(place..place + 2).unwrap_or(&[0, 0]));
        }
    }
    Ok(out)
}

/// The resolution of colour in a JPEG.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Chroma {
    /// As that of brightness: small pictures of thin objects lose more by halving it than it saves.
    Full,
    /// Half of it, both ways: half the work, now and at every decode.
    Half,
}

/// Encodes 8-bit pixels, gray or RGB.
pub(crate) fn encode_jpeg(
    pixels: &[u8],
    height: usize,
    width: usize,
    channels: usize,
    quality: u8,
    chroma: Chroma,
) -> Result<Vec<u8>> {
    let colour = match channels {
        1 => ColorType::Luma,
        3 => ColorType::Rgb,
        _ => return Err(Error::invalid("channels", format!("JPEG has 1 or 3 channels, not {channels}"))),
    };
    let failed = |what: String| Error::new(ErrorKind::InvalidArgument, format!("cannot encode a picture: {what}"));
    let side = |size: usize| u16::try_from(size).map_err(|error| failed(error.to_string()));
    let mut out = Vec::with_capacity(pixels.len() / 4);
    let mut encoder = Encoder::new(&mut out, quality);
    encoder.set_sampling_factor(match chroma {
        Chroma::Full => SamplingFactor::R_4_4_4,
        Chroma::Half => SamplingFactor::R_4_2_0,
    });
    encoder.encode(pixels, side(width)?, side(height)?, colour).map_err(|error| failed(error.to_string()))?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gradient(height: usize, width: usize) -> Vec<u8> {
        (0..height * width)
            .flat_map(|at| {
                let (row, column) = (at / width, at % width);
                [row * 255 / height, column * 255 / width, 128 + (row + column) % 32].map(|value| value as u8)
            })
            .collect()
    }

    #[test]
    fn pictures_survive_jpeg_within_its_quality() {
        let pixels = gradient(48, 64);
        // Odd sizes too: blocks of colour reach over the edge then.
        for (height, width, chroma, least) in [(48, 64, Chroma::Full, 36.0), (47, 63, Chroma::Half, 28.0)] {
            let pixels = if height == 48 { pixels.clone() } else { gradient(height, width) };
            let encoded = encode_jpeg(&pixels, height, width, 3, 95, chroma).unwrap();
            assert!(encoded.len() < pixels.len() / 2);
            let path = std::path::Path::new("x.jpg");
            let image = crate::image::decode_image(path, &encoded, &crate::Limits::default()).unwrap();
            let crate::image::Pixels::U8(decoded) = image.pixels else { panic!("8 bits") };
            let error: f64 = pixels.iter().zip(&decoded).map(|(&a, &b)| (f64::from(a) - f64::from(b)).powi(2)).sum();
            let psnr = 10.0 * (255.0f64.powi(2) / (error / pixels.len() as f64)).log10();
            assert!(psnr > least, "{chroma:?}: {psnr}");
        }
        assert!(encode_jpeg(&pixels, 48, 64, 4, 95, Chroma::Full).is_err());
        assert!(encode_jpeg(&pixels[1..], 48, 64, 3, 95, Chroma::Full).is_err());
    }

    #[test]
    fn smaller_pictures_are_means_and_distances_are_not() {
        let checkers: Vec<u8> = (0..64).map(|at| if (at / 8 + at) % 2 == 0 { 0 } else { 200 }).collect();
        let small = resize(&checkers, (8, 8), (2, 2), 1).unwrap();
        assert!(small.iter().all(|&value| (90..=110).contains(&value)), "{small:?}");
        let depth: Vec<u8> = (0..16u16).flat_map(|at| (at * 1000).to_le_bytes()).collect();
        let small = resize_depth(&depth, (4, 4), (2, 2)).unwrap();
        let values: Vec<u16> = small.chunks(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
        assert_eq!(values, [5000, 7000, 13000, 15000]);
        assert!(resize(&checkers, (8, 9), (2, 2), 1).is_err());
        assert!(resize_depth(&depth, (4, 5), (2, 2)).is_err());
    }
}
