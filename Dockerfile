# The image that `paceline deploy` names: docker build -t paceline .
ARG PYTHON=3.11
FROM python:${PYTHON}-slim

# KubeRay's health checks call wget.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends wget \
    && rm -rf /var/lib/apt/lists/*

# PyTorch and Ray are in the ranges that pyproject.toml says; ray[default] accepts jobs, which KubeRay submits.
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY paceline paceline
# hadolint ignore=DL3013
RUN pip install --no-cache-dir '.[ray]' 'ray[default]'

# A new volume at /results belongs to this user.
RUN useradd --create-home --uid 1000 paceline \
    && install --directory --owner=paceline /results
USER 1000
WORKDIR /home/paceline
