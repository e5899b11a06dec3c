//! `libnvrtc.so`: "compiles" to a file that says what it was made of, or for the host.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::time::Duration;

use crate::driver::exported;
use crate::state::{self, Needs, Outcome};
use crate::{compute, settings};

type Handle = *mut c_void;

/// NVRTC's own codes.
const INVALID_INPUT: c_int = 3;
const INVALID_PROGRAM: c_int = 4;
const INVALID_OPTION: c_int = 5;
const COMPILATION: c_int = 6;

const MAGIC: &[u8] = b"FAKECUBIN";
/// Long enough for a file that two processes write at once to be torn.
const PADDING: usize = 1 << 18;
/// The most that an image holds.
const MOST: usize = 1 << 22;

#[derive(Debug)]
struct Program {
    source: String,
    /// Their names and texts.
    headers: Vec<(String, String)>,
    cubin: Vec<u8>,
    log: Vec<u8>,
}

exported! {
    Nothing fn nvrtcVersion(major: *mut c_int, minor: *mut c_int) {
        let version = settings::text("FAKE_NVRTC_VERSION").and_then(|text| settings::pair(&text));
        (*major, *minor) = version.unwrap_or((12, 0));
        Ok(())
    }

    Nothing fn nvrtcGetNumSupportedArchs(count: *mut c_int) {
        *count = c_int::try_from(architectures().len()).unwrap_or(0);
        Ok(())
    }

    Nothing fn nvrtcGetSupportedArchs(numbers: *mut c_int) {
        let known = architectures();
        std::ptr::copy_nonoverlapping(known.as_ptr(), numbers, known.len());
        Ok(())
    }

    Nothing fn nvrtcCreateProgram(
        program: *mut Handle,
        source: *const c_char,
        _name: *const c_char,
        headers: c_int,
        texts: *const *const c_char,
        names: *const *const c_char
    ) {
        let headers = usize::try_from(headers).map_err(|_| INVALID_INPUT)?;
        let text = |from: *const c_char| CStr::from_ptr(from).to_string_lossy().into_owned();
        let headers = (0..headers).map(|index| (text(*names.add(index)), text(*texts.add(index)))).collect();
        *program = Box::into_raw(Box::new(Program { source: text(source), headers, cubin: Vec::new(), log: vec![0] })).cast();
        Ok(())
    }

    Nothing fn nvrtcDestroyProgram(program: *mut Handle) {
        if (*program).is_null() {
            return Err(INVALID_PROGRAM);
        }
        drop(Box::from_raw((*program).cast::<Program>()));
        *program = std::ptr::null_mut();
        Ok(())
    }

    Nothing fn nvrtcGetProgramLogSize(program: Handle, size: *mut usize) {
        *size = this(program)?.log.len();
        Ok(())
    }

    Nothing fn nvrtcGetProgramLog(program: Handle, log: *mut c_char) {
        let from = &this(program)?.log;
        std::ptr::copy_nonoverlapping(from.as_ptr(), log.cast(), from.len());
        Ok(())
    }

    Nothing fn nvrtcGetCUBINSize(program: Handle, size: *mut usize) {
        *size = this(program)?.cubin.len();
        Ok(())
    }

    Nothing fn nvrtcGetCUBIN(program: Handle, cubin: *mut c_char) {
        let from = &this(program)?.cubin;
        std::ptr::copy_nonoverlapping(from.as_ptr(), cubin.cast(), from.len());
        Ok(())
    }
}

/// Not one of the exported ones above: a compilation that shall fail writes a log first.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcCompileProgram(program: Handle, count: c_int, options: *const *const c_char) -> c_int {
    let call = || -> Outcome {
        // SAFETY: the caller passes a program of ours and as many options as it says.
        let program = unsafe { this(program)? };
        if let Err(code) = state::enter("nvrtcCompileProgram", Needs::Nothing) {
            program.log = format!("fake.cu(1): error {code} as asked for\0").into_bytes();
            return Err(code);
        }
        let seconds = settings::number("FAKE_NVRTC_SECONDS", 0.0f64);
        std::thread::sleep(Duration::try_from_secs_f64(seconds).unwrap_or_default());
        let options: Vec<_> = (0..usize::try_from(count).unwrap_or(0))
            // SAFETY: as above.
            .map(|index| unsafe { CStr::from_ptr(*options.add(index)) }.to_string_lossy().into_owned())
            .collect();
        if !options.first().is_some_and(|option| option.starts_with("--gpu-architecture=sm_")) {
            return Err(INVALID_OPTION);
        }
        let mut text = if compute::is_wanted() {
            compute::compile(&program.source, &program.headers, &options).map_err(|log| {
                program.log = format!("{log}\0").into_bytes();
                COMPILATION
            })?
        } else {
            let headers: String = program.headers.iter().map(|(name, text)| format!("{name}\n{text}")).collect();
            format!("{}\n{}{headers}", options.join("\n"), program.source).into_bytes()
        };
        if text.len() > MOST {
            program.log = format!("{} bytes, more than an image holds\0", text.len()).into_bytes();
            return Err(COMPILATION);
        }
        text.resize(text.len().max(PADDING), b'.');
        program.log = b"ptxas info    : Used 32 registers, 0 bytes spill stores, 0 bytes spill loads\0".to_vec();
        program.cubin = [MAGIC, &(text.len() as u64).to_le_bytes(), &hash(&text).to_le_bytes(), &text].concat();
        Ok(())
    };
    call().err().unwrap_or(0)
}

/// What an image of ours holds, if it has no damage; nothing of somebody else's, which is taken as it is.
///
/// # Safety
/// `image` must be a module's image, as for `cuModuleLoadData`, and stay for as long as what is returned.
pub(crate) unsafe fn content<'i>(image: *const u8) -> Option<&'i [u8]> {
    // SAFETY: bytes are read only as far as the ones before them are those of our format.
    unsafe {
        if MAGIC.iter().enumerate().any(|(index, &byte)| *image.add(index) != byte) {
            return Some(&[]);
        }
        let number = |place: usize| {
            let mut bytes = [0; 8];
            std::ptr::copy_nonoverlapping(image.add(MAGIC.len() + place * 8), bytes.as_mut_ptr(), 8);
            u64::from_le_bytes(bytes)
        };
        let length = usize::try_from(number(0)).ok()?;
        let text = std::slice::from_raw_parts(image.add(MAGIC.len() + 16), length.min(MOST));
        (hash(text) == number(1)).then_some(text)
    }
}

/// FNV-1a.
fn hash(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

fn architectures() -> Vec<c_int> {
    let known = settings::text("FAKE_NVRTC_ARCHS").unwrap_or_else(|| "80,86,87,89,90,100,120".to_owned());
    settings::numbers(&known, ',')
}

/// # Safety
/// `program` must be null or a program of ours.
unsafe fn this<'p>(program: Handle) -> Outcome<&'p mut Program> {
    // SAFETY: the caller's promise; NVRTC's programs belong to one thread at a time.
    unsafe { program.cast::<Program>().as_mut() }.ok_or(INVALID_PROGRAM)
}
