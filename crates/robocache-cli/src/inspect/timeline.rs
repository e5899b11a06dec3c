//! A picture of one episode: when each stream has samples.

use std::ops::Range;
use std::path::Path;

use robocache::Result;
use robocache_data::{Dataset, Kind, StreamInfo};

use super::clock::{GAP, median, seconds_between};
use crate::output::{hertz, plural, printable, shorten};
use crate::plot::{Anchor, Colour, Scene, Shape, Size};
use crate::streams::method;

const WIDTH: u32 = 960;
const MARGIN: f64 = 20.0;
/// Where lanes start and end.
const LEFT: f64 = 250.0;
const RIGHT: f64 = WIDTH as f64 - MARGIN;
const TOP: f64 = 72.0;
/// From lane to lane, and the lane's own height.
const PITCH: f64 = 38.0;
const LANE: f64 = 26.0;
const BOTTOM: f64 = 62.0;
/// A picture of more could be seen by nobody.
const LANES: usize = 100;
/// Letters before the lanes.
const LABEL: usize = 37;
/// Samples that are further apart than this are ticks, others a bar.
const TICK_SPACE: f64 = 3.0;
const TICK: f64 = 1.0;
/// A gap of a few pixels would be overlooked.
const LEAST_GAP: f64 = 2.0;

const INK: Colour = [32, 36, 44];
const FAINT: Colour = [112, 120, 132];
const GRID: Colour = [222, 226, 232];
const GROUND: Colour = [244, 246, 249];
const GAP_GROUND: Colour = [252, 218, 214];
const ALARM: Colour = [192, 44, 36];

/// The stamps of a stream, or why there are none.
#[derive(Debug)]
struct Lane<'a> {
    info: &'a StreamInfo,
    times: std::result::Result<Vec<i64>, String>,
}

/// Draws the streams of an episode.
pub(super) fn draw(dataset: &Dataset, at: usize, path: &Path) -> Result<Scene> {
    let episode = dataset.episode(at)?;
    // Rebuilt stamps have no gaps; those of the file tell.
    let recorded = dataset.recorded_times(at).ok().flatten();
    let lane = |(stream, info)| {
        let samples = dataset.read(at, &[stream]);
        let times = samples.map(|samples| samples.first().map_or_else(Vec::new, |samples| samples.times.to_vec()));
        let own = |times: Vec<i64>| recorded.clone().filter(|own| own.len() == times.len()).unwrap_or(times);
        Lane { info, times: times.map(own).map_err(|error| error.to_string()) }
    };
    let lanes: Vec<Lane<'_>> = dataset.streams().iter().enumerate().take(LANES).map(lane).collect();
    let hidden = dataset.streams().len() - lanes.len();
    let name =
        path.canonicalize().ok().and_then(|path| path.file_name().map(|name| name.to_string_lossy().into_owned()));
    let title = format!("{}, episode {}", name.unwrap_or_else(|| path.display().to_string()), episode.index);
    let mut subtitle = format!("{}, {} frames, {:.2} s", dataset.format(), episode.length, episode.duration);
    if let Some(task) = episode.tasks.first() {
        subtitle += &format!(": {task}");
    }
    Ok(scene(&printable(&title), &printable(&subtitle), &lanes, hidden))
}

fn scene(title: &str, subtitle: &str, lanes: &[Lane<'_>], hidden: usize) -> Scene {
    let bottom = TOP + PITCH * lanes.len() as f64;
    let height = (bottom + BOTTOM) as u32;
    let mut painter = Painter { shapes: Vec::new(), axis: Axis::over(lanes) };
    painter.rect(0.0, 0.0, f64::from(WIDTH), f64::from(height), [255; 3]);
    let fits = |size: Size| (RIGHT - MARGIN) as usize / size.advance() as usize;
    painter.text(MARGIN, 30.0, &shorten(title, fits(Size::Large)), Size::Large, Anchor::Start, INK);
    painter.text(MARGIN, 50.0, &shorten(subtitle, fits(Size::Small)), Size::Small, Anchor::Start, FAINT);
    let places = || (0u32..).map(|lane| TOP + PITCH * f64::from(lane)).zip(lanes);
    places().for_each(|(y, _)| painter.rect(LEFT, y, RIGHT - LEFT, LANE, GROUND));
    painter.grid(bottom);
    places().for_each(|(y, lane)| painter.lane(lane, y));
    painter.legend(bottom, hidden);
    Scene { width: WIDTH, height, shapes: painter.shapes }
}

/// Seconds, from the first stamp of all streams to the last.
#[derive(Debug)]
struct Axis {
    start: i64,
    seconds: f64,
}

impl Axis {
    fn over(lanes: &[Lane<'_>]) -> Self {
        let all = || lanes.iter().filter_map(|lane| lane.times.as_ref().ok()).flatten();
        let start = all().min().copied().unwrap_or(0);
        let end = all().max().copied().unwrap_or(0);
        let seconds = seconds_between(start, end);
        Self { start, seconds: if seconds > 0.0 { seconds } else { 1.0 } }
    }

    fn x(&self, time: i64) -> f64 {
        self.at(seconds_between(self.start, time))
    }

    fn at(&self, seconds: f64) -> f64 {
        // Half a tick of room at both ends.
        LEFT + TICK + seconds / self.seconds * (RIGHT - LEFT - 2.0 * TICK)
    }

    /// Between marks: 1, 2 or 5 times a power of ten, for at most ten marks.
    fn step(&self) -> (f64, usize) {
        let rough = self.seconds / 10.0;
        let power = rough.log10().floor();
        let step =
            [1.0, 2.0, 5.0, 10.0].into_iter().map(|factor| factor * 10f64.powf(power)).find(|step| *step >= rough);
        let step = step.unwrap_or(rough);
        (step, (-step.log10().floor()).max(0.0) as usize)
    }
}

struct Painter {
    shapes: Vec<Shape>,
    axis: Axis,
}

impl Painter {
    fn rect(&mut self, x: f64, y: f64, width: f64, height: f64, colour: Colour) {
        self.shapes.push(Shape::Rect { x, y, width, height, colour });
    }

    fn text(&mut self, x: f64, y: f64, text: &str, size: Size, anchor: Anchor, colour: Colour) {
        self.shapes.push(Shape::Text { x, y, text: text.to_owned(), size, anchor, colour });
    }

    /// Marks of the axis, behind the samples.
    fn grid(&mut self, bottom: f64) {
        let (step, decimals) = self.axis.step();
        let marks = (self.axis.seconds / step + 1e-9).floor() as u32;
        for mark in 0..=marks {
            let seconds = f64::from(mark) * step;
            let x = self.axis.at(seconds);
            self.rect(x - 0.25, TOP - 6.0, 0.5, bottom - TOP + 6.0, GRID);
            self.text(x, bottom + 14.0, &format!("{seconds:.decimals$}"), Size::Small, Anchor::Middle, FAINT);
        }
    }

    fn lane(&mut self, lane: &Lane<'_>, y: f64) {
        let Lane { info, times } = lane;
        self.text(MARGIN, y + 10.0, &shorten(&printable(&info.name), LABEL), Size::Small, Anchor::Start, INK);
        let (details, colour) = match times {
            Ok(times) => (details(info, times), FAINT),
            Err(_) => ("cannot be read".to_owned(), ALARM),
        };
        self.text(MARGIN, y + 23.0, &shorten(&details, LABEL), Size::Small, Anchor::Start, colour);
        match times {
            Ok(times) => self.samples(info.kind, times, y),
            Err(why) => {
                let fits = (RIGHT - LEFT) as usize / Size::Small.advance() as usize - 2;
                let why = shorten(&printable(why), fits);
                self.text(LEFT + 8.0, y + LANE / 2.0 + 4.0, &why, Size::Small, Anchor::Start, ALARM);
            }
        }
    }

    fn samples(&mut self, kind: Kind, times: &[i64], y: f64) {
        let mut times = times.to_vec();
        times.sort_unstable();
        let Some(step) = median_step(&times).filter(|step| *step > 0) else {
            // All at once, or one: ticks are all that can be said.
            times.dedup();
            return self.ticks(&times, colour(kind), y);
        };
        for pair in times.windows(2) {
            let &[before, after] = pair else { continue };
            if after.saturating_sub(before) as f64 > GAP * step as f64 {
                let (from, to) = (self.axis.x(before), self.axis.x(after));
                let width = (to - from).max(LEAST_GAP);
                self.rect(from, y, width, LANE, GAP_GROUND);
                let label = format!("{:.3} s", seconds_between(before, after));
                if width > (label.len() as u32 * Size::Small.advance()) as f64 + 8.0 {
                    let middle = f64::midpoint(from, to);
                    self.text(middle, y + LANE / 2.0 + 4.0, &label, Size::Small, Anchor::Middle, ALARM);
                }
            }
        }
        let space = self.axis.at(step as f64 * 1e-9) - self.axis.at(0.0);
        if space >= TICK_SPACE {
            self.ticks(&times, colour(kind), y);
        } else {
            self.bars(&times, step, colour(kind), y);
        }
    }

    fn ticks(&mut self, times: &[i64], colour: Colour, y: f64) {
        for &time in times {
            self.rect(self.axis.x(time) - TICK / 2.0, y + 3.0, TICK, LANE - 6.0, colour);
        }
    }

    /// Too many samples for ticks: a bar that is darker where there are more of them than usual,
    /// lighter where there are fewer, and absent in gaps.
    fn bars(&mut self, times: &[i64], step: i64, colour: Colour, y: f64) {
        let mut from = 0;
        for (index, pair) in times.windows(2).enumerate() {
            if let &[before, after] = pair
                && after.saturating_sub(before) as f64 > GAP * step as f64
            {
                self.bar(times, from..index + 1, step, colour, y);
                from = index + 1;
            }
        }
        self.bar(times, from..times.len(), step, colour, y);
    }

    /// A bar without a gap.
    fn bar(&mut self, times: &[i64], run: Range<usize>, step: i64, colour: Colour, y: f64) {
        /// Units over which samples are counted.
        const CELL: f64 = 4.0;
        let times = times.get(run).unwrap_or_default();
        let (Some(&first), Some(&last)) = (times.first(), times.last()) else { return };
        let (start, end) = (self.axis.x(first), self.axis.x(last));
        let cells = ((end - start) / CELL).ceil().max(1.0) as usize;
        let mut counts = vec![0u32; cells];
        for &time in times {
            let cell = ((self.axis.x(time) - start) / CELL) as usize;
            counts.iter_mut().skip(cell.min(cells - 1)).take(1).for_each(|count| *count += 1);
        }
        let usual = self.axis.seconds / (RIGHT - LEFT) * CELL / (step as f64 * 1e-9);
        let shade = |count: u32, cell: usize| {
            // The last cell is not a whole one.
            let width = ((end - start) - cell as f64 * CELL).clamp(TICK, CELL) / CELL;
            match f64::from(count) / (usual * width) {
                density if density < 0.6 => 0.45,
                density if density < 1.6 || cell + 1 == cells => 0.8,
                _ => 1.0,
            }
        };
        let shades: Vec<f64> = counts.iter().enumerate().map(|(cell, &count)| shade(count, cell)).collect();
        let mut cell = 0;
        for alike in shades.chunk_by(|one, other| one == other) {
            let (left, right) = (start + cell as f64 * CELL, start + (cell + alike.len()) as f64 * CELL);
            let width = right.min(end).max(left + TICK) - left;
            let strength = alike.first().copied().unwrap_or(1.0);
            self.rect(left, y + 3.0, width, LANE - 6.0, mix(colour, strength));
            cell += alike.len();
        }
    }

    fn legend(&mut self, bottom: f64, hidden: usize) {
        let y = bottom + 38.0;
        let x = LEFT;
        self.rect(x, y - 9.0, TICK, 11.0, INK);
        self.rect(x + 4.0, y - 9.0, TICK, 11.0, INK);
        self.text(x + 12.0, y, "samples, or a bar of many", Size::Small, Anchor::Start, FAINT);
        self.rect(x + 184.0, y - 9.0, 16.0, 11.0, GAP_GROUND);
        self.text(x + 206.0, y, "gap: over 1.5 x the median step", Size::Small, Anchor::Start, FAINT);
        self.text(RIGHT, y, "seconds from the first stamp", Size::Small, Anchor::End, FAINT);
        if hidden > 0 {
            self.text(MARGIN, y, &format!("{hidden} more streams not drawn"), Size::Small, Anchor::Start, FAINT);
        }
    }
}

fn details(info: &StreamInfo, times: &[i64]) -> String {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let rate = median_step(&sorted).filter(|step| *step > 0).map(|step| hertz(1e9 / step as f64));
    let samples = plural(times.len() as u64, "sample");
    // The last is the first to be cut off.
    let parts = [Some(info.kind.name().to_owned()), rate, Some(samples), Some(method(&info.method))];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn median_step(sorted: &[i64]) -> Option<i64> {
    let steps = sorted.windows(2).filter_map(|pair| pair.last()?.checked_sub(*pair.first()?));
    median(&mut steps.collect::<Vec<_>>())
}

fn colour(kind: Kind) -> Colour {
    match kind {
        Kind::Vector => [38, 98, 196],
        Kind::Scalar => [16, 134, 140],
        Kind::Image | Kind::Video => [206, 112, 20],
        Kind::Depth => [140, 92, 52],
        Kind::PointCloud => [56, 134, 60],
        Kind::Text => [124, 72, 172],
    }
}

/// A colour on white.
fn mix(colour: Colour, strength: f64) -> Colour {
    colour.map(|part| (255.0 - (255.0 - f64::from(part)) * strength) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use robocache_data::{Interpolation, Span};

    fn info(name: &str) -> StreamInfo {
        StreamInfo {
            name: name.to_owned(),
            kind: Kind::Vector,
            dtype: None,
            shape: vec![3],
            names: None,
            rate: None,
            method: vec![Span { method: Interpolation::Linear, start: 0, end: 3 }],
        }
    }

    fn rects(scene: &Scene, wanted: impl Fn(Colour) -> bool) -> Vec<(f64, f64)> {
        let rect = |shape: &Shape| match shape {
            Shape::Rect { x, width, colour, .. } if wanted(*colour) => Some((*x, x + width)),
            _ => None,
        };
        scene.shapes.iter().filter_map(rect).collect()
    }

    fn texts(scene: &Scene) -> Vec<String> {
        let text = |shape: &Shape| match shape {
            Shape::Text { text, .. } => Some(text.clone()),
            Shape::Rect { .. } => None,
        };
        scene.shapes.iter().filter_map(text).collect()
    }

    fn draw(times: std::result::Result<Vec<i64>, String>) -> Scene {
        scene("title", "subtitle", &[Lane { info: &info("a"), times }], 0)
    }

    #[test]
    fn few_samples_are_ticks_and_gaps_are_marked() {
        let today = 1_760_000_000_000_000_000;
        let times: Vec<i64> = (0..101).filter(|n| !(40..60).contains(n)).map(|n| today + n * 10_000_000).collect();
        let scene = draw(Ok(times));
        let ticks = rects(&scene, |colour| colour == [38, 98, 196]);
        assert_eq!(ticks.len(), 81);
        assert!(ticks.iter().all(|(left, right)| *left >= LEFT && *right <= RIGHT), "{ticks:?}");
        let [legend, gap] =
            rects(&scene, |colour| colour == GAP_GROUND)[..].iter().rev().copied().collect::<Vec<_>>()[..]
        else {
            panic!("expected one gap and the legend");
        };
        assert!(legend.1 - legend.0 == 16.0 && (0.20..0.22).contains(&((gap.1 - gap.0) / (RIGHT - LEFT))), "{gap:?}");
        assert!(texts(&scene).iter().any(|text| text == "0.210 s"), "{:?}", texts(&scene));
        assert!(
            texts(&scene).iter().any(|text| text == "0.5") && texts(&scene).iter().any(|text| text == "1.0"),
            "{:?}",
            texts(&scene)
        );
    }

    #[test]
    fn many_samples_are_bars_that_leave_gaps_free() {
        let blue = |colour: Colour| [0.45, 0.8, 1.0].iter().any(|strength| mix([38, 98, 196], *strength) == colour);
        let times = (0..1_000_000).filter(|n| !(400_000..600_000).contains(n)).map(|n| n * 1_000);
        let scene = draw(Ok(times.collect()));
        let bars = rects(&scene, blue);
        assert!(bars.len() < 10, "{bars:?}");
        let middle = f64::midpoint(LEFT, RIGHT);
        assert!(!bars.iter().any(|(left, right)| (*left..*right).contains(&middle)), "{bars:?}");
        let length: f64 = bars.iter().map(|(left, right)| right - left).sum();
        assert!((0.79..0.81).contains(&(length / (RIGHT - LEFT))), "{length}");
    }

    #[test]
    fn odd_streams_can_be_drawn() {
        for times in [vec![], vec![7], vec![7, 7], vec![9, 3, 5], vec![i64::MIN, i64::MAX, 0]] {
            let scene = draw(Ok(times));
            assert!(rects(&scene, |_| true).iter().all(|(left, right)| left <= right && right.is_finite()));
        }
        let scene = draw(Err("a long reason ".repeat(50)));
        assert!(texts(&scene).iter().any(|text| text == "cannot be read"));
        let hidden = super::scene("", "", &[], 7);
        assert!(texts(&hidden).iter().any(|text| text == "7 more streams not drawn"));
    }
}
