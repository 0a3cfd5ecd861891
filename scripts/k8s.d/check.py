"""Checks scripts/k8s.d/*.yaml: the programs know every flag, FlinkDeployment has the schema of Flink's operator, and
Flink knows every key of its configuration, of that in scripts/flink.d as well.

Usage: check.py FOLDER-OF-PROGRAMS [CRD JAR]; CRD is the operator's definition of FlinkDeployment, JAR is flink-core.
"""

import subprocess
import sys
import zipfile
from pathlib import Path

import jsonschema
import yaml

HERE = Path(__file__).parent


def strict(schema):
    """The schema as the API server reads it: a field that it does not name is unknown, unless it says to keep those."""
    if not isinstance(schema, dict):
        return schema
    out = {k: v for k, v in schema.items() if not k.startswith("x-kubernetes") and k != "format"}
    if "properties" in schema:
        out["properties"] = {k: strict(v) for k, v in schema["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            out["additionalProperties"] = False
    if isinstance(schema.get("additionalProperties"), dict):
        out["additionalProperties"] = strict(schema["additionalProperties"])
    if "items" in schema:
        out["items"] = strict(schema["items"])
    if schema.get("x-kubernetes-int-or-string"):
        out.pop("type", None)
    return out


def containers(value):
    """Every container of an object, wherever it stands."""
    if isinstance(value, dict):
        if "image" in value and "name" in value:
            yield value
        for v in value.values():
            yield from containers(v)
    elif isinstance(value, list):
        for v in value:
            yield from containers(v)


def known(program, args):
    # --help comes last: the program stops with status 2 at the first flag that it does not know.
    return subprocess.run([program, *args, "--help"], capture_output=True, text=True)


def unknown(keys, jar):
    """The keys that are no string constant of a class of options in Flink."""
    with zipfile.ZipFile(jar) as z:
        classes = b"".join(z.read(name) for name in z.namelist() if name.endswith("Options.class"))
    # A constant is a tag, its length in two bytes, and the text.
    return [key for key in keys if b"\x01" + len(key).to_bytes(2, "big") + key.encode() not in classes]


def main(programs, crd=None, jar=None):
    objects = [o for file in sorted(HERE.glob("*.yaml")) for o in yaml.safe_load_all(file.read_text())]
    config = next(o for o in objects if o["kind"] == "ConfigMap")["data"]
    flags = 0
    for o in objects:
        for c in containers(o):
            if not c.get("command", [""])[0].startswith("/usr/local/bin/"):
                continue
            args = c["args"]
            for key in [*config, "JOB_COMPLETION_INDEX"]:
                args = [a.replace(f"$({key})", config.get(key, "0")) for a in args]
            assert not any("$(" in a for a in args), (c["name"], "a parameter that config.yaml has not", args)
            program = Path(programs, Path(c["command"][0]).name)
            run = known(program, args)
            assert run.returncode == 0, (c["name"], run.stderr)
            assert known(program, [*args, "--no_such_flag"]).returncode == 2, "the program takes any flag"
            flags += len(args)
    print(f"{len(objects)} objects, {flags} flags known to the programs")
    flink = next(o for o in objects if o["kind"] == "FlinkDeployment")
    # What one TaskManager's slots do one worker does, and only standalone clusters mind replicas.
    assert flink["spec"]["mode"] == "standalone" and flink["spec"]["flinkConfiguration"]["taskmanager.numberOfTaskSlots"] == "1", flink["spec"]
    account = {"name": flink["spec"]["serviceAccount"], "namespace": flink["metadata"]["namespace"]}
    assert any(o["kind"] == "ServiceAccount" and o["metadata"] == account for o in objects), f"no object is the account {account}"
    server = next(c for o in objects for c in containers(o) if c["name"] == "job-server")
    assert "--job-host=$(POD_IP)" in server["args"], "the job server tells launchers its host, which they reach"
    if crd:
        definition = yaml.safe_load(Path(crd).read_text())
        schema = strict(definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
        for part in ("apiVersion", "kind", "metadata"):
            schema["properties"].setdefault(part, {})
        schema["properties"]["metadata"] = {}
        jsonschema.validate(flink, schema)
        wrong = {**flink, "spec": {**flink["spec"], "noSuchField": 1}}
        try:
            jsonschema.validate(wrong, schema)
        except jsonschema.ValidationError:
            print("FlinkDeployment: as the operator's schema has it")
        else:
            raise SystemExit("the operator's schema takes any field")
        keys = [*flink["spec"]["flinkConfiguration"], *yaml.safe_load((HERE.parent / "flink.d" / "config.yaml").read_text())]
        assert not unknown(keys, jar), unknown(keys, jar)
        assert unknown(["restart-strategy.typ"], jar), "Flink takes any key"
        print(f"{len(keys)} keys of Flink's configuration known to it")


if __name__ == "__main__":
    main(*sys.argv[1:])
