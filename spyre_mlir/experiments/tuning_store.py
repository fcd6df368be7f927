# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trials of a tuning as an Optuna study: in memory, or in a database that allows resuming a killed tuning."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spyre_mlir.errors import CompileError
from spyre_mlir.experiments.extras import imported
from spyre_mlir.experiments.tuning_proposals import Point, Tried

#: The value of a parameter at its default.
_DEFAULT = "default"
_REASON, _POINT = "reason", "point"


class TrialStore:
    """The study of one tuning; ``name`` identifies the tuning, so one database can hold many studies.

    ``storage`` is the path of an SQLite file or an Optuna URL, None for memory. Only finished trials are written, so
    a trial that is running when a process ends is repeated. Raise ``CompileError`` if Optuna is not installed, or for
    a file of another kind.
    """

    def __init__(self, name: str, storage: str | Path | None, sizes: Mapping[str, int]) -> None:
        self._optuna = imported("optuna", "tune")
        self._optuna.logging.set_verbosity(self._optuna.logging.WARNING)
        # The choices of a parameter are texts, because the order of numbers would be significant.
        self._distributions = {
            parameter: self._optuna.distributions.CategoricalDistribution([_DEFAULT, *map(str, range(size))])
            for parameter, size in sizes.items()
        }
        self._study = self._opened(name, storage)

    def _opened(self, name: str, storage: str | Path | None) -> Any:
        url = None if storage is None else str(storage)
        if url is not None and "://" not in url:
            url = f"sqlite:///{url}"
        try:
            return self._optuna.create_study(study_name=name, storage=url, load_if_exists=True)
        # The database library raises different exceptions for a file that is not a database; the file is unchanged.
        except Exception as error:
            first = (str(error).splitlines() or [type(error).__name__])[0]
            raise CompileError(
                f"The trials cannot be kept in '{storage}': {first}; give a new path, or a file of an earlier tuning."
            ) from error

    def trials(self) -> list[tuple[Tried, str]]:
        """Return the trials in order, each with the reason for its rejection, or ""."""
        return [
            (Tried(dict(trial.user_attrs[_POINT]), trial.value), trial.user_attrs.get(_REASON, ""))
            for trial in self._study.get_trials(deepcopy=False)
        ]

    def add(self, point: Point, value: float | None, reason: str) -> None:
        """Write a finished trial; a trial without a value is marked as pruned."""
        states = self._optuna.trial.TrialState
        # Parameters at their default are omitted: a large space has hundreds of them.
        chosen = {parameter: str(number) for parameter, number in point.items()}
        self._study.add_trial(
            self._optuna.trial.create_trial(
                state=states.PRUNED if value is None else states.COMPLETE,
                value=value,
                params=chosen,
                distributions={parameter: self._distributions[parameter] for parameter in chosen},
                user_attrs={_POINT: dict(point), _REASON: reason},
            )
        )

    def sample(self, seed: int) -> Point:
        """Propose a point with Optuna's TPE sampler, from the trials that have values."""
        optuna = self._optuna
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = optuna.samplers.TPESampler(seed=seed % (1 << 32), multivariate=True, n_startup_trials=1)
        study = optuna.create_study(sampler=sampler)
        study.add_trials(
            [
                optuna.trial.create_trial(
                    value=tried.value,
                    params={
                        parameter: str(tried.point.get(parameter, _DEFAULT))
                        for parameter in self._distributions
                    },
                    distributions=self._distributions,
                )
                for tried, _ in self.trials()
                if tried.value is not None
            ]
        )
        params = study.ask(self._distributions).params
        return {parameter: int(number) for parameter, number in params.items() if number != _DEFAULT}
