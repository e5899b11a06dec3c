//! `robocache doctor`: the machine, the settings and the devices, with a test of each.

mod devices;
mod gpu;
mod machine;
mod nvidia;
mod self_test;
mod settings;

use robocache::{VERSION, cpu_features, cpu_threads};
use robocache_data::Ffmpeg;
use serde::Serialize;

use self::devices::DeviceReport;
use self::machine::Machine;
use self::settings::Setting;
use crate::output::{Align, Outcome, Paint, Report, Style, Table, WIDTH, bytes, printable, wrap};

/// What the columns before the notes of a device take, with their gaps.
const DEVICE_WIDTH: usize = 16;
/// What the names of the machine's parts take.
const PART_WIDTH: usize = 9;

#[derive(Debug, Serialize)]
pub(crate) struct Diagnosis {
    version: &'static str,
    /// `release`, or `debug` for an engine that is many times slower.
    build: &'static str,
    machine: Machine,
    /// Threads that RoboCache uses.
    threads: usize,
    vector_instructions: &'static str,
    video: Video,
    settings: Vec<Setting>,
    devices: Vec<DeviceReport>,
    ok: bool,
}

/// The program that decodes video.
#[derive(Debug, Default, Serialize)]
struct Video {
    ffmpeg: Option<String>,
    version: Option<String>,
    /// Why there is none, and how to get one: everything but video works without it.
    why: Option<String>,
}

impl Video {
    fn look() -> Self {
        match Ffmpeg::find() {
            Ok(found) => Self {
                ffmpeg: Some(found.program().display().to_string()),
                version: Some(found.version().to_owned()),
                why: None,
            },
            Err(error) => Self { why: Some(error.to_string()), ..Self::default() },
        }
    }

    fn text(&self) -> String {
        match (&self.ffmpeg, &self.version, &self.why) {
            (Some(program), Some(version), _) => printable(&format!("{version}, {program}")),
            (.., Some(why)) => printable(&format!("none: {why}")),
            _ => "none".to_owned(),
        }
    }
}

pub(crate) fn run() -> Diagnosis {
    let devices = devices::all();
    Diagnosis {
        version: VERSION,
        build: if cfg!(debug_assertions) { "debug" } else { "release" },
        machine: Machine::look(),
        threads: cpu_threads(),
        vector_instructions: cpu_features(),
        video: Video::look(),
        settings: settings::all(),
        ok: devices.iter().all(DeviceReport::is_sound),
        devices,
    }
}

impl Report for Diagnosis {
    fn outcome(&self) -> Outcome {
        if self.ok { Outcome::Fine } else { Outcome::Findings }
    }

    fn text(&self, style: Style) -> String {
        let slow = if self.build == "debug" { ", many times slower than a release build" } else { "" };
        let mut text = style.paint(&format!("RoboCache {}", self.version), Paint::Title);
        text += &format!(" ({} build{slow})\n\n", self.build);
        text += &self.machine_text(style);
        text.push('\n');
        text += &self.settings_text(style);
        text.push('\n');
        text += &self.devices_text(style);
        text.push('\n');
        text += &self.verdict(style);
        text
    }
}

impl Diagnosis {
    fn machine_text(&self, style: Style) -> String {
        let machine = &self.machine;
        let mut rows = vec![("system", machine.system_text()), ("cpu", machine.cpu_text())];
        rows.push(("threads", format!("{} used by RoboCache", self.threads)));
        rows.push(("vectors", self.vector_instructions.to_owned()));
        if let Some(memory) = &machine.memory {
            rows.push(("memory", format!("{}, {} available", bytes(memory.total), bytes(memory.available))));
        }
        rows.push(("ffmpeg", self.video.text()));
        section("machine", rows, style)
    }

    fn settings_text(&self, style: Style) -> String {
        let mut table = Table::new(&[("setting", Align::Left), ("value", Align::Left), ("", Align::Left)]);
        for setting in &self.settings {
            let value =
                setting.value.as_ref().map_or_else(|| "not set".to_owned(), |value| value.escape_debug().collect());
            let note = setting.note.map_or((String::new(), Paint::Plain), |note| (note.to_owned(), Paint::Bad));
            table.row([(setting.name.escape_debug().collect(), Paint::Plain), (value, Paint::Plain), note]);
        }
        table.text(style)
    }

    fn devices_text(&self, style: Style) -> String {
        let columns = [("device", Align::Left), ("usable", Align::Left), ("self-test, or why not", Align::Left)];
        let mut table = Table::new(&columns);
        for device in &self.devices {
            let wrapped = |(note, paint): (String, Paint)| {
                wrap(&note, WIDTH - DEVICE_WIDTH).into_iter().map(move |line| (line, paint))
            };
            for (index, line) in device.notes().into_iter().flat_map(wrapped).enumerate() {
                let (name, usable) = match (index, device.usable) {
                    (0, true) => (&*device.name, ("yes", Paint::Good)),
                    (0, false) => (&*device.name, ("no", Paint::Plain)),
                    _ => ("", ("", Paint::Plain)),
                };
                table.row([(name.to_owned(), Paint::Plain), (usable.0.to_owned(), usable.1), line]);
            }
        }
        table.text(style)
    }

    fn verdict(&self, style: Style) -> String {
        let names = |wanted: fn(&DeviceReport) -> bool| {
            let names: Vec<_> =
                self.devices.iter().filter(|device| wanted(device)).map(|device| &*device.name).collect();
            names.join(", ")
        };
        let (verdict, paint) = if self.ok {
            (format!("RoboCache computes right on: {}.", names(|device| device.usable)), Paint::Good)
        } else {
            let wrong = names(|device| !device.is_sound());
            (format!("The self-test failed on: {wrong}. Please report it with this output."), Paint::Bad)
        };
        style.paint(&verdict, paint) + "\n"
    }
}

/// Names and values, the values wrapped.
fn section(title: &str, rows: Vec<(&str, String)>, style: Style) -> String {
    let mut table = Table::new(&[(title, Align::Left), ("", Align::Left)]);
    for (name, value) in rows {
        let mut name = name.to_owned();
        for line in wrap(&value, WIDTH - PART_WIDTH) {
            table.row([(std::mem::take(&mut name), Paint::Plain), (line, Paint::Plain)]);
        }
    }
    table.text(style)
}
