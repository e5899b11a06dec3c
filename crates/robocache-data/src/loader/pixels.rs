//! Pixels as networks want them: from `[height, width, channels]` to `[channels, height, width]`.

use robocache::DType;

use super::spec::Key;

/// Writes the pixels of one picture, scaled where that is wanted.
pub(crate) fn write_pixels(key: &Key, pixels: &[u8], out: &mut [u8]) {
    let &[channels, height, width] = key.shape.as_slice() else {
        return;
    };
    let plane = height * width;
    match (key.dtype, key.meta.number_type()) {
        (Some(DType::U8), _) => {
            for (channel, place) in out.chunks_exact_mut(plane.max(1)).enumerate().take(channels) {
                take(pixels, channels, channel, place);
            }
        }
        (Some(DType::F32), Some(DType::U8)) => {
            for (channel, place) in out.chunks_exact_mut((plane * 4).max(1)).enumerate().take(channels) {
                let of = |list: &[f64]| list.get(channel).copied();
                let scale = key.scale.as_ref();
                let shift = scale.and_then(|scale| of(&scale.shift)).unwrap_or(0.0) as f32;
                let factor = scale.and_then(|scale| of(&scale.factor)).unwrap_or(1.0) as f32;
                scaled(pixels, channels, channel, (shift, factor), place);
            }
        }
        // Distances have one channel.
        _ => out.iter_mut().zip(pixels).for_each(|(place, &value)| *place = value),
    }
}

/// Compiles a loop for any machine and for AVX2, where taking every third byte takes no time.
macro_rules! in_vectors {
    ($name:ident($($argument:ident: $type:ty),+) $body:block) => {
        fn $name($($argument: $type),+) {
            #[inline(always)]
            fn any($($argument: $type),+) $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2")]
                fn avx2($($argument: $type),+) {
                    any($($argument),+);
                }
                if std::arch::is_x86_feature_detected!("avx2") {
                    // SAFETY: the instructions were found on this machine.
                    return unsafe { avx2($($argument),+) };
                }
            }
            any($($argument),+);
        }
    };
}

in_vectors!(take(pixels: &[u8], channels: usize, channel: usize, out: &mut [u8]) {
    if channels == 3 && channel < 3 {
        // With the number known the loop becomes vector instructions.
        out.iter_mut().zip(pixels.as_chunks::<3>().0).for_each(|(place, colours)| *place = colours[channel]);
    } else {
        let values = pixels.iter().skip(channel).step_by(channels.max(1));
        out.iter_mut().zip(values).for_each(|(place, &value)| *place = value);
    }
});

in_vectors!(scaled(pixels: &[u8], channels: usize, channel: usize, scale: (f32, f32), out: &mut [u8]) {
    let (shift, factor) = scale;
    let of = |value: u8| ((f32::from(value) / 255.0 - shift) * factor).to_le_bytes();
    let places = out.as_chunks_mut::<4>().0;
    if channels == 3 && channel < 3 {
        places.iter_mut().zip(pixels.as_chunks::<3>().0).for_each(|(place, colours)| *place = of(colours[channel]));
    } else {
        let values = pixels.iter().skip(channel).step_by(channels.max(1));
        places.iter_mut().zip(values).for_each(|(place, &value)| *place = of(value));
    }
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_hold_every_third_byte_or_whatever_there_is() {
        for channels in [1usize, 2, 3, 4] {
            for plane in [0usize, 1, 7, 31, 32, 33, 1000] {
                let pixels: Vec<u8> = (0..channels * plane).map(|at| (at * 37 % 251) as u8).collect();
                for channel in 0..channels {
                    let expected: Vec<u8> = (0..plane).map(|at| pixels[at * channels + channel]).collect();
                    let mut out = vec![0; plane];
                    take(&pixels, channels, channel, &mut out);
                    assert_eq!(out, expected);
                    let mut out = vec![0; plane * 4];
                    scaled(&pixels, channels, channel, (0.5, 2.0), &mut out);
                    let numbers: Vec<f32> =
                        out.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
                    let expected: Vec<f32> =
                        expected.iter().map(|&value| (f32::from(value) / 255.0 - 0.5) * 2.0).collect();
                    assert_eq!(numbers, expected);
                }
            }
        }
    }
}
