# One image per service:
#
#   docker build --target scheduler -t signalbox-scheduler:0.1.0 .
#   docker build --target frontend -t signalbox-frontend:0.1.0 .
#   docker build --target worker -t signalbox-worker:0.1.0 .
#   docker build --target worker-gpu -t signalbox-worker:0.1.0-cu130 \
#     --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu130 .

ARG PYTHON_IMAGE=python:3.11.13-slim-bookworm
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu


FROM ${PYTHON_IMAGE} AS build
ENV PATH=/opt/signalbox/bin:$PATH \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/signalbox
WORKDIR /src
COPY constraints.txt ./

FROM scratch AS source
COPY pyproject.toml README.md LICENSE ./
COPY signalbox signalbox
COPY scheduler_svc scheduler_svc
COPY worker_svc worker_svc
COPY frontend_svc frontend_svc

FROM build AS scheduler-build
COPY --from=source / ./
RUN pip install -c constraints.txt '.[scheduler,telemetry]'

FROM build AS frontend-build
COPY --from=source / ./
RUN pip install -c constraints.txt '.[frontend,telemetry]'

# Kernels for every kind of CPU of this platform: images have no C++ compiler, and start at once.
FROM build AS kernels
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/*
# No more than they are made of, as they take a minute or two.
COPY worker_svc/runner/cpu worker_svc/runner/cpu
RUN python -m worker_svc.runner.cpu.shipped.make /kernels

FROM build AS worker-build
ARG TORCH_INDEX
# A layer of its own: by far the largest, and a change of our source must not fetch it again.
RUN pip install -c constraints.txt --index-url ${TORCH_INDEX} torch
COPY --from=source / ./
COPY --from=kernels /kernels worker_svc/runner/cpu/shipped/lib
RUN pip install -c constraints.txt '.[worker,telemetry]'


FROM ${PYTHON_IMAGE} AS runtime
# A name for the uid: some libraries ask for it.
RUN groupadd --gid 10001 signalbox \
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
EXPOSE 8000 7301
ENTRYPOINT ["frontend-svc"]

FROM runtime AS worker
COPY --from=worker-build /opt/signalbox /opt/signalbox
COPY signalbox/demo_model /models/demo
EXPOSE 7310 9310
ENTRYPOINT ["worker-svc"]

FROM worker AS worker-gpu
# Triton compiles its way into the driver when it launches the first kernel.
USER root
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
USER 10001:10001
# What the NVIDIA container runtime lets in.
ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility
