"""As much of Ray as the launching process needs, with actors that a test answers for."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any


class RayError(Exception): ...


class RayActorError(RayError): ...


class ActorUnavailableError(RayActorError): ...


class RayTaskError(RayError): ...


class ObjectLostError(RayError): ...


class GetTimeoutError(RayError): ...


NEVER = object()
"""The answer to a call that is not answered."""


class FakeActor:
    def __init__(self, kind: type, options: dict[str, Any]) -> None:
        self.kind, self.options = kind, options
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.answers: dict[str, Any] = {}
        """By method: a value, an exception to raise, or a function of the arguments that makes either."""

    def __getattr__(self, method: str) -> Any:
        return SimpleNamespace(remote=lambda *arguments: self._call(method, arguments))

    def _call(self, method: str, arguments: tuple[Any, ...]) -> Reference:
        self.calls.append((method, arguments))
        answer = self.answers.get(method, NEVER)
        return Reference(answer(*arguments) if isinstance(answer, Callable) else answer)

    def called(self, method: str) -> list[tuple[Any, ...]]:
        return [arguments for name, arguments in self.calls if name == method]


class Reference:
    def __init__(self, answer: Any) -> None:
        self.answer = answer


class FakeRay:
    exceptions = SimpleNamespace(
        RayError=RayError, RayActorError=RayActorError, ActorUnavailableError=ActorUnavailableError,
        RayTaskError=RayTaskError, ObjectLostError=ObjectLostError, GetTimeoutError=GetTimeoutError,
    )  # fmt: skip

    def __init__(self) -> None:
        self.actors: list[FakeActor] = []
        self.killed: list[FakeActor] = []
        self.alive = [True, True]
        """Nodes, of two CPUs each."""

    def remote(self, kind: type) -> Any:
        return SimpleNamespace(
            options=lambda **options: SimpleNamespace(remote=lambda *_: self._make(kind, options)),
        )

    def _make(self, kind: type, options: dict[str, Any]) -> FakeActor:
        self.actors.append(FakeActor(kind, options))
        return self.actors[-1]

    def nodes(self) -> list[dict[str, Any]]:
        return [{"NodeID": f"{n:056x}", "Alive": up, "Resources": {"CPU": 2.0}} for n, up in enumerate(self.alive)]

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 2.0 * sum(self.alive)}

    available_resources = cluster_resources

    def wait(self, references: list[Reference], num_returns: int = 1, timeout: float | None = None) -> Any:
        ready = [reference for reference in references if reference.answer is not NEVER][:num_returns]
        return ready, [reference for reference in references if reference not in ready]

    put = Reference

    def get(self, reference: Reference | list[Reference], timeout: float | None = None) -> Any:
        if isinstance(reference, list):
            return [self.get(each) for each in reference]
        if reference.answer is NEVER:
            raise GetTimeoutError
        if isinstance(reference.answer, BaseException):
            raise reference.answer
        return reference.answer

    def kill(self, actor: FakeActor, no_restart: bool = True) -> None:
        self.killed.append(actor)
