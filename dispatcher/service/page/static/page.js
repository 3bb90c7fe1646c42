// The page: requests /state.json every two seconds and shows it. A saved page (saved.py) has its document and requests nothing.

import { bar, bytes, dot, duration, element, joined, lineChart, link, NOTHING, number, percent, seconds } from "./charts.js";
import { planTable } from "./plans.js";

const PAUSE = 2000; // milliseconds between two requests
const SHOWN_POINTS = 120; // most points of a chart; with more, neighbours are averaged
const RECENT_SECONDS = 10; // of training, over which the tiles measure speed

const OPERATIONS = [["miss_pull", "pulls"], ["update_push", "update pushes"], ["evict_push", "evict pushes"]];
// Of the bytes on a link, as `link_rows_up` and `link_rows_down` name them.
const KINDS = [["rows", "rows"], ["gradients", "gradients of rows"], ["dense", "dense sums"], ["plans", "plans and reports"],
  ["other", "other"], ["framing", "packets"]];
const PHASES = [
  ["compute", "compute"], ["pull", "pull"], ["push", "push"], ["all_reduce", "all-reduce"], ["update", "update"],
  ["plan_wait", "waiting for the plan"],
];
const colour = (index) => `var(--c${index + 1})`;
const $ = (id) => document.getElementById(id);

const FIGURES = [["loss", "Loss"], ["auc", "AUC"], ["normalised_entropy", "Normalised entropy"], ["calibration", "Calibration"], ["gauc", "GAUC"]];
const listed = new Intl.ListFormat("en-GB");
const fixed = (value) => value === null ? NOTHING : value.toFixed(4);
const lately = (value) => value === null ? "" : `${value.toFixed(4)} lately`;

let last = null; // the latest document, to draw it again when the window changes its size

async function ask() {
  try {
    if (document.hidden && last) return;
    const response = await fetch("/state.json", { cache: "no-store", signal: AbortSignal.timeout(8000) });
    if (!response.ok) throw new Error(`status ${response.status}`);
    last = await response.json();
    show(last);
    $("updated").textContent = `updated ${new Date().toLocaleTimeString()}`;
  } catch (error) {
    notice(`The dispatcher does not answer (${error.message}). What is below is from before.`, true);
  } finally {
    setTimeout(ask, PAUSE);
  }
}

function notice(text, bad = false) {
  $("notice").hidden = !text;
  $("notice").textContent = text;
  $("notice").className = bad ? "bad" : "";
}

function show(state) {
  const { job } = state;
  $("main").hidden = $("phase").hidden = !job;
  if (!job) {
    notice("No job yet. The page fills as soon as one is created.");
    return;
  }
  document.title = `${job.name}: ${job.phase}`;
  $("title").textContent = job.name;
  $("subtitle").textContent = `${job.mechanism} dispatch of ${job.model} to ${job.workers} workers, ${number(job.batch_size)} samples per iteration${job.workers > 1 && job.dense_sum !== "auto" ? `, dense gradients by ${job.dense_sum}` : ""}`;
  $("phase").textContent = job.phase;
  $("phase").className = `pill ${job.phase}`;
  if (job.failure) notice(job.failure, true);
  else if (state.workers.length < job.workers) notice(`${state.workers.length} of ${job.workers} workers are here; training ${job.phase === "recovering" ? "goes on" : "starts"} when all are.`);
  else notice("");
  const found = epochs(state.history);
  showTiles(state, recently(found));
  showCosts(state);
  showStaleness(state);
  showByLabel(state);
  showHeldOut(state);
  showCharts(courseOf(found), state);
  showWorkers(state);
  showPlans(state.plans);
}

/** The plans of the latest iteration. */
function showPlans(plans) {
  $("plans").hidden = !plans;
  if (!plans) return;
  $("plans-title").textContent = `Plans of iteration ${number(plans.iteration)}`;
  $("plans-table").replaceChildren(planTable(plans));
}

/** The points of the history by epoch: an epoch's first point is its beginning, and differences are taken within it. */
function epochs(history) {
  const found = [];
  for (const i of history.iterations.keys()) {
    const point = Object.fromEntries(Object.entries(history).map(([name, column]) => [name, column[i]]));
    if (point.begins) found.push([]);
    found.at(-1).push(point);
  }
  return found.filter((points) => points.length > 1);
}

/** The averages between two points of an epoch. */
function between(from, to) {
  const iterations = to.iterations - from.iterations, samples = to.samples - from.samples, time = to.seconds - from.seconds;
  const planned = to.planned - from.planned || NaN;
  return {
    iteration: to.iterations,
    iterationSeconds: time / iterations,
    decisionSeconds: (to.decision_seconds - from.decision_seconds) / planned,
    costSeconds: (to.cost_seconds - from.cost_seconds) / planned,
    loss: (to.loss * to.samples - from.loss * from.samples) / samples,
    auc: to.auc,
    samplesPerSecond: samples / time,
  };
}

/**
 * The averages along the training, at most some SHOWN_POINTS of them.
 * Confirmations come in bursts, in which next to no time passes. So each average spans its share of the time, too.
 */
function courseOf(found) {
  const points = found.reduce((sum, each) => sum + each.length, 0);
  const time = found.reduce((sum, each) => sum + each.at(-1).seconds - each[0].seconds, 0);
  return found.flatMap((epoch) => {
    const cuts = [epoch.length - 1];
    for (let i = cuts[0] - 1; i >= 0; i--) {
      const apart = epoch[cuts[0]].seconds - epoch[i].seconds;
      if ((cuts[0] - i) * SHOWN_POINTS >= points && apart * SHOWN_POINTS >= time) cuts.unshift(i);
    }
    if (cuts.length > 1) cuts[0] = 0; // what is left at the beginning belongs to the first average
    else cuts.unshift(0);
    return cuts.slice(1).map((to, i) => between(epoch[cuts[i]], epoch[to]));
  });
}

/** The averages over the latest RECENT_SECONDS of the last epoch, or over all of a younger one; null before the first. */
function recently(found) {
  const points = found.at(-1);
  if (!points) return null;
  const to = points.at(-1);
  return between(points.findLast(({ seconds }) => seconds <= to.seconds - RECENT_SECONDS) ?? points[0], to);
}

function showTiles(state, now) {
  const speed = now?.samplesPerSecond ?? (state.training_seconds ? state.samples / state.training_seconds : null);
  const share = now ? state.decision_median_seconds / now.iterationSeconds : NaN;
  const before = state.job.first_iteration;
  const named = (title) => state.labels.length > 1 ? `${title} of ${state.labels[0]}` : title;
  const tiles = [
    ["Iterations", [number(Math.max(0, state.iterations_confirmed - before)), ""],
      `${before ? `after ${number(before)} of the model before, ` : ""}${number(Math.max(0, state.iterations_planned - state.iterations_confirmed))} planned ahead${checkpointed(state)}`],
    ["Throughput", [number(speed), "samples/s"], state.training_seconds ? `${number(state.samples)} in ${duration(state.training_seconds)}` : ""],
    [named("AUC"), [fixed(state.quality.auc), ""], lately(state.recent.auc)],
    ["Loss", [fixed(state.quality.loss), ""], lately(state.recent.loss)],
    [named("Normalised entropy"), [fixed(state.quality.normalised_entropy), ""], lately(state.recent.normalised_entropy) || "1 is guessing"],
    [named("Calibration"), [fixed(state.quality.calibration), ""], lately(state.recent.calibration) || "1 is right"],
    ...(state.quality.gauc === null ? [] : [[named("GAUC"), [fixed(state.quality.gauc), ""], lately(state.recent.gauc) || "AUC within groups"]]),
    ["Cache hit ratio", [percent(state.hit_ratio), ""], "rows found up to date"],
    ...(state.admitted_rows === null ? [] : [["Admitted ids", [number(state.admitted_rows), ""], `${number(state.initial_reads)} reads of ids not yet admitted`]]),
    ...(state.expired_rows === null ? [] : [["Expired rows", [number(state.expired_rows), ""], "not trained for their time to live"]]),
    ...(state.forgotten_rows === null ? [] : [["Forgotten rows", [number(state.forgotten_rows), ""], "for which the table had no room"]]),
    ...(state.dense_drift === null ? [] : [["Drift", [percent(state.dense_drift), ""], "of dense parameters from their average"]]),
    ["Decision", seconds(state.decision_median_seconds || null), Number.isFinite(share) && share > 0 ? `${percent(share)} of an iteration` : ""],
  ];
  $("tiles").replaceChildren(...tiles.map(([name, [value, unit], sub]) =>
    element("div", { class: "tile" }, element("div", { class: "name" }, name),
      element("div", { class: "value" }, value, unit ? element("span", { class: "unit" }, unit) : null), element("div", { class: "sub" }, sub))));
}

/** The latest checkpoint, if the job takes checkpoints, and the number of recoveries. */
function checkpointed({ checkpoint, recoveries }) {
  if (checkpoint === null) return "";
  const back = recoveries ? `, gone back ${recoveries === 1 ? "once" : `${number(recoveries)} times`}` : "";
  return (checkpoint ? `, checkpoint at ${number(checkpoint)}` : ", no checkpoint yet") + back;
}

function showCosts(state) {
  // A shadow may lag by some iterations, so costs are compared per iteration.
  const costs = state.costs.filter((cost) => cost.iterations).map((cost) => ({ ...cost, each: cost.seconds / cost.iterations }));
  if (!costs.length) {
    $("costs").replaceChildren(element("div", { class: "empty" }, "Nothing planned yet"));
    return;
  }
  const most = Math.max(...costs.map((cost) => cost.each)) || 1;
  const rows = costs.flatMap((cost) => [
    element("span", { class: cost.shadow ? "" : "who" }, cost.mechanism),
    bar([[cost.each / most, cost.shadow ? "var(--other)" : "var(--accent)", cost.mechanism]], true),
    element("span", { class: "amount" }, joined(seconds(cost.each))),
  ]);
  const own = costs.find((cost) => !cost.shadow);
  const verdicts = costs.filter((cost) => cost.shadow && own?.each > 0).map((cost) => `${(cost.each / own.each).toFixed(2)}× under ${cost.mechanism}`);
  $("costs").replaceChildren(element("div", { class: "cost" }, ...rows,
    verdicts.length ? element("p", { class: "verdict" }, `The same stream costs ${listed.format(verdicts)}.`) : null,
    element("p", { class: "verdict" },
      `Beside the cost, the plans of an iteration take ${joined(bytes(state.plan_bytes_per_iteration))}, ${joined(seconds(state.plan_seconds_per_iteration))} of transfer`
      + (state.reduced_seconds_per_iteration ? `, and the gradients of replicated rows ${joined(seconds(state.reduced_seconds_per_iteration))}.` : "."))));
}

/** The number of updates that rows lacked when training read them, if copies may lack updates. */
function showStaleness({ staleness, job }) {
  $("stale").hidden = !staleness;
  if (!staleness) return;
  const { reads, most_updates: limits, missing_updates: missing, most_missing: most, pull_bound: pull, push_bound: push } = staleness;
  const all = reads.reduce((sum, count) => sum + count, 0), bound = pull + (job.workers - 1) * push;
  $("stale-hint").textContent = `Updates by other workers that a row lacked when it was read. The bounds, ${number(pull)} to pull and ${number(push)} to push, allow ${number(bound)}.`;
  const last = reads.findLastIndex((count) => count > 0);
  const name = (i) => i === limits.length ? `over ${limits.at(-1)}` : i && limits[i] > limits[i - 1] + 1 ? `${limits[i - 1] + 1} to ${limits[i]}` : `${limits[i]}`;
  const rows = reads.slice(0, last + 1).flatMap((count, i) => [
    element("span", {}, name(i)),
    bar([[count / all, i ? "var(--other)" : "var(--accent)", `${number(count)} reads`]], true),
    element("span", { class: "amount" }, percent(count / all)),
  ]);
  $("stale-reads").replaceChildren(element("div", { class: "cost" }, ...rows, element("p", { class: "verdict" },
    all ? `A read lacked ${number(missing / all)} updates on average, and ${number(most)} at most.` : "Nothing planned yet")));
}

/** The quality on samples before their training, label by label, if there are several; the tiles show a single label. */
function showByLabel({ labels, quality_by_label: all, recent_by_label: recent }) {
  $("labels").hidden = labels.length < 2;
  if (labels.length < 2) return;
  $("labels-table").replaceChildren(byLabel(labels, all, (label, name) => recent[label][name]));
}

/** The quality on held-out samples, label by label, if a driver evaluates the model. */
function showHeldOut({ labels, evaluations }) {
  const latest = evaluations.at(-1);
  $("held-out").hidden = !latest;
  if (!latest) return;
  $("held-out-hint").textContent = `Scored at iteration ${number(latest.iteration)}, never trained. Normalised entropy: 1 is guessing; calibration: 1 is right.`;
  const { ranking } = latest;
  $("held-out-table").replaceChildren(byLabel(labels, latest.labels, () => null), ranking === null ? "" : element("p", { class: "verdict" },
    `Links of the graph, filtered: MRR ${fixed(ranking.mrr)}, Hits@1 ${fixed(ranking.hits_at_1)}, Hits@3 ${fixed(ranking.hits_at_3)}, Hits@10 ${fixed(ranking.hits_at_10)}.`));
}

/** A table of figures, a row for each label; below each figure its recent value from `recent`, if given. */
function byLabel(labels, qualities, recent) {
  const figures = FIGURES.filter(([name]) => name !== "gauc" || qualities.some((quality) => quality.gauc !== null));
  const names = ["Label", ...figures.map(([, title]) => title)];
  const cell = (label, name, title) => element("td", { "data-label": title.replace("Normalised", "Norm.") }, fixed(qualities[label][name]),
    recent(label, name) === null ? null : element("div", { class: "sub" }, lately(recent(label, name))));
  return element("table", {},
    element("thead", {}, element("tr", {}, ...names.map((name) => element("th", { scope: "col" }, name)))),
    element("tbody", {}, ...labels.map((label, at) => element("tr", {}, element("td", { class: "who" }, label),
      ...figures.map(([name, title]) => cell(at, name, title))))));
}

/** The figures over time; with several labels the trained mean loss and the first label's AUC, also on held-out samples. */
function showCharts(course, { labels, evaluations }) {
  const mean = (values) => values.includes(null) ? null : values.reduce((sum, each) => sum + each, 0) / values.length;
  const judged = { loss: (qualities) => mean(qualities.map(({ loss }) => loss)), auc: ([first]) => first.auc };
  const heldOut = (name) => evaluations.map((each) => [each.iteration, judged[name](each.labels)]).filter(([, value]) => value !== null);
  $("auc-title").textContent = labels.length > 1 ? `AUC of ${labels[0]}` : "AUC";
  const line = (name) => course.map((each) => [each.iteration, each[name]]);
  const time = (value) => joined(seconds(value));
  lineChart($("cost"), [{ name: "cost", colour: "var(--accent)", points: line("costSeconds") }], { format: time });
  lineChart($("times"), [
    { name: "iteration", colour: colour(3), points: line("iterationSeconds") },
    { name: "decision", colour: colour(0), points: line("decisionSeconds") },
  ], { format: time, logarithmic: true });
  const scored = (id, name, title, index) => lineChart($(id), [
    { name: title, colour: colour(index), points: line(name) },
    ...(heldOut(name).length ? [{ name: "held out", colour: colour(0), points: heldOut(name) }] : []),
  ], { format: number });
  scored("loss", "loss", "loss", 4);
  scored("auc", "auc", "AUC", 2);
}

function showWorkers(state) {
  const key = (entries) => entries.map(([, name], i) => element("span", {}, dot(colour(i)), name));
  $("legend").replaceChildren(element("span", { class: "key" }, element("b", {}, "Operations per iteration:"), ...key(OPERATIONS)),
    element("span", { class: "key" }, element("b", {}, "Bytes per iteration:"), ...key(KINDS)),
    element("span", { class: "key" }, element("b", {}, "Time per iteration:"), ...key(PHASES)));
  const most = Math.max(1e-9, ...state.workers.map((worker) => operations(worker) / (worker.iterations || 1)));
  const names = ["Worker", "Link", "Lease", "Hit ratio", "Operations per iteration", "Bytes per iteration", "Time per iteration"];
  $("workers").replaceChildren(element("table", {},
    element("thead", {}, element("tr", {}, ...names.map((name) => element("th", { scope: "col" }, name)))),
    element("tbody", {}, ...state.workers.map((worker) => workerRow(worker, names, most)))));
}

const operations = (worker) => OPERATIONS.reduce((sum, [name]) => sum + worker.transfers[name], 0);

function workerRow(worker, names, most) {
  const count = worker.iterations || 1, moved = operations(worker) / count;
  const total = PHASES.reduce((sum, [name]) => sum + worker.phases[name], 0);
  const carried = (direction) => KINDS.map(([kind]) => worker.transfers[`link_${kind}_${direction}`]);
  const up = carried("up"), down = carried("down"), all = (sizes) => sizes.reduce((sum, size) => sum + size, 0);
  const both = all(up) + all(down), direct = worker.transfers.bytes_direct;
  const cell = (index, ...content) => element("td", { "data-label": names[index].replace(" per iteration", "") }, ...content);
  return element("tr", {},
    element("td", { class: "who" }, worker.name, element("div", { class: "sub" }, `slot ${worker.slot}, ${number(worker.iterations)} iterations, ${number(worker.workload)} samples each`
      + (worker.held_back ? ` (its cache has room for ${number(worker.held_back)})` : "")
      + (worker.rests ? ", rests: it needs no dense sums" : "")
      + (worker.late_iterations ? `, ${number(worker.late_iterations)} held up` : ""))),
    cell(1, joined(link(worker.bandwidth_bytes_per_second)), worker.measured_bandwidth_bytes_per_second === null ? null
      : element("div", { class: "sub" }, `${joined(link(worker.measured_bandwidth_bytes_per_second))} measured`)),
    cell(2, ...lease(worker)),
    cell(3, percent(worker.hit_ratio), bar([[worker.hit_ratio ?? 0, "var(--accent)", "hits"]])),
    cell(4, number(moved), bar(OPERATIONS.map(([name, label], i) =>
      [worker.transfers[name] / count / most, colour(i), `${number(worker.transfers[name] / count)} ${label}`]))),
    cell(5, `↓ ${joined(bytes(all(down) / count))}`, element("div", {}, `↑ ${joined(bytes(all(up) / count))}`),
      bar(KINDS.map(([, label], i) => [(up[i] + down[i]) / (both || 1), colour(i),
        `${joined(bytes(down[i] / count))} down, ${joined(bytes(up[i] / count))} up: ${label}`])),
      direct ? element("div", { class: "sub" }, `${joined(bytes(direct / count))} to other workers`) : null),
    cell(6, joined(seconds(total / count)), bar(PHASES.map(([name, label], i) =>
      [worker.phases[name] / (total || 1), colour(i), `${joined(seconds(worker.phases[name] / count))} ${label}`]))));
}

function lease(worker) {
  if (worker.lease_age_seconds === null) return ["done"];
  const used = worker.lease_age_seconds / worker.lease_seconds;
  const kind = used > 1 ? "lost" : used > 0.6 ? "late" : "";
  return [element("span", { class: kind }, `${worker.lease_age_seconds.toFixed(1)} of ${number(worker.lease_seconds)} s`),
    bar([[Math.min(1, used), used > 0.6 ? "var(--warn)" : "var(--good)", "age of the latest heartbeat"]])];
}

addEventListener("resize", () => last && show(last));
const saved = $("state");
if (saved) {
  last = JSON.parse(saved.textContent);
  show(last);
  $("updated").textContent = `as of ${new Date(saved.dataset.time).toLocaleString()}`;
} else {
  notice("Asking the dispatcher");
  ask();
}
