//! How the work of `align` is cut on a GPU: a pure function of sizes.

use super::arguments::{SegmentArgs, inverse};
use super::variant::{Mode, Variant, WHOLE_THREADS};
use crate::cuda::{GpuInfo, STATIC_SHARED};
use crate::{Error, Result};

/// Threads of a block: many where blocks are few and have work for them.
const MANY_THREADS: u32 = 256;
const FEW_THREADS: u32 = 128;
/// Blocks of many threads that a multiprocessor holds at once.
const AT_ONCE: u64 = 4;
/// Units that a block of many threads has at least.
const MANY_UNITS: u64 = 512;

/// Of short rows a block takes several: this many, with so many targets, units and bytes of stamps in all, as long as
/// there are some blocks for each multiprocessor.
pub(super) const MOST_ROWS: u64 = 64;
pub(super) const MOST_TARGETS: u64 = 1023;
pub(super) const MOST_UNITS: u64 = 4096;
const MOST_STAMPS: u64 = 12 << 10;
const BLOCKS_OF_ROWS: u64 = 4;
/// Samples of them: numbers of 16 bits are divided quickly.
pub(super) const MOST_SAMPLES: u64 = 1 << 16;

/// Of long rows a block takes a tile, which is smaller where there are fewer blocks than this for each multiprocessor.
const MOST_TILE: u64 = 256;
const LEAST_TILE: u64 = 16;
/// Units of a tile of fewer targets.
const LEAST_UNITS: u64 = 256;
const BLOCKS_OF_TILES: u64 = 3;
/// Units of a target that a block writes.
pub(super) const MOST_CHUNK: u32 = 2048;

// So large a number of units a multiplication divides exactly (`inverse`).
const _: () = assert!(MOST_TILE * (MOST_CHUNK as u64).pow(2) <= 1 << 30 && MOST_UNITS * MOST_UNITS <= 1 << 30);
/// What a kernel cannot number.
pub(super) const TOO_WIDE: &str = "more columns than a kernel takes, about 2^32";

/// Shared memory for what is known about the targets of a block.
const PICK_BYTES: u64 = 40 << 10;
/// Shared memory for results that are collected before they are written: what leaves room for as many blocks as wait.
const COLLECTED_BYTES: u64 = 16 << 10;
/// Targets whose results must fit that.
const LEAST_COLLECTED: u64 = 64;

/// The sizes of a call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    pub(super) streams: u32,
    pub(super) batch: u64,
    pub(super) targets: u64,
    /// Of all streams, for each row and for what all rows share, as they lie in shared memory.
    pub(super) stamps: u64,
    pub(super) shared_stamps: u64,
    /// Samples of the longest stream.
    pub(super) samples: u64,
    /// Whether rows lie so that several are one long row.
    pub(super) joins: bool,
    /// Bytes of a target's results, where segments would write parts of sectors.
    pub(super) scattered: Option<u64>,
    pub(super) cubics: bool,
}

/// How the work is cut, and where things lie in shared memory.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// Rows of a block, and targets of each.
    pub(super) rows: u32,
    pub(super) tile: u32,
    /// Blocks that share the targets and the units of a row.
    pub(super) tiles: u32,
    pub(super) chunks: u32,
    pub(super) units: u32,
    pub(super) chunk: u32,
    pub(super) threads: u32,
    pub(super) stage: bool,
    pub(super) besides_at: u32,
    pub(super) lengths_at: u32,
    pub(super) stamps_at: u32,
    /// Whether results are collected where the stamps were.
    pub(super) collect: bool,
    pub(super) shared: u32,
}

impl Plan {
    pub(super) fn new(variant: Variant, segments: &mut [SegmentArgs], sizes: &Sizes, gpu: &GpuInfo) -> Result<Self> {
        let too_many = |_| Error::invalid("targets", "one row needs more blocks than a grid can hold");
        let Sizes { batch, targets, .. } = *sizes;
        let (chunk, units) = place(segments)?;
        let chunks = units.div_ceil(chunk).max(1);
        let multiprocessors = u64::from(gpu.multiprocessors);
        let beside = if sizes.cubics { if variant.weight() == 8 { 32 } else { 16 } } else { 0 };
        let target_bytes = u64::from(sizes.streams) * (16 + beside);
        let stamp_bytes = u64::from(variant.stamp().2);

        let row_units = targets.saturating_mul(u64::from(units)).max(1);
        let rows_of = |most: u64, each: u64| most.checked_div(each).unwrap_or(MOST_ROWS);
        let rows = [
            MOST_ROWS,
            batch / (BLOCKS_OF_ROWS * multiprocessors).max(1),
            rows_of(MOST_UNITS, row_units),
            rows_of(MOST_TARGETS, targets),
            rows_of(MOST_STAMPS, sizes.stamps * stamp_bytes),
            rows_of(MOST_SAMPLES - 1, sizes.samples),
            rows_of(PICK_BYTES, targets.saturating_mul(target_bytes)),
        ];
        let rows = if sizes.joins && chunks == 1 { rows.into_iter().min().unwrap_or(1).max(1) } else { 1 };

        let narrow = sizes.scattered.filter(|bytes| (1..=COLLECTED_BYTES / LEAST_COLLECTED).contains(bytes));
        let most_tile = [Some(MOST_TILE), Some(PICK_BYTES / target_bytes), narrow.map(|bytes| COLLECTED_BYTES / bytes)];
        let most_tile = most_tile.into_iter().flatten().min().unwrap_or(1).max(1);
        let mut tile = targets;
        if rows == 1 {
            let mut tiles = targets.div_ceil(most_tile);
            let few = |tiles: u64| batch.saturating_mul(tiles * u64::from(chunks)) < BLOCKS_OF_TILES * multiprocessors;
            let enough = |tile: u64| tile >= LEAST_TILE || tile * u64::from(units) >= LEAST_UNITS;
            while few(tiles) && tiles < targets && enough(targets.div_ceil(2 * tiles)) {
                tiles *= 2;
            }
            tile = targets.div_ceil(tiles);
        }
        let tiles = targets.div_ceil(tile);
        // They may begin behind a multiple of 16 bytes.
        let collected = narrow.map(|bytes| bytes * rows * tile + 16);
        let collected = collected.filter(|&bytes| bytes <= COLLECTED_BYTES + 16 && chunks == 1);

        let count = rows * tile;
        let besides_at = count * u64::from(sizes.streams) * 16;
        let lengths_at = besides_at + count * u64::from(sizes.streams) * beside;
        // A length for each stream and row, one for its targets, and a word of bits.
        let stamps_at = (lengths_at + rows * (u64::from(sizes.streams) + 2) * 4).next_multiple_of(16);
        let all_stamps = sizes.stamps.saturating_mul(rows).saturating_add(sizes.shared_stamps);
        let all_stamps = all_stamps.saturating_mul(stamp_bytes).next_multiple_of(16);
        // A block that takes all shared memory leaves no other to hide its waiting behind.
        let room = u64::from(gpu.shared_memory.saturating_sub(STATIC_SHARED)).saturating_sub(stamps_at);
        let stage = all_stamps <= room / 2;
        let shared = stamps_at + if stage { all_stamps } else { 0 }.max(collected.unwrap_or(0));

        let blocks = batch.div_ceil(rows).saturating_mul(tiles * u64::from(chunks));
        let block_units = count * u64::from(units.min(chunk));
        let many = blocks <= AT_ONCE * multiprocessors && block_units >= MANY_UNITS;
        let threads = if many { MANY_THREADS } else { FEW_THREADS };
        let threads = if variant.mode().0 == Mode::Whole { WHOLE_THREADS } else { threads };
        Ok(Self {
            rows: rows as u32,
            tile: tile as u32,
            tiles: u32::try_from(tiles).map_err(too_many)?,
            chunks,
            units,
            chunk,
            threads,
            stage,
            besides_at: besides_at as u32,
            lengths_at: lengths_at as u32,
            stamps_at: stamps_at as u32,
            collect: collected.is_some(),
            shared: shared as u32,
        })
    }
}

/// Numbers the units of all segments; tells how many of them a block writes, and how many there are.
fn place(segments: &mut [SegmentArgs]) -> Result<(u32, u32)> {
    let mut units = 0u64;
    for segment in segments {
        segment.first_unit = u32::try_from(units).unwrap_or(u32::MAX);
        segment.inverse = inverse(segment.units);
        units += u64::from(segment.units);
    }
    let units = u32::try_from(units).map_err(|_| Error::invalid("values", TOO_WIDE))?;
    Ok((units.clamp(1, MOST_CHUNK), units))
}

#[cfg(test)]
mod tests {
    use super::super::arguments::EMPTY_SEGMENT;
    use super::*;
    use crate::tensor::DType;

    const H200: (u32, u32) = (132, 232_448);

    fn sizes(batch: u64, samples: u64, targets: u64) -> Sizes {
        Sizes {
            streams: 1,
            batch,
            targets,
            stamps: samples,
            shared_stamps: 0,
            samples,
            joins: true,
            scattered: None,
            cubics: false,
        }
    }

    fn plan(sizes: &Sizes, units: &[u32], mode: Mode) -> Plan {
        let mut segments: Vec<_> = units.iter().map(|&units| SegmentArgs { units, ..EMPTY_SEGMENT }).collect();
        let variant = Variant::new(mode, DType::F32, DType::F32, (false, false));
        let plan = Plan::new(variant, &mut segments, sizes, &GpuInfo::imagined(H200.0, H200.1)).unwrap();
        assert!(plan.shared + STATIC_SHARED <= H200.1, "{plan:?}");
        assert!(u64::from(plan.tile) * u64::from(plan.tiles) >= sizes.targets, "{plan:?}");
        plan
    }

    #[test]
    fn short_rows_share_a_block() {
        let rows = |sizes: &Sizes, units: u32| plan(sizes, &[units], Mode::Lean).rows;
        assert_eq!(rows(&sizes(6112, 18, 19), 7), 11, "four blocks for each multiprocessor");
        assert_eq!(rows(&sizes(1 << 20, 18, 19), 7), 30, "about 4096 units");
        assert_eq!(rows(&sizes(1 << 20, 18, 1), 7), 64);
        assert_eq!(rows(&sizes(1 << 20, 18, 40), 1), 25, "about 1024 targets");
        assert_eq!(rows(&sizes(1 << 20, 1021, 15), 5), 3, "their stamps take 12 KiB");
        assert_eq!(rows(&Sizes { stamps: 0, shared_stamps: 1021, ..sizes(1 << 20, 1021, 15) }, 5), 54);
        assert_eq!(rows(&sizes(64, 18, 19), 7), 1, "too few rows");
        assert_eq!(rows(&sizes(1 << 20, 18, 512), 9), 1, "long rows");
        assert_eq!(rows(&sizes(1 << 20, 1 << 14, 19), 7), 1, "long rows of stamps");
        assert_eq!(rows(&Sizes { joins: false, ..sizes(1 << 20, 18, 19) }, 7), 1);
    }

    #[test]
    fn long_rows_are_cut_evenly() {
        let cut = |sizes: &Sizes, units: u32| {
            let plan = plan(sizes, &[units], Mode::Lean);
            (plan.tile, plan.tiles, plan.threads)
        };
        assert_eq!(cut(&sizes(2361, 252, 905), 27), (227, 4, 128));
        assert_eq!(cut(&sizes(31, 41, 346), 93), (22, 16, 256), "small tiles where there are few rows");
        assert_eq!(cut(&sizes(4, 200, 50), 74), (4, 13, 128), "smaller ones where rows are wide");
        assert_eq!(cut(&sizes(1, 9, 3), 2000), (1, 3, 256));
        assert_eq!(cut(&sizes(1, 10, 4), 3), (4, 1, 128));
        let wide = plan(&sizes(4, 100, 50), &[5000], Mode::Lean);
        assert_eq!((wide.chunk, wide.chunks), (2048, 3));
    }

    #[test]
    fn stamps_stay_where_they_are_if_they_are_too_many() {
        assert!(plan(&sizes(4, 20_000, 500), &[3], Mode::Lean).stage);
        let long = plan(&sizes(4, 1 << 20, 500), &[3], Mode::Lean);
        assert!(!long.stage && long.shared == long.stamps_at, "{long:?}");
    }

    #[test]
    fn results_are_collected_where_the_stamps_were() {
        let rows = Sizes { scattered: Some(56), ..sizes(4096, 512, 250) };
        let collects = plan(&rows, &[3, 4, 3], Mode::Rich);
        assert!(collects.collect && collects.shared == collects.stamps_at + 250 * 56 + 16, "{collects:?}");
        let wider = plan(&Sizes { scattered: Some(100), ..rows }, &[3, 4, 3], Mode::Rich);
        assert!(wider.collect && wider.tile == 125, "{wider:?}");
        let widest = plan(&Sizes { scattered: Some(260), ..rows }, &[3, 4, 3], Mode::Rich);
        assert!(!widest.collect && widest.tile == 250, "{widest:?}");
        let long = plan(&Sizes { stamps: 8192, ..rows }, &[3, 4, 3], Mode::Rich);
        assert!(long.collect && long.shared == long.stamps_at + 8192 * 4, "{long:?}");
    }

    #[test]
    fn units_are_numbered_side_by_side() {
        let mut segments = [128, 16, 3].map(|units| SegmentArgs { units, ..EMPTY_SEGMENT });
        assert_eq!(place(&mut segments).unwrap(), (147, 147));
        assert_eq!(segments.map(|segment| segment.first_unit), [0, 128, 144]);
        let mut none = [EMPTY_SEGMENT; 2];
        assert_eq!(place(&mut none).unwrap(), (1, 0));
        let mut many = [SegmentArgs { units: u32::MAX, ..EMPTY_SEGMENT }; 2];
        assert!(place(&mut many).is_err());
    }
}
