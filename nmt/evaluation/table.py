"""The table of scores that an evaluation prints."""

from rich.console import Console
from rich.table import Table

from nmt.evaluation.registry import Values, compared, number, shown_rows
from nmt.evaluation.report import search_summary, summary


def print_table(metrics: Values, console: Console | None = None) -> None:
    """Print the scores with their settings."""
    console = console or Console()
    baseline = metrics["baseline"]
    table = Table(title=f"{metrics['split']}: {metrics['sentences']:,} sentences", title_justify="left")
    table.add_column("metric")
    table.add_column("score", justify="right")
    table.add_column("")
    for row in shown_rows(metrics):
        table.add_row(*row)
    for name, label in compared().items() if baseline else ():
        test = baseline[name]
        note = f"against {number(test['baseline'], 2)} of {baseline['run']}, p = {test['p_value']:.4f}"
        table.add_row(f"{label} difference", f"{test['difference']:+.2f}", note)
    console.print(table)
    footer = [summary(metrics)]
    if baseline is not None:
        footer.append(f"against {baseline['run']}: {search_summary(baseline)}")
    for line in footer:
        console.print(line, highlight=False, soft_wrap=True)
    for name, signature in metrics["signature"].items():
        if name != "bleu_ci95":
            console.print(f"{name}|{signature}", highlight=False, soft_wrap=True, style="dim")
