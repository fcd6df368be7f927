# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Values of the parameters of a bundle that are no addresses: indices that the host reads in arguments."""

from __future__ import annotations

from spyre_mlir.bundle.model import Bundle
from spyre_mlir.simulator.host import read_argument
from spyre_mlir.simulator.memory import AddressSpace
from spyre_mlir.simulator.simulation_error import SimulationError
from spyre_mlir.target.formats import Numerics


def index_values(bundle: Bundle, space: AddressSpace, numerics: Numerics) -> dict[str, int]:
    """Read the indices in the arguments, which are in memory already; an index out of range is a SimulationError."""
    arguments = {argument.name: argument for argument in bundle.manifest.arguments}
    values: dict[str, int] = {}
    for index in bundle.manifest.indices:
        argument = arguments.get(index.argument)
        if argument is None:
            text = "an index is in this argument, which the bundle does not have."
            raise SimulationError("manifest", text, tensor=index.argument)
        array = read_argument(space.hbm(argument.parameter), 0, argument, numerics)
        try:
            values[index.parameter] = index.value(array)
        except IndexError as error:
            raise SimulationError("argument", str(error), tensor=index.argument) from None
    for parameter in bundle.parameters:
        value, largest = values.get(parameter.name), parameter.max_value
        if largest is not None and (value is None or value > largest):
            text = f"the value of parameter '{parameter.name}' is {value}, not one up to {largest}."
            raise SimulationError("value", text)
    return values
