//! How the work of `fuse` is cut on a GPU.

use super::variant::Variant;
use crate::cuda::GpuInfo;
use crate::{Error, Result};

const THREADS: u32 = 256;
/// Units of a target that one block writes.
const MOST_CHUNK: u32 = 4096;
const MOST_TILE: u32 = 256;
/// Shared memory for what is known about a tile's targets.
const TILE_BYTES: u32 = 40 << 10;

/// How the work is cut, and where things lie in shared memory.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) tile: u32,
    pub(super) tiles: u32,
    pub(super) chunk: u32,
    pub(super) chunks: u32,
    pub(super) across: u32,
    pub(super) threads: u32,
    pub(super) stage: bool,
    pub(super) besides_at: u32,
    pub(super) factors_at: u32,
    pub(super) stamps_at: u32,
    pub(super) shared: u32,
}

impl Plan {
    #[expect(clippy::too_many_arguments, reason = "the sizes of a call, used once")]
    pub(super) fn new(
        variant: Variant,
        streams: usize,
        units: u64,
        stamps: u64,
        factors: u64,
        cubics: bool,
        (batch, targets): (u64, u64),
        gpu: &GpuInfo,
    ) -> Result<Self> {
        let too_many = |_| Error::invalid("targets", "one row needs more blocks than a grid can hold");
        let chunk = u32::try_from(units).unwrap_or(u32::MAX).clamp(1, MOST_CHUNK);
        let chunks = u32::try_from(units.div_ceil(u64::from(chunk)).max(1)).map_err(too_many)?;
        // All threads have a unit in every round, as far as that goes.
        let across = chunk.div_ceil(chunk.div_ceil(THREADS));
        let mut threads = (THREADS / across * across).next_multiple_of(32);
        let streams = streams as u32;
        let weight = variant.weight();
        let beside = if cubics { if weight == 8 { 32 } else { 16 } } else { 0 };
        let factor_bytes = u32::try_from(factors).ok().and_then(|factors| factors.checked_mul(weight));
        let factor_bytes = factor_bytes.filter(|&bytes| bytes <= TILE_BYTES).ok_or_else(|| {
            Error::unsupported("method", format!("more than {} rotations side by side", TILE_BYTES / weight / 2))
        })?;
        let tile_bytes = |tile: u32| tile * (streams * (16 + beside) + factor_bytes);
        let blocks = |tile: u32| targets.div_ceil(u64::from(tile)) * u64::from(chunks) * batch;
        let mut tile = u32::try_from(targets).unwrap_or(u32::MAX).min(MOST_TILE);
        while tile > 1
            && (tile_bytes(tile) > TILE_BYTES || (tile > 4 && blocks(tile) < 2 * u64::from(gpu.multiprocessors)))
        {
            tile = tile.div_ceil(2);
        }
        if let Some(forced) = forced_plan() {
            (tile, threads) =
                (forced.0.min(u32::try_from(targets).unwrap_or(u32::MAX)), forced.1.max(across).next_multiple_of(32));
        }
        let besides_at = tile * streams * 16;
        let factors_at = besides_at + tile * streams * beside;
        let stamps_at = (factors_at + tile * factor_bytes).next_multiple_of(16);
        let stamp_bytes = stamps.saturating_mul(u64::from(variant.stamp().2)).next_multiple_of(16);
        // A block that takes all shared memory leaves no other to hide its waiting behind.
        let stage = stamp_bytes <= u64::from(gpu.shared_memory.saturating_sub(stamps_at)) / 2;
        Ok(Self {
            tile,
            tiles: u32::try_from(targets.div_ceil(u64::from(tile))).map_err(too_many)?,
            chunk,
            chunks,
            across,
            threads,
            stage,
            besides_at,
            factors_at,
            stamps_at,
            shared: stamps_at + if stage { stamp_bytes as u32 } else { 0 },
        })
    }
}

/// `ROBOCACHE_FUSE_PLAN=TILExTHREADS`: for the lab's ablations.
fn forced_plan() -> Option<(u32, u32)> {
    static PLAN: std::sync::OnceLock<Option<(u32, u32)>> = std::sync::OnceLock::new();
    *PLAN.get_or_init(|| {
        let text = std::env::var("ROBOCACHE_FUSE_PLAN").ok()?;
        let (tile, threads) = text.split_once('x')?;
        let (tile, threads) = (tile.parse().ok()?, threads.parse().ok()?);
        ((1..=MOST_TILE).contains(&tile) && (32..=THREADS).contains(&threads)).then_some((tile, threads))
    })
}
