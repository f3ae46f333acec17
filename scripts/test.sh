# ./dev test [--slow]: everything, on a machine without a GPU.
test() {
    build dev
    ctest --test-dir build/dev --output-on-failure -j "$(nproc)"
    build asan
    ASAN_OPTIONS=detect_leaks=1 ctest --test-dir build/asan --output-on-failure -j "$(nproc)" -L unit
    build tsan
    ctest --test-dir build/tsan --output-on-failure -j "$(nproc)" -L threads
    say "all tests passed"
}
