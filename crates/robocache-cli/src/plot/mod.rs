//! Pictures: rectangles and text, saved as SVG.

mod save;
mod svg;

pub(crate) use self::save::Target;

/// Red, green, blue.
pub(crate) type Colour = [u8; 3];

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

/// Letters of a size all have the same width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Size {
    Small,
    Large,
}

impl Size {
    /// Units from letter to letter.
    pub(crate) const fn advance(self) -> u32 {
        match self {
            Self::Small => 6,
            Self::Large => 9,
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
