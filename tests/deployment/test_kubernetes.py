"""A RayJob is valid for KubeRay, and asks for the machines of the plan."""

from __future__ import annotations

import jsonschema
import pytest

from paceline import InputError, deploy
from tests.deployment.captured import captured
from tests.deployment.plans import planned
from tests.deployment.validation import read_kubernetes


def parts(text: str):
    """The specification of the job, its worker group and the pod of a worker."""
    spec = read_kubernetes(text)["RayJob"]["spec"]
    (group,) = spec["rayClusterSpec"]["workerGroupSpecs"]
    return spec, group, group["template"]["spec"]


def test_twelve_workers_on_three_machines(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    spec, group, pod = parts(deploy("kubernetes", planned()))
    assert group["replicas"] == group["minReplicas"] == group["maxReplicas"] == 3
    assert group["rayStartParams"] == {"num-cpus": "44"}
    (container,) = pod["containers"]
    assert container["resources"]["limits"] == {"cpu": "44", "memory": "147456Mi", "nvidia.com/gpu": "4"}
    assert container["resources"]["requests"] == container["resources"]["limits"]
    assert pod["nodeSelector"] == {"node.kubernetes.io/instance-type": "g2-standard-48"}
    assert pod["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    found = captured(spec["entrypoint"], monkeypatch)
    assert (found.setup.workers, found.setup.strategy.name, found.workload.device) == (12, "downpour", "cuda")
    assert spec["rayClusterSpec"]["headGroupSpec"]["rayStartParams"] == {"num-cpus": "0"}


def test_the_run_is_kept_on_a_volume_of_the_head():
    documents = read_kubernetes(deploy("kubernetes", planned(), name="one", storage_size="5Gi"))
    claim, job = documents["PersistentVolumeClaim"], documents["RayJob"]
    assert claim["metadata"]["name"] == "one-results"
    assert claim["spec"]["resources"]["requests"] == {"storage": "5Gi"}
    head = job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
    assert {"name": "results", "persistentVolumeClaim": {"claimName": "one-results"}} in head["volumes"]
    assert {"name": "results", "mountPath": "/results"} in head["containers"][0]["volumeMounts"]
    assert job["spec"]["entrypoint"].endswith("--out /results/one")


def test_a_claim_that_exists_is_not_made():
    documents = read_kubernetes(deploy("kubernetes", planned(), storage="shared", namespace="team"))
    assert list(documents) == ["RayJob"] and documents["RayJob"]["metadata"]["namespace"] == "team"
    head = documents["RayJob"]["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
    assert head["volumes"][0]["persistentVolumeClaim"] == {"claimName": "shared"}


@pytest.mark.parametrize(
    ("machine", "type_", "label", "tainted"),
    [
        ("g5.xlarge", "g5.xlarge", ("eks.amazonaws.com/capacityType", "SPOT"), False),
        ("g2-standard-8", "g2-standard-8", ("cloud.google.com/gke-spot", "true"), True),
        ("n1-standard-4 + 1 T4", "n1-standard-4", ("cloud.google.com/gke-spot", "true"), True),
        ("NC4as_T4_v3", "Standard_NC4as_T4_v3", ("kubernetes.azure.com/scalesetpriority", "spot"), True),
    ],
)
def test_spot_machines_have_the_label_of_their_cloud(machine, type_, label, tainted):
    key, value = label
    _, _, pod = parts(deploy("kubernetes", planned(machine, workers_per_machine=1, spot=True)))
    assert pod["nodeSelector"] == {"node.kubernetes.io/instance-type": type_, key: value}
    assert ({"key": key, "operator": "Equal", "value": value, "effect": "NoSchedule"} in pod["tolerations"]) is tainted
    _, _, usual = parts(deploy("kubernetes", planned(machine, workers_per_machine=1)))
    assert usual["nodeSelector"] == {"node.kubernetes.io/instance-type": type_} and len(usual["tolerations"]) == 1


def test_spot_machines_of_an_unknown_cloud_are_refused():
    plan = planned("gpu_1x_a10", workers_per_machine=1, spot=True)
    with pytest.raises(InputError, match="known for aws, gcp, azure only: give one of them as `cloud`"):
        deploy("kubernetes", plan)
    assert parts(deploy("kubernetes", plan, cloud="aws"))[2]["nodeSelector"]["eks.amazonaws.com/capacityType"] == "SPOT"


def test_machines_for_cpus_ask_for_no_gpu():
    _, group, pod = parts(deploy("kubernetes", planned("c6i.32xlarge", workers_per_machine=2)))
    assert "tolerations" not in pod and group["rayStartParams"] == {"num-cpus": "126"}
    assert set(pod["containers"][0]["resources"]["limits"]) == {"cpu", "memory"}


def test_what_is_given_stands_in_the_file():
    text = deploy(
        "kubernetes", planned(), image="example.org/team/paceline:1", instance_type="big", gpu_resource="amd.com/gpu",
        head_cpus=8, head_memory="32Gi",
    )  # fmt: skip
    spec, _, pod = parts(text)
    head = spec["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0]
    assert head["image"] == pod["containers"][0]["image"] == "example.org/team/paceline:1"
    assert head["resources"]["limits"] == {"cpu": "8", "memory": "32Gi"}
    assert pod["containers"][0]["resources"]["limits"]["amd.com/gpu"] == "4"
    assert pod["nodeSelector"]["node.kubernetes.io/instance-type"] == "big"


def test_the_file_begins_with_what_the_plan_says():
    plan = planned("p5.48xlarge", machines=2, workers_per_machine=8, spot=True)
    first, second, third = deploy("kubernetes", plan).splitlines()[:3]
    assert first.startswith("# mlp on digits: 2 × p5.48xlarge, downpour with 16 workers")
    assert second.startswith("# Predicted: ") and "USD" in second
    assert third.startswith("# p5.48xlarge: ") and " per hour, of 20" in third


def test_the_schema_refuses_what_kuberay_would():
    text = deploy("kubernetes", planned())
    for change in ("entryPoint: x", "entrypoint: 3"):
        with pytest.raises(jsonschema.ValidationError):
            read_kubernetes(text.replace("  entrypoint: >-", f"  {change}\n  jobId: >-"))
    with pytest.raises(jsonschema.ValidationError):
        read_kubernetes(text.replace("mountPath: /dev/shm", "mountpath: /dev/shm"))
