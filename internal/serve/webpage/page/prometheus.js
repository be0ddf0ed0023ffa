// The subset of Prometheus' text format that the page needs.

const line = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?$/;
const label = /([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g;

// parse returns the samples of a page of metrics: {name, labels, value}.
export function parse(text) {
  const samples = [];
  for (const row of text.split('\n')) {
    const found = row.startsWith('#') ? null : line.exec(row.trim());
    if (!found) continue;
    const labels = {};
    for (const [, name, value] of (found[2] ?? '').matchAll(label)) {
      labels[name] = value.replace(/\\(.)/g, (_, c) => (c === 'n' ? '\n' : c));
    }
    samples.push({ name: found[1], labels, value: number(found[3]) });
  }
  return samples;
}

function number(text) {
  if (/^[+-]?inf$/i.test(text)) return text.startsWith('-') ? -Infinity : Infinity;
  return Number(text); // NaN is NaN
}

// find returns the first sample of that name, or undefined.
export function find(samples, name) {
  return samples.find((sample) => sample.name === name);
}

// total returns the sum of all samples of that name, NaN if there are none.
export function total(samples, name) {
  const values = samples.filter((sample) => sample.name === name).map((sample) => sample.value);
  return values.length > 0 ? values.reduce((a, b) => a + b) : NaN;
}
