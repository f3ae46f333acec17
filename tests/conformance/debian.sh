#!/bin/sh
# Runs the tests of Debian's libonnx-testdata.
set -eu
data=${SLUICE_ONNX_TESTDATA:-/usr/share/libonnx-testdata/data}
[ -d "$data/node" ] || { echo "$data has no tests; install libonnx-testdata"; exit 1; }
program=$1
shift
exec "$program" "$@" "$data/node" "$data/simple" "$data/pytorch-converted" "$data/pytorch-operator"
