//! Rules about the files themselves: length, and nothing that belongs to one machine.

use std::path::Path;

use crate::process;
use crate::workspace::Workspace;

const LONGEST: usize = 500;
const SOURCE_EXTENSIONS: [&str; 6] = ["rs", "py", "pyi", "cu", "cuh", "h"];

/// Files that may be longer, each with its reason.
const LONG_FILES: [(&str, &str); 1] =
    [("crates/robocache-py/python/robocache/_core.pyi", "a compiled module has one stub")];

/// Folders in which people's and machines' own files live.
const MACHINE_FOLDERS: [&str; 3] = ["home", "root", "Users"];

/// Settings that tie the project to one package host.
const HOST_SETTINGS: [&str; 3] = ["index-url", "find-links", "replace-with"];
const SETTING_EXTENSIONS: [&str; 6] = ["txt", "toml", "yml", "yaml", "cfg", "ini"];

pub(crate) fn check(workspace: &Workspace) -> Result<(), String> {
    let mut git = workspace.command("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let listing = process::capture(&mut git).map_err(|why| format!("needs a git checkout: {why}"))?;
    let rules = Rules::new(&workspace.root, std::env::home_dir().as_deref());
    let mut findings = Vec::new();
    let mut files = 0;
    for path in listing.split_terminator('\0') {
        // Deleted files and submodules are listed too; binary files are not text.
        let Ok(bytes) = std::fs::read(workspace.root.join(path)) else { continue };
        let Ok(text) = String::from_utf8(bytes) else { continue };
        files += 1;
        rules.look_at(path, &text, &mut findings);
    }
    for finding in &findings {
        println!("{finding}");
    }
    println!("{files} text files looked at");
    if findings.is_empty() { Ok(()) } else { Err(format!("{} findings", findings.len())) }
}

#[derive(Debug)]
struct Rules {
    /// Paths that must not occur: `/folder/` of other machines, and where this one keeps the tree.
    paths: Vec<String>,
}

impl Rules {
    fn new(root: &Path, home: Option<&Path>) -> Self {
        let mut paths: Vec<String> = MACHINE_FOLDERS.iter().map(|name| format!("/{name}/")).collect();
        for own in [Some(root), root.parent(), home].into_iter().flatten() {
            // The root of a file system and the folders directly in it are too common as words.
            if own.components().count() > 2 {
                paths.push(own.display().to_string());
            }
        }
        Self { paths }
    }

    fn look_at(&self, path: &str, text: &str, findings: &mut Vec<String>) {
        let extension = Path::new(path).extension().and_then(|ext| ext.to_str()).unwrap_or_default();
        let lines = text.lines().count();
        let listed = LONG_FILES.iter().any(|(name, _)| *name == path);
        if SOURCE_EXTENSIONS.contains(&extension) && lines > LONGEST && !listed {
            findings.push(format!("{path}: {lines} lines; files stay under {LONGEST}"));
        }
        if listed && lines <= LONGEST {
            findings.push(format!("{path}: no longer needs its entry in LONG_FILES"));
        }
        for (number, line) in text.lines().enumerate() {
            if let Some(found) = self.paths.iter().find(|machine| has_path(line, machine)) {
                findings.push(format!("{path}:{}: names a folder of one machine ({found})", number + 1));
            }
            let host = HOST_SETTINGS.iter().find(|setting| line.contains(**setting));
            if let (true, Some(found)) = (SETTING_EXTENSIONS.contains(&extension), host) {
                findings.push(format!("{path}:{}: names a package host ({found})", number + 1));
            }
        }
    }
}

/// Whether `line` contains the absolute path, not as the end of a longer one (`a/home/b`).
fn has_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line.get(..at).and_then(|text| text.chars().next_back());
        !before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | '}' | '*'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(path: &str, text: &str) -> Vec<String> {
        // The names are put together here so that this file passes its own check.
        let root = format!("/{}/someone/checkout", "srv");
        let mut findings = Vec::new();
        Rules::new(Path::new(&root), None).look_at(path, text, &mut findings);
        findings
    }

    #[test]
    fn paths_of_a_machine_are_found() {
        assert_eq!(look("a.md", &format!("see /{}/x/y", "home")).len(), 1);
        assert_eq!(look("a.md", &format!("see\n/{}/someone/checkout/y", "srv")).len(), 1);
        assert_eq!(look("a.md", "cmake/home/x, /usr/lib, ~/x, ./root/y").len(), 0);
    }

    #[test]
    fn long_sources_are_found() {
        assert_eq!(look("a.rs", &"x\n".repeat(500)).len(), 0);
        assert_eq!(look("a.rs", &"x\n".repeat(501)).len(), 1);
        assert_eq!(look("a.json", &"x\n".repeat(501)).len(), 0);
    }

    #[test]
    fn package_hosts_are_found_in_settings() {
        let line = format!("--extra-{}-url x", "index");
        assert_eq!(look("requirements.txt", &line).len(), 1);
        assert_eq!(look("notes.md", &line).len(), 0);
    }
}
