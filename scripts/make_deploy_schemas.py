"""Writes deploy/testdata/schemas.json: a JSON Schema of the objects of Kubernetes,
the Gateway API Inference Extension, Kubeflow Trainer and JobSet that deploy/ uses.

    pip install pyyaml kubeflow-trainer-api==2.2.1
    python scripts/make_deploy_schemas.py swagger.json inferencepools.yaml

The first is api/openapi-spec/swagger.json of Kubernetes (here of 1.35), the second config/crd/bases/inference.networking.k8s.io_inferencepools.yaml of the
extension (here of August 2026). Trainer, JobSet and the jobs in them come from the models
of the Python package. All are under the Apache License 2.0. Descriptions are left out,
and no object may have a property that is not listed, as with kubectl's strict validation.
"""
import json
import pathlib
import re
import sys

import yaml
from kubeflow_trainer_api import models

KINDS = {
    "apps/v1 Deployment": "io.k8s.api.apps.v1.Deployment",
    "v1 Service": "io.k8s.api.core.v1.Service",
    "v1 PersistentVolumeClaim": "io.k8s.api.core.v1.PersistentVolumeClaim",
}
POOL = "inference.networking.k8s.io/v1 InferencePool"
MODELS = {
    "trainer.kubeflow.org/v1alpha1 TrainingRuntime": "TrainerV1alpha1TrainingRuntime",
    "trainer.kubeflow.org/v1alpha1 TrainJob": "TrainerV1alpha1TrainJob",
    "jobset.x-k8s.io/v1alpha2 JobSet": "JobsetV1alpha2JobSet",
}
# Values that the servers accept, which the package types as any text.
ENUMS = {
    "TrainerV1alpha1MPIMLPolicySource.mpiImplementation": ["OpenMPI"],
    "JobsetV1alpha2DependsOn.status": ["Ready", "Complete"],
    "JobsetV1alpha2FailurePolicyRule.action": ["FailJobSet", "RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts"],
    "JobsetV1alpha2SuccessPolicy.operator": ["All", "Any"],
}


def bare(schema):
    """The schema without parts that only inform readers and clients."""
    if isinstance(schema, list):
        return [bare(s) for s in schema]
    if not isinstance(schema, dict):
        return schema
    out = {}
    for key, value in schema.items():
        if key == "properties":
            out[key] = {name: bare(s) for name, s in value.items()}
        elif key == "$ref":
            out[key] = value.replace("#/definitions/", "#/$defs/")
        elif key == "enum" or key == "required":
            out[key] = value
        elif key == "anyOf" and {"type": "null"} in value:  # a property that may be absent
            out |= bare(next(s for s in value if s != {"type": "null"}))
        elif key not in ("description", "default", "format", "title") and not key.startswith("x-kubernetes-"):
            out[key] = bare(value)
    if "properties" in out:
        out.setdefault("additionalProperties", False)
    return out


def refs(schema):
    if isinstance(schema, dict):
        for key, value in schema.items():
            if key == "$ref":
                yield value.removeprefix("#/$defs/")
            else:
                yield from refs(value)
    elif isinstance(schema, list):
        for s in schema:
            yield from refs(s)


def packaged(defs):
    """The definitions of MODELS, with those of Kubernetes that defs has in their place."""
    known = {"".join(word[0].upper() + word[1:] for word in name.split(".")): name for name in defs}
    found, todo = {}, list(MODELS.values())
    while todo:
        name = todo.pop()
        if name in found or name in known:
            continue
        s = getattr(models, name).model_json_schema(by_alias=True)
        s.pop("$defs", None)
        if name in MODELS.values():
            s["properties"].pop("status", None)
        found[name] = bare(s)
        for property, values in ENUMS.items():
            if property.startswith(name + "."):
                found[name]["properties"][property.removeprefix(name + ".")]["enum"] = values
        todo += refs(found[name])
    text = re.sub(r'(?<="#/\$defs/)\w+(?=")', lambda m: known.get(m[0], m[0]), json.dumps(found))
    return json.loads(text)


def main():
    swagger = json.loads(pathlib.Path(sys.argv[1]).read_text())["definitions"]
    crd = yaml.safe_load(pathlib.Path(sys.argv[2]).read_text())
    versions = {v["name"]: v["schema"]["openAPIV3Schema"] for v in crd["spec"]["versions"]}
    pool = bare(versions["v1"])
    meta = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
    pool["properties"]["metadata"] = {"$ref": "#/$defs/" + meta}
    defs, todo = {"InferencePool": pool}, [*KINDS.values(), meta]
    while todo:
        name = todo.pop()
        if name in defs:
            continue
        defs[name] = bare(swagger[name])
        if name.endswith(".Quantity") or name.endswith(".IntOrString"):
            defs[name] = {"type": ["string", "integer", "number"]}
        todo += refs(defs[name])
    defs |= packaged(defs)
    kinds = {**KINDS, POOL: "InferencePool", **MODELS}
    choices = []
    for kind, name in sorted(kinds.items()):
        version, word = kind.split()
        named = {"properties": {"apiVersion": {"const": version}, "kind": {"const": word}}, "required": ["apiVersion", "kind", "metadata", "spec"]}
        choices.append({"if": {"properties": {"kind": {"const": word}}}, "then": {"allOf": [{"$ref": "#/$defs/" + name}, named]}})
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "properties": {"kind": {"enum": sorted(k.split()[1] for k in kinds)}},
        "required": ["kind"],
        "allOf": choices,
        "$defs": dict(sorted(defs.items())),
    }
    out = pathlib.Path(__file__).parent.parent / "deploy/testdata/schemas.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(schema, indent=1, sort_keys=False) + "\n")


main()
