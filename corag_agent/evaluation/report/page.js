"use strict";
(() => {
  const byId = (name) => document.getElementById(name);
  const data = JSON.parse(byId("data").textContent);
  const { questions, records, ways, settings } = data;
  const gold = data.gold.map((chunks) => new Set(chunks));
  const AT_ONCE = 40; // questions that are added to the list at a time
  const TIE = 0.0005; // scores that close are equal
  const list = byId("list");
  let rows = new Map(); // question → way → record, of the chosen setting
  let written = new Map(); // question → what a search looks through
  let found = [];
  let shown = 0;

  // Texts enter the page as text only, never as markup.
  function add(parent, tag, text, kind) {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    if (kind) element.className = kind;
    return parent.appendChild(element);
  }

  const score = (value) => (value === null || value === undefined ? "–" : value.toFixed(3));
  const signed = (value) => (value > 0 ? "+" : "") + value.toFixed(3).replace("-", "−");
  const nameOf = ([name, , reranker, variant]) => [name, reranker, variant].filter(Boolean).join(" · ");

  function options(select, pairs) {
    const before = select.value;
    select.replaceChildren();
    for (const [value, text] of pairs) add(select, "option", text).value = value;
    if (pairs.some(([value]) => value === before)) select.value = before;
  }

  function values(name) {
    const all = [...new Set(questions.map((question) => question[name]))].sort();
    return [["", "all"], ...all.filter((value) => value !== "").map((value) => [value, value])];
  }

  // Records of the chosen setting, and the ways that it has.
  function takeSetting() {
    const setting = Number(byId("setting").value);
    const used = new Set();
    rows = new Map();
    written = new Map();
    records.setting.forEach((own, record) => {
      if (own !== setting) return;
      const question = records.question[record];
      if (!rows.has(question)) rows.set(question, new Map());
      rows.get(question).set(records.way[record], record);
      used.add(records.way[record]);
    });
    const there = ways.map((way, index) => [String(index), nameOf(way), way]).filter(([index]) => used.has(Number(index)));
    for (const [id, wanted] of [["way", ["agent", "tree"]], ["baseline", ["naive_rag", "best_single"]]]) {
      const before = byId(id).value;
      options(byId(id), there);
      if (there.some(([index]) => index === before)) continue;
      const preferred = wanted.map((method) => there.find(([, , way]) => way[1] === method)).find(Boolean);
      byId(id).value = (preferred || there[0])[0];
    }
  }

  function difference(question) {
    const own = rows.get(question).get(Number(byId("way").value));
    const other = rows.get(question).get(Number(byId("baseline").value));
    if (own === undefined || other === undefined) return null;
    if (records.rougeL[own] === null || records.rougeL[other] === null) return null;
    return records.rougeL[own] - records.rougeL[other];
  }

  const OUTCOMES = {
    all: () => true,
    win: (question, gain) => gain !== null && gain > TIE,
    tie: (question, gain) => gain !== null && Math.abs(gain) <= TIE,
    loss: (question, gain) => gain !== null && gain < -TIE,
    failed: (question) => [...rows.get(question).values()].some((record) => records.error[record]),
  };

  function mentions(index, words) {
    if (!words.length) return true;
    if (!written.has(index)) {
      const question = questions[index];
      const answers = [...rows.get(index).values()].map((record) => data.answers[records.answer[record]]);
      const text = [question.question, question.reference, question.question_id, ...question.human_answers, ...answers];
      written.set(index, text.join("\n").toLowerCase());
    }
    return words.every((word) => written.get(index).includes(word));
  }

  function filter() {
    const words = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = OUTCOMES[byId("outcome").value];
    const fields = ["dataset", "domain", "kind"].map((name) => [name, byId(name).value]).filter(([, value]) => value);
    found = [];
    for (const index of rows.keys()) {
      if (!fields.every(([name, value]) => questions[index][name] === value)) continue;
      const gain = difference(index);
      if (wanted(index, gain) && mentions(index, words)) found.push([index, gain]);
    }
    found.sort((a, b) => a[0] - b[0]);
    const order = byId("sort").value;
    const sign = order === "gain" ? -1 : 1;
    if (order !== "given") found.sort((a, b) => (a[1] === null) - (b[1] === null) || sign * (a[1] - b[1]));
    report();
    list.replaceChildren();
    shown = 0;
    showMore();
  }

  function report() {
    const gains = found.map(([, gain]) => gain).filter((gain) => gain !== null);
    let text = `${found.length} of ${rows.size} questions`;
    if (gains.length && byId("way").value !== byId("baseline").value) {
      const count = (outcome, one, many) => {
        const number = gains.filter((gain) => OUTCOMES[outcome](0, gain)).length;
        return `${number} ${number === 1 ? one : many}`;
      };
      const counts = [count("win", "win", "wins"), count("tie", "tie", "ties"), count("loss", "loss", "losses")];
      const mean = gains.reduce((sum, gain) => sum + gain, 0) / gains.length;
      text += `: ${counts.join(", ")}, mean difference ${signed(mean)}`;
    }
    byId("found").textContent = text;
  }

  function showMore() {
    for (const [index, gain] of found.slice(shown, shown + AT_ONCE)) addQuestion(index, gain);
    shown = Math.min(found.length, shown + AT_ONCE);
    byId("more").hidden = shown >= found.length;
    byId("more").textContent = `Show ${Math.min(AT_ONCE, found.length - shown)} more of ${found.length - shown}`;
  }

  function addQuestion(index, gain) {
    const details = add(add(list, "li"), "details");
    const summary = add(details, "summary");
    add(summary, "bdi", questions[index].question, "question");
    const record = rows.get(index).get(Number(byId("way").value));
    const own = record === undefined ? null : records.rougeL[record];
    const kind = gain === null ? "open" : gain > TIE ? "better" : gain < -TIE ? "worse" : "open";
    add(summary, "span", gain === null ? score(own) : `${score(own)} (${signed(gain)})`, "gain " + kind);
    details.addEventListener("toggle", () => {
      if (details.open && details.children.length === 1) addBody(details, index);
    });
  }

  function addText(parent, title, text) {
    if (!text) return;
    const line = add(parent, "p", undefined, "told");
    add(line, "b", title);
    line.append(" ");
    const told = add(line, "span", text);
    told.dir = "auto";
  }

  function addBody(details, index) {
    const question = questions[index];
    const body = add(details, "div", undefined, "body");
    const facts = [question.dataset, question.domain, question.kind, question.question_id].filter(Boolean);
    const source = add(body, "p", undefined, "soft");
    facts.forEach((fact, place) => {
      if (place) source.append(" · ");
      add(source, "bdi", fact);
    });
    addText(body, "Reference", question.reference);
    addText(body, question.human_answers.length > 1 ? "Human answers" : "Human answer", question.human_answers.join(" / "));
    if (question.gold.length) {
      const passages = add(body, "details", undefined, "folded");
      add(passages, "summary", question.gold.length > 1 ? `${question.gold.length} gold passages` : "Gold passage");
      for (const passage of question.gold) add(passages, "p", passage, "text").dir = "auto";
    }
    const cards = add(body, "div", undefined, "cards");
    addTable(body, index, cards);
    for (const way of new Set([Number(byId("way").value), Number(byId("baseline").value)])) addCard(cards, index, way);
  }

  function addCard(cards, index, way) {
    const record = rows.get(index).get(way);
    if (record === undefined) return;
    const card = add(cards, "article");
    card.dataset.way = way;
    add(card, "h3", nameOf(ways[way]));
    if (records.error[record]) {
      add(card, "p", "failed: " + records.error[record], "error");
      return;
    }
    const numbers = [`ROUGE-L ${score(records.rougeL[record])}`, `${records.tokens[record]} tokens`];
    add(card, "p", numbers.join(" · "), "soft");
    addText(card, "Answer", data.answers[records.answer[record]] || "(empty)");
    const chunks = add(card, "ol", undefined, "chunks");
    for (const number of records.chunks[record]) addChunk(chunks, number, gold[index].has(number));
  }

  function addChunk(list, number, isGold) {
    const [name, text, cost] = data.chunks[number];
    const item = add(list, "li", undefined, isGold ? "gold" : "");
    const source = add(item, "p", undefined, "soft");
    if (isGold) add(source, "b", "★ gold ");
    add(source, "bdi", name);
    source.append(` · ${cost} tokens`);
    add(item, "p", data.texts[text], "text").dir = "auto";
  }

  // All methods of the setting; a button shows or hides the chunks of one.
  function addTable(body, index, cards) {
    const pane = add(body, "div", undefined, "pane");
    pane.tabIndex = 0;
    pane.setAttribute("role", "region");
    pane.setAttribute("aria-label", "all methods on this question");
    const table = add(pane, "table");
    add(table, "caption", "All methods on this question; a name shows or hides its chunks above");
    const head = add(add(table, "thead"), "tr");
    for (const title of ["method", "ROUGE-L", "human ROUGE-L", "token F1", "gold recall", "tokens", "chunks", "answer"]) {
      const cell = add(head, "th", title, ["method", "answer"].includes(title) ? "" : "number");
      cell.scope = "col";
    }
    const lines = add(table, "tbody");
    for (const way of [...rows.get(index).keys()].sort((a, b) => a - b)) {
      addLine(add(lines, "tr"), rows.get(index).get(way), way, index, cards);
    }
  }

  function addLine(line, record, way, index, cards) {
    const name = add(line, "th");
    name.scope = "row";
    const button = add(name, "button", nameOf(ways[way]), "plain");
    button.type = "button";
    const isShown = () => [...cards.children].find((card) => Number(card.dataset.way) === way);
    button.addEventListener("click", () => {
      const card = isShown();
      if (card) card.remove();
      else addCard(cards, index, way);
      button.setAttribute("aria-pressed", String(!card));
    });
    const chosen = [byId("way").value, byId("baseline").value].includes(String(way));
    button.setAttribute("aria-pressed", String(chosen));
    for (const column of ["rougeL", "human_rougeL", "token_f1", "gold_recall"]) {
      add(line, "td", score(records[column][record]), "number");
    }
    add(line, "td", records.error[record] ? "–" : String(records.tokens[record]), "number");
    add(line, "td", String(records.chunks[record].length), "number");
    const answer = records.error[record] ? "failed: " + records.error[record] : data.answers[records.answer[record]];
    add(line, "td", answer, "answer").dir = "auto";
  }

  options(byId("setting"), settings.map(([run, size, budget], index) => [String(index), `${run} · chunks of ${size} · budget ${budget}`]));
  byId("setting").value = String(data.start);
  for (const name of ["dataset", "domain", "kind"]) options(byId(name), values(name));
  for (const name of ["dataset", "domain", "kind"]) byId(name).parentElement.hidden = byId(name).options.length < 3;
  byId("setting").parentElement.hidden = settings.length < 2;
  takeSetting();
  byId("filters").hidden = false;
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  byId("filters").addEventListener("input", (event) => {
    if (event.target.id === "setting") takeSetting();
    filter();
  });
  byId("more").addEventListener("click", () => {
    const place = list.children.length;
    showMore();
    list.children[place].querySelector("summary").focus();
  });
  filter();
})();
