#!/bin/bash
# clang-tidy over the CUDA kernels as the host's compiler reads them (tests/sim/bodies): their bodies, not
# their launches.  Needs the toolkit's headers; left out with one line where there are none.
#
#     scripts/tidy_kernels.sh [STEM ...]     pool.cu: pool; all without a name
set -euo pipefail
cd "$(dirname "$0")/.."
cuda=${CUDA_HOME:-/usr/local/cuda}
[ -f "$cuda/include/cuda_runtime.h" ] || { echo "kernels left out: no CUDA toolkit (CUDA_HOME)"; exit 0; }
kernels=daemon/device/cuda/kernels
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
python3 tests/sim/bodies/translate.py $kernels/*.cu $kernels/*.cuh "$made"
files=("$made"/*.cpp)
if [ $# -gt 0 ]; then
    files=("${@/#/$made/}")
    files=("${files[@]/%/.cpp}")
fi
# Not asked for: parameters of one type side by side, sizes of tiles that are multiplied as int, which kernels are
# full of, and parentheses around names that a macro is given.
checks='-*,bugprone-*,clang-analyzer-*,performance-*,-bugprone-easily-swappable-parameters,-bugprone-macro-parentheses'
checks+=',-bugprone-narrowing-conversions,-bugprone-implicit-widening-of-multiplication-result'
printf '%s\n' "${files[@]}" | xargs -P "$(nproc)" -I{} clang-tidy --quiet --warnings-as-errors='*' \
    --checks="$checks" {} -- -std=c++17 -O1 -Itests/sim/bodies -I"$made" -Idaemon -isystem "$cuda/include" \
    2> >(grep -v 'warnings generated\|Suppressed .* warnings\|Use -header-filter' >&2)
