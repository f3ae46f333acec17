#!/usr/bin/env bash
# Everything about the CUDA device that needs a GPU, in one command and under ten minutes:
#
#     benchmarks/gpu.sh [--dry-run] [--built] [--out FOLDER] [STEP ...]
#     benchmarks/gpu.sh --build CAPABILITY      (90: without a GPU, for --built elsewhere)
#
# On a machine with NVIDIA's driver for CUDA 13, or an older one and the package cuda-compat-13.  Where there
# is no CUDA toolkit for the build, it comes as Python packages.  A machine that reaches no package registry
# gets this folder with what --build made (build/gpu-release, build/dev, and the CUDA libraries in
# build/gpu-libs): --built installs and builds nothing.
#
# Each step has a time limit of its own, and the next one runs whatever became of it; what is wanted most
# comes first.  FOLDER (build/gpu) gets one log a step, result.json and result.txt.  --rehearse runs the
# same steps on the simulated device of build/dev, on tiny networks: it tests the script, its numbers mean
# nothing.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

# name | limit in seconds | what
STEPS='device|20|describe the GPU, its driver and its toolkit
packages|90|install what the build and the measurements need
build|200|build for this GPU (release) and the tests (dev)
simulator|40|compare whole networks with the answers of the simulator
operators|60|tests of all operators against their references on the device
rows|30|same row, same bits: whole networks in batches of every size
speed|170|latency and throughput of our engine
start|30|cold start: from exec to the first answer
empty-cache|40|what giving cached memory back costs
pages|30|cost of the cuMem calls by size of handle
memory|60|memory tests of the daemon on the device
conformance|60|ONNX backend tests on the device
sanitizer|80|compute-sanitizer over a network and kernels, where there is one
peers|90|the same of ONNX Runtime or PyTorch, where installable'
readonly TOTAL=590 # seconds; a step gets what is left, if that is less than its limit

readonly VENV=$PWD/.cache/gpu-venv

say() { printf '== %s\n' "$*"; }
die() { printf 'gpu.sh: %s\n' "$*" >&2; exit 1; }

dry_run='' rehearse='' built='' build_for='' out=build/gpu
chosen=()
while [ $# -gt 0 ]; do
    case $1 in
    --dry-run) dry_run=1 ;;
    --rehearse) rehearse=1 ;;
    --built) built=1 ;;
    --build) [[ ${2-} =~ ^[0-9]{2,3}$ ]] || die '--build takes a compute capability: 90'; build_for=$2; shift ;;
    --out) [ $# -gt 1 ] || die '--out takes a folder'; out=$2; shift ;;
    -*) die "unknown option '$1'; --dry-run, --out FOLDER, --built, --build CAPABILITY and --rehearse are known" ;;
    *) grep -q "^$1|" <<<"$STEPS" || die "unknown step '$1'; --dry-run lists them"
       chosen+=("$1") ;;
    esac
    shift
done

# A program of the toolkit, which may lie outside of PATH; nothing and 1: there is none.
toolkit() { # PROGRAM
    local path
    command -v "$1" && return 0
    for path in /usr/local/cuda/bin/"$1" /usr/local/cuda-*/bin/"$1" "$VENV"/lib/python3*/site-packages/nvidia/cu13/bin/"$1"; do
        [ ! -x "$path" ] || { echo "$path"; return 0; }
    done
    return 1
}

# "13.0", of the CUDA that the driver is for; nothing where it does not say.
driver_cuda() { nvidia-smi 2>/dev/null | sed -n 's/.*CUDA Version: *\([0-9][0-9]*\.[0-9]\).*/\1/p' | head -1; }

# An older driver runs programs of CUDA 13 with NVIDIA's compatibility package (GPUs of data centres).
check_driver() {
    local cuda path
    cuda=$(driver_cuda)
    [ "${cuda%%.*}" -lt 13 ] 2>/dev/null || return 0
    for path in /usr/local/cuda-13*/compat; do
        [ -e "$path/libcuda.so.1" ] || continue
        say "the driver is for CUDA $cuda: with $path"
        export LD_LIBRARY_PATH=$path${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
        return 0
    done
    die "the driver is for CUDA $cuda, and this is built with CUDA 13: driver 580 or later is needed, or the package cuda-compat-13-0: nothing was run"
}

# Without a toolkit: nvcc, headers and libraries as Python packages, laid out as one.
install_toolkit() {
    local home
    "$VENV/bin/python" -m pip install -q --disable-pip-version-check 'nvidia-cuda-nvcc==13.0.*' 'nvidia-nvvm==13.0.*' \
        'nvidia-cuda-crt==13.0.*' 'nvidia-cuda-runtime==13.0.*' 'nvidia-cuda-cccl==13.0.*' 'nvidia-cuda-nvrtc==13.0.*' \
        'nvidia-cublas==13.*' nvidia-cudnn-cu13 || return 1
    home=$(echo "$VENV"/lib/python3*/site-packages/nvidia/cu13)
    ln -sf libcudart.so.13 "$home/lib/libcudart.so"
    [ ! -d "$home/../cudnn" ] || ln -sf "$home"/../cudnn/include/* "$home/include/"
    chmod +x "$home"/bin/* "$home"/nvvm/bin/*
}

# Builds what the steps run, and no more; sixteen cores take about two minutes.
build_for() { # CAPABILITY
    local nvcc home
    nvcc=$(toolkit nvcc) || { echo 'there is no nvcc, and it could not be installed'; return 1; }
    home=$(dirname "$(dirname "$(realpath "$nvcc")")")
    CUDA_HOME=$home cmake --preset release -B "$RELEASE" -DSLUICE_CUDA=ON -DSLUICE_CUDA_ARCHITECTURES="$1" &&
        cmake --build "$RELEASE" --target sluiced sluicectl sluice-cuda sluice-bench &&
        CUDA_HOME=$home cmake --preset dev -DSLUICE_CUDA=ON -DSLUICE_TEST_PYTHON="$PYTHON" &&
        cmake --build build/dev --target sluiced sluicectl gpu_tests
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
PYTHON=${SLUICE_TEST_PYTHON:-$VENV/bin/python}
RELEASE=build/gpu-release
if [ -n "$rehearse" ]; then
    RELEASE=build/dev
    [ -e build/dev/tests/sim/lib/libcudart.so.13 ] || die 'a rehearsal needs build/dev with the simulated device'
    export LD_LIBRARY_PATH=$PWD/build/dev/tests/sim/lib
    export SLUICE_GPU_QUICK=1
elif [ -z "$build_for" ]; then
    command -v nvidia-smi >/dev/null || die 'there is no NVIDIA driver here (no nvidia-smi): nothing was run'
    nvidia-smi -L 2>/dev/null | grep -q '^GPU 0' || die 'the NVIDIA driver has no GPU: nothing was run'
    check_driver
    # The driver's own libraries are the system's; those of CUDA come with the build or with packages.
    for folder in "$PWD"/build/gpu-libs "$VENV"/lib/python3*/site-packages/nvidia/{cu13,cudnn}/lib; do
        [ ! -d "$folder" ] || LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder
    done
    export LD_LIBRARY_PATH
fi
readonly OUT PYTHON RELEASE
if [ -n "$build_for" ]; then
    build_for "$build_for" || exit 1
    mkdir -p build/gpu-libs
    home=$(dirname "$(dirname "$(realpath "$(toolkit nvcc)")")")
    cp "$home"/lib*/lib{cudart,nvrtc,nvrtc-builtins}.so.13* build/gpu-libs/
    say "build/gpu-release, build/dev and build/gpu-libs are ready; libcublasLt and libcudnn beside them are used where they are"
    exit 0
fi
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
    [ -z "$rehearse$built" ] || return 0
    ./dev packages || echo 'going on with what is here'
    [ -x "$VENV/bin/python" ] || python3 -m venv "$VENV" || return 1
    "$VENV/bin/python" -m pip install -q --disable-pip-version-check \
        numpy onnx==1.22.0 'tritonclient[all]==2.73.0' || return 1
    toolkit nvcc >/dev/null || install_toolkit
}

step_build() {
    [ -z "$rehearse$built" ] || return 0
    local capability
    capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader -i 0 | tr -d .)
    build_for "$capability"
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

step_rows() {
    [ -z "$rehearse" ] || return 0
    "$PYTHON" tests/conformance/rows.py build/dev/tests/conformance/sluice-rows --device cuda
}

step_memory() {
    local bad=0
    export SLUICECTL=build/dev/client/sluicectl RESIDENCY_DEVICE=cuda
    "$PYTHON" tests/e2e/test_cuda.py build/dev/daemon/sluiced Serving || bad=1
    "$PYTHON" tests/e2e/test_residency.py build/dev/daemon/sluiced Verbs Room MakeRoom || bad=1
    [ -n "$rehearse" ] || "$PYTHON" tests/e2e/test_memory.py build/dev/daemon/sluiced || bad=1
    return $bad
}

step_simulator() { measure simulator; }

step_sanitizer() {
    local tool sanitizer_bad=0
    tool=$(toolkit compute-sanitizer) || { echo 'skipped: no compute-sanitizer'; return 0; }
    [ -z "$rehearse" ] || { echo 'skipped: a rehearsal has no GPU'; return 0; }
    sanitize_network "$tool"
    sanitize_kernels "$tool"
}

sanitize_network() { # TOOL
    "$PYTHON" benchmarks/make_models.py "$OUT/models" squeezenet &&
        SLUICE_PLUGIN_DIR=$RELEASE/daemon timeout 30 "$1" --error-exitcode 9 "$RELEASE/benchmarks/sluice-bench" \
            "$OUT/models/squeezenet.onnx" 1 2 0.1 --device cuda --eager || sanitizer_bad=1
}

# The kernels that share memory, some cases of each; what took too long is told apart from what was found.
sanitize_kernels() { # TOOL
    local check name status
    export OP_TEST_EVERY=40
    for check in racecheck memcheck synccheck; do
        for name in attention norm counted movement reduce matmul quantized indexing; do
            timeout 15 "$1" --tool "$check" --error-exitcode 9 "build/dev/tests/device_test_cuda_$name" \
                >"$OUT/sanitizer-$check-$name.txt" 2>&1
            status=$?
            case $status in
            0) echo "$check $name: nothing found" ;;
            124) echo "$check $name: not over in 15 seconds" ;;
            *) echo "$check $name: FAILED, status $status"; tail -n 20 "$OUT/sanitizer-$check-$name.txt"; sanitizer_bad=1 ;;
            esac
        done
    done
    return $sanitizer_bad
}

step_pages() {
    local nvcc
    nvcc=$(toolkit nvcc) || { echo 'skipped: no nvcc'; return 0; }
    "$nvcc" -O2 -std=c++17 -cudart shared -o "$OUT/cuda-pages" benchmarks/cuda_pages.cu || return 1
    "$OUT/cuda-pages" | tee "$OUT/pages.json"
}

step_speed() { measure speed; }

step_peers() {
    [ -n "$rehearse$built" ] || "$PYTHON" -m pip install -q --disable-pip-version-check \
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
