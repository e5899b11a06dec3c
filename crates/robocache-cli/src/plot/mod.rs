//! Pictures: rectangles and text, saved as SVG or PNG.

mod font;
mod png;
mod save;
mod svg;

pub(crate) use self::save::Target;

/// Red, green, blue.
pub(crate) type Colour = [u8; 3];

/// Pixels of a PNG per unit of a scene.
const SCALE: u32 = 2;

/// A picture in units of half a line of small text, from the top left.
#[derive(Debug)]
pub(crate) struct Scene {
    pub(crate) width: u32,
    pub(crate) height: u32,
    /// Painted one over the other.
    pub(crate) shapes: Vec<Shape>,
}

#[derive(Debug)]
pub(crate) enum Shape {
    Rect {
        x: f64,
        y: f64,
        width: f64,
        height: f64,
        colour: Colour,
    },
    /// `y` is the line that letters stand on.
    Text {
        x: f64,
        y: f64,
        text: String,
        size: Size,
        anchor: Anchor,
        colour: Colour,
    },
}

/// Letters all have the same width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Size {
    Small,
    Large,
}

impl Size {
    /// Units from letter to letter.
    pub(crate) const fn advance(self) -> u32 {
        self.pixels() * font::ADVANCE / SCALE
    }

    /// Pixels per dot of the bitmap font.
    const fn pixels(self) -> u32 {
        match self {
            Self::Small => 2,
            Self::Large => 3,
        }
    }
}

/// What of a text is at its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

impl Anchor {
    /// Where a text of this width starts, seen from its place.
    fn offset(self, width: f64) -> f64 {
        match self {
            Self::Start => 0.0,
            Self::Middle => -width / 2.0,
            Self::End => -width,
        }
    }
}
