# One image per service:
#
#   docker build --target scheduler -t signalbox-scheduler:0.1.0 .
#   docker build --target frontend -t signalbox-frontend:0.1.0 .
#   docker build --target worker -t signalbox-worker:0.1.0 .
#   docker build --target worker-gpu -t signalbox-worker:0.1.0-cu130 .
#
# Every package is of the version, and has the hash, that locks/ says (`make lock`). `make images` runs these stages
# without an engine.

# 3.11.15-slim-bookworm, all platforms; a newer one: `docker buildx imagetools inspect python:3.11-slim-bookworm`.
ARG PYTHON_IMAGE=python:3.11.15-slim-bookworm@sha256:d29f48a31a8b408ed19272ca1e7b10ebae13b240a27e862d3d4217c528e2e0c3
# Where torch for CPUs is. The one for GPUs is the package index's own.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu


# An empty environment, filled from outside: what is copied out of it has no pip.
FROM ${PYTHON_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1
RUN python -m venv --without-pip /opt/signalbox
WORKDIR /src
COPY locks locks

FROM scratch AS source
COPY pyproject.toml README.md LICENSE ./
COPY signalbox signalbox
COPY scheduler_svc scheduler_svc
COPY worker_svc worker_svc
COPY frontend_svc frontend_svc

# By the base image's own setuptools, so that nothing unpinned is fetched to build with.
FROM build AS wheel
COPY --from=source / ./
RUN pip wheel --no-deps --no-build-isolation --wheel-dir /wheels .

FROM build AS scheduler-build
RUN pip --python /opt/signalbox/bin/python install --require-hashes --no-deps -r locks/scheduler.txt
COPY --from=wheel /wheels /wheels
RUN pip --python /opt/signalbox/bin/python install --no-index --no-deps /wheels/signalbox-*.whl

FROM build AS frontend-build
RUN pip --python /opt/signalbox/bin/python install --require-hashes --no-deps -r locks/frontend.txt
COPY --from=wheel /wheels /wheels
RUN pip --python /opt/signalbox/bin/python install --no-index --no-deps /wheels/signalbox-*.whl

# Kernels for every kind of CPU of this platform: images have no C++ compiler, and start at once.
FROM build AS kernels
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/*
# No more than they are made of, as they take a minute or two.
COPY worker_svc/runner/cpu worker_svc/runner/cpu
RUN python -m worker_svc.runner.cpu.shipped.make /kernels

FROM wheel AS worker-wheel
COPY --from=kernels /kernels worker_svc/runner/cpu/shipped/lib
RUN pip wheel --no-deps --no-build-isolation --wheel-dir /wheels .

# Packages ahead of our own wheel: by far the largest layer, and a change of our source must not fetch it again.
FROM build AS worker-build
ARG TORCH_INDEX
RUN pip --python /opt/signalbox/bin/python install --extra-index-url ${TORCH_INDEX} --require-hashes --no-deps -r locks/worker.txt
COPY --from=worker-wheel /wheels /wheels
RUN pip --python /opt/signalbox/bin/python install --no-index --no-deps /wheels/signalbox-*.whl

FROM build AS worker-gpu-build
RUN pip --python /opt/signalbox/bin/python install --require-hashes --no-deps -r locks/worker-gpu.txt
COPY --from=worker-wheel /wheels /wheels
RUN pip --python /opt/signalbox/bin/python install --no-index --no-deps /wheels/signalbox-*.whl


FROM ${PYTHON_IMAGE} AS runtime
# Nothing that installs packages; a name for the uid, for which some libraries ask.
RUN rm -rf /usr/local/lib/python3.11/ensurepip /usr/local/lib/python3.11/site-packages/* /usr/local/bin/pip* /usr/local/bin/wheel \
    && groupadd --gid 10001 signalbox \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin signalbox
ENV PATH=/opt/signalbox/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 10001:10001

FROM runtime AS scheduler
COPY --from=scheduler-build /opt/signalbox /opt/signalbox
EXPOSE 7300 9300
ENTRYPOINT ["scheduler-svc"]

FROM runtime AS frontend
COPY --from=frontend-build /opt/signalbox /opt/signalbox
COPY signalbox/demo_model /models/demo
EXPOSE 8000 7301 7339 9330
ENTRYPOINT ["frontend-svc"]

FROM runtime AS worker
COPY --from=worker-build /opt/signalbox /opt/signalbox
COPY signalbox/demo_model /models/demo
EXPOSE 7310 9310
ENTRYPOINT ["worker-svc"]

FROM runtime AS worker-gpu
# Triton compiles its way into the driver when it launches the first kernel. An image on top of this one can bring
# compiled kernels: docs/operations.md, --compile-only.
USER root
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
USER 10001:10001
COPY --from=worker-gpu-build /opt/signalbox /opt/signalbox
COPY signalbox/demo_model /models/demo
# What the NVIDIA container runtime lets in.
ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility
EXPOSE 7310 9310
ENTRYPOINT ["worker-svc"]
