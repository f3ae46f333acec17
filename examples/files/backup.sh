#!/bin/sh
# Copies a folder to a dated archive and keeps the newest seven.
set -eu

source_dir=${1:?usage: backup.sh FOLDER TARGET}
target_dir=${2:?usage: backup.sh FOLDER TARGET}
stamp=$(date +%Y-%m-%d)

mkdir -p "$target_dir"
tar -czf "$target_dir/backup-$stamp.tar.gz" -C "$source_dir" .

count=0
for archive in $(ls -1r "$target_dir"/backup-*.tar.gz); do
    count=$((count + 1))
    if [ "$count" -gt 7 ]; then
        echo "removing $archive"
        rm -f "$archive"
    fi
done
