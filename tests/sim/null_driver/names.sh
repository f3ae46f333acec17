#!/bin/bash
# names.sh STUB SOURCE
#
# Assembler text with every name of the toolkit's stub of the driver that SOURCE does not define:
# each answers "success" and does nothing.
set -eu
export LC_ALL=C
defined=$(grep -oE '^CUresult cu[A-Za-z0-9_]+' "$2" | cut -d' ' -f2 | sort -u)
names=$(nm -D --defined-only "$1" | awk '$2 == "T" {print $3}' | sort -u)
echo .text
comm -23 <(printf '%s\n' "$names") <(printf '%s\n' "$defined") | while read -r name; do
    printf '.globl %s\n.type %s,@function\n%s: xor %%eax,%%eax\nret\n' "$name" "$name" "$name"
done
echo '.section .note.GNU-stack,"",@progbits'
