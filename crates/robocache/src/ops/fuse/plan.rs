//! How the work of `fuse` is cut on a GPU.

use super::arguments::{CACHE_LINE, MOST_TILE, SegmentArgs, across};
use super::variant::{Mode, Variant};
use crate::cuda::{GpuInfo, STATIC_SHARED};
use crate::{Error, Result};

/// Threads of a block: many where they wait for memory, few where they compute, since what a block does
/// before it writes costs every warp the same.
const MANY_THREADS: u32 = 256;
const FEW_THREADS: u32 = 128;
/// Units of a target that one block writes, and at least where that keeps more multiprocessors busy.
const MOST_CHUNK: u32 = 4096;
const LEAST_CHUNK: u32 = 64;
const LEAST_TILE: u32 = 4;
/// Shared memory for what is known about a tile's targets.
const TILE_BYTES: u32 = 40 << 10;

/// Shared memory for values: what leaves room for four blocks on GPUs that have the most.
const KEPT_BYTES: u64 = 50 << 10;
/// Shared memory for results that are collected before they are written: what leaves room for as many blocks as wait.
const COLLECTED_BYTES: u64 = 16 << 10;
/// Targets whose results must fit that.
const LEAST_COLLECTED: u64 = 64;
/// Units of a target that the table of kept.cuh holds at most, of so many bytes each: it comes on top of the values.
const MOST_COLUMNS: u32 = 512;
const COLUMN_BYTES: u32 = 8;

/// The sizes of a call.
pub(super) struct Sizes {
    pub(super) streams: u32,
    /// Of all streams, as they lie in shared memory.
    pub(super) stamps: u64,
    /// Shared memory for a row of all streams, where they can be kept.
    pub(super) kept: Option<u64>,
    /// Whether the kernel for lines of kept streams knows all that is asked for.
    pub(super) lines: bool,
    /// Bytes of a target's results, where segments would write parts of sectors.
    pub(super) scattered: Option<u64>,
    pub(super) cubics: bool,
    pub(super) batch: u64,
    pub(super) targets: u64,
}

/// How the work is cut, and where things lie in shared memory.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) tile: u32,
    pub(super) tiles: u32,
    pub(super) units: u32,
    pub(super) chunk: u32,
    pub(super) chunks: u32,
    pub(super) threads: u32,
    pub(super) stage: bool,
    pub(super) besides_at: u32,
    pub(super) stamps_at: u32,
    /// Whether results are collected where the stamps were.
    pub(super) collect: bool,
    /// Where values are brought to in shared memory.
    pub(super) kept: Option<u32>,
    /// Where the table of kept.cuh lies, if its kernel is to be used.
    pub(super) columns_at: Option<u32>,
    pub(super) shared: u32,
}

impl Plan {
    pub(super) fn new(variant: Variant, segments: &mut [SegmentArgs], sizes: &Sizes, gpu: &GpuInfo) -> Result<Self> {
        let too_many = |_| Error::invalid("targets", "one row needs more blocks than a grid can hold");
        let units: u64 = segments.iter().map(|segment| u64::from(segment.units)).sum();
        let (streams, targets) = (sizes.streams, sizes.targets);
        let weight = variant.weight();
        let beside = if sizes.cubics { if weight == 8 { 32 } else { 16 } } else { 0 };
        let tile_bytes = |tile: u32| tile * streams * (16 + beside);
        let forced = forced_plan();
        // The results of narrow rows are better collected than their values kept.
        let narrow = sizes.scattered.filter(|bytes| (1..=COLLECTED_BYTES / LEAST_COLLECTED).contains(bytes));
        let fits = |&bytes: &u64| bytes <= KEPT_BYTES && units <= u64::from(MOST_CHUNK) && narrow.is_none();
        let kept = sizes.kept.filter(fits);
        let kept = kept.filter(|_| forced.as_ref().is_none_or(|forced| forced.keeps));
        // A block that keeps the values of a row is best given the whole row.
        let least = u64::from(gpu.multiprocessors) * if kept.is_some() { 1 } else { 2 };
        let blocks =
            |tile: u32| targets.div_ceil(u64::from(tile)) * units.div_ceil(u64::from(MOST_CHUNK)).max(1) * sizes.batch;
        // Several methods in turn wait for memory each: the fewer targets a thread has, the more wait at once.
        let rich = variant.mode().0 != Mode::Lean;
        let in_turn = rich && segments.len() > 1 && kept.is_none() && narrow.is_none();
        let most_tile = narrow.map_or(MOST_TILE, |bytes| (COLLECTED_BYTES / bytes) as u32 / 16 * 16).min(MOST_TILE);
        let most_tile = if in_turn { most_tile.min(FEW_THREADS) } else { most_tile };
        let mut tile = u32::try_from(targets).unwrap_or(u32::MAX).min(most_tile);
        while tile > 1 && (tile_bytes(tile) > TILE_BYTES || (tile > LEAST_TILE && blocks(tile) < least)) {
            tile = tile.div_ceil(2);
        }
        // So that tiles begin with a vector.
        if narrow.is_some() && (16..targets).contains(&u64::from(tile)) {
            tile = tile.next_multiple_of(16);
        }
        // A small call gives each block one segment, or a part of one, so that they do not wait for each other.
        let split = blocks(tile) < least && tile <= LEAST_TILE;
        let (chunk, units) = place(segments, if split { LEAST_CHUNK } else { MOST_CHUNK }, split)?;
        let most = if rich || split { FEW_THREADS } else { MANY_THREADS };
        let mut threads = (u64::from(tile) * u64::from(chunk)).clamp(64, u64::from(most)).next_multiple_of(32) as u32;
        if let Some(forced) = forced {
            (tile, threads) = (forced.tile.min(u32::try_from(targets).unwrap_or(u32::MAX)), forced.threads);
        }
        let besides_at = tile * streams * 16;
        let stamps_at = besides_at + tile * streams * beside;
        let stamp_bytes = sizes.stamps.saturating_mul(u64::from(variant.stamp().2)).next_multiple_of(16);
        // A block that takes all shared memory leaves no other to hide its waiting behind.
        let stage = stamp_bytes <= u64::from(gpu.shared_memory.saturating_sub(stamps_at)) / 2;
        let tiles = u32::try_from(targets.div_ceil(u64::from(tile))).map_err(too_many)?;
        let chunks = units.div_ceil(chunk).max(1);
        let collected = narrow.map(|bytes| bytes * u64::from(tile));
        let collected = collected.filter(|&bytes| {
            bytes <= COLLECTED_BYTES && !split && chunks == 1 && (tiles == 1 || bytes.is_multiple_of(16))
        });
        let behind = if stage { stamp_bytes } else { 0 }.max(collected.unwrap_or(0));
        let mut shared = stamps_at + behind as u32;
        // The copy engine writes whole lines.
        let place = shared.next_multiple_of(CACHE_LINE as u32);
        let room = |from: u32| u64::from(gpu.shared_memory.saturating_sub(from).saturating_sub(STATIC_SHARED));
        let kept = kept.filter(|&bytes| stage && tiles == 1 && !split && bytes <= room(place));
        if let Some(bytes) = kept {
            shared = place + bytes as u32;
        }
        let one_size = segments.windows(2).all(|pair| pair[0].together == pair[1].together);
        let table = u64::from(units) * u64::from(COLUMN_BYTES);
        let has_table =
            kept.is_some() && sizes.lines && one_size && (2..=MOST_COLUMNS).contains(&units) && table <= room(shared);
        let columns_at = has_table.then_some(shared);
        if has_table {
            shared += table as u32;
        }
        for segment in segments.iter_mut() {
            segment.across = across(segment.units.min(chunk), threads, tile);
        }
        Ok(Self {
            tile,
            tiles,
            units,
            chunk,
            chunks,
            threads,
            stage,
            besides_at,
            stamps_at,
            collect: collected.is_some(),
            kept: kept.map(|_| place),
            columns_at,
            shared,
        })
    }
}

/// Numbers the units of all segments, each from a multiple of `most` on where they are to be `apart`; tells
/// how many of them a block writes, and how many numbers there are.
fn place(segments: &mut [SegmentArgs], most: u32, apart: bool) -> Result<(u32, u32)> {
    let mut units = 0u64;
    for segment in segments {
        if apart {
            units = units.next_multiple_of(u64::from(most));
        }
        segment.first_unit = u32::try_from(units).unwrap_or(u32::MAX);
        units += u64::from(segment.units);
    }
    let units = u32::try_from(units).map_err(|_| Error::invalid("streams", "too many columns"))?;
    Ok((units.clamp(1, most), units))
}

/// A plan for the lab's ablations.
#[derive(Debug, Clone, Copy)]
struct Forced {
    tile: u32,
    threads: u32,
    keeps: bool,
}

/// `ROBOCACHE_FUSE_PLAN=TILExTHREADS`; behind it `xkeep` allows that values are kept in shared memory.
fn forced_plan() -> Option<Forced> {
    static PLAN: std::sync::OnceLock<Option<Forced>> = std::sync::OnceLock::new();
    *PLAN.get_or_init(|| {
        let text = std::env::var("ROBOCACHE_FUSE_PLAN").ok()?;
        let mut words = text.split('x');
        let (tile, threads) = (words.next()?.parse().ok()?, words.next()?.parse::<u32>().ok()?);
        let keeps = words.next() == Some("keep");
        let good =
            (1..=MOST_TILE).contains(&tile) && (32..=MANY_THREADS).contains(&threads) && threads.is_multiple_of(32);
        good.then_some(Forced { tile, threads, keeps })
    })
}

#[cfg(test)]
mod tests {
    use super::super::arguments::EMPTY_SEGMENT;
    use super::*;
    use crate::tensor::DType;

    fn placed(units: [u32; 3], most: u32, apart: bool) -> (Vec<u32>, (u32, u32)) {
        let mut segments = units.map(|units| SegmentArgs { units, ..EMPTY_SEGMENT });
        let numbers = place(&mut segments, most, apart).unwrap();
        (segments.iter().map(|segment| segment.first_unit).collect(), numbers)
    }

    #[test]
    fn units_are_numbered_side_by_side_or_a_segment_per_block() {
        assert_eq!(placed([128, 16, 3], 4096, false), (vec![0, 128, 144], (147, 147)));
        assert_eq!(placed([128, 16, 3], 64, true), (vec![0, 128, 192], (64, 195)));
        assert_eq!(placed([0, 0, 0], 64, true), (vec![0, 0, 0], (1, 0)));
    }

    #[test]
    fn values_are_kept_only_where_all_fits_shared_memory() {
        // 8 streams of 512 samples and three columns of 4 bytes, stamps of 8 bytes, 256 targets.
        let sizes = Sizes {
            streams: 8,
            stamps: 8 * 512,
            kept: Some(49_152),
            lines: false,
            scattered: None,
            cubics: false,
            batch: 1024,
            targets: 256,
        };
        let variant = Variant::new(Mode::Lean, DType::F32, DType::F64, false);
        for (shared_memory, keeps) in [(232_448, true), (101_376, false)] {
            let mut segments = [SegmentArgs { units: 3, ..EMPTY_SEGMENT }; 8];
            let plan = Plan::new(variant, &mut segments, &sizes, &GpuInfo::imagined(132, shared_memory)).unwrap();
            assert_eq!(plan.kept.is_some(), keeps, "{plan:?}");
            assert!(plan.shared + STATIC_SHARED <= shared_memory, "{plan:?}");
        }
    }

    #[test]
    fn lines_of_kept_streams_get_a_table_where_units_are_of_one_size() {
        let sizes = Sizes {
            streams: 3,
            stamps: 332,
            kept: Some(48_768),
            lines: true,
            scattered: None,
            cubics: false,
            batch: 2048,
            targets: 50,
        };
        let variant = Variant::new(Mode::Lean, DType::BF16, DType::F32, false);
        let gpu = GpuInfo::imagined(132, 232_448);
        for (together, lines, has_table) in
            [([4, 4, 4], true, true), ([8, 4, 4], true, false), ([4, 4, 4], false, false)]
        {
            let mut segments = [EMPTY_SEGMENT; 3];
            for (index, segment) in segments.iter_mut().enumerate() {
                (segment.units, segment.together) = ([128, 16, 3][index], together[index]);
            }
            let plan = Plan::new(variant, &mut segments, &Sizes { lines, ..sizes }, &gpu).unwrap();
            assert!(plan.kept.is_some_and(|place| place.is_multiple_of(CACHE_LINE as u32)), "{plan:?}");
            assert_eq!(plan.columns_at.is_some(), has_table, "{plan:?}");
            assert_eq!(plan.threads, 256);
            // Four blocks of a multiprocessor, each with what the driver takes.
            assert!(4 * (plan.shared + 256 + 1024) <= 228 << 10, "{plan:?}");
        }
    }

    #[test]
    fn results_are_collected_where_the_stamps_were() {
        // 512 samples and 12 columns of 4 bytes, stamps of 8 bytes, 256 targets.
        let sizes = Sizes {
            streams: 1,
            stamps: 512,
            kept: Some(24_576 + 128),
            lines: false,
            scattered: Some(48),
            cubics: false,
            batch: 4096,
            targets: 256,
        };
        let plan_of = |sizes: &Sizes| {
            let mut segments = [SegmentArgs { units: 4, ..EMPTY_SEGMENT }; 3];
            let variant = Variant::new(Mode::Rich, DType::F32, DType::F64, false);
            Plan::new(variant, &mut segments, sizes, &GpuInfo::imagined(132, 232_448)).unwrap()
        };
        let plan = plan_of(&sizes);
        assert!(plan.collect && plan.kept.is_none() && plan.tile == 256, "{plan:?}");
        assert_eq!(plan.shared, plan.stamps_at + 256 * 48);
        let other = plan_of(&Sizes { scattered: None, ..sizes });
        assert!(!other.collect && other.kept.is_some(), "{other:?}");
        // Wider ones take smaller tiles, of whole vectors, or are not collected.
        let wide = plan_of(&Sizes { scattered: Some(100), ..sizes });
        assert!(wide.collect && wide.tile == 160, "{wide:?}");
        let widest = plan_of(&Sizes { scattered: Some(260), ..sizes });
        assert!(!widest.collect && widest.kept.is_some(), "{widest:?}");
        let several = plan_of(&Sizes { scattered: Some(14), targets: 250, batch: 100, ..sizes });
        assert!(several.collect && several.tile == 64, "{several:?}");
        // Tiles that begin within a vector; a block for each segment; the stamps take more.
        assert!(!plan_of(&Sizes { scattered: Some(14), targets: 10, batch: 140, ..sizes }).collect);
        assert!(!plan_of(&Sizes { targets: 1, batch: 1, ..sizes }).collect);
        let long = plan_of(&Sizes { stamps: 4096, ..sizes });
        assert!(long.collect && long.shared == long.stamps_at + 4096 * 8, "{long:?}");
    }

    #[test]
    fn more_columns_than_fit_are_refused() {
        let mut segments = [SegmentArgs { units: u32::MAX, ..EMPTY_SEGMENT }; 2];
        assert!(place(&mut segments, 4096, false).is_err());
    }
}
