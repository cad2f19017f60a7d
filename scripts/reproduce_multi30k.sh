#!/usr/bin/env bash
# The full recipe for Multi30k, from the text to the scores; docs/quality.md has what parts of it bring.
#
#     scripts/reproduce_multi30k.sh CORPUS OUTPUT [KEY=VALUE ...]
#
# CORPUS is a folder with train, val and test_2016_flickr, each as .en and .de. Into OUTPUT go a plain run, TEACHERS runs
# in either direction, the training text that they diversify, and SEEDS students that learn from it, each of which begins
# with the weights of a forward teacher. Each student goes on by minimum risk, into a run `risk-N`; its length penalty is
# chosen on the validation split, and it is scored on the test split, beside the plain run.
# A call that was interrupted, or killed, goes on where it was, with the same arguments (SEEDS may grow). The keys are
# given to every training: for text that is tokenized and lowercased, `bleu_tokenize=none lowercase=true`.
# SOURCE=de TARGET=en is the other way. NEIGHBORS=32 scores every run with neighbors of CORPUS (`nmt.datastore`). In the
# paired tests of a student and the plain run, both are searched with the student's length penalty, the plain run without
# neighbors; the plain run's own score has its own.
set -euo pipefail

if [ $# -lt 2 ]; then
    sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"
    exit 2
fi
for name in TEACHERS SEEDS NEIGHBORS; do
    least=$([ $name = NEIGHBORS ] && echo 0 || echo 1)
    if ! [[ ${!name:-1} =~ ^[0-9]{1,4}$ ]] || [ "${!name:-1}" -lt "$least" ]; then
        echo "error: $name is '${!name}': give a whole number from $least" >&2
        exit 2
    fi
done
corpus=$(realpath "$1") output=$(realpath -m "$2")
mkdir -p "$output"
shift 2
keys=("$@")
source=${SOURCE:-en} target=${TARGET:-de} teachers=${TEACHERS:-2} seeds=${SEEDS:-3}
neighbors=${NEIGHBORS:-0} penalties=(0.6 0.8 1.0 1.2 1.4)
if [ "$neighbors" -gt 0 ]; then penalties+=(1.7 2.0 2.5); fi # translations are shorter
settings=$(printf '%s\n' "corpus $corpus" "from $source to $target" "teachers $teachers" "keys ${keys[*]}" \
    ${NEIGHBORS:+"neighbors $NEIGHBORS"})
if [ ! -e "$output/plain" ] || [ ! -e "$output/settings" ]; then # not begun, or ended by a mistake in the settings
    printf '%s\n' "$settings" > "$output/settings"
elif [ "$settings" != "$(cat "$output/settings")" ]; then
    printf 'error: %s has runs of other settings: give these again, or another OUTPUT\n%s\n' \
        "$output" "$(cat "$output/settings")" >&2
    exit 2
fi
cd "$(dirname "$0")/.."

train() { # RUN EXPERIMENT FROM TO PREFIX-OF-TRAINING-TEXT [KEY=VALUE ...]
    local run=$1 experiment=$2 from=$3 to=$4 text=$5
    shift 5
    if [ -e "$output/$run/complete" ]; then return; fi
    python -m nmt.train "experiment=$experiment" data=text "data.source_language=$from" "data.target_language=$to" \
        "data.train.source='$text.$from'" "data.train.target='$text.$to'" \
        "data.validation.source='$corpus/val.$from'" "data.validation.target='$corpus/val.$to'" \
        "data.test.source='$corpus/test_2016_flickr.$from'" "data.test.target='$corpus/test_2016_flickr.$to'" \
        "data.cache_dir='$output/cache'" trainer.evaluate=false "run_dir='$output/$run'" "${keys[@]}" "$@"
    touch "$output/$run/complete"
}

score() { # RUN [KEY=VALUE ...]: choose its length penalty on the validation split, then score it on the test split
    local run=$output/$1 penalty folder
    shift
    if [ -e "$run/evaluation/test/metrics.json" ]; then return; fi
    if [ "$neighbors" -gt 0 ]; then
        python -m nmt.datastore "$run" --source "$corpus/train.$source" --target "$corpus/train.$target"
    fi
    for penalty in "${penalties[@]}"; do
        folder=$run/evaluation/validation-$penalty
        if [ ! -e "$folder/metrics.json" ]; then
            python -m nmt.evaluate "checkpoint='$run'" split=validation "search.length_penalty=$penalty" \
                search.beam_size=10 "search.neighbors=$neighbors" num_heatmaps=0 "output='$folder'"
        fi
    done
    penalty=$(best_penalty "$run")
    echo "$run: length penalty $penalty"
    python -m nmt.evaluate "checkpoint='$run'" "search.length_penalty=$penalty" search.beam_size=10 \
        "search.neighbors=$neighbors" "$@"
}

best_penalty() { # RUN
    python - "$1" "${penalties[@]}" <<'END'
import json, sys
from pathlib import Path
run, *penalties = sys.argv[1:]
def bleu(penalty):
    return json.loads((Path(run) / "evaluation" / f"validation-{penalty}" / "metrics.json").read_text())["bleu"]
print(max(penalties, key=bleu))
END
}

runs() { # DIRECTION: the folders of its teachers
    for ((n = 1; n <= teachers; n++)); do echo "$output/$1-$n"; done
}

train plain multi30k_long "$source" "$target" "$corpus/train"
score plain
for ((n = 1; n <= teachers; n++)); do
    train "forward-$n" multi30k_long "$source" "$target" "$corpus/train" "seed=$((100 + n))"
    train "backward-$n" multi30k_long "$target" "$source" "$corpus/train" "seed=$((200 + n))"
done
mapfile -t forward < <(runs forward)
mapfile -t backward < <(runs backward)
python scripts/diversify.py --forward "${forward[@]}" --backward "${backward[@]}" --output "$output/diversified"
for ((n = 1; n <= seeds; n++)); do
    train "student-$n" multi30k_student "$source" "$target" "$output/diversified/train" "seed=$n" \
        "trainer.initialize_from='${forward[(n - 1) % teachers]}'"
    train "risk-$n" multi30k_risk "$source" "$target" "$corpus/train" "seed=$n" \
        "trainer.initialize_from='$output/student-$n'"
    score "risk-$n" "baseline='$output/plain'"
done
