// Drawings: the curve of a loss, and the small ones of the last minutes.

import { draw, make, say, short } from './dom.js';

// ticks returns round numbers from low to high, approximately the given number of them.
export function ticks(low, high, wanted) {
  if (!(high > low)) return [low];
  const rough = (high - low) / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= 0.7 * rough);
  const all = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) all.push(Number((i * step).toPrecision(12)));
  return all;
}

// thin keeps as many points as can be distinguished, including the first and the last.
export function thin(points, most) {
  if (points.length <= most) return points;
  const every = (points.length - 1) / (most - 1);
  return Array.from({ length: most }, (_, i) => points[Math.round(i * every)]);
}

const edge = { top: 10, right: 12, bottom: 34, left: 46 };
const lines = [
  { of: 'train', name: 'training loss', style: 'train' },
  { of: 'valid', name: 'validation loss', style: 'valid' },
];

// LossChart draws losses by step; it can be asked for each with a pointer or the keys.
export class LossChart {
  #points = []; // {step, train, valid, accuracy}, by step
  #total = 0;
  #at = -1; // the point that is shown
  #box = make('div', { class: 'plot' });
  #value = make('p', { class: 'value' });
  #x; #y;

  constructor() {
    const legend = make('ul', { class: 'legend' }, ...lines.map(({ name, style }) =>
      make('li', {}, draw('svg', { viewBox: '0 0 28 10', class: 'key', 'aria-hidden': 'true' }, ...this.#key(style)), name)));
    this.element = make('figure', { class: 'chart' }, legend, this.#box, this.#value);
    this.#box.addEventListener('pointermove', (event) => this.#point(event));
    this.#box.addEventListener('pointerleave', () => this.#show(-1));
    this.#box.addEventListener('keydown', (event) => this.#press(event));
    new ResizeObserver(() => this.#draw()).observe(this.#box);
  }

  #key(style) {
    const line = draw('path', { d: 'M0 5H28', class: `line ${style}` });
    return style === 'valid' ? [line, draw('circle', { cx: 14, cy: 5, r: 3.5, class: `dot ${style}` })] : [line];
  }

  // set draws the current points; total is the number of the last step.
  set(points, total) {
    this.#points = points;
    this.#total = total;
    this.#draw();
  }

  #draw() {
    const width = this.#box.clientWidth, height = 260;
    if (width === 0) return;
    const values = this.#points.flatMap((p) => [p.train, p.valid]).filter(Number.isFinite);
    if (values.length === 0) {
      this.#box.replaceChildren(make('p', { class: 'muted' }, 'The curve begins with the first step.'));
      return;
    }
    let low = Math.min(...values), high = Math.max(...values);
    const room = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
    low -= room;
    high += room;
    const last = Math.max(this.#total, this.#points.at(-1).step, 1);
    this.#x = (step) => edge.left + (step / last) * (width - edge.left - edge.right);
    this.#y = (loss) => edge.top + ((high - loss) / (high - low)) * (height - edge.top - edge.bottom);
    const svg = draw('svg', { width, height, viewBox: `0 0 ${width} ${height}`, 'aria-hidden': 'true' });
    for (const loss of ticks(low, high, 5)) {
      svg.append(draw('path', { class: 'grid', d: `M${edge.left} ${this.#y(loss)}H${width - edge.right}` }),
        draw('text', { class: 'tick', x: edge.left - 6, y: this.#y(loss) + 4, 'text-anchor': 'end' }, short(loss)));
    }
    const steps = ticks(0, last, Math.max(2, Math.floor(width / 110))).filter(Number.isInteger);
    for (const step of steps) {
      svg.append(draw('path', { class: 'axis', d: `M${this.#x(step)} ${height - edge.bottom}v4` }),
        draw('text', { class: 'tick', x: this.#x(step), y: height - edge.bottom + 17, 'text-anchor': 'middle' }, String(step)));
    }
    svg.append(
      draw('path', { class: 'axis', d: `M${edge.left} ${edge.top}V${height - edge.bottom}H${width - edge.right}` }),
      draw('text', { class: 'tick', x: width - edge.right, y: height - 4, 'text-anchor': 'end' }, 'step'));
    for (const { of, style } of lines) svg.append(...this.#line(of, style, width));
    svg.append(draw('g', { class: 'cursor' }));
    const focused = document.activeElement === this.#box.firstChild;
    const frame = make('div', { tabindex: 0, role: 'img', class: 'frame', 'aria-label': `Loss by step. ${this.#summary()} Arrow keys go from step to step.` }, svg);
    this.#box.replaceChildren(frame);
    if (focused) frame.focus();
    this.#show(Math.min(this.#at, this.#points.length - 1));
  }

  #line(of, style, width) {
    const points = this.#points.filter((p) => Number.isFinite(p[of]));
    if (points.length === 0) return [];
    const seen = thin(points, Math.max(2, Math.floor(width)));
    const path = draw('path', { class: `line ${style}`, d: seen.map((p, i) => `${i ? 'L' : 'M'}${this.#x(p.step).toFixed(1)} ${this.#y(p[of]).toFixed(1)}`).join('') });
    if (style !== 'valid' && seen.length > 1) return [path];
    return [path, ...seen.map((p) => draw('circle', { class: `dot ${style}`, cx: this.#x(p.step), cy: this.#y(p[of]), r: 3.5 }))];
  }

  #words(p) {
    const parts = lines.filter(({ of }) => Number.isFinite(p[of])).map(({ of, name }) => `${name} ${short(p[of])}`);
    if (Number.isFinite(p.accuracy)) parts.push(`validation accuracy ${short(p.accuracy * 100)} %`);
    return `Step ${p.step}: ${parts.join(', ')}`;
  }

  #summary() {
    return `${this.#words(this.#points.at(-1))}.`;
  }

  #point(event) {
    if (!this.#x || this.#points.length === 0) return;
    const x = event.clientX - this.#box.getBoundingClientRect().left;
    let nearest = 0;
    this.#points.forEach((p, i) => {
      if (Math.abs(this.#x(p.step) - x) < Math.abs(this.#x(this.#points[nearest].step) - x)) nearest = i;
    });
    this.#show(nearest);
  }

  #press(event) {
    const last = this.#points.length - 1;
    const at = this.#at < 0 ? last : this.#at;
    const to = { ArrowLeft: Math.max(at - 1, 0), ArrowRight: Math.min(at + 1, last), Home: 0, End: last }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    this.#show(to);
    say(this.#value.textContent);
  }

  // show marks a point and says its values; without one it says the last.
  #show(at) {
    this.#at = at;
    const cursor = this.#box.querySelector('.cursor');
    if (!cursor) return;
    cursor.replaceChildren();
    const p = this.#points.at(at);
    if (at >= 0) {
      const x = this.#x(p.step);
      cursor.append(draw('path', { class: 'hair', d: `M${x} ${edge.top}V${260 - edge.bottom}` }));
      for (const { of, style } of lines) {
        if (Number.isFinite(p[of])) cursor.append(draw('circle', { class: `dot ${style}`, cx: x, cy: this.#y(p[of]), r: 4.5 }));
      }
    }
    this.#value.textContent = this.#words(p);
  }
}

// sparkline draws values from 0 up, the latest at the right; wide is how many there is
// room for.
export function sparkline(values, wide) {
  const most = Math.max(...values.filter(Number.isFinite), 1e-9);
  const path = values.map((v, i) => {
    if (!Number.isFinite(v)) return '';
    const x = ((wide - values.length + i) / (wide - 1)) * 100;
    return `${i && Number.isFinite(values[i - 1]) ? 'L' : 'M'}${x.toFixed(2)} ${(23 - (v / most) * 21).toFixed(2)}`;
  }).join('');
  return draw('svg', { class: 'spark', viewBox: '0 0 100 24', preserveAspectRatio: 'none', 'aria-hidden': 'true' },
    draw('path', { class: 'axis', d: 'M0 23.5H100' }), draw('path', { class: 'line train', d: path }));
}
