# ./dev lint: layout, static analysis, and what compilers do not say.
lint() {
    need "${PACKAGES[@]}" "${LINT_PACKAGES[@]}"
    local bad=0 files
    mapfile -t files < <(git ls-files '*.c' '*.h')
    say "clang-format"
    clang-format --dry-run --Werror "${files[@]}" || bad=1
    say "cppcheck"
    # Not asked for: casts of bytes to numbers, which kernels are full of, and addresses of locals in
    # messages, which are packed before their function returns.
    cppcheck --quiet --std=c11 --error-exitcode=1 --enable=warning,portability --inline-suppr \
        --suppress=missingIncludeSystem --suppress=missingInclude --suppress=invalidPointerCast \
        --suppress=autoVariables \
        '-D__attribute__(x)=' -I daemon -I client/include -I client -j "$(nproc)" daemon client || bad=1
    say "clang-tidy over the CUDA kernels"
    scripts/tidy_kernels.sh || bad=1
    [ "$bad" -eq 0 ] || die "lint: see above"
    say "lint: clean"
}
