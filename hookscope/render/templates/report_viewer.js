"use strict";
// One result, large: its picture over the original, and all that is known of it.

const SWIPE = 48; // pixels

class Viewer {
  constructor(entries, gallery) {
    this.entries = entries;
    this.gallery = gallery;
    this.entry = null;
    this.kind = null;
    this.opacity = 1;
    this.panel = new Panel(entries, (id) => this.go(id));
    this.pushed = false;
    const find = (id) => this[id] = document.getElementById(id);
    ["viewer", "stage", "base", "top", "channel", "outline", "missing", "legend", "back", "on"].forEach(find);
    ["tabs", "slider", "above", "place", "close"].forEach(find);
    this.range = document.getElementById("opacity");
    this.channels = new Channels(this.stage, this.top, this.channel, this.outline);
    this.listen();
  }

  listen() {
    addEventListener("hashchange", () => {
      this.pushed = !this.viewer.open;
      this.follow();
    });
    this.viewer.addEventListener("cancel", (event) => {
      event.preventDefault();
      this.leave();
    });
    // On the window: a focused button that is replaced drops the focus outside of the dialog.
    addEventListener("keydown", (event) => this.viewer.open && this.key(event));
    this.close.addEventListener("click", () => this.shut());
    this.back.addEventListener("click", () => this.step(-1));
    this.on.addEventListener("click", () => this.step(1));
    this.range.addEventListener("input", () => this.fade(this.range.value / 100));
    // A slider that was dragged would keep the arrow keys to itself.
    this.range.addEventListener("pointerdown", () => {
      addEventListener("pointerup", () => this.stage.focus(), { once: true });
    });
    this.stage.addEventListener("pointermove", (event) => this.channels.point(event));
    this.stage.addEventListener("pointerleave", () => this.outline.hidden = true);
    this.listenToFingers();
    for (const image of [this.base, this.top]) {
      image.addEventListener("load", () => this.stage.classList.remove("waiting"));
      image.addEventListener("error", () => this.failed(image));
    }
  }

  /** A swipe leafs, a tap or click opens a channel or uncovers the original. */
  listenToFingers() {
    let from = null;
    this.stage.addEventListener("pointerdown", (event) => {
      from = event.isPrimary && event.button === 0 && !event.target.closest("button") ? event : null;
    });
    this.stage.addEventListener("pointercancel", () => from = null);
    this.stage.addEventListener("pointerup", (event) => {
      if (from === null || !event.isPrimary) return;
      const [x, y] = [event.clientX - from.clientX, event.clientY - from.clientY];
      from = null;
      if (Math.abs(x) > SWIPE && Math.abs(x) > 1.5 * Math.abs(y)) this.step(x < 0 ? 1 : -1);
      else if (Math.hypot(x, y) < 8) this.tapped(event);
    });
  }

  tapped(event) {
    if (this.channels.open !== null) return this.showGrid();
    const index = this.channels.at(event);
    if (index !== null) this.showChannel(index);
    else if (!this.slider.hidden) this.uncover();
  }

  /** Opens what the address names, or closes. */
  follow() {
    const entry = this.entries[/^#\d+$/.test(location.hash) ? Number(location.hash.slice(1)) : -1];
    if (!entry) {
      if (this.viewer.open) this.viewer.close();
      if (this.entry) this.gallery.focus(this.entry.id);
      this.entry = null;
      return;
    }
    if (!this.viewer.open) this.viewer.showModal();
    if (this.entry !== entry) this.show(entry);
  }

  go(id) {
    try {
      history.replaceState(null, "", `#${id}`);
      this.follow();
    } catch {
      location.replace(`#${id}`); // a browser that lets no page on a disk rewrite its address
    }
  }

  /** Back to where the viewer was opened, so that the browser's own way back is not a detour. */
  shut() {
    if (!this.pushed) return this.go("");
    this.pushed = false;
    this.viewer.close();
    history.back();
  }

  /** One step out: from a channel to its grid, from there to the gallery. */
  leave() {
    if (this.channels.open !== null) this.showGrid();
    else this.shut();
  }

  step(by) {
    if (this.channels.open !== null) {
      this.channels.step(by);
      this.tellChannel();
      return;
    }
    const { shown, places } = this.gallery;
    const target = shown[(places.get(this.entry.id) ?? -by) + by];
    if (target) this.go(target.id);
  }

  show(entry) {
    this.entry = entry;
    const { record } = entry;
    const place = this.gallery.places.get(entry.id);
    const count = this.gallery.shown.length;
    this.place.textContent = place === undefined ? "" : `${place + 1} / ${count}`;
    this.back.disabled = place === 0;
    this.on.disabled = place === count - 1;
    this.panel.show(entry);
    const kinds = entry.original ? [...entry.kinds, "original"] : entry.kinds;
    this.tabs.replaceChildren(...kinds.map((kind) => this.tab(kind)));
    this.tabs.hidden = kinds.length < 2;
    const first = entry.kinds[0] ?? (record.error ? null : kinds[0]) ?? null;
    this.look(kinds.includes(this.kind) ? this.kind : first);
    this.viewer.scrollTop = 0;
    for (const by of [1, -1]) this.readAhead(this.gallery.shown[(place ?? 0) + by]);
  }

  /** Shows one of the entry's pictures; null: there is none. */
  look(kind) {
    const entry = this.entry;
    const over = OVER_THE_ORIGINAL.includes(kind) && entry.original !== null;
    this.looking = kind;
    for (const tab of this.tabs.children) tab.setAttribute("aria-pressed", tab.dataset.kind === kind);
    this.slider.hidden = !over;
    this.above.textContent = kind === "heatmap" ? "Heatmap" : "Overlay";
    this.missing.hidden = kind !== null;
    this.missing.textContent = kind === null ? entry.record.error ?? entry.record.reason ?? "There is no picture" : "";
    this.stage.classList.add("waiting");
    put(this.base, over ? entry.original : null, entry.picture);
    put(this.top, kind === null ? null : kind === "original" ? entry.original : entry.link(kind), `${kind}: ${entry.headline}`);
    this.stage.classList.toggle("sharp", kind === "grid");
    this.channels.take(kind === null ? null : entry.tiles[kind]);
    this.legend.hidden = true;
    this.fade(this.opacity);
  }

  fade(opacity) {
    this.opacity = opacity;
    this.range.value = Math.round(100 * opacity);
    this.top.style.opacity = this.slider.hidden ? 1 : opacity;
  }

  /** The original alone, or the picture over it again. */
  uncover() {
    if (this.opacity > 0) this.covered = this.opacity;
    this.fade(this.opacity > 0 ? 0 : this.covered ?? 1);
  }

  showChannel(index) {
    if (!this.top.complete || !this.top.naturalWidth) return;
    this.channels.show(index);
    this.tellChannel();
  }

  showGrid() {
    this.channels.close();
    this.legend.hidden = true;
  }

  tellChannel() {
    const { open, tiles } = this.channels;
    this.legend.textContent = `Channel ${this.channels.name(open)} · ${open + 1} / ${tiles.count}`;
    this.legend.hidden = false;
  }

  failed(image) {
    this.stage.classList.remove("waiting");
    const original = image === this.base || this.looking === "original";
    put(image, null, "");
    if (image === this.base) {
      this.slider.hidden = true;
      this.fade(this.opacity);
      return;
    }
    this.missing.textContent = this.entry.record.error ?? (original
      ? "The original is not where it was, or this browser cannot show its format"
      : "The picture is not there any more");
    this.missing.hidden = false;
    this.channels.take(null);
  }

  tab(kind) {
    const tab = element("button", "tab", titleOf(kind));
    tab.type = "button";
    tab.dataset.kind = kind;
    tab.addEventListener("click", () => {
      this.kind = kind;
      this.look(kind);
    });
    return tab;
  }

  /** Has the browser read a neighbour before it is asked for. */
  readAhead(entry) {
    if (!entry) return;
    const kind = entry.kinds.includes(this.kind) ? this.kind : entry.kinds[0];
    for (const link of [kind && entry.link(kind), OVER_THE_ORIGINAL.includes(kind) && entry.original]) {
      if (link) new Image().src = link;
    }
  }

  key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey || event.target.closest("select")) return;
    if (event.target === this.range && event.key.startsWith("Arrow")) return;
    const { shown } = this.gallery;
    const kinds = [...this.tabs.children].map((tab) => tab.dataset.kind);
    const acts = {
      ArrowLeft: () => this.step(-1),
      ArrowRight: () => this.step(1),
      Home: () => shown.length && this.go(shown[0].id),
      End: () => shown.length && this.go(shown[shown.length - 1].id),
      c: () => this.channels.tiles && (this.channels.open === null ? this.showChannel(0) : this.showGrid()),
      v: () => kinds.length > 1 && this.tabs.children[(kinds.indexOf(this.looking) + 1) % kinds.length].click(),
    };
    if (!this.slider.hidden) {
      acts.ArrowUp = () => this.fade(Math.min(1, this.opacity + 0.1));
      acts.ArrowDown = () => this.fade(Math.max(0, this.opacity - 0.1));
      acts.o = () => this.uncover();
    }
    if (!(event.key in acts)) return;
    event.preventDefault();
    acts[event.key]();
  }
}

/** Gives an image its source, or takes it away. */
function put(image, link, alt) {
  image.hidden = link === null;
  image.alt = alt ?? "";
  if (link === null) image.removeAttribute("src");
  else image.src = link;
}
