"""`condor-advice lab`: produce hold episodes, on a private pool or in a simulation."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import click
from click.core import ParameterSource

from condor_advice.gather.errors import UsageError

Command = Callable[..., None]


def new_data_options(seed: str, out: str, as_json: str) -> Callable[[Command], Command]:
    """Add the options of a command that produces data: --seed, --out and --json."""

    def add(command: Command) -> Command:
        for option in (
            click.option("--json", "as_json", is_flag=True, help=as_json),
            click.option(
                "--out",
                required=True,
                type=click.Path(file_okay=False, path_type=Path),
                help=out,
            ),
            click.option("--seed", default=1, show_default=True, help=seed),
        ):
            command = option(command)
        return command

    return add


@click.group()
def lab() -> None:
    """Produce hold episodes on a private pool or in a simulation."""


@lab.command()
@click.option(
    "--minutes",
    default=10.0,
    show_default=True,
    type=click.FloatRange(min=0.3),
    help="How long to run.",
)
@new_data_options(
    seed="Determines owners, batches and faults.",
    out="New directory for the recording.",
    as_json="Print the manifest as one JSON object.",
)
@click.option(
    "--randomised-release",
    is_flag=True,
    help="Release every held job after a random delay, for unbiased outcomes.",
)
@click.option(
    "--behaviour",
    "behaviours",
    multiple=True,
    metavar="NAME=SHARE",
    help="Set the share of release_now, release_later, fix, remove or ignore.",
)
@click.option(
    "--points",
    default="steady,steady,bare,flaky,black-hole,small",
    show_default=True,
    metavar="KIND,...",
    help="Kinds of execution points, one per word.",
)
@click.option(
    "--point-prefix",
    default="node",
    show_default=True,
    help="Prefix of the execution points' names.",
)
@click.option(
    "--memory-policy",
    default="stock",
    show_default=True,
    type=click.Choice(["stock", "per-run"]),
    help="stock also counts the previous run's usage; per-run does not.",
)
@click.option(
    "--dates",
    default="iso",
    show_default=True,
    type=click.Choice(["iso", "mm/dd"]),
    help="Date format of the global event log.",
)
@click.option(
    "--owners",
    default=12,
    show_default=True,
    type=click.IntRange(1, 26),
    help="Number of job owners.",
)
@click.option(
    "--batches-per-minute",
    default=22.0,
    show_default=True,
    type=click.FloatRange(min=0.5),
    help="Batches to submit per minute.",
)
@click.option(
    "--pace",
    default=1.0,
    show_default=True,
    type=click.FloatRange(min=0.05),
    help="Factor on every delay; below 1 is faster.",
)
@click.option(
    "--scenario",
    "scenarios",
    multiple=True,
    metavar="NAME",
    help="Use only this scenario; may be repeated.",
)
@click.option(
    "--kind",
    default="",
    metavar="NAME",
    help="Kind of pool: its scenarios, programs and owners, and its defaults for the options "
    "above; `condor-advice lab kinds` lists them.",
)
@click.pass_context
def run(
    context: click.Context,
    minutes: float,
    seed: int,
    out: Path,
    randomised_release: bool,
    behaviours: tuple[str, ...],
    points: str,
    point_prefix: str,
    memory_policy: str,
    dates: str,
    owners: int,
    batches_per_minute: float,
    pace: float,
    scenarios: tuple[str, ...],
    kind: str,
    as_json: bool,
) -> None:
    """Run a private pool with faults and job owners, and record it."""
    from condor_advice.lab.kinds import load_kind
    from condor_advice.lab.owners import BEHAVIOURS
    from condor_advice.lab.run import LabSettings, run_lab

    shares = dict(load_kind(kind).behaviours if kind else BEHAVIOURS)
    for word in behaviours:
        name, _, share = word.partition("=")
        try:
            shares[name] = float(share)
        except ValueError:
            raise UsageError(f"--behaviour {word}: write NAME=SHARE, as in fix=0.4") from None
    options: dict[str, object] = {
        "randomised_release": randomised_release,
        "behaviours": shares,
        "personalities": tuple(points.split(",")),
        "point_prefix": point_prefix,
        "memory_policy": memory_policy,
        "iso_dates": dates == "iso",
        "owners": owners,
        "batches_per_minute": batches_per_minute,
        "pace": pace,
        "scenarios": scenarios,
    }
    if kind:
        parameters = {"personalities": "points", "iso_dates": "dates"}
        options = {
            name: value
            for name, value in options.items()
            if context.get_parameter_source(parameters.get(name, name))
            is not ParameterSource.DEFAULT
        }
        settings = LabSettings.of_kind(kind, minutes, seed, **options)
    else:
        settings = LabSettings(minutes, seed, **options)  # type: ignore[arg-type]
    recording = run_lab(settings, out, say=lambda line: click.echo(line, err=True))
    if as_json:
        click.echo(json.dumps(recording.manifest))
        return
    click.echo(recording.table())
    click.echo(
        f"{recording.manifest['jobs']} jobs, {recording.manifest['episodes']} hold "
        f"episodes; recording in {out}"
    )


@lab.command()
@click.argument("recording", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--name", required=True, help="Name of the packed recording.")
@click.option(
    "--use",
    required=True,
    type=click.Choice(["train", "test"]),
    help="Purpose; models never train on test recordings.",
)
@click.option(
    "--into",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory of packed recordings, whose manifest is updated.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print its manifest entry as one JSON object."
)
def pack(recording: Path, name: str, use: str, into: Path, as_json: bool) -> None:
    """Pack a recording into one file; refuse if it identifies this machine."""
    from condor_advice.lab.recording import ship

    entry = ship(recording, name, use, into)
    click.echo(
        json.dumps(entry)
        if as_json
        else f"{into / name}.tar.xz: {entry['bytes'] / 1e6:.2f} MB, {entry['episodes']} hold "
        f"episodes, for {use}"
    )


@lab.command("thin")
@click.argument("recording", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--share",
    required=True,
    type=click.FloatRange(0.0, 1.0, min_open=True),
    help="Share of the programs to keep.",
)
@new_data_options(
    seed="Determines the programs.",
    out="New directory for the smaller recording.",
    as_json="Print the manifest as one JSON object.",
)
def thin_recording(recording: Path, share: float, seed: int, out: Path, as_json: bool) -> None:
    """Keep some programs of a recording, drawn without a look at the outcomes."""
    from condor_advice.lab.recording import thin

    if out.exists():
        raise UsageError(f"{out} exists; name a new directory for the recording")
    smaller = thin(recording, out, share, seed)
    click.echo(json.dumps(smaller.manifest) if as_json else smaller.table())


@lab.command("recordings")
@click.option("--table", metavar="NAME", help="Print the scenarios × outcomes of this recording.")
@click.option("--json", "as_json", is_flag=True, help="Print the manifest as one JSON object.")
def list_recordings(table: str | None, as_json: bool) -> None:
    """List the recordings that come with condor-advice."""
    from condor_advice.lab.recording import format_table, shipped

    known = shipped()
    if table is not None and table not in known:
        raise UsageError(f"no recording named {table!r}; choose from {', '.join(known)}")
    if as_json:
        click.echo(json.dumps(known if table is None else known[table]))
    elif table is not None:
        click.echo(format_table(known[table]["episodes_by_scenario"]))
    else:
        for name, entry in known.items():
            settings = entry["settings"]
            released = "randomised" if settings["randomised_release"] else "by owners"
            if share := settings.get("randomised_owners"):
                released = f"by owners ({share:.0%} of them at random)"
            kind = f", {settings['kind']}" if settings.get("kind") else ""
            click.echo(
                f"{name:10} {entry['use']:6} {settings['minutes']:4.0f} min "
                f"{entry['jobs']:6d} jobs {entry['episodes']:6d} episodes, released "
                f"{released}, {settings['memory_policy']} memory policy{kind}"
            )


@lab.command("kinds")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per kind.")
def list_kinds(as_json: bool) -> None:
    """List the kinds of pools that `lab run --kind` can run."""
    from importlib import import_module

    from condor_advice.lab import kinds
    from condor_advice.lab.scenarios import load_scenarios

    for name in kinds.kind_names():
        about = (import_module(f"{kinds.__name__}.{name}").__doc__ or "").strip()
        count = len(load_scenarios(name))
        if as_json:
            click.echo(json.dumps({"name": name, "scenarios": count, "about": about}))
        else:
            click.echo(f"{name:16} {count:3d} scenarios  {about.splitlines()[0]}")


@lab.command("scenarios")
@click.option("--kind", default="", metavar="NAME", help="Of this kind of pool.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per scenario.")
def list_scenarios(kind: str, as_json: bool) -> None:
    """List the scenarios: what can go wrong in the lab."""
    from condor_advice.lab.kinds import load_kind
    from condor_advice.lab.scenarios import load_scenarios

    if kind:
        load_kind(kind)
    for scenario in load_scenarios(kind).values():
        if as_json:
            click.echo(
                json.dumps(
                    {
                        "name": scenario.name,
                        "family": scenario.family,
                        "weight": scenario.weight,
                        "about": scenario.about,
                    }
                )
            )
        else:
            click.echo(f"{scenario.name:26} {scenario.family:11} {scenario.about.splitlines()[0]}")


@lab.command()
@click.option(
    "--jobs",
    default=58000,
    show_default=True,
    type=click.IntRange(min=1),
    help="Number of jobs over all access points.",
)
@new_data_options(
    seed="The same seed gives the same bytes.",
    out="New directory for the logs.",
    as_json="Print one JSON object.",
)
@click.option(
    "--profile",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Profile, a TOML file. [default: the OSPool's]",
)
def simulate(jobs: int, seed: int, out: Path, profile: Path | None, as_json: bool) -> None:
    """Write simulated event logs, and compare them with the profile."""
    from condor_advice.lab.simulate import Profile
    from condor_advice.lab.simulate import simulate as run_simulation

    chosen = Profile.read(profile)
    result = run_simulation(jobs, seed, out, chosen)
    if as_json:
        click.echo(json.dumps(result.as_json(chosen)))
        return
    click.echo(f"{'':22}{'profile':>12}{'result':>12}")
    for name, values in result.comparison(chosen.targets).items():
        click.echo(f"{name:22}{values['wanted']:12.4g}{values['measured']:12.4g}")
    click.echo(
        f"{result.jobs} jobs, {result.events} events, {result.bytes / 1e6:.1f} MB in "
        f"{result.seconds:.1f} s ({result.jobs / result.seconds:.0f} jobs/s); written to {out}"
    )
