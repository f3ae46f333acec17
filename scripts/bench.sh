# ./dev bench [engines|serve [part,...]]: sluice and its peers side by side.
bench() {
    need "${BENCH_PACKAGES[@]}"
    build release
    python_with numpy onnx==1.22.0 onnxruntime openvino
    "$PYTHON" benchmarks/make_models.py .cache/bench-models
    local part=${1:-all}
    [ $# -gt 0 ] && shift
    case $part in
    engines) bench_engines "$@" ;;
    serve) bench_serve "$@" ;;
    all) bench_engines; bench_serve ;;
    *) die "bench: unknown part '$part'; engines and serve are known" ;;
    esac
}

bench_engines() {
    "$PYTHON" benchmarks/engines.py --sluice-bench build/release/benchmarks/sluice-bench "$@"
}

bench_serve() {
    "$PYTHON" benchmarks/serve.py --build build/release ${1:+--part "$1"}
}
