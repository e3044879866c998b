// Measures a page in a frame: what overflows, what overlaps, what is too faint, the order of tabs.
const frame = document.querySelector("iframe");
frame.addEventListener("load", () => {
  const page = frame.contentDocument, view = frame.contentWindow, width = frame.clientWidth;
  const all = [...page.body.querySelectorAll("*")];
  const name = (e) => `${e.tagName.toLowerCase()} "${e.textContent.trim().slice(0, 40)}"`;
  const box = (e) => e.getBoundingClientRect();
  const seen = (e) => box(e).width > 0 && box(e).height > 0;
  // What scrolls may be wider than the page, and a drawing clips what it draws.
  const inside = (e) => e.parentElement.closest(".scroll,svg");
  const overflow = all.filter((e) => !inside(e) && seen(e) && box(e).right > width + 1).map(name);
  const blocks = all.filter((e) => seen(e) && !inside(e) && e.matches("h1,h2,h3,p,li,svg,.scroll,pre,dl,.line,a"));
  const overlap = [];
  blocks.forEach((a, i) => blocks.slice(i + 1).forEach((b) => {
    if (a.contains(b) || b.contains(a)) return;
    const p = box(a), q = box(b);
    const x = Math.min(p.right, q.right) - Math.max(p.left, q.left);
    const y = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
    if (x > 1 && y > 1) overlap.push(`${name(a)} and ${name(b)}`);
  }));
  const parse = (c) => { const n = c.match(/[\d.]+/g).map(Number); return n.length < 4 ? [...n, 1] : n; };
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const c = parse(view.getComputedStyle(e).backgroundColor);
      if (c[3] > 0) return c;
    }
    return [255, 255, 255, 1];
  };
  const own = (e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
  const faint = all.filter((e) => own(e) && seen(e) && !e.closest("svg")).flatMap((e) => {
    const pair = [light(parse(view.getComputedStyle(e).color)), light(behind(e))].sort((a, b) => b - a);
    const ratio = (pair[0] + 0.05) / (pair[1] + 0.05);
    return ratio < 4.5 ? [`${name(e)} has ${ratio.toFixed(2)}`] : [];
  });
  const tabs = all.filter((e) => e.tabIndex >= 0 && e.matches("a[href],button,summary,[tabindex]"));
  const tops = tabs.map((e) => Math.round(box(e).top));
  const disordered = tops.some((top, i) => i && top < tops[i - 1]);
  const scrolled = all.filter((e) => e.matches(".scroll") && e.scrollWidth > e.clientWidth).map(name);
  const found = {overflow, scrolled, overlap, faint, disordered, tabs: tabs.length, wide: page.documentElement.scrollWidth - width};
  document.querySelector("pre").textContent = JSON.stringify(found);
});
frame.srcdoc = JSON.parse(document.querySelector("#page").textContent);
