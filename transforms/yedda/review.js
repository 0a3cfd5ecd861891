"use strict";
// The page of a document in two halves: linnet, which knows bytes and YEDDA and
// no page, and review, which is the page.
const linnet = (() => {
  const LF = 10, FF = 12, CR = 13;
  const bytesOf = (s) => new TextEncoder().encode(s);

  function decode(base64) {
    const s = atob(base64), out = new Uint8Array(s.length);
    for (let i = 0; i < s.length; i++) out[i] = s.charCodeAt(i);
    return out;
  }

  // Every line ends at LF, which stays outside; there is none after a last LF.
  function lines(text) {
    const out = [];
    for (let start = 0; start < text.length;) {
      let end = text.indexOf(LF, start);
      if (end < 0) end = text.length;
      out.push([start, end]);
      start = end + 1;
    }
    return out;
  }

  // The length of the white space at text[i], 0 where there is ink. Bytes that
  // are no UTF-8 are ink.
  function space(text, i, end) {
    const a = text[i], b = i + 1 < end ? text[i + 1] : 0, c = i + 2 < end ? text[i + 2] : 0;
    if (a < 0x80) return a >= 9 && a <= 13 || a >= 0x1c && a <= 0x20 ? 1 : 0;
    if (a === 0xc2) return b === 0x85 || b === 0xa0 ? 2 : 0;
    if (a === 0xe1) return b === 0x9a && c === 0x80 ? 3 : 0;
    if (a === 0xe2) {
      return b === 0x80 && (c >= 0x80 && c <= 0x8a || c === 0xa8 || c === 0xa9 || c === 0xaf) || b === 0x81 && c === 0x9f ? 3 : 0;
    }
    return a === 0xe3 && b === 0x80 && c === 0x80 ? 3 : 0;
  }

  function hasInk(text, start, end) {
    while (start < end) {
      const n = space(text, start, end);
      if (n === 0) return true;
      start += n;
    }
    return false;
  }

  // Neighbouring rows with one label are one span; blank lines and form feeds
  // end it and stay outside, and so does a CR behind it. "" makes no span.
  function spansOf(text, rows, labels) {
    const spans = [];
    let grow = false, feed = text.indexOf(FF);
    rows.forEach(([first, rowEnd], i) => {
      const label = labels[i];
      if (i > 0 && first !== rows[i - 1][1] + 1) grow = false;
      if (label === "") {
        grow = false;
        return;
      }
      const end = rowEnd > first && text[rowEnd - 1] === CR ? rowEnd - 1 : rowEnd;
      for (let start = first; ;) {
        if (feed >= 0 && feed < start) feed = text.indexOf(FF, start);
        const cut = feed < 0 || feed > end ? end : feed;
        if (hasInk(text, start, cut)) {
          const last = spans[spans.length - 1];
          if (grow && last.label === label) last.end = cut;
          else spans.push({start, end: cut, label});
          grow = true;
        }
        if (cut === end) break;
        grow = false;
        start = cut + 1;
      }
    });
    return spans;
  }

  const isLetter = (c) => (c | 0x20) >= 0x61 && (c | 0x20) <= 0x7a;
  const isLabelByte = (c) => isLetter(c) || c >= 0x30 && c <= 0x39 || c === 0x2d || c === 0x5f;

  // The offset of the bytes a and b, side by side, or the end of text.
  function pair(text, a, b, from) {
    for (let i = text.indexOf(a, from); i >= 0; i = text.indexOf(a, i + 1)) {
      if (text[i + 1] === b) return i;
    }
    return text.length;
  }

  // The tokens "[@" and "#Label*]" of text, in order.
  function* markup(text) {
    let pos = 0, open = pair(text, 0x5b, 0x40, 0), tail = pair(text, 0x2a, 0x5d, 0);
    for (;;) {
      if (open < tail) {
        pos = open + 2;
        yield [open, pos];
        open = pair(text, 0x5b, 0x40, pos);
        continue;
      }
      if (tail === text.length) return;
      const at = tail;
      tail = pair(text, 0x2a, 0x5d, at + 2);
      let i = at;
      while (i > pos && at - i < 50 && isLabelByte(text[i - 1])) i--;
      if (i === pos || i === at || !isLetter(text[i])) continue;
      const mark = text[i - 1];
      if (mark !== 0x23 && mark !== 0x40) continue;
      pos = at + 2;
      if (mark === 0x23) yield [i - 1, pos];
    }
  }

  // YEDDA of text with spans that lie apart, in order, with their borders at
  // line breaks and form feeds, which no token has inside. A token of text
  // itself is taken apart by an empty span behind its first byte.
  function format(text, spans) {
    const parts = [], literal = bytesOf("[@#Literal*]"), opener = bytesOf("[@"), closers = new Map();
    const tokens = markup(text);
    let at = 0, token = tokens.next();
    const copyTo = (pos) => {
      for (; !token.done && token.value[0] < pos; token = tokens.next()) {
        parts.push(text.subarray(at, token.value[0] + 1), literal);
        at = token.value[0] + 1;
      }
      parts.push(text.subarray(at, pos));
      at = pos;
    };
    for (const {start, end, label} of spans) {
      if (!closers.has(label)) closers.set(label, bytesOf("#" + label + "*]"));
      copyTo(start);
      parts.push(opener);
      copyTo(end);
      parts.push(closers.get(label));
    }
    copyTo(text.length);
    const out = new Uint8Array(parts.reduce((n, p) => n + p.length, 0));
    let n = 0;
    for (const p of parts) {
      out.set(p, n);
      n += p.length;
    }
    return out;
  }

  // The document of a page: its bytes, all its lines, and for each of them the
  // label's index in names (-1 where the line is blank) and the label's
  // probability in thousandths (-1 where there is none).
  function load(review, base64) {
    const text = decode(base64), all = lines(text);
    if (review.labels.length !== all.length) throw new Error("the page is damaged: it has labels for other lines");
    return {name: review.name, text, lines: all, names: review.names, labels: review.labels.slice(), sure: review.sure};
  }

  function yedda(doc) {
    const rows = [], labels = [];
    doc.lines.forEach((line, i) => {
      if (doc.labels[i] < 0) return;
      rows.push(line);
      labels.push(doc.names[doc.labels[i]]);
    });
    return format(doc.text, spansOf(doc.text, rows, labels));
  }

  return {load, yedda};
})();

function review(doc) {
  const $ = (id) => document.getElementById(id);
  const make = (tag, className, text) => {
    const e = document.createElement(tag);
    if (className) e.className = className;
    if (text !== undefined) e.textContent = text;
    return e;
  };
  const list = $("list"), utf8 = new TextDecoder("utf-8", {ignoreBOM: true});
  const total = doc.lines.length, given = doc.labels.slice();
  const checked = new Uint8Array(total), rows = new Array(total).fill(null);
  const chunks = [], chunkSize = 100, hiddenLabels = new Set(), history = [];
  const isRow = (i) => i >= 0 && i < total && doc.labels[i] >= 0;
  let current = -1, anchor = -1, home = -1, limit = 800, saved = true, changed = 0, doubts = 0, frames = 0, jumped = false;

  const title = (k) => doc.names[k] === "" ? "no label" : doc.names[k];
  const hue = (k) => String((25 + 137.5 * (k - 1)) % 360);
  const doubtful = (i) => isRow(i) && !checked[i] && doc.sure[i] >= 0 && doc.sure[i] < limit;
  const shown = (i) => rows[i] !== null && !rows[i].hidden;
  const say = (text) => { $("status").textContent = text; };

  // paint shows the state of a line.
  function paint(i) {
    const row = rows[i], k = doc.labels[i], sure = doc.sure[i];
    const same = k === given[i], doubt = doubtful(i);
    row.className = "row" + (k > 0 ? " label" : "") + (doubt ? " doubtful" : "") + (same ? "" : " changed") + (i === current ? " current" : "");
    row.style.setProperty("--hue", hue(k));
    row.style.setProperty("--sure", k === 0 ? "0" : !same || checked[i] ? "1" : sure < 0 ? "0.5" : String(sure / 1000));
    row.children[1].textContent = title(k) +
      (!same ? ", changed" : sure < 0 ? "" : " " + Math.floor(sure / 10) + " %") + (checked[i] && same ? " ✓" : doubt ? " ?" : "");
  }

  function build() {
    let chunk = null;
    for (let i = 0; i < total; i++) {
      if (i % chunkSize === 0) {
        chunk = make("div", "chunk");
        chunk.setAttribute("role", "group");
        chunk.setAttribute("aria-label", "Lines from " + (i + 1));
        chunks.push(chunk);
      }
      if (doc.labels[i] < 0) {
        const blank = make("div", "blank");
        blank.setAttribute("aria-hidden", "true");
        chunk.append(blank);
        continue;
      }
      const [start, end] = doc.lines[i], row = make("div", "row");
      const text = make("span", "text");
      // A long one in parts: where scripts change, Chromium takes the square of a part's length.
      for (const part of utf8.decode(doc.text.subarray(start, end)).replaceAll("\f", "␌").match(/[^]{1,1000}$|[^]{1,999}\s|[^]{1,1000}/gu)) text.append(part);
      text.dir = "auto"; // unicode-bidi: plaintext takes Chromium the square of a line's length
      row.id = "line" + i;
      row.setAttribute("role", "option");
      row.setAttribute("aria-selected", "false");
      row.append(make("span", "number", String(i + 1)), make("span", "name"), text);
      rows[i] = row;
      paint(i);
      chunk.append(row);
    }
  }

  function count() {
    const n = new Array(doc.names.length).fill(0);
    changed = doubts = 0;
    for (let i = 0; i < total; i++) {
      if (rows[i] === null) continue;
      n[doc.labels[i]]++;
      if (doc.labels[i] !== given[i]) changed++;
      if (doubtful(i)) doubts++;
    }
    const labelled = n.reduce((a, b) => a + b, 0);
    $("counts").textContent = labelled + (labelled === 1 ? " line, " : " lines, ") + doubts + " doubtful, " + changed + " changed";
    doc.names.forEach((_, k) => {
      const button = $("show" + k);
      button.textContent = (k > 0 && k < 10 ? k + " " : "") + title(k) + " (" + n[k] + ")";
      button.setAttribute("aria-pressed", String(!hiddenLabels.has(k)));
      button.hidden = k === 0 && n[0] === 0 && !hiddenLabels.has(0);
    });
  }

  // filter shows and hides lines. Whole chunks go with their last line, for an
  // unseen chunk takes the room that it is believed to need; one that was seen
  // before would keep its old height, so each is made anew.
  function filter() {
    select(false); // or lines between those marked would come to be marked unseen
    anchor = -1;
    const only = $("only").checked, all = !only && hiddenLabels.size === 0;
    chunks.forEach((old, c) => {
      const chunk = chunks[c] = old.cloneNode(false);
      chunk.append(...old.children);
      let n = 0, height = 0;
      const from = c * chunkSize;
      for (let j = 0; j < chunk.children.length; j++) {
        const i = from + j;
        const show = rows[i] === null ? all : !hiddenLabels.has(doc.labels[i]) && (!only || doubtful(i));
        chunk.children[j].hidden = !show;
        if (!show) continue;
        n++;
        height += rows[i] === null ? 14 : 26;
      }
      chunk.hidden = n === 0;
      chunk.style.containIntrinsicSize = height + "px";
    });
    list.replaceChildren(...chunks);
    count();
    const from = home >= 0 ? home : current;
    let to = from >= 0 && shown(from) ? from : step(from, 1, shown);
    if (to < 0) to = step(from, -1, shown);
    go(to, false, "center");
    if (to !== from) home = from; // when it is shown again, back to it
    say(to >= 0 ? "" : only && hiddenLabels.size === 0 ? "No doubtful line; f shows all." : "No such line; a shows all.");
  }

  // step is the next line in a direction that is wanted, or -1.
  function step(from, direction, wanted) {
    for (let i = from + direction; i >= 0 && i < total; i += direction) {
      if (wanted(i)) return i;
    }
    return -1;
  }

  function marked() {
    const out = [];
    if (current < 0) return out;
    const [a, b] = anchor < 0 ? [current, current] : [Math.min(anchor, current), Math.max(anchor, current)];
    for (let i = a; i <= b; i++) if (shown(i)) out.push(i);
    return out;
  }

  function select(on) {
    for (const i of marked()) rows[i].setAttribute("aria-selected", String(on));
  }

  // go makes a line the current one; extend keeps the lines marked so far.
  function go(to, extend, block) {
    select(false);
    const old = current;
    if (extend) {
      if (anchor < 0) anchor = old;
    } else {
      anchor = -1;
    }
    current = to;
    if (old >= 0 && rows[old]) rows[old].classList.remove("current");
    if (to < 0) {
      list.removeAttribute("aria-activedescendant");
      return;
    }
    home = -1;
    select(true);
    rows[to].classList.add("current");
    list.setAttribute("aria-activedescendant", rows[to].id);
    jumped = Boolean(block);
    view(block || "nearest");
    keep();
  }

  // view has the current line in view.
  function view(block) {
    if (current < 0) return;
    if (jumped && rows[current].offsetHeight > list.clientHeight) block = "start"; // where its label stands
    rows[current].scrollIntoView({block});
  }

  // keep has the current line stay in view, while chunks come there, get their own heights
  // and move it.
  function keep() {
    if (frames === 0) requestAnimationFrame(frame);
    frames = 8;
  }

  function frame() {
    view("nearest");
    if (--frames > 0) requestAnimationFrame(frame);
  }

  function move(direction, extend, times) {
    let to = current;
    for (let n = 0; n < (times || 1); n++) {
      const next = step(to, direction, shown);
      if (next < 0) break;
      to = next;
    }
    if (to !== current) go(to, extend);
  }

  function jump(direction) {
    const to = step(current, direction, (i) => shown(i) && doubtful(i));
    if (to < 0) {
      say(direction > 0 ? "No doubtful line below." : "No doubtful line above.");
      return;
    }
    go(to, false, "center");
    say("Line " + (to + 1) + ": " + rows[to].children[1].textContent);
  }

  // change does something to lines in a way that undo takes back.
  function change(lines, what) {
    if (lines.length === 0) return;
    home = -1;
    history.push(lines.map((i) => [i, doc.labels[i], checked[i]]));
    for (const i of lines) {
      what(i);
      paint(i);
    }
    saved = false;
    count();
  }

  function setLabel(k) {
    const lines = marked();
    if (k >= doc.names.length || lines.length === 0) return;
    change(lines, (i) => { doc.labels[i] = k; checked[i] = 1; });
    say((lines.length === 1 ? "Line " + (lines[0] + 1) : lines.length + " lines") + ": " + title(k));
  }

  function toggle() {
    const lines = marked(), on = lines.some((i) => !checked[i]) ? 1 : 0;
    if (lines.length === 0) return;
    change(lines, (i) => { checked[i] = on; });
    say(on ? "Checked." : "No longer checked.");
  }

  function accept() {
    change(marked().filter((i) => !checked[i]), (i) => { checked[i] = 1; });
    jump(1);
  }

  function undo() {
    const last = history.pop();
    if (!last) {
      say("Nothing to undo.");
      return;
    }
    for (const [i, label, wasChecked] of last) {
      doc.labels[i] = label;
      checked[i] = wasChecked;
      paint(i);
    }
    saved = false;
    count();
    const at = last[0][0];
    if (!shown(at)) filter(); // which hid it as it was before
    if (shown(at)) go(at);
    say("Undone.");
  }

  // judge is filter by another limit.
  function judge() {
    const old = limit, sure = doc.sure;
    limit = 10 * Number($("limit").value);
    $("percent").value = $("limit").value + " %";
    rows.forEach((row, i) => { if (row && (sure[i] < old) !== (sure[i] < limit)) paint(i); });
    filter();
  }

  function showLabel(k) {
    if (k >= doc.names.length) return;
    if (!hiddenLabels.delete(k)) hiddenLabels.add(k);
    filter();
  }

  function showOnly() {
    if (current < 0) return;
    hiddenLabels.clear();
    doc.names.forEach((_, k) => { if (k !== doc.labels[current]) hiddenLabels.add(k); });
    filter();
  }

  function showAll() {
    hiddenLabels.clear();
    $("only").checked = false;
    filter();
  }

  function save() {
    const used = new Set(doc.labels);
    const wrong = doc.names.findIndex((name, k) => k > 0 && used.has(k) && !/^[A-Za-z][A-Za-z0-9_-]{0,49}$/.test(name));
    if (wrong >= 0) {
      say("Not exported: YEDDA cannot hold the label \"" + doc.names[wrong] + "\"; give its lines another.");
      return;
    }
    const file = doc.name.replaceAll("/", "__") + ".ann"; // another than that of a_b.txt, for a/b.txt
    const url = URL.createObjectURL(new Blob([linnet.yedda(doc)], {type: "application/octet-stream"}));
    const link = make("a");
    link.href = url;
    link.download = file;
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(url), 60000);
    saved = true;
    say("Exported " + file + ".");
  }

  // open opens a dialog, which gives the keys back to what had them.
  function open(dialog) {
    list.focus();
    dialog.showModal();
  }

  // choose opens the list of labels at that of the marked lines, or at none where they
  // have several. A select of one line, closed, would take a letter for a label in some
  // browsers, and each looks for names in its own way.
  function choose() {
    const labels = new Set(marked().map((i) => doc.labels[i]));
    $("find").value = "";
    open($("labels"));
    pick(labels.size === 1 ? [...labels][0] : -1);
    $("find").focus();
  }

  // pick shows a label in the list as the one that Enter gives; -1 is none.
  function pick(k) {
    $("names").selectedIndex = k;
    if (k < 0) $("find").removeAttribute("aria-activedescendant");
    else $("find").setAttribute("aria-activedescendant", "name" + k);
  }

  // find picks the label that is called what was typed, or else begins so, or else has it
  // inside.
  function find() {
    const typed = $("find").value.toLowerCase(), names = doc.names.map((name) => name.toLowerCase());
    let k = -1;
    for (const fits of [(name) => name === typed, (name) => name.startsWith(typed), (name) => name.includes(typed)]) {
      if (typed !== "" && k < 0) k = names.findIndex(fits);
    }
    pick(k);
  }

  // chosen gives the marked lines the label that is picked.
  function chosen() {
    const k = $("names").selectedIndex;
    $("labels").close();
    if (k >= 0) setLabel(k);
  }

  const keys = {
    j: () => move(1), k: () => move(-1), J: () => move(1, true), K: () => move(-1, true),
    n: () => jump(1), p: () => jump(-1), N: () => jump(-1),
    g: () => go(step(-1, 1, shown)), G: () => go(step(total, -1, shown)),
    Home: () => go(step(-1, 1, shown)), End: () => go(step(total, -1, shown)),
    PageDown: () => move(1, false, 10), PageUp: () => move(-1, false, 10),
    " ": toggle, Enter: accept, u: undo, e: save, o: showOnly, a: showAll,
    f: () => { $("only").checked = !$("only").checked; filter(); },
    l: choose,
    "?": () => open($("keys")),
    Escape: () => { list.focus(); if (current >= 0) go(current); },
  };

  function key(event) {
    if (event.defaultPrevented || event.ctrlKey || event.altKey || event.metaKey || event.isComposing || document.querySelector("dialog[open]")) return;
    const target = event.target;
    let name = event.key;
    const letter = /^Key([A-Z])$/.exec(event.code);
    if (letter && /^[\p{L}\p{M}]$/u.test(name) && !/\p{Script=Latin}/u.test(name)) name = letter[1]; // by its place
    if (name.length === 1) name = event.shiftKey ? name.toUpperCase() : name.toLowerCase(); // whatever Caps Lock says
    if (target.matches("input") && name !== "Escape") return;
    if (target.matches("button") && (name === " " || name === "Enter")) return;
    const digit = /^Digit([0-9])$/.exec(event.code);
    let act = null;
    if (Object.hasOwn(keys, name)) act = keys[name]; // "?" may be on a digit's key
    else if (digit && event.shiftKey) act = () => showLabel(Number(digit[1]));
    else if (/^[0-9]$/.test(name)) act = () => setLabel(Number(name));
    else if (digit) act = () => setLabel(Number(digit[1])); // a layout where digits take Shift
    else if (name === "ArrowDown") act = () => move(1, event.shiftKey);
    else if (name === "ArrowUp") act = () => move(-1, event.shiftKey);
    if (!act) return;
    event.preventDefault();
    if (event.repeat && act === accept) return; // held down, it would call line after line right
    act();
  }

  // A page that a browser saved has what an earlier run of this made, and what its
  // controls were set to.
  $("filter").replaceChildren();
  $("names").replaceChildren();
  $("keys").open = $("labels").open = false;
  $("limit").value = limit / 10;
  $("percent").value = $("limit").value + " %";
  $("only").checked = false;
  doc.names.forEach((_, k) => {
    const button = make("button", k > 0 ? "label" : "");
    button.type = "button";
    button.id = "show" + k;
    button.style.setProperty("--hue", hue(k));
    button.addEventListener("click", () => showLabel(k));
    $("filter").append(button);
    const option = make("option", "", title(k) + (k < 10 ? ", key " + k : ""));
    option.id = "name" + k;
    $("names").append(option);
  });
  $("labels").addEventListener("keydown", (event) => {
    const by = {ArrowDown: 1, ArrowUp: -1}[event.key], k = $("names").selectedIndex;
    if (event.isComposing || event.target.matches("button")) return;
    if (event.key === "Enter" && !event.repeat) chosen();
    else if (by && event.target === $("find")) pick(Math.max(0, Math.min(doc.names.length - 1, k + by)));
    else return;
    event.preventDefault();
  });
  $("find").addEventListener("input", find);
  $("names").addEventListener("click", (event) => {
    if (!event.target.matches("option")) return;
    pick(event.target.index);
    chosen();
  });
  $("choose").addEventListener("click", choose);
  $("cancel").addEventListener("click", () => $("labels").close());
  $("limit").addEventListener("input", () => { $("percent").value = $("limit").value + " %"; });
  $("limit").addEventListener("change", judge);
  $("only").addEventListener("change", filter);
  $("previous").addEventListener("click", () => jump(-1));
  $("next").addEventListener("click", () => jump(1));
  $("undo").addEventListener("click", undo);
  $("export").addEventListener("click", save);
  $("help").addEventListener("click", () => open($("keys")));
  $("close").addEventListener("click", () => $("keys").close());
  list.addEventListener("click", (event) => {
    const row = event.target.closest(".row");
    if (row) go(Number(row.id.slice(4)), event.shiftKey);
  });
  document.querySelector("header").addEventListener("click", (event) => {
    if (event.detail > 0 && !document.querySelector("dialog[open]")) list.focus(); // the mouse's; a control would keep the keys
  });
  document.addEventListener("keydown", key);
  addEventListener("resize", keep);
  // WebKit keeps a page that one comes back to, and resets its controls.
  addEventListener("pageshow", (event) => { if (event.persisted) setTimeout(judge); });
  addEventListener("beforeunload", (event) => { if (!saved) event.preventDefault(); });

  build();
  filter();
  list.focus();
  say("Press ? for the keys.");
}

if (typeof window !== "undefined") {
  const read = (id) => document.getElementById(id).textContent;
  review(linnet.load(JSON.parse(read("review")), read("text")));
}
