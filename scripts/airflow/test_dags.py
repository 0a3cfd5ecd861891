"""Checks the DAGs without a database: they import, and each flag that they pass is one that the program knows.

Usage: test_dags.py; LINNET_BIN is the folder of the programs.
"""

import os
import subprocess
import sys
from pathlib import Path

DAGS = Path(__file__).parent / "dags"
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"
sys.path.insert(0, str(DAGS))  # as Airflow's own processes do

from airflow.dag_processing.dagbag import DagBag
from airflow.providers.apache.beam.hooks.beam import beam_options_to_args
from airflow.providers.apache.beam.operators.beam import BeamRunGoPipelineOperator

TASKS = {
    "linnet_issues": ["wait_for_documents", "predict", "choose", "evaluate", "publish", "tell_rejected"],
    "linnet_flink": ["wait_for_documents", "predict", "choose", "publish", "tell_rejected"],
    "linnet_dataflow": ["wait_for_documents", "predict", "choose", "evaluate", "publish", "tell_rejected"],
}


def arguments(task):
    """The flags with which the operator starts the program."""
    options = {"runner": task.runner, "labels": {"airflow-version": "v3"}, **task.pipeline_options}
    if task.runner == "DataflowRunner":  # what the operator takes from dataflow_config
        config = task.dataflow_config
        options |= {"job_name": config.job_name, "project": config.project_id, "region": config.location}
        options["worker_binary"] = task.worker_binary
    return beam_options_to_args(options)


def main():
    bag = DagBag(dag_folder=str(DAGS))
    assert not bag.import_errors, bag.import_errors
    assert sorted(bag.dags) == sorted(TASKS), sorted(bag.dags)
    checked = 0
    for name, dag in bag.dags.items():
        assert sorted(dag.task_ids) == sorted(TASKS[name]), (name, dag.task_ids)
        assert dag.catchup is False and dag.max_active_runs == 1 and len(dag.schedule.split()) == 5, name
        for task in dag.tasks:
            if not isinstance(task, BeamRunGoPipelineOperator):
                continue
            flags = arguments(task)
            if task.task_id == "predict":
                assert "--rejected_exit_status=0" in flags, flags
            program = Path(os.environ["LINNET_BIN"], Path(task.launcher_binary).name)
            # --help comes last: the program stops with status 2 at the first flag that it does not know.
            run = subprocess.run([program, *flags, "--help"], capture_output=True, text=True)
            assert run.returncode == 0, (name, task.task_id, run.stderr)
            wrong = subprocess.run([program, *flags, "--no_such_flag=1", "--help"], capture_output=True, text=True)
            assert wrong.returncode == 2, "the program takes any flag"
            checked += len(flags)
    print(f"{len(bag.dags)} DAGs, {checked} flags known to the programs")


if __name__ == "__main__":
    sys.exit(main())
