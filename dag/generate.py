"""Write a sweep as a DAG: check → prepare → merge → trials → evaluate, and FINAL at the end.

`htcondor2.dags` writes nodes and edges. We append what it cannot express: HOLD scripts,
priorities of single nodes, and MAXJOBS (its `max_jobs_by_category` writes lines that DAGMan
misreads).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from condor_advice.dag.plan import DAG_FILE, STATUS_FILE, SweepPlan
from condor_advice.dag.scripts import CHECKPOINT, EXIT_HOPELESS, GIVE_UP, SKIP
from condor_advice.gather.errors import AdviceError
from condor_advice.gather.events import JobStatus

PACKAGE, BUNDLE, RUNNER = "condor_advice.zip", "bundle.tar.gz", "run_node.sh"

_RUNNER = """\
#!/bin/sh
# Runs one node of a condor-advice sweep on an execution point: {name}
set -u
umask 077
mkdir -p out home
fail() {{ echo "condor-advice: $(uname -n): $1" >&2; exit {hopeless}; }}
HOME=$PWD/home; export HOME
{setup}
"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
    fail "$PYTHON is missing or older than Python 3.11; {remedy}"
[ -d package ] || "$PYTHON" -m zipfile -e {package} package ||
    fail "cannot unpack {package}; is the disk full?"
PYTHONPATH=$PWD/package; export PYTHONPATH
exec "$PYTHON" -m condor_advice.dag.nodes "$@"
"""
_BUNDLE_SETUP = """\
if [ ! -d bundle ]; then
    mkdir unpacked && tar -xzf {bundle} -C unpacked && mv unpacked bundle ||
        fail "cannot unpack {bundle}; is request_disk large enough?"
fi
PYTHON=$PWD/bundle/bin/python3
PYTHONHOME=$PWD/bundle LD_LIBRARY_PATH=$PWD/bundle/lib; export PYTHONHOME LD_LIBRARY_PATH
unset PYTHONPATH"""


def write_dag(plan: SweepPlan, into: Path) -> Path:
    """Write the DAG file and the submit descriptions for a sweep into a directory.

    They refer to the sweep's own directory, which `into` becomes once everything is written.
    """
    try:
        import htcondor2
        from htcondor2 import dags
    except ImportError as error:
        raise AdviceError("sweeps need HTCondor's Python bindings; pip install htcondor") from error
    directory = plan.directory
    write_runner(plan, into)
    submit = _Descriptions(plan, htcondor2.Submit)

    def script(name: str, *arguments: str) -> Any:
        return dags.Script(
            plan.python,
            ["-m", "condor_advice.dag.scripts", name, str(directory), *arguments],
        )

    dag = dags.DAG(node_status_file=dags.NodeStatusFile(directory / STATUS_FILE, update_time=5))
    hopeless = {"retries": plan.resources.retries, "retry_unless_exit": EXIT_HOPELESS}
    check = dag.layer(name="check", submit_description=submit.check(), **hopeless)
    pieces = [
        {"shard": str(shard), "key": key}
        for key in plan.prepared
        for shard in range(len(plan.sources))
    ]
    prepare = check.child_layer(
        name="prepare", submit_description=submit.prepare(), vars=pieces, **hopeless
    )
    merge = prepare.child_layer(
        name="merge",
        submit_description=submit.merge(),
        vars=[{"key": key, "parts": submit.parts(key)} for key in plan.prepared],
        **hopeless,
    )
    bands = sum(band < plan.most_epochs for band in plan.hyperband.bands) if plan.hyperband else 0
    trials = merge.child_layer(
        name="trial",
        submit_description=submit.trial(),
        vars=[{"trial": str(number)} for number in range(plan.trials)],
        # A retry also continues a trial after a band; the state counts the failures.
        retries=plan.resources.retries + bands + 1,
        retry_unless_exit=GIVE_UP,
        pre=script("pre", "$NODE"),
        post=script("post", "$NODE", "$RETURN", "$JOBID"),
        pre_skip_exit_code=SKIP,
        category="trial",
    )
    trials.child_layer(
        name="evaluate",
        submit_description=submit.evaluate(),
        pre=script("prepare-evaluation", "$NODE"),
        **hopeless,
    )
    dag.final(
        name="final",
        submit_description=submit.final(),
        post=script("final", "$NODE", "$RETURN", "$DAG_STATUS", "$FAILED_COUNT"),
    )
    path = dags.write_dag(
        dag, into, dag_file_name=DAG_FILE, node_name_formatter=dags.SimpleFormatter("-")
    )
    # `write_dag` does not write the FINAL node's submit description.
    (into / "final.sub").write_text(str(submit.final()))
    hold_script = f"{plan.python} -m condor_advice.dag.scripts hold {directory} $NODE $JOBID"
    with Path(path).open("a") as file:
        file.write("# Not written by htcondor2.dags\n")
        file.write(f"SCRIPT HOLD ALL_NODES {hold_script}\n")
        if plan.lanes:
            # MAXJOBS limits jobs but not PRE scripts: every trial would ask for its parameters
            # at once. So trials form lanes, and each asks once the trial before it in its lane
            # is over, as W&B's agents do.
            file.write(f"MAXJOBS trial {plan.lanes}\n")
            for number in range(plan.trials - plan.lanes):
                file.write(f"PARENT trial-{number} CHILD trial-{number + plan.lanes}\n")
        for number in range(plan.trials):
            # Earlier trials first: later ones learn from them.
            file.write(f"PRIORITY trial-{number} {plan.trials - number}\n")
    return Path(path)


def write_runner(plan: SweepPlan, into: Path) -> Path:
    """Write the shell script that every node runs first."""
    environment = plan.environment
    if environment.kind == "bundle":
        setup = _BUNDLE_SETUP.format(bundle=BUNDLE)
        remedy = "the bundle does not run on this system: use environment: {image: ...}"
    else:
        python = environment.value if environment.kind == "python" else "python3"
        setup = f"PYTHON='{python}'; unset PYTHONPATH PYTHONHOME"
        remedy = (
            "name an installed one with environment: {python: PATH}, or use environment: bundle"
            if environment.kind == "python"
            else "use an image with Python 3.11, NumPy and PyTorch"
        )
    path = into / RUNNER
    path.write_text(
        _RUNNER.format(
            name=plan.name.replace("\n", " "),
            setup=setup,
            remedy=remedy,
            package=PACKAGE,
            hopeless=EXIT_HOPELESS,
        )
    )
    path.chmod(0o700)
    return path


class _Descriptions:
    """The submit descriptions of a sweep's nodes."""

    def __init__(self, plan: SweepPlan, make: Any) -> None:
        self.plan, self.make = plan, make
        self.directory = plan.directory

    def _node(self, arguments: str, inputs: list[str], where: str, **more: str) -> Any:
        """Describe a node that runs `run_node.sh` somewhere in the pool."""
        resources, environment = self.plan.resources, self.plan.environment
        carried = [str(self.directory / PACKAGE)]
        if environment.kind == "bundle":
            carried.append(str(self.directory / BUNDLE))
        minutes = resources.hold_minutes
        description = {
            "universe": "vanilla",
            "executable": str(self.directory / RUNNER),
            "arguments": arguments,
            "initialdir": where,
            "output": "node.out",
            "error": "node.err",
            "log": "node.log",
            "should_transfer_files": "YES",
            "when_to_transfer_output": "ON_EXIT",
            "transfer_input_files": ", ".join(carried + inputs),
            "transfer_output_files": "out",
            "request_cpus": str(resources.cpus),
            "request_memory": f"{resources.memory_mb} MB",
            "request_disk": f"{resources.disk_mb} MB",
            "environment": f'"OMP_NUM_THREADS={resources.cpus} PYTHONUNBUFFERED=1"',
            "batch_name": f"sweep {self.plan.name}",
            # The last resort against a node that stays held; DAGMan then retries it.
            "periodic_remove": f"JobStatus == {JobStatus.HELD:d} "
            f"&& time() - EnteredCurrentStatus > {60 * minutes}",
        }
        if resources.requirements:
            description["requirements"] = resources.requirements
        if environment.kind == "image":
            description |= {"universe": "container", "container_image": environment.value}
        return self.make(description | more)

    def check(self) -> Any:
        """Describe the node that checks the environment before any other runs."""
        plan = str(self.directory / "sweep.json")
        return self._node("check sweep.json", [plan], str(self.directory / "check"))

    def prepare(self) -> Any:
        """Describe a node that turns one shard of the data into episodes."""
        inputs = [f"{self.directory}/shards/$(shard)", f"{self.directory}/sweep.json"]
        return self._node(
            "prepare sweep.json $(shard) $(key)",
            inputs,
            f"{self.directory}/prepared/$(key)-$(shard)",
        )

    def parts(self, key: str) -> str:
        """Return the files into which the shards of one preprocessing were turned."""
        return ",".join(
            f"{self.directory}/prepared/{key}-{shard}/out/part-{shard}.npz"
            for shard in range(len(self.plan.sources))
        )

    def merge(self) -> Any:
        """Describe a node that joins the parts and splits the episodes."""
        return self._node(
            "merge sweep.json $(key)",
            ["$(parts)", f"{self.directory}/sweep.json"],
            f"{self.directory}/prepared/$(key)",
        )

    def trial(self) -> Any:
        """Describe a trial, which writes checkpoints and continues after an eviction."""
        return self._node(
            "trial",
            ["in/"],
            f"{self.directory}/trials/trial-$(trial)",
            checkpoint_exit_code=str(CHECKPOINT),
            transfer_checkpoint_files="out",
            # A graceful eviction also saves the epochs since the last checkpoint.
            when_to_transfer_output="ON_EXIT_OR_EVICT",
            erase_output_and_error_on_restart="false",
        )

    def evaluate(self) -> Any:
        """Describe the node that evaluates the best trials on the test split."""
        return self._node("evaluate", ["in/"], str(self.directory / "evaluate"))

    def final(self) -> Any:
        """Describe the FINAL node, which runs on the access point, where the registry is."""
        where = self.directory
        return self.make(
            {
                "universe": "local",
                "executable": self.plan.python,
                "arguments": f'"-m condor_advice.dag.final {quoted(str(where))}"',
                "initialdir": str(where),
                "output": "logs/final.out",
                "error": "logs/final.err",
                "log": "logs/final.log",
                "batch_name": f"sweep {self.plan.name}",
                "environment": '"OMP_NUM_THREADS=1 MPLBACKEND=Agg"',
                "getenv": "HOME, PATH, XDG_*, CONDOR_ADVICE_*, CONDOR_CONFIG, LANG, LC_*, TZ",
            }
        )


def quoted(text: str) -> str:
    """Quote an argument for HTCondor's new syntax, inside double quotes."""
    doubled = text.replace('"', '""').replace("'", "''")
    return f"'{doubled}'" if any(c in text for c in " '\t") else doubled
