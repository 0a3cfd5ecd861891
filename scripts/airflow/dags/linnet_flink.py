"""Labels new issues each night on a Flink cluster: wait for documents, predict, publish.

Settings beside those of linnet_tasks.py:

    LINNET_FLINK         host:port of Beam's job server (default localhost:8099)
    LINNET_FLINK_REST    host:port of Flink's web page, which says why a job failed (default localhost:8081)
    LINNET_WORKERS       host:port of the worker pool beside each TaskManager (default localhost:50000)
    LINNET_PARALLELISM   task slots to use (default 2)

The cluster's machines see the folders under the same paths.
"""

import os
from datetime import datetime, timezone

from airflow.providers.apache.beam.operators.beam import BeamRunGoPipelineOperator
from airflow.providers.standard.operators.python import BranchPythonOperator, PythonOperator
from airflow.sdk import DAG

import linnet_tasks as linnet

with DAG(
    dag_id="linnet_flink",
    schedule="0 3 * * *",
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    default_args=linnet.DEFAULTS,
    max_active_runs=1,
    tags=["linnet", "flink"],
) as dag:
    wait = linnet.wait_for_documents()
    predict = BeamRunGoPipelineOperator(
        task_id="predict",
        launcher_binary=f"{linnet.BIN}/predict",
        runner="FlinkRunner",
        pipeline_options={
            "input": [linnet.INPUT],
            "output": linnet.LABELLED,
            "format": ["yedda", "treatments"],
            "rejected_exit_status": 0,
            "endpoint": os.environ.get("LINNET_FLINK") or "localhost:8099",
            "flink_rest": os.environ.get("LINNET_FLINK_REST") or "localhost:8081",
            "environment_type": "EXTERNAL",
            "environment_config": os.environ.get("LINNET_WORKERS") or "localhost:50000",
            "parallelism": int(os.environ.get("LINNET_PARALLELISM") or "2"),
            "cancel_on_exit": True,  # when the task is killed
            "job_name": "linnet-" + linnet.DAY,
        },
    )
    choose = BranchPythonOperator(task_id="choose", python_callable=linnet.next_tasks, op_kwargs={"judged": False})
    tell_rejected = PythonOperator(task_id="tell_rejected", python_callable=linnet.tell_rejected)
    publish = PythonOperator(task_id="publish", python_callable=linnet.publish)

    wait >> predict >> choose >> [tell_rejected, publish]
