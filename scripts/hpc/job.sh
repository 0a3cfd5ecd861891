#!/usr/bin/env bash
# Usage: scripts/hpc/job.sh cpu|gpu|array [LINNET_NAME=VALUE...] PREDICT-FLAGS...
#
# The body of a job of Slurm or SGE; scripts/hpc/submit sends it. Without a
# scheduler it runs as well. The scheduler's signals before the time limit reach
# predict, which keeps what is done and ends. An array's task labels one folder
# below --input into a folder of that name below --output.
set -euo pipefail
kind=${1:-}; shift || true
while [[ ${1:-} == LINNET_*=* ]]; do export "${1?}"; shift; done # not every queue passes on the environment
predict=${LINNET_PREDICT:-bin/predict}

flags=("$@")
case $kind in
  cpu) ;;
  gpu) flags=(--device=auto --verbosity=2 "$@") ;; # yours count
  array)
    task=${SLURM_ARRAY_TASK_ID:-${SGE_TASK_ID:-1}}
    flags=()
    for flag in "$@"; do
      case $flag in
        --input=*) input=${flag#--input=} ;;
        --output=*) output=${flag#--output=} ;;
        *) flags+=("$flag") ;;
      esac
    done
    [ -n "${input:-}" ] && [ -n "${output:-}" ] || { echo "job.sh: array needs --input=FOLDER and --output=FOLDER" >&2; exit 2; }
    input=${input//\\,/,} # a comma of --input divides; \, is one of a name
    [[ $input != -* ]] || input=./$input # no option of find's
    # The output may lie there, made by another task meanwhile, and earlier runs', which predict reads where they are named.
    folders=()
    while IFS= LC_ALL=C read -r -d '' folder; do
      [ -n "$folder" ] || { echo "job.sh: $input has what cannot be looked at, see above: allow reading it, or move it elsewhere" >&2; exit 1; }
      [ "$folder" -ef "$output" ] || [ -e "$folder/_manifest.jsonl" ] || folders+=("$folder")
    done < <(find "$input/" -mindepth 1 -maxdepth 1 ! -name '.*' -xtype d -print0 | LC_ALL=C sort -z || printf '\0') # in one order on every node
    [ "$task" -ge 1 ] && [ "$task" -le ${#folders[@]} ] || { echo "job.sh: task $task, but $input has ${#folders[@]} folders" >&2; exit 2; }
    sum=$(printf '%s\0' "${folders[@]##*/}" | cksum)
    folder=${folders[task - 1]}
    flags+=("--input=${folder//,/\\,}" "--output=$output/${folder##*/}") ;;
  *) echo "job.sh: ${kind:-the kind} is none; it must be cpu, gpu or array" >&2; exit 2 ;;
esac
command -v "$predict" >/dev/null || { echo "job.sh: no program $predict, seen from $PWD: go build -o bin/ ./pipelines/predict, or name it with LINNET_PREDICT" >&2; exit 1; }

# The cores that the scheduler gave, not all of the node's.
export GOMAXPROCS=${SLURM_CPUS_PER_TASK:-${NSLOTS:-$(nproc)}}
if [ -n "${LINNET_MEMORY:-}" ]; then flags=("--memory_limit=$((LINNET_MEMORY * 1024 * 3 / 4))MiB" ${flags[@]+"${flags[@]}"}); fi
"$predict" --rejected_exit_status=0 ${flags[@]+"${flags[@]}"} &
child=$!
trap 'kill -TERM $child 2>/dev/null || true' TERM USR1 USR2 INT
# A signal ends a wait before predict has ended, or just as it has; another wait tells what it said.
while kill -0 $child 2>/dev/null; do wait $child || true; done
status=0
wait $child || status=$?
addresses=$(ulimit -v)
if [ $status -ge 2 ] && [ "$addresses" != unlimited ] && [ "$addresses" -lt $((4 << 20)) ]; then
  echo "job.sh: predict may map no more than $((addresses / 1024)) MiB of addresses (ulimit -v), and takes up to 4096: ask for them, with LINNET_QUEUE='-l h_vmem=4G' of SGE" >&2
fi
# Beside others such a folder would be passed over.
if [ "$kind-$status" = array-2 ] && [[ $("$predict" "${flags[@]}" --plan 2>&1) == *"input: no document in "* ]]; then
  echo "job.sh: task $task: no document in $folder: passed over" >&2
  status=0
fi
# A folder more, or less, gives later tasks other ones than they were sent for.
if [ "$kind-$status" = array-0 ] && [ "${LINNET_FOLDERS:-$sum}" != "$sum" ]; then
  echo "job.sh: $input has other folders than when its array was submitted, and one may be left out: submit it again" >&2
  status=1
fi
exit $status
