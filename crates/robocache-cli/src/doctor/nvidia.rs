//! What the kernel's NVIDIA module says, also where its library is missing.

pub(super) const DRIVER_FILE: &str = "/proc/driver/nvidia/version";
const GPU_FOLDER: &str = "/proc/driver/nvidia/gpus";

/// The driver's version, if it is loaded.
pub(super) fn driver() -> Option<String> {
    std::fs::read_to_string(DRIVER_FILE).ok().map(|text| version(&text))
}

/// The models of the GPUs that the driver lists.
pub(super) fn gpus() -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(GPU_FOLDER) else {
        return Vec::new();
    };
    let mut folders: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    folders.sort();
    let texts = folders.iter().filter_map(|folder| std::fs::read_to_string(folder.join("information")).ok());
    texts.filter_map(|text| model(&text)).collect()
}

/// The first line of the driver's version file, with its runs of spaces made one.
fn version(text: &str) -> String {
    text.lines().next().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
}

fn model(information: &str) -> Option<String> {
    information.lines().find_map(|line| line.strip_prefix("Model:")).map(|model| model.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_driver_and_the_gpus_name_themselves() {
        let text = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159  Tue\nGCC version: 12\n";
        assert_eq!(version(text), "NVRM version: NVIDIA UNIX x86_64 Kernel Module 580.159 Tue");
        assert_eq!(version(""), "");
        assert_eq!(model("Model: \t\t NVIDIA H200\nIRQ:   1\n").as_deref(), Some("NVIDIA H200"));
    }
}
