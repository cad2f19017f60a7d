// The view of a sentence pair: both sentences, whose words light each other by weight, and heatmaps beside them.
//
// <nmt-alignment data='{"source_words": [...], "target_words": [...], "weights": [[...], ...]}'></nmt-alignment>
//
// `weights` has a row a target word and a column a source word. Optional: `saliency`, a second matrix of that shape;
// `source` and `text`, the sentences that the words are parts of; `source_language` and `target_language`, by which
// browsers choose glyphs; `gold`: {"sure": [[i, j], ...], "possible": [...]}.
// From a script: `element.data = {...}`. A click on a target word, or Enter, sends the event `nmt-target` with
// `detail.index`. `element.svg()` returns the heatmaps as one SVG text. All text is set as text, never as markup.
"use strict";
(() => {
  if (customElements.get("nmt-alignment")) return;

  const CELL = 24, GAP = 6, LINE = 15, LABEL = 160, FONT = "13px system-ui, sans-serif";
  const RTL = /^[\u200f\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;
  // Letters as wide as high, which stand upright below each other.
  const WIDE = /^[\u2e80-\u30ff\u3130-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe4f\uff01-\uff60\u{20000}-\u{3ffff}]+…?$/u;
  const STYLE = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "font"];
  // The namespace as the parser has it, so that no page of ours holds an address.
  const SVG = new Range().createContextualFragment("<svg></svg>").firstChild.namespaceURI;
  const measure = document.createElement("canvas").getContext("2d");

  const printable = text => text.replace(/\p{Cc}/gu, "\ufffd");
  const percent = weight => `${(100 * weight).toFixed(weight < 0.1 ? 1 : 0)} %`;
  // By the first letter or mark of direction, as browsers decide it.
  const isRtl = words => RTL.test(/[\p{L}\u200e\u200f\u061c]/u.exec(words.join(""))?.[0] ?? "");

  function html(tag, className, parent, text) {
    const made = document.createElement(tag);
    made.className = className;
    if (text !== undefined) made.textContent = text;
    parent?.append(made);
    return made;
  }

  function svg(tag, attributes, parent, text) {
    const made = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    if (text !== undefined) made.textContent = text;
    parent?.append(made);
    return made;
  }

  // U+2068 and U+2069 isolate a word, so that its own direction orders its letters and nothing beside it.
  const isolate = text => `\u2068${text}\u2069`;

  // A label of bounded width.
  function label(word) {
    measure.font = FONT;
    let shown = [...printable(word)];
    if (measure.measureText(word).width > LABEL) {
      while (shown.length > 1 && measure.measureText(`${shown.join("")}…`).width > LABEL) shown.pop();
      shown.push("…");
    }
    const text = shown.join(""), width = Math.min(LABEL, measure.measureText(text).width);
    return { text: isolate(text), letters: WIDE.test(text) ? shown : null, width };
  }

  // The parts of a sentence between its words; a space where a word is not in the text.
  function gaps(words, text) {
    let place = 0;
    return words.map((word, index) => {
      const found = text ? text.indexOf(word, place) : -1;
      if (found < 0) return index ? " " : "";
      const gap = text.slice(place, found);
      place = found + word.length;
      return gap;
    });
  }

  class NmtAlignment extends HTMLElement {
    connectedCallback() {
      const given = this.getAttribute("data");
      if (given && !this.given) this.data = JSON.parse(given);
    }

    get data() { return this.given; }

    set data(given) {
      this.given = given;
      this.panels = Object.entries({ attention: given.weights, saliency: given.saliency }).filter(([, rows]) => rows);
      this.active = 0;
      this.words = { source: [], target: [] };
      this.maps = [];
      this.replaceChildren(); // a word that has the focus is blurred
      const text = html("div", "nmt-sentences", this);
      this.sentence(text, "source", given.source_words, given.source);
      this.sentence(text, "target", given.target_words, given.text);
      this.caption = html("div", "nmt-caption", text);
      this.caption.setAttribute("aria-live", "polite");
      const maps = html("div", "nmt-maps", this);
      if (given.target_words.length && given.source_words.length) {
        this.maps = this.panels.map(([name, rows], number) => this.heatmap(maps, name, rows, number));
      }
      this.clear();
    }

    sentence(parent, side, words, text) {
      const line = html("p", `nmt-${side}`, parent);
      line.dir = "auto";
      line.lang = this.given[`${side}_language`] ?? "";
      const between = gaps(words, text);
      this.words[side] = words.map((word, index) => {
        line.append(between[index]);
        const shown = html("span", "nmt-word", line, printable(word));
        shown.tabIndex = index ? -1 : 0;
        shown.addEventListener("pointerenter", () => this.light(side, index));
        shown.addEventListener("pointerleave", () => this.rest());
        shown.addEventListener("focus", () => this.light(side, index));
        shown.addEventListener("blur", () => this.clear());
        shown.addEventListener("click", () => this.choose(side, index));
        shown.addEventListener("keydown", event => this.key(event, side, index));
        return shown;
      });
    }

    choose(side, index) {
      this.words[side][index].focus();
      if (side === "target") this.dispatchEvent(new CustomEvent("nmt-target", { detail: { index }, bubbles: true }));
    }

    // Left and right move along the sentence, up and down to the strongest partner.
    key(event, side, index) {
      if (event.altKey || event.ctrlKey || event.metaKey) return; // the browser's own, as Alt and left is its way back
      const words = this.words[side], other = side === "source" ? "target" : "source";
      const forward = isRtl(this.given[`${side}_words`]) ? "ArrowLeft" : "ArrowRight";
      let next = null;
      if (event.key === "ArrowLeft" || event.key === "ArrowRight") next = words[index + (event.key === forward ? 1 : -1)];
      else if (event.key === "Home") next = words[0];
      else if (event.key === "End") next = words.at(-1);
      else if (event.key === (side === "source" ? "ArrowDown" : "ArrowUp")) {
        next = this.words[other][this.partners(this.active, side, index)[0]?.index ?? 0];
      } else if (event.key === "Enter" || event.key === " ") this.choose(side, index);
      else return;
      event.preventDefault();
      if (!next) return;
      next.parentElement.querySelectorAll("[tabindex='0']").forEach(word => (word.tabIndex = -1));
      next.tabIndex = 0;
      next.focus();
    }

    // The words of the other side with their weights, the strongest first.
    partners(panel, side, index) {
      const rows = this.panels[panel][1];
      const weights = side === "target" ? rows[index] : rows.map(row => row[index]);
      const named = weights.map((weight, other) => ({ index: other, weight })).filter(each => each.weight >= 0.005);
      return named.sort((a, b) => b.weight - a.weight);
    }

    light(side, index) {
      this.clear();
      const other = side === "source" ? "target" : "source";
      this.words[side][index].classList.add("nmt-current");
      for (const each of this.partners(this.active, side, index)) this.lit(other, each.index, each.weight);
      for (const map of this.maps) map.band(side, index);
      const told = this.panels.map(([name], panel) => {
        const strongest = this.partners(panel, side, index).slice(0, 4);
        const word = each => isolate(this.given[`${other}_words`][each.index]);
        const shown = strongest.map(each => `${word(each)} ${percent(each.weight)}`);
        return `${name}: ${shown.join(" · ") || "none"}`;
      });
      this.tell(this.given[`${side}_words`][index], told);
    }

    lit(side, index, weight) {
      const word = this.words[side][index];
      word.classList.add("nmt-lit");
      word.style.setProperty("--nmt-weight", `${(100 * Math.min(1, weight)).toFixed(0)}%`);
    }

    tell(word, lines) {
      this.caption.replaceChildren();
      html("b", "", this.caption, printable(word)).dir = "auto";
      for (const line of lines) html("span", "", this.caption, printable(line));
    }

    // The pointer has left: a word with the keyboard's focus is lit again.
    rest() {
      for (const side of ["source", "target"]) {
        const index = this.words[side].indexOf(document.activeElement);
        if (index >= 0) return this.light(side, index);
      }
      return this.clear();
    }

    clear() {
      for (const word of [...this.words.source, ...this.words.target]) word.classList.remove("nmt-current", "nmt-lit");
      for (const map of this.maps) map.band(null, 0);
      this.caption.replaceChildren();
      const hint = this.maps.length ? "Point at a word, or walk with the arrow keys." : "";
      html("span", "nmt-quiet", this.caption, hint);
    }

    heatmap(parent, name, rows, number) {
      const { source_words: sources, target_words: targets, gold } = this.given;
      const box = html("div", "nmt-map", parent);
      if (this.panels.length > 1) {
        const title = html("button", "nmt-title", box, name);
        title.type = "button";
        title.setAttribute("aria-pressed", number === this.active);
        title.addEventListener("click", () => this.activate(number));
      }
      const columns = sources.map(label), lines = targets.map(label);
      const left = Math.max(...lines.map(each => each.width)) + GAP, upright = columns.every(each => each.width < CELL);
      const tall = each => upright ? 16 : each.letters ? LINE * each.letters.length : each.width;
      const top = Math.max(...columns.map(tall)) + GAP;
      const width = CELL * sources.length, height = CELL * targets.length;
      // Columns stand in the order in which the source is read.
      const x = isRtl(sources) ? i => left + width - CELL * (i + 1) : i => left + CELL * i;
      const y = j => top + CELL * j;
      const size = { width: Math.ceil(left + width + 2), height: Math.ceil(top + height + 2) };
      const root = svg("svg", { ...size, viewBox: `0 0 ${size.width} ${size.height}`, role: "img", class: "nmt-svg",
        "aria-label": `${name}: ${targets.length} target words by ${sources.length} source words` }, box);
      const band = svg("rect", { class: "nmt-band", width: 0, height: 0 }, root);
      svg("rect", { class: "nmt-frame", x: left, y: top, width, height }, root);
      columns.forEach((each, i) => {
        const middle = x(i) + CELL / 2, letters = each.letters ?? [each.text];
        const turned = { transform: `translate(${middle + 4} ${top - GAP}) rotate(-90)` };
        if (!upright && !each.letters) return svg("text", turned, root, each.text);
        return letters.forEach((letter, k) => svg("text",
          { x: middle, y: top - GAP - LINE * (letters.length - 1 - k), "text-anchor": "middle" }, root, letter));
      });
      lines.forEach((each, j) => svg("text", { x: left - GAP, y: y(j) + CELL / 2 + 4, "text-anchor": "end" }, root, each.text));
      rows.forEach((row, j) => row.forEach((weight, i) => {
        if (weight >= 0.005) svg("rect", { class: "nmt-cell", x: x(i) + 1, y: y(j) + 1, width: CELL - 2, height: CELL - 2,
          "fill-opacity": Math.min(1, weight).toFixed(3) }, root);
      }));
      for (const kind of ["possible", "sure"]) for (const [i, j] of gold?.[kind] ?? []) {
        svg("rect", { class: `nmt-${kind}`, x: x(i) + 2, y: y(j) + 2, width: CELL - 4, height: CELL - 4 }, root);
      }
      root.addEventListener("pointermove", event => {
        const place = root.getBoundingClientRect();
        const column = Math.floor((event.clientX - place.left - left) / CELL);
        const j = Math.floor((event.clientY - place.top - top) / CELL);
        const i = isRtl(sources) ? sources.length - 1 - column : column;
        if (column >= 0 && j >= 0 && i in sources && j in targets) this.point(number, i, j);
        else this.rest();
      });
      root.addEventListener("pointerleave", () => this.rest());
      return { root, name, band(side, index) {
        const whole = side === "target" ? [0, y(index), left + width, CELL] : [x(index), 0, CELL, top + height];
        const shape = side ? whole : [0, 0, 0, 0];
        ["x", "y", "width", "height"].forEach((key, k) => band.setAttribute(key, shape[k]));
      } };
    }

    point(panel, i, j) {
      this.clear();
      this.lit("source", i, 1);
      this.lit("target", j, 1);
      const [source, target] = [this.given.source_words[i], this.given.target_words[j]];
      const weights = this.panels.map(([name, rows]) => `${name}: ${percent(rows[j][i])}`);
      this.tell(`${isolate(source)} – ${isolate(target)}`, weights);
    }

    // Let the words be lit by this matrix.
    activate(number) {
      this.active = number;
      this.querySelectorAll(".nmt-title").forEach((title, each) => title.setAttribute("aria-pressed", each === number));
    }

    // The heatmaps, one below the other, as a drawing that needs no stylesheet.
    svg() {
      const drawings = this.maps.map(map => map.root);
      const width = Math.max(...drawings.map(each => +each.getAttribute("width"))) + 20;
      const root = svg("svg", { width });
      const paper = svg("rect", { width, fill: getComputedStyle(this).getPropertyValue("--nmt-paper") }, root);
      let height = 10;
      for (const { root: drawing, name } of this.maps) {
        const copy = drawing.cloneNode(true), originals = [drawing, ...drawing.querySelectorAll("*")];
        [copy, ...copy.querySelectorAll("*")].forEach((node, index) => {
          const style = getComputedStyle(originals[index]);
          for (const key of STYLE) node.style.setProperty(key, style.getPropertyValue(key));
          node.removeAttribute("class");
        });
        if (this.maps.length > 1) {
          const title = svg("text", { x: 10, y: height + 12 }, root, name);
          title.style.font = FONT;
          title.style.fill = getComputedStyle(this).color;
          height += 20;
        }
        copy.setAttribute("x", 10);
        copy.setAttribute("y", height);
        root.append(copy);
        height += +drawing.getAttribute("height") + 10;
      }
      root.setAttribute("height", height);
      paper.setAttribute("height", height);
      return new XMLSerializer().serializeToString(root);
    }
  }

  customElements.define("nmt-alignment", NmtAlignment);
})();
