// Small help with elements and with words. All text goes in as text: nothing that a
// model or a server writes is ever read as HTML.

// get finds an element of the page by its id.
export const get = (id) => document.getElementById(id);

// make makes an element: attributes by name, on… are listeners, the rest is content.
export function make(tag, attributes = {}, ...content) {
  return fill(document.createElement(tag), attributes, content);
}

const vector = 'http://www.w3.org/2000/svg'; // a name, which nothing is loaded from

// draw makes an element of a drawing.
export function draw(tag, attributes = {}, ...content) {
  return fill(document.createElementNS(vector, tag), attributes, content);
}

function fill(element, attributes, content) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...content.filter((c) => c !== null && c !== undefined));
  return element;
}

// show sets the text of an element that is hidden while it has none.
export function show(element, text) {
  element.textContent = text ?? '';
  element.hidden = !text;
}

// say announces text to a screen reader.
export function say(text) {
  get('status').textContent = text;
}

const counts = new Intl.NumberFormat('en');

// count writes a whole number.
export const count = (n) => counts.format(n);

// plural writes a number of things.
export const plural = (n, one, many = one + 's') => `${count(n)} ${n === 1 ? one : many}`;

// short writes a number with three or four digits.
export function short(n) {
  if (!Number.isFinite(n)) return '–';
  if (n === 0) return '0';
  if ((Math.abs(n) < 1e-3 || Math.abs(n) >= 1e6)) return n.toExponential(2);
  const digits = Math.abs(n) >= 100 ? 0 : Math.abs(n) >= 10 ? 1 : Math.abs(n) >= 1 ? 2 : 3;
  return n.toFixed(digits);
}

// bytes writes a number of bytes.
export function bytes(n) {
  if (!Number.isFinite(n)) return '–';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  for (; n >= 1024 && unit < units.length - 1; unit++) n /= 1024;
  return `${n >= 100 || unit === 0 ? Math.round(n) : n.toFixed(1)} ${units[unit]}`;
}

// time writes when something was, from Unix seconds.
export function time(seconds) {
  const at = new Date(seconds * 1000);
  const today = at.toDateString() === new Date().toDateString();
  const options = { hour: '2-digit', minute: '2-digit', ...(today ? {} : { day: 'numeric', month: 'short' }) };
  return at.toLocaleString('en-GB', options);
}

// repeat calls f now and every so many seconds while the page can be seen; f says how
// many, and null ends it. It returns a function that calls f at once.
export function repeat(f) {
  let timer, current = null, again = false;
  const calls = async () => {
    let seconds = 5;
    clearTimeout(timer);
    try {
      do {
        again = false;
        seconds = await f();
      } while (again);
    } finally {
      current = null;
      if (seconds !== null) timer = setTimeout(() => !document.hidden && run(), seconds * 1000);
    }
  };
  const run = () => {
    if (current) again = true;
    else current = calls();
    return current;
  };
  document.addEventListener('visibilitychange', () => !document.hidden && run());
  run();
  return run;
}
