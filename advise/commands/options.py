"""Options that several verbs share."""

from __future__ import annotations

import click

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
zone_option = click.option(
    "--zone",
    metavar="ZONE",
    help="Time zone of logs that are not in UTC, such as America/Chicago. "
    "[default: this machine's]",
)
