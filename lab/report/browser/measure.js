// What a reader would stumble over. It opens all that is folded, and looks at every text.
(() => {
	const all = s => [...document.querySelectorAll(s)];
	const tell = e => `<${e.tagName.toLowerCase()} class="${e.getAttribute("class") || ""}"> ${(e.textContent || "").trim().slice(0, 60)}`;
	all("details").forEach(d => d.open = true);
	const out = { overflow: [], small: [], nameless: [], pale: [], headings: [], broken: [], twice: [], unaligned: [] };
	out.scheme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
	out.scripts = document.scripts.length;
	out.steps = all(".steps > li").length;

	const root = document.documentElement, wide = Math.min(root.clientWidth, innerWidth);
	if (root.scrollWidth > wide) {
		out.overflow.push(`the page is ${root.scrollWidth} wide, of ${wide}`);
		all("body *").filter(e => e.getBoundingClientRect().right > wide + 1 && !e.closest(".scroll, pre, svg, .unseen")).slice(0, 5).forEach(e => out.overflow.push(tell(e)));
	}
	all("figure").filter(f => f.scrollWidth > f.clientWidth + 1).forEach(f => out.overflow.push(tell(f)));

	// Colours, as the browser computes them: what is behind a text is the first ground that is not clear.
	const number = c => { const n = (c.match(/[\d.]+/g) || []).map(Number); return { rgb: n.slice(0, 3), a: n.length > 3 ? n[3] : 1 }; };
	const light = ({ rgb }) => rgb.map(v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4).reduce((s, v, i) => s + v * [.2126, .7152, .0722][i], 0);
	const ground = e => { for (; e; e = e.parentElement) { const c = number(getComputedStyle(e).backgroundColor); if (c.a > 0) return c; } return number("rgb(255,255,255)"); };
	const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	for (let n; n = walk.nextNode();) {
		const e = n.parentElement;
		if (!n.data.trim() || e.closest(".unseen, title, style, script, .symbols")) continue;
		const s = getComputedStyle(e), size = parseFloat(s.fontSize), inside = e.closest("svg");
		if (!e.getClientRects().length && !inside) continue;
		if (size < 11) out.small.push(`${size} px: ${tell(e)}`);
		const [a, b] = [light(number(inside ? s.fill : s.color)), light(ground(e))].sort((x, y) => y - x);
		const contrast = (a + .05) / (b + .05);
		if (contrast < 4.5) out.pale.push(`${contrast.toFixed(2)}: ${tell(e)}`);
	}

	all("svg").filter(v => !v.closest("[aria-hidden=true]") && !v.parentElement.closest("svg")).forEach(v => {
		const title = v.querySelector(":scope > title");
		if (v.getAttribute("role") !== "img" || !title || !title.textContent.trim()) out.nameless.push(tell(v.parentElement));
	});
	all("figure").forEach(f => {
		for (const a of ["aria-labelledby", "aria-describedby"]) {
			const of = document.getElementById(f.getAttribute(a));
			if (!of || !of.textContent.trim()) out.nameless.push(`${a} of ${tell(f)}`);
		}
	});
	let depth = 0;
	all("h1, h2, h3, h4, h5, h6").forEach(h => {
		const d = Number(h.tagName[1]);
		if (d > depth + 1) out.headings.push(tell(h));
		depth = d;
	});
	if (all("h1").length !== 1) out.headings.push(`${all("h1").length} h1`);
	const ids = new Set();
	all("[id]").forEach(e => { if (ids.has(e.id)) out.twice.push(e.id); ids.add(e.id); });
	all("[href]").forEach(e => { const to = e.getAttribute("href"); if (!to.startsWith("data:") && !to.startsWith("http") && !(to.startsWith("#") && ids.has(to.slice(1)))) out.broken.push(to); });
	all("[aria-labelledby]").forEach(e => { if (!ids.has(e.getAttribute("aria-labelledby"))) out.broken.push(e.getAttribute("aria-labelledby")); });
	all(".steps > li").forEach(li => {
		const a = li.getBoundingClientRect(), b = li.querySelector(".strip").getBoundingClientRect();
		if (Math.abs(a.height - b.height) > 1) out.unaligned.push(`${b.height} of ${a.height}: ${tell(li)}`);
	});
	return out;
})()
