"""Runs scripts/k8s pool with the real gcloud and aws, whose services this program plays, and checks what they send.

Usage: requests.py; it says which of the two are not in PATH.
"""

import http.server
import json
import os
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path

K8S = Path(__file__).parent.parent / "k8s"
LABELS = {"linnet.io/capacity": "spot", "linnet.io/gpu": "true"}
sent = []


class Service(http.server.BaseHTTPRequestHandler):
    def answer(self):
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        if body:
            sent.append((self.path.partition("?")[0], json.loads(body)))
        out = json.dumps({"name": "operation-1", "status": "DONE", "nodegroup": {}}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(out)))
        self.end_headers()
        self.wfile.write(out)

    do_GET = do_POST = answer

    def log_message(self, *args):
        pass


def request(provider, env):
    sent.clear()
    run = subprocess.run([K8S, "pool", provider, "--gpu", "--spot", "--run"], env={**os.environ, **env}, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert run.returncode == 0 and len(sent) == 1, (provider, sent, run.stderr)
    return sent[0]


def main():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    here = f"http://127.0.0.1:{server.server_port}"
    with tempfile.TemporaryDirectory() as home:
        token = Path(home, "token")
        token.write_text("none")
        if shutil.which("gcloud"):
            path, body = request("gke", {
                "CLOUDSDK_CONFIG": home, "CLOUDSDK_AUTH_ACCESS_TOKEN_FILE": str(token), "CLOUDSDK_CORE_PROJECT": "p",
                "CLOUDSDK_API_ENDPOINT_OVERRIDES_CONTAINER": here + "/", "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "true",
                "CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK": "true", "CLOUDSDK_CORE_DISABLE_PROMPTS": "true",
            })  # fmt: skip
            pool, config = body["nodePool"], body["nodePool"]["config"]
            assert path == "/v1/projects/p/locations/europe-west4/clusters/linnet/nodePools", path
            assert pool["name"] == "linnet-gpu-spot" and pool.get("initialNodeCount", 0) == 0, pool
            assert pool["autoscaling"]["enabled"] and pool["autoscaling"].get("totalMaxNodeCount") == 4, pool  # maxNodeCount is of each zone
            card = {"acceleratorCount": "1", "acceleratorType": "nvidia-l4", "gpuDriverInstallationConfig": {"gpuDriverVersion": "DEFAULT"}}
            assert config["accelerators"] == [card] and config["labels"] == LABELS and config["spot"], config
            assert "https://www.googleapis.com/auth/devstorage.read_write" in config["oauthScopes"], "jobs write to gs://"
            print("gcloud sends what scripts/k8s means")
        else:
            print("what gcloud sends skipped: no gcloud in PATH")
        if shutil.which("aws"):
            path, body = request("eks", {
                "AWS_CONFIG_FILE": home + "/config", "AWS_ACCESS_KEY_ID": "none", "AWS_SECRET_ACCESS_KEY": "none", "AWS_ENDPOINT_URL_EKS": here,
                "LINNET_NODE_ROLE": "arn:aws:iam::123456789012:role/nodes", "LINNET_SUBNETS": "subnet-1 subnet-2",
            })  # fmt: skip
            assert path == "/clusters/linnet/node-groups", path
            assert body["scalingConfig"] == {"minSize": 0, "maxSize": 4, "desiredSize": 0}, body
            assert body["subnets"] == ["subnet-1", "subnet-2"] and body["labels"] == LABELS and body["capacityType"] == "SPOT", body
            assert body["amiType"] == "AL2023_x86_64_NVIDIA" and body["taints"] == [{"key": "nvidia.com/gpu", "value": "present", "effect": "NO_SCHEDULE"}], body
            print("aws sends what scripts/k8s means")
        else:
            print("what aws sends skipped: no aws in PATH")


if __name__ == "__main__":
    main()
