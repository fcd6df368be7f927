"""Stick layouts: the algebra of tiled device memory, and the choice of layouts for a program. No IR.

The algebra: a ``StickLayout`` maps logical indices to device coordinates by ``Digit``s (``stick_layout.py``); a
``BufferView`` is what view transforms (``steps.py``) make of a buffer (``view.py``); a ``Space`` is the iteration of an
operation over views of its operands (``space.py``).

The nouns of the layout choice:

- stick constraint, dim-count constraint: the rule of a kind of operation; a stick assignment satisfies them
  (``rules.py``);
- op layout: a stick assignment seen from the operands, with the cost of its transfers (``op_layouts.py``);
- candidate: one layout that a tensor may have (``candidates.py``); producer candidates are those that its operation can
  write (``producer_candidates.py``), reader candidates those that others ask for (``reader_candidates.py``);
- layout constraint: what a user or a plan file says (``requests.py``); on a tensor of the graph it is a pin;
- produced layout: a producer candidate with its op layout; relayout: a copy into another candidate; a state is one
  produced layout with relayouts, a domain all states of a tensor (``states.py``, ``domains.py``);
- plan: a decision per tensor, of the least cost (``choice.py``, ``elimination.py``).
"""

from spyre_mlir.layout.stick_layout import Digit, StickLayout
from spyre_mlir.layout.view import Axis, BufferView, ViewError

__all__ = ["Axis", "BufferView", "Digit", "StickLayout", "ViewError"]
