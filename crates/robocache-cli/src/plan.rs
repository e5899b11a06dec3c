//! `robocache plan`: what a call takes, before anything runs.

use robocache::plan::{self, Budget, OPS, Plan, Way};
use robocache::{Device, Error, Result};
use serde::Serialize;

use crate::flags;
use crate::output::{Outcome, Report, Style};

/// What a call takes, for people and machines.
#[derive(Debug, Serialize)]
pub(crate) struct Planned {
    op: String,
    device: String,
    bytes_in: u64,
    bytes_out: u64,
    bytes_temporary: u64,
    chunks: usize,
    in_flight: u64,
    limit: Option<u64>,
    seconds: Option<f64>,
    fits: bool,
    #[serde(skip)]
    text: String,
}

impl Report for Planned {
    fn outcome(&self) -> Outcome {
        if self.fits { Outcome::Fine } else { Outcome::Findings }
    }

    fn text(&self, _: Style) -> String {
        format!("{}\n", self.text)
    }
}

pub(crate) fn run(raw: &flags::Plan) -> Result<Planned> {
    plan_of(raw).map_err(|error| error.op("plan"))
}

fn plan_of(raw: &flags::Plan) -> Result<Planned> {
    let pair = |text: &String| {
        let (name, value) = text.split_once('=').ok_or_else(|| {
            let sizes = OPS.iter().find(|(op, _)| *op == raw.op).map_or("", |(_, sizes)| *sizes);
            let known = if sizes.is_empty() { String::new() } else { format!("; {} takes {sizes}", raw.op) };
            Error::invalid("SIZE", format!("expected NAME=VALUE, got {text:?}{known}"))
        })?;
        Ok((name.to_owned(), value.to_owned()))
    };
    let sizes = raw.sizes.iter().map(pair).collect::<Result<Vec<_>>>()?;
    let device = raw.device.as_deref().unwrap_or("cpu").parse()?;
    let budget = raw.max_memory.as_deref().map(str::parse::<Budget>).transpose()?;
    let (home, devices) = match device {
        Device::Cuda(ordinal) if !raw.resident => (Device::Cpu, vec![ordinal]),
        device => (device, Vec::new()),
    };
    let way = Way { devices, budget, chunk: raw.chunk.map(std::num::NonZero::get), fallback: false };
    let plan = plan::plan(&raw.op, &sizes, home, &way)?;
    let text = plan.to_string();
    let Plan { op, device, streamed: _, bytes, chunks, in_flight, limit, seconds, fits } = plan;
    Ok(Planned {
        op,
        device: device.to_string(),
        bytes_in: bytes.input,
        bytes_out: bytes.output,
        bytes_temporary: bytes.temporary,
        chunks,
        in_flight,
        limit,
        seconds,
        fits,
        text,
    })
}
