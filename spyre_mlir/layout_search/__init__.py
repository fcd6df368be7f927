# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The cheapest layouts of all tensors of a program. No IR.

- stick constraint, dim-count constraint: the rule of a kind of operation; a stick assignment satisfies them
  (``layout/rules.py``);
- op layout: a stick assignment seen from the operands, with the cost of its transfers (``op_layouts.py``);
- candidate: one layout that a tensor may have (``layout_candidates.py``); producer candidates are those that its
  operation can write (``producer_candidates.py``), reader candidates those that others ask for
  (``reader_candidates.py``);
- layout constraint: what a user or a plan file says (``layout/requests.py``); on a tensor of the graph it is a pin;
- produced layout: a producer candidate with its op layout; relayout: a copy into another candidate; a state is one
  produced layout with relayouts, a domain all states of a tensor (``states.py``, ``domains.py``);
- plan: a decision per tensor, of the least cost (``minimum_cost.py``, ``optimization/elimination.py``).
"""
