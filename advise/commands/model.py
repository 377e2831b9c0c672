"""`condor-advice model`: list, promote and roll back the models for held jobs."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from condor_advice.advise.commands.episode_sources import Sources, source_options
from condor_advice.advise.commands.options import json_option
from condor_advice.gather.errors import UsageError
from condor_advice.gather.files import replace_file

if TYPE_CHECKING:
    from condor_advice.model.held.data import HeldData
    from condor_advice.model.registry.gate import GateResult
    from condor_advice.model.registry.manifest import Manifest
    from condor_advice.model.registry.versions import Registry, Switch, Version

_PATH = click.Path(path_type=Path)
_SWITCHES_SHOWN = 10


def _registry_name(ctx: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """Accept the shipped model also by the name that its answers carry."""
    from condor_advice.model.registry.places import STARTER
    from condor_advice.model.registry.versions import SHIPPED

    if isinstance(value, tuple):
        return tuple(_registry_name(ctx, parameter, name) for name in value)
    return SHIPPED if value == STARTER.name else value


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--models",
    "directory",
    type=_PATH,
    metavar="DIR",
    help="The registry. [default: CONDOR_ADVICE_MODELS, or in the XDG data directory]",
)
@click.pass_context
def model(ctx: click.Context, directory: Path | None) -> None:
    """List, promote and roll back models for held jobs."""
    from condor_advice.model.registry.versions import Registry

    ctx.obj = Registry(directory)


@model.command("list")
@json_option
@click.pass_obj
def list_models(models: Registry, as_json: bool) -> None:
    """List all versions, the one in use, and the latest switches."""
    versions, history = models.versions(), models.history()
    if as_json:
        listing = {
            "registry": str(models.directory),
            "current": models.current_name(),
            "models": [_version(version) for version in versions],
            "history": [asdict(switch) for switch in history],
        }
        click.echo(json.dumps(listing))
        return
    for version in versions:
        mark = "*" if version.current else " "
        click.echo(f"{mark} {version.name:32} {_short(version)}")
    for switch in history[-_SWITCHES_SHOWN:]:
        click.echo(_switch(switch))


@model.command()
@click.argument("name", required=False, callback=_registry_name)
@json_option
@click.pass_obj
def show(models: Registry, name: str | None, as_json: bool) -> None:
    """Show one version: its training data, its quality, its files. [default: the one in use]"""
    name = name or models.current_name()
    manifest = models.verify(name)
    history = [switch for switch in models.history() if switch.name == name]
    if as_json:
        listing = {
            "name": name,
            "current": name == models.current_name(),
            "directory": str(models.path(name)),
            "manifest": asdict(manifest),
            "history": [asdict(switch) for switch in history],
        }
        click.echo(json.dumps(listing))
        return
    click.echo(f"{name}: {models.path(name)}")
    click.echo(_made(manifest))
    from condor_advice.model.html_report import number
    from condor_advice.model.registry.card import flat_metrics

    for part, figures in flat_metrics(manifest.metrics).items():
        listed = [f"{key.replace('_', ' ')} {number(value)}" for key, value in figures.items()]
        click.echo(f"{part.replace('_', ' ')}: {', '.join(listed)}")
    for file, entry in manifest.files.items():
        click.echo(f"{file}: {entry.bytes:,} bytes, sha256 {entry.sha256}")
    for switch in history:
        click.echo(_switch(switch))


@model.command()
@click.argument("names", metavar="[NAME]...", nargs=-1, callback=_registry_name)
@json_option
@click.pass_context
def verify(ctx: click.Context, names: tuple[str, ...], as_json: bool) -> None:
    """Check the files of all or some versions; exit with 1 if one is damaged."""
    models: Registry = ctx.obj
    for name in names:
        models.path(name)  # raises an error if there is no such model
    versions = [version for version in models.versions() if not names or version.name in names]
    if as_json:
        problems = {version.name: version.problem for version in versions}
        click.echo(json.dumps({"whole": not any(problems.values()), "problems": problems}))
    else:
        for version in versions:
            click.echo(f"{version.name}: {version.problem or 'intact'}")
    if any(version.problem for version in versions):
        ctx.exit(1)


@model.command()
@click.argument("directory", metavar="DIR", type=_PATH)
@json_option
@click.pass_obj
def add(models: Registry, directory: Path, as_json: bool) -> None:
    """Add a model from a directory; it is not used until it is promoted."""
    name = models.add(directory)
    click.echo(json.dumps({"added": name}) if as_json else f"{name}: added")


@model.command()
@click.argument("name", callback=_registry_name)
@source_options
@click.option(
    "--force", is_flag=True, help="Promote it even if the gate objects; this is recorded."
)
@json_option
@click.pass_context
def promote(ctx: click.Context, sources: Sources, name: str, force: bool, as_json: bool) -> None:
    """Use a version from now on, if it is no worse than the current one on the newest holds.

    A paired bootstrap over clusters compares both on holds with a known outcome that are newer
    than the version's training data. Without a source, the default store is used.
    """
    from condor_advice.model.registry.versions import NotPromoted

    models: Registry = ctx.obj
    models.verify(name)
    window = _window(sources, force)
    try:
        result = models.promote(name, window, force)
    except NotPromoted as refusal:
        if not as_json:
            raise
        click.echo(json.dumps({"promoted": False, "gate": refusal.result.as_dict()}))
        ctx.exit(1)
    if as_json:
        gate = result.as_dict() if result else None
        click.echo(json.dumps({"promoted": True, "forced": force, "gate": gate}))
        return
    click.echo(f"{name} is now in use{' (forced)' if force else ''}")
    if result:
        click.echo(_gate(result))


@model.command()
@json_option
@click.pass_obj
def rollback(models: Registry, as_json: bool) -> None:
    """Go back to the model that was in use before."""
    done = models.rollback()
    if as_json:
        click.echo(json.dumps(asdict(done)))
        return
    for problem in done.passed_over:
        click.echo(f"skipped: {problem}", err=True)
    click.echo(f"{done.back} is now in use instead of {done.left}")


@model.command()
@click.argument("name", callback=_registry_name)
@json_option
@click.pass_obj
def remove(models: Registry, name: str, as_json: bool) -> None:
    """Delete a version that is not in use."""
    models.remove(name)
    click.echo(json.dumps({"removed": name}) if as_json else f"{name}: removed")


@model.command()
@click.argument("name", required=False, callback=_registry_name)
@click.option(
    "--out", type=_PATH, metavar="DIR", help="Copy the card and its figures to this directory."
)
@json_option
@click.pass_obj
def card(models: Registry, name: str | None, out: Path | None, as_json: bool) -> None:
    """Print a version's model card: training data, quality, limits."""
    from condor_advice.model.registry.card import CARD_FILE, markdown
    from condor_advice.model.registry.versions import card_files

    name = name or models.current_name()
    manifest = models.verify(name)
    kept = card_files(models.path(name))
    text = kept[CARD_FILE].decode() if CARD_FILE in kept else markdown(manifest)
    files = []
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        for file, data in ({**kept, CARD_FILE: text.encode()}).items():
            replace_file(out / file, data)
        files = sorted(str(path) for path in out.iterdir())
    if as_json:
        click.echo(json.dumps({"name": name, "card": text, "files": files}))
    elif out is None:
        click.echo(text, nl=False)
    else:
        click.echo(f"{out / CARD_FILE}")


def _window(sources: Sources, force: bool) -> HeldData | None:
    """Read the holds to compare on; --force needs none."""
    if not sources.named:
        from condor_advice.gather.store import default_store_path

        if not default_store_path().exists():
            if force:
                return None
            raise UsageError(
                "no holds to compare the models on; name a store or a log with "
                "--store or --log, or use --force"
            )
        sources = replace(sources, stores=(default_store_path(),))
    return sources.read(())


def _version(version: Version) -> dict[str, Any]:
    manifest = version.manifest
    return {
        "name": version.name,
        "current": version.current,
        "directory": str(version.directory),
        "problem": version.problem,
        "created": manifest.created if manifest else None,
        "trained_on": dict(manifest.trained_on) if manifest else None,
        "metrics": dict(manifest.metrics) if manifest else None,
        "data_hash": manifest.data_hash if manifest else None,
    }


def _short(version: Version) -> str:
    if version.manifest is None:
        return f"UNUSABLE: {version.problem}"
    return _made(version.manifest)


def _made(manifest: Manifest) -> str:
    on = manifest.trained_on
    parts = [f"made {manifest.created[:10]}"]
    if "labelled" in on:
        parts.append(f"from {on['labelled']:,} outcomes")
    if on.get("sources"):
        parts.append(f"of {', '.join(map(str, on['sources']))}")
    return " ".join(parts)


def _switch(switch: Switch) -> str:
    words = {
        "add": f"{switch.name} added",
        "promote": f"{switch.name} promoted over {switch.before}",
        "keep": f"{switch.name} not promoted, {switch.before} kept",
        "rollback": f"back to {switch.name} from {switch.before}",
        "remove": f"{switch.name} removed",
    }
    text = f"{switch.at[:16].replace('T', ' ')}  {words.get(switch.action, switch.action)}"
    if switch.forced:
        text += " (forced)"
    return f"{text}: {switch.gate['reason']}" if switch.gate else text


def _gate(result: GateResult) -> str:
    return (
        f"compared with {result.current} on {result.episodes:,} holds of {result.kin:,} clusters: "
        f"{result.reason}"
    )
