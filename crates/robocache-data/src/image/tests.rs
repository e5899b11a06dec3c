use png::{BitDepth, ColorType};
use robocache::ErrorKind::{CorruptData, LimitExceeded, Unsupported};

use super::*;

// JPEG images of 24 x 16 pixels in blocks of 8: red, green, blue over white, black, brown.

/// Colours, without subsampling.
const RGB: &str = "\
    ffd8ffe000104a46494600010100000100010000ffdb004300080606070605080707070909080a0c140d0c0b0b0c1912130f141d1a1f1e\
    1d1a1c1c20242e2720222c231c1c2837292c30313434341f27393d38323c2e333432ffdb0043010909090c0b0c180d0d1832211c213232\
    323232323232323232323232323232323232323232323232323232323232323232323232323232323232323232323232ffc00011080010\
    001803011100021101031101ffc400160001010100000000000000000000000000070806ffc40014100100000000000000000000000000\
    000000ffc4001801000203000000000000000000000000000507000608ffc40014110100000000000000000000000000000000ffda000c\
    03010002110311003f00c5ab2789295a62f0335e198b888e13400884f071f7ffd9\
";

/// The same in several scans.
const PROGRESSIVE: &str = "\
    ffd8ffe000104a46494600010100000100010000ffdb004300080606070605080707070909080a0c140d0c0b0b0c1912130f141d1a1f1e\
    1d1a1c1c20242e2720222c231c1c2837292c30313434341f27393d38323c2e333432ffdb0043010909090c0b0c180d0d1832211c213232\
    323232323232323232323232323232323232323232323232323232323232323232323232323232323232323232323232ffc20011080010\
    001803011100021101031101ffc400160001010100000000000000000000000000060705ffc40018010002030000000000000000000000\
    00000406000507ffda000c03010002100310000001c5ac784b598b82d799ae28e540244e19ff00ffc40014100100000000000000000000\
    000000000020ffda00080101000105025fffc40014110100000000000000000000000000000020ffda0008010301013f015fffc4001411\
    0100000000000000000000000000000020ffda0008010201013f015fffc40014100100000000000000000000000000000020ffda000801\
    0100063f025fffc40014100100000000000000000000000000000020ffda0008010100013f215fffda000c030100020003000000102fc1\
    7fffc40014110100000000000000000000000000000020ffda0008010301013f105fffc400141101000000000000000000000000000000\
    20ffda0008010201013f105fffc40014100100000000000000000000000000000020ffda0008010100013f105fffd9\
";

/// Its green channel.
const GRAY: &str = "\
    ffd8ffe000104a46494600010100000100010000ffdb004300080606070605080707070909080a0c140d0c0b0b0c1912130f141d1a1f1e\
    1d1a1c1c20242e2720222c231c1c2837292c30313434341f27393d38323c2e333432ffc0000b080010001801011100ffc4001500010100\
    000000000000000000000000000807ffc40014100100000000000000000000000000000000ffda0008010100003f003f9fe001fe00280f\
    ffd9\
";

/// Its inverse as printers have it.
const CMYK: &str = "\
    ffd8ffee000e41646f626500640000000000ffdb004300080606070605080707070909080a0c140d0c0b0b0c1912130f141d1a1f1e1d1a\
    1c1c20242e2720222c231c1c2837292c30313434341f27393d38323c2e333432ffc000140800100018044311004d11005911004b1100ff\
    c40017000101010100000000000000000000000008000706ffc40014100100000000000000000000000000000000ffda000e0443004d00\
    59004b00003f00dfc7f1fdbf8007fa48003fd1fe7fa400000002201a03a04fffd9\
";

fn bytes(hex: &str) -> Vec<u8> {
    let digit = |byte: u8| u8::try_from(char::from(byte).to_digit(16).unwrap()).unwrap();
    hex.as_bytes().chunks(2).map(|pair| digit(pair[0]) * 16 + digit(pair[1])).collect()
}

fn png(width: u32, height: u32, color: ColorType, depth: BitDepth, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, width, height);
    encoder.set_color(color);
    encoder.set_depth(depth);
    if color == ColorType::Indexed {
        encoder.set_palette(vec![1, 2, 3, 10, 20, 30]);
    }
    encoder.write_header().unwrap().write_image_data(data).unwrap();
    out
}

fn decode(bytes: &[u8]) -> Result<Image> {
    decode_image(Path::new("a.parquet"), bytes, &Limits::default())
}

fn size(bytes: &[u8]) -> Result<ImageSize> {
    image_header(Path::new("a.parquet"), bytes, &Limits::default()).map(|(size, _)| size)
}

#[test]
fn png_images_keep_their_values() {
    let ramp = |count: u8| (0..count).map(|value| value.wrapping_mul(37)).collect::<Vec<u8>>();
    for (color, channels) in
        [(ColorType::Grayscale, 1), (ColorType::GrayscaleAlpha, 2), (ColorType::Rgb, 3), (ColorType::Rgba, 4)]
    {
        let data = ramp(3 * 2 * channels);
        let file = png(3, 2, color, BitDepth::Eight, &data);
        let image = decode(&file).unwrap();
        assert_eq!(image.size, ImageSize { height: 2, width: 3, channels: channels.into() });
        assert_eq!(image.pixels, Pixels::U8(data));
        assert_eq!(size(&file).unwrap(), image.size);

        let data = ramp(3 * 2 * channels * 2);
        let image = decode(&png(3, 2, color, BitDepth::Sixteen, &data)).unwrap();
        let values = data.chunks(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
        assert_eq!(image.pixels, Pixels::U16(values), "{color:?}");
    }
}

#[test]
fn small_depths_and_palettes_become_eight_bits() {
    let image = decode(&png(4, 1, ColorType::Grayscale, BitDepth::Two, &[0b0001_1011])).unwrap();
    assert_eq!(image.pixels, Pixels::U8(vec![0, 85, 170, 255]));
    let image = decode(&png(2, 1, ColorType::Indexed, BitDepth::Eight, &[1, 0])).unwrap();
    assert_eq!((image.size.channels, image.pixels), (3, Pixels::U8(vec![10, 20, 30, 1, 2, 3])));
}

#[test]
fn jpeg_images_are_decoded() {
    for (name, hex) in [("baseline", RGB), ("progressive", PROGRESSIVE)] {
        let image = decode(&bytes(hex)).unwrap();
        assert_eq!(image.size, ImageSize { height: 16, width: 24, channels: 3 });
        assert_eq!(size(&bytes(hex)).unwrap(), image.size);
        let Pixels::U8(data) = image.pixels else { panic!("{name}: 8 bits") };
        for (row, column, expected) in
            [(4, 4, [254, 0, 0]), (4, 12, [0, 255, 1]), (4, 20, [0, 0, 254]), (12, 20, [128, 63, 31])]
        {
            let at = (row * 24 + column) * 3;
            // Decoders may differ in the last bit.
            let near =
                data[at..at + 3].iter().zip(expected).all(|(&came, wanted): (&u8, u8)| came.abs_diff(wanted) <= 2);
            assert!(near, "{name} {row} {column}: {:?}", &data[at..at + 3]);
        }
    }
    let image = decode(&bytes(GRAY)).unwrap();
    assert_eq!(image.size, ImageSize { height: 16, width: 24, channels: 1 });
    let Pixels::U8(data) = image.pixels else { panic!("8 bits") };
    assert!(data[4 * 24 + 4] <= 2 && data[4 * 24 + 12] >= 253, "{} {}", data[100], data[108]);
}

#[test]
fn bad_images_are_typed_errors() {
    let good = png(40, 30, ColorType::Rgb, BitDepth::Eight, &[7; 3600]);
    let mut wrong_check = good.clone();
    let length = wrong_check.len();
    wrong_check[length - 20] ^= 1;
    let mut huge = good.clone();
    huge[16..24].copy_from_slice(&[0x7f, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff]);
    let jpeg = bytes(RGB);
    let mut huge_jpeg = jpeg.clone();
    let at = jpeg.windows(2).position(|pair| pair == [0xff, 0xc0]).unwrap() + 5;
    huge_jpeg[at..at + 4].copy_from_slice(&[0xff; 4]);
    let rows: Vec<(u32, &str, Vec<u8>, ErrorKind)> = vec![
        (39, "0 bytes", vec![], CorruptData),
        (39, "1 byte", vec![0x89], CorruptData),
        (39, "PNG magic", good[..8].to_vec(), CorruptData),
        (39, "JPEG magic", jpeg[..3].to_vec(), CorruptData),
        (39, "text", b"no image at all".to_vec(), CorruptData),
        (60, "PNG cut", good[..good.len() - 30].to_vec(), CorruptData),
        (60, "PNG damaged", wrong_check, CorruptData),
        (46, "PNG with the header of a huge one", huge, CorruptData),
        (46, "JPEG with the header of a huge one", huge_jpeg, LimitExceeded),
        (60, "JPEG cut in its header", jpeg[..100].to_vec(), CorruptData),
        (60, "JPEG cut in its pixels", jpeg[..jpeg.len() - 14].to_vec(), CorruptData),
    ];
    for (id, name, bytes, kind) in rows {
        let error = decode(&bytes).expect_err(name);
        assert_eq!(error.kind(), kind, "{id} {name}: {error}");
        assert_eq!(error.file(), Some(Path::new("a.parquet")), "{id} {name}");
    }
    assert_eq!(decode(&bytes(CMYK)).unwrap_err().kind(), Unsupported);
}

#[test]
fn limits_hold_before_memory_is_reserved() {
    let file = png(40, 30, ColorType::Rgb, BitDepth::Eight, &[7; 3600]);
    for limits in [Limits { max_pixels: 1199, ..Limits::default() }, Limits { max_alloc: 3599, ..Limits::default() }] {
        let error = decode_image(Path::new("x"), &file, &limits).unwrap_err();
        assert_eq!(error.kind(), LimitExceeded, "{error}");
    }
    let limits = Limits { max_pixels: 383, ..Limits::default() };
    let error = decode_image(Path::new("x"), &bytes(RGB), &limits).unwrap_err();
    assert_eq!(error.kind(), LimitExceeded, "{error}");
}

#[test]
fn mutations_give_an_image_or_a_typed_error() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut below = |bound: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % bound as u64).unwrap()
    };
    // What a mutation may make the image large is bounded, so that the test is quick.
    let limits = Limits { max_pixels: 1 << 20, ..Limits::default() };
    let files = [
        png(40, 30, ColorType::Rgb, BitDepth::Eight, &(0..3600).map(|value| (value % 251) as u8).collect::<Vec<_>>()),
        bytes(RGB),
        bytes(PROGRESSIVE),
        bytes(GRAY),
    ];
    for file in &files {
        for length in 0..file.len() {
            let _ = image_header(Path::new("x"), &file[..length], &limits);
            let _ = decode_image(Path::new("x"), &file[..length], &limits);
        }
        for _ in 0..1000 {
            let mut file = file.clone();
            for _ in 0..=below(3) {
                let at = below(file.len());
                file[at] = u8::try_from(below(256)).unwrap();
            }
            match decode_image(Path::new("x"), &file, &limits) {
                Ok(image) => {
                    let ImageSize { height, width, channels } = image.size;
                    let count = match &image.pixels {
                        Pixels::U8(data) => data.len(),
                        Pixels::U16(data) => data.len(),
                    };
                    assert_eq!(count, height * width * channels);
                }
                Err(error) => assert!(error.file().is_some(), "{error}"),
            }
        }
    }
}

#[test]
fn scans_of_some_colours_are_refused_rather_than_read_wrong() {
    let pixels: Vec<u8> = (0..32 * 32 * 3).map(|at| (at * 7 % 256) as u8).collect();
    let encode = |sampling, optimised| {
        let mut out = Vec::new();
        let mut encoder = jpeg_encoder::Encoder::new(&mut out, 90);
        encoder.set_sampling_factor(sampling);
        encoder.set_optimized_huffman_tables(optimised);
        encoder.encode(&pixels, 32, 32, jpeg_encoder::ColorType::Rgb).unwrap();
        out
    };
    use jpeg_encoder::SamplingFactor::{R_4_2_0, R_4_4_4};
    assert_eq!(decode(&encode(R_4_2_0, true)).unwrap_err().kind(), Unsupported);
    for (sampling, optimised) in [(R_4_2_0, false), (R_4_4_4, false), (R_4_4_4, true)] {
        assert!(decode(&encode(sampling, optimised)).is_ok(), "{sampling:?} {optimised}");
    }
}
