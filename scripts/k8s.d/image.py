"""Makes an image of a few files, as docker save would write it: image.py NAME ARCHIVE USER FILE=PATH...

Files are PATH in the image, whose USER is a number; /tmp and /home/nonroot are there, and nothing else.
"""

import hashlib
import io
import json
import os
import sys
import tarfile


def add(archive, path, data=b"", **fields):
    info = tarfile.TarInfo(path.lstrip("/"))
    info.size = len(data)
    for key, value in fields.items():
        setattr(info, key, value)
    archive.addfile(info, io.BytesIO(data))


def main(name, out, user, *files):
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as archive:
        add(archive, "/tmp", type=tarfile.DIRTYPE, mode=0o1777)
        add(archive, "/home/nonroot", type=tarfile.DIRTYPE, mode=0o700, uid=65532, gid=65532)
        for file in files:
            source, path = file.split("=", 1)
            with open(source, "rb") as f:
                add(archive, path, f.read(), mode=0o755 if os.access(source, os.X_OK) else 0o644)
    layer = layer.getvalue()
    digest = hashlib.sha256(layer).hexdigest()
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"User": user, "WorkingDir": "/tmp", "Entrypoint": [files[0].split("=", 1)[1]]},
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + digest]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    with tarfile.open(out, "w") as archive:
        add(archive, "config.json", json.dumps(config).encode())
        add(archive, "layer.tar", layer)
        add(archive, "manifest.json", json.dumps(manifest).encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
