"use strict";
// The play runs in a program of its own. Each time that it begins anew, the program does, too, and makes all moves so
// far, one by one, as it did before: so that the same moves give the same play, to the millisecond.

const data = JSON.parse(document.getElementById("data").textContent);
const id = name => document.getElementById(name);
let algorithm = "", scene = null;
let moves = [], at = 0; // those of the address, and how many of them have been made
let program = null; // the object that it and the page share
let state = null;
let unknown = ""; // what the address asks for and is not there
const opened = new Set(); // details that are open

// h makes an element. Of the attributes, "move" makes a button of it that makes this move.
function h(tag, attributes, ...children) {
	const e = document.createElement(tag);
	for (const [k, v] of Object.entries(attributes || {})) {
		if (k === "move") {
			e.dataset.move = v;
			e.addEventListener("click", () => make(v));
		} else if (v === true) e.setAttribute(k, "");
		else if (v !== false && v !== null && v !== undefined) e.setAttribute(k, v);
	}
	e.append(...children.filter(c => c !== null && c !== undefined && c !== ""));
	return e;
}

const button = (text, move, name, more) => h("button", { type: "button", move, "aria-label": name, ...more }, text);
const seconds = ms => (ms / 1000).toLocaleString("en", { maximumFractionDigits: 1 }) + " s";

// The address.

// hash is that of a play with all moves still to come.
const hash = (algorithm, moves) => "#" + algorithm + ",@0," + moves;

function address() {
	const list = at < moves.length ? ["@" + at, ...moves] : moves;
	return "#" + [algorithm, ...list].join(",");
}

// recognise finds the scene that these moves are of, best with this algorithm.
function recognise() {
	const text = moves.join(",");
	const same = data.scenes.filter(s => text && (s.moves === text || s.remedy.moves === text));
	scene = same.find(s => s.algorithm === algorithm) || same[0] || null;
}

function load() {
	let text = location.hash.slice(1);
	try { text = decodeURIComponent(text); } catch (e) { /* as it is */ }
	const [first, ...rest] = text.split(",").map(m => m.trim()).filter(m => m);
	const known = first && data.algorithms.find(a => a.id === first.toLowerCase());
	algorithm = known ? known.id : "luascript";
	unknown = first && !known ? "There is no algorithm “" + first + "”: this is " + algorithm + ". " : "";
	const cursor = rest.length && /^@\d+$/.test(rest[0]) ? Number(rest.shift().slice(1)) : rest.length;
	moves = rest;
	at = Math.min(cursor, moves.length);
	recognise();
	begin();
}

// The program.

async function compile() {
	const bytes = Uint8Array.from(atob(id("wasm").textContent), c => c.charCodeAt(0));
	const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
	return WebAssembly.compile(await new Response(plain).arrayBuffer());
}
const compiled = compile();

// begin starts a program.
async function begin() {
	id("algorithm").value = algorithm;
	id("diagram").className = data.algorithms.find(a => a.id === algorithm).servers > 1 ? "many" : "";
	const mine = program = { algorithm, width: width(), sent: 0, shown: 0, ready: false };
	mine.show = (json, text) => {
		if (program !== mine) return;
		mine.ready = true;
		if (mine.sent < at) setTimeout(advance); // not from within the program
		else show(JSON.parse(json), text);
	};
	if (location.hash !== address()) history.replaceState(null, "", address());
	say("The play begins …");
	try {
		const module = await compiled;
		if (program !== mine) return;
		const go = new Go();
		// Its random numbers are the same each time.
		let seed = 1;
		go.importObject.gojs["runtime.getRandomData"] = sp => {
			sp >>>= 0;
			const bytes = new Uint8Array(go._inst.exports.mem.buffer, go.mem.getUint32(sp + 8, true), go.mem.getUint32(sp + 16, true));
			for (let i = 0; i < bytes.length; i++) {
				seed ^= seed << 13; seed ^= seed >>> 17; seed ^= seed << 5;
				bytes[i] = seed;
			}
		};
		const instance = await WebAssembly.instantiate(module, go.importObject);
		globalThis.play = mine;
		go.run(instance).then(() => { if (program === mine) fail("The program has ended: the browser’s console says why."); });
	} catch (e) {
		fail("The program does not run here: " + e);
	}
}

// advance gives the program the next move that it has not made.
function advance() {
	if (!program.ready || program.sent >= at) return;
	program.ready = false;
	program.move(moves[program.sent++]);
}

function fail(text) {
	id("alert").replaceChildren(h("p", null, text));
	say("");
}

// make adds a move in place of those that were still to come.
function make(move) {
	moves = [...moves.slice(0, at), move];
	step();
}

// moved keeps a new play in the address.
function moved() {
	unknown = "";
	history.pushState(null, "", address());
}

// step makes the next move.
function step() {
	if (at >= moves.length) return;
	at++;
	moved();
	advance();
}

function back() {
	if (at === 0) return;
	at--;
	moved();
	begin();
}

// width is how many letters fit into the diagram.
function width() {
	const pre = id("diagram"), style = getComputedStyle(pre);
	const probe = h("span", null, "─".repeat(50));
	pre.append(probe);
	const letter = probe.getBoundingClientRect().width / 50;
	probe.remove();
	return Math.floor((pre.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight) - 2) / letter) || 60;
}

// What is shown.

function say(text, wrong) {
	id("status").textContent = text;
	id("status").className = wrong ? "wrong" : "";
}

function show(s, text) {
	state = s;
	const focused = document.activeElement && document.activeElement.dataset.move;
	id("about").hidden = !scene;
	if (scene) {
		const r = scene.remedy, link = hash(r.algorithm, r.moves);
		id("about").replaceChildren(scene.about + " ", r.with && location.hash.replace(/@\d+,/, "@0,") !== link
			? h("a", { href: link }, "Play the same with " + r.with) : "");
	}
	for (const a of id("scenes").querySelectorAll("a")) {
		if (scene && a.dataset.scene === scene.id) a.setAttribute("aria-current", "true");
		else a.removeAttribute("aria-current");
	}
	id("back").disabled = at === 0;
	id("next").disabled = at >= moves.length;
	id("next").textContent = at < moves.length ? "Next: " + moves[at] + " ▶" : "Next ▶";
	id("clear").disabled = moves.length === 0;
	id("now").textContent = "after " + seconds(s.now);
	id("moves").replaceChildren(...moves.map((m, i) => {
		const made = i < at ? s.moves[i] : null;
		return h("li", { class: !made ? "coming" : made.error ? "wrong" : null, title: made && made.error, "aria-current": i === at - 1 ? "step" : null }, m);
	}));
	const broken = s.violations || [];
	const words = [...broken.map(v => ["", "✗ Broken promise: " + v.promise + ". " + v.text + "."]), ...(s.stopped || []).map(w => ["good", "✓ " + w + "."])];
	if ([...id("alert").children].map(p => p.textContent).join() !== words.map(w => w[1]).join()) { // not to be read out again
		id("alert").replaceChildren(...words.map(([kind, w]) => h("p", { class: kind }, w)));
	}
	id("clients").replaceChildren(...s.clients.map(client));
	id("servers").replaceChildren(...s.servers.map(server));
	id("database").replaceChildren(h("section", { class: "card", "aria-label": "Database" },
		h("p", null, s.database.value ? "The last write that it took: " : "It has taken no write. ", h("strong", null, s.database.value || "")),
		h("p", null, !data.algorithms.find(a => a.id === algorithm).fenced ? algorithm + " has no fences: the database takes every write."
			: s.database.fence ? "It refuses fences below " + s.database.fence + "." : "It refuses a fence that is less than one it has seen.")));
	draw(text);
	const last = at > 0 ? s.moves[at - 1] : null;
	let wrong = unknown; // and why moves were not made, since this was last shown
	for (const m of s.moves.slice(program.shown)) if (m.error) wrong += m.text + " was not made: " + m.error + ". ";
	program.shown = at;
	if (last && last.error) say(wrong, true);
	else {
		const holding = s.clients.filter(c => c.holds).map(c => c.name);
		const holders = holding.length === 0 ? "nobody believes that it holds the lock"
			: holding.length === 1 ? holding[0] + " believes that it holds the lock" : holding.join(" and ") + " believe that they hold the lock";
		say(wrong + (last ? "Move " + at + " of " + moves.length + ", " + last.text + ": " : "") + holders + ".", wrong);
	}
	if (focused) {
		const again = document.querySelector('[data-move="' + CSS.escape(focused) + '"]:enabled');
		const card = id("card-" + focused.split(".")[0]);
		if (again) again.focus({ preventScroll: true });
		else if (card) card.focus({ preventScroll: true });
	}
}

// draw makes elements of what the program has marked.
function draw(text) {
	const pre = id("diagram");
	pre.replaceChildren(...(text || "Nothing yet.").split(/\x01|\x02/).map((part, i) => i % 2 ? h("span", { class: "s" + part[0] }, part.slice(1)) : part));
	pre.scrollTop = pre.scrollHeight;
}

// details stay as they are when what is in them is made anew.
function details(key, title, ...children) {
	const d = h("details", { open: opened.has(key) }, h("summary", null, title), ...children);
	d.addEventListener("toggle", () => d.open ? opened.add(key) : opened.delete(key));
	return d;
}

function badge(text, kind) { return h("span", { class: "badge " + (kind || "") }, text); }

function client(c) {
	const me = c.name.toLowerCase(), holds = c.holds || [], held = holds.length > 0;
	const act = (text, what, off, pressed) => button(text, me + "." + what, c.name + ": " + text, { disabled: c.dead || off, "aria-pressed": pressed });
	const late = held && c.paused && holds[0].left <= 0;
	return h("section", { class: "card" + (held ? " holds" : "") + (c.dead ? " dead" : ""), id: "card-" + me, tabindex: "-1", "aria-label": "Client " + c.name },
		h("header", null, h("h3", null, c.name),
			c.dead ? badge("dead", "bad") : held ? badge("believes it holds the lock", "good") : badge("holds nothing"),
			c.paused ? badge("paused", "odd") : null,
			c.hangs ? badge("hangs", "odd") : null,
			c.ahead ? badge("clock " + (c.ahead > 0 ? "+" : "−") + seconds(Math.abs(c.ahead)), "odd") : null),
		...holds.map(l => h("p", null, l.name + ": " + (late ? "its deadline was " + seconds(-l.left) + " ago" : seconds(l.left) + " are left") +
			(l.fence ? ", fence " + l.fence : "") + (l.renewed ? ", renewed" : ""))),
		c.doing && c.doing.length ? h("p", null, c.doing.join(", ") + " …") : c.last ? h("p", null, "Last: " + c.last) : null,
		c.paused ? h("p", null, "Paused: what it sends and gets stays on the wire until it is resumed.") : null,
		wire(c),
		h("div", { class: "buttons" },
			act("Ask once", "try"), act("Ask and wait", "acquire"), act("Write", "write", !held), act("Release", "release", !held),
			act(c.paused ? "Resume" : "Pause", c.paused ? "resume" : "pause"),
			act("By hand", c.byHand ? "auto" : "step", false, String(c.byHand))),
		details(me, "More",
			h("div", { class: "buttons" },
				act("Renew", "renew", !held), act("Keep alive for ever", "keepalive", !held), act("Keep alive 30 s", "keepalive=30s", !held),
				act("Its work hangs", "hang", !held || c.hangs), act("Stop waiting", "cancel", !(c.doing && c.doing.length)),
				act("Clock +11 s", "clock+11s"), act("Clock −11 s", "clock-11s"), act("Kill", "kill"))));
}

function wire(c) {
	if (!c.wire) return null;
	const me = c.name.toLowerCase();
	const all = c.wire.length > 1 ? [h("li", null, button("Deliver all", me + ".all", "Deliver all messages of " + c.name, { disabled: c.paused }))] : [];
	return h("ul", { class: "wire", "aria-label": "On the wire, " + c.name }, ...all,
		...c.wire.map(m => h("li", null,
			h("span", null, "m" + m.n + " " + m.words + (m.times > 1 ? " (" + m.times + " times)" : "") + (m.late ? " (given up)" : "")),
			button("Deliver", "m" + m.n + ".pass", "Deliver message " + m.n, { disabled: c.paused || !m.first }),
			button("Lose", "m" + m.n + ".lose", "Lose message " + m.n))));
}

function server(v) {
	const act = (text, what, off) => button(text, v.name + "." + what, v.name + ": " + text, { disabled: off });
	return h("section", { class: "card" + (v.up ? "" : " down"), id: "card-" + v.name, tabindex: "-1", "aria-label": "Server " + v.name },
		h("header", null, h("h3", null, v.name), v.up ? null : badge("down", "bad"),
			v.ahead ? badge("clock " + (v.ahead > 0 ? "+" : "−") + seconds(Math.abs(v.ahead)), "odd") : null),
		v.keys ? h("dl", { class: "keys" }, ...v.keys.map(k => h("div", null, h("dt", null, k.name), h("dd", null, k.value),
			h("dd", { class: "ttl" }, k.ttl >= 0 ? "TTL " + ttl(k.ttl) : "no TTL")))) : h("p", null, "no keys"),
		h("div", { class: "buttons" },
			act("Clock +11 s", "clock+11s"), act("Clock −5 s", "clock-5s"), act("Restart empty", "restart"), act(v.up ? "Down" : "Up", v.up ? "down" : "up")));
}

const ttl = ms => ms >= 3600000 ? Math.round(ms / 360000) / 10 + " h" : seconds(ms);

// What is there once.

id("scenes").append(...data.scenes.map(s => h("li", null, h("a", { href: hash(s.algorithm, s.moves), "data-scene": s.id }, s.title))));
id("algorithm").append(...data.algorithms.map(a => h("option", { value: a.id }, a.title)));
id("time").append(button("+1 s", "+1s", "Let 1 s pass"), button("+5 s", "+5s", "Let 5 s pass"), button("+10 s: a TTL", "+ttl", "Let a TTL of 10 s pass"));
id("algorithm").addEventListener("change", () => {
	algorithm = id("algorithm").value;
	recognise();
	moved();
	begin();
});
id("next").addEventListener("click", step);
id("back").addEventListener("click", back);
id("clear").addEventListener("click", () => {
	moves = [], at = 0, scene = null;
	moved();
	begin();
});
id("copy").addEventListener("click", () => navigator.clipboard.writeText(location.href).then(() => say("The link is in the clipboard."), () => say("The link is this page’s address.")));
id("by-text").addEventListener("submit", e => {
	e.preventDefault();
	for (const m of id("move").value.split(/[\s,]+/).filter(m => m)) make(m);
	id("move").value = "";
});
addEventListener("keydown", e => {
	if (e.altKey || e.ctrlKey || e.metaKey || e.shiftKey || e.target.closest("select, input, pre")) return;
	if (e.key === "ArrowRight") step();
	else if (e.key === "ArrowLeft") back();
	else return;
	e.preventDefault();
});
let resized = 0;
addEventListener("resize", () => {
	clearTimeout(resized);
	resized = setTimeout(() => width() === program.width || begin(), 150);
});
addEventListener("hashchange", load);
load();
