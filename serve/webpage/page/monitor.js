// What the server does at the moment, from its page of metrics.

import { read, text } from './api.js';
import { sparkline } from './chart.js';
import { bytes, count, get, make, plural, repeat, short, show } from './dom.js';
import { models } from './models.js';
import { find, parse } from './prometheus.js';

const every = 2; // seconds
const kept = 150; // samples: five minutes

// rate is how much a counter grew in a second; it began anew where the server did.
const rate = (name) => ({ of: name, rate: true });
const level = (name) => ({ of: name });

const gauges = [
  { name: 'Tokens written', unit: 'a second', write: short, ...rate('vllm:generation_tokens_total') },
  { name: 'Tokens read', unit: 'a second', write: short, ...rate('vllm:prompt_tokens_total') },
  { name: 'Requests under way', write: count, ...level('vllm:num_requests_running') },
  { name: 'Requests waiting', write: count, ...level('vllm:num_requests_waiting') },
  { name: 'Cache in use', write: (part) => `${short(part * 100)} %`, ...level('vllm:kv_cache_usage_perc') },
  { name: 'Memory of the process', write: bytes, ...level('process_resident_memory_bytes') },
];

let before = null; // {at, samples} of the last time

function card(gauge) {
  gauge.values = [];
  gauge.number = make('span', { class: 'number' }, '–');
  gauge.line = make('div');
  return make('div', { class: 'card gauge', role: 'group', 'aria-label': gauge.name },
    make('h2', {}, gauge.name), make('p', {}, gauge.number, gauge.unit ? ` ${gauge.unit}` : ''), gauge.line);
}

function take(gauge, samples, at) {
  let value = find(samples, gauge.of)?.value ?? NaN;
  if (gauge.rate) {
    const earlier = before && find(before.samples, gauge.of)?.value;
    const grown = earlier === undefined || earlier === null ? NaN : value < earlier ? value : value - earlier;
    value = grown / ((at - before?.at) / 1000);
  }
  gauge.values.push(value);
  gauge.values.splice(0, gauge.values.length - kept);
  gauge.number.textContent = Number.isFinite(value) ? gauge.write(value) : '–';
}

// adapters says which of the adapters lie on the device.
function adapters(samples) {
  const info = find(samples, 'vllm:lora_requests_info');
  const names = info?.labels.running_lora_adapters;
  return new Set(names ? names.split(',') : []);
}

function list(resident) {
  get('model-list').replaceChildren(...models.list.map((model) => make('li', {},
    make('span', { class: 'name' }, model.id), ' ',
    model.parent ? make('span', { class: resident.has(model.id) ? 'chip running' : 'chip' }, resident.has(model.id) ? 'on the device' : 'not on the device') : make('span', { class: 'chip' }, 'base'),
    make('span', { class: 'muted' }, model.parent ? (model.version ? `version ${model.version}` : '') : `up to ${plural(model.max_model_len ?? 0, 'token')}`))));
}

let resident = new Set();

async function update() {
  let samples;
  try {
    samples = parse(await text('metrics'));
  } catch (error) {
    if (error.status !== 404) return every;
    show(get('server-absent'), 'This server has no metrics: it makes vectors of texts.');
    get('gauges').hidden = true;
    return null;
  }
  const at = performance.now();
  for (const gauge of gauges) take(gauge, samples, at);
  before = { at, samples };
  resident = adapters(samples);
  if (!get('server').hidden) shown();
  return every;
}

// shown draws what is known; people look at it.
export function shown() {
  for (const gauge of gauges) gauge.line.replaceChildren(sparkline(gauge.values, kept));
  list(resident);
}

export async function start() {
  get('gauges').append(...gauges.map(card));
  models.addEventListener('change', () => list(resident));
  repeat(update);
  const { version } = await read('version');
  get('version').textContent = `lorafuse ${version}. The lines show the last five minutes.`;
}
