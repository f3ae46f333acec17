#!/usr/bin/env bash
# Everything about the CUDA device that needs a GPU, in one command and under ten minutes:
#
#     benchmarks/gpu.sh [--dry-run] [--out FOLDER] [STEP ...]
#
# On a machine with NVIDIA's driver, and the CUDA toolkit for the build.  Each step has a time limit of its
# own, and the next one runs whatever became of it.  FOLDER (build/gpu) gets one log a step, result.json
# and result.txt.  --rehearse runs the same steps on the simulated device of build/dev, on tiny
# networks: it tests the script, its numbers mean nothing.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

# name | limit in seconds | what
STEPS='device|20|describe the GPU, its driver and its toolkit
packages|90|install what the build and the measurements need
build|240|build for this GPU (release) and the tests (dev)
conformance|60|ONNX backend tests on the device
operators|90|tests of all operators against their references on the device
memory|90|memory tests of the daemon on the device
simulator|60|compare whole networks with the answers of the simulator
sanitizer|60|compute-sanitizer over a network, where there is one
pages|30|cost of the cuMem calls by size of handle
speed|150|latency and throughput of our engine
peers|90|the same of ONNX Runtime or PyTorch, where installable
start|30|cold start: from exec to the first answer
empty-cache|40|what giving cached memory back costs'
readonly TOTAL=590 # seconds; a step gets what is left, if that is less than its limit

say() { printf '== %s\n' "$*"; }
die() { printf 'gpu.sh: %s\n' "$*" >&2; exit 1; }

dry_run='' rehearse='' out=build/gpu
chosen=()
while [ $# -gt 0 ]; do
    case $1 in
    --dry-run) dry_run=1 ;;
    --rehearse) rehearse=1 ;;
    --out) [ $# -gt 1 ] || die '--out takes a folder'; out=$2; shift ;;
    -*) die "unknown option '$1'; --dry-run, --out FOLDER and --rehearse are known" ;;
    *) grep -q "^$1|" <<<"$STEPS" || die "unknown step '$1'; --dry-run lists them"
       chosen+=("$1") ;;
    esac
    shift
done

# A program of the toolkit, which may lie outside of PATH; nothing and 1: there is none.
toolkit() { # PROGRAM
    local path
    command -v "$1" && return 0
    for path in /usr/local/cuda/bin/"$1" /usr/local/cuda-*/bin/"$1"; do
        [ ! -x "$path" ] || { echo "$path"; return 0; }
    done
    return 1
}

is_chosen() { # STEP
    [ ${#chosen[@]} -eq 0 ] || [[ " ${chosen[*]} " = *" $1 "* ]]
}

if [ -n "$dry_run" ]; then
    while IFS='|' read -r name limit what; do
        ! is_chosen "$name" || printf '%-12s %4d s  %s\n' "$name" "$limit" "$what"
    done <<<"$STEPS"
    exit 0
fi

OUT=$(realpath -m "$out")
readonly VENV=$PWD/.cache/gpu-venv
PYTHON=${SLUICE_TEST_PYTHON:-$VENV/bin/python}
RELEASE=build/gpu-release
if [ -n "$rehearse" ]; then
    RELEASE=build/dev
    [ -e build/dev/tests/sim/lib/libcudart.so.13 ] || die 'a rehearsal needs build/dev with the simulated device'
    export LD_LIBRARY_PATH=$PWD/build/dev/tests/sim/lib
    export SLUICE_GPU_QUICK=1
else
    command -v nvidia-smi >/dev/null || die 'there is no NVIDIA driver here (no nvidia-smi): nothing was run'
    nvidia-smi -L 2>/dev/null | grep -q '^GPU 0' || die 'the NVIDIA driver has no GPU: nothing was run'
fi
readonly OUT PYTHON RELEASE
mkdir -p "$OUT"
rm -f "$OUT"/*.log "$OUT"/*.json "$OUT"/*.tsv "$OUT"/result.txt
# Every daemon of the tests and of the measurements has the GPU.
export SLUICE_DEVICE_DEVICE=cuda
# Programs that are not the daemon find the plug-in there; what measures names the other one.
export SLUICE_PLUGIN_DIR=$PWD/build/dev/daemon

measure() { # PART
    "$PYTHON" benchmarks/gpu.py "$1" --out "$OUT" --release "$RELEASE" --dev build/dev
}

step_device() { measure device; }

step_packages() {
    [ -z "$rehearse" ] || return 0
    ./dev packages || echo 'going on with what is here'
    [ -x "$VENV/bin/python" ] || python3 -m venv "$VENV" || return 1
    "$VENV/bin/python" -m pip install -q --disable-pip-version-check \
        numpy onnx==1.22.0 'tritonclient[all]==2.73.0'
}

step_build() {
    [ -z "$rehearse" ] || return 0
    local capability
    capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader -i 0 | tr -d .)
    cmake --preset release -B "$RELEASE" -DSLUICE_CUDA=ON -DSLUICE_CUDA_ARCHITECTURES="$capability" &&
        cmake --build "$RELEASE" &&
        cmake --preset dev -DSLUICE_CUDA=ON -DSLUICE_TEST_PYTHON="$PYTHON" &&
        cmake --build build/dev
}

step_conformance() {
    local sets=(wheel) set bad=0
    [ ! -d /usr/share/libonnx-testdata/data ] || sets+=(debian)
    [ -z "$rehearse" ] || return 0
    for set in "${sets[@]}"; do
        SLUICE_PYTHON=$PYTHON "tests/conformance/$set.sh" build/dev/tests/conformance/sluice-conformance \
            --device cuda || bad=1
    done
    return $bad
}

step_operators() {
    local program bad=0 programs
    programs=(build/dev/tests/device_test_cuda_*)
    [ -z "$rehearse" ] || programs=(build/dev/tests/device_test_cuda_axes)
    for program in "${programs[@]}"; do
        "$program" || { bad=1; echo "FAILED: $program"; }
    done
    return $bad
}

step_memory() {
    local bad=0
    export SLUICECTL=build/dev/client/sluicectl
    "$PYTHON" tests/e2e/test_cuda.py build/dev/daemon/sluiced Serving || bad=1
    [ -n "$rehearse" ] || "$PYTHON" tests/e2e/test_memory.py build/dev/daemon/sluiced || bad=1
    return $bad
}

step_simulator() { measure simulator; }

step_sanitizer() {
    local tool
    tool=$(toolkit compute-sanitizer) || { echo 'skipped: no compute-sanitizer'; return 0; }
    [ -z "$rehearse" ] || { echo 'skipped: a rehearsal has no GPU'; return 0; }
    "$PYTHON" benchmarks/make_models.py "$OUT/models" squeezenet &&
        SLUICE_PLUGIN_DIR=$RELEASE/daemon "$tool" --error-exitcode 9 "$RELEASE/benchmarks/sluice-bench" "$OUT/models/squeezenet.onnx" 1 2 0.1 \
            --device cuda --eager
}

step_pages() {
    local nvcc
    nvcc=$(toolkit nvcc) || { echo 'skipped: no nvcc'; return 0; }
    "$nvcc" -O2 -std=c++17 -cudart shared -o "$OUT/cuda-pages" benchmarks/cuda_pages.cu || return 1
    "$OUT/cuda-pages" | tee "$OUT/pages.json"
}

step_speed() { measure speed; }

step_peers() {
    [ -n "$rehearse" ] || "$PYTHON" -m pip install -q --disable-pip-version-check \
        'onnxruntime-gpu[cuda,cudnn]' || echo 'onnxruntime-gpu cannot be installed'
    measure peers
}

benchmark_memory() { # PART
    local quick=()
    [ -z "$rehearse" ] || quick=(--quick)
    SLUICE_PLUGIN_DIR=$PWD/$RELEASE/daemon "$PYTHON" benchmarks/memory.py --build "$RELEASE" --part "$1" "${quick[@]}"
}

step_start() { benchmark_memory start; }
step_empty-cache() { benchmark_memory empty_cache; }

# Runs one step in a process group of its own, so that its limit ends all that it started.
run_step() { # NAME LIMIT
    local name=$1 limit=$2 left=$((TOTAL - SECONDS)) began=$SECONDS result=ok status=0 runner guard
    [ "$left" -ge "$limit" ] || limit=$left
    if [ "$limit" -le 0 ]; then
        printf '%s\tno time left\t0\n' "$name" >>"$OUT/steps.tsv"
        return
    fi
    set -m
    ("step_$name") >"$OUT/$name.log" 2>&1 &
    runner=$!
    (sleep "$limit" && kill -TERM -- "-$runner" && sleep 5 && kill -KILL -- "-$runner") 2>/dev/null &
    guard=$!
    set +m
    wait "$runner" 2>/dev/null || status=$?
    kill -- "-$guard" 2>/dev/null
    wait "$guard" 2>/dev/null
    if [ $((SECONDS - began)) -ge "$limit" ] && [ "$status" -ne 0 ]; then
        result='ran out of time'
    elif [ "$status" -ne 0 ]; then
        result=FAILED
    fi
    printf '%s\t%s\t%d\n' "$name" "$result" $((SECONDS - began)) >>"$OUT/steps.tsv"
    printf '%5d s  %-16s %s\n' $((SECONDS - began)) "$result" "$name"
    [ "$result" = ok ] || tail -n 5 "$OUT/$name.log"
}

while IFS='|' read -r name limit what; do
    is_chosen "$name" || continue
    say "$name: $what"
    run_step "$name" "$limit" </dev/null
done <<<"$STEPS"
python3 benchmarks/gpu_report.py "$OUT" | tee "$OUT/result.txt"
! grep -qv $'\tok\t' "$OUT/steps.tsv"
