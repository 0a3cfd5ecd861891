# Workers without a GPU: Beam's boot program, which fetches the binary of each
# job, and the pipelines' own programs for Kubernetes. scripts/docker stages
# the files beside it.
FROM gcr.io/distroless/static-debian12:nonroot@sha256:d093aa3e30dbadd3efe1310db061a14da60299baff8450a17fe0ccc514a16639
COPY boot /opt/apache/beam/boot
COPY predict train evaluate /usr/local/bin/
COPY LICENSE LICENSES.md NOTICES.txt /usr/share/doc/linnet/
USER 65532:65532
WORKDIR /home/nonroot
ENTRYPOINT ["/opt/apache/beam/boot"]
