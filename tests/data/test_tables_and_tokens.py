"""CSV and parquet tables, and tokens by length, vocabulary and count."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from paceline import data
from paceline.cost.workload_tracing import data_shape_of
from paceline.errors import DataError
from paceline.training.trainer import run
from paceline.workload import resolve

ROWS = [(i * 0.5, ("red", "blue", "green")[i % 3], i % 2) for i in range(40)]


def write(path: Path, rows=ROWS, header: str = "size,colour,label", label=str) -> str:
    lines = [header, *(f"{size},{colour},{label(kind)}" for size, colour, kind in rows)]
    path.write_text("\n".join(lines) + "\n")
    return f"csv:{path}"


def test_a_table_is_standardised_and_every_tenth_row_is_for_testing(tmp_path: Path):
    table = data.load(write(tmp_path / "t.csv"))
    assert (len(table.train), len(table.test), table.shape, table.classes) == (36, 4, (4,), ("0", "1"))
    sizes = np.array([row[0] for row in ROWS])
    tested = np.arange(40) % 10 == 9
    expected = (sizes - sizes[~tested].mean()) / sizes[~tested].std()
    assert table.train.x[:, 0].numpy() == pytest.approx(expected[~tested], abs=1e-6)
    assert table.test.x[:, 0].numpy() == pytest.approx(expected[tested], abs=1e-6)
    colours = [("blue", "green", "red").index(row[1]) for row in ROWS]
    assert table.train.x[:, 1:].argmax(1).tolist() == np.array(colours)[~tested].tolist()
    assert table.test.y.tolist() == [ROWS[i][2] for i in (9, 19, 29, 39)]


def test_classes_may_be_text_and_targets_real(tmp_path: Path):
    named = data.load(write(tmp_path / "t.csv", label=lambda kind: ("no", "yes")[kind]))
    assert named.classes == ("no", "yes")
    real = data.load(write(tmp_path / "t.csv") + "?target=size&drop=label")
    assert real.classes == () and real.shape == (3,) and real.train.y.shape == (36, 1)


def test_a_second_file_is_the_test_part(tmp_path: Path):
    other = write(tmp_path / "other.csv", ROWS[:7]).removeprefix("csv:")
    table = data.load(f"{write(tmp_path / 't.csv')}?test={other}")
    assert (len(table.train), len(table.test)) == (40, 7)
    assert torch.equal(table.train.x[:7], table.test.x)
    (tmp_path / "other.csv").write_text("size,label\n1,0\n")
    with pytest.raises(DataError, match="columns of the test table"):
        data.load(f"{write(tmp_path / 't.csv')}?test={other}")


def test_parquet_gives_the_same_as_csv(tmp_path: Path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = {"size": [r[0] for r in ROWS], "colour": [r[1] for r in ROWS], "label": [r[2] for r in ROWS]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet")
    one, other = data.load(write(tmp_path / "t.csv")), data.load(f"parquet:{tmp_path / 't.parquet'}?target=label")
    assert torch.equal(one.train.x, other.train.x) and torch.equal(one.train.y, other.train.y)
    with pytest.raises(DataError, match="cannot read"):
        data.load(f"parquet:{tmp_path / 't.csv'}")


def test_a_table_can_be_learned(tmp_path: Path):
    rows = [(i * 0.5, "red" if i % 2 else "blue", i % 2) for i in range(200)]
    source = write(tmp_path / "t.csv", rows)
    done = run(resolve("mlp", {"data": source, "options.hidden": 16, "batch": 20, "epochs": 5, "device": "cpu"}))
    assert done.test_accuracy == 1


@pytest.mark.parametrize(
    ("content", "options", "said"),
    [
        (None, "", "cannot read .*No such file"),
        ("a,b\n", "", "at least one row"),
        ("a,a\n1,2\n", "", "two columns of one name"),
        ("a,b\n1\n", "", "row 1 has 1 values for 2 columns"),
        ("a,b\n" + "1,2\n" * 20, "?target=c", "no column 'c'"),
        ("a,b\n" + "1,2\n" * 20 + ",2\n", "", "column 'a' has no value in row 21"),
        ("a,b\n" + "1,2\n" * 20 + "inf,2\n", "", "column 'a' has no finite value in row 21"),
        (
            "a,b\n" + "1,2\n" * 20 + "1,\n",
            "",
            r"column 'b' has no value in row 21 \(1 in all\); fill them in or remove the",
        ),
        ("a,b\n" + "1,2\n" * 20 + "NA,2\n", "", "column 'a' has numbers, but 'NA' in row 21"),
        ("a;b\n" + "1;2\n" * 20, "?target=b", "its columns are separated by ';' instead of commas"),
        ("a,b\n" + "1,2\n" * 20, "?drop=z", "drop=z"),
        ("a,b\n" + "1,2\n" * 20, "?drop=a", "no column is left"),
        ("a,b\n" + "".join(f"name {i},1\n" for i in range(150)), "", "150 different texts; leave it out with drop=a"),
        ("a,b\n1,2\n", "", "too few"),
    ],
)
def test_what_is_wrong_with_a_table_is_said(tmp_path: Path, content: str | None, options: str, said: str):
    path = tmp_path / "t.csv"
    if content is not None:
        path.write_text(content)
    with pytest.raises(DataError, match=said) as raised:
        data.load(f"csv:{path}{options}")
    assert "\n" not in str(raised.value)


def test_tokens_have_the_length_vocabulary_and_count_asked_for():
    made = data.load("tokens:16/50:40")
    assert (made.kind, made.shape, len(made.classes), len(made.train), len(made.test)) == ("text", (16,), 50, 40, 10)
    x, y = made.prepare(made.train.x, made.train.y)
    assert x.shape == y.shape == (40, 16) and torch.equal(x[:, 1:], y[:, :-1]) and int(x.max()) < 50
    follows = ((3 * x + 1) % 50 == y).float().mean()
    assert 0.85 < follows < 0.95, "nine in ten follow from the token before"
    shape = data_shape_of(resolve("transformer", {"data": "tokens:16/50:40"}))
    assert (shape.shape, shape.classes, shape.samples) == ((16,), 50, 40)


@pytest.mark.parametrize(
    ("source", "said"), [("tokens:", "length is missing"), ("tokens:x", "LENGTH/VOCAB"), ("tokens:4/1", "at least 2")]
)
def test_other_tokens_are_refused(source: str, said: str):
    with pytest.raises(DataError, match=said):
        data.load(source)
