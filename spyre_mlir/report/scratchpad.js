// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The scratchpad of the chosen core over the steps of the program, and its bytes in use.

const MAP = 330, CURVES = 96;

// The curves: class, name, and the path of a sample.
const SAMPLES = [
  ["load", "load", "h 24 v -9 h -24 Z"],
  ["high", "high water", "m 0 -4 h 24"],
  ["fragmentation", "fragmentation (high water - load)", "m 0 -4 h 24"],
];

class Scratchpad {
  constructor(data, page) {
    const {lx, operations, fields} = data, steps = operations.length;
    Object.assign(this, {data, page, lx});
    const boxes = lx.boxes.map((row) => Object.fromEntries(fields.box.map((name, at) => [name, row[at]])));
    const followed = new Set(boxes.map((box) => box.parent));
    boxes.forEach((box, number) => {
      const inPlace = box.parent >= 0;
      Object.assign(box, {
        number,
        begin: box.first + (inPlace ? 0.5 : 0),
        end: box.last + 1,
        labelEnd: box.last + (followed.has(number) ? 0.5 : 1),
      });
    });
    this.boxes = boxes;
    this.depth = Math.max(0, ...lx.loops.map((loop) => loop[3] + 1));
    const top = 10 + this.depth * 20;
    this.longest = most(page.operations.map((each) => each.opcode.length)) + String(steps).length + 1;
    this.plot = {left: 90, right: 0, top, bottom: top + MAP};
    this.whole = {from: 0, to: Math.max(steps, 1), low: 0, high: lx.bytes};
    const high = lx.peak < 0.7 * lx.capacity ? Math.max(lx.peak * 1.06, 1024) : lx.bytes;
    this.home = {...this.whole, high};
    this.finest = Math.min(2, this.whole.to);
    this.stretches = true;
    this.spans = new Map();
  }

  fit(width) {
    this.plot.right = width - 10;
    const column = (this.plot.right - this.plot.left) / this.page.operations.length;
    // Names of steps need less height if all of them fit horizontally.
    this.curveTop = this.plot.bottom + (this.longest * LETTER + 6 <= column ? 48 : 140);
    this.height = this.curveTop + CURVES + 28;
  }

  // The buffers of the chosen core, in order of their begin.
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
      const middle = (Math.min(capacity, bottom) + top) / 2;
      if (capacity - top > 16) ink.text((left + right) / 2, middle + 4, kept, "label", "middle");
    }
    for (let at = Math.ceil(low / tick) * tick; at <= high; at += tick) {
      const y = chart.y(at);
      ink.path("tick", `M ${left} ${y.toFixed(2)} H ${right}`);
      const isFree = !isSeen || Math.abs(y - capacity) > 15;
      if (isFree) ink.text(left - 8, clamp(y + 4, top + 8, bottom), bytesText(at), "label", "end");
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
    const {core, operation, operations} = this.page;
    const shown = this.held().within(from, to);
    for (const box of shown) {
      const {x, y, width, height} = this.extent(box, chart);
      if (height <= 0) continue;
      const fill = this.fill(box);
      // Narrow boxes of one colour are one path: thousands of elements would be slow.
      const across = width.toFixed(2);
      const outline = `M ${x.toFixed(2)} ${y.toFixed(2)} h ${across} v ${height.toFixed(2)} h -${across} Z `;
      if (width < 1.5) narrow.set(fill, (narrow.get(fill) || "") + outline);
      else ink.box("buffer", x, y, width, height, fill);
    }
    for (const [fill, d] of narrow) ink.add("path", {class: "narrow", d, fill});
    for (const box of shown) this.label(ink, chart, box);
    const opened = new Set(operation === null ? [] : operations[operation].operands.map((each) => each.buffer));
    for (const box of shown) {
      const {x, y, width, height} = this.extent(box, chart);
      if (height <= 0) continue;
      if (box === chart.item) ink.box("current", x, y, width, height);
      else if (opened.has(box.buffer)) ink.box("opened", x, y, width, height);
    }
    const nothing = `No buffer of this program is in the LX of core ${core}.`;
    if (this.held().spans.length === 0) ink.text((left + right) / 2, (top + bottom) / 2, nothing, "name", "middle");
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

  // Draw the names of steps horizontally or vertically, or only their numbers, depending on the space.
  steps(ink, chart) {
    const {from, to} = chart.view, {left, right, bottom} = this.plot, {operations} = this.page;
    const first = Math.floor(from), last = Math.min(Math.ceil(to), operations.length);
    const names = operations.slice(first, last).map((each) => `${each.position} ${each.opcode}`);
    const column = (right - left) / (to - from), longest = most(names.map((name) => name.length)) * LETTER;
    const every = column >= 15 ? 1 : roundStep(45 / column);
    names.forEach((name, number) => {
      const at = first + number, middle = chart.x(at + 0.5);
      if (at % every || middle < left || middle > right) return;
      const inside = clamp(middle, left + longest / 2, right - longest / 2);
      if (longest + 6 <= column) ink.text(inside, bottom + 16, name, "label", "middle");
      else if (column >= 15) ink.upright(middle + 4, bottom + 6, name.length > 15 ? `${name.slice(0, 14)}…` : name);
      else if (middle < right - 8) ink.text(middle, bottom + 16, String(at), "label", "middle");
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
    for (const [kind, name, sample] of SAMPLES) {
      ink.path(kind, `M ${x} ${top - 12} ${sample}`);
      ink.text(x + 30, top - 12, name);
      x += 30 + name.length * LETTER + 22;
    }
    ink.path("axis", `M ${left} ${top} V ${ground} H ${right}`);
    if (!group) {
      ink.text(left + 8, ground - 30, `Core ${core} runs no operation of this program.`);
      return;
    }
    const [, , load, high] = group, peak = Math.max(128, most(high)), tick = powerTick(peak, 3);
    const end = Math.ceil(peak / tick) * tick, y = (count) => ground - count / end * CURVES;
    for (let at = 0; at <= end; at += tick) {
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
    const free = high.map((each, at) => each - load[at]), capacity = digits(this.lx.capacity);
    const told = `load at most ${digits(most(load))} bytes, high water ${digits(most(high))} of ${capacity} bytes`;
    ink.text(left, ground + 18, `Core ${core}: ${told}, fragmentation at most ${digits(most(free))} bytes`);
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
    const where = `${digits(box.address)} to ${digits(box.address + box.bytes)}`;
    lines.push(`${digits(box.bytes)} bytes at ${where} of each of ${plural(box.cores, "core")}`);
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
