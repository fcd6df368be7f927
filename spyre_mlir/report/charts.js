// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The charts of the page: the x axis is time; only the displayed part, the view, is drawn.

const all = (scope, selector) => Array.from(scope.querySelectorAll(selector));
const find = (identifier) => document.getElementById(identifier);

const LETTER = 7.3; // pixels, a little more than the width of a character
const NARROWEST = 900; // minimum width in pixels that the texts of a picture need
const NAMESPACE = "http://www.w3.org/2000/svg";
const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
const digits = (number) => number.toLocaleString("en");
const most = (numbers) => numbers.reduce((one, other) => Math.max(one, other), 0);
const plural = (number, noun) => `${digits(number)} ${noun}${number === 1 ? "" : "s"}`;
const microseconds = (ps) =>
  `${(ps / 1e6).toLocaleString("en", {minimumFractionDigits: 3, maximumFractionDigits: 3})} µs`;

// The smallest of 1, 2 or 5 times a power of ten that is at least `least`.
const roundStep = (least) => {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= least * 0.999);
};

const bytesText = (count) => {
  for (const [unit, size] of [["MiB", 2 ** 20], ["KiB", 2 ** 10]])
    if (count >= size) return `${Number((count / size).toPrecision(6))} ${unit}`;
  return `${count} B`;
};

// The smallest power of two, from 128 on, with at most `times` multiples in `count` bytes.
const powerTick = (count, times) => {
  let tick = 128;
  while (count > times * tick) tick *= 2;
  return tick;
};

const terms = (pairs) => {
  const list = element("dl", {class: "terms"});
  for (const [name, text] of pairs) list.append(element("dt", {}, name), element("dd", {}, text));
  return list;
};

// A text, cut to a width of `room` pixels.
const fitting = (text, room, letter = LETTER) => {
  const most = Math.max(Math.floor(room / letter), 0);
  return text.length <= most ? text : `${text.slice(0, Math.max(most - 1, 0))}…`;
};

// The rows of the data as objects; a text is stored as its index in one list.
const rowsOf = (data, rows, fields) => rows.map((row) => Object.fromEntries(fields.map((name, at) =>
  name.startsWith("$") ? [name.slice(1), data.texts[row[at]]] : [name, row[at]])));

// Create an element of the page.
const element = (tag, attributes, ...inside) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...inside);
  return made;
};

const button = (text, act, attributes = {}) => {
  const made = element("button", {type: "button", ...attributes}, text);
  made.addEventListener("click", act);
  return made;
};

// The first index of sorted numbers that is greater than a value.
const above = (sorted, value) => {
  let low = 0, high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] > value) high = middle;
    else low = middle + 1;
  }
  return low;
};

// Spans in order of their begin, with a fast search for the spans that overlap a part of the axis.
class Spans {
  constructor(spans) {
    this.spans = spans;
    let last = -Infinity;
    this.ends = spans.map((each) => (last = Math.max(last, each.end)));
  }

  within(from, to) {
    const found = [];
    for (let at = above(this.ends, from); at < this.spans.length; at++) {
      if (this.spans[at].begin >= to) break;
      if (this.spans[at].end > from) found.push(this.spans[at]);
    }
    return found;
  }
}

// Elements of a picture that is drawn again for each view.
class Ink {
  constructor(drawn = document.createDocumentFragment()) {
    this.drawn = drawn;
  }

  add(tag, attributes, text = "") {
    const made = document.createElementNS(NAMESPACE, tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    if (text) made.textContent = text;
    this.drawn.append(made);
    return made;
  }

  // Create a group; all its elements have the tooltip `tip`.
  group(attributes, tip) {
    const inside = new Ink(this.add("g", attributes));
    inside.add("title", {}, tip);
    return inside;
  }

  text(x, y, text, kind = "label", anchor = "start") {
    this.add("text", {x: x.toFixed(1), y: y.toFixed(1), class: kind, "text-anchor": anchor}, text);
  }

  upright(x, y, text) {
    const transform = `translate(${x.toFixed(1)} ${y}) rotate(-90)`;
    this.add("text", {class: "label", "text-anchor": "end", transform}, text);
  }

  box(kind, x, y, width, height, fill = null) {
    const place = {x: x.toFixed(2), y: y.toFixed(2), width: Math.max(width, 0.5).toFixed(2), height: height.toFixed(2)};
    return this.add("rect", fill === null ? {class: kind, ...place} : {class: kind, ...place, fill});
  }

  path(kind, d) {
    this.add("path", {class: kind, d});
  }
}

// A picture with a view. Members of a scene:
//   home, whole     the initial and the largest view: from, to along x and low, high along y
//   finest          the shortest span along x
//   height, plot    pixels: height of the picture, and left, right, top, bottom of the view in it
//   fit(width)      sets the width of the picture
//   paint(ink, chart), at(x, y, chart), extent(item, chart), told(item), operation(item), next(item, step, chart)
class Chart {
  constructor(box, scene, page) {
    Object.assign(this, {box, scene, page, view: {...scene.home}, item: null, waiting: false, drag: null});
    this.svg = box.querySelector("svg");
    this.frame = this.svg.parentNode;
    this.fit();
    // A printed chart keeps its width.
    new ResizeObserver(() => { if (this.fit()) this.draw(); }).observe(this.frame);
    for (const button of box.querySelectorAll("button[data-do]"))
      button.addEventListener("click", () => this.act(button.dataset.do));
    this.svg.addEventListener("keydown", (event) => this.key(event));
    this.svg.addEventListener("wheel", (event) => this.wheel(event), {passive: false});
    this.svg.addEventListener("pointerdown", (event) => this.press(event));
    this.svg.addEventListener("pointermove", (event) => this.move(event));
    this.svg.addEventListener("pointerup", (event) => this.release(event));
    this.svg.addEventListener("pointerleave", () => this.leave());
    this.svg.addEventListener("blur", () => this.choose(null));
    this.paint();
  }

  x(at) {
    const {left, right} = this.scene.plot;
    return left + (at - this.view.from) / (this.view.to - this.view.from) * (right - left);
  }

  y(at) {
    const {top, bottom} = this.scene.plot;
    return bottom - (at - this.view.low) / (this.view.high - this.view.low) * (bottom - top);
  }

  // Set the width to the width of the frame, but at least NARROWEST; return whether the width has changed.
  fit() {
    const width = Math.max(this.frame.clientWidth, NARROWEST);
    if (width === this.width) return false;
    this.width = width;
    this.scene.fit(width);
    const size = {width, height: this.scene.height, viewBox: `0 0 ${width} ${this.scene.height}`};
    for (const [name, value] of Object.entries(size)) this.svg.setAttribute(name, value);
    return true;
  }

  // -- views

  // Draw in the next frame; several changes in one frame are drawn once.
  draw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.paint(); });
  }

  paint() {
    const ink = new Ink();
    this.scene.paint(ink, this);
    const {from, to} = this.view;
    this.svg.replaceChildren(ink.drawn);
    this.svg.dataset.view = `${from} ${to}`;
    this.svg.dataset.plot = `${this.scene.plot.left} ${this.scene.plot.right}`;
  }

  show(from, to) {
    const {whole, finest} = this.scene;
    const span = clamp(to - from, finest, whole.to - whole.from);
    const start = clamp((from + to - span) / 2, whole.from, whole.to - span);
    Object.assign(this.view, {from: start, to: start + span});
    this.draw();
  }

  zoom(factor, at = (this.view.from + this.view.to) / 2) {
    const {from, to} = this.view, {whole, finest} = this.scene;
    const span = clamp((to - from) * factor, finest, whole.to - whole.from);
    const start = at - (at - from) * span / (to - from);
    this.show(start, start + span);
  }

  stretch(factor) {
    const {low, high} = this.view, {whole} = this.scene;
    const span = clamp((high - low) * factor, 1024, whole.high - whole.low);
    this.lift(low, span);
  }

  lift(low, span = this.view.high - this.view.low) {
    const {whole} = this.scene;
    const start = clamp(low, whole.low, whole.high - span);
    Object.assign(this.view, {low: start, high: start + span});
    this.draw();
  }

  pan(part) {
    const span = this.view.to - this.view.from;
    this.show(this.view.from + part * span, this.view.to + part * span);
  }

  act(what) {
    const {low, high} = this.view;
    const acts = {
      in: () => this.zoom(0.5), out: () => this.zoom(2), left: () => this.pan(-0.25), right: () => this.pan(0.25),
      taller: () => this.stretch(0.5), flatter: () => this.stretch(2),
      up: () => this.lift(low + (high - low) / 4), down: () => this.lift(low - (high - low) / 4),
      all: () => { Object.assign(this.view, this.scene.home); this.draw(); },
    };
    acts[what]();
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const acts = {"+": "in", "=": "in", "-": "out", "0": "all", ArrowLeft: "left", ArrowRight: "right"};
    if (this.scene.stretches) Object.assign(acts, {"]": "taller", "[": "flatter", ArrowUp: "up", ArrowDown: "down"});
    const steps = {n: 1, p: -1};
    if (acts[event.key]) this.act(acts[event.key]);
    else if (steps[event.key]) this.step(steps[event.key]);
    else if (event.key === "Escape") { if (this.item === null) return; this.choose(null); }
    else if (["Enter", " "].includes(event.key) && this.item) this.page.open(this.scene.operation(this.item));
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  // -- items

  // Mark an item and describe it in the line at the bottom of the window.
  choose(item) {
    if (item === this.item) return;
    this.item = item;
    this.page.tell(item ? this.scene.told(item, this) : "");
    this.draw();
  }

  step(step) {
    const next = this.scene.next(this.item, step, this);
    if (!next) return;
    const {from, to} = this.view, span = to - from;
    if (next.end <= from || next.begin >= to) this.show(next.begin - span / 2, next.begin + span / 2);
    this.choose(next);
  }

  // -- pointer

  place(event) {
    const frame = this.svg.getBoundingClientRect(), scale = this.svg.viewBox.baseVal.width / frame.width;
    return [(event.clientX - frame.left) * scale, (event.clientY - frame.top) * scale];
  }

  wheel(event) {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const {left, right} = this.scene.plot, {from, to} = this.view;
    const part = clamp((this.place(event)[0] - left) / (right - left), 0, 1);
    this.zoom(Math.exp(clamp(event.deltaY, -100, 100) / 200), from + part * (to - from));
  }

  press(event) {
    if (event.button !== 0) return;
    this.drag = {at: this.place(event), view: {...this.view}, moved: false};
    this.svg.setPointerCapture(event.pointerId);
  }

  move(event) {
    const at = this.place(event);
    if (!this.drag) {
      const item = this.scene.at(...at, this);
      this.svg.classList.toggle("pointing", item !== null);
      this.page.hint(item ? this.scene.told(item, this) : "", event);
      return;
    }
    const {view} = this.drag, {left, right, top, bottom} = this.scene.plot;
    const across = this.drag.at[0] - at[0], down = at[1] - this.drag.at[1];
    if (Math.hypot(across, down) > 4) this.drag.moved = true;
    if (!this.drag.moved) return;
    this.page.hint("", event);
    const by = across / (right - left) * (view.to - view.from);
    this.show(view.from + by, view.to + by);
    if (this.scene.stretches) this.lift(view.low + down / (bottom - top) * (view.high - view.low));
  }

  release(event) {
    const {drag} = this;
    this.drag = null;
    if (!drag || drag.moved) return;
    const item = this.scene.at(...this.place(event), this);
    if (item && this.scene.operation(item) !== null) this.page.open(this.scene.operation(item));
  }

  leave() {
    if (!this.drag) this.page.hint("");
  }
}
