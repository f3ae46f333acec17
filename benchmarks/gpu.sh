#!/usr/bin/env bash
# Everything about the CUDA device that needs a GPU, in one command and under ten minutes:
#
#     benchmarks/gpu.sh [--dry-run] [--built] [--out FOLDER] [STEP ...]
#     benchmarks/gpu.sh --build CAPABILITY      (90: without a GPU, for --built elsewhere)
#
# On a machine with NVIDIA's driver for CUDA 13, or an older one and the package cuda-compat-13.  Where there
# is no CUDA toolkit for the build, it comes as Python packages.  A machine that reaches no package registry
# gets this folder without its build/, and there unpacks what --build made, build/gpu-built.tar.xz: the
# programs, and the libraries that they need but for cuBLASLt and cuDNN, which an installed PyTorch has.
# --built installs and builds nothing; its Python (SLUICE_TEST_PYTHON, else python3) needs numpy and onnx, and
# tritonclient for the tests of the daemon.
#
# Each step has a time limit of its own, and the next one runs whatever became of it; what is wanted most
# comes first.  Steps of one group run at once: they are right or wrong, however fast.  FOLDER (build/gpu)
# gets one log a step, result.json and result.txt.  --rehearse runs the same steps on the simulated device
# of build/dev, on tiny networks: it tests the script, its numbers mean nothing.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

# name | limit in seconds | group, of those that run at once | what
STEPS='packages|180||install what the build and the measurements need
device|20||describe the GPU, its driver and its toolkit
build|190||build for this GPU (release) and the tests (dev)
simulator|40|right|compare whole networks with the answers of the simulator
operators|60|right|tests of all operators against their references on the device
rows|40|right|same row, same bits: whole networks in batches of every size
conformance|60|right|ONNX backend tests on the device
speed|170||latency and throughput of our engine
peers|90||the same of ONNX Runtime or PyTorch, where installable
memory|60||memory tests of the daemon on the device
start|30||cold start: from exec to the first answer
empty-cache|40||what giving cached memory back costs
pages|30||cost of the cuMem calls by size of handle
sanitizer|80||compute-sanitizer over a network and kernels, where there is one'
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

install() { "$VENV/bin/python" -m pip install -q --disable-pip-version-check "$@"; }

# Without a toolkit: nvcc, headers and libraries as Python packages, laid out as one.  The versions are those
# whose answers the tests know.
install_toolkit() {
    local home
    install 'nvidia-cuda-nvcc==13.0.*' 'nvidia-nvvm==13.0.*' 'nvidia-cuda-crt==13.0.*' 'nvidia-cuda-runtime==13.0.*' \
        'nvidia-cuda-cccl==13.0.*' 'nvidia-cuda-nvrtc==13.0.*' 'nvidia-cuda-sanitizer-api==13.0.*' \
        'nvidia-cublas==13.0.*' 'nvidia-cudnn-cu13==9.19.*' || return 1
    home=$(echo "$VENV"/lib/python3*/site-packages/nvidia/cu13)
    ln -sf libcudart.so.13 "$home/lib/libcudart.so"
    [ ! -d "$home/../cudnn" ] || ln -sf "$home"/../cudnn/include/* "$home/include/"
    chmod +x "$home"/bin/* "$home"/nvvm/bin/*
}

# The driver's own libraries are the system's; those of CUDA come with the build or with packages, which a
# step before may have installed.
find_libraries() {
    local folder
    for folder in "$PWD"/build/gpu-libs "$OUT"/libs "$VENV"/lib/python3*/site-packages/nvidia/{cu13,cudnn}/lib \
        $(python_libraries); do
        [ ! -d "$folder" ] || LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder
    done
    export LD_LIBRARY_PATH
}

# Those beside PyTorch, or installed on their own, of the Python that is used.
python_libraries() {
    "$(python)" -c 'import glob, sys
for place in sys.path:
    print(*glob.glob(place + "/nvidia/cu13/lib"), *glob.glob(place + "/nvidia/cudnn/lib"))' 2>/dev/null
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
    while IFS='|' read -r name limit _ what; do
        ! is_chosen "$name" || printf '%-12s %4d s  %s\n' "$name" "$limit" "$what"
    done <<<"$STEPS"
    exit 0
fi

OUT=$(realpath -m "$out")
PYTHON=${SLUICE_TEST_PYTHON:-$VENV/bin/python}
[ -z "$built" ] || [ -x "$PYTHON" ] || PYTHON=$(command -v python3)
RELEASE=build/gpu-release
# What there is: PYTHON is there when its packages are installed.
python() { [ ! -x "$(command -v "$PYTHON")" ] && echo python3 || echo "$PYTHON"; }

# Everything that --built needs, in one file.  Libraries of the system go along beside those of CUDA, in a
# folder of their own: who has them uses its own.
pack() {
    local home path dnnl programs=(build/dev/tests/device_test_cuda_* build/dev/tests/conformance/sluice-{conformance,rows,run}
        {build/dev,"$RELEASE"}/daemon/{sluiced,libsluice-cuda.so} {build/dev,"$RELEASE"}/client/sluicectl
        "$RELEASE/benchmarks/sluice-bench")
    home=$(dirname "$(dirname "$(realpath "$(toolkit nvcc)")")")
    rm -rf build/gpu-libs build/gpu-packed build/gpu-built.tar.xz
    mkdir -p build/gpu-libs/system build/gpu-packed
    for path in "$home"/lib*/lib{cudart,nvrtc,nvrtc-builtins}.so.13*; do # lib64 may be lib
        cp "$path" build/gpu-libs/ || return 1
    done
    # oneDNN is opened, not linked.
    dnnl=$(ldconfig -p | sed -n 's/.*libdnnl\.so\.[0-9].* => //p' | head -1)
    cp -L "$dnnl" build/gpu-libs/system/ || return 1
    ldd "${programs[@]}" "$dnnl" | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p' | sort -u |
        grep -Ev '/(lib(c|m|dl|rt|pthread|resolv|stdc\+\+|gcc_s|cudart)|ld-linux[^/]*)\.so' |
        xargs -I{} cp -L {} build/gpu-libs/system/
    cp -r --parents "${programs[@]}" build/dev/tests/sim/lib build/gpu-libs build/gpu-packed/ || return 1
    find build/gpu-packed -type f -exec strip --strip-debug {} + 2>/dev/null
    tar -C build/gpu-packed -c build | xz -T0 -3 >build/gpu-built.tar.xz || return 1
    rm -rf build/gpu-packed
}

# What this machine lacks of the system's libraries that came with the build.
use_packed_libraries() {
    local path
    mkdir -p "$OUT/libs"
    for path in build/gpu-libs/system/*; do
        [ ! -e "$path" ] || ldconfig -p | grep -q "^[[:space:]]${path##*/} " || ln -sf "$(realpath "$path")" "$OUT/libs/"
    done
}
if [ -n "$rehearse" ]; then
    RELEASE=build/dev
    [ -e build/dev/tests/sim/lib/libcudart.so.13 ] || die 'a rehearsal needs build/dev with the simulated device'
    export LD_LIBRARY_PATH=$PWD/build/dev/tests/sim/lib
    export SLUICE_GPU_QUICK=1
elif [ -z "$build_for" ]; then
    command -v nvidia-smi >/dev/null || die 'there is no NVIDIA driver here (no nvidia-smi): nothing was run'
    nvidia-smi -L 2>/dev/null | grep -q '^GPU 0' || die 'the NVIDIA driver has no GPU: nothing was run'
    check_driver
fi
readonly OUT PYTHON RELEASE
if [ -n "$build_for" ]; then
    build_for "$build_for" || exit 1
    pack || exit 1
    say "build/gpu-built.tar.xz is ready, $(($(stat -c %s build/gpu-built.tar.xz) >> 20)) MiB"
    exit 0
fi
mkdir -p "$OUT"
rm -f "$OUT"/*.log "$OUT"/*.json "$OUT"/*.tsv "$OUT"/*.txt "$OUT/installing"
[ ! -d build/gpu-libs/system ] || [ -z "$built" ] || use_packed_libraries
# Every daemon of the tests and of the measurements has the GPU.
export SLUICE_DEVICE_DEVICE=cuda
# All that runs on the GPU is the plug-in for use, with machine code of its own; the one for tests holds what
# the simulator reads.
export SLUICE_PLUGIN_DIR=$PWD/$RELEASE/daemon

measure() { # PART
    "$(python)" benchmarks/gpu.py "$1" --out "$OUT" --release "$RELEASE" --dev build/dev
}

step_device() { measure device; }

step_packages() {
    [ -z "$rehearse$built" ] || return 0
    local toolkit_pip=''
    ./dev packages libcmocka-dev libonnx-testdata || echo 'going on with what is here'
    [ -x "$VENV/bin/python" ] || python3 -m venv "$VENV" || return 1
    # The largest begins first; without it nothing is built.
    toolkit nvcc >/dev/null || { install_toolkit & toolkit_pip=$!; }
    install numpy onnx==1.22.0 'tritonclient[grpc,http]==2.73.0' || return 1
    [ -z "$toolkit_pip" ] || wait "$toolkit_pip"
}

step_build() {
    [ -z "$rehearse$built" ] || return 0
    local capability
    capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader -i 0 | tr -d .)
    build_for "$capability"
}

# A context is dear: one process runs many tests, four go side by side.
step_conformance() {
    local sets=(wheel) set part bad=0 parts=()
    [ ! -d /usr/share/libonnx-testdata/data ] || sets+=(debian)
    [ -z "$rehearse" ] || return 0
    for set in "${sets[@]}"; do
        parts=()
        for part in 0 1 2 3; do
            SLUICE_PYTHON=$PYTHON "tests/conformance/$set.sh" build/dev/tests/conformance/sluice-conformance \
                --device cuda --together 1000 --part $part/4 --json 2>&1 &
            parts+=($!)
        done
        for part in "${parts[@]}"; do wait "$part" || bad=1; done
    done
    return $bad
}

step_operators() {
    local programs
    programs=(build/dev/tests/device_test_cuda_*)
    [ -z "$rehearse" ] || programs=(build/dev/tests/device_test_cuda_axes)
    # shellcheck disable=SC2016 # expanded by the shells that are started
    printf '%s\n' "${programs[@]}" |
        xargs -P 6 -I{} sh -c '"$1" >"$2/${1##*_cuda_}.operators.txt" 2>&1 && echo "passed: ${1##*/}" || {
            echo "FAILED: ${1##*/}"; tail -n 20 "$2/${1##*_cuda_}.operators.txt"; exit 1; }' - {} "$OUT"
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
        timeout 30 "$1" --error-exitcode 9 "$RELEASE/benchmarks/sluice-bench" \
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
    [ -z "$rehearse" ] || { echo 'skipped: a rehearsal has no GPU'; return 0; }
    "$nvcc" -O2 -std=c++17 -cudart shared -o "$OUT/cuda-pages" benchmarks/cuda_pages.cu || return 1
    "$OUT/cuda-pages" | tee "$OUT/pages.json"
}

step_speed() { measure speed; }

step_peers() {
    until [ ! -e "$OUT/installing" ]; do sleep 0.2; done # its time is up with the step's
    measure peers
}

benchmark_memory() { # PART
    local quick=()
    [ -z "$rehearse" ] || quick=(--quick)
    "$PYTHON" benchmarks/memory.py --build "$RELEASE" --part "$1" "${quick[@]}"
}

step_start() { benchmark_memory start; }
step_empty-cache() { benchmark_memory empty_cache; }

# ONNX Runtime comes while the rest is built; step_peers waits for it.
install_peers() {
    [ -z "$rehearse$built" ] && is_chosen peers && [ -x "$VENV/bin/python" ] || return 0
    : >"$OUT/installing"
    set -m
    (install 'onnxruntime-gpu[cuda,cudnn]' || echo 'onnxruntime-gpu cannot be installed'
     rm -f "$OUT/installing") >"$OUT/peers-install.log" 2>&1 </dev/null &
    installer=$!
    set +m
}

# Runs one step in a process group of its own, so that its limit ends all that it started.
run_step() { # NAME LIMIT
    local name=$1 limit=$2 left=$((TOTAL - SECONDS)) began=$SECONDS result=ok status=0 runner guard
    [ "$left" -ge "$limit" ] || limit=$left
    if [ "$limit" -le 0 ]; then
        printf '%s\tno time left\t0\n' "$name" >>"$OUT/steps.tsv"
        return
    fi
    set -m
    ([ -n "$rehearse" ] || find_libraries; "step_$name") >"$OUT/$name.log" 2>&1 </dev/null &
    runner=$!
    (sleep "$limit" && kill -TERM -- "-$runner" && sleep 5 && kill -KILL -- "-$runner") >/dev/null 2>&1 &
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

# Steps of the group that is open, and the end of it.
group='' group_steps=() installer=''
end_group() {
    local step
    for step in "${group_steps[@]}"; do wait "$step"; done
    group='' group_steps=()
}

while IFS='|' read -r name limit with what; do
    is_chosen "$name" || continue
    [ "$with" = "$group" ] || end_group
    say "$name: $what"
    if [ -n "$with" ]; then
        group=$with
        run_step "$name" "$limit" &
        group_steps+=($!)
    else
        run_step "$name" "$limit"
    fi
    [ "$name" != packages ] || install_peers
done <<<"$STEPS"
end_group
[ -z "$installer" ] || kill -- "-$installer" 2>/dev/null
python3 benchmarks/gpu_report.py "$OUT" | tee "$OUT/result.txt"
! grep -qv $'\tok\t' "$OUT/steps.tsv"
