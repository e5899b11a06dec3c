//! Scenes as SVG.

use std::fmt::Write;

use super::{Anchor, Colour, Scene, Shape};

/// Letters of the usual fonts with equal widths are this wide, as a part of their size.
const LETTER: f64 = 0.6;

pub(super) fn write(scene: &Scene) -> String {
    let (width, height) = (scene.width, scene.height);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} \
         {height}\" font-family=\"ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace\">\n"
    );
    for shape in &scene.shapes {
        // Writing to a text cannot fail.
        let _ = match shape {
            Shape::Rect { x, y, width, height, colour } => writeln!(
                text,
                "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"/>",
                number(*x),
                number(*y),
                number(*width),
                number(*height),
                hex(*colour)
            ),
            Shape::Text { x, y, text: letters, size, anchor, colour } => {
                let anchor = match anchor {
                    Anchor::Start => "",
                    Anchor::Middle => " text-anchor=\"middle\"",
                    Anchor::End => " text-anchor=\"end\"",
                };
                writeln!(
                    text,
                    "<text x=\"{}\" y=\"{}\" font-size=\"{}\" fill=\"{}\"{anchor}>{}</text>",
                    number(*x),
                    number(*y),
                    number(f64::from(size.advance()) / LETTER),
                    hex(*colour),
                    escape(letters)
                )
            }
        };
    }
    text + "</svg>\n"
}

/// Two decimals at most.
fn number(number: f64) -> String {
    let text = format!("{number:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn hex([red, green, blue]: Colour) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// Letters that XML has other uses for, or no use at all.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            letter if letter.is_control() => escaped.push('\u{fffd}'),
            letter => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::Size;

    #[test]
    fn a_scene_is_written_in_order_and_escaped() {
        let text = Shape::Text {
            x: 10.0,
            y: 20.0,
            text: "a<b> & \"c\"\x1b".to_owned(),
            size: Size::Small,
            anchor: Anchor::End,
            colour: [0, 0, 0],
        };
        let rect = Shape::Rect { x: 0.5, y: 1.0 / 3.0, width: 7.0, height: 8.0, colour: [255, 128, 1] };
        let svg = write(&Scene { width: 30, height: 40, shapes: vec![rect, text] });
        let lines: Vec<_> = svg.lines().collect();
        assert!(lines[0].contains("viewBox=\"0 0 30 40\""), "{svg}");
        assert_eq!(lines[1], "<rect x=\"0.5\" y=\"0.33\" width=\"7\" height=\"8\" fill=\"#ff8001\"/>");
        assert_eq!(
            lines[2],
            "<text x=\"10\" y=\"20\" font-size=\"10\" fill=\"#000000\" text-anchor=\"end\">a&lt;b&gt; &amp; \
             &quot;c&quot;\u{fffd}</text>"
        );
        assert_eq!(lines[3..], ["</svg>"]);
    }
}
