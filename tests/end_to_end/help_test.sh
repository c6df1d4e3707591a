#!/usr/bin/env bash
# What every program says of itself: --help in 80 columns with each flag once, and --version.
set -uo pipefail

fail() {
  printf '%s\n' "$*" >&2
  exit 1
}

version=$(sed -n 's/^## \[\([0-9.]*\)\].*/\1/p' CHANGELOG.md | head -n 1)
[[ $version ]] || fail "CHANGELOG.md: no version"
programs=0
for tool in tools/*; do
  [[ -x $tool && -f $tool ]] || continue
  name=${tool#tools/}
  help=$("$tool" --help) || fail "$name --help: exit code $?"
  [[ $help == "$name "* ]] || fail "$name --help: $help"
  wide=$(grep -nE '.{81}|[[:space:]]$' <<<"$help") && fail "$name --help is wider than 80 columns: $wide"
  twice=$(grep -oE '^  --[a-z0-9_]+' <<<"$help" | sort | uniq -d)
  [[ ! $twice ]] || fail "$name --help: twice: $twice"
  grep -q '^  --version ' <<<"$help" || fail "$name --help: $help"
  [[ $("$tool" --version) == "$name (Gyre) $version" ]] || fail "$name --version: $("$tool" --version)"
  programs=$((programs + 1))
done
((programs == 17)) || fail "$programs programs"

# A switch is on, off, or named alone.
tools/train --autotune=off --plan=on --noplan --version >"$TEST_TMPDIR/said" || fail "$(cat "$TEST_TMPDIR/said")"
