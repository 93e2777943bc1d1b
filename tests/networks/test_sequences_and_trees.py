"""What recurrent networks remember, and what a recursive one composes."""

from __future__ import annotations

import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch.nn import functional as F

from paceline import data
from paceline.errors import NetworkError
from paceline.networks import build
from paceline.step.build import placed_network
from paceline.training.trainer import run
from paceline.workload import Workload, resolve


def one_thread(name: str, **settings) -> Workload:
    return resolve(name, {"device": "cpu", "threads": 1, **settings})


def test_a_recursive_network_learns_the_logic_that_counts_of_its_words_do_not_tell():
    workload = one_thread("recursive", data="logic:4:2000", batch=50, epochs=6, lr=0.01)
    logic = data.load(workload.data)
    words = [F.one_hot(part.x.long(), 7).sum(1).numpy() for part in (logic.train, logic.test)]
    bag = LogisticRegression(max_iter=1000).fit(words[0], logic.train.y).score(words[1], logic.test.y)
    assert run(workload).test_accuracy > 0.97 and bag < 0.65


def test_the_state_of_a_tree_is_composed_from_those_of_its_branches():
    torch.manual_seed(0)
    network = build("recursive", shape=(7,), classes=2, kind="tree").eval()
    tree, left = torch.tensor([[4, 3, 2, 1, 0, 0, 0]]), torch.tensor([[3, 1, 0]])
    small = build("recursive", shape=(3,), classes=2, kind="tree").eval()
    small.load_state_dict(network.state_dict())
    leaf = build("recursive", shape=(1,), classes=2, kind="tree").eval()
    leaf.load_state_dict(network.state_dict())
    branches = [small.states(left), leaf.states(torch.tensor([[2]]))]
    inputs = torch.cat([network.embedding(torch.tensor([[4]])), *branches], dim=-1)
    torch.testing.assert_close(network.states(tree), torch.tanh(network.compose(inputs)))


def test_trees_with_unknown_tokens_are_refused():
    with pytest.raises(NetworkError, match="recursive does not take logic:3: its tokens are 0 to 6, the network knows"):
        workload = one_thread("recursive", data="logic:3", **{"options.vocabulary": 5})
        placed_network(workload, data.load("logic:3"), torch.device("cpu"))


@pytest.mark.parametrize(("name", "bar"), [("rnn", 0.35), ("gru", 0.8), ("lstm", 0.7)])
def test_a_recurrent_network_learns_to_add_over_a_few_steps(name: str, bar: float):
    """Guessing the most frequent sum is right in a fifth of the cases."""
    done = run(one_thread(name, data="adding:4:3000", batch=50, epochs=8, lr=0.01, **{"options.hidden": 32}))
    assert done.test_accuracy > bar


def test_recurrent_networks_of_several_layers_answer_by_the_last_one():
    for name in ("rnn", "gru", "lstm"):
        torch.manual_seed(0)
        network = build(name, shape=(1, 4, 3), classes=2, depth=2, hidden=5).eval()
        layer, x = getattr(network, name), torch.randn(2, 1, 4, 3)
        assert layer.num_layers == 2
        torch.testing.assert_close(network(x), network.output(layer(x[:, 0])[0][:, -1]))


def test_figures_show_what_was_understood(tmp_path):
    import paceline

    run(one_thread("gru", data="adding:4:200", batch=50, epochs=1), out=tmp_path / "gru")
    run(one_thread("recursive", data="logic:3:200", batch=50, epochs=1), out=tmp_path / "recursive")
    (line,) = paceline.draw(tmp_path / "gru").axes[0].lines
    assert line.get_xdata().tolist() == [1, 2, 3, 4] and 0 <= min(line.get_ydata()) <= max(line.get_ydata()) <= 100
    assert "States of test trees" in paceline.draw(tmp_path / "recursive").axes[0].get_title()
