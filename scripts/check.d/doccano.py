"""A real doccano imports documents, and its export of them is kept:
python doccano.py EXPORT.jsonl DOCUMENT.jsonl…

doccano is that beside the Python that runs this. Its database and processes live
in a folder that is gone afterwards.
"""
import http.cookiejar
import io
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import zipfile

export, documents = sys.argv[1], sys.argv[2:]
program = pathlib.Path(sys.executable).parent / "doccano"
jar = http.cookiejar.CookieJar()
client = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]


def ask(path, body=None, kind="application/json"):
    """The answer to a GET, or to a POST of body."""
    headers = {"Content-Type": kind} | {"X-CSRFToken": c.value for c in jar if c.name == "csrftoken"}
    if kind == "application/json" and body is not None:
        body = json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/{path}", body, headers)
    try:
        return client.open(request, timeout=60).read()
    except urllib.error.HTTPError as e:
        sys.exit(f"doccano.py: {path}: {e.code}: {e.read()[:500]}")


def task(path, body):
    """The task that a POST of body starts, once it is done."""
    name = json.loads(ask(path, body))["task_id"]
    for _ in range(600):
        status = json.loads(ask(f"tasks/status/{name}"))
        if status["ready"]:
            return name, status
        time.sleep(0.2)
    sys.exit(f"doccano.py: {path}: not done within two minutes")


def upload(file):
    """The name by which doccano knows what is sent to it."""
    border = "border-of-parts"
    head = f'--{border}\r\nContent-Disposition: form-data; name="filepond"'
    body = (f'{head}\r\n\r\n{{}}\r\n{head}; filename="{os.path.basename(file)}"\r\n'
            "Content-Type: application/octet-stream\r\n\r\n").encode()
    body += pathlib.Path(file).read_bytes() + f"\r\n--{border}--\r\n".encode()
    return ask("fp/process/", body, f"multipart/form-data; boundary={border}").decode()


with tempfile.TemporaryDirectory() as home:
    env = os.environ | {"HOME": home}
    with open(os.path.join(home, "log"), "wb") as log:
        for args in ["init"], ["createuser", "--username=admin", "--password=of a moment"]:
            subprocess.run([program, *args], env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=True)
        servers = [subprocess.Popen([program, *args], env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
                   for args in (["webserver", f"--port={port}"], ["task"])]
        try:
            for _ in range(300):
                with socket.socket() as s:
                    if s.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.2)
            ask("auth/login/", {"username": "admin", "password": "of a moment"})
            project = json.loads(ask("projects", {
                "name": "lines", "description": "lines", "project_type": "SequenceLabeling", "resourcetype": "SequenceLabelingProject",
                "guideline": "", "tags": [], "random_order": False, "collaborative_annotation": False, "use_relation": False,
                "single_class_classification": False, "allow_overlapping": False, "grapheme_mode": False}))["id"]
            _, status = task(f"projects/{project}/upload", {
                "format": "JSONL", "task": "SequenceLabeling", "encoding": "utf_8", "column_data": "text", "column_label": "label",
                "uploadIds": [upload(d) for d in documents]})
            if status["error"] or status["result"]["error"]:
                sys.exit(f"doccano.py: the import failed: {status}")
            name, _ = task(f"projects/{project}/download", {"format": "JSONL", "exportApproved": False})
            with zipfile.ZipFile(io.BytesIO(ask(f"projects/{project}/download?taskId={name}"))) as z:
                pathlib.Path(export).write_bytes(z.read("admin.jsonl"))
        finally:
            for server in servers:
                os.killpg(server.pid, 9)
                server.wait()
