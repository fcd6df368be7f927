// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The table of modules: the visible rows of the tree.

class ModuleTable {
  constructor(table, tree, page) {
    Object.assign(this, {table, tree, page, order: "program"});
    const chooser = table.closest("section").querySelector("select");
    chooser.addEventListener("change", () => { this.order = chooser.value; this.draw(); });
    tree.listeners.push(() => this.draw());
    this.draw();
  }

  rows(node = this.tree.root, depth = 0) {
    const children = node.children.slice();
    if (this.order === "time") children.sort((one, other) => other.ps - one.ps);
    return children.flatMap((child) => [[child, depth], ...(child.isOpen ? this.rows(child, depth + 1) : [])]);
  }

  draw() {
    const [body] = this.table.tBodies, rows = this.rows();
    const focused = rows.findIndex(([node]) => node === this.toggled);
    body.replaceChildren(...rows.map(([node, depth]) => this.row(node, depth)));
    if (focused >= 0) body.rows[focused].querySelector("button").focus({preventScroll: true});
    this.toggled = null;
  }

  row(node, depth) {
    const total = this.tree.root.ps || 1, part = node.ps / total;
    const cells = [digits(node.count), (node.ps / 1e6).toFixed(3), (100 * part).toFixed(1), digits(node.bytes), digits(node.work)];
    const row = element("tr", {}, this.name(node, depth), ...cells.map((text) => element("td", {}, text)));
    const bar = element("i", {class: "bar", style: `width:${(100 * part).toFixed(2)}%`});
    row.append(element("td", {"aria-hidden": "true"}, bar));
    return row;
  }

  name(node, depth) {
    const cell = element("th", {scope: "row", style: `padding-left:${8 + 18 * depth}px`});
    if (node.children.length === 0) {
      cell.append(element("a", {href: `#op-${node.position}`}, `${node.position} ${node.name}`));
      return cell;
    }
    const toggle = button(`${node.isOpen ? "▾" : "▸"} ${titleOf(node)}`, () => {
      this.toggled = node;
      this.tree.toggle(node);
    }, {"aria-expanded": String(node.isOpen), title: node.path});
    cell.append(toggle);
    return cell;
  }
}
