"use strict";
(() => {
  const byId = (name) => document.getElementById(name);
  const data = JSON.parse(byId("data").textContent);
  const nodes = data.nodes;
  const tree = byId("tree");
  const panel = byId("panel");
  const replay = byId("replay");
  const items = [...tree.querySelectorAll(".node")]; // as they stand in the picture, from top to bottom
  const position = (item) => Number(item.id.slice(1));
  const elementOf = (node) => byId("n" + node);
  const nameOf = (order) => order.map((i) => "χ" + (i + 1)).join(" ");
  const round = (value) => value.toFixed(3).replace("-", "−");
  const childrenOf = new Map();
  nodes.parents.forEach((parents, node) => {
    for (const parent of parents) childrenOf.set(parent, [...(childrenOf.get(parent) || []), node]);
  });
  let selected = data.chosen;
  let lit = [];

  // Texts of chunks enter the page as text only, never as markup.
  function add(parent, tag, text, kind) {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    if (kind) element.className = kind;
    return parent.appendChild(element);
  }

  function addPairs(parent, pairs) {
    const list = add(parent, "dl");
    for (const [name, value] of pairs) {
      const pair = add(list, "div");
      add(pair, "dt", name);
      add(pair, "dd", value);
    }
  }

  function addChunk(parent, index, kind) {
    const chunk = data.candidates[index];
    const block = add(parent, "div", undefined, kind);
    const source = add(block, "p", undefined, "source");
    add(source, "b", "χ" + (index + 1));
    source.append(" ");
    add(source, "bdi", chunk.id);
    source.append(" · " + chunk.cost + " tokens");
    add(block, "p", chunk.text, "text").dir = "auto";
  }

  function describe(node) {
    const order = nodes.order[node];
    const children = childrenOf.get(node) || [];
    const elsewhere = children.filter((child) => nodes.parents[child][0] !== node).length;
    panel.replaceChildren();
    const close = add(panel, "button", "×");
    close.setAttribute("aria-label", "close");
    close.addEventListener("click", () => panel.classList.remove("open"));
    add(panel, "h3", nameOf(order) + (node === data.chosen ? " ★ chosen" : ""));
    addPairs(panel, [
      ["objective", round(nodes.objective[node])],
      ["R", round(nodes.score[node])],
      ["tokens", nodes.cost[node] + " of " + data.budget],
      ["N", nodes.visits[node]],
      ["V/N", round(nodes.average[node])],
      ["U", round(nodes.utility[node])],
      ["found in iteration", nodes.iteration[node]],
      ["expanded in", nodes.expanded[node] === null ? "–" : nodes.expanded[node]],
      ["children", children.length],
      ...(elsewhere ? [["of them elsewhere", elsewhere]] : []),
    ]);
    const further = nodes.parents[node].slice(1);
    if (further.length) {
      add(panel, "h4", "also a child of " + further.map((parent) => "⟨" + nameOf(nodes.order[parent]) + "⟩").join(", "));
    }
    add(panel, "h4", "appends");
    addChunk(panel, order[order.length - 1], "appended");
    if (order.length > 1) add(panel, "h4", "to");
    for (const index of order.slice(0, -1)) addChunk(panel, index, "earlier");
  }

  function light(node) {
    for (const element of lit) element.classList.remove("lit");
    lit = [];
    const first = nodes.parents[node][0];
    const line = byId("e" + node) || byId("p" + first);
    lit.push(elementOf(node), line);
    for (let above = first; above >= 0; above = nodes.parents[above][0]) lit.push(byId("e" + above));
    for (const element of lit) element.classList.add("lit");
    // Later lines cover earlier ones: the lit ones the others, and the chosen path all.
    byId("lines").append(...lit.slice(1), ...tree.querySelectorAll(".line.chosen"));
    drawFurther(node);
  }

  function drawFurther(node) {
    const group = byId("further");
    group.replaceChildren();
    const [width, height] = data.card;
    const [x, y] = data.cards[node] ? [data.cards[node][0], data.cards[node][1] + height / 2] : data.dots[node];
    for (const parent of nodes.parents[node].slice(1)) {
      const [left, top] = data.cards[parent];
      const path = document.createElementNS(tree.namespaceURI, "path");
      const from = left + width;
      const middle = top + height / 2;
      path.setAttribute("d", `M${from} ${middle}C${from + 40} ${middle} ${x - 40} ${y} ${x} ${y}`);
      group.append(path);
    }
  }

  function show(node) {
    describe(node);
    light(node);
  }

  function choose(node) {
    const before = elementOf(selected);
    before.setAttribute("tabindex", "-1");
    before.setAttribute("aria-selected", "false");
    selected = node;
    const now = elementOf(node);
    now.setAttribute("tabindex", "0");
    now.setAttribute("aria-selected", "true");
    show(node);
  }

  function open(node) {
    choose(node);
    panel.classList.add("open");
    // On a narrow screen the panel lies over the lower part of the tree.
    const covered = elementOf(node).getBoundingClientRect().bottom - panel.getBoundingClientRect().top + 24;
    if (covered > 0 && getComputedStyle(panel).position === "fixed") window.scrollBy(0, covered);
  }

  function nodeAt(event) {
    const item = event.target.closest(".node");
    return item ? position(item) : null;
  }

  tree.addEventListener("pointerover", (event) => {
    const node = nodeAt(event);
    if (node !== null && event.pointerType === "mouse") show(node);
  });
  tree.addEventListener("pointerleave", () => show(selected));
  tree.addEventListener("click", (event) => {
    const node = nodeAt(event);
    if (node !== null) open(node);
  });
  tree.addEventListener("focusin", (event) => {
    const node = nodeAt(event);
    if (node !== null && node !== selected) open(node);
  });

  function neighbour(key) {
    const shown = items.filter((item) => !item.classList.contains("later"));
    const at = shown.indexOf(elementOf(selected));
    if (key === "ArrowDown") return shown[at + 1];
    if (key === "ArrowUp") return shown[at - 1];
    if (key === "Home") return shown[0];
    if (key === "End") return shown[shown.length - 1];
    if (key === "ArrowLeft") return elementOf(nodes.parents[selected][0]);
    if (key === "ArrowRight") return shown.find((item) => nodes.parents[position(item)][0] === selected);
    return undefined;
  }

  tree.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const target = neighbour(event.key);
    if (!target) return;
    event.preventDefault();
    open(position(target));
    target.focus({ preventScroll: true });
    target.scrollIntoView({ block: "nearest", inline: "nearest" });
  });

  function goTo(iteration) {
    let best = -1;
    let found = 0;
    nodes.iteration.forEach((first, node) => {
      const later = first > iteration;
      for (const element of [elementOf(node), byId("e" + node)]) {
        if (element) element.classList.toggle("later", later);
      }
      if (first === iteration) found += 1;
      if (!later && (best < 0 || nodes.objective[node] > nodes.objective[best])) best = node;
      const expanded = nodes.expanded[node];
      elementOf(node).classList.toggle("now", expanded === iteration);
      const pack = byId("p" + node);
      if (pack) pack.classList.toggle("later", expanded > iteration);
    });
    if (nodes.iteration[selected] > iteration) choose(best); // a hidden node cannot be reached by keyboard
    const grown = nodes.expanded.indexOf(iteration);
    byId("told").textContent =
      `${iteration} of ${replay.max}: ${grown < 0 ? "question" : nameOf(nodes.order[grown])} expanded, ` +
      `${found} new, best ${nameOf(nodes.order[best])} (${round(nodes.objective[best])})`;
    const cursor = byId("cursor");
    const from = Number(cursor.dataset.from);
    const share = (iteration - 1) / Math.max(1, Number(replay.max) - 1);
    cursor.setAttribute("transform", `translate(${from + share * (Number(cursor.dataset.to) - from)})`);
  }
  replay.addEventListener("input", () => goTo(Number(replay.value)));

  const [width, height] = [tree.width.baseVal.value, tree.height.baseVal.value];
  let scale = 1;
  function resize(wanted) {
    scale = Math.min(3, Math.max(0.2, wanted));
    tree.style.width = width * scale + "px";
    tree.style.height = height * scale + "px";
  }
  byId("smaller").addEventListener("click", () => resize(scale / 1.25));
  byId("larger").addEventListener("click", () => resize(scale * 1.25));
  byId("fit").addEventListener("click", () => resize(Math.min(1, tree.parentElement.clientWidth / width)));

  document.querySelector(".tools").hidden = false;
  goTo(Number(replay.max));
  elementOf(selected).setAttribute("tabindex", "0");
  describe(selected);
})();
