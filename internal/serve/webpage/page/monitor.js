// The current activity of the server, from its metrics.

import { read, text, words } from './api.js';
import { sparkline } from './chart.js';
import { bytes, count, get, make, plural, repeat, say, short, show } from './dom.js';
import { models } from './models.js';
import { find, parse, total } from './prometheus.js';

const every = 2; // seconds
const kept = 150; // samples: five minutes

const percent = (part) => `${short(Math.min(part, 1) * 100)} %`;
const trained = 'lorafuse:training_seconds_total';
const resident = (samples) => {
  const names = find(samples, 'vllm:lora_requests_info')?.labels.running_lora_adapters;
  return names ? names.split(',') : [];
};

// level is a current value, rate its increase per second.
const level = (of) => ({ of, value: (samples) => total(samples, of) });
const rate = (of) => ({ ...level(of), rate: true });

const gauges = [
  { name: 'Tokens written', unit: 'a second', write: short, ...rate('vllm:generation_tokens_total') },
  { name: 'Tokens read', unit: 'a second', write: short, ...rate('vllm:prompt_tokens_total') },
  { name: 'Requests under way', write: count, ...level('vllm:num_requests_running') },
  { name: 'Requests waiting', write: count, ...level('vllm:num_requests_waiting') },
  { name: 'Cache in use', write: percent, ...level('vllm:kv_cache_usage_perc') },
  { name: 'Adapters on the device', write: count, of: 'vllm:lora_requests_info', value: (samples) => resident(samples).length },
  { name: 'Memory of the process', write: bytes, ...level('process_resident_memory_bytes') },
  { name: 'Training', unit: 'of the time', write: percent, of: trained, rate: true, value: (samples) => total(samples, trained) / samples.filter(({ name }) => name === 'lorafuse:device_up').length },
];

let before = null; // {at, samples} of the last time

function card(gauge) {
  gauge.values = [];
  gauge.number = make('span', { class: 'number' }, '–');
  gauge.line = make('div');
  gauge.most = make('p', { class: 'hint' });
  return gauge.card = make('div', { class: 'card gauge', role: 'group', 'aria-label': gauge.name },
    make('h2', {}, gauge.name), make('p', {}, gauge.number, gauge.unit ? ` ${gauge.unit}` : ''), gauge.line, gauge.most);
}

function take(gauge, samples, at) {
  gauge.card.hidden = !find(samples, gauge.of); // what the server does not do
  let value = gauge.value(samples);
  if (gauge.rate) {
    const earlier = before ? gauge.value(before.samples) : NaN;
    const grown = value < earlier ? value : value - earlier; // less: the server has begun anew
    value = grown / ((at - before?.at) / 1000);
  }
  gauge.values.push(value);
  gauge.values.splice(0, gauge.values.length - kept);
}

function redraw({ values, number, line, most, write }) {
  const now = values.at(-1);
  const high = Math.max(...values.filter(Number.isFinite));
  number.textContent = Number.isFinite(now) ? write(now) : '–';
  line.replaceChildren(sparkline(values, kept));
  most.textContent = Number.isFinite(high) ? `at most ${write(high)}` : '';
}

function list(names) {
  get('model-list').replaceChildren(...models.list.map((model) => make('li', {},
    make('span', { class: 'name' }, model.id),
    model.parent ? null : make('span', { class: 'chip' }, 'base'),
    model.parent && !model.version ? loader(model) : null,
    failures.has(model.id) ? make('span', { class: 'error', role: 'alert' }, failures.get(model.id)) : null,
    names.includes(model.id) ? make('span', { class: 'chip running' }, 'on the device') : null,
    make('span', { class: 'muted' }, about(model)))));
}

function about(model) {
  if (!model.parent) return `up to ${plural(model.max_model_len ?? 0, 'token')}`;
  const about = [`adapter of ${model.parent}`];
  if (model.rank) about.push(`rank ${model.rank}`);
  about.push(model.version ? `version ${model.version}` : 'not loaded: a request for it loads it');
  return about.join(', ');
}

const failures = new Map(); // of adapters that could not be loaded, by their names

// loader returns a button that loads an adapter.
const loader = (model) => make('button', {
  type: 'button', class: 'quiet', onclick: async (event) => {
    event.target.disabled = true;
    try {
      await read(`v1/models/${model.id.split('/').map(encodeURIComponent).join('/')}`);
      await models.refresh();
      failures.delete(model.id);
      say(`${model.id} is loaded`);
    } catch (error) {
      failures.set(model.id, words(error));
    }
    shown();
  },
}, 'Load');

async function update() {
  let samples;
  try {
    samples = parse(await text('metrics'));
  } catch (error) {
    if (error.status !== 404) return every;
    show(get('server-absent'), 'This server has no metrics.');
    get('gauges').hidden = true;
    return null;
  }
  const at = performance.now();
  for (const gauge of gauges) take(gauge, samples, at);
  before = { at, samples };
  if (!get('server').hidden) shown();
  return every;
}

// shown draws the values; it is called when the page becomes visible.
export function shown() {
  for (const gauge of gauges) redraw(gauge);
  list(before ? resident(before.samples) : []);
}

export async function start() {
  get('gauges').append(...gauges.map(card));
  models.addEventListener('change', shown);
  repeat(update);
  const { version } = await read('version');
  get('version').textContent = `lorafuse ${version}. The lines show the last five minutes.`;
}
