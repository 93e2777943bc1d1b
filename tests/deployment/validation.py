"""Validates manifests against the schemas in `schemas`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import referencing
import yaml
from referencing.jsonschema import DRAFT202012

FOLDER = Path(__file__).parent / "schemas"
KUBERNETES = "kubernetes-1.37.json"


def _schema(name: str) -> Any:
    return json.loads((FOLDER / name).read_text(encoding="utf-8"))


def validate(document: Any, schema: dict[str, Any]) -> None:
    kubernetes = DRAFT202012.create_resource(_schema(KUBERNETES))
    registry = referencing.Registry().with_resources([(KUBERNETES, kubernetes)])
    jsonschema.Draft202012Validator(schema, registry=registry).validate(document)


def read_kubernetes(text: str) -> dict[str, Any]:
    """The documents of a manifest by kind, each valid."""
    claim = {"$ref": f"{KUBERNETES}#/$defs/io.k8s.api.core.v1.PersistentVolumeClaim"}
    schemas = {"PersistentVolumeClaim": claim, "RayJob": _schema("rayjob-v1.json")}
    documents = {document["kind"]: document for document in yaml.safe_load_all(text)}
    for kind, document in documents.items():
        validate(document, schemas[kind])
    return documents


def read_skypilot(text: str) -> dict[str, Any]:
    document, schemas = yaml.safe_load(text), _schema("skypilot-0.14.1.json")
    validate(document, schemas["task"])
    validate(document["resources"], schemas["resources"])
    return document


def read_compose(text: str) -> dict[str, Any]:
    document = yaml.safe_load(text)
    validate(document, _schema("compose-spec.json"))
    return document
