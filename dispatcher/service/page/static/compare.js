// The page that compares runs: shows the document of esd.run.comparison, which is embedded in it.

import { bytes, dot, duration, element, joined, lineChart, NOTHING, number, percent, seconds } from "./charts.js";

const COLOURS = 6; // of the style sheet; the lines of further runs are dashed
const $ = (id) => document.getElementById(id);
const colour = (run) => `var(--c${run % COLOURS + 1})`;
const fixed = (value) => value === null || value === undefined ? NOTHING : value.toFixed(4);
const fine = (value) => String(Number(value.toPrecision(4))); // of curves that lie close together
const listed = new Intl.ListFormat("en-GB");

/** What the table shows of a run: [title, run -> text]. */
const FIGURES = [
  ["Held-out AUC", ({ figures }) => fixed(figures.held_out?.auc)],
  ["AUC", ({ figures }) => fixed(figures.auc)],
  ["Held-out loss", ({ figures }) => fixed(figures.held_out?.loss)],
  ["Loss", ({ figures }) => fixed(figures.loss)],
  ["Iterations", ({ figures }) => number(figures.iterations)],
  ["Time", ({ figures }) => duration(figures.seconds)],
  ["Iterations/s", ({ figures }) => number(figures.iterations_per_second)],
  ["On the links", ({ figures }) => joined(bytes(onLinks(figures)))],
  ["Cost per iteration", ({ figures }) => joined(seconds(figures.cost_seconds / figures.iterations))],
  ["Hit ratio", ({ figures }) => percent(figures.hit_ratio)],
  ["Recoveries", ({ figures }) => number(figures.recoveries.length)],
];

/** All bytes that the links of all workers have carried, both ways. */
function onLinks(figures) {
  return Object.values(figures.link_bytes).flatMap((kind) => Object.values(kind).flat()).reduce((sum, size) => sum + size, 0);
}

function table(names, rows) {
  return element("table", {},
    element("thead", {}, element("tr", {}, ...names.map((name) => element("th", { scope: "col" }, name)))),
    element("tbody", {}, ...rows.map(([who, ...cells]) => element("tr", {}, element("td", { class: "who" }, ...who),
      ...cells.map((cell, i) => element("td", { "data-label": names[i + 1] }, cell))))));
}

function showFigures(runs) {
  const shown = FIGURES.filter(([, text]) => runs.some((run) => text(run) !== NOTHING));
  $("figures").replaceChildren(table(["Run", ...shown.map(([title]) => title)], runs.map((run, at) => [
    [dot(colour(at)), run.name, element("div", { class: "sub" }, run.phase === "finished" ? "" : run.failure || run.phase)],
    ...shown.map(([, text]) => text(run)),
  ])));
  const several = runs.filter(({ labels }) => labels.length > 1);
  $("figures-hint").textContent = "AUC and loss are of samples that were scored before they were trained, held-out ones never trained."
    + (several.length ? ` With several labels the AUC is that of the first, as of ${several[0].labels[0]}.` : "");
}

/** The options of which the runs have different values; the name of an option stands before the values of the runs. */
function showOptions(runs) {
  const names = [...new Set(runs.flatMap(({ options }) => Object.keys(options)))];
  const text = (run, name) => run.options[name] === undefined || run.options[name] === null ? NOTHING : String(run.options[name]);
  const differ = names.filter((name) => new Set(runs.map((run) => text(run, name))).size > 1);
  $("options-hint").textContent = differ.length ? "" : "None: the runs have the same options.";
  $("options").replaceChildren(differ.length ? table(["Run", ...differ.map((name) => name.replaceAll("_", "-"))],
    runs.map((run, at) => [[dot(colour(at)), run.name], ...differ.map((name) => text(run, name))])) : "");
}

/** The AUC of held-out samples where every run has such, so that lines are compared that mean the same. */
function showCharts(runs) {
  const held = runs.every(({ evaluations }) => evaluations.length > 1);
  $("auc-hint").textContent = held ? "Of held-out samples, never trained." : "Of all samples so far, each scored before it is trained.";
  const lines = (points) => runs.map((run, at) => ({ name: run.name, colour: colour(at), dashed: at >= COLOURS, points: points(run) }));
  const over = (x, y) => ({ points }) => points.filter((point) => point.iterations).map((point) => [x(point), y(point)]);
  const time = ({ seconds: value }) => value, iteration = ({ iterations }) => iterations;
  const auc = (point) => point.auc;
  const after = (value) => `after ${duration(value)}`;
  lineChart($("auc"), lines(held ? ({ evaluations }) => evaluations.map((each) => [each.iteration, each.auc]) : over(iteration, auc)), { format: fine });
  lineChart($("auc-time"), lines(held ? timed : over(time, auc)), { format: fine, where: after });
  lineChart($("loss"), lines(over(iteration, ({ loss }) => loss)), { format: fine });
  lineChart($("cost"), lines(over(iteration, (point) => point.cost_seconds / point.planned)), { format: (value) => joined(seconds(value)) });
}

/** The evaluations of a run at the seconds of training after which their iterations were trained. */
function timed({ evaluations, points }) {
  return evaluations.flatMap(({ iteration, auc }) => {
    const point = points.findLast(({ iterations }) => iterations <= iteration);
    return point ? [[point.seconds, auc]] : [];
  });
}

function show({ runs }) {
  document.title = `${runs.length} runs`;
  $("title").textContent = `${runs.length} runs`;
  $("subtitle").textContent = listed.format(runs.map(({ name }) => name));
  const others = runs.filter(({ data }) => data !== runs[0].data).map(({ name }) => name);
  $("notice").hidden = !others.length;
  $("notice").textContent = `${listed.format(others)} trained other samples than ${runs[0].name}, or the same in another order: their figures are not of the same stream.`;
  showFigures(runs);
  showOptions(runs);
  showCharts(runs);
}

const given = $("state"), compared = JSON.parse(given.textContent);
addEventListener("resize", () => show(compared));
show(compared);
$("updated").textContent = `made ${new Date(given.dataset.time).toLocaleString()}`;
