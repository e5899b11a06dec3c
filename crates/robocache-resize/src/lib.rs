//! Pictures made smaller, of 8-bit pixels.
//!
//! A crate of its own since `fast_image_resize` is made of generics, hundreds of loops in vector instructions for each
//! kind of pixel: they are compiled here once, and not again with every change and test of what uses them.

use fast_image_resize::images::{TypedImage, TypedImageRef};
use fast_image_resize::pixels::{U8, U8x3};
use fast_image_resize::{FilterType, PixelTrait, ResizeAlg, ResizeOptions, Resizer};

/// Height and width.
pub type Size = (usize, usize);

/// Resizes pixels `[height, width, channels]` of 1 to 4 channels with an antialiasing filter.
///
/// # Errors
/// Says what is wrong where the pixels are fewer than their size tells, or no picture has so many channels.
pub fn resize(pixels: &[u8], from: Size, to: Size, channels: usize) -> Result<Vec<u8>, String> {
    match channels {
        1 => resize_as::<U8>(pixels, from, to),
        3 => resize_as::<U8x3>(pixels, from, to),
        2 | 4 => resize_planes(pixels, from, to, channels),
        _ => Err(format!("expected 1 to 4 channels, got {channels}")),
    }
}

/// Each channel by itself. Pictures with alpha are rare, and every kind of pixels costs half a minute to compile.
fn resize_planes(pixels: &[u8], from: Size, to: Size, channels: usize) -> Result<Vec<u8>, String> {
    let mut resized = Vec::new();
    for channel in 0..channels {
        let plane: Vec<u8> = pixels.iter().skip(channel).step_by(channels).copied().collect();
        let plane = resize_as::<U8>(&plane, from, to)?;
        resized.resize(plane.len() * channels, 0);
        for (to, number) in resized.iter_mut().skip(channel).step_by(channels).zip(plane) {
            *to = number;
        }
    }
    Ok(resized)
}

/// For a kind of pixels that is known here: a choice at run time would compile all kinds that the crate has.
fn resize_as<P: PixelTrait>(pixels: &[u8], from: Size, to: Size) -> Result<Vec<u8>, String> {
    let sides = |(height, width): Size| match (u32::try_from(height), u32::try_from(width)) {
        (Ok(height), Ok(width)) => Ok((height, width)),
        _ => Err(format!("{height} x {width} is larger than pictures can be")),
    };
    let ((from_height, from_width), (to_height, to_width)) = (sides(from)?, sides(to)?);
    let source = TypedImageRef::<P>::from_buffer(from_width, from_height, pixels);
    let source = source.map_err(|error| error.to_string())?;
    let bytes = to.0.checked_mul(to.1).and_then(|pixels| pixels.checked_mul(size_of::<P>()));
    let mut resized = vec![0; bytes.ok_or("it would be larger than memory")?];
    let target = TypedImage::<P>::from_buffer(to_width, to_height, &mut resized);
    let mut target = target.map_err(|error| error.to_string())?;
    // Alpha is a channel like others here.
    let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::Bilinear)).use_alpha(false);
    Resizer::new().resize_typed(&source, &mut target, &options).map_err(|error| error.to_string())?;
    Ok(resized)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_are_resized_alike() {
        let plane: Vec<u8> = (0..64).map(|at: u32| (at * at % 251) as u8).collect();
        let small = resize(&plane, (8, 8), (3, 5), 1).unwrap();
        for channels in 2..=4 {
            let pixels: Vec<u8> = plane.iter().flat_map(|&value| vec![value; channels]).collect();
            let expected: Vec<u8> = small.iter().flat_map(|&value| vec![value; channels]).collect();
            assert_eq!(resize(&pixels, (8, 8), (3, 5), channels).unwrap(), expected, "{channels} channels");
        }
    }

    #[test]
    fn what_is_no_picture_is_refused() {
        assert!(resize(&[0; 63], (8, 8), (2, 2), 1).is_err());
        assert!(resize(&[0; 64 * 5], (8, 8), (2, 2), 5).unwrap_err().contains("5"));
        assert!(resize(&[0; 64], (8, 8), (2, 1 << 40), 1).unwrap_err().contains("larger"));
        assert_eq!(resize(&[0; 64], (8, 8), (0, 2), 1).unwrap(), []);
    }
}
