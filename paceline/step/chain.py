"""The gradient of a plain chain of layers, written out instead of recorded and differentiated.

Linear layers, activations and dropout in a row, under cross entropy, have a gradient of a dozen operations
into memory that is there already. Autograd needs twice as many, each with bookkeeping; for the small networks
this is for, that is most of a step. Operations and random numbers are the ones PyTorch itself uses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Protocol

import torch
from torch import Tensor, nn

from paceline.data.dataset import Dataset
from paceline.step.flat_parameters import FlatParameters
from paceline.step.phase import Batch, LossPhase, Outcome, Phase

aten = torch.ops.aten


class ChainLayer(Protocol):
    """A layer of the chain: `forward` remembers what `backward` needs."""

    def forward(self, x: Tensor) -> Tensor: ...

    def backward(self, g: Tensor, beside: SideStream) -> Tensor: ...


class SideStream:
    """Work that may run beside what follows. In a graph it becomes a branch; small kernels leave room for it."""

    def __init__(self, device: torch.device) -> None:
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self.forked = False
        self.context: torch.cuda.StreamContext | None = None

    def __enter__(self) -> None:
        if self.stream is not None and torch.cuda.is_current_stream_capturing():
            self.stream.wait_stream(torch.cuda.current_stream())
            self.context = torch.cuda.stream(self.stream)
            self.context.__enter__()
            self.forked = True

    def __exit__(self, *error: object) -> None:
        if self.context is not None:
            self.context.__exit__(*error)
            self.context = None

    def join(self) -> None:
        if self.forked and self.stream is not None:
            torch.cuda.current_stream().wait_stream(self.stream)
            self.forked = False


class Linear:
    def __init__(self, weight: Tensor, bias: Tensor, d_weight: Tensor, d_bias: Tensor, batch: int, first: bool) -> None:
        self.weight_t, self.weight, self.bias = weight.t(), weight, bias
        self.d_weight, self.d_bias = d_weight, d_bias
        self.out = weight.new_empty(batch, weight.shape[0])
        self.d_in = None if first else weight.new_empty(batch, weight.shape[1])
        # On a GPU a product with ones adds up a batch in a third of the time of a reduction, and adding the
        # bias afterwards is cheaper than the kernel that a small product with a bias is given.
        self.ones = weight.new_ones(batch) if weight.is_cuda else None

    def forward(self, x: Tensor) -> Tensor:
        self.x = x
        if self.ones is not None:
            return torch.mm(x, self.weight_t, out=self.out).add_(self.bias)
        return torch.addmm(self.bias, x, self.weight_t, out=self.out)

    def backward(self, g: Tensor, beside: SideStream) -> Tensor:
        with beside:
            if self.d_in is not None:
                torch.mm(g.t(), self.x, out=self.d_weight)
            if self.ones is None:
                torch.sum(g, 0, out=self.d_bias)
            else:
                torch.mv(g.t(), self.ones, out=self.d_bias)
        if self.d_in is None:
            torch.mm(g.t(), self.x, out=self.d_weight)
            return g
        return torch.mm(g, self.weight, out=self.d_in)


class Tanh:
    def forward(self, x: Tensor) -> Tensor:
        self.y = x.tanh_()
        return self.y

    def backward(self, g: Tensor, beside: SideStream) -> Tensor:
        return aten.tanh_backward.grad_input(g, self.y, grad_input=g)  # type: ignore[no-any-return]


class Sigmoid:
    def forward(self, x: Tensor) -> Tensor:
        self.y = x.sigmoid_()
        return self.y

    def backward(self, g: Tensor, beside: SideStream) -> Tensor:
        return aten.sigmoid_backward.grad_input(g, self.y, grad_input=g)  # type: ignore[no-any-return]


class Relu:
    def forward(self, x: Tensor) -> Tensor:
        self.y = x.relu_()
        return self.y

    def backward(self, g: Tensor, beside: SideStream) -> Tensor:
        return aten.threshold_backward.grad_input(g, self.y, 0, grad_input=g)  # type: ignore[no-any-return]


class Dropout:
    """Draws its mask as `nn.Dropout` does on the CPU and on a GPU, which differ."""

    def __init__(self, rate: float) -> None:
        self.rate, self.keep = rate, 1.0 - rate

    def forward(self, x: Tensor) -> Tensor:
        if x.is_cuda:
            kept, self.mask = torch.native_dropout(x, self.rate, True)
            return kept
        self.mask = torch.empty_like(x).bernoulli_(self.keep).div_(self.keep)
        return x * self.mask

    def backward(self, g: Tensor, beside: SideStream) -> Tensor:
        if g.is_cuda:
            return aten.native_dropout_backward(g, self.mask, 1.0 / self.keep)  # type: ignore[no-any-return]
        return g.mul_(self.mask)


class Output(Linear):
    """The last linear layer and the loss: log-probabilities out, their slopes in.

    On the CPU the classes are the first dimension of what is computed: a softmax over a short last dimension
    takes ten times as long.
    """

    def __init__(self, weight: Tensor, bias: Tensor, d_weight: Tensor, d_bias: Tensor, batch: int, first: bool) -> None:
        super().__init__(weight, bias, d_weight, d_bias, batch, first)
        self.upright = not weight.is_cuda
        self.logits = weight.new_empty(weight.shape[0], batch) if self.upright else self.out
        self.column = bias.unsqueeze(1)

    def forward(self, x: Tensor) -> Tensor:
        if not self.upright:
            self.y = torch.log_softmax(super().forward(x), 1)
            return self.y
        self.x = x
        self.y = torch.log_softmax(torch.addmm(self.column, self.weight, x.t(), out=self.logits), 0)
        return self.y.t()

    def backward(self, slopes: Tensor, beside: SideStream) -> Tensor:
        if not self.upright:
            return super().backward(torch._log_softmax_backward_data(slopes, self.y, 1, self.y.dtype), beside)
        g = torch._log_softmax_backward_data(slopes.t(), self.y, 0, self.y.dtype)
        torch.mm(g, self.x, out=self.d_weight)
        torch.sum(g, 1, out=self.d_bias)
        return g if self.d_in is None else torch.mm(g.t(), self.weight, out=self.d_in)


class Chain:
    """A network that is a chain, for batches of one size; its gradient goes straight into `flat.gradient`."""

    def __init__(self, network: nn.Sequential, flat: FlatParameters, batch: int) -> None:
        values = dict(zip(map(id, flat.parameters), flat.views, strict=True))
        slopes = dict(zip(map(id, flat.parameters), flat.split(flat.gradient), strict=True))
        self.batch = batch
        self.beside = SideStream(flat.buffer.device)
        self.links: list[ChainLayer] = []
        self.linear: list[Linear] = []
        self.names: list[str] = []
        self.watch: Callable[[str, str], None] | None = None
        """Told which part of which layer comes next; a layer clock sets it for the steps it samples."""
        for name, layer in network.named_children():
            if isinstance(layer, nn.Flatten) or (isinstance(layer, nn.Dropout) and not layer.p):
                continue  # nothing to do: PyTorch draws no mask for a dropout of 0
            self.names.append(name)
            if isinstance(layer, nn.Linear):
                kind = Output if layer is network[-1] else Linear
                w, b = id(layer.weight), id(layer.bias)
                link = kind(values[w], values[b], slopes[w], slopes[b], batch, first=not self.links)
                self.links.append(link)
                self.linear.append(link)
            elif isinstance(layer, nn.Dropout):
                self.links.append(Dropout(layer.p))
            elif type(layer) in _ACTIVATIONS:
                self.links.append(_ACTIVATIONS[type(layer)]())
        numbers = {id(p): number for number, p in enumerate(flat.parameters)}
        linear = (layer for layer in network if isinstance(layer, nn.Linear))
        self._numbers = [(numbers[id(layer.weight)], numbers[id(layer.bias)]) for layer in linear]
        """Of each linear layer's weight and bias among the parameters."""
        classes = values[id(network[-1].bias)].shape[0]
        # The loss differentiated by the log-probabilities: -1/batch at the right class of each sample.
        self.slope = torch.eye(classes, dtype=flat.buffer.dtype, device=flat.buffer.device).mul_(-1.0 / batch)

    def aim(self, slopes: Sequence[Tensor]) -> None:
        """Lets the gradient go to these tensors from now on, one for each parameter."""
        for link, (weight, bias) in zip(self.linear, self._numbers, strict=True):
            link.d_weight, link.d_bias = slopes[weight], slopes[bias]

    def slopes_of(self, labels: Tensor) -> Tensor:
        """A row of slopes a label; the matrix is symmetric, so columns can be taken where those are wanted."""
        return self.slope.index_select(0, labels) if self.slope.is_cuda else self.slope.index_select(1, labels).t()

    @staticmethod
    def of(phase: Phase, flat: FlatParameters, batch: int, dataset: Dataset) -> Chain | None:
        """The chain a phase's network is, or None when it is something else."""
        if type(phase) is not LossPhase or phase.loss_name != "cross-entropy" or phase.autocast or phase.micro_batch:
            return None
        network = phase.network
        if type(network) is not nn.Sequential or not dataset.classes or not _is_chain(network, flat, dataset.shape):
            return None
        return Chain(network, flat, batch)

    def gradient(self, batch: Batch) -> Outcome:
        """Fills `flat.gradient`. The loss is left to be computed from the outputs, many steps at a time.

        In place of labels the batch may hold what `slopes_of` makes of them.
        """
        x, y = batch
        assert isinstance(x, Tensor)
        watch = self.watch
        h = x.flatten(1)
        for name, link in zip(self.names, self.links, strict=True):
            if watch is not None:
                watch("forward", name)
            h = link.forward(h)
        g = y if y.is_floating_point() else self.slopes_of(y)
        for name, link in zip(reversed(self.names), reversed(self.links), strict=True):
            if watch is not None:
                watch("backward", name)
            g = link.backward(g, self.beside)
        self.beside.join()
        return Outcome(None, (), h)


_ACTIVATIONS: dict[type[nn.Module], type[Tanh | Sigmoid | Relu]] = {
    nn.Tanh: Tanh,
    nn.Sigmoid: Sigmoid,
    nn.ReLU: Relu,
}


def _is_chain(network: nn.Sequential, flat: FlatParameters, shape: tuple[int, ...]) -> bool:
    """Takes rows, starts and ends with a linear layer, holds nothing unknown, and nobody listens in."""
    layers = list(network)
    if layers and type(layers[0]) is nn.Flatten and layers[0].start_dim == 1 and layers[0].end_dim == -1:
        layers = layers[1:]
    elif len(shape) != 1:
        return False
    if any(_is_watched(layer) for layer in [network, *layers]):
        return False
    kinds = [type(layer) for layer in layers]
    if not kinds or kinds[0] is not nn.Linear or kinds[-1] is not nn.Linear:
        return False
    # An activation overwrites its input, which the one before it would still need.
    if any(a in _ACTIVATIONS and b in _ACTIVATIONS for a, b in pairwise(kinds)):
        return False
    if not all(_is_link(layer) for layer in layers):
        return False
    own = [id(p) for layer in layers for p in layer.parameters()]
    return len(own) == len(flat.parameters) and set(own) == {id(p) for p in flat.parameters}


def _is_link(layer: nn.Module) -> bool:
    if type(layer) is nn.Linear:
        return layer.bias is not None
    return type(layer) in _ACTIVATIONS or (type(layer) is nn.Dropout and layer.p < 1.0)


def _is_watched(layer: nn.Module) -> bool:
    hooks = layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks or layer._backward_pre_hooks
    return bool(hooks) or any(p._backward_hooks for p in layer.parameters(recurse=False))
