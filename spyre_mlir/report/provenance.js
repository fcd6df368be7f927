// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Source, IR and device operations in three lists; a choice in one list is marked in the others.

class Provenance {
  constructor(data, page) {
    Object.assign(this, {data, page, marked: new Set(), position: null});
    this.lists = {source: find("source-lines"), level: find("level-lines"), device: find("device-lines")};
    this.file = find("source-file");
    this.level = find("level");
    // The operations of each origin; operations of a copy of a module have the origin of the first copy.
    this.origins = page.operations.map(({file, line, column, first}) => `${file} ${line} ${column} ${first}`);
    this.byOrigin = new Map();
    this.origins.forEach((origin, position) => {
      if (!this.byOrigin.has(origin)) this.byOrigin.set(origin, []);
      this.byOrigin.get(origin).push(position);
    });
    data.sources.forEach(([name], number) => this.file.append(element("option", {value: number}, name.split("/").pop())));
    this.file.addEventListener("change", () => this.fillSource());
    this.level.addEventListener("change", () => this.fillLevel());
    for (const list of Object.values(this.lists)) this.listen(list);
    this.fillSource();
    this.fillLevel();
    this.fillDevice();
  }

  listen(list) {
    const steps = {ArrowDown: 1, ArrowUp: -1};
    list.addEventListener("click", (event) => this.choose(event.target.closest("[role=option]")));
    list.addEventListener("keydown", (event) => {
      if (!steps[event.key]) return;
      event.preventDefault();
      const options = all(list, "[role=option][data-positions]"), at = options.findIndex((each) => each.id === list.getAttribute("aria-activedescendant"));
      this.choose(options[at < 0 ? 0 : clamp(at + steps[event.key], 0, options.length - 1)]);
    });
  }

  option(id, text, positions) {
    const known = positions && positions.length ? {"data-positions": positions.join(" ")} : {"aria-disabled": "true"};
    return element("div", {role: "option", id, "aria-selected": "false", ...known}, text);
  }

  fillSource() {
    const [, lines] = this.data.sources[Number(this.file.value)] || ["", {}], byLine = new Map();
    this.page.operations.forEach(({file, line}, position) => {
      if (String(file) !== this.file.value) return;
      if (!byLine.has(line)) byLine.set(line, []);
      byLine.get(line).push(position);
    });
    const numbers = [...new Set([...Object.keys(lines).map(Number), ...byLine.keys()])].sort((one, other) => one - other);
    const width = String(numbers[numbers.length - 1] || "").length;
    const texts = numbers.map((number) => `${String(number).padStart(width)}  ${lines[number] ?? "(missing when this page was made)"}`);
    this.fill(this.lists.source, numbers.map((number, at) => this.option(`source-${number}`, texts[at], byLine.get(number))));
  }

  fillLevel() {
    const level = this.data.levels.find(([name]) => name === this.level.value);
    const options = level ? level[1].map(([file, line, column, module, text], number) => {
      const positions = this.byOrigin.get(`${file} ${line} ${column} ${this.data.texts[module]}`);
      return this.option(`level-${number}`, this.data.texts[text], positions);
    }) : this.page.operations.map(({lastLine, text}, position) => this.option(`level-${position}`, `${lastLine}  ${text}`, [position]));
    this.fill(this.lists.level, options);
  }

  fillDevice() {
    const options = this.page.operations.map(({opcode, shape, design}, position) =>
      this.option(`device-${position}`, `${position}  ${opcode}  ${shape}  ${design}`, [position]));
    this.fill(this.lists.device, options);
  }

  fill(list, options) {
    if (options.length === 0) options.push(this.option(`${list.id}-none`, "(nothing is known)"));
    list.replaceChildren(...options);
    list.removeAttribute("aria-activedescendant");
    this.mark();
  }

  choose(option) {
    if (!option || !option.dataset.positions) return;
    const positions = option.dataset.positions.split(" ").map(Number);
    this.position = positions[0];
    this.marked = new Set(option.closest("#device-lines") ? positions : positions.flatMap((position) => this.byOrigin.get(this.origins[position])));
    const {file} = this.page.operations[this.position];
    if (file >= 0 && String(file) !== this.file.value) {
      this.file.value = String(file);
      this.fillSource();
    }
    this.mark(option);
    this.tell();
  }

  // Choose an operation that was opened elsewhere.
  follow(position) {
    this.choose(find(`device-${position}`));
  }

  mark(chosen = null) {
    for (const list of Object.values(this.lists)) {
      const options = all(list, "[role=option]");
      const isOf = (option) => (option.dataset.positions || "").split(" ").some((position) => position && this.marked.has(Number(position)));
      for (const option of options) option.setAttribute("aria-selected", String(isOf(option)));
      const first = chosen && chosen.parentNode === list ? chosen : options.find(isOf);
      if (!first) continue;
      list.setAttribute("aria-activedescendant", first.id);
      const top = first.offsetTop - list.offsetTop;
      if (top < list.scrollTop || top + first.offsetHeight > list.scrollTop + list.clientHeight)
        list.scrollTop = top - list.clientHeight / 3;
    }
  }

  tell() {
    const operation = this.page.operations[this.position], {opcode, design, shape, dtype, cores, slices, firstLine, lastLine} = operation;
    const where = firstLine === lastLine ? `line ${lastLine}` : `lines ${firstLine} to ${lastLine}`;
    const link = element("a", {href: `#op-${this.position}`}, operation.title);
    find("chosen").replaceChildren(element("p", {}, link, this.marked.size > 1 ? `, the first of ${digits(this.marked.size)}` : ""), terms([
      ["module", operation.module || "(model)"], ["source", this.page.source(operation) || "unknown"],
      ["design", `${design}: ${opcode}, ${shape}, ${dtype}`], ["cores", slices ? `${cores}: ${slices}` : String(cores)],
      ["bundle.mlir", where], ...operation.operands.map(({name, layout, format, owners}) => [name, `${layout}, ${format}; ${owners}`]),
    ]));
  }
}
