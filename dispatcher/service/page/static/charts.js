// Building blocks of the page: elements, readable numbers, bars and line charts.

/** An element with attributes and children; text is always text, never markup. */
export function element(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

function drawn(name, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function filled(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) if (value !== undefined) node.setAttribute(key, value);
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

// --- numbers -----------------------------------------------------------------------------------------------------

export const NOTHING = "–";

/** Three significant digits, with thousands separators from 1000 on. */
export function number(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return NOTHING;
  if (value === 0) return "0";
  if (Math.abs(value) >= 1000) return Math.round(value).toLocaleString("en-US");
  return String(Number(value.toPrecision(3)));
}

/** A value with its unit, scaled: [["1.2", "ms"]]. */
function scaled(value, steps) {
  if (value === null || value === undefined || !Number.isFinite(value)) return [NOTHING, ""];
  const [factor, unit] = steps.find(([step]) => Math.abs(value) >= step) ?? steps[steps.length - 1];
  return [number(value / factor), unit];
}

export const seconds = (value) => scaled(value, [[60, "min"], [1, "s"], [1e-3, "ms"], [1e-6, "µs"]]);
export const bytes = (value) => scaled(value, [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]]);
export const link = (bytesPerSecond) => scaled(8 * bytesPerSecond, [[1e9, "Gbit/s"], [1e6, "Mbit/s"], [1e3, "kbit/s"]]);
export const percent = (value) => (Number.isFinite(value) && value !== null ? `${(100 * value).toFixed(1)}%` : NOTHING);
export const joined = ([value, unit]) => (unit ? `${value} ${unit}` : value);

export function duration(total) {
  if (total < 10) return `${total.toFixed(1)} s`;
  const whole = Math.round(total);
  const [hours, minutes] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60];
  if (hours) return `${hours} h ${minutes} min`;
  return minutes ? `${minutes} min ${whole % 60} s` : `${whole} s`;
}

// --- bars --------------------------------------------------------------------------------------------------------

/** One bar of parts: [[share 0..1, colour, title]]. */
export function bar(parts, tall = false) {
  const spans = parts.filter(([share]) => share > 0).map(([share, colour, title]) => {
    const span = element("span", { title });
    span.style.flexBasis = `${100 * share}%`; // set from script: the page allows no inline styles
    span.style.background = colour;
    return span;
  });
  return element("div", { class: tall ? "bar tall" : "bar" }, ...spans);
}

export function dot(colour) {
  const mark = element("span", { class: "dot" });
  mark.style.background = colour;
  return mark;
}

// --- line charts -------------------------------------------------------------------------------------------------

const MARGIN = { left: 52, right: 8, top: 8, bottom: 22 };
const FEW_POINTS = 12; // a line of at most this many points shows each as a dot, so that a single point is visible

const atIteration = (x) => `iteration ${x.toLocaleString("en-US")}`;

/**
 * Draws lines over iterations, or over another quantity, into a container.
 * series: [{name, colour, dashed, points: [[x, value]]}]; format: value -> text; logarithmic: scale of the values;
 * where: x -> text under the pointer.
 */
export function lineChart(container, series, { format, logarithmic = false, where = atIteration }) {
  const shown = series.map((each) => ({ ...each, points: each.points.filter(([, y]) => Number.isFinite(y) && (!logarithmic || y > 0)) }));
  const points = shown.flatMap((each) => each.points);
  if (points.length < 2) {
    container.replaceChildren(element("div", { class: "empty" }, "Nothing to draw yet"));
    return;
  }
  const width = container.clientWidth, height = container.clientHeight - (series.length > 1 ? 22 : 0);
  const [x0, x1] = extent(points.map(([x]) => x));
  const ticks = logarithmic ? powers(...extent(points.map(([, y]) => y))) : steps(...extent(points.map(([, y]) => y)));
  const place = logarithmic ? Math.log10 : (value) => value;
  const [low, high] = [place(ticks[0]), place(ticks[ticks.length - 1])];
  const x = (value) => MARGIN.left + ((value - x0) / (x1 - x0 || 1)) * (width - MARGIN.left - MARGIN.right);
  const y = (value) => height - MARGIN.bottom - ((place(value) - low) / (high - low || 1)) * (height - MARGIN.top - MARGIN.bottom);

  const svg = drawn("svg", { viewBox: `0 0 ${width} ${height}`, role: "img" });
  svg.style.height = `${height}px`;
  for (const tick of ticks) {
    svg.append(drawn("line", { class: "grid", x1: MARGIN.left, x2: width - MARGIN.right, y1: y(tick), y2: y(tick) }));
    svg.append(drawn("text", { class: "axis", x: MARGIN.left - 8, y: y(tick) + 4, "text-anchor": "end" }, format(tick)));
  }
  for (const tick of steps(x0, x1, width < 420 ? 4 : 6).filter((each) => each >= x0 && each <= x1)) {
    const anchor = x(tick) > width - 24 ? "end" : "middle";
    svg.append(drawn("text", { class: "axis", x: x(tick), y: height - 5, "text-anchor": anchor }, tick.toLocaleString("en-US")));
  }
  for (const each of shown) {
    const path = each.points.map(([px, py], i) => `${i ? "L" : "M"}${x(px).toFixed(1)},${y(py).toFixed(1)}`).join("");
    svg.append(drawn("path", { class: each.dashed ? "series dashed" : "series", d: path, stroke: each.colour }));
    if (each.points.length > FEW_POINTS) continue;
    for (const [px, py] of each.points) svg.append(drawn("circle", { cx: x(px), cy: y(py), r: 3, fill: each.colour }));
  }
  const key = series.length > 1 ? element("div", { class: "key" }) : null;
  const label = (at) => {
    const found = shown.map((each) => [each, nearest(each.points, at)]).filter(([, point]) => point);
    key?.replaceChildren(...found.map(([each, point]) => element("span", {}, dot(each.colour), `${each.name} `, element("b", {}, format(point[1])))));
  };
  label(x1);
  follow(svg, { x, x0, x1, width, height, shown, format, label, where });
  container.replaceChildren(...(key ? [key, svg] : [svg]));
}

/** Shows values under the pointer. */
function follow(svg, { x, x0, x1, width, height, shown, format, label, where }) {
  const line = drawn("line", { class: "cursor", y1: MARGIN.top, y2: height - MARGIN.bottom, visibility: "hidden" });
  const text = drawn("text", { class: "axis", y: MARGIN.top + 4 });
  svg.append(line, text);
  svg.addEventListener("pointermove", (event) => {
    const share = (event.offsetX - MARGIN.left) / (width - MARGIN.left - MARGIN.right);
    const point = nearest(shown[0].points, x0 + Math.min(1, Math.max(0, share)) * (x1 - x0));
    if (!point) return;
    const at = x(point[0]), right = at < width / 2;
    for (const [name, value] of Object.entries({ x1: at, x2: at, visibility: "visible" })) line.setAttribute(name, value);
    text.setAttribute("x", at + (right ? 6 : -6));
    text.setAttribute("text-anchor", right ? "start" : "end");
    text.textContent = shown.length > 1 ? where(point[0]) : `${format(point[1])} at ${point[0].toLocaleString("en-US")}`;
    label(point[0]);
  });
  svg.addEventListener("pointerleave", () => {
    line.setAttribute("visibility", "hidden");
    text.textContent = "";
    label(x1);
  });
}

function nearest(points, at) {
  let best = null;
  for (const point of points) if (!best || Math.abs(point[0] - at) < Math.abs(best[0] - at)) best = point;
  return best;
}

const extent = (values) => [Math.min(...values), Math.max(...values)];

/** Round values that span low..high. */
function steps(low, high, count = 4) {
  const rough = (high - low || Math.abs(high) || 1) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((each) => each * power >= rough);
  const ticks = [];
  for (let i = Math.floor(low / step + 1e-9); i <= Math.ceil(high / step - 1e-9); i++) ticks.push(Number((i * step).toPrecision(12)));
  return ticks.length > 1 ? ticks : [ticks[0] - step, ticks[0], ticks[0] + step];
}

/** Powers of ten that span low..high. */
function powers(low, high) {
  const ticks = [];
  for (let i = Math.floor(Math.log10(low)); i <= Math.ceil(Math.log10(high)); i++) ticks.push(10 ** i);
  return ticks.length > 1 ? ticks : [ticks[0] / 10, ticks[0]];
}
