"""Every network computes: forward and backward, in every precision, repeatably, and without looking ahead."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from paceline.errors import NetworkError
from paceline.networks import build, built_in_networks
from paceline.networks.criterion import HasCriteria
from tests.cpu_abilities import has_bfloat16_lstm

# The smallest samples each network takes without trouble, so that real passes stay quick.
SMALL = {
    "mlp": (1, 6, 6),
    "dnn": (9,),
    "rnn": (2, 5, 4),
    "gru": (2, 5, 4),
    "lstm": (2, 5, 4),
    "lenet5": (1, 12, 12),
    "alexnet": (1, 63, 63),
    "vgg11": (1, 32, 32),
    "vgg16": (1, 32, 32),
    "googlenet": (1, 32, 32),
    "resnet18": (1, 32, 32),
    "resnet50": (1, 32, 32),
    "resnet20": (1, 8, 8),
    "textlstm": (7,),
    "transformer": (7,),
    "recursive": (7,),
    "rbm": (1, 6, 5),
    "dbn": (1, 6, 5),
    "autoencoder": (1, 6, 5),
    "vae": (1, 6, 5),
    "cvae": (6,),
    "deconvolutional": (1, 6, 5),
    "gan": (1, 6, 5),
}
RECONSTRUCTING = ("rbm", "autoencoder", "vae", "cvae", "deconvolutional")
"""Their outputs have the shape of their inputs."""
OUTPUTS = {"gan": 1}
"""Where they are not as many as classes."""
TEXT = ("textlstm", "transformer")
TREES = ("recursive",)
GATED = ("gru", "lstm", "textlstm")
WITHOUT_DROPOUT = ("rbm",)
"""Networks that refuse it."""
WITH_DROPOUT = ("dnn", "alexnet", "vgg11", "vgg16", "googlenet", "transformer")
# VGG's fully connected layers alone hold 120 million parameters: one pass each is enough.
QUICK = tuple(name for name in SMALL if name not in ("alexnet", "vgg11", "vgg16"))


def small(name: str, **settings: object) -> nn.Module:
    torch.manual_seed(0)
    return build(name, shape=SMALL[name], classes=5, kind=kind(name), **settings)


def kind(name: str) -> str:
    if name in (*TEXT, *TREES):
        return "text" if name in TEXT else "tree"
    return "table" if len(SMALL[name]) == 1 else "image"


def samples(name: str, count: int = 3) -> torch.Tensor:
    shape = (count, *SMALL[name])
    generator = torch.Generator().manual_seed(1)
    if name in (*TEXT, *TREES):
        return torch.randint(0, 5, shape, generator=generator)
    return torch.randn(shape, generator=generator)


def first(output: torch.Tensor | tuple[torch.Tensor, ...]) -> torch.Tensor:
    return output[0] if isinstance(output, tuple) else output


def total(output: torch.Tensor | tuple[torch.Tensor, ...]) -> torch.Tensor:
    parts = output if isinstance(output, tuple) else (output,)
    return torch.stack([part.square().mean() for part in parts]).sum()


def test_every_network_is_covered():
    assert set(SMALL) == {description.name for description in built_in_networks()}


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in SMALL])
def test_forward_and_backward_are_finite_and_reach_every_parameter(name):
    network = small(name).train()
    output = network(samples(name))
    expected = (3, *SMALL[name]) if name in RECONSTRUCTING else (3, 7, 5) if name in TEXT else (3, OUTPUTS.get(name, 5))
    assert first(output).shape == expected
    if isinstance(network, HasCriteria):
        found = [criterion.loss(samples(name), torch.arange(3)) for criterion in network.criteria()]
        losses = [first(loss) for loss in found]  # a classifier's scores come with it
        assert all(loss.shape == () for loss in losses)
        output = tuple(losses)
    total(output).backward()
    for parameter_name, parameter in network.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert torch.isfinite(parameter.grad).all(), parameter_name


@pytest.mark.parametrize("description", built_in_networks(), ids=lambda description: description.name)
def test_native_size_passes_without_memory(description):
    with torch.device("meta"):
        network = build(
            description.name, shape=description.shape, classes=description.classes, kind=description.kinds[0]
        )
        text, whole = description.name in TEXT, description.name in (*TEXT, *TREES)
        x = torch.empty(2, *description.shape, dtype=torch.long if whole else torch.float32)
        trained = network.train()(x)
        evaluated = network.eval()(x)
    outputs = OUTPUTS.get(description.name, description.classes)
    expected = (2, *description.shape, outputs) if text else (2, outputs)
    expected = x.shape if description.name in RECONSTRUCTING else expected
    assert evaluated.shape == first(trained).shape == expected


@pytest.mark.parametrize("name", QUICK)
def test_a_seed_fixes_weights_and_output(name):
    one, other = small(name).eval(), small(name).eval()
    x = samples(name)
    assert torch.equal(one(x), other(x))


@pytest.mark.parametrize("name", QUICK)
def test_saved_parameters_load_in_a_fresh_instance(name):
    network = small(name).eval()
    torch.manual_seed(99)
    fresh = build(name, shape=SMALL[name], classes=5, kind=kind(name)).eval()
    x = samples(name)
    assert not torch.equal(network(x), fresh(x))
    fresh.load_state_dict(network.state_dict())
    assert torch.equal(network(x), fresh(x))


@pytest.mark.parametrize("name", QUICK)
def test_float64_and_bfloat16(name):
    network = small(name).eval()
    x = samples(name)
    with torch.no_grad():
        single = network(x)
        if name not in (*GATED, "rnn") or has_bfloat16_lstm():
            with torch.autocast("cpu", torch.bfloat16):
                rough = network(x).float()
            torch.testing.assert_close(single, rough, rtol=0.2, atol=0.2)
        double = network.double()(x if not x.is_floating_point() else x.double())
    assert double.dtype is torch.float64
    torch.testing.assert_close(single.double(), double, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["mlp", "gru", "lstm", "lenet5", "resnet20", "textlstm", "transformer", "recursive"])
def test_one_graph_holds_the_whole_forward_pass(name):
    network = small(name, dropout=0.0).train()
    x = samples(name)
    torch._dynamo.reset()
    # The compiler steps over PyTorch's LSTM unless it is told to take it in.
    with torch._dynamo.config.patch(allow_rnn=True):
        compiled = torch.compile(network, backend="eager", fullgraph=True)
        torch.testing.assert_close(first(compiled(x)), first(network(x)))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", SMALL)
def test_a_cuda_graph_captures_forward_and_backward(name):
    network = small(name, dropout=0.0).cuda().train()
    x = samples(name).cuda()
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            network.zero_grad(set_to_none=True)
            total(network(x)).backward()
    torch.cuda.current_stream().wait_stream(aside)
    network.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = network(x)
        total(output).backward()
    graph.replay()
    torch.testing.assert_close(first(output), first(network(x)), rtol=1e-2, atol=1e-3)
    assert all(torch.isfinite(parameter.grad).all() for parameter in network.parameters())


def test_googlenet_returns_auxiliary_outputs_in_training_alone():
    network = small("googlenet")
    assert network.auxiliary_weight == 0.3
    main, aux1, aux2 = network.train()(samples("googlenet"))
    assert main.shape == aux1.shape == aux2.shape == (3, 5)
    assert isinstance(network.eval()(samples("googlenet")), torch.Tensor)
    without = small("googlenet", auxiliary=False)
    assert not hasattr(without, "auxiliary_weight")
    assert isinstance(without.train()(samples("googlenet")), torch.Tensor)


@pytest.mark.parametrize("name", TEXT)
def test_a_later_character_never_changes_an_earlier_output(name):
    network = small(name).eval()
    x = samples(name)
    before = network(x)
    for place in range(1, x.shape[1]):
        changed = x.clone()
        changed[:, place] = (changed[:, place] + 1) % 5
        after = network(changed)
        torch.testing.assert_close(after[:, :place], before[:, :place], rtol=0, atol=1e-6)
        assert not torch.allclose(after[:, place:], before[:, place:])


@pytest.mark.parametrize("name", TEXT)
def test_shorter_windows_pass_too(name):
    network = small(name).eval()
    x = samples(name)
    torch.testing.assert_close(network(x[:, :3]), network(x)[:, :3])


@pytest.mark.parametrize("description", built_in_networks(), ids=lambda description: description.name)
def test_dropout_takes_effect(description):
    if description.name in WITHOUT_DROPOUT:
        with pytest.raises(NetworkError, match=r"dropout 0\.25 cannot be set"):
            build(description.name, shape=description.shape, classes=7, kind=description.kinds[0], dropout=0.25)
        return

    def probabilities(dropout: float | None) -> set[float]:
        with torch.device("meta"):
            network = build(
                description.name,
                shape=description.shape,
                classes=7,
                kind=description.kinds[0],
                dropout=dropout,
            )
        return {layer.p for layer in network.modules() if isinstance(layer, nn.Dropout)}

    assert probabilities(0.25) == {0.25}
    assert probabilities(0.0) == set()
    assert bool(probabilities(None)) == (description.name in WITH_DROPOUT)


def test_own_dropout_is_the_published_one():
    def own(name: str, shape: tuple[int, ...]) -> list[float]:
        with torch.device("meta"):
            network = build(name, shape=shape, classes=7)
        return [layer.p for layer in network.modules() if isinstance(layer, nn.Dropout)]

    assert own("dnn", (1, 28, 28)) == [0.2, 0.2]
    assert own("alexnet", (3, 224, 224)) == [0.5, 0.5]
    assert own("vgg16", (3, 224, 224)) == [0.5, 0.5]
    assert own("googlenet", (3, 224, 224)) == [0.7, 0.7, 0.2]


@pytest.mark.parametrize("name", ["mlp", "lstm", "lenet5", "resnet20", "textlstm"])
def test_dropout_changes_training_but_not_evaluation(name):
    network = small(name, dropout=0.5)
    x = samples(name)
    assert not torch.equal(network.train()(x), network(x))
    assert torch.equal(network.eval()(x), network(x))


@pytest.mark.parametrize(("activation", "layer"), [("sigmoid", nn.Sigmoid), ("tanh", nn.Tanh), ("relu", nn.ReLU)])
@pytest.mark.parametrize("name", [name for name in SMALL if name not in (*GATED, "rnn", "rbm", "dbn")])
def test_activation_can_be_set(name, activation, layer):
    with torch.device("meta"):
        network = small(name, activation=activation)
    found = {type(module) for module in network.modules()} & {nn.Sigmoid, nn.Tanh, nn.ReLU, nn.GELU}
    assert found == {layer}
