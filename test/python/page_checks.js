// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Checks of a page as it is laid out: each returns what is wrong, as texts. Nothing here is from another project.

globalThis.checks = (() => {
  const all = (selector, scope = document) => [...scope.querySelectorAll(selector)];
  const told = (element) => element.outerHTML.slice(0, 160);
  const isShown = (element) => element.checkVisibility({visibilityProperty: true});

  // What is seen of a box: the part inside of all frames that scroll or cut.
  const clipped = (box, element) => {
    let {left, right, top, bottom} = box;
    for (let at = element; at && at !== document.body; at = at.parentElement) {
      const {overflowX, overflowY} = getComputedStyle(at), frame = at.getBoundingClientRect();
      if (overflowX !== "visible") [left, right] = [Math.max(left, frame.left), Math.min(right, frame.right)];
      if (overflowY !== "visible") [top, bottom] = [Math.max(top, frame.top), Math.min(bottom, frame.bottom)];
    }
    return {left, right, top, bottom};
  };

  const textNodes = () => {
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), nodes = [];
    while (walker.nextNode()) {
      const parent = walker.currentNode.parentElement;
      if (walker.currentNode.data.trim() && !parent.closest("script, style, svg, title") && isShown(parent))
        nodes.push(walker.currentNode);
    }
    return nodes;
  };

  const boxesOf = (node, begin, end) => {
    const range = document.createRange();
    range.setStart(node, begin);
    range.setEnd(node, end);
    return [...range.getClientRects()];
  };

  // Texts, outside of pictures, that lie over one another.
  const overlaps = () => {
    const lines = textNodes().flatMap((node) => boxesOf(node, 0, node.length)
      .map((box) => ({text: node.data.trim().slice(0, 60), ...clipped(box, node.parentElement)}))
      .filter((box) => box.right - box.left > 1 && box.bottom - box.top > 1));
    lines.sort((one, other) => one.top - other.top);
    const wrong = [];
    lines.forEach((one, at) => {
      for (const other of lines.slice(at + 1)) {
        if (other.top >= one.bottom - 2) break;
        if (other.left < one.right - 1 && one.left < other.right - 1) wrong.push(`'${one.text}' lies over '${other.text}'`);
      }
    });
    return wrong;
  };

  // Elements that reach beyond the window, but for what scrolls inside a frame of its own.
  const wider = () => all("body *").filter(isShown).filter((each) => {
    const {left, right} = clipped(each.getBoundingClientRect(), each.parentElement);
    return right - left > 0 && (right > innerWidth + 0.5 || left < -0.5);
  }).map(told);

  // Words that go on in the next line, but for paths, which have no spaces.
  const broken = () => textNodes().filter((node) => !node.parentElement.closest(".place, pre, #pane")).flatMap((node) =>
    [...node.data.matchAll(/[\p{L}\p{N}]+/gu)].filter(({0: word, index}) => {
      const tops = new Set(boxesOf(node, index, index + word.length).map((box) => Math.round(box.top)));
      return tops.size > 1;
    }).map(([word]) => `'${word}' of '${node.data.trim().slice(0, 60)}' is broken`));

  // -- accessibility

  const nameOf = (element) => {
    const label = element.getAttribute("aria-label"), by = element.getAttribute("aria-labelledby");
    const labels = [...(element.labels || [])].map((each) => each.textContent).join(" ");
    const title = element.querySelector("title");
    return (label || (by && document.getElementById(by)?.textContent) || labels || element.textContent
      || (title && title.textContent) || "").trim();
  };

  const unnamed = () => all("a[href], button, input, select, textarea, svg[role], [role=region], section, nav, aside, dialog, [tabindex='0']")
    .filter((each) => each.matches("pre") ? false : isShown(each) && !nameOf(each)).map((each) => `no name: ${told(each)}`);

  const headings = () => {
    const levels = all("h1, h2, h3, h4").filter(isShown).map((each) => [Number(each.tagName[1]), each.textContent]);
    const wrong = levels.filter(([level], at) => level > (at ? levels[at - 1][0] : 0) + 1).map(([, text]) => `skips a level: ${text}`);
    return levels.filter(([level]) => level === 1).length === 1 ? wrong : ["not one h1", ...wrong];
  };

  const twice = () => {
    const seen = new Set();
    return all("[id]").map((each) => each.id).filter((id) => seen.has(id) || !seen.add(id)).map((id) => `two of #${id}`);
  };

  const referred = () => ["for", "aria-labelledby", "aria-describedby", "aria-controls"].flatMap((name) => all(`[${name}]`)
    .filter((each) => !each.getAttribute(name).split(" ").every((id) => document.getElementById(id)))
    .map((each) => `refers to nothing: ${told(each)}`));

  const landmarks = () => ["header", "nav", "main"].filter((name) => all(name).length !== 1).map((name) => `not one ${name}`)
    .concat(textNodes().filter((node) => !node.parentElement.closest("header, main, aside, dialog, [role=status], [aria-hidden=true]"))
      .map((node) => `outside of landmarks: ${node.data.trim().slice(0, 60)}`));

  const tables = () => all("th").filter((each) => !each.hasAttribute("scope")).map((each) => `no scope: ${told(each)}`)
    .concat(all("table").filter((each) => each.tHead === null && !each.closest("dialog")).map((each) => `no head: ${told(each)}`));

  // What scrolls is reached by the keyboard, itself or something in it.
  const unreachable = () => all("body *").filter(isShown).filter((each) => {
    const {overflowX, overflowY} = getComputedStyle(each), scrolls = (value) => ["auto", "scroll"].includes(value);
    const has = (scrolls(overflowX) && each.scrollWidth > each.clientWidth + 1)
      || (scrolls(overflowY) && each.scrollHeight > each.clientHeight + 1);
    return has && each.tabIndex < 0 && !each.querySelector("[tabindex='0'], button, input, select");
  }).map((each) => `scrolls and has no focus: ${told(each)}`);

  const channels = (colour) => colour.match(/[\d.]+/g).map(Number);
  const luminance = (colour) => channels(colour).slice(0, 3).map((each) => each / 255)
    .map((each) => each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4)
    .reduce((sum, each, at) => sum + each * [0.2126, 0.7152, 0.0722][at], 0);
  const contrast = (one, other) => {
    const [low, high] = [one, other].map(luminance).sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const isClear = (colour) => channels(colour).length > 3 && channels(colour)[3] === 0;
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const {backgroundColor} = getComputedStyle(at);
      if (!isClear(backgroundColor)) return backgroundColor;
    }
    return matchMedia("(prefers-color-scheme: dark)").matches ? "rgb(0, 0, 0)" : "rgb(255, 255, 255)";
  };

  // The fill under the middle of a text of a picture, by the rectangles that were drawn before it.
  const under = (text) => {
    const {left, right, top, bottom} = text.getBoundingClientRect(), x = (left + right) / 2, y = (top + bottom) / 2;
    const boxes = all("rect, circle", text.ownerSVGElement).filter((each) => {
      const box = each.getBoundingClientRect(), style = getComputedStyle(each);
      return each.compareDocumentPosition(text) & Node.DOCUMENT_POSITION_FOLLOWING && style.fill !== "none"
        && Number(style.fillOpacity) > 0.5 && box.left <= x && x <= box.right && box.top <= y && y <= box.bottom;
    });
    return boxes.length ? getComputedStyle(boxes[boxes.length - 1]).fill : behind(text.ownerSVGElement);
  };

  // Texts that contrast less than 4.5 with what is behind them, by the formula of WCAG 2.
  const pale = () => [
    ...new Set(textNodes().map((node) => node.parentElement)),
  ].filter((each) => contrast(getComputedStyle(each).color, behind(each)) < 4.5)
    .concat(all("svg text").filter((each) => isShown(each) && contrast(getComputedStyle(each).fill, under(each)) < 4.5))
    .map((each) => `pale: ${told(each)}`);

  return {
    layout: () => [...overlaps(), ...wider(), ...broken()],
    accessibility: () => [
      ...unnamed(), ...headings(), ...twice(), ...referred(), ...landmarks(), ...tables(), ...unreachable(), ...pale(),
    ],
  };
})();
