// The plans of one iteration: the rows that each worker moves, by reason, and the workers that they are for.

import { element, number } from "./charts.js";

const REASONS = [
  ["pull", "Pulls"], ["direct_pull", "Pulls from workers"], ["update_push", "Update pushes"], ["ahead_push", "Pushes ahead"],
  ["direct_push", "Pushes to workers"], ["evict_push", "Evict pushes"], ["drop", "Drops"],
];

/** The table of a plan's moves, with a column for each reason that some worker has. */
export function planTable(plans) {
  const rows = (worker, reason) => worker.moves.filter((moves) => moves.reason === reason);
  const reasons = REASONS.filter(([reason]) => plans.workers.some((worker) => rows(worker, reason).length));
  const names = ["Worker", "Samples", ...reasons.map(([, title]) => title)];
  const cell = (at, ...content) => element("td", { "data-label": names[at] }, ...content);
  return element("table", {},
    element("thead", {}, element("tr", {}, ...names.map((name) => element("th", { scope: "col" }, name)))),
    element("tbody", {}, ...plans.workers.map((worker) => element("tr", {},
      element("td", { class: "who" }, worker.worker),
      cell(1, number(worker.samples)),
      ...reasons.map(([reason], at) => cell(at + 2, ...movesInWords(rows(worker, reason), plans.workers.map((each) => each.worker))))))));
}

/** The number of rows of one reason, whole rows and gradients together, and of these rows by the workers they are for. */
function movesInWords(moves, workers) {
  const of = (worker) => moves.reduce((sum, each) => sum + (each.by_worker[worker] ?? 0), 0);
  const counts = workers.map((worker) => [worker, of(worker)]).filter(([, rows]) => rows);
  const gradients = moves.filter((each) => each.gradients).reduce((sum, each) => sum + each.rows, 0);
  const line = (text) => text ? element("div", { class: "sub" }, text) : null;
  return [
    number(moves.reduce((sum, each) => sum + each.rows, 0)),
    line(gradients ? `${number(gradients)} as gradients` : ""),
    line(counts.map(([worker, rows]) => `${worker}: ${number(rows)}`).join(", ")),
  ];
}
