//! Scenes as PNG.

use robocache::{Error, ErrorKind, Result};

use super::{Colour, SCALE, Scene, Shape, font};

/// A picture that is painted on.
struct Canvas {
    width: usize,
    height: usize,
    pixels: Vec<u8>,
}

pub(super) fn write(scene: &Scene) -> Result<Vec<u8>> {
    let (width, height) = (scene.width * SCALE, scene.height * SCALE);
    let mut canvas = Canvas::new(width as usize, height as usize)?;
    for shape in &scene.shapes {
        canvas.paint(shape);
    }
    encode(width, height, &canvas.pixels)
        .map_err(|error| Error::new(ErrorKind::Unsupported, "cannot encode the picture").caused_by(error))
}

fn encode(width: u32, height: u32, pixels: &[u8]) -> std::result::Result<Vec<u8>, png::EncodingError> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(pixels)?;
    writer.finish()?;
    Ok(bytes)
}

impl Canvas {
    fn new(width: usize, height: usize) -> Result<Self> {
        let size = width * height * 3;
        let mut pixels = Vec::new();
        pixels
            .try_reserve_exact(size)
            .map_err(|error| Error::new(ErrorKind::OutOfMemory, "no memory for the picture").caused_by(error))?;
        pixels.resize(size, 255);
        Ok(Self { width, height, pixels })
    }

    fn paint(&mut self, shape: &Shape) {
        let scale = f64::from(SCALE);
        match shape {
            Shape::Rect { x, y, width, height, colour } => {
                let (left, top) = ((x * scale).round(), (y * scale).round());
                // What is there can be seen.
                let right = ((x + width) * scale).round().max(left + 1.0);
                let bottom = ((y + height) * scale).round().max(top + 1.0);
                self.fill([left, top, right, bottom].map(|edge| edge as i64), *colour);
            }
            Shape::Text { x, y, text, size, anchor, colour } => {
                let dot = i64::from(size.pixels());
                let advance = dot * i64::from(font::ADVANCE);
                let width = text.chars().count() as i64 * advance;
                let mut left = (x * scale + anchor.offset(width as f64)).round() as i64;
                let top = (y * scale).round() as i64 - i64::from(font::BASELINE) * dot;
                for letter in text.chars() {
                    self.letter(letter, left, top, dot, *colour);
                    left += advance;
                }
            }
        }
    }

    fn letter(&mut self, letter: char, left: i64, top: i64, dot: i64, colour: Colour) {
        for (row, bits) in (0..).zip(font::glyph(letter)) {
            for column in
                (0..i64::from(font::WIDTH)).filter(|column| bits >> (i64::from(font::WIDTH) - 1 - column) & 1 == 1)
            {
                let (x, y) = (left + column * dot, top + row * dot);
                self.fill([x, y, x + dot, y + dot], colour);
            }
        }
    }

    /// `[left, top, right, bottom]`; what is outside is left out.
    fn fill(&mut self, [left, top, right, bottom]: [i64; 4], colour: Colour) {
        let inside = |edge: i64, size: usize| usize::try_from(edge).unwrap_or(0).min(size);
        let columns = inside(left, self.width)..inside(right, self.width);
        for row in inside(top, self.height)..inside(bottom, self.height) {
            let start = row * self.width;
            if columns.is_empty() {
                continue;
            }
            let pixels = self.pixels.get_mut((start + columns.start) * 3..(start + columns.end) * 3);
            pixels.into_iter().flat_map(|row| row.chunks_exact_mut(3)).for_each(|pixel| pixel.copy_from_slice(&colour));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::{Anchor, Size};

    fn decode(bytes: &[u8]) -> (u32, u32, Vec<u8>) {
        let mut reader = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        (info.width, info.height, pixels)
    }

    #[test]
    fn rectangles_are_where_they_should_be() {
        let rect = |x, y, width, height, colour| Shape::Rect { x, y, width, height, colour };
        let shapes = vec![
            rect(1.0, 0.0, 1.0, 1.0, [1, 2, 3]),
            // Partly outside, and too thin to see.
            rect(-5.0, 1.0, 5.5, 50.0, [9, 9, 9]),
            rect(2.5, 1.0, 0.01, 1.0, [4, 4, 4]),
        ];
        let (width, height, pixels) = decode(&write(&Scene { width: 3, height: 2, shapes }).unwrap());
        assert_eq!((width, height), (6, 4));
        let at = |x: usize, y: usize| &pixels[(y * 6 + x) * 3..][..3];
        assert_eq!([at(1, 0), at(2, 0), at(3, 1), at(4, 1)], [&[255; 3], &[1, 2, 3], &[1, 2, 3], &[255; 3]]);
        assert_eq!([at(0, 2), at(0, 3), at(1, 3)], [&[9; 3], &[9; 3], &[255; 3]]);
        assert_eq!([at(5, 2), at(5, 3)], [&[4; 3], &[4; 3]]);
    }

    #[test]
    fn letters_are_drawn_from_their_anchor() {
        let text =
            |x, anchor| Shape::Text { x, y: 10.0, text: "I".to_owned(), size: Size::Small, anchor, colour: [0; 3] };
        let dark = |shape| {
            let (width, _, pixels) = decode(&write(&Scene { width: 20, height: 12, shapes: vec![shape] }).unwrap());
            let columns = pixels.chunks(3).enumerate().filter(|(_, pixel)| pixel[0] == 0);
            columns.map(|(index, _)| index % width as usize).collect::<std::collections::BTreeSet<_>>()
        };
        let start = dark(text(5.0, Anchor::Start));
        assert!(start.iter().all(|column| (10..20).contains(column)) && !start.is_empty(), "{start:?}");
        assert_eq!(start, dark(text(5.0 + 3.0, Anchor::Middle)));
        assert_eq!(start, dark(text(5.0 + 6.0, Anchor::End)));
    }
}
