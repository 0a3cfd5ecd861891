"""Labels new issues each night on one machine: wait for documents, predict, evaluate on the annotated ones, publish.

A run that finds no new document within LINNET_WAIT seconds is skipped. linnet_tasks.py lists the settings.
"""

from datetime import datetime, timezone

from airflow.providers.apache.beam.operators.beam import BeamRunGoPipelineOperator
from airflow.providers.standard.operators.python import BranchPythonOperator, PythonOperator
from airflow.sdk import DAG

import linnet_tasks as linnet

with DAG(
    dag_id="linnet_issues",
    schedule="0 2 * * *",
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    default_args=linnet.DEFAULTS,
    max_active_runs=1,  # of two runs into one folder the second fails
    tags=["linnet"],
) as dag:
    wait = linnet.wait_for_documents()
    predict = BeamRunGoPipelineOperator(
        task_id="predict",
        launcher_binary=f"{linnet.BIN}/predict",
        runner="direct",
        pipeline_options={
            "input": [linnet.INPUT],
            "output": linnet.LABELLED,
            "format": ["yedda", "treatments"],
            "rejected_exit_status": 0,
        },
    )
    choose = BranchPythonOperator(task_id="choose", python_callable=linnet.next_tasks)
    tell_rejected = PythonOperator(task_id="tell_rejected", python_callable=linnet.tell_rejected)
    evaluate = BeamRunGoPipelineOperator(
        task_id="evaluate",
        launcher_binary=f"{linnet.BIN}/evaluate",
        runner="direct",
        pipeline_options={
            "input": [f"{linnet.INPUT}/**/*.txt.ann"],
            "predictions": linnet.LABELLED,
            "report": f"{linnet.REPORTS}/{linnet.DAY}",
            "rejected_exit_status": 0,
        },
    )
    publish = PythonOperator(task_id="publish", python_callable=linnet.publish, trigger_rule="none_failed_min_one_success")

    wait >> predict >> choose >> [tell_rejected, evaluate, publish]
    evaluate >> publish
