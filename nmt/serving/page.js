// The page: what is typed is translated, by one run or two; everything shown is in the address, behind the #.
"use strict";

const WAIT = 250; // milliseconds without a key before a request
const NEXT = 10; // words offered
const GONE = 0; // the status where no answer came
const $ = name => document.getElementById(name);

// What went wrong, for each run; that of one must not hide that of the other.
const failures = {};
function tell(name, text) {
  failures[name] = text;
  $("message").textContent = [...new Set(Object.values(failures))].filter(Boolean).join(" · ");
}

// What the address holds: the text, the options, and for each run the pieces that its translation begins with.
const state = { text: "", n: 1, saliency: false, tree: false, prefix: {} };

async function call(path, body, signal) {
  const options = body && { method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json" }, signal };
  let answer, found;
  try {
    answer = await fetch(path, options);
    found = await answer.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw Object.assign(new Error("the server does not answer: if it has ended, start it again"), { status: GONE });
  }
  if (answer.ok) return found;
  throw Object.assign(new Error(found.error), { status: answer.status });
}

function make(tag, parent, text, properties = {}) {
  const made = Object.assign(document.createElement(tag), properties);
  if (text !== undefined) made.textContent = text;
  parent.append(made);
  return made;
}

function save(name, blob) {
  const link = make("a", document.body, "", { href: URL.createObjectURL(blob), download: name });
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

class Pane {
  constructor(name, run, isOnly) {
    this.name = name;
    this.run = run;
    $("panes").append($("pane").content.cloneNode(true));
    this.root = $("panes").lastElementChild;
    this.view = this.part("nmt-alignment");
    this.part("h2").textContent = run.path;
    this.part("h2").hidden = isOnly;
    this.part(".export").hidden = true; // until there is something to export
    this.view.addEventListener("nmt-target", event => this.offer(event.detail.index));
    this.part(".kept button").addEventListener("click", () => this.begin([]));
    this.part(".next").addEventListener("keydown", event => { if (event.key === "Escape") this.keep(); });
    for (const button of this.root.querySelectorAll(".export button")) {
      button.addEventListener("click", () => this.export(button.dataset.kind));
    }
  }

  part(selector) { return this.root.querySelector(selector); }

  // Translate what stands in the page; a request that is overtaken by another is given up. The note is told beside it.
  async update(note = "") {
    this.asking?.abort();
    this.asking = new AbortController();
    const { signal } = this.asking;
    if (!state.text.trim()) {
      this.root.classList.remove("waiting");
      tell(this.name, "");
      return this.show(null);
    }
    this.root.classList.add("waiting");
    const asked = { text: state.text, run: this.name, n_best: state.n, prefix: state.prefix[this.name] ?? [],
      saliency: state.saliency && this.run.saliency, tree: state.tree };
    try {
      this.show(await call("translate", asked, signal), asked.text);
      tell(this.name, note);
    } catch (error) {
      if (error.name === "AbortError") return;
      const { status, message } = error, isBusy = status === 503 || status === 429;
      if (asked.prefix.length && status >= 400 && status < 500 && !isBusy) return this.drop();
      tell(this.name, message);
      if (isBusy || status === GONE) this.again = setTimeout(() => signal.aborted || this.update(note), 1000);
      if (!isBusy) this.show(null); // what is shown is the translation of another text
    }
    this.root.classList.remove("waiting");
  }

  // Translate without the prefix, which was refused: a link may have that of another model.
  drop() {
    state.prefix[this.name] = [];
    remember();
    return this.update("the translation cannot begin as asked, so it begins freely");
  }

  show(answer, text) {
    this.answer = answer;
    this.text = text;
    if (!answer) this.shown = null;
    this.part(".next").hidden = true;
    for (const part of ["nmt-alignment", ".export"]) this.part(part).hidden = !answer;
    const best = this.part(".best");
    best.replaceChildren();
    best.hidden = !answer || answer.n_best.length < 2;
    this.part(".tree").hidden = !answer?.tree?.nodes.length;
    this.part(".kept").hidden = !answer?.forced;
    if (!answer) return;
    answer.n_best.forEach((each, number) => {
      const line = make("li", best);
      const button = make("button", line, each.text || "(nothing)", { type: "button", dir: "auto" });
      make("small", line, ` ${each.score.toFixed(3)}`);
      button.addEventListener("click", () => this.choose(number));
    });
    if (answer.tree) drawTree(this.part(".tree svg"), answer.tree);
    this.choose(0);
  }

  // Show one of the n best translations.
  choose(number) {
    const { run, answer } = this;
    this.shown = number ? answer.n_best[number] : { ...answer.n_best[0], saliency: answer.saliency };
    this.view.data = { ...this.shown, source_language: run.source_language, target_language: run.target_language };
    const kept = this.view.words.target.filter((_, index) => this.shown.starts[index] < answer.forced);
    for (const word of kept) word.classList.add("forced");
    this.part(".kept b").textContent = textOf(kept);
    const { score, log_prob: logProb, parts, cut } = this.shown;
    this.part(".figures").textContent = [
      `score ${score.toFixed(3)}`, `log p ${logProb.toFixed(2)}`, `${(1000 * answer.seconds).toFixed(0)} ms`,
      parts > 1 && `in ${parts} parts, so without beam tree, saliency and choice of words`,
      cut && "cut at the greatest length", number && answer.saliency && "saliency is of the best alone",
    ].filter(Boolean).join(" · ");
    this.root.querySelectorAll(".best button").forEach((button, each) => button.setAttribute("aria-pressed", each === number));
    this.part(".next").hidden = true;
    // Without words there is no heatmap to draw.
    for (const kind of ["png", "svg"]) this.part(`[data-kind=${kind}]`).hidden = !this.view.maps.length;
  }

  // Whether another text has been typed than the one whose translation is shown.
  get isOld() { return state.text !== this.text; }

  // Offer the next words in the place of a target word.
  async offer(index) {
    const { shown } = this;
    if (this.isOld || shown.parts > 1) return; // other words would be those of the text as a whole
    const prefix = shown.pieces.slice(0, shown.starts[index]);
    const asked = { text: state.text, run: this.name, prefix, n_best: NEXT };
    let words, neighbors;
    try {
      ({ words, neighbors = [] } = await call("next", asked));
    } catch (error) {
      tell(this.name, error.message);
      return;
    }
    tell(this.name, "");
    if (this.shown !== shown || this.isOld) return; // another translation has come meanwhile, or will
    this.offered = index;
    const place = this.part(".next"), list = this.part(".words");
    // Characters of one piece, or of one word, are replaced together.
    const before = this.view.words.target.filter((_, other) => shown.starts[other] < shown.starts[index]);
    const after = this.part(".next p");
    after.textContent = before.length ? "after “" : "at the beginning:";
    if (before.length) {
      make("bdi", after, textOf(before));
      after.append("”:");
    }
    list.replaceChildren();
    for (const each of words) {
      const button = make("button", list, undefined, { type: "button", dir: "auto" });
      make("bdi", button, each.word ? (each.joins ? `…${each.word}` : each.word) : "(end)");
      make("small", button, ` ${(100 * each.probability).toFixed(1)} %`, { dir: "ltr" });
      make("i", button).style.width = `${100 * each.probability}%`;
      button.addEventListener("click", () => this.begin(each.pieces));
    }
    this.part(".near").hidden = !neighbors.length;
    this.part(".near ul").replaceChildren();
    for (const each of neighbors) this.addNeighbor(each);
    place.hidden = false;
    list.firstElementChild?.focus();
  }

  // A place of the datastore's text: its share, the target with the word that follows there, and the source.
  addNeighbor({ weight, source, words, word }) {
    const { source_language: from, target_language: to } = this.run;
    const line = make("li", this.part(".near ul"));
    make("small", line, `${(100 * weight).toFixed(0)} % `, { dir: "ltr" });
    const target = make("bdi", line, undefined, { lang: to });
    [...words, "(end)"].slice(0, Math.max(words.length, word + 1)).forEach((text, index) => {
      target.append(index ? " " : "");
      make(index === word ? "mark" : "span", target, text);
    });
    make("bdi", line, source, { lang: from, className: "quiet" });
  }

  // Offer words no longer; the focus goes back to the word in whose place they were.
  keep() {
    this.part(".next").hidden = true;
    this.view.words.target[this.offered]?.focus();
  }

  // Go on from these pieces. The button that said so has gone then, and the focus goes to the last word that they fix.
  async begin(pieces) {
    if (this.isOld) return;
    const button = document.activeElement;
    state.prefix[this.name] = pieces;
    remember();
    await this.update();
    if (![button, document.body].includes(document.activeElement)) return; // it has gone elsewhere meanwhile
    const words = this.view.words?.target ?? [];
    (words.findLast(word => word.classList.contains("forced")) ?? words[0])?.focus();
  }

  async export(kind) {
    const name = `alignment-${this.name}`;
    if (kind === "json") return save(`${name}.json`, new Blob([JSON.stringify({ ...this.answer, ...this.shown }, null, 1)]));
    if (kind === "html") return save(`${name}.html`, new Blob([await offline(this.view.data)], { type: "text/html" }));
    const drawing = new Blob([this.view.svg()], { type: "image/svg+xml" });
    return save(`${name}.${kind}`, kind === "svg" ? drawing : await painted(drawing));
  }
}

// The text that the first words of a translation stand in, as it is written: in some scripts without spaces.
function textOf(words) {
  const range = new Range();
  if (words.length) {
    range.setStart(words[0].parentNode, 0);
    range.setEndAfter(words.at(-1));
  }
  return range.toString();
}

// A page of its own: the data, the element's script and its style.
async function offline(data) {
  const [style, script] = await Promise.all(["alignment.css", "alignment.js"].map(name => fetch(name).then(file => file.text())));
  const escaped = text => text.replace(/[&<>"]/g, character => `&#${character.charCodeAt(0)};`);
  return `<!DOCTYPE html>
<html><head><meta charset="utf-8"><title>${escaped(data.source)}</title><meta name="viewport" content="width=device-width">
<style>:root { color-scheme: light dark; } body { margin: 1rem; }\n${style}</style></head>
<body><nmt-alignment data="${escaped(JSON.stringify(data))}"></nmt-alignment><script>${script}</script></body></html>`;
}

// A drawing as PNG, at twice its size.
async function painted(drawing) {
  const image = new Image();
  image.src = URL.createObjectURL(drawing);
  await image.decode();
  const canvas = Object.assign(document.createElement("canvas"), { width: 2 * image.width, height: 2 * image.height });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(image.src);
  return new Promise(resolve => canvas.toBlob(resolve, "image/png"));
}

// The hypotheses that were in the beam, from left to right; the way to the best translation is drawn strongly.
function drawTree(root, { nodes, ends }) {
  const children = nodes.map(() => []), starts = [], best = new Set(), row = [], left = [0], scores = new Map();
  nodes.forEach((node, index) => (children[node.parent] ?? starts).push(index));
  for (let index = ends[0]?.node ?? -1; index >= 0; index = nodes[index].parent) best.add(index);
  for (const end of ends) if (!scores.has(end.node)) scores.set(end.node, end.score.toFixed(3));
  const label = index => nodes[index].piece.replace("\u2581", "\u2423");
  const end = index => 22 + 13 * [...label(index)].length + (scores.has(index) ? 56 : 0); // within its column
  nodes.forEach(({ step }, index) => (left[step] = Math.max(left[step] ?? 0, end(index) + 4)));
  for (let step = 1; step < left.length; step++) left[step] += left[step - 1];
  let rows = 0;
  const waiting = starts.toReversed().map(index => [index, false]);
  while (waiting.length) {
    const [index, isDone] = waiting.pop();
    if (!children[index].length) row[index] = rows++;
    else if (isDone) row[index] = row[children[index][0]]; // a straight line to the most probable continuation
    else waiting.push([index, true], ...children[index].toReversed().map(child => [child, false]));
  }
  const add = (tag, className, attributes) => {
    const made = document.createElementNS(root.namespaceURI, tag);
    for (const [name, value] of Object.entries({ class: className, ...attributes })) made.setAttribute(name, value);
    root.append(made);
    return made;
  };
  root.replaceChildren();
  root.setAttribute("width", left.at(-1) + 10);
  root.setAttribute("height", 24 * rows + 6);
  nodes.forEach(({ parent, step, log_prob: logProb }, index) => {
    const chosen = best.has(index) ? "chosen" : "", x = left[step - 1] + 22, y = 24 * row[index] + 16;
    const [from, above] = parent < 0 ? [2, 12] : [left[step - 2] + end(parent) + 1, 24 * row[parent] + 12];
    add("path", chosen, { d: `M${from} ${above}H${left[step - 1]}C${x - 14} ${above} ${x - 14} ${y - 4} ${x - 3} ${y - 4}` });
    const text = add("text", chosen, { x, y });
    text.textContent = `\u2068${label(index)}\u2069`; // isolated: the mark of a space stands where the word begins
    if (scores.has(index)) add("text", "quiet", { x: x + 13 * [...label(index)].length + 6, y }).textContent = scores.get(index);
    const title = document.createElementNS(root.namespaceURI, "title");
    title.textContent = `log p ${logProb.toFixed(3)} of all up to here`;
    text.append(title);
  });
}

// Write the state into the address, or read it from there.
function remember() {
  const kept = new URLSearchParams({ text: state.text });
  if (state.n > 1) kept.set("n", state.n);
  for (const option of ["saliency", "tree"]) if (state[option]) kept.set(option, 1);
  for (const [run, pieces] of Object.entries(state.prefix)) if (pieces.length) kept.set(`prefix.${run}`, JSON.stringify(pieces));
  history.replaceState(null, "", `#${kept}`);
}

const address = () => new URLSearchParams(location.hash.slice(1));

function recall(runs) {
  const kept = address();
  state.text = kept.get("text") ?? "";
  state.n = [...$("n").options].some(option => option.text === kept.get("n")) ? +kept.get("n") : 1;
  for (const option of ["saliency", "tree"]) $(option).checked = state[option] = kept.has(option);
  state.prefix = {};
  for (const run of runs) {
    try {
      const pieces = JSON.parse(kept.get(`prefix.${run}`) ?? "[]");
      if (Array.isArray(pieces) && pieces.every(piece => typeof piece === "string")) state.prefix[run] = pieces;
    } catch { /* an address that was cut */ }
  }
  $("text").value = state.text;
  $("n").value = state.n;
}

// The slider over what training has kept of the first run's sample sentences.
async function past(run) {
  const { validations } = await call("validations?run=checkpoint");
  if (!validations.length) return;
  $("history").hidden = false;
  $("trained").textContent = run.path;
  validations.at(-1).samples.forEach(({ sample, source }) => make("option", $("sample"), source, { value: sample }));
  $("step").max = validations.length - 1;
  $("step").value = $("step").max; // after the bound, which is 100 before
  const show = () => {
    const { step, samples } = validations[$("step").value];
    const each = samples.find(({ sample }) => sample === +$("sample").value) ?? samples[0];
    const forced = $("side").value === "reference" && each.reference_weights?.length > 0;
    const shown = forced ? { text: each.reference, target_words: each.reference_words, weights: each.reference_weights }
      : { text: each.translation, target_words: each.target_words, weights: each.weights };
    $("update").textContent = step.toLocaleString();
    $("past").data = { source: each.source, source_words: each.source_words, ...shown,
      source_language: run.source_language, target_language: run.target_language };
    $("other").textContent = forced ? "translation:" : "reference:";
    $("reference").textContent = forced ? each.translation : each.reference;
  };
  for (const name of ["step", "sample", "side"]) $(name).addEventListener("input", show);
  show();
}

async function start() {
  $("text").value = address().get("text") ?? $("text").value;
  const { runs } = await call("health");
  const typed = $("text").value; // meanwhile
  const names = Object.keys(runs), first = runs.checkpoint;
  const panes = names.map(name => new Pane(name, runs[name], names.length === 1));
  const update = () => { remember(); panes.forEach(pane => pane.update()); };
  $("runs").textContent = names.map(name => `${runs[name].path} · update ${runs[name].step} · `
    + `${runs[name].source_language} → ${runs[name].target_language} · beam ${runs[name].beam_size}`
    + (runs[name].neighbors ? ` · ${runs[name].neighbors} neighbors` : "")).join("  |  ");
  $("text").lang = first.source_language;
  $("saliency").disabled = !names.some(name => runs[name].saliency);
  let timer;
  $("text").addEventListener("input", () => {
    state.text = $("text").value;
    state.prefix = {};
    for (const pane of panes) pane.part(".next").hidden = true;
    clearTimeout(timer);
    timer = setTimeout(update, WAIT);
  });
  for (const name of ["saliency", "tree"]) $(name).addEventListener("change", () => { state[name] = $(name).checked; update(); });
  $("n").addEventListener("change", () => { state.n = +$("n").value; update(); });
  $("link").hidden = !navigator.clipboard; // browsers have it on this machine's pages, and over HTTPS
  $("link").addEventListener("click", async () => {
    await navigator.clipboard.writeText(location.href);
    $("link").textContent = "Copied";
    setTimeout(() => ($("link").textContent = "Copy link"), 1500);
  });
  const follow = () => { recall(names); panes.forEach(pane => pane.update()); };
  addEventListener("hashchange", follow);
  recall(names);
  if (typed !== state.text) {
    Object.assign(state, { text: typed, prefix: {} });
    $("text").value = typed;
    remember();
  }
  panes.forEach(pane => pane.update());
  await past(first);
}

start().catch(error => { $("message").textContent = `${error.message}; to try again, reload this page`; });
