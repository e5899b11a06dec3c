#!/usr/bin/env bash
# Shows that compute-sanitizer finds a planted fault, then runs our launches under it.
#   sanitize.sh OUTDIR      logs go there; one line per tool; exit code 1 when anything is amiss
# PYTHON and COMPUTE_SANITIZER name other programs than python3 and compute-sanitizer.
set -u
out=${1:?usage: sanitize.sh OUTDIR}
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
sanitizer=${COMPUTE_SANITIZER:-$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer 2>/dev/null | tail -n 1)}
if [ -z "$sanitizer" ]; then
    echo "compute-sanitizer is not on the PATH; set COMPUTE_SANITIZER" >&2
    exit 2
fi
mkdir -p "$out"

# Each tensor has an allocation of its own, so that none hides behind its neighbour.
export PYTORCH_NO_CUDA_MEMORY_CACHING=1
export PYTHONUNBUFFERED=1
# Compile outside of the tool, once.
if ! "$python" "$here/sanitizer.py" >"$out/sanitizer-plain.log" 2>&1; then
    echo "plain run: failed, see sanitizer-plain.log"
    tail -n 5 "$out/sanitizer-plain.log"
    exit 1
fi
echo "plain run: $(tail -n 1 "$out/sanitizer-plain.log")"

# Frameworks probe the driver with calls that may fail; only kernels are on trial here.
check() { # TOOL LOG ARGUMENTS...
    local tool=$1 log=$2
    shift 2
    timeout 100 "$sanitizer" --tool "$tool" --error-exitcode 9 --report-api-errors no \
        "$python" "$here/sanitizer.py" "$@" >"$log" 2>&1
}
summary() { grep -E "(ERROR|RACECHECK) SUMMARY" "$1" | tail -n 1 | sed 's/^=* *//'; }

declare -A fault=(
    [memcheck]="Invalid __global__ write"
    [racecheck]="[Rr]ace reported|hazard detected"
    [initcheck]="Uninitialized __global__ memory read"
)
failed=0
for tool in memcheck racecheck initcheck; do
    started=$SECONDS
    log="$out/sanitizer-$tool-planted.log"
    check "$tool" "$log" --plant "$tool"
    code=$?
    if [ "$code" -ne 0 ] && [[ "$(summary "$log")" =~ SUMMARY:\ [1-9] ]] && grep -qE "${fault[$tool]}" "$log"; then
        planted="planted fault found"
    else
        planted="PLANTED FAULT NOT FOUND (exit code $code)"
        failed=1
    fi
    log="$out/sanitizer-$tool.log"
    check "$tool" "$log"
    code=$?
    told=$(summary "$log")
    if [ "$code" -eq 0 ] && [[ "$told" =~ SUMMARY:\ 0\ (errors|hazards) ]] && grep -q "agree with the CPU" "$log"; then
        result="clean"
    else
        result="NOT CLEAN (exit code $code)"
        failed=1
    fi
    echo "$tool: $planted; our launches: $result; ${told:-no summary}; $((SECONDS - started)) s"
done
exit "$failed"
