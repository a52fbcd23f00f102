"use strict";
// Rows arrive as server-sent events and are kept by key. The page is redrawn from them,
// at most once a frame. All text is inserted as text, never as markup.
const rows = new Map();
const maxTimeline = 200, maxDrawn = 500;
const by = (id) => document.getElementById(id);
let waiting = false, first = true;

function el(tag, cls, text) {
  const e = document.createElement(tag);
  if (cls) e.className = cls;
  if (text !== undefined) e.textContent = text;
  return e;
}

function ago(since) {
  if (!since) return "";
  const s = Math.max(0, Math.round((Date.now() - Date.parse(since)) / 1000));
  if (s < 120) return s + " s";
  if (s < 7200) return Math.floor(s / 60) + " min";
  if (s < 172800) return Math.floor(s / 3600) + " h";
  return Math.floor(s / 86400) + " d";
}

function head(row, tag) {
  const h = el(tag, "head");
  h.append(el("span", "name", row.name), el("span", "state " + row.state, row.what));
  if (row.since) {
    const t = el("span", "since", ago(row.since));
    t.title = row.since;
    h.append(t);
  }
  if (row.detail) h.append(el("span", "detail", row.detail));
  if (row.why) h.append(el("span", "why " + row.state, row.why));
  return h;
}

function card(row, children) {
  const c = el("div", "row");
  c.dataset.key = row.key;
  const explained = row.kind === "pod" || row.kind === "driver";
  const h = head(row, explained ? "button" : "div");
  if (explained) {
    h.title = "explain";
    h.addEventListener("click", () => explain(row));
  }
  c.append(h);
  if (children.length) {
    const ul = el("ul");
    for (const child of children) {
      const li = el("li");
      li.append(head(child, "div"));
      ul.append(li);
    }
    c.append(ul);
  }
  return c;
}

async function explain(row) {
  by("explain-title").textContent = row.kind + " " + row.name;
  by("explain-text").textContent = "asking";
  by("explain").showModal();
  try {
    const answer = await fetch("explain/" + row.kind + "/" + row.name.split("/").map(encodeURIComponent).join("/"));
    by("explain-text").textContent = await answer.text();
  } catch (err) {
    by("explain-text").textContent = "the daemon does not answer: " + err.message;
  }
}

function wanted(row, children) {
  if (by("unwell").checked && row.state === "good") return false;
  const q = by("filter").value.trim().toLowerCase();
  if (!q) return true;
  return [row, ...children].some((r) => [r.name, r.what, r.why, r.detail].some((s) => s && s.toLowerCase().includes(q)));
}

function fill(id, list, empty) {
  const out = [];
  for (const [row, children] of list) {
    if (!wanted(row, children)) continue;
    if (out.length === maxDrawn) {
      out.push(el("p", "detail", "and more: filter to see them"));
      break;
    }
    out.push(card(row, children));
  }
  if (!out.length) out.push(el("p", "detail", list.length ? "none that the filter lets through" : empty));
  by(id).replaceChildren(...out);
}

function draw() {
  waiting = false;
  const pods = new Map(), drivers = [], problems = [];
  const volumes = [];
  for (const row of [...rows.values()].sort((a, b) => a.name < b.name ? -1 : a.name > b.name ? 1 : 0)) {
    if (row.kind === "pod") pods.set(row.key, [row, []]);
    if (row.kind === "volume") volumes.push(row);
    if (row.kind === "driver") drivers.push([row, []]);
    if (row.kind === "problem") problems.push([row, []]);
  }
  for (const v of volumes) pods.get(v.of)?.[1].push(v);
  const count = (list, state) => list.filter((r) => r.state === state).length;
  const podRows = [...pods.values()].map((p) => p[0]), driverRows = drivers.map((d) => d[0]);
  const sums = [
    ["pods ready", count(podRows, "good") + " / " + podRows.length, "good"],
    ["volumes mounted", count(volumes, "good") + " / " + volumes.length, "good"],
    ["under way", count(volumes, "working"), "working"],
    ["waiting", count(volumes, "blocked"), "blocked"],
    ["failing", count(volumes, "bad"), "bad"],
    ["drivers up", count(driverRows, "good") + " / " + driverRows.length, "good"],
  ];
  by("sums").replaceChildren(...sums.map(([name, n, state]) => {
    const d = el("div");
    d.append(el("b", n === 0 ? "" : state, String(n)), el("span", "", name));
    return d;
  }));
  fill("pods", [...pods.values()], "no pod is wanted on this node");
  fill("drivers", drivers, "no driver is registered");
  by("problems-section").hidden = problems.length === 0;
  fill("problems", problems, "");
}

function redraw() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(draw);
}

function note(row, gone) {
  const li = el("li"), t = el("time", "", new Date().toLocaleTimeString());
  const owner = rows.get(row.of);
  const name = (owner ? owner.name + " " : "") + row.name;
  li.append(t, el("span", "", row.kind + " " + name + ": "), el("span", gone ? "" : row.state, gone ? "gone" : row.what + (row.why ? " – " + row.why : "")));
  const line = by("timeline");
  line.prepend(li);
  while (line.children.length > maxTimeline) line.lastChild.remove();
}

function take(message) {
  if (message.node !== undefined) by("node").textContent = message.node;
  if (first) rows.clear();
  for (const row of message.set ?? []) {
    const old = rows.get(row.key);
    rows.set(row.key, row);
    if (!first && (!old || old.what !== row.what || old.why !== row.why)) note(row, false);
  }
  for (const key of message.gone ?? []) {
    const old = rows.get(key);
    if (old) note(old, true);
    rows.delete(key);
  }
  first = false;
  redraw();
}

function link(cls, text) {
  by("link").className = cls;
  by("link").textContent = text;
}

const events = new EventSource("rows");
events.onopen = () => { first = true; link("live", "live"); };
events.onerror = () => link("lost", "the daemon does not answer; what is shown is old");
events.onmessage = (e) => take(JSON.parse(e.data));
by("filter").addEventListener("input", redraw);
by("unwell").addEventListener("change", redraw);
setInterval(redraw, 10000); // the ages
