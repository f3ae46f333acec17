#!/bin/sh
# Runs the tests of onnx 1.22.0, the newest wheel that ships its data.
set -eu
python=${SLUICE_PYTHON:-python3}
data=$("$python" -c 'import onnx, os; print(os.path.join(os.path.dirname(onnx.__file__), "backend/test/data"))') ||
    { echo "$python has no onnx; ./dev test makes one that has (.venv)"; exit 1; }
[ -d "$data/node" ] || { echo "$data has no tests; onnx==1.22.0 has"; exit 1; }
program=$1
shift
exec "$program" "$@" "$data/node" "$data/simple" "$data/pytorch-converted" "$data/pytorch-operator" "$data/light"
