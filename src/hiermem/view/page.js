"use strict";
// Everything that is shown comes from the blocks of data in this page, and is set as text.
const $ = (id) => document.getElementById(id);
const HEAD = JSON.parse($("head").textContent);
const SINGLE = HEAD.sessions.length === 1;
const ROLES = { u: "user", a: "assistant", s: "system", d: "developer", t: "tool" };
const KINDS = ["represented only", "summarised", "excerpted", "verbatim", "recalled"];
const COLOURS = ["line", "summarised", "excerpted", "verbatim", "recalled"];
const STATES = { pending: "to be made", generating: "being made", active: "made", failed: "failed" };
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric" });
const SHORT = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const TIME = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "short" });
const LONG = 2000, GROUP = 40;

const num = (n) => n.toLocaleString("en-US");
const many = (n, one, more) => `${num(n)} ${n === 1 ? one : more || one + "s"}`;
const day = (t) => DAY.format(t * 1000);
const days = (a, b) => {
  const from = day(a), to = day(b);
  return from === to ? to : `${from.slice(-4) === to.slice(-4) ? SHORT.format(a * 1000) : from} to ${to}`;
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
  made.append(...children.flat(Infinity).filter((one) => one || one === 0));
  return made;
}

const wordsOf = (text) => text.toLowerCase().match(/[\p{L}\p{N}]+/gu) || [];

/** Return a text as nodes, with marks on found words and on what a line was made of; a length as a bar. */
function said(text, source) {
  if (typeof text === "number") {
    const bar = h("span", { class: "gone" });
    bar.style.width = `${Math.min(100, 2 + text / 4)}%`;
    return [bar, h("span", { class: "dim" }, ` ${many(text, "character")}`)];
  }
  const marks = [], lower = text.toLowerCase();
  for (const word of lower.length === text.length ? find.words : []) {
    for (let at = lower.indexOf(word); at >= 0 && marks.length < 500; at = lower.indexOf(word, at + word.length)) marks.push([at, at + word.length, ""]);
  }
  if (source?.size) {
    for (const one of text.matchAll(/[^\n.!?]+[.!?]*/g)) {
      const words = wordsOf(one[0]);
      if (words.length > 1 && words.filter((word) => source.has(word)).length >= 0.9 * words.length) marks.push([one.index, one.index + one[0].length, "source"]);
    }
  }
  if (!marks.length) return [text];
  marks.sort((x, y) => x[0] - y[0]);
  const out = [];
  let done = 0;
  for (const [from, to, kind] of marks) {
    if (from < done) continue;
    out.push(text.slice(done, from), h("mark", kind && { class: kind }, text.slice(from, to)));
    done = to;
  }
  return [...out, text.slice(done)];
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
    item.scrollIntoView({ block: "center" });
    requestAnimationFrame(() => item.isConnected && item.scrollIntoView({ block: "center" }));
  }
  again() { for (const group of this.groups) if (group.firstChild) { group.replaceChildren(); this.fill(group); } }
  end() { this.seen.disconnect(); }
}

// -- One session

let S = null, feed = null, tab = "Messages";
const picked = { node: -1, message: -1, source: null };
const find = { words: [], messages: [], nodes: [] };
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const level = (k) => `l${Math.min(k, 4)}`;
const name = (i) => S.messages.names[S.messages.who[i]];
const plan = () => S.contexts[$("budget").value] || null;
const length = (i) => S.messages.text[i].length ?? 0;
const kindOf = (i) => (S.kinds ? S.kinds[i] : 0);

function prepare(entry, data) {
  S = Object.assign(data, { entry, count: data.messages.role.length, limit: data.messages.role.length });
  [S.below, S.rows] = [S.nodes.map(() => []), []];
  S.nodes.forEach((node, at) => {
    node.at = at;
    if (node.up !== undefined) S.below[node.up].push(at);
    (S.rows[node.level] ||= []).push(node);
  });
  for (const node of S.nodes) if (node.lines) node.text = spell(node.lines);
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

/** Say in words what a slider is at, for eyes and for a screen reader. */
function sayAt(id, text) {
  $(`${id}-says`).value = text;
  $(id).setAttribute("aria-valuetext", text);
}

function budgetSays() {
  const now = plan(), counts = [0, 0, 0, 0, 0];
  let text = now ? `${num(now.budget)} tokens are too few: ${num(now.least ?? 0)} are needed` : "no context is planned";
  if (now?.blocks) {
    text = `${num(now.budget)} tokens, ${num(now.total)} used` + (now.blocks.some((b) => b[0] !== "message") ? "" : ": the whole history");
    if (now.shared) text += now.shared === now.total ? "; the same as the last call" : `; the first ${num(now.shared)} as in the last call`;
  }
  sayAt("budget", text);
  S.kinds.forEach((kind) => counts[kind]++);
  $("legend").replaceChildren(...[3, 4, 2, 1, 0].filter((k) => counts[k]).map((k) => h("li", { c: COLOURS[k] }, `${num(counts[k])} ${KINDS[k]}`)));
}

const timeSays = () => sayAt("time", S.limit >= S.count ? `all ${many(S.count, "message")}` : `the first ${num(S.limit)}, to ${day(S.messages.at[Math.max(0, S.limit - 1)])}`);

// -- The map

const map = {}, ROW = 20;

function layout() {
  const tall = Math.max(0, S.rows.length - 1), gap = tall > 5 ? 2 : 4;
  let y = 4;
  map.rows = [];
  for (let k = tall; k > 0; k--, y += ROW + gap) map.rows.push({ kind: "level", level: k, y, h: ROW, label: `level ${k}` });
  map.rows.push({ kind: "messages", y, h: 40, label: "messages" }); y += 46;
  map.rows.push({ kind: "context", y, h: 20, label: "context" }); y += 24;
  map.rows.push({ kind: "days", y, h: 18, label: "" }); map.height = y + 20;
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
  g.font = "12px system-ui, sans-serif";
  g.textBaseline = "middle";
  for (const row of map.rows) { g.fillStyle = dim; g.fillText(row.label, 0, row.y + row.h / 2); }
  g.save();
  g.beginPath();
  g.rect(map.gutter, 0, map.width + 4, map.height);
  g.clip();
  for (const row of map.rows) if (row.kind === "level") drawLevel(g, row, css(level(row.level)), { ink, paper, warn, dim });
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
    if (node.span[1] > S.limit || node.span[1] < S.window[0] || node.span[0] > S.window[1]) continue;
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
    if (wide > 44 && node.tokens !== undefined) {
      g.fillStyle = S.used.has(node.at) || !plan() ? paper : ink;
      g.fillText(node.id, a + 6, row.y + row.h / 2 + 0.5);
    }
    if (node.at === picked.node) { g.strokeStyle = ink; g.lineWidth = 2; g.strokeRect(a, row.y, Math.max(2, wide), row.h); g.lineWidth = 1; }
  }
}

/** Call with each column of pixels, or each message where they are wider: x, width, from, to. */
function columns(draws) {
  const [a, b] = S.window, each = map.width / (b - a);
  if (each >= 1) for (let i = Math.floor(a); i < Math.min(b, S.limit); i++) draws(toX(i), each > 3 ? each - 1 : each, i, i + 1);
  else for (let x = 0; x < map.width; x++) {
    const from = Math.floor(a + x / each), to = Math.min(S.limit, Math.floor(a + (x + 1) / each));
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
  for (const at of find.messages) if (at < S.limit) g.fillRect(toX(at + 0.5) - 1, row.y, 2, 6);
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
  let free = 0, before = "";
  const { at } = S.messages, [a, b] = S.window, step = Math.max(1, Math.floor((b - a) / map.width));
  for (let i = Math.floor(a); i < Math.min(b, S.count); i += step) {
    const x = toX(i);
    if (x < free) continue;
    const label = SHORT.format(at[i] * 1000);
    if (label === before) continue;
    before = label;
    g.fillStyle = line; g.fillRect(x, row.y, 1, 4);
    g.fillStyle = dim; g.fillText(label, x + 3, row.y + 10);
    free = x + g.measureText(label).width + 18;
  }
}

function under(event) {
  const box = $("canvas").getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
  const row = map.rows.find((one) => y < one.y + one.h + 3) || map.rows.at(-1), at = toPlace(x);
  if (row.kind !== "level") return { message: clip(Math.floor(at), 0, S.count - 1) };
  const node = S.rows[row.level].find((one) => one.span[0] <= at && at < one.span[1]);
  return node ? { node: node.at } : {};
}

function describe({ node, message }) {
  if (node >= 0) {
    const n = S.nodes[node];
    const state = n.degraded ? "; degraded" : n.tokens === undefined ? `; ${STATES[n.status]}` : "";
    return `${n.id}: messages ${span(n.span)}, ${days(n.first, n.last)}, ${n.tokens === undefined ? "no text yet" : many(n.tokens, "token")}${state}${S.used.has(node) ? "; in the context" : ""}`;
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
  const words = h("p", { class: "words", dir: "auto" }, said(long ? text.slice(0, LONG) : text, i === picked.message ? picked.source : null));
  const head = h("header", {}, h("h4", {}, h("button", { on: () => go(i), dir: "auto" }, name(i))), h("span", { class: "dim" },
    ` ${num(i)} · `, h("time", { datetime: new Date(m.at[i] * 1000).toISOString() }, TIME.format(m.at[i] * 1000)), ` · ${many(m.tokens[i], "token")}`,
    S.pinned.has(i) ? " · pinned" : "", m.thread[i] ? ` · ${m.threads[m.thread[i]]}` : "", m.states[i] ? ` · ${m.states[i]}` : ""));
  const made = h("article", { class: `${ROLES[m.role[i]]}${i === picked.message ? " lit" : ""}`, "aria-setsize": S.count, "aria-posinset": i + 1, c: COLOURS[kindOf(i)] }, head, words);
  if (long) {
    const more = h("button", { class: "more", on: () => { words.replaceChildren(...said(text)); more.remove(); } }, `Show all ${num(text.length)} characters`);
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
  const what = { summary: "Summary", view: "View of older messages", pins: "Pinned", recall: "Recalled for the question", quote: "Quoted", excerpt: "Excerpt" }[kind] || kind;
  return h("div", {}, h("div", { class: "record", c: kind === "recall" ? "recalled" : "summarised" }, h("h4", {}, what),
    h("span", { class: "dim" }, `messages ${span([a, b])} · ${many(tokens, "token")}`), h("div", { class: "words" }, readable(lines, [a, b]))), until);
}

const readable = (lines, range) => (typeof lines[0] === "number" ? h("p", {}, said(spell(lines))) : lines.map((one) => line(spell([one]), range, Array.isArray(one) && one[0] >= 0 ? one[0] : -1)));

/** Return a line of a summary or a record; pressed, it leads to the message that it is of. */
function line(text, [a, b], source) {
  if (/^(\[\d{4}-\d\d-\d\d\]|\[\[\/?hiermem .*|Fenced records of .*)$/.test(text) || !text.trim()) return h("p", { class: "line" }, text);
  const made = h("button", { class: "line", "aria-pressed": "false", dir: "auto", on: () => {
    const words = new Set(wordsOf(text)), at = source >= 0 ? source : origin(words, a, b);
    document.querySelector(".line[aria-pressed=true]")?.setAttribute("aria-pressed", "false");
    made.setAttribute("aria-pressed", "true");
    if (at >= 0) go(at, words, true);
    else $("status").textContent = `No message of ${span([a, b])} has the words of this line.`;
  } }, said(text));
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

function row(node) {
  const first = typeof node.text === "string" ? node.text.replace(/^\[\d{4}-\d\d-\d\d\]\n/, "").slice(0, 200) : node.text === undefined ? STATES[node.status] : many(node.text, "character");
  const facts = `messages ${span(node.span)} · ${days(node.first, node.last)} · ${many(node.tokens ?? 0, "token")}${node.degraded ? " · degraded" : ""}`;
  const made = h("button", { class: "row", on: () => pick(node.at) }, h("span", {}, h("b", { class: "chip", c: level(node.level) }, node.id), h("span", { class: "dim" }, facts)), h("span", {}, first));
  made.style.paddingInlineStart = `${(S.rows.length - 1 - node.level) * 1.1}rem`;
  return made;
}

const outline = () => S.nodes.filter((n) => n.span[1] <= S.limit).sort((x, y) => x.span[0] - y.span[0] || y.level - x.level);

const TABS = {
  Messages: (panel) => new Feed(panel, S.count, (i) => message(i), length),
  Context: (panel) => {
    const now = plan();
    if (!now?.blocks) return void panel.replaceChildren(h("p", { class: "dim" }, $("budget-says").value));
    let sum = 0;
    S.upTo = now.blocks.map((b) => (sum += b[1]));
    return new Feed(panel, now.blocks.length, block);
  },
  Summaries: (panel) => { const all = outline(); return new Feed(panel, all.length, (i) => row(all[i])); },
  "Pins and bank": (panel) => void panel.replaceChildren(...kept()),
  Health: (panel) => void panel.replaceChildren(...health()),
  Found: (panel) => {
    const all = [...find.nodes.map((at) => [S.nodes[at].span[0], at]), ...find.messages.map((i) => [i, -1])].sort((x, y) => x[0] - y[0] || y[1] - x[1]);
    if (!all.length) return void panel.replaceChildren(h("p", { class: "dim" }, "No message and no summary has all of these words."));
    return new Feed(panel, all.length, (i) => (all[i][1] >= 0 ? row(S.nodes[all[i][1]]) : message(all[i][0], false)));
  },
};

const tabId = (one) => `tab-${one.split(" ")[0]}`;

function show(which, focus) {
  tab = which;
  const shown = Object.keys(TABS).filter((one) => one !== "Found" || find.words.length);
  $("tabs").replaceChildren(...shown.map((one) => h("button", { role: "tab", id: tabId(one), "aria-controls": "panel", "aria-selected": String(one === which), tabindex: one === which ? 0 : -1, on: () => show(one) }, one)));
  $("panel").setAttribute("aria-labelledby", tabId(which));
  if (focus) $(tabId(which)).focus();
  feed?.end();
  $("panel").scrollTop = 0;
  feed = TABS[which]($("panel")) || null;
}

function refresh() { stand(); budgetSays(); redraw(); later(() => (tab === "Context" ? show(tab) : feed?.again())); }

const fact = (term, ...value) => [h("dt", {}, term), h("dd", {}, ...value)];
const chip = (node) => h("button", { class: "chip", c: level(node.level), on: () => { pick(node.at); $("detail").focus(); } }, node.id);
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
    node.tokens !== undefined && fact("Fidelity", node.fidelity === undefined ? "nothing to keep word for word" : [h("meter", { min: 0, max: 1, value: node.fidelity, "aria-label": "fidelity" }), `${percent(node.fidelity)} of the figures and names of its sources`]),
    node.unsupported && fact("Unsupported", h("span", { class: "warn" }, node.unsupported.map((one) => (typeof one === "string" ? one : many(one, "character"))).join(", "))),
    node.made && fact("Made", TIME.format(node.made * 1000)),
    fact("Context", S.used.has(node.at) ? "this budget's context shows it" : "not in this budget's context"),
  ];
  const below = S.below[node.at].map((at) => S.nodes[at]), up = S.nodes[node.up];
  $("detail").replaceChildren(h("h2", {}, node.id), h("p", { class: "dim" }, describe({ node: node.at }).split(": ").slice(1).join(": ")), h("div", {}, body), h("dl", {}, facts.filter(Boolean)),
    up && h("h3", {}, "Summarised in"), up && h("div", { class: "chips" }, chip(up)),
    below.length && h("h3", {}, "Made of"), below.length && h("div", { class: "chips" }, below.map(chip)));
  $("detail").scrollTop = 0;
}

function showMessage(i) {
  const m = S.messages, above = over(i);
  $("detail").replaceChildren(h("h2", {}, `Message ${num(i)}`), h("dl", {},
    fact("From", name(i), ` (${ROLES[m.role[i]]})`), fact("When", TIME.format(m.at[i] * 1000)), fact("Size", many(m.tokens[i], "token")),
    m.states[i] && fact("State", m.states[i]), S.pinned.has(i) && fact("Pinned", S.pinned.get(i) === "wish" ? "a standing wish was found in it" : "by the application"),
    fact("Context", plan()?.blocks ? KINDS[kindOf(i)] : "none planned")),
    above.length ? h("h3", {}, "Summarised in") : h("p", { class: "dim" }, "In an open window: no summary covers it yet."), h("div", { class: "chips" }, above.map(chip)),
    HEAD.packed && h("h3", {}, "To erase it"), HEAD.packed && h("p", {}, h("code", {}, `hiermem erase '${S.entry.id.replaceAll("'", `'\\''`)}' ${i}`)));
}

function kept() {
  const out = [h("h3", {}, "Pinned messages"), S.pins.length ? S.pins.map(([at, reason, text]) => h("button", { class: "row", on: () => go(at) }, h("span", { class: "dim" }, `message ${num(at)} · ${reason === "wish" ? "standing wish" : "pinned"}`), h("span", {}, said(text)))) : h("p", { class: "dim" }, "None.")];
  return [...out.flat(), ...banks()];
}

function banks() {
  return (BANK || []).flatMap((one) => [h("h3", {}, `Bank of the space “${one.name}”, revision ${one.revision}`),
    one.synthesis ? h("p", { class: "words" }, said(one.synthesis)) : null,
    ...one.files.map(([file, text]) => h("details", {}, h("summary", {}, file), text === null ? null : h("p", { class: "words" }, said(text)), notes(one.notes.filter((n) => n.files?.includes(file))))),
    h("details", {}, h("summary", {}, `${many(one.notes.filter((n) => !n.files).length, "note")} in no file`), notes(one.notes.filter((n) => !n.files)))]).filter(Boolean);
}

const notes = (all) => h("ul", {}, all.map((n) => h("li", {}, said(n.text), h("span", { class: "dim" }, ` · ${n.agent ? `${n.agent}, ` : ""}${day(n.at)}, ${n.state}`, n.dropped !== undefined ? [": ", ...said(n.dropped)] : ""), n.sources ? h("span", { class: "chips" }, n.sources.map(([id, at]) => h("button", { class: "chip", on: () => open(HEAD.sessions.findIndex((one) => one.id === id), at) }, `${id === S?.entry.id ? "message" : id} ${num(at)}`))) : null)));

function health() {
  const bad = S.nodes.filter((n) => n.degraded || n.error), [calls, sent, got, cost] = S.spent;
  const table = h("table", {}, h("tr", {}, ["Level", "Summaries", "Made", "Degraded", "Out of date", "To make", "Fidelity", "Calls", "Tokens in", "out"].map((one) => h("th", { scope: "col" }, one))),
    S.levels.map((one) => h("tr", {}, one.map((v, at) => h("td", {}, v === null ? "—" : at === 6 ? percent(v) : at ? num(v) : `L${v}`)))));
  const shorter = S.sealed ? `${num(S.sealed)} tokens; the shortest cover takes ${num(S.cover)}` : "nothing is sealed yet";
  return [h("h3", {}, "Summaries"), table, h("dl", {}, [
    fact("Sealed", shorter), fact("Open", S.open.length ? S.open.map(([n, t]) => `${many(n, "message")}, ${many(t, "token")}`).join("; ") : "none"),
    fact("Spent", `${many(calls, "call")}, ${num(sent)} tokens in, ${num(got)} out`, cost === null ? "" : `, cost ${money(cost)}`),
    S.reuse !== null && fact("Prefix", `${percent(S.reuse)} of the contexts' tokens stood in the context before`),
    S.error && fact("Last error", h("span", { class: "warn" }, S.error)), S.repacking && fact("Re-pack", "under way"),
    S.config !== "{}" && fact("Settings", h("code", {}, S.config))].filter(Boolean)),
  bad.length && h("h3", {}, "Degraded, and why"), ...bad.slice(0, 200).map((n) => h("button", { class: "row", on: () => pick(n.at) }, h("span", {}, h("b", { class: "chip", c: level(n.level) }, n.id), ` ${why(n) || "no reason is on record"}`)))].filter(Boolean);
}

// -- Find, and the list of sessions

function search() {
  find.words = $("find").value.toLowerCase().split(/\s+/).filter(Boolean);
  if (!S) return list();
  S.lower ||= [S.messages.text, S.nodes.map((n) => n.text)].map((all) => all.map((text) => (typeof text === "string" ? text.toLowerCase() : "")));
  const has = (text, at) => (find.words.length && find.words.every((word) => text.includes(word)) ? at : []);
  [find.messages, find.nodes] = S.lower.map((all) => all.flatMap(has));
  $("hits").value = find.words.length ? `${many(find.messages.length, "message")}, ${many(find.nodes.length, "summary", "summaries")}` : "";
  show(find.words.length ? "Found" : tab === "Found" ? "Messages" : tab);
  redraw();
}

let scan = 0;
async function deeper(words, turn) {
  const found = [];
  for (let at = 0; at < HEAD.sessions.length; at++) {
    if (turn !== scan) return;
    const data = await part(`s${at}`);
    if (data && data.messages.text.some((text) => typeof text === "string" && words.every((word) => text.toLowerCase().includes(word)))) found.push(at);
    if (at % 8 === 7 && turn === scan) list(found, at + 1);
  }
  if (turn === scan) list(found, HEAD.sessions.length);
}

function list(inside, done) {
  const words = find.words, order = HEAD.order;
  const shown = order.filter((at) => inside?.includes(at) || words.every((word) => HEAD.said[at].includes(word)));
  $("hits").value = words.length ? `${many(shown.length, "session")}${done < HEAD.sessions.length || !inside ? " so far" : ""}` : "";
  feed?.end();
  feed = new Feed($("sessions"), shown.length, (i) => session(shown[i]), undefined, innerWidth > 860 ? $("list") : null);
  if (words.length && !inside) deeper(words, ++scan);
  else if (!words.length) scan++;
}

function session(at) {
  const one = HEAD.sessions[at], fork = one.forked !== undefined;
  const made = h("button", { class: "row", on: () => { location.hash = `#s${at}`; } }, h("span", {}, h("strong", { dir: "auto" }, said(one.title ?? one.id)), fork ? h("span", { class: "dim" }, ` fork of ${one.forked}`) : null),
    h("span", { class: "dim" }, `${one.last === undefined ? "no messages" : days(one.first, one.last)} · ${many(one.messages, "message")} · ${many(one.tokens, "token")}${one.degraded ? ` · ${num(one.degraded)} degraded` : ""}${one.queue ? ` · ${num(one.queue)} to be made` : ""}${one.closed ? " · closed" : ""}`),
    one.about === undefined ? null : h("span", { class: "dim about" }, said(one.about)));
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
  $("facts").textContent = `${many(entry.messages, "message")}, ${many(entry.tokens, "token")}${entry.last === undefined ? "" : `, ${days(entry.first, entry.last)}`}${entry.people?.length ? `, ${entry.people.join(", ")}` : ""}${entry.forked === undefined ? "" : `, a fork of ${entry.forked}`}`;
  if (HEAD.query) $("facts").append("; contexts for the question: ", ...said(HEAD.query));
  if (!data) { S = null; $("facts").textContent += `. It is too long for this page: hiermem view '${entry.id}' makes its own.`; return; }
  prepare(entry, data);
  Object.assign(picked, { node: -1, message: -1, source: null });
  $("one").hidden = false;
  $("status").textContent = "Point at the map, or walk it with the arrow keys.";
  const budget = $("budget"), time = $("time");
  budget.max = Math.max(0, S.contexts.length - 1);
  budget.disabled = S.contexts.length < 2;
  const asked = S.contexts.findIndex((one) => one.asked && one.blocks), smaller = S.contexts.findLastIndex((one) => one.blocks && one.blocks.some((b) => b[0] === "view"));
  budget.value = asked >= 0 ? asked : Math.min(Math.max(0, smaller), 2);
  time.max = S.count;
  time.value = S.limit;
  layout(); stand(); budgetSays(); timeSays();
  tab = "Messages";
  if (find.words.length) search(); else show("Messages");
  draw();
  const top = S.rows.at(-1)?.find((n) => n.text !== undefined);
  if (then !== undefined) go(then);
  else if (top) { showNode(top); picked.node = top.at; draw(); }
  else $("detail").replaceChildren(h("p", { class: "dim" }, "No summary is made yet."));
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
  list();
  if (BANK?.length) $("banks").replaceChildren(...banks());
}

async function start() {
  HEAD.order = HEAD.sessions.map((_, at) => at).sort((x, y) => (HEAD.sessions[y].last ?? 0) - (HEAD.sessions[x].last ?? 0));
  for (const at of [...HEAD.order]) {  // a fork stands under its session
    const parent = HEAD.sessions.findIndex((one) => one.id === HEAD.sessions[at].forked);
    if (parent >= 0) HEAD.order.splice(HEAD.order.indexOf(parent) + 1, 0, ...HEAD.order.splice(HEAD.order.indexOf(at), 1));
  }
  HEAD.said = HEAD.sessions.map((one) => [one.title, one.id, one.about, ...(one.people || [])].filter((text) => typeof text === "string").join(" ").toLowerCase());
  $("brand").textContent = `hiermem ${HEAD.version}`;
  BANK = await part("bank");
  const on = (target, type, act, more) => target.addEventListener(type, act, more), box = $("map");
  on($("find"), "input", search);
  on($("find"), "keydown", (event) => {
    const all = find.messages, by = event.shiftKey ? all.length - 1 : 1;
    if (event.key === "Enter" && S && all.length) go(all[(all.indexOf(picked.message) + by) % all.length]);
  });
  on($("budget"), "input", refresh);
  on($("time"), "input", (event) => {
    S.limit = Number(event.target.value);
    timeSays();
    redraw();
    later(() => (tab === "Messages" ? feed.show(Math.max(0, S.limit - 1)) : tab === "Summaries" && show(tab)));
  });
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
  on(window, "resize", redraw);
  on(window, "hashchange", route);
  on(window, "keydown", (event) => { if (event.key === "/" && event.target.tagName !== "INPUT") { event.preventDefault(); $("find").focus(); } });
  on(matchMedia("(prefers-color-scheme: dark)"), "change", redraw);
  await route();
  performance.mark("shown");
}
start();
