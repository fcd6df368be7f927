# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``torch.profiler`` with the programs of the device: a range for each run, with its predicted time on the device.

PyTorch reads the times of a device from C++. So each program that runs while a profiler is active becomes a range named
``spyre::aten.add.Tensor 1.973 us``. With ``ProfilerActivity.PrivateUse1`` the tables count that time as device time,
and an exported trace shows it in a separate row.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch._C import _autograd
from torch.autograd import profiler

from spyre_mlir.tensors.device_activity import Listener, listen, predicted_us

NAME = "spyre"

_RANGE = re.compile(rf"{NAME}::(?P<operation>.*) (?P<us>[0-9.]+) us")


class ProfilerRanges(Listener):
    """Writer of a range for each program that runs while a profiler is active."""

    def on_device(self, operation: str, program: Any) -> None:
        if _autograd._profiler_enabled():
            with torch.profiler.record_function(f"{NAME}::{operation} {predicted_us(program):.3f} us"):
                pass


def install() -> None:
    """Make all PyTorch profilers see the programs of the device."""
    listen(ProfilerRanges())
    kind: Any = profiler.profile
    kind._parse_kineto_results = _with_device_times(kind._parse_kineto_results)
    kind.export_chrome_trace = _with_device_row(kind.export_chrome_trace)


def _with_device_times(parse: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``parse`` so that the ranges of programs have a time on the device."""

    @functools.wraps(parse)
    def parsed(self: Any, *args: Any, **named: Any) -> Any:
        events = parse(self, *args, **named)
        for event in events if self.use_device == NAME else ():
            if found := _RANGE.fullmatch(event.name):
                event.append_kernel(found["operation"], 0, float(found["us"]))
                # The host event carries the device time, because no device event exists for it.
                event.is_legacy = True
        return events

    return parsed


def _with_device_row(export: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``export`` so that the trace has a row with the programs, if the profiler uses the device."""

    @functools.wraps(export)
    def exported(self: Any, path: str, *args: Any, **named: Any) -> Any:
        result = export(self, path, *args, **named)
        if self.use_device == NAME:
            trace = json.loads(Path(path).read_text(encoding="utf-8"))
            trace["traceEvents"] += [row for event in trace["traceEvents"] if (row := _device_event(event))]
            Path(path).write_text(json.dumps(trace), encoding="utf-8")
        return result

    return exported


def _device_event(event: dict[str, Any]) -> dict[str, Any] | None:
    """Device event for the range of a program; None for other events."""
    found = _RANGE.fullmatch(str(event.get("name")))
    if found is None or event.get("ph") != "X":
        return None
    us = float(found["us"])
    place = {"pid": f"{NAME}:0", "tid": "predicted", "ts": event["ts"], "dur": us}
    return {"ph": "X", "cat": "kernel", "name": found["operation"], **place, "args": {"predicted_us": us}}
