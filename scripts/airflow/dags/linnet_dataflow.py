"""Labels new issues each night on Dataflow workers with GPUs: wait for objects, predict, evaluate, publish.

Settings:

    LINNET_BIN           folder of the programs; predict-cuda stands beside predict for the workers
    LINNET_BUCKET        bucket with issues/, and where labelled/, reports/, published/ and staging/ are written
    LINNET_PROJECT, LINNET_REGION
    LINNET_GPU           type of the GPU (default nvidia-l4)
    LINNET_MAX_WORKERS   most workers (default 10)
"""

import json
import os
from datetime import datetime, timezone

from airflow.providers.apache.beam.operators.beam import BeamRunGoPipelineOperator
from airflow.providers.google.cloud.hooks.gcs import GCSHook
from airflow.providers.google.cloud.operators.dataflow import DataflowConfiguration
from airflow.providers.google.cloud.sensors.gcs import GCSObjectsWithPrefixExistenceSensor
from airflow.providers.standard.operators.python import BranchPythonOperator, PythonOperator
from airflow.sdk import DAG

from linnet_tasks import BIN, DAY, DEFAULTS, LABEL, RECORDS

BUCKET = os.environ.get("LINNET_BUCKET") or "linnet-issues"
PROJECT = os.environ.get("LINNET_PROJECT") or "linnet"
REGION = os.environ.get("LINNET_REGION") or "europe-west4"
REJECTED = "labelled/_rejected.jsonl"


def rejected_documents():
    hook = GCSHook()
    if not hook.exists(BUCKET, REJECTED):
        return []
    return hook.download(BUCKET, REJECTED).splitlines()


def next_tasks():
    """Names the tasks that have work after predict."""
    tasks = ["publish"]
    if rejected_documents():
        tasks.append("tell_rejected")
    hook = GCSHook()
    annotated = [name.removeprefix("issues/") for name in hook.list(BUCKET, prefix="issues/", match_glob="**/*.txt.ann")]
    # Hidden ones evaluate leaves out, and of one that was rejected there is no prediction.
    predicted = (name for name in annotated if "/." not in "/" + name and hook.exists(BUCKET, "labelled/" + name))
    if any(LABEL.search(hook.download(BUCKET, "issues/" + name)) for name in predicted):
        tasks.append("evaluate")
    return tasks


def tell_rejected():
    for line in rejected_documents():
        rejection = json.loads(line)
        print(rejection["stage"], rejection["input"], rejection["reason"])


def publish():
    """Copies finished documents, and none of predict's own records."""
    hook = GCSHook()
    for name in hook.list(BUCKET, prefix="labelled/"):
        document = name.removeprefix("labelled/")
        if document.split("/")[0] not in RECORDS:
            hook.rewrite(BUCKET, name, BUCKET, "published/" + document)


with DAG(
    dag_id="linnet_dataflow",
    schedule="0 4 * * *",
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    default_args=DEFAULTS,
    max_active_runs=1,
    tags=["linnet", "dataflow", "gpu"],
) as dag:
    # It fires on any object there, old or new: predict skips what is done.
    wait = GCSObjectsWithPrefixExistenceSensor(
        task_id="wait_for_documents", bucket=BUCKET, prefix="issues/", deferrable=True, timeout=3600, soft_fail=True
    )
    predict = BeamRunGoPipelineOperator(
        task_id="predict",
        launcher_binary=f"{BIN}/predict",
        worker_binary=f"{BIN}/predict-cuda",
        runner="DataflowRunner",
        dataflow_config=DataflowConfiguration(job_name="linnet-predict", project_id=PROJECT, location=REGION),
        pipeline_options={
            "input": [f"gs://{BUCKET}/issues"],
            "output": f"gs://{BUCKET}/labelled",
            "format": ["yedda", "treatments"],
            "rejected_exit_status": 0,
            "staging_location": f"gs://{BUCKET}/staging",
            "worker_gpu": 1,
            "worker_gpu_type": os.environ.get("LINNET_GPU") or "nvidia-l4",
            "max_num_workers": int(os.environ.get("LINNET_MAX_WORKERS") or "10"),
        },
    )
    choose = BranchPythonOperator(task_id="choose", python_callable=next_tasks)
    tell = PythonOperator(task_id="tell_rejected", python_callable=tell_rejected)
    evaluate = BeamRunGoPipelineOperator(
        task_id="evaluate",
        launcher_binary=f"{BIN}/evaluate",
        runner="direct",
        pipeline_options={
            "input": [f"gs://{BUCKET}/issues/**/*.txt.ann"],
            "predictions": f"gs://{BUCKET}/labelled",
            "report": f"gs://{BUCKET}/reports/{DAY}",
            "rejected_exit_status": 0,
        },
    )
    publish = PythonOperator(task_id="publish", python_callable=publish, trigger_rule="none_failed_min_one_success")

    wait >> predict >> choose >> [tell, evaluate, publish]
    evaluate >> publish
