//! What happens when the driver, NVRTC or a GPU fail, on any machine: `crates/fake-cuda` takes the
//! place of both libraries.
//!
//! A driver is loaded once per process, so every case runs in a process of its own: this program
//! again, told by a variable which scenario to play. Numbers at the ends of names are those of the
//! list of bad inputs that the project keeps.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod calls;
mod devices;
mod guard;
mod harness;
mod loading;
mod loss;
mod memory;
mod processes;
mod streaming;

/// What the processes that the tests start can play.
const SCENARIOS: &[&[harness::Scenario]] = &[
    calls::SCENARIOS,
    devices::SCENARIOS,
    guard::SCENARIOS,
    loss::SCENARIOS,
    memory::SCENARIOS,
    processes::SCENARIOS,
    streaming::SCENARIOS,
];

/// Not a test of its own: what the processes run.
#[test]
fn scenario() {
    if let Some(name) = std::env::var_os(harness::SCENARIO) {
        let play = SCENARIOS.iter().copied().flatten().find(|(known, _)| *known == name);
        play.unwrap_or_else(|| panic!("no scenario {}", name.display())).1();
    }
}
