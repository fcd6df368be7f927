// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The timeline: a track for each engine of the chosen core, for the memory and for the ring.

const ROW = 30, BAR = 20;

class Timeline {
  constructor(data, page) {
    const total = data.timeline.total;
    Object.assign(this, {data, page, total, kept: new Map()});
    this.names = ["module", "load", "compute", "store", "memory read", "memory write", "ring", "repeated"].filter((name) => name === "module" ||
      data.timeline.tracks.some((tracks) => tracks.some((track) => track[0] === name)));
    this.plot = {left: 120, right: 0, top: 8, bottom: 8 + this.names.length * ROW};
    this.height = this.plot.bottom + 42;
    this.home = this.whole = {from: 0, to: total, low: 0, high: 1};
    this.finest = Math.max(total / 1e5, 1000);
    page.tree.listeners.push(() => this.kept.clear());
  }

  fit(width) {
    this.plot.right = width - 10;
  }

  // The tracks of the chosen core by name; an idle core only has the tracks that all cores share.
  tracks() {
    const {groups, tracks} = this.data.timeline, core = this.page.core;
    const group = groups.findIndex((each) => each.includes(core));
    if (!this.kept.has(group)) {
      const own = tracks[Math.max(group, 0)].filter(([name]) => group >= 0 || !this.isOfCore(name));
      const engines = own.map(([name, bars]) => [name, new Spans(this.bars(name, bars))]);
      this.kept.set(group, new Map([["module", new Spans(this.modules(engines))], ...engines]));
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

  // The visible modules, each from the begin of its first bar to the begin of the next module.
  modules(engines) {
    const bars = [], {leaves} = this.page.tree, begins = [];
    for (const [name, {spans}] of engines)
      for (const {begin, end, first, last} of name === "repeated" ? [] : spans) begins.push([begin, end, first, last]);
    begins.sort((one, other) => one[0] - other[0]);
    for (const [begin, end, first, last] of begins) {
      const node = this.page.tree.seen(leaves[first]), before = bars[bars.length - 1];
      if (before && before.node === node) Object.assign(before, {end: Math.max(before.end, end), last: Math.max(before.last, last)});
      else if (!before || first >= before.first) {
        if (before) before.end = Math.min(before.end, begin);
        bars.push({name: "module", node, begin, end, first, last, bars: 1, busy: end - begin});
      }
    }
    return bars;
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
      const shown = name === "module" ? bars.within(from, to) : bars ? merged(bars.within(from, to), (to - from) / (right - left) * 3) : [];
      for (const bar of shown) this.bar(ink, chart, bar, y + 5);
      const idle = `core ${this.page.core} runs no operation of this program`;
      if (!bars && this.isOfCore(name)) ink.text(left + 8, y + 19, idle);
    });
    ink.path("axis", `M ${left} ${top} V ${bottom} H ${right}`);
    this.outlines(ink, chart, tracks);
  }

  bar(ink, chart, bar, y) {
    const {left, right} = this.plot;
    const begin = Math.max(chart.x(bar.begin), left), end = Math.min(chart.x(bar.end), right);
    if (bar.node) {
      const text = fitting(titleOf(bar.node), end - begin - 6);
      ink.box(`module${bar.first % 2}`, begin, y, end - begin, BAR);
      if (end - begin > 40) ink.text((begin + end) / 2, y + 14, text, "label", "middle");
      return;
    }
    const one = bar.first === bar.last && bar.name !== "repeated", operation = this.page.operations[bar.first];
    const several = bar.name === "repeated" ? `${digits(bar.bars)} times more` : plural(bar.bars, "bar");
    const names = one ? [`${operation.module} ${operation.opcode}`.trim(), operation.opcode] : [several];
    const text = names.find((each) => each.length * LETTER + 6 <= end - begin);
    // A bar with idle time is paler; texts inside are dark in both colour schemes.
    const grey = 235 - Math.round(72 * Math.min(bar.busy / Math.max(bar.end - bar.begin, 1), 1));
    const fill = one ? this.data.fills[operation.category] : `rgb(${grey} ${grey} ${grey})`;
    ink.add("rect", {
      class: "work", x: begin.toFixed(2), y, width: Math.max(end - begin, 0.8).toFixed(2), height: BAR, fill,
      "stroke-opacity": end - begin > 3 ? 1 : 0,
    });
    if (text) ink.text((begin + end) / 2, y + 14, text, "inside", "middle");
  }

  // Outline the bars of the open operation and the current item.
  outlines(ink, chart, tracks) {
    const {from, to} = chart.view;
    this.names.forEach((name, row) => {
      const bars = tracks.get(name);
      if (!bars || (this.page.operation === null && !chart.item)) return;
      const opened = (bar) => !bar.node && bar.bars === 1 && bar.first === this.page.operation;
      for (const bar of bars.within(from, to))
        if (bar === chart.item || opened(bar)) this.outline(ink, chart, bar, row);
    });
  }

  outline(ink, chart, bar, row) {
    const {left, right, top} = this.plot;
    const begin = clamp(chart.x(bar.begin), left, right), end = clamp(chart.x(bar.end), left, right);
    ink.box(bar === chart.item ? "current" : "opened", begin - 1, top + row * ROW + 4, end - begin + 2, BAR + 2);
  }

  at(x, y, chart) {
    const {from, to} = chart.view, {left, right, top} = this.plot;
    const bars = this.tracks().get(this.names[Math.floor((y - top) / ROW)]);
    if (!bars || x < left || x > right) return null;
    const perPixel = (to - from) / (right - left), time = from + (x - left) * perPixel;
    const near = bars.within(time - 1.5 * perPixel, time + 1.5 * perPixel);
    if (near.length < 2 || near[0].node || near.every((bar) => bar.end - bar.begin > 3 * perPixel))
      return near.find((bar) => bar.end > time) || near[0] || null;
    return merged(near, Infinity)[0];
  }

  told(bar) {
    const {operations} = this.page, operation = operations[bar.first];
    const when = `${microseconds(bar.begin)} to ${microseconds(bar.end)}, ${microseconds(bar.end - bar.begin)}`;
    const where = this.isOfCore(bar.name) ? `${bar.name} of core ${this.page.core}` : bar.name;
    if (bar.node) return `${titleOf(bar.node)}: ${bar.node.path}\n${when}`;
    if (bar.name === "repeated") return `steps ${bar.first} to ${bar.last} run ${digits(bar.bars)} times more\n${when}`;
    const several = `${where}: ${plural(bar.bars, "bar")} of steps ${bar.first} to ${bar.last}`;
    if (bar.bars > 1) return `${several}\n${when}\nzoom in to tell them apart`;
    const bytes = `reads ${digits(operation.read)} bytes, writes ${digits(operation.written)} bytes`;
    const moved = `${bytes} of device memory in all runs`;
    return [`${operation.title}, ${where}`, when, moved, this.page.source(operation)].filter(Boolean).join("\n");
  }

  operation(bar) {
    return bar.first;
  }

  next(bar, step, chart) {
    const tracks = this.tracks(), first = tracks.has("compute") ? "compute" : tracks.keys().next().value;
    const name = bar ? bar.name : first;
    const {spans} = tracks.get(name) || {spans: []};
    if (!bar) return spans.find((each) => each.end > chart.view.from) || null;
    return spans[spans.findIndex((each) => each.begin === bar.begin && each.end === bar.end) + step] || null;
  }
}

// Bars in order of their begin; a bar shorter than `least` that begins less than `least` after another one is merged.
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
