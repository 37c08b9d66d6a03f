"use strict";
// What there is to see: one entry a record, with its words, its numbers and its pictures.

const SHOWN = /\.(png|jpe?g|webp|svg|gif)$/i;
const OVER_THE_ORIGINAL = ["overlay", "heatmap"];
const PREFERRED = ["overlay", "grid", "heatmap"];
const TITLES = {
  call: "Call",
  class: "Class",
  class_index: "Class index",
  dead_channels: "Dead channels",
  dtype: "Data type",
  max: "Maximum",
  mean: "Mean",
  min: "Minimum",
  nonfinite: "Non-finite values",
  probability: "Probability",
  score: "Score (logit)",
  std: "Standard deviation",
  truth: "Prediction",
  trust: "Trust",
  what: "What",
  zero_fraction: "Share of zeros",
  "evaluation.average_drop": "Average drop",
  "evaluation.deletion_auc": "Deletion AUC",
  "evaluation.increase": "Increase in confidence",
  "evaluation.insertion_auc": "Insertion AUC",
  "evaluation.randomised_all": "Like the map of random weights",
  "evaluation.randomised_head": "Like the map of a random head",
  "truth.class_index": "True class index",
  "truth.class_name": "True class",
  "truth.correct": "Prediction is right",
  "truth.predicted_index": "Predicted class index",
  "truth.predicted_name": "Predicted class",
};
const UNTOLD = new Set(["command", "status", "image", "sample", "layer", "call", "class_name", "error", "reason"]);
const FACETS = ["layer", "class", "truth", "trust", "method", "what", "command", "model", "weights"];
const natural = new Intl.Collator(undefined, { numeric: true });

function titleOf(key) {
  if (TITLES[key]) return TITLES[key];
  const words = key.replaceAll(".", ": ").replaceAll("_", " ");
  return words.charAt(0).toUpperCase() + words.slice(1);
}

function numberText(value) {
  if (Number.isInteger(value)) return value.toLocaleString("en");
  const size = Math.abs(value);
  const text = size >= 1e5 || size < 1e-3 ? value.toExponential(2) : value.toPrecision(4);
  return text.replace("-", "\u2212");
}

function percent(share) {
  const text = (100 * share).toFixed(share > 0.995 && share < 1 ? 2 : share < 0.01 ? 2 : 0);
  return `${text}\u2009%`;
}

/** All leaves of a record, as [dotted key, value]; null and empty ones are left out. */
function leaves(record, above = "", found = []) {
  for (const name in record) {
    const value = record[name];
    if (value === null || value === "") continue;
    const key = above + name;
    if (typeof value !== "object") found.push([key, value]);
    else if (!Array.isArray(value)) leaves(value, `${key}.`, found);
    else if (value.length) found.push([key, value.join(name === "shape" ? " × " : ", ")]);
  }
  return found;
}

function collectNumbers(record, above, numbers) {
  for (const name in record) {
    const value = record[name];
    if (typeof value === "number") numbers.set(above + name, value);
    else if (value !== null && typeof value === "object" && !Array.isArray(value)) {
      collectNumbers(value, `${above}${name}.`, numbers);
    }
  }
  return numbers;
}

class Entry {
  constructor(raw, id, common, runsOften) {
    const record = raw.record;
    this.id = id;
    this.record = record;
    this.files = raw.files ?? {};
    this.original = record.image ? address(record.image, raw.original?.[0]) : null;
    this.tiles = raw.tiles ?? {};
    this.preprocess = common[raw.preprocess];
    this.verdicts = (raw.verdicts ?? []).map((place) => common[place]);
    const path = record.image ?? "";
    this.picture = path.slice(path.lastIndexOf("/") + 1) || null;
    this.layer = record.layer && runsOften.has(record.layer) && record.call
      ? `${record.layer}@${record.call}` : record.layer;
    this.class = record.class_name ?? (typeof record.class_index === "number" ? `class ${record.class_index}` : null);
    this.numbers = collectNumbers(record, "", new Map());
    this.kinds = Object.keys(this.files).filter((kind) => SHOWN.test(this.files[kind][0]));
    this.kinds.sort((a, b) => rank(a) - rank(b));
    const stand = record.status === "error" ? null : this.original;
    this.thumbnail = this.kinds.length ? this.link(this.kinds[0]) : stand;
    this._words = null;
  }

  link(kind) {
    return address(...this.files[kind]);
  }

  /** What the filter of that name compares. */
  facet(key) {
    if (key === "layer" || key === "class") return this[key];
    if (key === "trust" || key === "truth") return this.verdicts.find((one) => one.kind === key)?.label;
    return this.record[key];
  }

  /** What a search looks through. */
  get words() {
    if (this._words === null) {
      const { image, sample, error, reason, model, weights, method, status } = this.record;
      const named = this.verdicts.map((one) => one.label);
      this._words = [image, sample, this.layer, this.class, method, status, error, reason, model, weights, ...named]
        .filter(Boolean).join("\n").toLowerCase();
    }
    return this._words;
  }

  get headline() {
    if (this.record.status === "error") return this.picture ?? this.layer ?? "Error";
    return this.class ?? (this.record.command === "gradcam" ? this.picture : this.layer) ?? this.picture ?? "Result";
  }

  /** The lines below the headline: whatever it does not say. */
  get details() {
    const record = this.record;
    const second = [this.picture, this.layer].filter((text) => text && text !== this.headline);
    const third = record.command === "gradcam" ? [record.method] : [
      record.what === "output" ? null : record.what,
      Array.isArray(record.shape) ? record.shape.join("×") : null,
    ];
    const lines = second.length > 1 ? [second[0], [second[1], ...third]] : [second[0] ?? "", third];
    return [lines[0], lines[1].filter(Boolean).join(" · ")];
  }

  /** [title, text] of everything else that is known. */
  get facts() {
    const told = leaves(this.record).filter(([key]) => !UNTOLD.has(key));
    return [["Picture", this.record.image], ["Layer", this.layer]].filter(([, text]) => text).concat(told.map(inWords));
  }

  /** How the picture was fed to the network, as [title, text]. */
  get feeding() {
    return leaves(this.preprocess).map(inWords);
  }

  /** What stands in for a picture. */
  get inNumbers() {
    const told = [...this.numbers].filter(([key]) => key !== "call").slice(0, 6);
    return told.map(([key, value]) => `${titleOf(key)} ${numberText(value)}`).join("\n") || "No picture";
  }

  /** What tells this result from others of the same picture. */
  get aspects() {
    return [this.class, this.layer, this.record.method, this.record.what];
  }
}

/** Whatever has to be quoted in a link comes quoted. */
function address(name, link) {
  return link ?? `./${name}`;
}

function inWords([key, value]) {
  if (typeof value === "boolean") return [titleOf(key), value ? "yes" : "no"];
  return [titleOf(key), typeof value === "number" ? numberText(value) : String(value)];
}

function rank(kind) {
  const place = PREFERRED.indexOf(kind);
  return place < 0 ? PREFERRED.length : place;
}

function readEntries() {
  const page = JSON.parse(document.getElementById("data").textContent);
  const runsOften = new Set(page.entries.filter((raw) => raw.record.call > 1).map((raw) => raw.record.layer));
  return page.entries.map((raw, id) => new Entry(raw, id, page.common, runsOften));
}

/** An element with its class and text; never with markup. */
function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined && text !== null) made.textContent = text;
  return made;
}
