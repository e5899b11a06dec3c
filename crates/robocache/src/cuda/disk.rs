//! Cubins on disk, so that only the first process ever compiles.
//!
//! A file holds the whole key (architecture, options, compiler version and all source text), so a
//! file of another source or machine can never be taken for ours, and a checksum, so a damaged one
//! is compiled anew. Files appear by rename. The folder belongs to the user alone: whoever can
//! write to it can run code on the user's GPU.

use std::hash::Hasher;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

const MAGIC: &[u8; 8] = b"RCCUBIN1";

/// FNV-1a: stable between builds, which the standard library's hasher is not.
struct Fnv(u64);

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// The same in every build and process.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = Fnv(0xcbf2_9ce4_8422_2325);
    hasher.write(bytes);
    hasher.finish()
}

/// The folder for cubins, if there is a safe one: `ROBOCACHE_CUBIN_DIR`, else in the user's cache.
pub(super) fn folder() -> Option<PathBuf> {
    let folder = match std::env::var_os("ROBOCACHE_CUBIN_DIR") {
        Some(folder) if folder.is_empty() => return None,
        Some(folder) => PathBuf::from(folder),
        None => {
            let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
            let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
            cache.or_else(home)?.join("robocache").join("cubin")
        }
    };
    make_private(&folder).then_some(folder)
}

#[cfg(unix)]
fn make_private(folder: &Path) -> bool {
    use std::os::unix::fs::{DirBuilderExt, MetadataExt};
    if std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).is_err() {
        return false;
    }
    // SAFETY: asks for a number.
    let user = unsafe { libc::geteuid() };
    std::fs::symlink_metadata(folder).is_ok_and(|meta| meta.is_dir() && meta.uid() == user && meta.mode() & 0o022 == 0)
}

#[cfg(not(unix))]
fn make_private(folder: &Path) -> bool {
    std::fs::create_dir_all(folder).is_ok()
}

fn path(folder: &Path, name: &str, key: &[u8]) -> PathBuf {
    folder.join(format!("{name}-{:016x}.cubin", hash(key)))
}

/// The cubin for `key`, if it is there whole.
pub(super) fn read(folder: &Path, name: &str, key: &[u8]) -> Option<Vec<u8>> {
    let bytes = std::fs::read(path(folder, name, key)).ok()?;
    let rest = bytes.strip_prefix(MAGIC)?;
    let (key_length, rest) = rest.split_first_chunk::<8>()?;
    let (sum, rest) = rest.split_first_chunk::<8>()?;
    let (stored_key, cubin) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*key_length)).ok()?)?;
    (stored_key == key && !cubin.is_empty() && hash(cubin) == u64::from_le_bytes(*sum)).then(|| cubin.to_vec())
}

/// Keeps a cubin. Failure only costs the next process a compilation, so it is not an error.
pub(super) fn write(folder: &Path, name: &str, key: &[u8], cubin: &[u8]) {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let temporary = folder.join(format!(".{}-{}.tmp", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)));
    let write = || -> std::io::Result<()> {
        let mut file = std::fs::File::create(&temporary)?;
        file.write_all(MAGIC)?;
        file.write_all(&(key.len() as u64).to_le_bytes())?;
        file.write_all(&hash(cubin).to_le_bytes())?;
        file.write_all(key)?;
        file.write_all(cubin)?;
        drop(file);
        std::fs::rename(&temporary, path(folder, name, key))
    };
    if write().is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("robocache-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        assert!(make_private(&folder));
        folder
    }

    #[test]
    fn what_was_written_is_read_and_nothing_else_94() {
        let folder = scratch("cubins");
        write(&folder, "k", b"sm_90 source", b"cubin bytes");
        assert_eq!(read(&folder, "k", b"sm_90 source").as_deref(), Some(&b"cubin bytes"[..]));
        assert_eq!(read(&folder, "k", b"sm_80 source"), None);
        // A file of another key under our name, as after a collision or a rename.
        std::fs::rename(path(&folder, "k", b"sm_90 source"), path(&folder, "k", b"sm_80 source")).unwrap();
        assert_eq!(read(&folder, "k", b"sm_80 source"), None);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn every_truncation_and_flipped_byte_is_noticed_94() {
        let folder = scratch("damage");
        write(&folder, "k", b"key", b"some cubin bytes");
        let file = path(&folder, "k", b"key");
        let whole = std::fs::read(&file).unwrap();
        for length in 0..whole.len() {
            std::fs::write(&file, &whole[..length]).unwrap();
            assert_eq!(read(&folder, "k", b"key"), None, "cut to {length}");
        }
        for index in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[index] ^= 1;
            std::fs::write(&file, damaged).unwrap();
            assert_eq!(read(&folder, "k", b"key"), None, "byte {index}");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn a_folder_that_others_can_write_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let folder = scratch("shared");
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(!make_private(&folder));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
