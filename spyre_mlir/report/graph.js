// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The graph of modules and operations: layers from top to bottom, edges are buffers from writer to reader. An open
// module is a box around its children.

const NODE = {width: 216, height: 40}, GAP = 16, BETWEEN = 30, HEAD = 26, THROUGH = 14;

class Graph {
  constructor(box, tree, page) {
    Object.assign(this, {box, tree, page, scale: 1, at: null, drag: null});
    this.svg = box.querySelector("svg");
    this.frame = this.svg.parentNode;
    this.edges = this.lifted();
    for (const button of all(box, "button[data-do]")) button.addEventListener("click", () => this.act(button.dataset.do));
    this.svg.addEventListener("keydown", (event) => this.key(event));
    this.svg.addEventListener("focusin", (event) => { this.at = this.nodeOf(event.target) || this.at; });
    this.svg.addEventListener("click", (event) => this.choose(this.nodeOf(event.target)));
    this.frame.addEventListener("wheel", (event) => this.wheel(event), {passive: false});
    this.frame.addEventListener("pointerdown", (event) => this.press(event));
    this.frame.addEventListener("pointermove", (event) => this.move(event));
    for (const name of ["pointerup", "pointerleave"]) this.frame.addEventListener(name, () => { this.drag = null; });
    this.colour = box.querySelector("select");
    this.colour.addEventListener("change", () => this.draw());
    const [search, found] = [box.querySelector("input"), box.querySelector(".matches")];
    search.addEventListener("input", () => { this.hits = null; this.find(search.value, found, 0); });
    search.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.find(search.value, found, event.shiftKey ? -1 : 1);
      if (event.key === "Escape" && search.value) { event.stopPropagation(); search.value = ""; this.find("", found, 0); }
    });
    tree.listeners.push(() => this.draw());
    this.draw();
  }

  // The edges between the children of each module: a read of a buffer belongs to the innermost module that contains
  // writer and reader.
  lifted() {
    const edges = new Map(), writers = new Map(), {tree, page} = this;
    page.operations.forEach(({operands}, position) => {
      operands.slice(0, -1).forEach(({buffer}) => {
        if (writers.has(buffer)) this.lift(edges, writers.get(buffer), position, buffer);
      });
      writers.set(operands[operands.length - 1].buffer, position);
    });
    return edges;
  }

  lift(edges, writer, reader, buffer) {
    const [from, to] = [writer, reader].map((position) => this.tree.line(this.tree.leaves[position]));
    const at = from.findIndex((each, depth) => each !== to[depth]);
    if (at < 1 || !to[at]) return;
    const of = edges.get(from[at - 1]) || new Map(), key = `${from[at].first} ${to[at].first}`;
    edges.set(from[at - 1], of);
    const edge = of.get(key) || {from: from[at], to: to[at], buffers: new Map()};
    edge.buffers.set(buffer, writer);
    of.set(key, edge);
  }

  // -- layout: boxes and lines relative to their module

  lay(node) {
    if (!node.isOpen) return {...NODE, boxes: [], lines: []};
    const sizes = new Map(node.children.map((child) => [child, this.lay(child)]));
    const edges = Array.from((this.edges.get(node) || new Map()).values());
    const layers = this.layers(node.children, edges.filter(({from, to}) => from.first < to.first));
    const widthOf = (layer) => layer.reduce((sum, {item}) => sum + (item ? sizes.get(item).width : THROUGH) + GAP, -GAP);
    const width = Math.max(...layers.map(widthOf), NODE.width) + 2 * GAP, boxes = [], lines = [];
    let top = node === this.tree.root ? GAP : HEAD + 8;
    for (const layer of layers) {
      const height = Math.max(...layer.map(({item}) => item ? sizes.get(item).height : 0));
      let x = (width - widthOf(layer)) / 2;
      for (const slot of layer) {
        const {width: across, height: down} = slot.item ? sizes.get(slot.item) : {width: THROUGH, height};
        Object.assign(slot, {middle: x + across / 2, top, bottom: top + down, floor: top + height});
        if (slot.item) boxes.push({node: slot.item, x, y: top, ...sizes.get(slot.item)});
        x += across + GAP;
      }
      top += height + BETWEEN;
    }
    lines.push(...layers.routes);
    return {width, height: top - BETWEEN + GAP, boxes, lines};
  }

  // Put each child in a layer below its operands; an edge over several layers has a slot in each layer.
  layers(children, edges) {
    const level = new Map(), into = new Map(children.map((child) => [child, []])), layers = [], slots = new Map();
    for (const edge of edges) into.get(edge.to).push(edge);
    for (const child of children)
      level.set(child, Math.max(-1, ...into.get(child).map(({from}) => level.get(from) ?? -1)) + 1);
    layers.routes = [];
    const put = (at, slot) => { (layers[at] = layers[at] || []).push(slot); return slot; };
    for (const child of children) slots.set(child, put(level.get(child), {item: child, before: []}));
    for (const {from, to, buffers} of edges) {
      const route = [slots.get(from)];
      for (let at = level.get(from) + 1; at < level.get(to); at++)
        route.push(put(at, {item: null, before: [route[route.length - 1]]}));
      slots.get(to).before.push(route[route.length - 1]);
      layers.routes.push({slots: [...route, slots.get(to)], buffers});
    }
    // Sort a layer by the mean position of the predecessors, which reduces edge crossings.
    for (const layer of layers) {
      const mean = ({before}) => before.length ? before.reduce((sum, each) => sum + each.rank, 0) / before.length : 0.5;
      const keyed = layer.map((slot) => [mean(slot), slot]).sort((one, other) => one[0] - other[0]);
      keyed.forEach(([, slot], at) => { layer[at] = slot; slot.rank = (at + 0.5) / layer.length; });
    }
    return layers;
  }

  // -- picture

  draw() {
    const had = this.svg.contains(document.activeElement), laid = this.lay(this.tree.root), ink = new Ink();
    this.size = {width: laid.width, height: laid.height};
    this.paint(ink, laid, 0, 0, 1);
    this.svg.replaceChildren(ink.drawn);
    this.shown = this.tree.rows().map(({node}) => node);
    if (!this.shown.includes(this.at)) this.at = this.at ? this.tree.seen(this.at) : this.shown[0];
    this.resize();
    this.focusable(had);
  }

  paint(ink, {boxes, lines}, x, y, level) {
    for (const {slots, buffers} of lines) {
      let d = `M ${x + slots[0].middle} ${y + slots[0].bottom}`, [before] = slots;
      const to = (slot) => {
        const begin = y + before.bottom, end = y + slot.top, half = (end - Math.min(begin, end)) / 2;
        d += ` C ${x + before.middle} ${begin + half} ${x + slot.middle} ${end - half} ${x + slot.middle} ${end}`;
        before = slot;
        if (!slot.item) { d += ` V ${y + slot.floor}`; before = {...slot, bottom: slot.floor}; }
      };
      slots.slice(1).forEach(to);
      const kinds = new Set([...buffers.keys()].map((buffer) => this.page.buffers[buffer].memory === "LX" ? "lx" : "memory"));
      const last = slots[slots.length - 1], kind = kinds.size === 1 ? [...kinds][0] : "";
      const route = ink.group({class: `route ${kind}`}, [...buffers].slice(0, 4).map((each) => this.toldBuffer(...each)).join("\n"));
      route.path("edge", d);
      route.path("tip", `M ${x + last.middle - 4} ${y + last.top - 6} h 8 l -4 6 Z`);
    }
    for (const box of boxes) this.node(ink, box, x, y, level);
  }

  node(ink, box, x, y, level) {
    const {node, width, height} = box, left = x + box.x, top = y + box.y, total = this.tree.root.ps || 1;
    const isModule = node.children.length > 0, share = `${(100 * node.ps / total).toFixed(1)} %`;
    const state = isModule ? {"aria-expanded": String(node.isOpen)} : {};
    const operation = isModule ? null : this.page.operations[node.position];
    const own = isModule ? [plural(node.count, "operation")] : this.toldOperation(operation);
    const told = [node.path, node.shape, ...own, `${microseconds(node.ps)}, ${share} of the time`,
      `${bytesText(node.bytes)} of device memory`].filter(Boolean).join("\n");
    const inner = ink.group({
      class: `node ${isModule ? "module" : "operation"}`, role: "treeitem", "aria-level": level, tabindex: -1, "data-key": this.keyOf(node),
      ...state,
    }, told);
    const part = node.isOpen ? null : this.partOf(node, operation), isDark = part !== null || !isModule;
    const fill = part === null ? (isModule ? null : data.fills[operation.category]) : `hsl(22,90%,${Math.round(96 - 46 * part)}%)`;
    const shape = inner.box("shape", left, top, width, height, null);
    // A style, because the style sheet of the page has a fill for modules.
    if (fill) shape.style.fill = fill;
    const kind = isDark ? "inside" : "name", room = (text, used) => fitting(text, width - 16 - used, 8.2);
    if (isModule && node.isOpen) {
      inner.text(left + 8, top + 17, room(`▾ ${titleOf(node)}`, share.length * LETTER), kind);
      inner.text(left + width - 8, top + 17, share, "label", "end");
    } else {
      const times = operation && operation.iterations ? ` x ${digits(operation.runs)}` : "";
      inner.text(left + 8, top + 16, room(isModule ? `▸ ${titleOf(node)}` : `${node.position} ${node.name}${times}`, 0), kind);
      const below = isModule ? `${plural(node.count, "operation")}` : node.shape;
      inner.text(left + 8, top + 31, room(below, share.length * LETTER), isDark ? "inside" : "label");
      inner.text(left + width - 8, top + 31, share, isDark ? "inside" : "label", "end");
      inner.box("part", left, top + height - 4, width * node.ps / total, 4);
    }
    if (node.isOpen) this.paint(ink, box, left, top, level + 1);
  }

  // The part, 0 to 1, of the time, of the bytes or of the allowed error that colours a closed box; null for the kind.
  partOf(node, operation) {
    const {root} = this.tree, errors = this.page.errors;
    const error = () => errors[operation ? operation.module : node.path] ?? errors[node.path];
    const of = {time: () => node.ps / (root.ps || 1), bytes: () => node.bytes / (root.bytes || 1), error}[this.colour.value];
    const part = of ? of() : undefined;
    return part === undefined ? null : Math.sqrt(clamp(part, 0, 1));
  }

  // Write the picture to a file, with the styles that the page gives it.
  save() {
    const copy = this.svg.cloneNode(true), styles = ["fill", "stroke", "stroke-width", "font-size", "font-family", "font-weight"];
    const [from, to] = [all(this.svg, "*"), all(copy, "*")];
    from.forEach((each, at) => {
      const computed = getComputedStyle(each);
      for (const name of styles) to[at].style.setProperty(name, computed.getPropertyValue(name));
    });
    copy.style.background = getComputedStyle(document.body).backgroundColor;
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([new XMLSerializer().serializeToString(copy)], {type: "image/svg+xml"}));
    link.download = "graph.svg";
    link.click();
  }

  toldBuffer(number, writer) {
    const {name, memory, address, bytes, read, written, reasons} = this.page.buffers[number];
    const {operands} = this.page.operations[writer], {layout, format} = operands[operands.length - 1];
    const lines = [`${name}: ${digits(bytes)} bytes in ${memory === "LX" ? "LX" : "device memory"} at address ${digits(address)}`];
    lines.push(`layout, innermost first: ${layout}, ${format}`);
    if (memory !== "LX") lines.push(`read ${digits(read)} bytes, written ${digits(written)} bytes in device memory`);
    if (reasons) lines.push(`not in LX: ${reasons}`);
    return lines.join("\n");
  }

  // The cores, the loops and the buffers of an operation.
  toldOperation({cores, slices, runs, iterations, bound, operands}) {
    const names = operands.map(({buffer}) => this.page.buffers[buffer].name), result = names.pop();
    const loops = iterations ? `runs ${plural(runs, "time")}${iterations.includes("x") ? `, in ${iterations} iterations` : ""}` : "";
    return [`${plural(cores, "core")}${slices && `: ${slices}`}`, loops, `bound by ${bound}`, `${names.join(", ")} → ${result}`];
  }

  keyOf(node) {
    return node.position === undefined ? `m ${node.path}` : String(node.position);
  }

  nodeOf(target) {
    const element = target.closest(".node");
    return element ? this.shown.find((node) => this.keyOf(node) === element.dataset.key) : null;
  }

  elementOf(node) {
    return node ? this.svg.querySelector(`.node[data-key="${CSS.escape(this.keyOf(node))}"]`) : null;
  }

  // Make the current node the target of Tab; outline the open operation.
  focusable(isFocused) {
    const element = this.elementOf(this.at), {operation} = this.page;
    if (element) element.setAttribute("tabindex", "0");
    if (element && isFocused) element.focus({preventScroll: true});
    const opened = operation === null ? null : this.tree.seen(this.tree.leaves[operation]);
    for (const each of all(this.svg, ".node")) each.classList.toggle("opened", opened !== null && each.dataset.key === this.keyOf(opened));
  }

  resize() {
    const {width, height} = this.size, {scale} = this;
    const size = {width: Math.round(width * scale), height: Math.round(height * scale), viewBox: `0 0 ${width} ${height}`};
    for (const [name, value] of Object.entries(size)) this.svg.setAttribute(name, value);
  }

  // -- input

  choose(node) {
    if (!node || this.isDragged) return;
    this.at = node;
    if (node.children.length) this.tree.toggle(node);
    else this.page.open(node.position);
  }

  go(node) {
    if (!node) return;
    const before = this.elementOf(this.at);
    if (before) before.setAttribute("tabindex", "-1");
    this.at = node;
    const element = this.elementOf(node);
    element.setAttribute("tabindex", "0");
    element.focus({preventScroll: true});
    element.scrollIntoView({block: "nearest", inline: "nearest"});
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const index = this.shown.indexOf(this.at), {at} = this;
    const acts = {
      ArrowDown: () => this.go(this.shown[index + 1]),
      ArrowUp: () => this.go(this.shown[index - 1]),
      Home: () => this.go(this.shown[0]),
      End: () => this.go(this.shown[this.shown.length - 1]),
      ArrowRight: () => at.children.length && (at.isOpen ? this.go(at.children[0]) : this.tree.toggle(at, true)),
      ArrowLeft: () => at.isOpen ? this.tree.toggle(at, false) : at.parent !== this.tree.root && this.go(at.parent),
      Enter: () => this.choose(at),
      " ": () => this.choose(at),
      "+": () => this.act("in"), "=": () => this.act("in"), "-": () => this.act("out"), "0": () => this.act("all"),
    };
    if (!acts[event.key]) return;
    event.preventDefault();
    event.stopPropagation();
    acts[event.key]();
  }

  act(what) {
    const acts = {
      save: () => this.save(), in: () => this.zoom(1.25), out: () => this.zoom(0.8), level: () => this.tree.openLevel(), close: () => this.tree.closeAll(),
      all: () => this.zoom(Math.min(this.frame.clientWidth / this.size.width, this.frame.clientHeight / this.size.height, 1) / this.scale),
    };
    acts[what]();
  }

  // Zoom around a point of the frame, in pixels.
  zoom(factor, x = this.frame.clientWidth / 2, y = this.frame.clientHeight / 2) {
    const before = this.scale, {frame} = this;
    this.scale = clamp(before * factor, 0.1, 3);
    const [left, top] = [(frame.scrollLeft + x) / before, (frame.scrollTop + y) / before];
    this.resize();
    frame.scrollTo(left * this.scale - x, top * this.scale - y);
  }

  wheel(event) {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const box = this.frame.getBoundingClientRect();
    this.zoom(Math.exp(-clamp(event.deltaY, -100, 100) / 200), event.clientX - box.left, event.clientY - box.top);
  }

  press(event) {
    if (event.button === 0) this.drag = {x: event.clientX, y: event.clientY};
    this.isDragged = false;
  }

  move(event) {
    if (!this.drag || event.buttons !== 1) return;
    if (Math.hypot(this.drag.x - event.clientX, this.drag.y - event.clientY) > 3) this.isDragged = true;
    if (!this.isDragged) return;
    this.frame.scrollBy(this.drag.x - event.clientX, this.drag.y - event.clientY);
    this.drag = {x: event.clientX, y: event.clientY};
  }

  // Find the nodes that contain all words; open and mark the next node.
  find(text, told, step) {
    const words = text.toLowerCase().split(" ").filter(Boolean);
    if (!this.hits) {
      this.hits = words.length === 0 ? [] : this.tree.every().filter((node) => !node.isPart && node !== this.tree.root &&
        words.every((word) => `${node.path} ${node.name} ${node.shape || ""}`.toLowerCase().includes(word)));
      this.hit = -1;
    }
    if (step && this.hits.length) {
      this.hit = (this.hit + step + this.hits.length) % this.hits.length;
      const node = this.hits[this.hit];
      this.at = node;
      this.tree.show(node);
      const element = this.elementOf(this.tree.seen(node));
      if (element) { element.classList.add("found"); element.scrollIntoView({block: "nearest", inline: "center"}); }
    }
    const place = this.hit < 0 ? "" : `${digits(this.hit + 1)} of `;
    told.textContent = words.length ? `${place}${digits(this.hits.length)} found; Enter goes to the next` : "";
  }
}
