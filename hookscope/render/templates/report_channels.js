"use strict";
// A feature grid in which each channel can be pointed at, and seen large.

class Channels {
  constructor(stage, image, canvas, outline) {
    this.stage = stage;
    this.image = image;
    this.canvas = canvas;
    this.outline = outline;
    this.tiles = null;
    this.open = null;
  }

  /** From now on the picture is a grid with these tiles; null: no grid. */
  take(tiles) {
    this.tiles = tiles ?? null;
    this.close();
    this.stage.classList.toggle("grid", this.tiles !== null);
  }

  close() {
    this.open = null;
    this.canvas.hidden = true;
    this.outline.hidden = true;
    this.image.style.visibility = "";
  }

  name(index) {
    return this.tiles.channels ? this.tiles.channels[index] : String(index);
  }

  /** Left and top of a tile in the grid's pixels. */
  corner(index) {
    const { left, top, cell, caption, cols } = this.tiles;
    return [left + (index % cols) * cell[1], top + Math.floor(index / cols) * cell[0] + caption];
  }

  /** How the picture lies on the stage: one pixel's size, and the place of its corner. */
  fit() {
    const { clientWidth: wide, clientHeight: high } = this.image;
    const { naturalWidth, naturalHeight } = this.image;
    const scale = Math.min(wide / naturalWidth, high / naturalHeight);
    return { scale, x: (wide - scale * naturalWidth) / 2, y: (high - scale * naturalHeight) / 2 };
  }

  /** The tile under a point of the window, or null. */
  at(event) {
    if (!this.tiles || this.open !== null || !this.image.naturalWidth) return null;
    const box = this.image.getBoundingClientRect();
    const { scale, x, y } = this.fit();
    const column = ((event.clientX - box.left - x) / scale - this.tiles.left) / this.tiles.cell[1];
    const row = ((event.clientY - box.top - y) / scale - this.tiles.top) / this.tiles.cell[0];
    if (column < 0 || row < 0 || column >= this.tiles.cols) return null;
    const index = Math.floor(row) * this.tiles.cols + Math.floor(column);
    return index < this.tiles.count ? index : null;
  }

  point(event) {
    const index = this.at(event);
    this.outline.hidden = index === null;
    if (index === null) return;
    const { scale, x, y } = this.fit();
    const [left, top] = this.corner(index);
    const [height, width] = this.tiles.tile;
    Object.assign(this.outline.style, {
      left: `${x + scale * left + this.image.offsetLeft}px`,
      top: `${y + scale * top + this.image.offsetTop}px`,
      width: `${scale * width}px`,
      height: `${scale * height}px`,
    });
    this.outline.firstElementChild.textContent = this.name(index);
  }

  /** Shows one channel large. */
  show(index) {
    const [height, width] = this.tiles.tile;
    const [left, top] = this.corner(index);
    this.open = index;
    this.canvas.width = width;
    this.canvas.height = height;
    const context = this.canvas.getContext("2d");
    context.imageSmoothingEnabled = false;
    context.drawImage(this.image, left, top, width, height, 0, 0, width, height);
    this.canvas.setAttribute("aria-label", `Channel ${this.name(index)}`);
    this.canvas.hidden = false;
    this.outline.hidden = true;
    this.image.style.visibility = "hidden";
  }

  step(by) {
    const { count } = this.tiles;
    this.show((this.open + by + count) % count);
  }
}
