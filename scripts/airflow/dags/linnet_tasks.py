"""What the DAGs of Linnet share: which documents are new, what was rejected, how results are published.

Settings are environment variables of the scheduler and its workers:

    LINNET_BIN         folder of the programs (predict, evaluate)
    LINNET_ISSUES      folder of the journals' issues, *.txt; annotated ones stand beside them as *.txt.ann
    LINNET_LABELLED    folder that predict writes to
    LINNET_PUBLISHED   folder that readers take finished documents from
    LINNET_REPORTS     folder of evaluate's reports, one a day: that of a second run takes its place
    LINNET_WAIT        seconds to wait for new documents before a run ends with nothing done
    LINNET_RETRY       seconds after which a task that failed is tried again, twice (300)

The DAGs for Dataflow and Flink take the settings that each names at its top.
"""

import hashlib
import json
import os
import re
import shutil
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from airflow.providers.standard.sensors.python import PythonSensor

BIN = os.environ.get("LINNET_BIN") or "/opt/linnet"
ISSUES = os.environ.get("LINNET_ISSUES") or "/data/issues"
INPUT = ISSUES.replace(",", r"\,")  # as --input takes it, in which a comma divides
LABELLED = os.environ.get("LINNET_LABELLED") or "/data/labelled"
PUBLISHED = os.environ.get("LINNET_PUBLISHED") or "/data/published"
REPORTS = os.environ.get("LINNET_REPORTS") or "/data/reports"
WAIT = float(os.environ.get("LINNET_WAIT") or "3600")

# What predict keeps in LINNET_LABELLED for itself; a document's name may begin with _ too.
RECORDS = {"_done", "_rejected", "_tmp", "_lock", "_manifest.jsonl", "_rejected.jsonl"}

LABEL = re.compile(rb"#[A-Za-z][A-Za-z0-9_-]{0,49}\*\]")  # without one evaluate has nothing to judge by

DEFAULTS = {
    "retries": 2,
    "retry_delay": timedelta(seconds=float(os.environ.get("LINNET_RETRY") or "300")),
    "max_active_tis_per_dag": 1,  # a backfill's runs do not heed max_active_runs
}

# A run that somebody starts by hand has no logical date.
DAY = "{{ (dag_run.logical_date or dag_run.run_after) | ds }}"


def documents(ending, issues):
    """The files below a folder as predict and evaluate take them: links to folders are followed, at the end and none
    to a folder that was there already, and hidden names are left out."""
    roots, seen = [issues], set()
    for root in roots:  # links below come to them
        for folder, below, files in os.walk(root):
            below[:] = sorted(n for n in below if not n.startswith("."))
            real = os.path.realpath(folder)
            if real in seen:
                below.clear()
                continue
            seen.add(real)
            roots += [link for n in below if os.path.islink(link := os.path.join(folder, n))]
            yield from (Path(folder, n) for n in files if n.endswith(ending) and not n.startswith("."))


def same(path, done):
    """Says whether a document has the bytes that a record of it as done names: the record stays as it is where predict
    finds that nothing but the document's time has changed."""
    if not os.path.isfile(path):  # a pipe would be waited for
        return False
    try:
        return json.loads(done.read_bytes()).get("input_sha256") == hashlib.sha256(path.read_bytes()).hexdigest()
    except (OSError, ValueError):  # no record, or a damaged one, which predict makes anew
        return False


def new_documents(issues=ISSUES, labelled=LABELLED, published=PUBLISHED):
    """Says whether a document has changed since predict recorded it as done or rejected, or what is done was not
    published, for the run that was to do so failed."""
    os.listdir(issues)  # a folder that cannot be read, such as of a disk that is away, is not one without documents
    for path in documents(".txt", issues):
        name = path.relative_to(issues)
        hashed = hashlib.sha256(os.fsencode(name)).hexdigest()  # under which a name too long for a record is rejected
        records = [Path(labelled, r + ".json") for r in (f"_done/{name}", f"_rejected/{name}", f"_rejected/{hashed}")]
        times = [r.stat().st_mtime for r in records if os.path.exists(r)]
        changed = path.stat() if os.path.exists(path) else path.lstat()  # a link that leads nowhere is rejected
        # What is moved or copied here may keep an older time of its own.
        if times and max(times) >= max(changed.st_mtime, changed.st_ctime):
            continue
        if not same(path, records[0]):
            print("new:", repr(str(name)))  # which may be no UTF-8
            return True
        with suppress(OSError):  # so that the next look need not read it
            os.utime(records[0], ns=(changed.st_ctime_ns, changed.st_ctime_ns))
    for source, _ in unpublished(labelled, published):
        print("not published:", repr(str(source)))
        return True
    return False


def wait_for_documents():
    """The sensor before predict; a run without new documents is skipped."""
    return PythonSensor(
        task_id="wait_for_documents",
        python_callable=new_documents,
        poke_interval=min(60, max(WAIT, 0.1)),
        timeout=WAIT,
        mode="reschedule",
        soft_fail=True,
    )


def annotated_documents(issues=ISSUES, labelled=LABELLED):
    """Says whether evaluate has anything to judge: of an annotated document that was rejected there is no prediction,
    and one that nobody has annotated yet has no label."""
    predicted = (path for path in documents(".txt.ann", issues) if Path(labelled, path.relative_to(issues)).exists())
    return any(path.is_file() and LABEL.search(path.read_bytes()) for path in predicted)


def rejected_documents():
    """The lines of _rejected.jsonl: one JSON object a document that could not be labelled."""
    file = Path(LABELLED, "_rejected.jsonl")
    return [line.decode() for line in file.read_bytes().splitlines()] if file.exists() else []


def next_tasks(judged=True):
    """Names the tasks that have work after predict; judged says whether evaluate is one of the DAG's."""
    tasks = ["publish"]
    if rejected_documents():
        tasks.append("tell_rejected")
    if judged and annotated_documents():
        tasks.append("evaluate")
    return tasks


def tell_rejected():
    for line in rejected_documents():
        print(line)


def unpublished(labelled=LABELLED, published=PUBLISHED):
    """The files that are new or changed since they were published, each with its place there."""
    for folder, below, files in os.walk(labelled, followlinks=True):
        if Path(folder) == Path(labelled):
            below[:], files = set(below) - RECORDS, set(files) - RECORDS
        # predict writes by a link to a folder as well, as to a larger disk, and has its records in a folder of that name.
        records = Path(labelled, "_done", Path(folder).relative_to(labelled))
        below[:] = sorted(n for n in below if not os.path.islink(Path(folder, n)) or (records / n).is_dir())
        # On such a disk a killed run leaves half a file beside the others.
        files = (n for n in files if not (n.startswith(".") and n.endswith(".tmp")))
        for source in (Path(folder, n) for n in sorted(files)):
            target = Path(published, source.relative_to(labelled))
            if not source.is_file():
                continue
            made = source.stat()
            copy = target.stat() if os.path.exists(target) else None  # also where the disk takes no such name
            # A power cut may leave a copy empty that has its time.
            if not copy or older(copy.st_mtime_ns, made.st_mtime_ns) or made.st_size and not copy.st_size:
                yield source, target


def older(copy, source):
    """Whether a copy's time is before its source's: it has that of its source, cut to what its disk keeps."""
    return copy < source and all(copy != source - source % ns for ns in (100, 1000, 10**6, 10**9, 2 * 10**9))


def publish(labelled=LABELLED, published=PUBLISHED):
    """Copies what is new or changed, each file whole or not at all, and returns how many files that were. What cannot be
    copied, as by a name that the disk does not hold, fails it once the others are there."""
    count, failed = 0, None
    for source, target in unpublished(labelled, published):
        hashed = hashlib.sha256(os.fsencode(target.name)).hexdigest()  # a name may be as long as names can be
        part = target.with_name(f".{hashed}.part")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            written = source.stat().st_mtime_ns
            shutil.copyfile(source, part)
            with suppress(OSError):  # or it has that of another disk's clock, to which a later change may be older
                os.utime(part, ns=(written, written))
            part.replace(target)
            count += 1
        except OSError as err:
            print("not published:", repr(str(source)), err)
            failed = failed or err
            with suppress(OSError):
                part.unlink()
    print("published", count, "files")
    if failed:
        raise failed
    return count
