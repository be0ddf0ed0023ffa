// The jobs of fine-tuning: a list, and of one its curve and its events.

import { read, words, write } from './api.js';
import { LossChart } from './chart.js';
import { choose } from './chat.js';
import { count, get, make, plural, repeat, say, short, show, time } from './dom.js';
import { models } from './models.js';
import * as form from './start.js';

const path = 'v1/fine_tuning/jobs';
const ended = new Set(['succeeded', 'failed', 'cancelled']);
const named = { validating_files: 'checking the files', queued: 'waiting', running: 'running', paused: 'paused', succeeded: 'done', failed: 'failed', cancelled: 'cancelled' };

let jobs = []; // those that have not ended first, then the newest
let selected = null; // the Job that is shown
let poll = () => {};

// rank orders jobs: those that run, those that wait, those that have ended.
const rank = ({ status }) => (ended.has(status) ? 2 : status === 'running' ? 0 : 1);

const title = (job) => job.fine_tuned_model ?? job.user_provided_suffix ?? job.suffix ?? `Job …${job.id.slice(-6)}`;

const chip = (job) => make('span', { class: `chip ${job.status}` }, named[job.status] ?? job.status);

// Job shows one job.
class Job {
  #events = new Map(); // by id
  #chart = new LossChart();
  #parts = Object.fromEntries(['head', 'facts', 'error', 'progress', 'actions', 'events'].map((name) => [name, null]));
  #sure = false; // whether the job should be cancelled

  constructor(id) {
    this.id = id;
    const p = this.#parts;
    p.head = make('h2', { tabindex: -1 });
    p.facts = make('dl', { class: 'facts' });
    p.error = make('p', { class: 'error', hidden: true });
    p.progress = make('p', { class: 'progress' });
    p.actions = make('div', { class: 'actions' });
    p.events = make('ol', { class: 'events', 'aria-label': 'Events, the newest first' });
    get('job').replaceChildren(p.head, p.error, p.progress, this.#chart.element, p.actions, p.facts,
      make('h3', {}, 'Events'), p.events);
    get('job').hidden = false;
  }

  focus() {
    this.#parts.head.focus();
  }

  // read fetches the new events, newest first.
  async read() {
    let after = '';
    for (;;) {
      const page = await read(`${path}/${encodeURIComponent(this.id)}/events?limit=100${after}`);
      const fresh = page.data.filter((event) => !this.#events.has(event.id));
      for (const event of fresh) this.#events.set(event.id, event);
      if (!page.has_more || page.data.length === 0 || fresh.length < page.data.length) return;
      after = `&after=${encodeURIComponent(page.data.at(-1).id)}`;
    }
  }

  show(job) {
    const p = this.#parts;
    p.head.replaceChildren(title(job), ' ', chip(job));
    show(p.error, job.status === 'failed' && (job.error?.message ?? 'The job failed.'));
    const points = this.#points();
    const last = points.at(-1);
    this.#chart.element.hidden = ended.has(job.status) && !last;
    this.#chart.set(points, last?.total ?? 0);
    show(p.progress, last && `Step ${count(last.step)} of ${count(last.total)}${!ended.has(job.status) && last.speed ? `, ${short(last.speed)} tokens a second` : ''}`);
    p.facts.replaceChildren(...facts(job).flatMap(([name, value]) => [make('dt', {}, name), make('dd', {}, value)]));
    this.#act(job);
    const messages = [...this.#events.values()].filter((event) => event.type !== 'metrics');
    messages.sort((a, b) => b.created_at - a.created_at);
    p.events.replaceChildren(...messages.map((event) => make('li', { class: event.level },
      make('time', { datetime: new Date(event.created_at * 1000).toISOString() }, time(event.created_at)), ' ', event.message)));
  }

  #points() {
    const points = [];
    for (const { type, data } of this.#events.values()) {
      if (type === 'metrics' && data) {
        points.push({ step: data.step, total: data.total_steps, train: data.train_loss ?? NaN, valid: data.valid_loss ?? NaN, accuracy: data.valid_accuracy ?? NaN, speed: data.tokens_per_second });
      }
    }
    return points.sort((a, b) => a.step - b.step);
  }

  // act shows the buttons of the possible actions. It keeps the existing buttons if the actions are the same.
  #act(job) {
    const actions = this.#parts.actions;
    const state = job.status + models.list.some((model) => model.id === job.fine_tuned_model) + this.#sure;
    if (actions.dataset.state === state) return;
    actions.dataset.state = state;
    const focused = actions.contains(document.activeElement);
    actions.replaceChildren();
    if (!ended.has(job.status)) {
      actions.append(make('button', { type: 'button', class: 'danger', onclick: () => this.#cancel(job) }, this.#sure ? 'Yes, cancel it' : 'Cancel the job'));
      if (this.#sure) actions.append(make('button', { type: 'button', class: 'quiet', onclick: () => this.#ask(job, false) }, 'No, go on'));
    } else if (models.list.some((model) => model.id === job.fine_tuned_model)) {
      actions.append(make('button', { type: 'button', class: 'primary', onclick: () => chat(job) }, 'Chat with it'));
    }
    if (focused) (actions.querySelector('button') ?? this.#parts.head).focus();
  }

  #ask(job, sure) {
    this.#sure = sure;
    this.#act(job);
  }

  async #cancel(job) {
    if (!this.#sure) return this.#ask(job, true);
    this.#sure = false;
    try {
      await write(`${path}/${encodeURIComponent(job.id)}/cancel`);
      say('The job is cancelled');
    } catch (error) {
      show(this.#parts.error, words(error));
    }
    poll();
  }
}

function chat(job) {
  location.hash = '#chat';
  choose(job.fine_tuned_model);
}

// facts returns the properties of a job other than its curve.
function facts(job) {
  const method = job.method ?? {};
  const numbers = { ...job.hyperparameters, ...method[method.type]?.hyperparameters };
  const all = [['Base', job.model], ['Method', method.type ?? 'supervised']];
  for (const [name, key] of [['Epochs', 'n_epochs'], ['Batch size', 'batch_size'], ['Learning rate ×', 'learning_rate_multiplier'], ['Beta', 'beta']]) {
    if (typeof numbers[key] === 'number') all.push([name, String(numbers[key])]);
  }
  if (job.lora?.r) all.push(['Rank', String(job.lora.r)]);
  if (job.trained_tokens) all.push(['Trained tokens', count(job.trained_tokens)]);
  all.push(['Created', time(job.created_at)]);
  if (job.finished_at) all.push(['Ended', time(job.finished_at)]);
  all.push(['Id', job.id]);
  return all;
}

function list() {
  get('no-jobs').hidden = jobs.length > 0;
  const focused = document.activeElement?.dataset.job;
  get('job-list').replaceChildren(...jobs.map((job) => make('li', {},
    make('button', { type: 'button', 'data-job': job.id, 'aria-current': selected?.id === job.id ? 'true' : null, onclick: () => select(job.id, true) },
      make('span', { class: 'name' }, title(job)), ' ', chip(job),
      make('span', { class: 'muted' }, `${job.method?.type ?? 'supervised'}, ${time(job.created_at)}`)))));
  if (focused) get('job-list').querySelector(`[data-job="${CSS.escape(focused)}"]`)?.focus();
}

// select shows a job.
async function select(id, focus) {
  if (selected?.id !== id) selected = new Job(id);
  list();
  await poll();
  if (focus) selected.focus();
}

// update requests all displayed data, and returns the seconds until the next update.
async function update(say) {
  if (get('jobs').hidden) return 30;
  try {
    const before = new Map(jobs.map((job) => [job.id, job.status]));
    jobs = (await read(`${path}?limit=100`)).data.sort((a, b) => rank(a) - rank(b));
    get('jobs-present').hidden = false;
    get('jobs-absent').hidden = true;
    if (!selected && jobs.length > 0) selected = new Job(jobs[0].id);
    if (jobs.some((job) => ended.has(job.status) && before.has(job.id) && before.get(job.id) !== job.status)) await models.refresh();
    list();
    const job = jobs.find(({ id }) => id === selected?.id);
    if (job) {
      await selected.read();
      selected.show(job);
    }
    say(null);
  } catch (error) {
    if (error.status === 404) {
      show(get('jobs-absent'), absent());
      get('jobs-present').hidden = true;
      return null;
    }
    say(error);
  }
  return jobs.some((job) => !ended.has(job.status)) ? 2 : 15;
}

function absent() {
  if (!models.takes('chat/completions') && !models.takes('completions')) return 'This model makes vectors of texts: there is no fine-tuning of it beside serving.';
  return 'This server was started without --train-dir DIR, the folder for files, jobs and adapters. With it there is fine-tuning here.';
}

export function start(say) {
  poll = repeat(() => update(say));
  models.addEventListener('change', poll);
  form.start(async (job) => {
    jobs.unshift(job);
    await select(job.id, true);
  });
}

// shown is called when people look.
export const shown = () => poll();
