// The switch between the versions of the site. Published versions are folders side by side, and `versions.json` beside them
// has their names, the newest first. A site that stands alone has no such file, and then no switch.
"use strict";

async function showVersions() {
  const label = document.querySelector(".site-versions");
  const site = new URL(document.documentElement.dataset.content_root, location.href);
  const answer = location.protocol === "file:" ? null : await fetch(new URL("../versions.json", site));
  if (!answer?.ok) return;

  const shown = label.dataset.version;
  const select = label.querySelector("select");
  select.append(...(await answer.json()).map((version) => new Option(version, version, false, version === shown)));
  select.addEventListener("change", () => go(site, select.value));
  label.hidden = false;
}

// Opens the same page of another version, or its first page where it has no such page.
async function go(site, version) {
  const other = new URL(`../${version}/`, site);
  const page = new URL(location.href.slice(site.href.length), other);
  const has = await fetch(page, { method: "HEAD" });
  location.assign(has.ok ? page : other);
}

document.addEventListener("DOMContentLoaded", showVersions);
