#!/usr/bin/env bash
# Usage: getGpusResources.sh [AMOUNT [--enable-coordination-mode [--coordination-file FILE]]]
#
# The NVIDIA GPUs of this machine in the words of Spark and Flink. Without
# AMOUNT, as Spark's spark.worker.resource.gpu.discoveryScript calls it: one
# line of JSON, {"name":"gpu","addresses":["0","1"]}. With AMOUNT, as Flink's
# external-resource.gpu.param.discovery-script.path calls it: AMOUNT indexes,
# separated by commas; fewer cards than that is status 1. In coordination mode
# processes on one machine take different cards, by FILE (/tmp/linnet-gpus),
# which all of them can write to and which says who has which; a card is free
# again when its process, the caller of this script, is gone.
set -euo pipefail

fail() { echo "getGpusResources.sh: $*" >&2; exit 1; }
misused() { echo "getGpusResources.sh: $*" >&2; exit 2; }
amount='' coordinate=false file=/tmp/linnet-gpus
while [ $# -gt 0 ]; do
  case $1 in
    --enable-coordination-mode) coordinate=true ;;
    --coordination-file) file=${2:-}; [ -n "$file" ] || misused "--coordination-file needs a file"; shift ;;
    '' | null) ;; # Flink's words for no discovery-script.args
    *[!0-9]*) misused "$1: give a number of GPUs" ;;
    *) amount=$1 ;;
  esac
  shift
done

command -v nvidia-smi >/dev/null || fail "no nvidia-smi in PATH: this machine has no NVIDIA driver"
all=$(nvidia-smi --query-gpu=index --format=csv,noheader) || fail "nvidia-smi failed: $all"
mapfile -t cards < <(tr -d ' ' <<<"$all")
[ -n "${cards[0]:-}" ] || fail "nvidia-smi lists no GPU"

if [ -z "$amount" ]; then
  printf -v list '"%s",' "${cards[@]}"
  echo "{\"name\":\"gpu\",\"addresses\":[${list%,}]}"
  exit
fi
[ "$amount" -gt 0 ] || exit 0
if ! $coordinate; then
  [ ${#cards[@]} -ge "$amount" ] || fail "$amount GPUs were asked for, nvidia-smi lists ${#cards[@]}"
  (IFS=,; echo "${cards[*]:0:amount}")
  exit
fi

# One line a card that is taken: its index and the process that has it, which
# may be another user's and take no signal from here.
[ ! -L "$file" ] || fail "$file is a link, which another user may have put there; remove it, or name the file that it leads to"
{ exec 9>>"$file"; } 2>/dev/null || fail "$file cannot be written to; let all who start processes here write to it, or name another by --coordination-file"
flock -w 8 9 || fail "$file stays locked"
taken=$(while read -r card owner; do if kill -0 "$owner" 2>/dev/null || [ -e "/proc/$owner" ]; then echo "$card $owner"; fi; done <"$file")
mine=()
for card in "${cards[@]}"; do
  if [ ${#mine[@]} -lt "$amount" ] && ! grep -q "^$card " <<<"$taken"; then mine+=("$card"); fi
done
[ ${#mine[@]} -eq "$amount" ] || fail "$amount GPUs were asked for, ${#mine[@]} of ${#cards[@]} are free"
{ if [ -n "$taken" ]; then echo "$taken"; fi; for card in "${mine[@]}"; do echo "$card $PPID"; done; } >"$file"
(IFS=,; echo "${mine[*]}")
