#!/bin/bash
# check.sh PROGRAM TOOLKIT EVERY NAME DRIVER [--write]
#
# Plans every EVERY-th graph of sim/NAME_graphs.txt with the toolkit's own cuDNN, and compares with
# the committed table sim/NAME_plans.txt (of that version of cuDNN; another version is left out and
# said so).  DRIVER: the folder of the driver that takes compiled code, or nothing.
set -u
program=$1 toolkit=$2 every=$3 name=$4 driver=$5 write=${6-}
sim=$(cd "$(dirname "$0")/../../../sim" && pwd)
table=$sim/${name}_plans.txt

for folder in "$toolkit/lib64" "$toolkit/lib" ""; do
    [ -e "$folder/libcudnn.so.9" ] && break
done
if [ -z "$folder" ]; then
    echo "no libcudnn.so.9 beside the toolkit: plans are not compared"
    exit 77
fi
# The real libraries before the simulated ones, which cuDNN would otherwise take for its own.  What
# they keep until the process ends is theirs: LeakSanitizer is not asked.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0
plans=$(LD_LIBRARY_PATH=${driver:+$driver:}$folder "$program" "$folder/libcudnn.so.9" \
    "$sim/${name}_graphs.txt" "$sim/devices" "$every")
status=$?
[ $status = 0 ] || exit $status
if [ "$write" = --write ]; then
    printf '%s\n' "$plans" > "$table"
    exit 0
fi
if [ "$(head -1 <<< "$plans")" != "$(head -1 "$table")" ]; then
    echo "$(head -1 <<< "$plans"), the table is of $(head -1 "$table"): not compared"
    exit 77
fi
# Rows of the table's graphs that were planned this time, all of them and the same.
missing=$(grep -vxFf "$table" <<< "$plans")
if [ -n "$missing" ]; then
    echo "plans that are not in $table (check.sh … 1 $name … --write makes it again):"
    head -20 <<< "$missing"
    exit 1
fi
echo "$(($(wc -l <<< "$plans") - 1)) graphs planned as the table says"
