#!/usr/bin/env bash
# Runs the tests of this bundle on the machine it was copied to: run.sh OUTDIR [PYTEST ARGS]
# Needs Python with NumPy and torch; the other packages are in vendor/ where they are missing.
# OUTDIR gets a log per part; the last line tells how many tests passed.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=${1:?run.sh OUTDIR [PYTEST ARGS]}
shift
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 2
python=${PYTHON:-python3}
passed=0
failed=0

part() { printf '\n=== %s ===\n' "$1"; }
# Adds what a test program says it ran; one that says nothing has failed as a whole.
add() {
    passed=$((passed + ${1:-0}))
    failed=$((failed + ${2:-1}))
}

# What this machine has comes first.
path=$here
for folder in "$here"/vendor/*; do
    "$python" -c "import importlib, sys; importlib.import_module(sys.argv[1])" "$(basename "$folder")" 2>/dev/null ||
        path=$path:$folder
done
export PYTHONPATH=$path PYTHONDONTWRITEBYTECODE=1
export ROBOCACHE_TESTDATA=$here/testdata ROBOCACHE_FAKE_CUDA=$here/bin/libfake_cuda.so
# Where there is a GPU, tests that skip it have failed.
if nvidia-smi >/dev/null 2>&1; then export ROBOCACHE_TEST_GPU=1; fi
# Outside Python nobody knows where wheels keep NVRTC.
nvrtc=$("$python" - <<'END'
import glob, sys
wheels = ("nvidia/cu13/lib/libnvrtc.so.13", "nvidia/cuda_nvrtc/lib/libnvrtc.so.12")
print(next((f for w in wheels for p in sys.path for f in glob.glob(f"{p or '.'}/{w}")), ""))
END
)

unpacked=$(mktemp -d)
trap 'rm -rf "$unpacked"' EXIT
unpack() { mkdir -m 700 "$unpacked/$1" && "$python" -W ignore -m tarfile -e "$here/$1.tar.xz" "$unpacked/$1"; }
unpack rust-tests
# Kernels that were compiled for this GPU, if the bundle has some. The folder must be the user's own.
if [ -f "$here/cubins.tar.xz" ] && [ -z "${ROBOCACHE_CUBIN_DIR:-}" ]; then
    unpack cubins
    export ROBOCACHE_CUBIN_DIR=$unpacked/cubins
    echo "compiled kernels of the bundle: $(find "$ROBOCACHE_CUBIN_DIR" -name '*.cubin' | wc -l)"
fi

part "machine"
{
    uname -srm
    grep -m1 '^PRETTY_NAME=' /etc/os-release
    grep -m1 '^model name' /proc/cpuinfo
    echo "cores: $(nproc)"
    grep MemTotal /proc/meminfo
    nvidia-smi --query-gpu=index,name,driver_version,memory.total,compute_cap --format=csv || echo "no nvidia-smi"
    "$python" --version
    "$python" - <<'END'
from importlib import metadata
for name in "numpy torch cupy-cuda13x cupy-cuda12x jax scipy ml_dtypes pytest pytest-timeout hypothesis".split():
    try:
        print(name, metadata.version(name))
    except metadata.PackageNotFoundError:
        print(name, "absent")
END
    echo "NVRTC of a wheel: ${nvrtc:-none}"
    cat "$here/bundle.txt"
} 2>&1 | tee "$out/machine.txt"

part "doctor"
"$python" -m robocache doctor 2>&1 | tee "$out/doctor.txt"
if [ "${PIPESTATUS[0]}" = 0 ]; then add 1 0; else add 0 1; fi

for program in "$unpacked"/rust-tests/*; do
    name=$(basename "$program")
    part "rust tests, $name"
    # From where nothing of the checkout can be found by accident.
    (cd "$out" && ROBOCACHE_NVRTC=$nvrtc "$program" 2>&1) | tee "$out/rust-$name.txt"
    line=$(grep '^test result: ' "$out/rust-$name.txt" | tail -1)
    add "$(sed -n 's/.* \([0-9]*\) passed.*/\1/p' <<<"$line")" "$(sed -n 's/.* \([0-9]*\) failed.*/\1/p' <<<"$line")"
done

part "python tests"
rm -f "$out/pytest.xml"
(cd "$here" && "$python" -m pytest -q -p no:cacheprovider --junitxml "$out/pytest.xml" tests "$@" 2>&1) | tee "$out/pytest.txt"
# shellcheck disable=SC2046 # two numbers
add $("$python" - "$out/pytest.xml" <<'END'
import sys
import xml.etree.ElementTree as xml
try:
    suite = xml.parse(sys.argv[1]).getroot().find("testsuite")
    tests, failures, errors, skipped = (int(suite.get(k)) for k in ("tests", "failures", "errors", "skipped"))
    print(tests - failures - errors - skipped, failures + errors)
except (OSError, xml.ParseError):
    print(0, 1)
END
)

echo
echo "$passed passed, $failed failed" | tee "$out/result.txt"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
