// The charts of the page: time goes across; a view is the part that is shown, and only that is drawn.

const LETTER = 7.3; // pixels, a little more than a character of the text takes
const NAMESPACE = "http://www.w3.org/2000/svg";
const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
const digits = (number) => number.toLocaleString("en");
const plural = (number, noun) => `${digits(number)} ${noun}${number === 1 ? "" : "s"}`;
const microseconds = (ps) =>
  `${(ps / 1e6).toLocaleString("en", {minimumFractionDigits: 3, maximumFractionDigits: 3})} µs`;

// 1, 2 or 5 times a power of ten that is at least so much.
const roundStep = (least) => {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= least * 0.999);
};

const bytesText = (count) => {
  for (const [unit, size] of [["MiB", 2 ** 20], ["KiB", 2 ** 10]])
    if (count >= size) return `${Number((count / size).toPrecision(6))} ${unit}`;
  return `${count} B`;
};

// The least power of two that is in a number of bytes at most so often.
const powerTick = (count, times) => {
  let tick = 128;
  while (count > times * tick) tick *= 2;
  return tick;
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

// Spans in order of their begin: those that touch a part of the axis are found without looking at all.
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

// Elements of a picture that is drawn anew with each view.
class Ink {
  constructor() {
    this.drawn = document.createDocumentFragment();
  }

  add(tag, attributes, text = "") {
    const made = document.createElementNS(NAMESPACE, tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    if (text) made.textContent = text;
    this.drawn.append(made);
  }

  text(x, y, text, kind = "label", anchor = "start") {
    this.add("text", {x: x.toFixed(1), y: y.toFixed(1), class: kind, "text-anchor": anchor}, text);
  }

  upright(x, y, text) {
    this.add("text", {class: "label", "text-anchor": "end", transform: `translate(${x.toFixed(1)} ${y}) rotate(-90)`}, text);
  }

  box(kind, x, y, width, height, fill = null) {
    const place = {x: x.toFixed(2), y: y.toFixed(2), width: Math.max(width, 0.5).toFixed(2), height: height.toFixed(2)};
    this.add("rect", fill === null ? {class: kind, ...place} : {class: kind, ...place, fill});
  }

  path(kind, d) {
    this.add("path", {class: kind, d});
  }
}

// A picture with a view. A scene says what there is:
//   home, whole     the first view and the widest: from, to across and low, high upwards
//   finest          the shortest span across
//   height, plot    pixels: of the picture, and of the view in it: left, right, top, bottom
//   paint(ink, chart), at(x, y, chart), extent(item, chart), told(item), operation(item), next(item, step, chart)
class Chart {
  constructor(box, scene, page) {
    Object.assign(this, {box, scene, page, view: {...scene.home}, item: null, waiting: false, drag: null});
    this.svg = box.querySelector("svg");
    this.svg.setAttribute("viewBox", `0 0 1200 ${scene.height}`);
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

  // -- views

  // The view after the next frame; several changes in one frame are drawn once.
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

  // Mark an item and tell it in the line at the bottom of the window.
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

// -- the timeline ------------------------------------------------------------------------------------------

const ROW = 30, BAR = 20;

class Timeline {
  constructor(data, page) {
    const total = data.timeline.total;
    Object.assign(this, {data, page, total, kept: new Map()});
    this.names = ["load", "compute", "store", "memory read", "memory write", "ring", "repeated"].filter((name) =>
      data.timeline.tracks.some((tracks) => tracks.some((track) => track[0] === name)));
    this.plot = {left: 120, right: 1190, top: 8, bottom: 8 + this.names.length * ROW};
    this.height = this.plot.bottom + 42;
    this.home = this.whole = {from: 0, to: total, low: 0, high: 1};
    this.finest = Math.max(total / 1e5, 1000);
  }

  // The tracks of the chosen core, by name; of a core that nothing runs on only what all cores share.
  tracks() {
    const {groups, tracks} = this.data.timeline, core = this.page.core;
    const group = groups.findIndex((each) => each.includes(core));
    if (!this.kept.has(group)) {
      const own = tracks[Math.max(group, 0)].filter(([name]) => group >= 0 || !this.isOfCore(name));
      this.kept.set(group, new Map(own.map(([name, bars]) => [name, new Spans(this.bars(name, bars))])));
    }
    return this.kept.get(group);
  }

  isOfCore(name) {
    return ["load", "compute", "store"].includes(name);
  }

  bars(name, rows) {
    let begin = 0;
    return rows.map(([gap, length, first, last = first, bars = 1, busy = length]) => {
      begin += gap;
      return {name, begin, end: begin + length, first, last, bars, busy};
    });
  }

  paint(ink, chart) {
    const {from, to} = chart.view, {left, right, top, bottom} = this.plot, tracks = this.tracks();
    const step = roundStep((to - from) / 8);
    for (let at = Math.ceil(from / step) * step; at <= to; at += step) {
      ink.path("tick", `M ${chart.x(at).toFixed(2)} ${top - 4} V ${bottom}`);
      const middle = clamp(chart.x(at), left, right - 10);
      ink.text(middle, bottom + 16, String(Number((at / 1e6).toFixed(6))), "label", "middle");
    }
    ink.text(left - 10, bottom + 34, "time in µs", "name", "end");
    const shown = `${microseconds(from)} to ${microseconds(to)} of ${microseconds(this.total)}`;
    ink.text(left, bottom + 34, `shown: ${shown}; load, compute and store are those of core ${this.page.core}`);
    this.names.forEach((name, row) => {
      const y = top + row * ROW;
      ink.text(left - 10, y + 19, name, "name", "end");
      ink.path("tick", `M ${left} ${y + ROW} H ${right}`);
      const bars = tracks.get(name);
      if (bars) for (const bar of merged(bars.within(from, to), (to - from) / (right - left) * 3)) this.bar(ink, chart, bar, y + 5);
      else if (this.isOfCore(name)) ink.text(left + 8, y + 19, `core ${this.page.core} runs no operation of this program`);
    });
    ink.path("axis", `M ${left} ${top} V ${bottom} H ${right}`);
    this.outlines(ink, chart, tracks);
  }

  bar(ink, chart, bar, y) {
    const {left, right} = this.plot;
    const begin = Math.max(chart.x(bar.begin), left), end = Math.min(chart.x(bar.end), right);
    const one = bar.first === bar.last && bar.name !== "repeated", operation = this.page.operations[bar.first];
    const text = one ? operation.opcode : bar.name === "repeated" ? `${digits(bar.bars)} times more` : plural(bar.bars, "bar");
    const fill = one ? this.data.fills[operation.category] : "#a3a3a3";
    // What is busy for a part of the time only is paler.
    const opacity = one ? 1 : 0.25 + 0.75 * Math.min(bar.busy / Math.max(bar.end - bar.begin, 1), 1);
    ink.add("rect", {
      class: "work", x: begin.toFixed(2), y, width: Math.max(end - begin, 0.8).toFixed(2), height: BAR, fill,
      "fill-opacity": opacity.toFixed(2), "stroke-opacity": end - begin > 3 ? 1 : 0,
    });
    if (text.length * LETTER + 6 <= end - begin) ink.text((begin + end) / 2, y + 14, text, "inside", "middle");
  }

  // Around the bars of the open operation and the item that keys have gone to.
  outlines(ink, chart, tracks) {
    const {from, to} = chart.view;
    this.names.forEach((name, row) => {
      const bars = tracks.get(name);
      if (!bars || (this.page.operation === null && !chart.item)) return;
      for (const bar of bars.within(from, to))
        if (bar === chart.item || (bar.bars === 1 && bar.first === this.page.operation)) this.outline(ink, chart, bar, row);
    });
  }

  outline(ink, chart, bar, row) {
    const {left, right, top} = this.plot;
    const begin = clamp(chart.x(bar.begin), left, right), end = clamp(chart.x(bar.end), left, right);
    ink.box(bar === chart.item ? "current" : "opened", begin - 1, top + row * ROW + 4, end - begin + 2, BAR + 2);
  }

  at(x, y, chart) {
    const {from, to} = chart.view, {left, right, top} = this.plot, bars = this.tracks().get(this.names[Math.floor((y - top) / ROW)]);
    if (!bars || x < left || x > right) return null;
    const perPixel = (to - from) / (right - left), time = from + (x - left) * perPixel;
    const near = bars.within(time - 1.5 * perPixel, time + 1.5 * perPixel);
    if (near.length < 2 || near.every((bar) => bar.end - bar.begin > 3 * perPixel))
      return near.find((bar) => bar.end > time) || near[0] || null;
    return merged(near, Infinity)[0];
  }

  told(bar) {
    const {operations} = this.page, operation = operations[bar.first];
    const when = `${microseconds(bar.begin)} to ${microseconds(bar.end)}, ${microseconds(bar.end - bar.begin)}`;
    const where = this.isOfCore(bar.name) ? `${bar.name} of core ${this.page.core}` : bar.name;
    if (bar.name === "repeated") return `steps ${bar.first} to ${bar.last} run ${digits(bar.bars)} times more\n${when}`;
    if (bar.bars > 1) return `${where}: ${plural(bar.bars, "bar")} of steps ${bar.first} to ${bar.last}\n${when}\nzoom in to tell them apart`;
    const moved = `reads ${digits(operation.read)} bytes, writes ${digits(operation.written)} bytes of device memory in all runs`;
    return [`${operation.title}, ${where}`, when, moved, this.page.source(operation)].filter(Boolean).join("\n");
  }

  operation(bar) {
    return bar.first;
  }

  next(bar, step, chart) {
    const tracks = this.tracks(), name = bar ? bar.name : tracks.has("compute") ? "compute" : tracks.keys().next().value;
    const {spans} = tracks.get(name) || {spans: []};
    if (!bar) return spans.find((each) => each.end > chart.view.from) || null;
    return spans[spans.findIndex((each) => each.begin === bar.begin && each.end === bar.end) + step] || null;
  }
}

// Bars in order of their begin, those closer than so much to the begin of a short one before put together.
const merged = (bars, least) => {
  const made = [];
  for (const bar of bars) {
    const held = made[made.length - 1];
    if (!held || Math.max(bar.begin - held.begin, bar.end - bar.begin) >= least) made.push({...bar, origin: bar});
    else {
      held.end = Math.max(held.end, bar.end);
      held.first = Math.min(held.first, bar.first);
      held.last = Math.max(held.last, bar.last);
      held.bars += bar.bars;
      held.busy += bar.busy;
    }
  }
  return made.map((each) => each.bars === each.origin.bars ? each.origin : each);
};

// -- the scratchpads ---------------------------------------------------------------------------------------

const MAP = 330, CURVES = 96;

class Scratchpad {
  constructor(data, page) {
    const {lx, operations, fields} = data, steps = operations.length;
    Object.assign(this, {data, page, lx});
    const boxes = lx.boxes.map((row) => Object.fromEntries(fields.box.map((name, at) => [name, row[at]])));
    const followed = new Set(boxes.map((box) => box.parent));
    boxes.forEach((box, number) => {
      const inPlace = box.parent >= 0;
      Object.assign(box, {
        number, begin: box.first + (inPlace ? 0.5 : 0), end: box.last + 1, labelEnd: box.last + (followed.has(number) ? 0.5 : 1),
      });
    });
    this.boxes = boxes;
    this.depth = Math.max(0, ...lx.loops.map((loop) => loop[3] + 1));
    const top = 10 + this.depth * 20, longest = Math.max(0, ...operations.map((row) => data.texts[row[0]].length + String(steps).length + 1));
    this.plot = {left: 90, right: 1190, top, bottom: top + MAP};
    // Names of steps need less room where all of them fit across.
    this.curveTop = this.plot.bottom + (longest * LETTER + 6 <= 1100 / steps ? 48 : 140);
    this.height = this.curveTop + CURVES + 28;
    this.whole = {from: 0, to: Math.max(steps, 1), low: 0, high: lx.bytes};
    const high = lx.peak < 0.7 * lx.capacity ? Math.max(lx.peak * 1.06, 1024) : lx.bytes;
    this.home = {...this.whole, high};
    this.finest = Math.min(2, this.whole.to);
    this.stretches = true;
    this.spans = new Map();
  }

  // Those of the chosen core, in order of their begin.
  held() {
    const {core} = this.page;
    if (!this.spans.has(core)) {
      const held = this.boxes.filter((box) => box.cores > core).sort((a, b) => a.begin - b.begin);
      this.spans.set(core, new Spans(held));
    }
    return this.spans.get(core);
  }

  paint(ink, chart) {
    this.grid(ink, chart);
    this.loops(ink, chart);
    this.buffers(ink, chart);
    this.steps(ink, chart);
    this.curves(ink, chart);
  }

  grid(ink, chart) {
    const {left, right, top, bottom} = this.plot, {low, high} = chart.view;
    const tick = powerTick(high - low, 6);
    const capacity = chart.y(this.lx.capacity), isSeen = capacity >= top && capacity <= bottom;
    if (high > this.lx.capacity) {
      ink.box("backend", left, top, right - left, Math.min(capacity, bottom) - top);
      const kept = `the backend keeps ${digits(this.lx.capacity)} to ${digits(this.lx.bytes)}`;
      if (capacity - top > 16) ink.text((left + right) / 2, (Math.min(capacity, bottom) + top) / 2 + 4, kept, "label", "middle");
    }
    for (let at = Math.ceil(low / tick) * tick; at <= high; at += tick) {
      const y = chart.y(at);
      ink.path("tick", `M ${left} ${y.toFixed(2)} H ${right}`);
      if (!isSeen || Math.abs(y - capacity) > 15) ink.text(left - 8, clamp(y + 4, top + 8, bottom), bytesText(at), "label", "end");
    }
    if (!isSeen) return;
    ink.path("capacity", `M ${left} ${capacity.toFixed(2)} H ${right}`);
    ink.text(left - 8, capacity + 4, "capacity", "label", "end");
  }

  loops(ink, chart) {
    const {left, right, top} = this.plot;
    for (const [first, last, count, depth] of this.lx.loops) {
      const begin = clamp(chart.x(first), left, right), end = clamp(chart.x(last + 1), left, right);
      if (end <= begin) continue;
      const y = top - 4 - (this.depth - 1 - depth) * 20, text = `${digits(count)} times`;
      ink.path("axis", `M ${begin.toFixed(2)} ${y} v -5 H ${end.toFixed(2)} v 5`);
      if (text.length * LETTER + 8 <= end - begin) ink.text((begin + end) / 2, y - 7, text, "label", "middle");
    }
  }

  buffers(ink, chart) {
    const {from, to} = chart.view, {left, right, top, bottom} = this.plot, narrow = new Map();
    const shown = this.held().within(from, to);
    for (const box of shown) {
      const {x, y, width, height} = this.extent(box, chart);
      if (height <= 0) continue;
      const fill = this.fill(box);
      // Boxes of less than a pixel are one path of each colour: a thousand elements would be slow.
      if (width < 1.5) narrow.set(fill, `${narrow.get(fill) || ""}M ${x.toFixed(2)} ${y.toFixed(2)} h ${width.toFixed(2)} v ${height.toFixed(2)} h ${(-width).toFixed(2)} Z `);
      else ink.box("buffer", x, y, width, height, fill);
    }
    for (const [fill, d] of narrow) ink.add("path", {class: "narrow", d, fill});
    for (const box of shown) this.label(ink, chart, box);
    const opened = this.page.operation === null ? new Set() : new Set(this.page.operations[this.page.operation].operands.map((each) => each.buffer));
    for (const box of shown) {
      const {x, y, width, height} = this.extent(box, chart);
      if (height <= 0) continue;
      if (box === chart.item) ink.box("current", x, y, width, height);
      else if (opened.has(box.buffer)) ink.box("opened", x, y, width, height);
    }
    if (this.held().spans.length === 0) ink.text((left + right) / 2, (top + bottom) / 2, `No buffer of this program is in the LX of core ${this.page.core}.`, "name", "middle");
    ink.path("axis", `M ${left} ${top} V ${bottom} H ${right}`);
  }

  extent(box, chart, last = box.end) {
    const {left, right, top, bottom} = this.plot;
    const x = clamp(chart.x(box.begin), left, right), end = clamp(chart.x(last), left, right);
    const low = chart.y(box.address), high = Math.min(chart.y(box.address + box.bytes), low - 2);
    const y = clamp(high, top, bottom);
    return {x, y, width: end - x, height: clamp(low, top, bottom) - y};
  }

  fill(box) {
    return this.data.fills[box.writer === null ? "other" : this.page.operations[box.writer].category];
  }

  label(ink, chart, box) {
    const {x, y, width, height} = this.extent(box, chart, box.labelEnd), name = this.page.buffers[box.buffer].name;
    const opcode = box.writer === null ? "" : this.page.operations[box.writer].opcode;
    const fits = (text) => text.length * LETTER + 6 <= width;
    if (height >= 32 && fits(name) && fits(opcode)) {
      ink.text(x + width / 2, y + height / 2 - 3, opcode, "inside", "middle");
      ink.text(x + width / 2, y + height / 2 + 11, name, "inside", "middle");
      return;
    }
    const text = height < 14 ? undefined : [`${name} ${opcode}`, name, opcode].find((each) => each && fits(each));
    if (text) ink.text(x + width / 2, y + height / 2 + 4, text, "inside", "middle");
  }

  // Names of steps: across, upright or numbers only, whatever has room.
  steps(ink, chart) {
    const {from, to} = chart.view, {left, right, bottom} = this.plot, {operations} = this.page;
    const first = Math.floor(from), last = Math.min(Math.ceil(to), operations.length);
    const names = operations.slice(first, last).map((each) => `${each.position} ${each.opcode}`);
    const column = (right - left) / (to - from), longest = Math.max(0, ...names.map((name) => name.length)) * LETTER;
    const every = column >= 15 ? 1 : roundStep(45 / column);
    names.forEach((name, number) => {
      const at = first + number, middle = chart.x(at + 0.5);
      if (at % every || middle < left || middle > right) return;
      if (longest + 6 <= column) ink.text(clamp(middle, left + longest / 2, right - longest / 2), bottom + 16, name, "label", "middle");
      else if (column >= 15) ink.upright(middle + 4, bottom + 6, name.length > 15 ? `${name.slice(0, 14)}…` : name);
      else ink.text(middle, bottom + 16, String(at), "label", "middle");
    });
    ink.text(left - 8, bottom + 16, "step", "name", "end");
  }

  curves(ink, chart) {
    const {from, to} = chart.view, {left, right, bottom} = this.plot, {core} = this.page;
    const top = this.curveTop, ground = top + CURVES;
    const group = this.lx.groups.find(([first, last]) => first <= core && core <= last);
    let x = left;
    ink.text(x, top - 12, "Bytes in use over time:", "name");
    x += 190;
    for (const [kind, name, sample] of [["load", "load", "h 24 v -9 h -24 Z"], ["high", "high water", "m 0 -4 h 24"], ["fragmentation", "fragmentation (high water - load)", "m 0 -4 h 24"]]) {
      ink.path(kind, `M ${x} ${top - 12} ${sample}`);
      ink.text(x + 30, top - 12, name);
      x += 30 + name.length * LETTER + 22;
    }
    ink.path("axis", `M ${left} ${top} V ${ground} H ${right}`);
    if (!group) {
      ink.text(left + 8, ground - 30, `Core ${core} runs no operation of this program.`);
      return;
    }
    const [, , load, high] = group, peak = Math.max(128, ...high), tick = powerTick(peak, 3);
    const most = Math.ceil(peak / tick) * tick, y = (count) => ground - count / most * CURVES;
    for (let at = 0; at <= most; at += tick) {
      ink.path("tick", `M ${left} ${y(at)} H ${right}`);
      ink.text(left - 8, y(at) + 4, bytesText(at), "label", "end");
    }
    const first = Math.floor(from), last = Math.min(Math.ceil(to), load.length);
    const stairs = (counts) => {
      let d = "";
      for (let at = first; at < last; at++)
        d += ` V ${y(counts(at)).toFixed(2)} H ${clamp(chart.x(at + 1), left, right).toFixed(2)}`;
      return d;
    };
    ink.path("load", `M ${left} ${ground}${stairs((at) => load[at])} V ${ground} Z`);
    ink.path("high", `M ${left} ${y(high[first])}${stairs((at) => high[at])}`);
    ink.path("fragmentation", `M ${left} ${y(high[first] - load[first])}${stairs((at) => high[at] - load[at])}`);
    const most_ = (counts) => digits(Math.max(0, ...counts));
    ink.text(left, ground + 18, `Core ${core}: load at most ${most_(load)} bytes, high water ${most_(high)} of ${digits(this.lx.capacity)} bytes, fragmentation at most ${most_(high.map((each, at) => each - load[at]))} bytes`);
  }

  at(x, y, chart) {
    const {left, right, bottom} = this.plot;
    if (x < left || x > right) return null;
    const {from, to} = chart.view, step = from + (x - left) / (right - left) * (to - from);
    const near = this.held().within(step - 0.01, step + 0.01).filter((box) => {
      const place = this.extent(box, chart);
      return place.y - 1 <= y && y <= place.y + place.height + 1 && place.height > 0;
    });
    if (near.length) return near[near.length - 1];
    return y > bottom ? {step: Math.floor(step)} : null;
  }

  told(box) {
    const {operations} = this.page;
    if (box.step !== undefined) return this.toldStep(box.step);
    const buffer = this.page.buffers[box.buffer], writer = box.writer === null ? null : operations[box.writer];
    const lines = [`${buffer.name}: ${writer ? `written by ${writer.title}` : "never written"}`];
    lines.push(`${digits(box.bytes)} bytes at ${digits(box.address)} to ${digits(box.address + box.bytes)} of each of ${plural(box.cores, "core")}`);
    lines.push(`live from step ${box.first} to ${box.last}`);
    if (box.parent >= 0) lines.push(`in place of ${this.page.buffers[this.boxes[box.parent].buffer].name}`);
    if (writer) lines.push(this.page.source(writer));
    return lines.filter(Boolean).join("\n");
  }

  toldStep(step) {
    const operation = this.page.operations[step];
    if (!operation) return "";
    const {core} = this.page, group = this.lx.groups.find(([first, last]) => first <= core && core <= last);
    const lines = [operation.title, `on ${plural(operation.cores, "core")}`];
    if (group) lines.push(`load ${digits(group[2][step])} bytes, high water ${digits(group[3][step])} bytes`);
    return [...lines, this.page.source(operation)].filter(Boolean).join("\n");
  }

  operation(box) {
    return box.step === undefined ? box.writer : box.step;
  }

  next(box, step) {
    const {spans} = this.held();
    return box ? spans[spans.indexOf(box) + step] || null : spans[0] || null;
  }
}
