"""Predict the time of an update of several processes, by the cost model of docs/scaling.md.

    torchrun --nproc-per-node=2 scripts/plan_processes.py link [--parameters P]
    python scripts/plan_processes.py update --update-seconds C --update-tokens T --parameters P --bandwidth B --delay L

`link` measures what connects the processes that torchrun starts, on one machine or several: bandwidth in bytes a second
and delay in seconds. `update` prints for each number of processes the time of an update, target tokens per second, the
efficiency, and the hours for one pass through the corpus. C and T are those of one process: `python
scripts/benchmark.py train` prints them as milliseconds_per_update and target_tokens_per_update.
"""

import argparse
import os
from typing import Any

from nmt.cli import user_errors
from nmt.errors import UserError
from studies.options import positive, positive_number

WMT14 = 30 * 4_500_000.0  # target tokens: 4.5 million pairs, about 30 subwords each


def main() -> None:
    """Measure a link, or print the table of a plan."""
    options = build_parser().parse_args()
    with user_errors():
        {"link": print_link, "update": print_plan}[options.mode](options)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    modes = parser.add_subparsers(dest="mode", required=True)
    link = modes.add_parser("link", help="measure bandwidth and delay between the processes of torchrun")
    update = modes.add_parser("update", help="predict the time of an update of several processes")
    for part in (link, update):
        part.add_argument("--parameters", type=positive, default=10_000_000, metavar="P", help="numbers of the model")
    add: Any = update.add_argument
    add("--update-seconds", type=positive_number, required=True, metavar="C", help="an update of one process")
    add("--update-tokens", type=positive_number, required=True, metavar="T", help="target tokens of an update")
    add("--bandwidth", type=positive_number, required=True, metavar="B", help="bytes a second between neighbors")
    add("--delay", type=positive_number, required=True, metavar="L", help="seconds for a message without content")
    add("--processes", type=positive, nargs="+", default=[1, 2, 8, 64], metavar="N")
    add("--corpus-tokens", type=positive_number, default=WMT14, metavar="N", help="of a pass (WMT14: %(default)g)")
    return parser


def print_link(options: argparse.Namespace) -> None:
    """Measure the link on all ranks; the first one prints."""
    from benchmarking.processes import measure_link
    from nmt.training.distributed import process_group
    from nmt.training.torchrun_env import RankEnvironment

    with process_group(RankEnvironment.of(os.environ), "auto") as processes:
        if processes.world_size == 1:
            raise UserError("link needs several processes: torchrun --nproc-per-node=2 scripts/plan_processes.py link")
        link = measure_link(processes, processes.device("auto"), options.parameters)
        if processes.rank == 0:
            print(f"{processes.world_size} processes: --bandwidth {link.bandwidth:.3g} --delay {link.delay:.2g}")


def print_plan(options: argparse.Namespace) -> None:
    """Print the table."""
    from benchmarking.processes import Link, Update

    update = Update(options.update_seconds, options.update_tokens, options.parameters)
    print("processes  ms/update  target tokens/s  efficiency  hours a pass")
    link, numbers = Link(options.bandwidth, options.delay), sorted(set(options.processes))
    for row in update.rows(link, numbers, options.corpus_tokens):
        print("{:9}  {:9.1f}  {:15,.0f}  {:10.2f}  {:12.2f}".format(*row.values()))


if __name__ == "__main__":
    main()
