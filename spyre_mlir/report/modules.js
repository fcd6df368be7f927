// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The modules of the model as a tree that folds: one state for the graph, the table and the timeline.

const MOST_CHILDREN = 60; // of a module; a longer sequence of operations is divided into parts
const MOST_ROWS = 24; // visible at first, unless the top level has more modules

class ModuleTree {
  constructor(data, operations) {
    this.listeners = [];
    this.leaves = operations.map((operation) => this.leaf(operation));
    this.nodes = rowsOf(data, data.modules, data.fields.module).map((row) => ({...row, children: [], isOpen: false}));
    this.nodes.forEach((node) => {
      node.parent = node.parent < 0 ? null : this.nodes[node.parent];
      if (node.parent) node.parent.children.push(node);
      node.children.push(...node.positions.map((position) => this.leaves[position]));
    });
    [this.root] = this.nodes;
    for (const node of this.nodes) this.settle(node);
    // An operation of a later copy is represented by the operation of the first copy, or by the box of the first copy.
    for (const node of this.nodes)
      for (const [position, first] of node.others) this.leaves[position].stand = first < 0 ? node : this.leaves[first];
    this.root.isOpen = true;
    // Open levels while at most MOST_ROWS rows are visible.
    for (let level = this.closed(); level.length && this.rows().length + level.reduce((sum, node) => sum + node.children.length, 0) <= MOST_ROWS;
      level = this.closed()) for (const node of level) node.isOpen = true;
  }

  leaf(operation) {
    const {position, opcode, ps, read, written, work, shape} = operation;
    return {
      name: opcode, path: `step ${position}`, position, children: [], first: position, count: 1, ps, work, shape,
      bytes: read + written, copies: 1, isOpen: false,
    };
  }

  // Sort the children in program order; divide long lists into parts.
  settle(node) {
    node.children.sort((one, other) => one.first - other.first);
    if (node.children.length > MOST_CHILDREN) node.children = this.parts(node.children);
    for (const child of node.children) child.parent = node;
  }

  parts(children) {
    const size = Math.max(MOST_CHILDREN, Math.ceil(children.length / MOST_CHILDREN)), parts = [];
    for (let at = 0; at < children.length; at += size) {
      const inside = children.slice(at, at + size), [first] = inside, last = inside[inside.length - 1];
      const sum = (name) => inside.reduce((total, child) => total + child[name], 0);
      const part = {
        name: `${first.name} … ${last.name}`, path: `${first.path} to ${last.path}`, children: inside, first: first.first,
        copies: 1, isOpen: false, isPart: true, ...Object.fromEntries(["count", "ps", "bytes", "work"].map((name) => [name, sum(name)])),
      };
      for (const child of inside) child.parent = part;
      parts.push(part);
    }
    return parts;
  }

  // The ancestors of a node, the root first, and the node.
  line(node) {
    const line = [];
    for (let at = node.stand || node; at; at = at.parent) line.unshift(at);
    return line;
  }

  // The visible node that represents a node.
  seen(node) {
    const line = this.line(node);
    return line.find((each) => !each.isOpen) || line[line.length - 1];
  }

  // The visible descendants of a node, in order, with their depth.
  rows(node = this.root, depth = 0) {
    return node.children.flatMap((child) =>
      [{node: child, depth}, ...(child.isOpen ? this.rows(child, depth + 1) : [])]);
  }

  toggle(node, isOpen = !node.isOpen) {
    if (node.children.length === 0 || node === this.root) return;
    node.isOpen = isOpen;
    this.changed();
  }

  // Open all ancestors of a node.
  show(node) {
    for (const each of this.line(node).slice(0, -1)) each.isOpen = true;
    this.changed();
  }

  closeAll() {
    for (const node of this.every()) node.isOpen = node === this.root;
    this.changed();
  }

  openLevel() {
    for (const node of this.closed()) node.isOpen = true;
    this.changed();
  }

  // The visible closed modules.
  closed() {
    return this.rows().map(({node}) => node).filter((node) => node.children.length && !node.isOpen);
  }

  every(node = this.root) {
    return [node, ...node.children.flatMap((child) => this.every(child))];
  }

  changed() {
    for (const listener of this.listeners) listener();
  }
}

const titleOf = (node) => node.copies > 1 ? `${node.name} x ${digits(node.copies)}` : node.name;
