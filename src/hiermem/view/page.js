"use strict";
// Everything that is shown comes from the blocks of data in this page, and is set as text.
const $ = (id) => document.getElementById(id);
const HEAD = JSON.parse($("head").textContent);
const SINGLE = HEAD.sessions.length === 1;
const ROLES = { u: "user", a: "assistant", s: "system", d: "developer", t: "tool" };
const KINDS = ["not shown", "summarised", "excerpted", "verbatim", "recalled"];
const MEANING = {
  verbatim: "stands in the context whole",
  excerpted: "stands in it in part",
  summarised: "stands in it by a line of a summary",
  recalled: "was found for the question",
  "not shown": "is represented only: a summary that covers it is in the context, but no line speaks of it",
};
const SOURCES = { chatgpt: "ChatGPT", claude: "Claude", "claude-code": "Claude Code", codex: "Codex", copilot: "GitHub Copilot", discord: "Discord", gemini: "Gemini", irc: "IRC", librechat: "LibreChat", map: "a file", messages: "a file of messages", "open-webui": "Open WebUI", sillytavern: "SillyTavern", slack: "Slack", telegram: "Telegram", text: "a transcript", whatsapp: "WhatsApp" };
const COLOURS = ["line", "summarised", "excerpted", "verbatim", "recalled"];
const STATES = { pending: "to be made", generating: "being made", active: "made", failed: "failed" };
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric" });
const SHORT = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const BARE = new Intl.DateTimeFormat("en-GB", { day: "numeric" });
const LONGDAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "long", year: "numeric" });
const LONGSHORT = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "long" });
const HOUR = new Intl.DateTimeFormat("en-GB", { timeStyle: "short" });
const TIME = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "short" });
const LONG = 2000, GROUP = 40, SNIPPET = 240, CHIPS = 8;

const num = (n) => n.toLocaleString("en-US");
const many = (n, one, more) => `${num(n)} ${n === 1 ? one : more || one + "s"}`;
const day = (t) => DAY.format(t * 1000);
/** Say a period as a person does: "3 to 27 Mar 2025"; what both days share is said once. */
const period = (a, b, whole, part) => {
  const from = whole.format(a * 1000), to = whole.format(b * 1000);
  if (from === to) return to;
  if (from.slice(-4) !== to.slice(-4)) return `${from} to ${to}`;
  const same = from.split(" ").slice(1).join() === to.split(" ").slice(1).join();
  return `${(same ? BARE : part).format(a * 1000)} to ${to}`;
};
const days = (a, b) => period(a, b, DAY, SHORT);
const called = (node) => {
  const [from, to] = [node.first, node.last].map((t) => HOUR.format(t * 1000)), one = day(node.first) === day(node.last);
  return `Summary of ${period(node.first, node.last, LONGDAY, LONGSHORT)}${one ? `, ${from === to ? to : `${from} to ${to}`}` : ""}`;
};
const span = ([a, b]) => (b - a > 1 ? `${num(a)}–${num(b - 1)}` : num(a));
const clip = (x, low, high) => Math.max(low, Math.min(high, x));
const percent = (x) => (x > 0 && x < 0.01 ? "<1 %" : `${Math.floor(x * 100 + 1e-9)} %`);

/** Make an element; a child is an element or a text, and nothing is read as HTML. */
function h(name, props, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(props || {})) {
    if (key === "on") made.addEventListener("click", value);
    else if (key === "c") made.style.setProperty("--c", `var(--${value})`);
    else if (value !== undefined && value !== false) made.setAttribute(key, value);
  }
  return fill(made, children);
}

/** Put children in the place of those of an element; what is no element and no text is left out. */
function fill(box, ...children) {
  box.replaceChildren(...children.flat(Infinity).filter((one) => typeof one === "string" ? one : one instanceof Node));
  return box;
}

const wordsOf = (text) => text.toLowerCase().match(/[\p{L}\p{N}]+/gu) || [];

/** Return a length as a bar. */
function bar(length) {
  const made = h("span", { class: "gone" });
  made.style.width = `${Math.min(100, 2 + length / 4)}%`;
  return [made, h("span", { class: "dim" }, ` ${many(length, "character")}`)];
}

/** Return where in a text the found words are, and what a line was made of; in order, apart. */
function marksOf(text, source) {
  const marks = find.words.length ? foundIn(text, fold(text)) : [];
  if (source?.size) {
    for (const one of text.matchAll(/[^\n.!?]+[.!?]*/g)) {
      const words = wordsOf(one[0]);
      if (words.length > 1 && words.filter((word) => source.has(word)).length >= 0.9 * words.length) marks.push([one.index, one.index + one[0].length, "source"]);
    }
  }
  marks.sort((x, y) => x[0] - y[0] || y[1] - x[1]);
  let done = 0;
  return marks.filter(([from, to]) => from >= done && (done = to));
}

/** Return a part of a text as nodes, with its marks. */
function marked(text, marks, from = 0, to = text.length) {
  const out = [];
  let done = from;
  for (let [a, b, kind] of marks) {
    [a, b] = [Math.max(a, from), Math.min(b, to)];
    if (a >= b) continue;
    out.push(text.slice(done, a), h("mark", kind && { class: kind }, text.slice(a, b)));
    done = b;
  }
  return [...out, text.slice(done, to)];
}

const said = (text, source) => (typeof text === "number" ? bar(text) : marked(text, marksOf(text, source)));

/** Return the part of a text around its first found word, on one line. */
function snippet(text) {
  if (typeof text !== "string") return said(text);
  const flat = text.replace(/\s+/g, " ").trim(), first = (find.words.length && foundIn(flat, fold(flat)).sort((x, y) => x[0] - y[0])[0]?.[0]) || 0;
  let from = flat.length > SNIPPET ? clip(first - 60, 0, flat.length - SNIPPET) : 0;
  if (from) from = flat.indexOf(" ", from) + 1 && flat.indexOf(" ", from) < first ? flat.indexOf(" ", from) + 1 : from;
  let to = Math.min(flat.length, from + SNIPPET);
  if (to < flat.length && flat.lastIndexOf(" ", to) > to - 20) to = flat.lastIndexOf(" ", to);
  return [from ? "… " : "", h("span", { class: "words" }, rich(flat.slice(from, to))), to < flat.length ? " …" : ""];
}

// -- Markdown: what it marks is shown, and the marks are hidden. The text of the elements is the
// -- message, character by character; nothing of it is read as HTML.

const INLINE = /(`+)(?!`)([^\n]*?[^`\n])\1(?!`)|(\*\*|__)(?=\S)([^\n]*?\S)\3|(?<![\p{L}\p{N}*_])([*_])(?![\s*_])([^\n*_]*[^\s*_])\5(?![\p{L}\p{N}*_])|(~~)(?=\S)([^\n]*?\S)\7|(!?\[)([^\]\n]+)(\]\([^()\s]*\))/gu;

/** Return a text with its Markdown shown. */
function rich(text, source) {
  if (typeof text === "number") return bar(text);
  const marks = marksOf(text, source), out = [];
  const hidden = (from, to) => (from < to ? h("span", { class: "mk" }, text.slice(from, to)) : null);
  const plain = (from, to) => marked(text, marks, from, to);
  /** Return a part of one line or paragraph, with what is in code, strong or emphasised. */
  const inline = (from, to) => {
    const made = [], part = to - from > 8000 ? "" : text.slice(from, to);
    let done = from;
    for (const one of part.matchAll(INLINE)) {
      const at = from + one.index, end = at + one[0].length, mark = one[1] || one[3] || one[5] || one[7] || one[9];
      const a = at + mark.length, b = end - (one[11] || mark).length;
      made.push(plain(done, at), hidden(at, a));
      if (one[1]) made.push(h("code", {}, plain(a, b)), hidden(b, end));
      else if (one[9]) made.push(inline(a, b), hidden(b, b + 1), h("span", { class: "dim" }, plain(b + 1, end)));
      else made.push(h(one[3] ? "strong" : one[5] ? "em" : "s", {}, inline(a, b)), hidden(b, end));
      done = end;
    }
    return [...made, plain(done, to)];
  };
  /** Return a line of a table as cells. */
  const cells = (from, to, kind) => {
    const lead = from + /^\s*\|?/.exec(text.slice(from, to))[0].length, made = [];
    for (let at = lead, begin = lead; at <= to; at++) {
      if (at < to && (text[at] !== "|" || text[at - 1] === "\\")) continue;
      const last = at === to && made.length && !text.slice(begin, to).trim();
      if (last) made.at(-1).append(hidden(begin, to) || "");
      else made.push(h(kind, {}, inline(begin, at), hidden(at, Math.min(to, at + 1))));
      begin = at + 1;
    }
    made[0].prepend(hidden(from, lead) || "");
    return made;
  };
  const rows = [];
  for (let at = 0; at <= text.length;) {
    const next = text.indexOf("\n", at);
    rows.push([at, next < 0 ? text.length : next]);
    at = next < 0 ? text.length + 1 : next + 1;
  }
  const line = (n) => (n < rows.length ? text.slice(...rows[n]) : "");
  const newline = (n) => (rows[n][1] < text.length ? h("span", { class: "mk" }, "\n") : null);
  const begins = (n) => /^ {0,3}(#{1,6} |```|~~~|> ?|([-*+]|\d{1,3}[.)]) )|^\s*$|^ *([-*_])( *\3){2,} *$/.test(line(n)) || isTable(n) || /^\s+([-*+]|\d{1,3}[.)]) /.test(line(n));
  const isTable = (n) => line(n).includes("|") && /^ *\|?( *:?-{2,}:? *\|)+( *:?-{2,}:? *)?$/.test(line(n + 1));
  for (let n = 0; n < rows.length;) {
    const [from, to] = rows[n], now = line(n), heading = /^ {0,3}#{1,6} /.exec(now), item = /^(\s*)([-*+]|\d{1,3}[.)])( +)(\[[ xX]\] )?/.exec(now), fence = /^ *(```+|~~~+)/.exec(now), quote = /^ {0,3}(> ?)+/.exec(now);
    if (fence) {
      let end = n + 1;
      while (end < rows.length && !(line(end).trim().startsWith(fence[1]) && !line(end).trim().replaceAll(fence[1][0], ""))) end++;
      const last = Math.min(end, rows.length - 1), inner = n + 1 < end ? [rows[n + 1][0], rows[end - 1][1]] : null;
      out.push(h("pre", {}, hidden(from, inner ? inner[0] : rows[last][1]), inner && h("code", {}, plain(...inner)), inner && hidden(inner[1], rows[last][1])), newline(last));
      n = last + 1;
    } else if (isTable(n)) {
      const body = [h("tr", {}, cells(from, to, "th")), h("tr", { class: "mk" }, h("td", {}, "\n" + line(n + 1)))];
      for (n += 2; line(n).includes("|"); n++) body.push(h("tr", {}, cells(rows[n][0] - 1, rows[n][1], "td")));
      out.push(h("div", { class: "wide" }, h("table", {}, body)), newline(n - 1));
    } else if (/^ *([-*_])( *\1){2,} *$/.test(now)) {
      out.push(h("div", { class: "rule" }, hidden(from, to)), newline(n++));
    } else if (heading || item || quote) {
      const lead = (heading || item || quote)[0].length, number = item && /\d/.test(item[2]);
      const made = h("div", { class: heading ? "heading" : quote ? "quote" : "item" }, hidden(from, from + lead), number && h("span", { class: "number" }), inline(from + lead, to));
      if (number) made.querySelector(".number").dataset.at = item[2];
      if (item) { made.style.marginInlineStart = `${1.3 + Math.min(6, item[1].length / 2) * 1.1}em`; if (!number) made.classList.add("bullet"); }
      out.push(made, newline(n++));
    } else if (!now.trim()) {
      out.push(h("div", { class: "gap" }, hidden(from, to)), newline(n++));
    } else {
      let end = n + 1;
      while (end < rows.length && !begins(end)) end++;
      out.push(h("div", {}, inline(from, rows[end - 1][1])), newline(end - 1));
      n = end;
    }
  }
  return out;
}

async function part(name) {
  const block = $(name);
  if (!block) return null;
  if (!HEAD.packed) return JSON.parse(block.textContent);
  const raw = atob(block.textContent), bytes = new Uint8Array(raw.length);
  for (let at = 0; at < raw.length; at++) bytes[at] = raw.charCodeAt(at);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

// -- A long list: groups of items are made where they come near the view, and dropped behind it.

class Feed {
  /** ``size`` gives the characters of an item; a group has 40 items at most, fewer long ones. */
  constructor(box, count, make, size = () => 0, root = box) {
    [this.make, this.groups, this.seen] = [make, [], new IntersectionObserver((all) => this.look(all), { root, rootMargin: "400px" })];
    for (let at = 0, to; at < count; at = to) {
      let sum = 0;
      for (to = at; to < count && to < at + GROUP && sum < 8000; to++) sum += Math.min(size(to), LONG) + 90;
      const group = h("div");
      group.style.minHeight = `${(to - at) * 50 + sum / 4}px`;
      this.groups.push(Object.assign(group, { from: at, to }));
      this.seen.observe(group);
    }
    box.replaceChildren(...this.groups);
    if (count) this.fill(this.groups[0]);
  }
  look(all) { all.forEach((one) => (one.isIntersecting ? this.fill(one.target) : this.drop(one.target, one.boundingClientRect.height))); }
  fill(group) {
    if (group.firstChild) return;
    for (let i = group.from; i < group.to; i++) group.append(this.make(i));
    group.style.minHeight = "";
  }
  drop(group, height) {
    if (!group.firstChild || group.contains(document.activeElement)) return;
    group.style.minHeight = `${height}px`;
    group.replaceChildren();
  }
  /** Show an item in the middle, made anew. */
  show(i) {
    const group = this.groups.find((one) => i < one.to), item = group && this.make(i);
    if (!group) return;
    this.look(this.seen.takeRecords());  // what was seen before the scroll would empty the group
    this.fill(group);
    group.children[i - group.from].replaceWith(item);
    const look = () => item.scrollIntoView({ block: item.offsetHeight > group.parentNode.clientHeight ? "start" : "center" });
    look();
    requestAnimationFrame(() => item.isConnected && look());
  }
  again() { for (const group of this.groups) if (group.firstChild) { group.replaceChildren(); this.fill(group); } }
  end() { this.seen.disconnect(); }
}

// -- One session

let S = null, feed = null, tab = "Messages";
const picked = { node: -1, message: -1, source: null };
const find = { words: [], messages: [], nodes: [], source: null, all: true };
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const level = (k) => `l${Math.min(k, 4)}`;
const name = (i) => S.messages.names[S.messages.who[i]];
const plan = () => S.contexts[$("budget").value] || null;
const length = (i) => S.messages.text[i].length ?? 0;
const kindOf = (i) => (S.kinds ? S.kinds[i] : 0);

function prepare(entry, data) {
  S = Object.assign(data, { entry, count: data.messages.role.length, });
  [S.below, S.rows] = [S.nodes.map(() => []), []];
  S.nodes.forEach((node, at) => {
    node.at = at;
    if (node.up !== undefined) S.below[node.up].push(at);
    (S.rows[node.level] ||= []).push(node);
  });
  for (const node of S.nodes) if (node.lines) node.text = spell(node.lines);
  S.folded = null;
  for (const row of S.rows) row?.sort((x, y) => x.span[0] - y.span[0]);
  S.window = [0, Math.max(1, S.count)];
  S.pinned = new Map(S.pins.map(([at, reason]) => [at, reason]));
  S.tallest = S.messages.tokens.reduce((x, y) => Math.max(x, y), 1);
}

/** Return lines as text, by the messages and summaries that they repeat; or their length. */
function spell(lines) {
  if (typeof lines[0] === "number") return lines.reduce((sum, one) => sum + one + 1, -1);
  return lines.map((one) => {
    if (typeof one === "string") return one;
    if (one[0] < 0) return spell([S.nodes[-1 - one[0]].lines[one[1]]]) + one[2];
    let text = one[1];
    for (let at = 2; at < one.length; at += 3) text += S.messages.text[one[0]].slice(one[at], one[at] + one[at + 1]) + one[at + 2];
    return text;
  }).join("\n");
}

/** Say for each message how the planned context has it. */
function stand() {
  const now = plan();
  S.kinds = new Uint8Array(S.count);
  S.used = new Set();
  if (!now || !now.blocks) return;
  const mark = (runs, kind) => { for (let r = 0; r < runs.length; r += 2) S.kinds.fill(kind, runs[r], runs[r + 1]); };
  mark(now.summarised, 1);
  mark(now.excerpted, 2);
  mark(now.verbatim, 3);
  for (const at of now.recalled) S.kinds[at] = 4;
  now.nodes.forEach((at) => S.used.add(at));
}

function budgetSays() {
  const now = plan(), counts = [0, 0, 0, 0, 0];
  let text = now ? `${num(now.budget)} tokens are too few: ${num(now.least ?? 0)} are needed` : "no context is planned";
  if (now?.blocks) {
    text = `${num(now.budget)} tokens, ${num(now.total)} used` + (now.blocks.some((b) => b[0] !== "message") ? "" : ": the whole history");
    if (now.shared) text += now.shared === now.total ? "; the same as the last call" : `; the first ${num(now.shared)} as in the last call`;
  }
  $("budget").setAttribute("aria-valuetext", text);
  $("budget-says").value = text;
  S.kinds.forEach((kind) => counts[kind]++);
  S.standing = now?.blocks ? [3, 4, 2, 1, 0].filter((k) => counts[k]) : [];
  fill($("legend"), S.standing.map((k) => h("li", { c: COLOURS[k], title: MEANING[KINDS[k]] }, `${num(counts[k])} ${KINDS[k]}`)));
}

// -- The map

const map = {};

/** Give each row of the map its place; more levels and a narrow window make the rows lower. */
function layout() {
  const tall = Math.max(0, S.rows.length - 1), narrow = innerWidth <= 860;
  const step = clip(Math.floor((narrow ? 56 : 92) / Math.max(1, tall)), 6, narrow ? 16 : 22), gap = step > 16 ? 3 : 1;
  let y = 4;
  map.rows = [];
  for (let k = tall; k > 0; k--, y += step) map.rows.push({ kind: "level", level: k, y, h: step - gap, label: step > 12 || k === tall || k === 1 ? `level ${k}` : "" });
  for (const [kind, tallness, label] of [["messages", narrow ? 20 : 28, "messages"], ["context", narrow ? 10 : 14, "context"], ["days", 16, ""]]) {
    map.rows.push({ kind, y, h: tallness, label });
    y += tallness + 3;
  }
  map.height = y;
}

const toX = (i) => map.gutter + ((i - S.window[0]) / (S.window[1] - S.window[0])) * map.width;
const toPlace = (x) => S.window[0] + ((x - map.gutter) / map.width) * (S.window[1] - S.window[0]);

let asked = 0, waiting = 0;
/** Let the text follow when a slider or the mouse rests; the map follows at once. */
function later(act) { clearTimeout(waiting); waiting = setTimeout(act, 60); }
function redraw() { if (!asked) asked = requestAnimationFrame(() => { asked = 0; draw(); }); }

function draw() {
  if (!S) return;
  const canvas = $("canvas"), ratio = devicePixelRatio || 1, wide = $("map").clientWidth;
  map.gutter = wide < 600 ? 62 : 78;
  map.width = wide - map.gutter - 4;
  const size = [Math.round(wide * ratio), Math.round(map.height * ratio)];
  if (canvas.width !== size[0] || canvas.height !== size[1]) [canvas.width, canvas.height] = size;
  canvas.style.height = `${map.height}px`;
  const g = canvas.getContext("2d");
  g.setTransform(ratio, 0, 0, ratio, 0, 0);
  g.clearRect(0, 0, wide, map.height);
  const ink = css("ink"), dim = css("dim"), paper = css("bg"), accent = css("accent"), warn = css("warn");
  const low = map.rows[0].h < 14, font = (size) => { g.font = `${size}px system-ui, sans-serif`; };
  font(low ? 11 : 12);
  g.textBaseline = "middle";
  for (const row of map.rows) { g.fillStyle = dim; g.fillText(row.label, 0, row.y + row.h / 2); }
  g.save();
  g.beginPath();
  g.rect(map.gutter, 0, map.width + 4, map.height);
  g.clip();
  for (const row of map.rows) if (row.kind === "level") drawLevel(g, row, css(level(row.level)), { ink, paper, warn, dim });
  font(12);
  drawMessages(g, map.rows.at(-3), [css("user"), css("assistant"), css("tool")], accent);
  drawContext(g, map.rows.at(-2), COLOURS.map(css));
  drawDays(g, map.rows.at(-1), dim, css("line"));
  if (picked.message >= 0) {
    const x = toX(picked.message + 0.5);
    g.strokeStyle = accent;
    g.beginPath(); g.moveTo(x, map.rows.at(-3).y); g.lineTo(x, map.rows.at(-1).y); g.stroke();
  }
  g.restore();
}

function drawLevel(g, row, colour, { ink, paper, warn, dim }) {
  let drawn = -1;
  for (const node of S.rows[row.level]) {
    if (node.span[1] < S.window[0] || node.span[0] > S.window[1]) continue;
    const a = toX(node.span[0]), b = Math.max(a + 1, toX(node.span[1]));
    if (b - drawn < 0.6 && node.at !== picked.node) continue;
    drawn = b;
    const wide = b - a > 3 ? b - a - 1.5 : b - a;
    g.globalAlpha = S.used.has(node.at) || !plan() ? 1 : 0.38;
    g.fillStyle = colour;
    if (node.tokens === undefined) { g.globalAlpha = 1; g.strokeStyle = dim; g.strokeRect(a + 0.5, row.y + 0.5, Math.max(1, wide - 1), row.h - 1); }
    else g.fillRect(a, row.y, wide, row.h);
    if (node.degraded || node.status === "failed") { g.globalAlpha = 1; g.fillStyle = warn; g.fillRect(a, row.y + row.h - 4, wide, 4); }
    g.globalAlpha = 1;
    if (wide > 50 && row.h > 10 && node.tokens !== undefined) {
      const label = [days(node.first, node.last), SHORT.format(node.first * 1000)].find((one) => g.measureText(one).width < wide - 10);
      g.fillStyle = S.used.has(node.at) || !plan() ? paper : ink;
      if (label) g.fillText(label, Math.max(a, map.gutter) + 6, row.y + row.h / 2 + 0.5);
    }
    if (node.at === picked.node) { g.strokeStyle = ink; g.lineWidth = 2; g.strokeRect(a, row.y, Math.max(2, wide), row.h); g.lineWidth = 1; }
  }
}

/** Call with each column of pixels, or each message where they are wider: x, width, from, to. */
function columns(draws) {
  const [a, b] = S.window, each = map.width / (b - a);
  if (each >= 1) for (let i = Math.floor(a); i < Math.min(b, S.count); i++) draws(toX(i), each > 3 ? each - 1 : each, i, i + 1);
  else for (let x = 0; x < map.width; x++) {
    const from = Math.floor(a + x / each), to = Math.min(S.count, Math.floor(a + (x + 1) / each));
    if (from < to) draws(map.gutter + x, 1, from, to);
  }
}

function drawMessages(g, row, colours, accent) {
  const { tokens, role } = S.messages, top = Math.sqrt(S.tallest);
  columns((x, wide, from, to) => {
    let most = from;
    for (let i = from; i < to; i++) if (tokens[i] > tokens[most]) most = i;
    const tall = Math.max(1.5, (Math.sqrt(tokens[most]) / top) * (row.h - 8));
    g.fillStyle = colours[{ u: 0, t: 2 }[role[most]] ?? 1];
    g.fillRect(x, row.y + row.h - tall, wide, tall);
  });
  g.fillStyle = accent;
  for (const at of find.messages) g.fillRect(toX(at + 0.5) - 1, row.y, 2, 6);
}

function drawContext(g, row, colours) {
  columns((x, wide, from, to) => {
    const counts = [0, 0, 0, 0, 0];
    for (let i = from; i < to; i++) counts[S.kinds[i]]++;
    let y = row.y + row.h;
    for (const kind of [1, 2, 3, 4]) {
      const tall = (counts[kind] / (to - from)) * row.h * [0, 0.4, 0.65, 1, 1][kind];
      if (tall) { g.fillStyle = colours[kind]; g.fillRect(x, y - tall, wide, tall); y -= tall; }
    }
    if (counts[0]) { g.fillStyle = colours[0]; g.fillRect(x, row.y + row.h - 1.5, wide, 1.5); }
  });
}

function drawDays(g, row, dim, line) {
  let free = 0, before = "", year = "";
  const { at } = S.messages, [a, b] = S.window, step = Math.max(1, Math.floor((b - a) / map.width));
  for (let i = Math.floor(a); i < Math.min(b, S.count); i += step) {
    const x = toX(i);
    if (x < free) continue;
    const whole = day(at[i]);
    if (whole === before) continue;
    // The year stands at the first day and wherever it changes.
    const label = whole.endsWith(year || "-") ? SHORT.format(at[i] * 1000) : whole;
    [before, year] = [whole, whole.slice(-4)];
    if (x + 3 + g.measureText(label).width > map.gutter + map.width + 4) break;
    g.fillStyle = line; g.fillRect(x, row.y, 1, 4);
    g.fillStyle = dim; g.fillText(label, x + 3, row.y + 10);
    free = x + g.measureText(label).width + 18;
  }
}

function under(event) {
  const box = $("canvas").getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
  const row = map.rows.find((one) => y < one.y + one.h + 1) || map.rows.at(-1), at = toPlace(x);
  if (row.kind !== "level") return { message: clip(Math.floor(at), 0, S.count - 1) };
  const node = S.rows[row.level].find((one) => one.span[0] <= at && at < one.span[1]);
  return node ? { node: node.at } : {};
}

function describe({ node, message }) {
  if (node >= 0) {
    const n = S.nodes[node];
    const state = n.degraded ? "; degraded" : n.tokens === undefined ? `; ${STATES[n.status]}` : "";
    return `${called(n)} (${n.id}): messages ${span(n.span)}, ${n.tokens === undefined ? "no text yet" : many(n.tokens, "token")}${state}${S.used.has(node) ? "; in the context" : ""}`;
  }
  if (message >= 0) return `Message ${num(message)}: ${name(message)}, ${TIME.format(S.messages.at[message] * 1000)}, ${many(S.messages.tokens[message], "token")}; ${plan()?.blocks ? KINDS[kindOf(message)] : "no context"}`;
  return "";
}

/** Show a part of the session of this many messages around a place. */
function frame(wide, at, share = 0.5) {
  const from = clip(at - wide * share, 0, Math.max(0, S.count - wide));
  S.window = [from, from + Math.max(1, wide)];
  redraw();
}

function zoom(by, at) {
  const [a, b] = S.window, node = S.nodes[picked.node], mid = at ?? (node ? (node.span[0] + node.span[1]) / 2 : picked.message >= 0 ? picked.message : (a + b) / 2);
  frame(by ? clip((b - a) * by, 8, S.count) : S.count, mid, clip((mid - a) / (b - a), 0, 1));
}

const keep = (a, b) => { if (a < S.window[0] || b > S.window[1]) frame(S.window[1] - S.window[0], (a + b) / 2); };

function keys(event) {
  const key = event.key, node = S.nodes[picked.node], by = { ArrowLeft: -1, ArrowRight: 1, Home: -S.count, End: S.count }[key];
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (["+", "=", "-", "0"].includes(key)) zoom({ "-": 2, 0: 0 }[key] ?? 0.5);
  else if (key === "Enter") $("detail").focus();
  else if (!by && key !== "ArrowUp" && key !== "ArrowDown") return;
  else if (!node && picked.message < 0) S.rows.length ? pick(S.rows.at(-1)[0].at) : go(0);
  else if (by && node) { const row = S.rows[node.level]; pick(row[clip(row.indexOf(node) + by, 0, row.length - 1)].at); }
  else if (by) go(clip(picked.message + by, 0, S.count - 1));
  else if (key === "ArrowUp") { const up = node ? S.nodes[node.up] : over(picked.message)[0]; if (up) pick(up.at); }
  else if (node) { const down = S.below[node.at]; down.length ? pick(down[0]) : go(node.span[0]); }
  event.preventDefault();
}

/** Return the summaries above a message, lowest first. */
const over = (i) => S.rows.slice(1).flatMap((row) => row.filter((n) => n.span[0] <= i && i < n.span[1]).slice(0, 1));

function pick(at) {
  Object.assign(picked, { node: at, message: -1, source: null });
  keep(...S.nodes[at].span);
  $("status").textContent = describe(picked);
  showNode(S.nodes[at]);
  if (innerWidth <= 860) $("detail").scrollIntoView();  // it stands below the text there
  redraw();
}

function go(i, source = null, quiet = false) {
  Object.assign(picked, { node: quiet ? picked.node : -1, message: i, source });
  keep(i, i + 1);
  $("status").textContent = describe({ message: i });
  if (!quiet) showMessage(i);
  if (tab !== "Messages") show("Messages");
  document.querySelector("article.lit")?.classList.remove("lit");
  feed.show(i);
  redraw();
}

// -- What is read: messages, contexts, summaries

function message(i, seam = true) {
  const m = S.messages, text = m.text[i], long = typeof text === "string" && text.length > LONG && !(i === picked.message);
  const show = m.role[i] === "t" ? said : rich;
  const words = h("div", { class: "words", dir: "auto" }, show(long ? text.slice(0, LONG) : text, i === picked.message ? picked.source : null));
  const head = h("header", {}, h("h4", {}, h("button", { on: () => go(i), dir: "auto" }, name(i))), h("span", { class: "dim" },
    ` ${num(i)} · `, h("time", { datetime: new Date(m.at[i] * 1000).toISOString() }, TIME.format(m.at[i] * 1000)), ` · ${many(m.tokens[i], "token")}`,
    S.pinned.has(i) ? " · pinned" : "", m.thread[i] ? ` · ${m.threads[m.thread[i]]}` : "", m.states[i] ? ` · ${m.states[i]}` : ""));
  const made = h("article", { class: `${ROLES[m.role[i]]}${i === picked.message ? " lit" : ""}`, "aria-setsize": S.count, "aria-posinset": i + 1, c: COLOURS[kindOf(i)] }, head, words);
  if (long) {
    const more = h("button", { class: "more", on: () => { fill(words, show(text)); more.remove(); } }, `Show all ${num(text.length)} characters`);
    made.append(more);
  }
  const first = seam && (i === 0 || day(m.at[i - 1]) !== day(m.at[i]));
  return first ? h("div", {}, h("p", { class: "day" }, day(m.at[i])), made) : made;
}

function block(at) {
  const now = plan(), [kind, tokens, a, b, lines] = now.blocks[at];
  const shared = now.shared > 0 && S.upTo[at] <= now.shared && !(S.upTo[at + 1] <= now.shared);
  const until = shared && h("p", { class: "until" }, `as in the last call up to here: ${num(now.shared)} tokens`);
  if (kind === "message") return h("div", {}, message(a, false), until);
  const what = { summary: "Summary", view: "View of older messages", pins: "Pinned messages and standing wishes", space: "From the space", recall: "Recalled for the question", quote: "Quoted", excerpt: "Excerpt" }[kind] || kind;
  return h("div", {}, h("div", { class: "record", c: kind === "recall" ? "recalled" : "summarised" }, h("h4", {}, what),
    h("span", { class: "dim" }, `${kind === "space" ? "" : `messages ${span([a, b])} · `}${many(tokens, "token")}`), h("div", { class: "words" }, readable(lines, [a, b]))), until);
}

/** Return the lines of a summary or a record; a wish that was said several times stands once. */
function readable(lines, range) {
  if (typeof lines[0] === "number") return h("p", {}, said(spell(lines)));
  const known = new Map(), out = [], wishes = new Set(S.pins.map(([, , said]) => spell([said])));
  for (const one of lines) {
    const text = spell([one]), asked = /^.{1,200}? asked on \d{4}-\d\d-\d\d: (.*)$/.exec(text)?.[1];
    const said = /^[^:]{1,200}: (.*?)(?: …)?$/.exec(text)?.[1], wish = asked ?? (wishes.has(said) || known.has(said) ? said : undefined), first = known.get(wish);
    if (first) { fill(first.again, `also asked ${many(++first.count, "time", "times")} in this record`); continue; }
    const again = h("p", { class: "line" });
    if (wish) known.set(wish, { again, count: 0 });
    out.push(line(text, range, Array.isArray(one) && one[0] >= 0 ? one[0] : -1), wish ? again : null);
  }
  return out;
}

/** Return a line of a summary or a record; pressed, it leads to the message that it is of. */
function line(text, [a, b], source) {
  if (/^(\[\d{4}-\d\d-\d\d\]|\[\[\/?hiermem .*|Fenced records of .*)$/.test(text) || !text.trim()) return h("p", { class: "line" }, text);
  const made = h("button", { class: "line", "aria-pressed": "false", dir: "auto", on: () => {
    const words = new Set(wordsOf(text)), at = source >= 0 ? source : origin(words, a, b);
    document.querySelector(".line[aria-pressed=true]")?.setAttribute("aria-pressed", "false");
    made.setAttribute("aria-pressed", "true");
    if (at >= 0) go(at, words, true);
    else $("status").textContent = `No message of ${span([a, b])} has the words of this line.`;
  } }, rich(text));
  return made;
}

/** Return the message that has most of these words, the rare ones first; -1 if none has some. */
function origin(words, a, b) {
  const inside = [], counts = new Map();
  for (let i = a; i < Math.min(b, S.count); i++) {
    const text = S.messages.text[i], own = new Set([...wordsOf(name(i)), ...(typeof text === "string" ? wordsOf(text) : [])].filter((word) => words.has(word)));
    for (const word of own) counts.set(word, (counts.get(word) || 0) + 1);
    inside.push(own);
  }
  let best = -1, most = 1 / (1 + inside.length);
  inside.forEach((own, at) => {
    let score = 0;
    for (const word of own) score += 1 / counts.get(word);
    if (score > most) [best, most] = [a + at, score];
  });
  return best;
}

/** Return a summary as a row; one that was found shows where. */
function row(node, found = false) {
  const first = typeof node.text === "string" ? snippet(node.text.replace(/^\[\d{4}-\d\d-\d\d\]\n/, "")) : node.text === undefined ? STATES[node.status] : many(node.text, "character");
  const facts = ` ${node.id} · ${many(node.messages, "message")} · ${many(node.tokens ?? 0, "token")}${node.degraded ? " · degraded" : ""}`;
  const made = h("button", { class: found ? "row hit" : "row", on: () => pick(node.at) }, h("span", {}, h("b", { class: "chip", c: level(node.level) }, called(node)), h("span", { class: "dim" }, facts)), h("span", {}, first));
  if (!found) made.style.paddingInlineStart = `${(S.rows.length - 1 - node.level) * (innerWidth > 860 ? 1.1 : 0.4)}rem`;
  return made;
}

/** Return a found message as a row. */
const hit = (i) => h("button", { class: "row hit", on: () => go(i) }, h("span", {}, h("strong", { dir: "auto" }, name(i)), h("span", { class: "dim" }, ` message ${num(i)} · ${day(S.messages.at[i])}`)), h("span", { dir: "auto" }, snippet(S.messages.text[i])));

const outline = () => [...S.nodes].sort((x, y) => x.span[0] - y.span[0] || y.level - x.level);
const intro = (...text) => h("p", { class: "intro" }, ...text);

const TABS = {
  Messages: (panel) => new Feed(panel, S.count, (i) => message(i), length),
  Context: (panel) => {
    const now = plan();
    if (!now?.blocks) return void fill(panel, intro($("budget-says").value));
    let sum = 0;
    S.upTo = now.blocks.map((b) => (sum += b[1]));
    const words = S.standing.map((k) => h("li", { c: COLOURS[k] }, h("b", {}, KINDS[k]), `: it ${MEANING[KINDS[k]]}`));
    const head = h("div", {}, intro(`This is what a model is sent of the session, in at most ${num(now.budget)} tokens: records first, then the newest messages. A message is`), h("ul", { class: "legend" }, words));
    return new Feed(panel, now.blocks.length + 1, (at) => (at ? block(at - 1) : head));
  },
  Summaries: (panel) => {
    const all = outline();
    return new Feed(panel, all.length + 1, (i) => (i ? row(all[i - 1]) : intro(all.length ? "A summary of level 1 (L1) stands for neighbouring messages, one of level 2 for neighbouring summaries of level 1, and so on. Select one to read it." : "No summary is made yet.")));
  },
  Remembered: (panel) => void fill(panel, kept(), spaces()),
  Health: (panel) => void fill(panel, health()),
  Found: (panel) => {
    const all = [...find.messages.map((i) => () => hit(i)), ...(find.nodes.length ? [() => h("h3", {}, many(find.nodes.length, "summary", "summaries"))] : []), ...find.nodes.map((at) => () => row(S.nodes[at], true))];
    if (!all.length) return void fill(panel, intro("No message and no summary has these words."));
    if (!find.all) all.unshift(() => intro("None has all of these words. These have most of them."));
    return new Feed(panel, all.length, (i) => all[i]());
  },
};

const tabId = (one) => `tab-${one}`;

function show(which, focus) {
  tab = which;
  const shown = Object.keys(TABS).filter((one) => one !== "Found" || find.words.length);
  fill($("tabs"), shown.map((one) => h("button", { role: "tab", id: tabId(one), "aria-controls": "panel", "aria-selected": String(one === which), tabindex: one === which ? 0 : -1, on: () => show(one) }, one)));
  $("panel").setAttribute("aria-labelledby", tabId(which));
  if (focus) $(tabId(which)).focus();
  feed?.end();
  $("panel").scrollTop = 0;
  feed = TABS[which]($("panel")) || null;
}

function refresh() { stand(); budgetSays(); redraw(); later(() => (tab === "Context" ? show(tab) : feed?.again())); }

const fact = (term, ...value) => [h("dt", {}, term), h("dd", {}, ...value)];
const chip = (node) => h("button", { class: "chip", c: level(node.level), on: () => { pick(node.at); $("detail").focus(); } }, days(node.first, node.last), h("span", { class: "dim" }, ` ${node.id}`));
const why = (node) => [node.error, ...new Set(node.reasons || [])].filter(Boolean).join("; ");
const money = (x) => (x === null || x === undefined ? null : x.toLocaleString("en-US", { maximumSignificantDigits: 3 }));

function showNode(node) {
  const body = node.lines ? readable(node.lines, node.span) : h("p", {}, "No text yet.");
  const facts = [
    fact("Covers", h("button", { class: "link", on: () => go(node.span[0]) }, `messages ${span(node.span)}`), ` (${num(node.messages)}), ${days(node.first, node.last)}`),
    fact("Size", node.tokens === undefined ? "—" : `${many(node.tokens, "token")} of ${num(node.given)} (${percent(node.tokens / Math.max(1, node.given))})`),
    fact("State", h("span", { class: node.degraded || node.error ? "warn" : "" }, node.degraded ? "degraded: an extract stands in for the model's text" : STATES[node.status]), node.dirty ? ", out of date" : "", node.reused ? ", reused" : ""),
    why(node) && fact("Why", h("span", { class: "warn" }, why(node)), node.tries ? ` (${many(node.tries, "try", "tries")})` : ""),
    node.model && fact("Model", node.model, node.style ? `, ${node.style}` : ""),
    node.calls && fact("Calls", `${num(node.calls)}: ${num(node.spent[0])} tokens in, ${num(node.spent[1])} out`, node.cost ? `, cost ${money(node.cost)}` : ""),
    node.tokens !== undefined && fact("Fidelity", node.fidelity === undefined ? "its sources hold no figure and no name" : [h("meter", { min: 0, max: 1, value: node.fidelity, "aria-label": "fidelity" }), `it keeps ${percent(node.fidelity)} of the figures and names of its sources`]),
    node.unsupported && fact("Unsupported", h("span", { class: "warn" }, node.unsupported.map((one) => (typeof one === "string" ? one : many(one, "character"))).join(", "))),
    node.made && fact("Made", TIME.format(node.made * 1000)),
    fact("Context", S.used.has(node.at) ? "this budget's context shows it" : "not in this budget's context"),
  ];
  const below = S.below[node.at].map((at) => S.nodes[at]), up = S.nodes[node.up];
  fill($("detail"), h("h2", {}, called(node)), h("p", { class: "dim" }, `${node.id}: of level ${node.level}, made of ${below.length ? `${many(below.length, "summary", "summaries")} of the level below` : "messages"}`), h("div", {}, body), h("dl", {}, facts),
    up && [h("h3", {}, "Summarised in"), h("div", { class: "chips" }, chip(up))],
    below.length > 0 && [h("h3", {}, "Made of"), h("div", { class: "chips" }, below.map(chip))]);
  $("detail").scrollTop = 0;
}

function showMessage(i) {
  const m = S.messages, above = over(i);
  fill($("detail"), h("h2", {}, `Message ${num(i)}`), h("dl", {},
    fact("From", name(i), ` (${ROLES[m.role[i]]})`), fact("When", TIME.format(m.at[i] * 1000)), fact("Size", many(m.tokens[i], "token")),
    m.states[i] && fact("State", m.states[i]), S.pinned.has(i) && fact("Pinned", S.pinned.get(i) === "wish" ? "a standing wish was found in it" : "by the application"),
    fact("Context", plan()?.blocks ? `${KINDS[kindOf(i)]}: it ${MEANING[KINDS[kindOf(i)]]}` : "none planned")),
    above.length ? h("h3", {}, "Summarised in") : h("p", { class: "dim" }, "In an open window: no summary covers it yet."), h("div", { class: "chips" }, above.map(chip)),
    HEAD.packed && h("h3", {}, "To erase it"), HEAD.packed && h("p", {}, h("code", {}, `hiermem erase '${S.entry.id.replaceAll("'", `'\\''`)}' ${i}`)));
}

/** Return the pinned messages and the wishes, equal ones once. */
function kept() {
  const groups = new Map();
  for (const [at, reason, text] of S.pins) {
    const key = `${reason} ${text}`;
    if (!groups.has(key)) groups.set(key, { reason, text, all: [] });
    groups.get(key).all.push(at);
  }
  const rows = [...groups.values()].map(({ reason, text, all }) => h("li", {}, said(text), h("span", { class: "dim" }, ` · ${reason === "wish" ? "standing wish" : "pinned"}`), sources(all.map((at) => [S.entry.id, at]))));
  return [intro("Pinned messages and standing wishes stand in every context of the session, however old they are."), rows.length ? h("ul", { class: "known" }, rows) : h("p", { class: "dim" }, "There are none.")];
}

const GROUPS = { wish: "Standing wishes", file: "What is known", note: "Notes", conversation: "Conversations" };

/** Return what each space knows, by kind, with its sources; then its files and their notes. */
function spaces() {
  const own = (one) => !S || SINGLE || one.name === S.entry.space || [...one.lines, ...one.notes].some(({ sources: all }) => all?.some(([id]) => id === S.entry.id));
  return (BANK || []).filter(own).map((one) => [h("h3", { class: "space" }, `Known in the space “${one.name}”`),
    intro("Sessions of a space share this: it stands at the beginning of each new one of them."),
    Object.entries(GROUPS).map(([place, title]) => { const all = once(one.lines.filter((line) => line.place === place)); return all.length > 0 && [h("h4", { class: "group" }, title), h("ul", { class: "known" }, all.map(known))]; }),
    one.synthesis && [h("h4", { class: "group" }, "In short"), h("div", { class: "words" }, rich(one.synthesis))],
    one.files.length > 0 && h("h4", { class: "group" }, `Files, revision ${one.revision}`),
    one.files.map(([file, text]) => h("details", {}, h("summary", {}, file), h("div", { class: "words" }, rich(text)), notes(one.notes.filter((n) => n.files?.includes(file))))),
    loose(one).length > 0 && h("details", {}, h("summary", {}, one.files.length ? `${many(loose(one).length, "note")} in no file` : many(loose(one).length, "note")), notes(loose(one)))]);
}

/** Return the notes of a space that stand with none of its files. */
const loose = ({ notes: all, files }) => all.filter((n) => !files.some(([file]) => n.files?.includes(file)));

/** Return lines that say the same once, the first of them with the sources of all. */
function once(lines) {
  const found = new Map();
  for (const line of lines) {
    const key = `${line.text} ${line.was ?? ""}`, first = found.get(key);
    if (first) Object.assign(first, { sources: [...(first.sources || []), ...(line.sources || [])], since: Math.min(first.since ?? line.since, line.since ?? first.since) || undefined });
    else found.set(key, { ...line });
  }
  return [...found.values()];
}

const known = (line) => h("li", {}, rich(line.text),
  h("span", { class: "dim" }, [line.since !== undefined && `${line.place === "conversation" ? "last on" : "since"} ${day(line.since)}`, line.was !== undefined && ["was: ", said(line.was)]].filter(Boolean).flatMap((one) => [" · ", one])), sources(line.sources, line.place === "conversation"));

/** Return the messages that a line is of, to be clicked where the page holds their session. */
const sources = (all, named = false) => all && h("span", { class: "chips" }, all.length > CHIPS && h("span", { class: "dim" }, `${num(all.length)} times:`), all.slice(0, CHIPS).map(([id, at]) => {
  const place = HEAD.sessions.findIndex((one) => one.id === id), one = HEAD.sessions[place], title = typeof one?.title === "string" ? one.title : id;
  const text = `${named || id === S?.entry.id ? "message" : `${title},`} ${num(at)}`;
  return one ? h("button", { class: "chip", dir: "auto", on: () => open(place, at) }, text) : h("span", { class: "chip", dir: "auto" }, text);
}));

const notes = (all) => h("ul", { class: "known" }, all.map((n) => h("li", {}, said(n.text), h("span", { class: "dim" }, ` · ${n.agent ? `${n.agent}, ` : ""}${day(n.at)}`, n.dropped !== undefined ? [": ", ...said(n.dropped)] : ""), sources(n.sources))));

function health() {
  const bad = S.nodes.filter((n) => n.degraded || n.error), [calls, sent, got, cost] = S.spent;
  const head = intro("How well the summaries stand for the messages. Fidelity is the share of figures and names that they keep of what they were made from; a degraded one is an extract that stands in for the text of a model.");
  const table = h("table", {}, h("tr", {}, ["Level", "Summaries", "Made", "Degraded", "Out of date", "To make", "Fidelity", "Calls", "Tokens in", "out"].map((one) => h("th", { scope: "col" }, one))),
    S.levels.map((one) => h("tr", {}, one.map((v, at) => h("td", {}, v === null ? "—" : at === 6 ? percent(v) : at ? num(v) : `L${v}`)))));
  const shorter = S.sealed ? `${num(S.sealed)} tokens; the fewest summaries that cover all of them take ${num(S.cover)}` : "nothing yet";
  return [head, h("div", { class: "wide" }, table), h("dl", {}, [
    fact("Summarised", shorter), fact("Not yet", S.open.length ? S.open.map(([n, t]) => `${many(n, "message")}, ${many(t, "token")}`).join("; ") : "none"),
    fact("Spent", `${many(calls, "call")}, ${num(sent)} tokens in, ${num(got)} out`, cost === null ? "" : `, cost ${money(cost)}`),
    S.reuse !== null && fact("Prefix", `${percent(S.reuse)} of the contexts' tokens stood in the context before`),
    S.error && fact("Last error", h("span", { class: "warn" }, S.error)), S.repacking && fact("Re-pack", "under way"),
    S.config !== "{}" && fact("Settings", h("code", {}, S.config))]),
  bad.length > 0 && h("h3", {}, "Degraded, and why"), bad.slice(0, 200).map((n) => h("button", { class: "row", on: () => pick(n.at) }, h("span", {}, h("b", { class: "chip", c: level(n.level) }, n.id), ` ${why(n) || "no reason is on record"}`)))];
}

// -- Find: forms of words are found as the command finds them

/** Return a text in the one spelling under which it is compared, character by character. */
function fold(text) {
  const low = text.toLowerCase(), same = low.length === text.length ? low : text.replace(/[A-Z]/g, (one) => one.toLowerCase());
  return same.replace(/[\u00c0-\u024f]/g, (one) => one.normalize("NFD")[0]);
}

const PARTS = "^([^aeiou][^aeiouy]*)?[aeiouy][aeiou]*[^aeiou][^aeiouy]*";
const [SOME, ONE, MORE, VOWEL, SHORTLY] = [PARTS, `${PARTS}([aeiouy][aeiou]*)?$`, `${PARTS}[aeiouy][aeiou]*[^aeiou][^aeiouy]*`, "^([^aeiou][^aeiouy]*)?[aeiouy]", "^[^aeiou][^aeiouy]*[aeiouy][^aeiouwxy]$"].map((one) => new RegExp(one));
const SECOND = { ational: "ate", tional: "tion", enci: "ence", anci: "ance", izer: "ize", abli: "able", alli: "al", entli: "ent", eli: "e", ousli: "ous", ization: "ize", ation: "ate", ator: "ate", alism: "al", iveness: "ive", fulness: "ful", ousness: "ous", aliti: "al", iviti: "ive", biliti: "ble" };
const THIRD = { icate: "ic", ative: "", alize: "al", iciti: "ic", ical: "ic", ful: "", ness: "" };
const FOURTH = "al|ance|ence|er|ic|able|ible|ant|ement|ment|ent|ou|ism|ate|iti|ous|ive|ize";
const ending = (words) => new RegExp(`^(.+?)(${Object.keys(words).join("|")})$`);
const [SECONDS, THIRDS, FOURTHS] = [ending(SECOND), ending(THIRD), new RegExp(`^(.+?)(${FOURTH})$`)];

/** Return the stem of an English word, by Porter's algorithm; other words as they are. */
function stem(word) {
  if (!/^[a-z]{3,40}$/.test(word)) return word;
  let w = word[0] === "y" ? `Y${word.slice(1)}` : word, m;
  if ((m = /^(.+?)(ss|i)es$/.exec(w)) || (m = /^(.+?)([^s])s$/.exec(w))) w = m[1] + m[2];
  if ((m = /^(.+?)eed$/.exec(w))) w = SOME.test(m[1]) ? w.slice(0, -1) : w;
  else if ((m = /^(.+?)(ed|ing)$/.exec(w)) && VOWEL.test(m[1])) {
    w = m[1];
    if (/(at|bl|iz)$/.test(w)) w += "e";
    else if (/([^aeiouylsz])\1$/.test(w)) w = w.slice(0, -1);
    else if (SHORTLY.test(w)) w += "e";
  }
  if ((m = /^(.+?)y$/.exec(w)) && VOWEL.test(m[1])) w = `${m[1]}i`;
  if ((m = SECONDS.exec(w)) && SOME.test(m[1])) w = m[1] + SECOND[m[2]];
  if ((m = THIRDS.exec(w)) && SOME.test(m[1])) w = m[1] + THIRD[m[2]];
  if ((m = FOURTHS.exec(w))) w = MORE.test(m[1]) ? m[1] : w;
  else if ((m = /^(.+?[st])ion$/.exec(w)) && MORE.test(m[1])) w = m[1];
  if ((m = /^(.+?)e$/.exec(w)) && (MORE.test(m[1]) || (ONE.test(m[1]) && !SHORTLY.test(m[1])))) w = m[1];
  if (/ll$/.test(w) && MORE.test(w)) w = w.slice(0, -1);
  return w.toLowerCase();
}

/** Return what a word is found by: itself, inside longer words too, and the words of its stem. */
function wanted(word) {
  const own = stem(word), escaped = word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  let root = 0;
  while (root < own.length && own[root] === word[root]) root++;
  if (own[root - 1] === "i") root--;
  const forms = /^[a-z]{3,}$/.test(word) ? `(?<![\\p{L}\\p{N}])${word.slice(0, root)}[a-z]*(?![\\p{L}\\p{N}])|` : "";
  // A short word is found at the beginning of one only.
  const start = /^[\p{Script=Latin}\p{N}]{1,3}$/u.test(word) ? "(?<![\\p{L}\\p{N}])" : "";
  return { word, own, whole: !start, pattern: new RegExp(`${forms}(${start}${escaped})`, "gu") };
}

/** Return where a folded text has a wanted word. */
function* places({ word, own, whole, pattern }, folded) {
  for (const { 0: found, 1: itself, index } of folded.matchAll(pattern)) {
    const at = found.indexOf(word);
    if (itself !== undefined || stem(found) === own) yield [index, index + found.length, ""];
    else if (at === 0 || (at > 0 && whole)) yield [index + at, index + at + word.length, ""];
  }
}

const holds = (one, folded) => (one.whole && folded.includes(one.word)) || !places(one, folded).next().done;

function foundIn(text, folded) {
  const marks = [];
  for (const one of folded.length === text.length ? find.words : []) for (const place of places(one, folded)) if (marks.push(place) > 500) break;
  return marks;
}

/** Return the words of what is typed; without those that every text has, if others are left. */
function question(typed) {
  const folded = fold(typed.normalize("NFC")), all = wordsOf(folded), rest = all.filter((word) => !HEAD.stop.includes(word));
  return [...new Set(rest.length ? rest : all.length ? all : folded.split(/\s+/).filter(Boolean))].map(wanted);
}

function search() {
  find.words = question($("find").value);
  if (!S) return list();
  S.folded ||= [S.messages.text, S.nodes.map((n) => n.text)].map((all) => all.map((text) => (typeof text === "string" ? fold(text) : "")));
  const counts = find.words.length ? S.folded.map((all) => all.map((text) => find.words.reduce((sum, one) => sum + holds(one, text), 0))) : [[], []];
  const most = counts[0].concat(counts[1]).reduce((x, y) => Math.max(x, y), 0);
  find.all = most === find.words.length;
  [find.messages, find.nodes] = counts.map((all) => all.flatMap((count, at) => (most && count === most ? at : [])));
  $("hits").value = find.words.length ? `${many(find.messages.length, "message")}, ${many(find.nodes.length, "summary", "summaries")}` : "";
  show(find.words.length ? "Found" : tab === "Found" ? "Messages" : tab);
  redraw();
}

// -- The list of sessions

let scan = 0;
/** Look into the messages of each session; ``inside`` takes the first matching one of each. */
async function deeper(words, turn) {
  const inside = new Map();
  for (const [done, at] of HEAD.order.entries()) {
    if (turn !== scan) return;
    const text = (await part(`s${at}`))?.messages.text.find((one) => typeof one === "string" && words.every((word) => holds(word, fold(one))));
    if (text !== undefined) inside.set(at, text);
    if (done % 8 === 7 && turn === scan) list(inside, done + 1);
  }
  if (turn === scan) list(inside, HEAD.sessions.length);
}

function list(inside, done) {
  const words = find.words, order = HEAD.order.filter((at) => !find.source || HEAD.sessions[at].source === find.source);
  const shown = order.filter((at) => inside?.has(at) || words.every((word) => holds(word, HEAD.said[at])));
  $("hits").value = words.length ? `${many(shown.length, "session")}${done < HEAD.sessions.length || !inside ? " so far" : ""}` : "";
  feed?.end();
  feed = new Feed($("sessions"), shown.length, (i) => session(shown[i], inside?.get(shown[i])), undefined, innerWidth > 860 ? $("list") : null);
  if (words.length && !inside) deeper(words, ++scan);
  else if (!words.length) scan++;
}

const labelOf = (source) => SOURCES[source] || source;

/** Let the list be narrowed to the sessions of one source. */
function filters() {
  const counts = new Map();
  for (const { source } of HEAD.sessions) counts.set(source, (counts.get(source) || 0) + 1);
  const pressed = (source, text, count) => h("button", { class: "chip", "aria-pressed": String(find.source === source), on: () => { find.source = source; filters(); list(); } }, text, h("span", { class: "dim" }, ` ${num(count)}`));
  const own = [...counts].filter(([source]) => source !== undefined).sort((x, y) => y[1] - x[1]);
  fill($("sources"), own.length > 0 && [pressed(null, "All", HEAD.sessions.length), own.map(([source, count]) => pressed(source, labelOf(source), count))]);
}

function session(at, text) {
  const one = HEAD.sessions[at], fork = one.forked !== undefined;
  const facts = [one.source !== undefined && labelOf(one.source), one.space !== undefined && `space “${one.space}”`, one.last === undefined ? "no messages" : days(one.first, one.last), many(one.messages, "message"), many(one.tokens, "token"), one.degraded && `${num(one.degraded)} degraded`, one.queue && `${num(one.queue)} to be made`, one.closed && "closed"];
  const made = h("button", { class: "row", on: () => { location.hash = `#s${at}`; } }, h("span", {}, h("strong", { dir: "auto" }, said(one.title ?? one.id)), fork ? h("span", { class: "dim" }, ` fork of ${one.forked}`) : null),
    h("span", { class: "dim" }, facts.filter(Boolean).join(" · ")),
    text !== undefined ? h("span", { class: "about", dir: "auto" }, snippet(text)) : one.about === undefined ? null : h("span", { class: "dim about" }, typeof one.about === "string" ? snippet(one.about) : said(one.about)));
  return h("li", { class: fork ? "fork" : "" }, made);
}

let BANK = null;

async function open(at, then) {
  const entry = HEAD.sessions[at];
  if (!entry || (S?.entry === entry && then === undefined)) return;
  if (S?.entry === entry) return go(then);
  const data = await part(`s${at}`);
  scan++;
  $("list").hidden = true;
  if (!SINGLE) {
    $("brand").replaceChildren(h("button", { on: () => { location.hash = ""; } }, "← All sessions"));
    history.replaceState(null, "", `#s${at}`);
  }
  $("title").replaceChildren(...said(entry.title ?? entry.id));
  document.title = `${typeof entry.title === "string" ? entry.title : entry.id} – hiermem`;
  $("facts").textContent = `${many(entry.messages, "message")}, ${many(entry.tokens, "token")}${entry.last === undefined ? "" : `, ${days(entry.first, entry.last)}`}${entry.people?.length ? `, ${entry.people.join(", ")}` : ""}${entry.source === undefined ? "" : `, from ${labelOf(entry.source)}`}${entry.forked === undefined ? "" : `, a fork of ${entry.forked}`}`;
  if (HEAD.query) $("facts").append("; contexts for the question: ", ...said(HEAD.query));
  if (!data) { S = null; $("facts").textContent += `. It is too long for this page: hiermem view '${entry.id}' makes its own.`; return; }
  prepare(entry, data);
  Object.assign(picked, { node: -1, message: -1, source: null });
  $("one").hidden = false;
  $("status").textContent = S.nodes.length ? "A bar is a summary of the messages below it. Select one to read it, or walk the map with the arrow keys." : "";
  const budget = $("budget");
  budget.max = Math.max(0, S.contexts.length - 1);
  budget.hidden = S.contexts.length < 2;
  const asked = S.contexts.findIndex((one) => one.asked && one.blocks), smaller = S.contexts.findLastIndex((one) => one.blocks && one.blocks.some((b) => b[0] === "view"));
  budget.value = asked >= 0 ? asked : Math.min(Math.max(0, smaller), 2);
  layout(); stand(); budgetSays();
  tab = "Messages";
  if (find.words.length) search(); else show("Messages");
  draw();
  const top = S.rows.at(-1)?.find((n) => n.text !== undefined);
  if (then !== undefined) go(then);
  else if (top) { showNode(top); picked.node = top.at; draw(); }
  else fill($("detail"), h("p", { class: "dim" }, "No summary is made yet."));
}

function route() {
  const at = /^#s(\d+)$/.exec(location.hash);
  if (at) return open(Number(at[1]));
  if (SINGLE) return open(0);
  S = null;
  $("one").hidden = true;
  $("list").hidden = false;
  $("brand").textContent = `hiermem ${HEAD.version}`;
  document.title = "hiermem";
  $("title").textContent = many(HEAD.sessions.length, "session");
  $("facts").textContent = many(HEAD.sessions.reduce((sum, one) => sum + one.messages, 0), "message");
  filters();
  list();
  fill($("banks"), spaces());
}

async function start() {
  HEAD.order = HEAD.sessions.map((_, at) => at).sort((x, y) => (HEAD.sessions[y].last ?? 0) - (HEAD.sessions[x].last ?? 0));
  for (const at of [...HEAD.order]) {  // a fork stands under its session
    const parent = HEAD.sessions.findIndex((one) => one.id === HEAD.sessions[at].forked);
    if (parent >= 0) HEAD.order.splice(HEAD.order.indexOf(parent) + 1, 0, ...HEAD.order.splice(HEAD.order.indexOf(at), 1));
  }
  HEAD.said = HEAD.sessions.map((one) => [one.title, one.id, one.about, ...(one.people || [])].filter((text) => typeof text === "string").join(" ")).map(fold);
  $("brand").textContent = `hiermem ${HEAD.version}`;
  BANK = await part("bank");
  const on = (target, type, act, more) => target.addEventListener(type, act, more), box = $("map");
  on($("find"), "input", search);
  on($("find"), "keydown", (event) => {
    const all = find.messages, by = event.shiftKey ? all.length - 1 : 1;
    if (event.key === "Enter" && S && all.length) go(all[(all.indexOf(picked.message) + by) % all.length]);
  });
  on($("budget"), "input", refresh);
  const press = ({ node, message }) => { if (node >= 0) pick(node); else if (message >= 0) go(message); };
  on(box, "keydown", keys);
  on(box, "pointerdown", (event) => press(under(event)));
  on(box, "pointermove", (event) => { const at = under(event); $("status").textContent = describe(at); if (event.buttons && at.message >= 0) { Object.assign(picked, { node: -1 }, at); redraw(); later(() => press(at)); } });
  on(box, "pointerleave", () => { $("status").textContent = describe(picked); });
  on(box, "wheel", (event) => { if (event.ctrlKey) { event.preventDefault(); zoom(event.deltaY > 0 ? 1.25 : 0.8, toPlace(event.offsetX)); } }, { passive: false });
  on($("tabs"), "keydown", (event) => {
    const all = [...$("tabs").children].map((one) => one.textContent), by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (by) show(all[(all.indexOf(tab) + by + all.length) % all.length], true);
  });
  on(window, "resize", () => { if (S) layout(); redraw(); });
  on(window, "hashchange", route);
  on(window, "keydown", (event) => { if (event.key === "/" && event.target.tagName !== "INPUT") { event.preventDefault(); $("find").focus(); } });
  on(matchMedia("(prefers-color-scheme: dark)"), "change", redraw);
  await route();
  performance.mark("shown");
}
start();
