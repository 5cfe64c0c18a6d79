# One image per service:
#
#   docker build --target scheduler -t signalbox-scheduler:0.1.0 .
#   docker build --target frontend -t signalbox-frontend:0.1.0 .
#   docker build --target worker -t signalbox-worker:0.1.0 .
#   docker build --target worker -t signalbox-worker:0.1.0-cu130 \
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

FROM build AS worker-build
ARG TORCH_INDEX
# A layer of its own: by far the largest, and a change of our source must not fetch it again.
RUN pip install -c constraints.txt --index-url ${TORCH_INDEX} torch
COPY --from=source / ./
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
# The kernels for CPUs are compiled for the machine that they run on, when a worker starts there.
USER root
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/*
USER 10001:10001
COPY --from=worker-build /opt/signalbox /opt/signalbox
COPY signalbox/demo_model /models/demo
# What the NVIDIA container runtime lets in, where there is one.
ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility
EXPOSE 7310 9310
ENTRYPOINT ["worker-svc"]
