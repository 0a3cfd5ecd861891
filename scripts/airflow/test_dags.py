"""Checks the DAGs without a database: they import, each flag that they pass is one that the program knows, and their
own functions do with names and objects that are out of the ordinary.

Usage: test_dags.py; LINNET_BIN is the folder of the programs.
"""

import fnmatch
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import redirect_stdout
from pathlib import Path
from unittest.mock import patch

DAGS = Path(__file__).parent / "dags"
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"
for name in ("BUCKET", "FLINK", "GPU", "MAX_WORKERS", "PARALLELISM", "WORKERS"):
    os.environ["LINNET_" + name] = ""  # as of a compose file, and as one that is not set
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


def check_new_documents(tasks):
    # A log takes UTF-8; a name may be anything.
    log = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(log):
        issues, records = Path(folder, "issues"), Path(folder, "labelled", "_rejected")
        issues.mkdir()
        records.mkdir(parents=True)
        # A link that leads nowhere and was rejected is no news, night after night.
        (issues / "lost.txt").symlink_to("nowhere")
        (issues / "far.txt").symlink_to("n" * 300)
        new = lambda: tasks.new_documents(issues, records.parent, Path(folder, "published"))
        assert new()
        (records / "lost.txt.json").touch()
        (records / "far.txt.json").touch()
        (issues / ".old").mkdir()
        (issues / ".old" / "x.txt").touch()
        (issues / "._far.txt").touch()
        # A folder may have a document's name, and a link may lead around in a circle.
        (issues / "1994.txt").mkdir()
        (issues / "1994.txt" / "around").symlink_to(issues)
        # A name that predict can keep no record of under itself it rejects under its hash.
        long = "n" * 251
        (issues / long).with_suffix(".txt").touch()
        (records / hashlib.sha256(f"{long}.txt".encode()).hexdigest()).with_suffix(".json").touch()
        assert not new()
        elsewhere = Path(folder, "elsewhere")
        elsewhere.mkdir()
        (issues / "1993").symlink_to(elsewhere)
        assert not new()
        (elsewhere / "n1.txt").touch()
        assert new()
        (records.parent / "_done" / "1993").mkdir(parents=True)
        (records.parent / "_done" / "1993" / "n1.txt.json").touch()
        assert not new()
        # A run that labelled may have failed to publish.
        (records.parent / "1993").mkdir()
        (records.parent / "1993" / "n1.txt.ann").touch()
        assert new()
        tasks.publish(records.parent, Path(folder, "published"))
        assert not new()
        # Time alone makes nothing new, and bytes do, whatever their time.
        record = records.parent / "_done" / "1993" / "n1.txt.json"
        record.write_text(json.dumps({"input_sha256": hashlib.sha256(b"").hexdigest()}))
        os.utime(record, (1, 1))
        assert not new()
        assert record.stat().st_mtime_ns == (elsewhere / "n1.txt").stat().st_ctime_ns  # so the next look does not read it
        record.write_text("{")
        os.utime(record, (1, 1))
        assert new()
        (elsewhere / "n1.txt").write_text("corrected")
        assert new()
        record.touch()
        assert not new()
        (elsewhere / "older").write_text("corrected again")
        os.utime(elsewhere / "older", (1, 1))
        time.sleep(0.05)  # more than a tick of the disk's clock
        (elsewhere / "older").rename(elsewhere / "n1.txt")
        assert new()
        record.touch()
        assert not new()
        Path(os.fsdecode(bytes(issues) + b"/caf\xe9.txt")).touch()
        assert new()
        issues.rename(Path(folder, "away"))
        try:
            new()
            raise AssertionError("a folder that is away has no new documents")
        except FileNotFoundError:
            pass


def check_local_publish(tasks):
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()):
        done = ["_drafts/n1.txt.ann", "n" * 247 + ".txt.ann"]
        for name in [*done, "_done/_drafts/n1.txt.json", "_rejected.jsonl"]:
            file = Path(folder, "labelled", name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
        Path(folder, "labelled", "lost").symlink_to("nowhere")  # somebody's, and no document
        os.mkfifo(Path(folder, "labelled", "pipe"))
        published = Path(folder, "published")
        for count in (2, 0):
            assert tasks.publish(Path(folder, "labelled"), published) == count
            assert sorted(p.relative_to(published).as_posix() for p in published.rglob("*") if p.is_file()) == done
        # A folder may be a link to a larger disk, where a killed run may have left half a file. Other links stay unread.
        bigger = Path(folder, "bigger")
        bigger.mkdir()
        for name in ("n1.txt.ann", ".K3Y.tmp"):
            (bigger / name).touch()
        for name in ("1994", "elsewhere"):
            Path(folder, "labelled", name).symlink_to(bigger)
        (Path(folder, "labelled", "_done", "1994")).mkdir()
        assert tasks.publish(Path(folder, "labelled"), published) == 1
        assert (published / "1994" / "n1.txt.ann").exists()
        # What cannot be published, as by a name that the readers' disk does not hold, keeps nothing else back.
        late = [Path(folder, "labelled", name, "n1.txt.ann") for name in ("1995", "zoology")]
        for file in late:
            file.parent.mkdir()
            file.write_text("label")
        (published / "1995").touch()
        try:
            tasks.publish(Path(folder, "labelled"), published)
            raise AssertionError("a file that could not be published is no failure")
        except FileExistsError:
            pass
        assert (published / "zoology" / "n1.txt.ann").read_text() == "label"
        (published / "1995").unlink()
        with patch.object(shutil, "copyfile", lambda _, part: part.write_text("la") and os.mkdir(part)):
            try:
                tasks.publish(Path(folder, "labelled"), published)
                raise AssertionError("half a copy is no failure")
            except FileExistsError:
                pass
        assert not list((published / "1995").iterdir())
        assert tasks.publish(Path(folder, "labelled"), published) == 1
        # The clock of what is published may be ahead: what was written again after its copy was made is new.
        changing, copy = Path(folder, "labelled", done[0]), published / done[0]
        copy.unlink()
        for ns, count in ((1000_123456789, 1), (1000_123456790, 1), (1000_123456790, 0), (1010_987654321, 1)):
            os.utime(changing, ns=(ns, ns))
            assert tasks.publish(Path(folder, "labelled"), published) == count
        # Its disk may cut times off (FAT to two seconds), and an edit of a copy stays.
        for ns in (1010_987654300, 1010_987654000, 1010_000000000, 1011_000000000):
            os.utime(copy, ns=(ns, ns))
            assert tasks.publish(Path(folder, "labelled"), published) == 0
        # A power cut leaves a copy empty under its source's time; without treatments a source is empty too.
        for text, count in (("label", 1), ("", 0)):
            for file, part in ((changing, text), (copy, "")):
                file.write_text(part)
                os.utime(file, (1000, 1000))
            assert tasks.publish(Path(folder, "labelled"), published) == count
            assert copy.read_text() == text


def check_annotated(tasks):
    with tempfile.TemporaryDirectory() as folder:
        issues, labelled = Path(folder, "issues"), Path(folder, "labelled")
        for file in (issues / "1994" / "n1.txt.ann", labelled / "1994" / "n2.txt.ann"):
            file.parent.mkdir(parents=True)
            file.touch()
        assert not tasks.annotated_documents(issues, labelled)  # n1.txt was rejected
        (labelled / "1994" / "n1.txt.ann").touch()
        assert not tasks.annotated_documents(issues, labelled)  # which has no label yet
        (issues / "1994" / "n1.txt.ann").write_text("[@Agaricus#Nomenclature*]")
        assert tasks.annotated_documents(issues, labelled)


def check_rejected(tasks):
    out = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, patch.object(tasks, "LABELLED", folder), redirect_stdout(out):
        assert tasks.rejected_documents() == []
        line = '{"document":"a\x85b.txt"}'  # which ends a line for Python, and not for JSON Lines
        Path(folder, "_rejected.jsonl").write_bytes(f"{line}\n".encode())
        assert tasks.rejected_documents() == [line]
        tasks.tell_rejected()
    assert out.getvalue() == line + "\n", out.getvalue()


class Bucket:
    """A GCSHook of one bucket, which lists as GCS does: a delimiter cuts names behind it. All objects hold one text."""

    def __init__(self, *names, text=b"[@Agaricus#Nomenclature*]"):
        self.names, self.text = set(names), text

    def list(self, bucket, prefix, delimiter=None, match_glob="*"):
        names = {n for n in self.names if n.startswith(prefix) and fnmatch.fnmatchcase(n, match_glob)}
        cut = {n[: n.index(delimiter) + len(delimiter)] for n in names if delimiter and delimiter in n}
        return sorted(cut or names)

    def exists(self, bucket, name):
        return name in self.names

    def download(self, bucket, name):
        assert name in self.names, name
        return self.text

    def rewrite(self, bucket, name, to, new):
        assert name in self.names, name
        self.names.add(new)


def check_publish(dag):
    done = ["1994/n1.txt.ann", "1994/n1.txt.treatments.jsonl", "_drafts/n2.txt.ann"]
    records = ["_done/1994/n1.txt.json", "_done/_drafts/n2.txt.ann.json", "_manifest.jsonl"]
    task = dag.get_task("publish")
    for labelled in ([*done, *records], [done[0], *records], records):
        bucket = Bucket(*("labelled/" + name for name in labelled))
        task.python_callable.__globals__["GCSHook"] = lambda: bucket
        task.python_callable()
        got = [n for n in sorted(bucket.names) if n.startswith("published/")]
        assert got == ["published/" + n for n in labelled if n in done], got


def check_next_tasks(dag):
    choose = dag.get_task("choose").python_callable
    for names, want in (
        (["issues/n1.txt.ann", "labelled/n1.txt.ann"], ["publish", "evaluate"]),
        (["issues/n1.txt.ann", "labelled/n2.txt.ann"], ["publish"]),  # n1.txt was rejected
        (["issues/.n1.txt.ann", "labelled/.n1.txt.ann"], ["publish"]),
    ):
        choose.__globals__["GCSHook"] = lambda: Bucket(*names)
        assert choose() == want, (names, choose())
    choose.__globals__["GCSHook"] = lambda: Bucket("issues/n1.txt.ann", "labelled/n1.txt.ann", text=b"not annotated yet")
    assert choose() == ["publish"], choose()


def main():
    bag = DagBag(dag_folder=str(DAGS))
    assert not bag.import_errors, bag.import_errors
    assert sorted(bag.dags) == sorted(TASKS), sorted(bag.dags)
    checked = 0
    for name, dag in bag.dags.items():
        assert sorted(dag.task_ids) == sorted(TASKS[name]), (name, dag.task_ids)
        assert dag.catchup is False and dag.max_active_runs == 1 and len(dag.schedule.split()) == 5, name
        for task in dag.tasks:
            # Two predicts would want one lock, and two publishes write one file.
            assert task.max_active_tis_per_dag == 1, (name, task.task_id)
            if not isinstance(task, BeamRunGoPipelineOperator):
                continue
            flags = arguments(task)
            if task.task_id == "predict":
                assert "--rejected_exit_status=0" in flags, flags
            if task.runner == "FlinkRunner":  # a job that goes on would write beside the next try's
                assert "--cancel_on_exit" in flags, flags
                assert {"--endpoint=localhost:8099", "--environment_config=localhost:50000", "--parallelism=2"} < set(flags), flags
            if task.runner == "DataflowRunner":
                assert {"--output=gs://linnet-issues/labelled", "--worker_gpu_type=nvidia-l4", "--max_num_workers=10"} < set(flags), flags
            program = Path(os.environ["LINNET_BIN"], Path(task.launcher_binary).name)
            # --help comes last: the program stops with status 2 at the first flag that it does not know.
            run = subprocess.run([program, *flags, "--help"], capture_output=True, text=True)
            assert run.returncode == 0, (name, task.task_id, run.stderr)
            wrong = subprocess.run([program, *flags, "--no_such_flag=1", "--help"], capture_output=True, text=True)
            assert wrong.returncode == 2, "the program takes any flag"
            checked += len(flags)
    import linnet_tasks

    check_new_documents(linnet_tasks)
    check_local_publish(linnet_tasks)
    check_annotated(linnet_tasks)
    check_rejected(linnet_tasks)
    check_next_tasks(bag.dags["linnet_dataflow"])
    check_publish(bag.dags["linnet_dataflow"])
    print(f"{len(bag.dags)} DAGs, {checked} flags known to the programs")


if __name__ == "__main__":
    sys.exit(main())
