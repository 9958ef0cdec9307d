// The page of a server or metaserver. It reads snapshots from /v1/watch and draws them. It keeps
// nothing but the token, for as long as the tab is open.
"use strict";

const ROW = 28;
const WINDOW = 200;
const $ = (id) => document.getElementById(id);

// ---------------------------------------------------------------- words and numbers

const number = (value) => (value ?? 0).toLocaleString("en");

function seconds(value) {
  if (value == null) return "";
  if (value < 1e-3) return `${(value * 1e6).toFixed(0)} µs`;
  if (value < 1) return `${(value * 1e3).toFixed(value < 0.01 ? 1 : 0)} ms`;
  if (value < 60) return `${value.toFixed(1)} s`;
  if (value < 3600) return `${Math.floor(value / 60)} min ${Math.floor(value % 60)} s`;
  return `${Math.floor(value / 3600)} h ${Math.floor((value % 3600) / 60)} min`;
}

function bytes(value) {
  if (value == null) return "";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) [value, unit] = [value / 1000, unit + 1];
  return `${unit === 0 || value >= 100 ? value.toFixed(0) : value.toFixed(1)} ${units[unit]}`;
}

const clock = (from) =>
  new Date(Date.now() + from * 1000).toLocaleTimeString("en-GB", { hour12: false });

function moment(interval) {
  if (!interval) return "";
  const [low, likely, high] = [interval.low_s, interval.likely_s, interval.high_s].map(clock);
  return `${likely} (${low} to ${high})`;
}

function span(interval) {
  if (!interval) return "";
  const likely = seconds(interval.likely_s);
  if (interval.low_s === interval.high_s) return likely;
  return `${likely} (${seconds(interval.low_s)} to ${seconds(interval.high_s)})`;
}

// A rate in bits per second.
function bits(value) {
  if (value == null) return "";
  const units = ["bit/s", "kbit/s", "Mbit/s", "Gbit/s"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) [value, unit] = [value / 1000, unit + 1];
  return `${unit === 0 || value >= 100 ? value.toFixed(0) : value.toFixed(1)} ${units[unit]}`;
}

const rate = (way) =>
  way.rate == null ? "?" : `${bytes(way.rate)}/s${way.factor ? ` ×/÷ ${way.factor.toFixed(2)}` : ""}`;

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

// Changes a text only if it differs, so that screen readers do not read it again.
function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// ---------------------------------------------------------------- tables that draw what is in view

class Table {
  // A column has a title, and `cell`, which makes the text of a row. `sort` makes what the rows are
  // sorted by, `press` makes the text a button, and `meter` draws a bar instead of the text.
  constructor(id, columns) {
    this.section = $(id);
    this.box = this.section.querySelector(".list");
    this.count = this.section.querySelector(".count");
    this.columns = columns;
    this.list = { total: 0, from: 0, rows: [] };
    this.sorted = null;
    this.lines = [];
    const titles = columns.map((column, index) => this.title(column, index));
    this.above = this.space();
    this.below = this.space();
    this.body = element("tbody", {}, this.above, this.below);
    const groups = columns.map((column) => {
      const col = element("col");
      if (column.width) col.style.width = column.width;
      return col;
    });
    const head = element("thead", {}, element("tr", {}, ...titles));
    this.table = element("table", {}, element("colgroup", {}, ...groups), head, this.body);
    this.table.setAttribute("aria-labelledby", this.box.getAttribute("aria-labelledby"));
    this.box.append(this.table);
    this.box.addEventListener("scroll", () => draw(this));
    this.moved = () => {};
  }

  title(column, index) {
    const head = element("th", { scope: "col", className: column.number ? "number" : "" });
    if (!column.sort) return head.append(column.title), head;
    const button = element("button", { type: "button", textContent: column.title });
    button.addEventListener("click", () => this.sortBy(index, head));
    head.append(button);
    return head;
  }

  sortBy(index, head) {
    const down = head.getAttribute("aria-sort") === "descending";
    for (const other of this.table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "ascending" : "descending");
    this.sorted = [this.columns[index].sort, down ? 1 : -1];
    this.show(this.list);
  }

  space() {
    const line = element("tr", { className: "space" }, element("td", { colSpan: this.columns.length }));
    line.setAttribute("aria-hidden", "true");
    return line;
  }

  show(list) {
    if (this.sorted) {
      const [key, sign] = this.sorted;
      const order = (one, other) => (key(one) < key(other) ? -sign : key(one) > key(other) ? sign : 0);
      list = { ...list, rows: [...list.rows].sort(order) };
    }
    this.list = list;
    draw(this);
  }

  // The first row in view and the one after the last.
  view() {
    const first = Math.max(0, Math.floor(this.box.scrollTop / ROW) - 3);
    const count = Math.ceil(this.box.clientHeight / ROW) + 6;
    return [first, Math.min(this.list.total, first + count)];
  }

  draw() {
    const { total, from, rows } = this.list;
    const shown = rows.length < total ? ` (${number(rows.length)} shown)` : "";
    say(this.count, `${number(total)}${this.paged ? "" : shown}`);
    if (!this.paged) this.list.total = rows.length;
    this.box.classList.toggle("empty", this.list.total === 0);
    const [first, last] = this.view();
    this.above.firstChild.style.height = `${first * ROW}px`;
    this.below.firstChild.style.height = `${Math.max(0, this.list.total - last) * ROW}px`;
    this.above.hidden = first === 0;
    this.below.hidden = this.list.total <= last;
    this.table.setAttribute("aria-rowcount", this.list.total + 1);
    while (this.lines.length > last - first) this.lines.pop().remove();
    while (this.lines.length < last - first) this.body.insertBefore(this.line(), this.below);
    this.lines.forEach((line, index) => this.fill(line, rows[first + index - from], first + index));
    this.moved(first, last);
    this.list.total = total;
  }

  line() {
    const line = element("tr");
    for (const column of this.columns) {
      const cell = element("td", { className: column.number ? "number" : "" });
      if (column.press) {
        const button = element("button", { type: "button" });
        button.addEventListener("click", () => line.row && column.press(line.row));
        cell.append(button);
      }
      if (column.meter) cell.append(element("span", { className: "meter" }, element("i")));
      line.append(cell);
    }
    this.lines.push(line);
    return line;
  }

  fill(line, row, index) {
    line.row = row;
    line.setAttribute("aria-rowindex", index + 2);
    line.className = row && this.chosen?.(row) ? "chosen" : "";
    this.columns.forEach((column, place) => {
      const cell = line.cells[place];
      if (column.meter) {
        const [left, width] = row ? column.meter(row) : [0, 0];
        const bar = cell.firstChild.firstChild;
        bar.style.left = `${left * 100}%`;
        bar.style.width = `${width * 100}%`;
        return;
      }
      const text = row ? column.cell(row) : "…";
      say(column.press ? cell.firstChild : cell, text);
      // Not `disabled`: that takes the keyboard's focus from a row on its way.
      if (column.press) cell.firstChild.ariaDisabled = row ? null : "true";
      if (cell.title !== text) cell.title = text;
      if (column.tone) cell.className = row ? column.tone(row) : "";
    });
  }
}

// ---------------------------------------------------------------- frames

const waiting = new Set();
const frames = [];

// Draws something in the next frame, once.
function draw(thing) {
  if (waiting.size === 0) requestAnimationFrame(frame);
  waiting.add(thing);
}

function frame() {
  const start = performance.now();
  const things = [...waiting];
  waiting.clear();
  for (const thing of things) thing.draw();
  frames.push(performance.now() - start);
  if (frames.length > 100) frames.shift();
  document.body.dataset.frame = Math.max(...frames).toFixed(2);
}

// ---------------------------------------------------------------- streams of snapshots

const pause = (ms) => new Promise((done) => setTimeout(done, ms));
const token = () => sessionStorage.getItem("farcall-token") ?? "";

function headers(more = {}) {
  return token() ? { Authorization: `Bearer ${token()}`, ...more } : more;
}

async function refusal(answer) {
  const body = await answer.json().catch(() => ({}));
  const error = new Error(body.error?.message ?? `the server answers ${answer.status}`);
  return Object.assign(error, { status: answer.status });
}

// The snapshots of one server, as long as somebody watches it.
class Stream {
  constructor(query, show, failed) {
    Object.assign(this, { query, show, failed });
  }

  restart() {
    this.stop();
    this.control = new AbortController();
    this.run(this.control.signal);
  }

  stop() {
    this.control?.abort();
  }

  async run(signal) {
    while (!signal.aborted) {
      try {
        await this.read(signal);
        await pause(200);
      } catch (error) {
        if (signal.aborted) return;
        if (this.failed(error)) return;
        await pause(2000);
      }
    }
  }

  async read(signal) {
    const words = new URLSearchParams(this.query());
    const answer = await fetch(`/v1/watch?${words}`, { headers: headers(), signal });
    if (!answer.ok) throw await refusal(answer);
    state.drained = null;
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const events = (text + value).split("\n\n");
      text = events.pop();
      const last = events.at(-1);
      if (last && !signal.aborted) this.show(JSON.parse(last.slice("data: ".length)));
    }
  }
}

// ---------------------------------------------------------------- what is shown

const state = { main: null, shown: null, server: null, call: null, from: 0 };
const search = () => $("search").value.trim();
const found = (...texts) => texts.join("\n").toLowerCase().includes(search().toLowerCase());

const tables = {
  servers: new Table("servers", [
    { title: "server", width: "34%", cell: (one) => one.address || "this server",
      sort: (one) => one.address, press: (one) => choose(one.address) },
    { title: "state", cell: (one) => one.state, sort: (one) => one.state,
      tone: (one) => (one.state === "serving" ? "good" : "bad") },
    { title: "elements", number: true, sort: (one) => one.pes,
      cell: (one) => (one.pes_used == null ? number(one.pes) : `${one.pes_used} of ${one.pes}`) },
    { title: "calls", number: true, cell: (one) => number(one.calls), sort: (one) => one.calls },
    { title: "backlog", number: true, cell: (one) => seconds(one.backlog_s),
      sort: (one) => one.backlog_s },
    { title: "memory", number: true, sort: (one) => one.memory_used,
      cell: (one) => `${bytes(one.memory_used)} of ${bytes(one.memory)}` },
    { title: "functions", number: true, cell: (one) => number(one.functions),
      sort: (one) => one.functions },
  ]),
  calls: new Table("calls", [
    { title: "function", width: "15%", cell: (one) => one.function, press: select },
    { title: "user", width: "9%", cell: (one) => one.user },
    { title: "phase", width: "8%", cell: (one) => one.phase },
    { title: "so far", width: "7%", number: true,
      cell: (one) => seconds(one.send_s + one.wait_s + one.exec_s + one.recv_s) },
    { title: "starts (80 %)", width: "24%", cell: (one) => moment(one.starts) },
    { title: "does or waits for", cell: (one) => one.reason },
  ]),
  ended: new Table("ended", [
    { title: "function", width: "32%", cell: (one) => one.function, press: select },
    { title: "user", cell: (one) => one.user },
    { title: "wait", number: true, cell: (one) => seconds(one.wait_s) },
    { title: "exec", number: true, cell: (one) => seconds(one.exec_s) },
  ]),
  users: new Table("users", [
    { title: "user", width: "28%", cell: (one) => one.user, sort: (one) => one.user },
    { title: "waiting", number: true, cell: (one) => number(one.waiting), sort: (one) => one.waiting },
    { title: "running", number: true, cell: (one) => number(one.running), sort: (one) => one.running },
    { title: "used", number: true, cell: (one) => seconds(one.usage_s),
      sort: (one) => one.usage_s },
    { title: "share", width: "26%", meter: (one) => [0, one.share] },
  ]),
  trace: new Table("trace", [
    { title: "function", width: "22%", cell: (one) => one.function, press: select },
    { title: "phase", width: "10%", cell: (one) => one.phase },
    { title: "began", width: "12%", number: true, cell: (one) => clock(-one.since_s) },
    { title: "took", width: "10%", number: true, cell: (one) => seconds(took(one)) },
    { title: "when", meter: (one) => one.place },
  ]),
  trunks: new Table("trunks", [
    { title: "trunk", width: "10%", cell: (one) => one.trunk, sort: (one) => one.trunk },
    { title: "peer", width: "18%", cell: (one) => one.peer, sort: (one) => one.peer },
    { title: "link", width: "10%", cell: (one) => one.name, sort: (one) => one.name },
    { title: "state", width: "10%", cell: (one) => one.state, sort: (one) => one.state,
      tone: (one) => (one.state === "up" ? "good" : "bad") },
    { title: "sends", number: true, cell: (one) => bits(one.sent_rate), sort: (one) => one.sent_rate },
    { title: "receives", number: true, cell: (one) => bits(one.rate), sort: (one) => one.rate },
    { title: "granted", number: true, cell: (one) => bits(one.grant), sort: (one) => one.grant ?? 0 },
    { title: "failures", width: "8%", number: true, cell: (one) => number(one.failures),
      sort: (one) => one.failures },
    { title: "of its rate", width: "14%", meter: (one) => [0, Math.min(1, one.share)] },
  ]),
  gangs: new Table("gangs", [
    { title: "job", width: "7%", number: true, cell: (one) => one.id, sort: (one) => one.id },
    { title: "state", width: "9%", cell: (one) => one.state, sort: (one) => one.state,
      tone: (one) => (one.state === "running" ? "good" : one.state === "lost" ? "bad" : "") },
    { title: "command", width: "25%", cell: (one) => one.command, sort: (one) => one.command },
    { title: "nodes", width: "16%", cell: (one) => one.nodes.join(", ") },
    { title: "processes", number: true, cell: (one) => number(one.elements), sort: (one) => one.elements },
    { title: "slices", number: true, cell: (one) => number(one.slices), sort: (one) => one.slices },
    { title: "switch", number: true, cell: (one) => seconds(one.lost_us_per_switch / 1e6),
      sort: (one) => one.lost_us_per_switch },
    { title: "share of a minute", width: "16%", meter: (one) => [0, one.share] },
  ]),
  reservations: new Table("reservations", [
    { title: "user", width: "16%", cell: (one) => one.user },
    { title: "reserved", width: "24%", cell: reserved },
    { title: "begins", width: "19%", number: true, cell: (one) => clock(one.begins_s) },
    { title: "ends", width: "19%", number: true, cell: (one) => clock(one.ends_s) },
    { title: "when", meter: (one) => one.place },
  ]),
  links: new Table("links", [
    { title: "from", width: "20%", cell: (one) => one.site, sort: (one) => one.site },
    { title: "server", width: "28%", cell: (one) => one.server || "this server",
      sort: (one) => one.server },
    { title: "to it", number: true, cell: (one) => rate(one.up), sort: (one) => one.up.rate ?? 0 },
    { title: "from it", number: true, cell: (one) => rate(one.down), sort: (one) => one.down.rate ?? 0 },
    { title: "latency", width: "12%", number: true, cell: (one) => seconds(one.up.latency_s) || "?",
      sort: (one) => one.up.latency_s ?? 0 },
  ]),
  data: new Table("data", [
    { title: "name", width: "26%", cell: (one) => one.name, sort: (one) => one.name },
    { title: "owner", cell: (one) => (one.owner || "folder") + (one.shared ? ", shared" : "") },
    { title: "array", cell: (one) => `${one.element} ${one.shape.join(" × ")}` },
    { title: "size", width: "12%", number: true, cell: (one) => bytes(one.bytes), sort: (one) => one.bytes },
    { title: "held by", width: "26%", cell: (one) => one.holders.join(", ") || "this server" },
  ]),
};
tables.calls.paged = true;
tables.calls.chosen = (one) => one.number === state.call?.number;
tables.servers.chosen = (one) => one.address === state.server;

function reserved(one) {
  const parts = [one.pes && `${one.pes} ${one.pes === 1 ? "element" : "elements"}`, one.up && `${bytes(one.up)}/s up`,
    one.down && `${bytes(one.down)}/s down`];
  return parts.filter(Boolean).join(", ");
}

// Asks for other rows when those in view have not come.
tables.calls.moved = (first, last) => {
  const { total, from, rows } = tables.calls.list;
  const is_there = first >= from && last <= from + Math.max(rows.length, 1);
  if (is_there || total === 0) return;
  const wanted = Math.max(0, first - 80);
  if (wanted === state.from) return;
  state.from = wanted;
  clearTimeout(state.later);
  state.later = setTimeout(() => streamOfCalls().restart(), 80);
};

const main = new Stream(
  () => ({ search: search(), ...(state.main?.kind === "metaserver" ? { most: 0 } : part()) }),
  (snapshot) => {
    state.main = snapshot;
    if (!state.server) state.shown = snapshot;
    refresh();
  },
  failed,
);
const behind = new Stream(
  () => ({ search: search(), server: state.server, ...part() }),
  (snapshot) => {
    state.shown = snapshot;
    refresh();
  },
  failed,
);
const part = () => ({ from: state.from, most: WINDOW });
const streamOfCalls = () => (state.server ? behind : main);

function refresh() {
  $("board").hidden = false;
  $("sign-in").hidden = true;
  const problem = Date.now() < state.problemUntil ? state.problem : null;
  $("state").className = problem ? "bad" : "";
  say($("state"), problem ?? "live");
  draw(board);
}

// Says why there is no snapshot. Returns whether it is useless to try again.
function failed(error) {
  $("state").className = "bad";
  if (error.status === 401) return signIn(token() ? error.message : ""), true;
  if (error.status === 404 && state.server) return choose(null), true;
  const what = error.status ? error.message : "the server does not answer; trying again";
  say($("state"), state.drained ?? what);
  return error.status === 403 || error.status === 400;
}

// Everything that the page asks for, again from the beginning.
function watch() {
  main.restart();
  machine.restart();
  if (state.server) behind.restart();
}

function rest() {
  for (const one of [main, machine, behind]) one.stop();
}

function signIn(why) {
  rest();
  say($("state"), "not signed in");
  say($("sign-in-why"), why);
  $("board").hidden = true;
  $("sign-in").hidden = false;
  $("token").focus();
}

// Watches one of the servers of a metaserver, or none.
function choose(address) {
  if (state.main?.kind !== "metaserver") return;
  behind.stop();
  const is_same = address === state.server;
  state.server = is_same ? null : address;
  state.shown = state.main;
  state.from = 0;
  state.call = null;
  if (state.server) behind.restart();
  refresh();
}

function select(one) {
  state.call = one;
  refresh();
}

// ---------------------------------------------------------------- trunks and gangs of the machine

// Asks for them once a second. Only operators may know them.
const machine = {
  past: [],

  restart() {
    this.stop();
    this.control = new AbortController();
    this.run(this.control.signal);
  },

  stop() {
    this.control?.abort();
  },

  async run(signal) {
    while (!signal.aborted) {
      if (state.main?.viewer.operator) await this.read(signal);
      await pause(1000);
    }
  },

  async read(signal) {
    try {
      const answer = await fetch("/v1/machine", { headers: headers(), signal });
      this.seen = answer.ok ? await answer.json() : null;
    } catch {
      // The stream of snapshots says what is wrong.
      this.seen = null;
    }
    this.past.push([Date.now(), this.seen?.gang?.jobs ?? []]);
    while (this.past.length > 60) this.past.shift();
    draw(this);
  },

  draw() {
    const { trunks = [], gang = null } = this.seen ?? {};
    $("trunks").hidden = trunks.length === 0;
    $("gangs").hidden = !gang;
    if (trunks.length > 0) this.drawTrunks(trunks);
    if (gang) tables.gangs.show(rowsOf(this.withShares(gang.jobs)));
  },

  drawTrunks(trunks) {
    const rows = trunks.flatMap((trunk) => trunk.peers.flatMap((peer) => peer.links.map((link) => ({
      ...link, trunk: trunk.name, peer: peer.address, share: link.sent_rate / Math.max(1, link.capacity),
    }))));
    tables.trunks.show(rowsOf(rows));
    const sum = (key) => rows.reduce((total, one) => total + (one[key] ?? 0), 0);
    rates.add([sum("sent_rate"), sum("rate")]);
    rates.draw();
    const events = trunks.flatMap((trunk) => trunk.events).sort((one, other) => other.time - one.time);
    const lines = events.slice(0, 5).map((event) => {
      const at = new Date(event.time * 1000).toLocaleTimeString("en-GB", { hour12: false });
      return `${at} ${event.text}`;
    });
    const list = $("trunk-events");
    while (list.children.length > lines.length) list.lastChild.remove();
    while (list.children.length < lines.length) list.append(element("li"));
    lines.forEach((line, index) => say(list.children[index], line));
  },

  // The part of all slices of the last minute that each job had.
  withShares(jobs) {
    const before = new Map(this.past[0][1].map((job) => [job.id, job.slices]));
    const had = jobs.map((job) => Math.max(0, job.slices - (before.get(job.id) ?? 0)));
    const all = Math.max(1, had.reduce((sum, slices) => sum + slices, 0));
    return jobs.map((job, index) => ({ ...job, share: had[index] / all }));
  },
};

const rowsOf = (rows) => ({ total: rows.length, from: 0, rows });

// ---------------------------------------------------------------- the board

const board = {
  draw() {
    const { main: all, shown } = state;
    if (!all) return;
    const is_meta = all.kind === "metaserver";
    say($("what"), `${all.kind} ${all.version}`);
    say($("who"), `as ${all.viewer.user}${shown.viewer.operator ? ", operator" : ""}`);
    tables.servers.show({ ...all.servers });
    $("servers").hidden = !is_meta;
    $("chosen").hidden = !is_meta;
    say($("chosen"), state.server ? `Calls, users and reservations below are of ${state.server}.`
      : "Choose a server to see its calls.");
    const drains = shown.viewer.operator && shown.kind === "server";
    $("drain").hidden = !drains;
    for (const id of ["calls", "call", "trace", "ended", "users", "reservations"]) {
      $(id).hidden = shown.kind === "metaserver";
    }
    if (shown.kind === "server") drawServer(shown);
    tables.links.show(some(state.server ? all.links : shown.links, (one) => found(one.site, one.server)));
    tables.data.show({ ...all.data });
    drawTiles(all, shown);
    graph.add([shown.counts.waiting, shown.counts.running]);
    graph.draw();
  },
};

const some = (list, keep) => {
  const rows = list.rows.filter(keep);
  return rows.length === list.rows.length ? { ...list } : { ...list, rows, total: rows.length };
};

function drawServer(shown) {
  const { counts } = shown;
  const own = shown.calls.total;
  const all = counts.waiting + counts.running + counts.moving;
  say($("calls-note"), shown.viewer.operator || search() ? "" :
    `You see your own calls. All users together have ${number(all)}.`);
  tables.calls.show({ ...shown.calls });
  const ended = shown.ended.filter((one) => found(one.function, one.user, one.trace ?? ""));
  tables.ended.show(rowsOf(ended));
  const users = some(shown.users, (one) => found(one.user));
  const used = Math.max(1e-9, users.rows.reduce((sum, one) => sum + one.usage_s, 0));
  for (const one of users.rows) one.share = one.usage_s / used;
  tables.users.show(users);
  const booked = some(shown.reservations, (one) => found(one.user));
  const until = Math.max(1, ...booked.rows.map((one) => one.ends_s));
  for (const one of booked.rows) {
    one.place = [one.begins_s / until, (one.ends_s - one.begins_s) / until];
  }
  tables.reservations.show(booked);
  drawCall(shown, own);
  drawTrace(shown);
}

function drawTiles(all, shown) {
  const sum = (key) => all.servers.rows.reduce((total, one) => total + (one[key] ?? 0), 0);
  const { counts } = shown;
  const own = shown.servers.rows[0];
  const tiles = [
    ["waiting", number(counts.waiting)],
    ["running", number(counts.running)],
    ...(shown.kind === "server" ? [["on their way", number(counts.moving)],
      ["done", number(counts.done)], ["backlog", seconds(own?.backlog_s)],
      ["elements", `${own?.pes_used} of ${own?.pes}`],
      ["memory", `${bytes(own?.memory_used)} of ${bytes(own?.memory)}`],
      ["state", own?.state], ["policy", shown.policy]]
      : [["servers", number(all.servers.total)], ["elements", `${sum("pes_used")} of ${sum("pes")}`],
        ["named data", number(all.data.total)]]),
    ["uptime", seconds(shown.uptime_s)],
  ];
  const list = $("tiles");
  while (list.children.length > tiles.length) list.lastChild.remove();
  while (list.children.length < tiles.length) {
    list.append(element("div", {}, element("dt"), element("dd")));
  }
  tiles.forEach(([name, value], index) => {
    say(list.children[index].firstChild, name);
    say(list.children[index].lastChild, value);
  });
}

const PARTS = ["send", "wait", "exec", "recv"];

function drawCall(shown) {
  const same = (one) => one.number === state.call?.number;
  const rows = [...shown.calls.rows, ...shown.ended];
  const now = rows.find(same);
  state.call = now ?? state.call;
  const call = state.call;
  $("call-none").hidden = Boolean(call);
  $("call-body").hidden = !call;
  if (!call) return;
  const gone = now ? "" : " It is not among the calls that are shown now.";
  const size = `${bytes(call.up)} up, ${bytes(call.down)} down`;
  say($("call-reason"), `${call.function} of ${call.user}: ${call.reason}. ${size}.${gone}`);
  const real = PARTS.map((part) => call[`${part}_s`]);
  const [send, wait, , recv] = real;
  const starts = call.starts && wait + call.starts.likely_s;
  const likely = [send, starts || wait, call.predicted?.likely_s ?? null, recv];
  const total = (parts) => parts.reduce((sum, part) => sum + (part ?? 0), 0);
  const scale = Math.max(total(real), total(likely), 1e-9);
  $("bars").replaceChildren(bar("so far", real, scale), bar("predicted", likely, scale));
  const words = ["", starts ? `${seconds(starts)}, starts at ${moment(call.starts)}` : "",
    span(call.predicted), ""];
  $("parts").tBodies[0].replaceChildren(...PARTS.map((part, index) => {
    const name = element("th", { scope: "row", textContent: part === "wait" ? "wait" : part.toUpperCase() });
    return element("tr", { className: `is-${part}` }, name,
      element("td", { className: "number", textContent: seconds(real[index]) }),
      element("td", { className: "number", textContent: words[index], title: words[index] }));
  }));
  $("cancel").hidden = !(call.job && call.phase !== "over" && now);
}

const took = (one) => PARTS.reduce((sum, part) => sum + (one[`${part}_s`] ?? 0), 0);

// The calls that belong to the trace of the chosen call, such as those of a transaction.
function drawTrace(shown) {
  const trace = state.call?.trace;
  const rows = [...shown.calls.rows, ...shown.ended].filter((one) => trace && one.trace === trace);
  $("trace").hidden = rows.length < 2;
  if (rows.length < 2) return;
  rows.sort((one, other) => other.since_s - one.since_s);
  const first = rows[0].since_s;
  const all = Math.max(1e-9, ...rows.map((one) => first - one.since_s + took(one)));
  for (const one of rows) one.place = [(first - one.since_s) / all, took(one) / all];
  say($("trace-note"), `${number(rows.length)} calls in ${seconds(all)}, of those that are shown.`);
  tables.trace.show(rowsOf(rows));
}

function bar(name, parts, scale) {
  const pieces = parts.map((part, index) => {
    const piece = element("i", { className: PARTS[index] });
    piece.style.width = `${((part ?? 0) / scale) * 100}%`;
    return piece;
  });
  const line = element("div", {}, ...pieces);
  line.setAttribute("aria-hidden", "true");
  return element("div", { className: "bar" }, element("span", { textContent: name }), line);
}

// ---------------------------------------------------------------- graphs

// Lines of the last ten minutes. A line has a name, a color, and a function that makes words of a
// value.
class Graph {
  constructor(id, lines, words) {
    this.canvas = $(id);
    this.title = $(`${id}-title`);
    Object.assign(this, { lines, words, past: [] });
    lines.forEach(([name, color], index) => {
      const key = element("span", { className: `key is-${color}`, textContent: name });
      this.title.append(index ? " and " : "", key);
    });
    this.title.append(element("span"));
  }

  add(values) {
    if (Date.now() - (this.past.at(-1)?.[0] ?? 0) < 500) return;
    this.past.push([Date.now(), ...values]);
    while (this.past.length > 600) this.past.shift();
  }

  draw() {
    const { canvas, past } = this;
    const ratio = devicePixelRatio || 1;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    if (canvas.width !== width * ratio) Object.assign(canvas, { width: width * ratio, height: height * ratio });
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    const most = Math.max(1, ...past.map(([, ...values]) => Math.max(...values)));
    const style = getComputedStyle(document.documentElement);
    const from = Math.min(past[0]?.[0] ?? 0, Date.now() - 60_000);
    const across = Math.max(1, Date.now() - from);
    pen.strokeStyle = style.getPropertyValue("--line");
    pen.strokeRect(0.5, 0.5, width - 1, height - 1);
    this.lines.forEach(([, color], index) => {
      pen.strokeStyle = style.getPropertyValue(`--${color}`);
      pen.lineWidth = 2;
      pen.beginPath();
      for (const [at, ...values] of past) {
        pen.lineTo(((at - from) / across) * width, height - 3 - (values[index] / most) * (height - 6));
      }
      pen.stroke();
    });
    say(this.title.lastChild, this.words(most, seconds(across / 1000)));
  }
}

const graph = new Graph("graph", [["waiting", "wait"], ["running", "exec"]],
  (most, time) => ` calls, at most ${number(most)} in the last ${time}`);
const rates = new Graph("trunk-graph", [["sent", "send"], ["received", "recv"]],
  (most, time) => ` over all links, at most ${bits(most)} in the last ${time}`);

// ---------------------------------------------------------------- what people do

async function ask(title, text, yes) {
  say($("ask-title"), title);
  say($("ask-text"), text);
  say($("ask-yes"), yes);
  const dialog = $("ask");
  dialog.returnValue = "no";
  dialog.showModal();
  await new Promise((done) => dialog.addEventListener("close", done, { once: true }));
  return dialog.returnValue === "yes";
}

// Asks a server for something; that of the page, if none is named. A refusal stays for a while,
// although snapshots arrive.
async function act(path, body, server) {
  const request = {
    method: "POST",
    headers: headers({ "Content-Type": "application/json" }),
    body: JSON.stringify(server ? { ...body, server } : body),
  };
  try {
    const answer = await fetch(path, request);
    if (!answer.ok) throw await refusal(answer);
    return await answer.json();
  } catch (error) {
    [state.problem, state.problemUntil] = [error.message, Date.now() + 8000];
    $("state").className = "bad";
    say($("state"), error.message);
    return null;
  }
}

$("cancel").addEventListener("click", async () => {
  const [server, { job, function: name }] = [state.server, state.call];
  const text = `The server ends the call of ${name} with job ${job}.`;
  if (!(await ask("Cancel the call?", text, "Cancel the call"))) return;
  await act("/v1/cancel", { job }, server);
});

$("drain").addEventListener("click", async () => {
  // The page may show another server when the user has answered.
  const server = state.server;
  const which = server ?? "this server";
  const text = `It takes no more calls, completes those that it has, and exits: ${which}.`;
  if (!(await ask("Drain the server?", text, "Drain the server"))) return;
  const answer = await act("/v1/drain", {}, server);
  // It answers nobody any more.
  if (answer) state.drained = `${which} drains: it completes ${answer.calls} calls and exits`;
});

$("search").addEventListener("input", () => {
  clearTimeout(state.typing);
  state.typing = setTimeout(() => {
    state.from = 0;
    tables.calls.box.scrollTop = 0;
    watch();
  }, 250);
});
$("trace-search").addEventListener("click", () => {
  $("search").value = state.call.trace;
  $("search").dispatchEvent(new Event("input"));
});
$("search-form").addEventListener("submit", (event) => event.preventDefault());

$("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("farcall-token", $("token").value.trim());
  $("token").value = "";
  say($("state"), "connecting");
  watch();
});
$("change").addEventListener("click", () => signIn(""));

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => [graph, rates].forEach(draw));
addEventListener("resize", () => draw(board));
document.addEventListener("visibilitychange", () => {
  // Nobody watches a hidden tab, so the server makes no snapshots for it.
  if (document.hidden) return rest();
  if ($("sign-in").hidden) watch();
});

const key = location.hash.slice(1);
if (/^[0-9a-f]{32}$/.test(key)) {
  sessionStorage.setItem("farcall-token", key);
  history.replaceState(null, "", location.pathname);
}
watch();
