#!/usr/bin/env bash
# gpu_script.sh: what benchmarks/gpu.sh does where there is no GPU.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
bad=0

expect() { # WHAT CONDITION…
    local what=$1
    shift
    "$@" || { echo "FAILED: $what"; bad=1; }
}

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# A dry run names every step with its limit and runs none.
steps=$(benchmarks/gpu.sh --dry-run --out "$folder/dry")
expect 'a dry run lists the steps' grep -q '^speed .* s  ' <<<"$steps"
expect 'a dry run writes nothing' [ ! -e "$folder/dry" ]
# shellcheck disable=SC2016 # expanded by the shell that is started
expect 'every step that is listed exists' bash -c '
    while read -r name _; do grep -q "^step_$name()" benchmarks/gpu.sh || exit 1; done <<<"$1"' - "$steps"
expect 'steps can be chosen' [ "$(benchmarks/gpu.sh --dry-run pages | wc -l)" = 1 ]

# Without a GPU it ends at once with one sentence, whatever this machine has.
mkdir "$folder/bin"
printf '#!/bin/sh\nexit 9\n' >"$folder/bin/nvidia-smi"
chmod +x "$folder/bin/nvidia-smi"
said=$(PATH=$folder/bin:$PATH benchmarks/gpu.sh --out "$folder/none" 2>&1)
expect 'it fails without a GPU' [ $? -ne 0 ]
expect 'it says why' [ "$said" = 'gpu.sh: the NVIDIA driver has no GPU: nothing was run' ]
expect 'it left nothing' [ ! -e "$folder/none" ]

# A driver for CUDA 12 is told from one for 13 before anything is installed or built.
cat >"$folder/bin/nvidia-smi" <<'END'
#!/bin/sh
[ "$1" != -L ] || { echo 'GPU 0: NVIDIA H200 (UUID: GPU-0)'; exit 0; }
echo '| NVIDIA-SMI 570.86.15    Driver Version: 570.86.15    CUDA Version: 12.8     |'
END
if compgen -G '/usr/local/cuda-13*/compat/libcuda.so.1' >/dev/null; then
    echo 'this machine has the compatibility package: not tried'
else
    said=$(PATH=$folder/bin:$PATH benchmarks/gpu.sh --out "$folder/none" 2>&1)
    expect 'it fails with an older driver' [ $? -ne 0 ]
    expect 'it says which is needed' grep -q 'is for CUDA 12.8, .*driver 580 or later' <<<"$said"
    expect 'it left nothing' [ ! -e "$folder/none" ]
fi
# The GPU is described before anything is installed: by the system's Python, and without CUDA's libraries.
cat >"$folder/bin/nvidia-smi" <<'END'
#!/bin/sh
case "$*" in
-L) echo 'GPU 0: NVIDIA H200 (UUID: GPU-0)' ;;
*--query-gpu=*) echo 'NVIDIA H200, GPU-0, 9.0, 580.159.04, 143771 MiB' ;;
*) echo '| NVIDIA-SMI 580.159.04    Driver Version: 580.159.04    CUDA Version: 13.0     |' ;;
esac
END
SLUICE_TEST_PYTHON=/nowhere/python PATH=$folder/bin:$PATH benchmarks/gpu.sh --out "$folder/bare" device \
    >"$folder/said" 2>&1 || { echo 'FAILED: a machine with a driver alone'; cat "$folder/said" "$folder"/bare/*.log; bad=1; }
expect 'the GPU has its name' grep -q '"name": "NVIDIA H200"' "$folder/bare/result.json"
! benchmarks/gpu.sh --build Hopper >/dev/null 2>&1 || { echo "FAILED: a capability that is none is taken"; bad=1; }

# What was run of ONNX's tests is counted, also when their time was up before the end.
mkdir "$folder/partial"
printf '%s\n' '{"test":"/data/test_a","operator":"Add","outcome":"passed","reason":""}' 'cuDNN says something' \
    '{"test":"/data/test_b","operator":"Sub","outcome":"failed","reason":"found 1, expected 2"}' '{"test":"/da' \
    >"$folder/partial/conformance.log"
said=$(python3 benchmarks/gpu_report.py "$folder/partial")
expect 'the tests that had their turn are counted' grep -q "tests: 1 passed, 1 failed, 0 refused" <<<"$said"
expect 'what failed is named' grep -q '^test_b: found 1, expected 2' <<<"$said"

# A rehearsal of what takes a second: each step ends well, those of a group at once, and the device is described.
if [ -e build/dev/tests/sim/lib/libcudart.so.13 ] && [ -x build/dev/tests/device_test_cuda_axes ]; then
    SLUICE_TEST_PYTHON=python3 benchmarks/gpu.sh --rehearse --out "$folder/rehearsal" device operators rows sanitizer \
        >"$folder/said" 2>&1 || { echo 'FAILED: a rehearsal'; cat "$folder/said"; bad=1; }
    expect 'the device is described' grep -q '"deviceVer": 900' "$folder/rehearsal/result.json"
else
    echo 'build/dev has no simulated device: nothing was rehearsed'
fi

# A step or an option that is none is refused.
for word in nonsense --nonsense; do
    ! benchmarks/gpu.sh --dry-run "$word" >/dev/null 2>&1 || { echo "FAILED: '$word' is taken"; bad=1; }
done
exit $bad
