# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Search for the cheapest layouts of all tensors of a program. No IR.

- stick constraint, dim-count constraint: the rule of a kind of operation; a stick assignment satisfies both
  (``layout/rules.py``);
- op layout: a stick assignment in terms of the operand dims, with the cost of its transfers;
- candidate: one layout that a tensor may have (``layout_candidates.py``); the defining operation can write producer
  candidates, and readers ask for reader candidates (``minimum_cost.py``);
- layout constraint: a request, user-defined or of a plan file (``layout/requests.py``); on a graph tensor it is a pin;
- produced layout: a producer candidate with its op layout; relayout: a copy into another candidate; state: one
  produced layout with relayouts; domain: all states of a tensor (``minimum_cost.py``);
- plan: the decisions for all tensors, of least cost (``minimum_cost.py``, ``optimization/elimination.py``).
"""
