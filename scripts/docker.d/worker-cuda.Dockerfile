# Workers with NVIDIA GPUs. The driver comes from the host; nothing of CUDA
# but what the driver brings is needed. The base is Ubuntu 22.04: glibc 2.35.
FROM nvidia/cuda:12.4.1-base-ubuntu22.04@sha256:0f6bfcbf267e65123bcc2287e2153dedfc0f24772fb5ce84afe16ac4b2fada95
COPY boot /opt/apache/beam/boot
COPY predict train evaluate /usr/local/bin/
COPY LICENSE LICENSES.md NOTICES.txt /usr/share/doc/linnet/
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 65532:65532
WORKDIR /tmp
ENTRYPOINT ["/opt/apache/beam/boot"]
