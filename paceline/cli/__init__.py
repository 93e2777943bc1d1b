"""The command line: one small file per verb. Each parses, calls and prints."""

from __future__ import annotations

import errno
import importlib
import os
import re
import signal
import sys
from typing import Annotated, Any

try:
    import typer

    from paceline.cli.console import complain
    from paceline.cli.error_text import as_command_line
    from paceline.errors import PacelineError
    from paceline.openmp_waiting import wait_briefly
except KeyboardInterrupt:  # Ctrl-C while the program starts
    print("paceline: interrupted", file=sys.stderr)
    sys.exit(130)

# Some versions of typer bring their own copy of click; its exceptions are reached through typer's.
_UsageError: type[Exception] = typer.BadParameter.__bases__[0]
_ClickException: type[Exception] = _UsageError.__bases__[0]


VERBS = (
    "train", "advise", "plan", "deploy", "measure", "calibrate", "predict", "simulate", "verify", "compare", "report",
    "reproduce", "evaluate", "models", "catalogue", "data", "doctor", "demo",
)  # fmt: skip
"""In the order of the help. Each is a module of this package with a function of the same name; `data` is a group."""


def make_app() -> typer.Typer:
    app = typer.Typer(
        name="paceline",
        help="Measure where training time goes, predict it on other hardware, plan and run distributed training, "
        "and verify the prediction.",
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
    )
    app.callback()(_about)
    for verb in VERBS:
        module = importlib.import_module(f"paceline.cli.{verb}")
        if hasattr(module, "app"):
            app.add_typer(module.app, name=verb)
        else:
            app.command(verb, epilog=module.EXAMPLE)(getattr(module, verb))
    return app


def make_command() -> Any:
    """The root command. Some versions of typer show a metavar for flags and types of arguments: removed."""
    program: Any = typer.main.get_command(make_app())
    commands = [program]
    for command in commands:
        commands += getattr(command, "commands", {}).values()
        for option in command.get_params(command.context_class(command)):
            if getattr(option, "is_flag", False):
                option.metavar = ""
            elif option.param_type_name == "argument" and hasattr(option, "display_type_rich"):
                option.display_type_rich = lambda **_: None
    return program


def _show_version(asked: bool) -> None:
    if asked:
        from paceline.training.conditions import own_version

        print(f"paceline {own_version()}")
        raise typer.Exit


def _about(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


def _options_of(arguments: list[str]) -> dict[str, str]:
    """The options of the called verb, by argument name."""
    command = make_command()
    for word in arguments[:2]:
        command = getattr(command, "commands", {}).get(word, command)
    return {each.name: each.opts[0] for each in command.params if each.opts[0].startswith("--")}


def _usage_text(error: Any) -> str:
    context, option = getattr(error, "ctx", None), getattr(error, "option_name", "")
    if context is None:
        return str(error.format_message())
    key = option.lstrip("-").replace("-", "_")
    settings = next((each.help for each in context.command.params if "--set" in each.opts), "")
    if key and re.search(rf"[ ,]{re.escape(key)}[,.]", settings):
        return f"No such option: {option}; give it as --set {key}=VALUE"
    return f"{error.format_message()} (see {context.command_path} --help)"


def main(arguments: list[str] | None = None) -> int:
    """Runs the program; returns its exit code: 0, 1 for a failure, 2 for a usage error, 130 when interrupted."""
    wait_briefly(os.environ)
    try:
        result = make_command()(arguments, prog_name="paceline", standalone_mode=False)
        if result == 130:  # some versions of typer turn Ctrl-C into a result
            raise KeyboardInterrupt
        return result if isinstance(result, int) else 0
    except PacelineError as error:
        complain(as_command_line(str(error), _options_of(sys.argv[1:] if arguments is None else arguments)))
        return error.exit_code
    except _UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error.format_message())  # type: ignore[attr-defined]
            return 0
        complain(_usage_text(error))
        return 2
    except _ClickException as error:
        complain(error.format_message())  # type: ignore[attr-defined]
        return 1
    except (KeyboardInterrupt, typer.Abort):
        complain("interrupted")
        return 130
    except MemoryError:
        complain("out of memory: use a smaller batch or network, or fewer workers or steps")
        return 1
    except SystemExit as error:
        if isinstance(error.__context__, BrokenPipeError):  # rich ends a program whose output nobody reads
            return 1
        # Code of the user called sys.exit; that is not a success.
        complain(f"the command exited before it was finished (exit code {error.code})")
        return error.code if isinstance(error.code, int) and error.code else 1
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.ENOSPC):
            if error.filename is None:
                raise
            complain(f"{str(error.filename)[:200]}: {error.strerror}")
            return 1
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that flushing at exit does not fail again
        if error.errno == errno.ENOSPC:
            complain(f"cannot write the result: {error.strerror}")
        return 1


def entry() -> None:
    if sys.platform != "linux":
        complain(f"Paceline needs Linux, and this is {sys.platform}")
        sys.exit(1)
    try:
        code = main()
    except KeyboardInterrupt:  # a second Ctrl-C while the first is handled
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        complain("interrupted")
        code = 130
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # nothing below should be interrupted
    sys.exit(code)
