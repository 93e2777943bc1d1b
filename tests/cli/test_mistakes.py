"""A mistake on the command line is answered with one line that says what to do, never with a stack trace."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from time import process_time

import numpy as np
import pytest
import torch
from PIL import Image


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["trian"], "No such command 'trian'"),
        (["train", "mlp", "--colour", "red"], "No such option: --colour"),
        (["train", "mlp", "dnn"], "dnn"),
        (["evaluate"], "Missing argument 'RUN'. (see paceline evaluate --help)"),
        (["data", "fecth", "mnist"], "No such command 'fecth'"),
    ],
)
def test_words_that_are_not_understood_name_the_help(paceline, arguments, expected):
    line = paceline(*arguments).refused()
    assert expected in line and "--help)" in line


def test_an_option_without_its_value(paceline):
    assert paceline("train", "mlp", "--batch").refused() == "Option '--batch' requires an argument."


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "name a workload to train (see paceline models), or --resume a run"),
        (["--epochs", "3"], "name a workload to train (see paceline models), or --resume a run"),
        (["lenet6"], "no network 'lenet6': did you mean lenet5"),
        (["none.toml"], "none.toml: no such file"),
        (["mine.py"], "'mine.py': name the function too, as in mine:build"),
        (["nowhere_to_be_found:build"], "no module 'nowhere_to_be_found' here"),
        (["mlp", "--out", ""], "Invalid value for '--out': it is empty"),
        (["mlp", "--batch", "5000"], "batch 5000 is larger than the data: digits has 1,437 samples"),
        (["mlp", "--batch", "many"], "batch='many' should be a whole number from 1 to"),
        (["mlp", "--batch", "0"], "batch=0 should be a whole number from 1 to"),
        (["mlp", "--epochs", "0"], "epochs=0 should be a whole number from 1 to"),
        (["mlp", "--lr", "nan"], "lr=nan is not a finite number"),
        (["mlp", "--set", "lr=nan"], "lr=nan is not a finite number"),
        (["mlp", "--lr", "-1"], "lr=-1 should be a number above 0"),
        (["mlp", "--optimizer", "adan"], "optimizer 'adan' is unknown: did you mean adam"),
        (["mlp", "--precision", "tf32", "--device", "cpu"], "precision 'tf32' needs a GPU"),
        (["mlp", "--device", "gpu"], "device 'gpu' is not one of auto, cpu, cuda, cuda:N"),
        (["mlp", "--device", "auto:1"], "device 'auto:1' is not one of auto, cpu, cuda, cuda:N"),
        (["mlp", "--set", "dropuot=0.5"], "no setting 'dropuot' for train: did you mean dropout?"),
        (["mlp", "--set", "dropout"], "--set 'dropout' should be KEY=VALUE"),
        (["mlp", "--set", "dropout=1"], "dropout=1 should be a number of at least 0 and below 1"),
        (["mlp", "--set", "schedule=sine"], "schedule 'sine'"),
        (
            ["mlp", "--set", "options.hiden=3"],
            "option 'hiden' is unknown to network 'mlp': did you mean hidden?",
        ),
        (["mlp", "--set", "init=best"], "init"),
        (["mlp", "--step", "fast"], "step 'fast' is unknown: "),
        (
            ["mlp", "--step", "graph", "--device", "cpu"],
            "step 'graph' is not possible here: there is no GPU in use",
        ),
        (["mlp", "--data", "digts"], "no data source 'digts': did you mean digits"),
        (["mlp", "--data", "digits:0"], "the count 0 must be a whole number of at least 1"),
        (["mlp", "--data", "digits:9999"], "the count 9999 is more than the 1437 training samples"),
        (["mlp", "--data", "text:none.txt"], "cannot read none.txt: No such file or directory"),
        (["mlp", "--data", "arrays:none"], "none"),
        (["mlp", "--data", "images:none"], "none"),
        (["mlp", "--data", "text"], "network 'mlp' takes image or table data, not text"),
        (["vgg16", "--data", "digits"], "shape (1, 8, 8) is too small for 'vgg16'"),
        (["--resume", "none"], "none: no such directory"),
        (["--resume", "a", "--out", "b"], "--out and --resume cannot be combined"),
    ],
)
def test_training_that_cannot_be_done_as_asked(paceline, tmp_path, arguments, expected):
    assert expected in paceline("train", *arguments).refused()
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_a_gpu_that_is_not_there(paceline, device):
    line = paceline("train", "mlp", "--device", device).refused()
    assert line == f"device '{device}' is not available: this machine has no GPU; use --device auto or cpu"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('network = "mlp"\nbacth = 3\n', "workload.toml: no key 'bacth' in a workload: did you mean batch?"),
        ("batch = '3\n", "workload.toml: not valid TOML: "),
        ('batch = "three"\n', "workload.toml: batch='three' should be a whole number"),
        ("batch = 2.5\n", "workload.toml: batch=2.5 should be a whole number"),
        ("lr = -1\n", "workload.toml: lr=-1 should be a number above 0"),
        ('network = ["mlp"]\n', "workload.toml: network=['mlp'] should be text"),
    ],
)
def test_a_workload_file_with_a_mistake(paceline, tmp_path, text, expected):
    (tmp_path / "workload.toml").write_text(text)
    assert expected in paceline("train", "workload.toml").refused()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("raise ValueError('two\\nlines')\n", "importing my_nets failed: ValueError: two lines"),
        (
            "import sys\nsys.exit(0)\n",
            "importing my_nets ends the program (exit 0); put what only the script",
        ),
        ("def build():\n    return 3\n", "my_nets:build returned an int; it should return an nn.Module"),
        ("def build():\n    return undefined\n", "my_nets:build failed: NameError"),
        (
            "import torch\ntorch.ones(1, requires_grad=True).backward()\n",
            "importing my_nets starts training; put what only the script should do under: if __name__ ==",
        ),
        (
            "from torch import nn\ndef build():\n    return nn.Linear(3, 10)\n",
            "my_nets:build does not take digits's samples of shape (1, 8, 8)",
        ),
        (
            "from torch import nn\ndef build():\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, 4))\n",
            "my_nets:build has 4 outputs, digits has 10 classes",
        ),
    ],
)
def test_a_function_of_the_users_own_with_a_mistake(paceline, tmp_path, monkeypatch, source, expected):
    (tmp_path / "my_nets.py").write_text(source)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "my_nets", raising=False)
    assert expected in paceline("train", "my_nets:build").refused()
    sys.modules.pop("my_nets", None)


def test_an_unguarded_script_that_calls_paceline(tmp_path):
    """In a process of its own, as users have it: the script trains once when run, and never when imported."""
    (tmp_path / "script.py").write_text(
        "import paceline\n"
        "from torch import nn\n"
        "def build():\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))\n"
        "print('training')\n"
        "paceline.train(paceline.resolve('script:build', {'epochs': 1}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "paceline", "train", "script:build", "--epochs", "1"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert 'if __name__ == "__main__":' in done.stderr
    assert done.stdout.count("training") <= 1
    assert not (tmp_path / "runs").exists()


# Data


def arrays(folder: Path) -> Path:
    folder.mkdir()
    for part, count in (("train", 20), ("test", 5)):
        np.save(folder / f"x_{part}.npy", np.zeros((count, 4), dtype=np.float32))
        np.save(folder / f"y_{part}.npy", np.arange(count) % 2)
    return folder


def test_a_data_file_that_is_missing(paceline, tmp_path):
    folder = arrays(tmp_path / "data")
    (folder / "y_test.npy").unlink()
    assert "y_test.npy is missing" in paceline("train", "mlp", "--data", f"arrays:{folder}").refused()


def test_a_data_file_that_was_cut_short(paceline, tmp_path):
    folder = arrays(tmp_path / "data")
    whole = (folder / "x_train.npy").read_bytes()
    (folder / "x_train.npy").write_bytes(whole[: len(whole) // 2])
    assert "x_train.npy cannot be read" in paceline("train", "mlp", "--data", f"arrays:{folder}").refused()


def test_published_data_that_are_corrupt(paceline, tmp_path):
    folder = tmp_path / "mnist"
    folder.mkdir()
    for name in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
        (folder / f"{name}-ubyte").write_bytes(b"\x00\x00\x08\x01")
    arguments = ["train", "mlp", "--data", f"mnist?path={folder}", "--data-dir", str(tmp_path / "cache")]
    assert "train-images-idx3-ubyte" in paceline(*arguments).refused()


def test_a_class_folder_without_images(paceline, tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
    for number in range(3):
        Image.new("RGB", (8, 8)).save(tmp_path / "photos" / "cat" / f"{number}.png")
    line = paceline("train", "lenet5", "--data", "images:photos?size=32", "--batch", "1").refused()
    assert f"class folder {tmp_path / 'photos' / 'dog'} has no images" in line


# Runs


def test_a_directory_that_is_not_empty(paceline, trained):
    line = paceline("train", "mlp", "--out", trained).refused()
    assert line == f"--out {trained} is not empty: choose another directory, or resume the run in it"


def test_a_file_where_the_directory_should_be(paceline, tmp_path):
    (tmp_path / "file").write_text("")
    assert paceline("train", "mlp", "--out", "file").refused() == "--out file is a file: choose a directory"
    assert "Not a directory" in paceline("train", "mlp", "--out", "file/run").refused()


def test_a_checkpoint_of_another_network(paceline, trained_copy):
    before = (trained_copy / "record.json").read_bytes()
    line = paceline("train", "lenet5", "--resume", trained_copy).refused()
    assert line == f"{trained_copy} belongs to another network: its network is 'mlp', not 'lenet5'"
    assert (trained_copy / "record.json").read_bytes() == before


@pytest.mark.parametrize("change", [["--lr", "0.5"], ["--batch", "7"], ["--set", "l2=0.1"], ["--seed", "4"]])
def test_a_run_that_goes_on_keeps_its_settings(paceline, trained_copy, change):
    line = paceline("train", "--resume", trained_copy, *change).refused()
    assert line.startswith(f"{trained_copy} belongs to another run: its ")


@pytest.mark.parametrize("share", [0, 0.3, 0.95])
def test_a_checkpoint_that_was_cut_short(paceline, trained_copy, share):
    path = trained_copy / "checkpoint.pt"
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    for arguments in (["train", "--resume", trained_copy], ["evaluate", trained_copy], ["evaluate", path]):
        assert f"{path} is not a whole checkpoint" in paceline(*arguments).refused()


def test_a_run_without_a_checkpoint(paceline, trained_copy):
    (trained_copy / "checkpoint.pt").unlink()
    assert "has no checkpoint.pt" in paceline("train", "--resume", trained_copy).refused()
    assert "no checkpoint at" in paceline("evaluate", trained_copy).refused()
    (trained_copy / "record.json").unlink()
    assert "is not the directory of a run" in paceline("train", "--resume", trained_copy).refused()


def test_a_setting_without_an_option_of_its_own_is_given_with_set(paceline):
    said = paceline("measure", "mlp", "--optimizer", "adam").refused()
    assert "No such option: --optimizer; give it as --set optimizer=VALUE" in said
    assert "(see paceline measure --help)" in paceline("measure", "mlp", "--optimiser", "adam").refused()


def test_evaluating_on_data_of_another_shape(paceline, trained):
    line = paceline("evaluate", trained, "--data", "synthetic:1x9x9/10").refused()
    assert "belongs to another network: fc1.weight is (50, 64), not (50, 81)" in line


def test_json_that_cannot_be_written(paceline, tmp_path):
    (tmp_path / "file").write_text("")
    assert "--json file/x.json cannot be written: " in paceline("models", "--json", "file/x.json").refused()


# Disks


@pytest.fixture
def small_disk(tmp_path):
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_disk_that_is_full(paceline, small_disk):
    result = paceline("train", "lenet5", "--data", "digits", "--epochs", "1", "--out", small_disk / "run")
    line = result.refused()
    assert line == f"cannot write {small_disk}/run/checkpoint.pt: No space left on device (the disk is full)"
    assert not [path for path in (small_disk / "run").iterdir() if path.name.endswith(".tmp")]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_standard_output_that_is_full(tmp_path):
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "paceline", "models", "--json", "-"]
        done = subprocess.run(command, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "paceline: cannot write the result: No space left on device"
    assert "Traceback" not in done.stderr


def test_a_reader_that_stops_reading(tmp_path):
    command = f"{sys.executable} -m paceline models --json - 2>err | true"
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    assert "Traceback" not in (tmp_path / "err").read_text()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["simulate", "mlp", "--workers", "2", "--steps", "1000000000000"], "steps=1,000,000,000,000"),
        (["simulate", "mlp", "--workers", "1000000000"], "workers=1000000000"),
        (
            ["simulate", "mlp", "--workers", "2", "--cluster", "g2-standard-8", "--per-machine", "1000000000"],
            "per-machine=1,000,000,000 should be from 1 to",
        ),
        (["plan", "mlp", "--epochs", "1e300"], "epochs=1e+300 should be from"),
        (["plan", "mlp", "--budget", "1e308"], "--budget 1e308 should be"),
        (
            ["measure", "mlp", "--iterations", "100000000000"],
            "iterations=100000000000 should be a whole number from 20",
        ),
        (["train", "mlp", "--strategy", "sync", "--workers", "1000000000"], "workers=1000000000"),
        (["train", "mlp", "--data", "sys:exit"], "data 'sys:exit' ends the program (exit None)"),
        (["train", "deep.toml"], "deep.toml: not valid TOML: tables or lists are nested too deeply"),
        (["train", "digits.toml"], "digits.toml: not valid TOML: Exceeds the limit"),
        (["plan", "mlp", "--cluster", "deep.toml"], "deep.toml: not valid TOML"),
        (["compare", "digits.toml"], "digits.toml: not valid TOML: Exceeds the limit"),
        (["models", "--json", "/"], "--json / is a directory"),
        (["data", "list", "--json", "loop"], "--json loop cannot be written: Too many levels of symbolic links"),
    ],
)
def test_values_beyond_all_measure_are_one_line_at_once(paceline, tmp_path, arguments, expected):
    (tmp_path / "deep.toml").write_text("a = " + "[" * 5000)
    (tmp_path / "digits.toml").write_text("batch = " + "9" * 5000)
    (tmp_path / "loop").symlink_to("loop")
    began_s = process_time()
    assert expected in paceline(*arguments).refused()
    assert process_time() - began_s < 2


def test_a_kernel_that_the_cpu_lacks_is_one_line(paceline, monkeypatch):
    def lacking(*_: object) -> None:
        raise RuntimeError("could not create a primitive descriptor for the LSTM forward propagation primitive")

    monkeypatch.setattr(torch.nn.LSTM, "forward", lacking)
    line = paceline("train", "lstm", "--precision", "bfloat16", "--device", "cpu").refused()
    assert line == "precision 'bfloat16': PyTorch has no such kernel for lstm on this CPU; use float32, or a GPU"


def test_a_network_that_ends_the_program_is_a_failure(paceline, tmp_path, monkeypatch):
    source = (
        "import sys\nfrom torch import nn\nclass Ends(nn.Flatten):\n    def forward(self, x):\n        sys.exit(0)\n"
    )
    (tmp_path / "ending_net.py").write_text(source)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    line = paceline("train", "ending_net:Ends").refused(1)
    assert line == "the command exited before it was finished (exit code 0)"
