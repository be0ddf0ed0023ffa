// The chat: turns of a user's message and one answer, or two side by side.

import { stream, words } from './api.js';
import { get, make, plural, say, short, show } from './dom.js';
import * as history from './history.js';
import { copier, markdown } from './markdown.js';
import { models, offer } from './models.js';

const shortest = 200; // milliseconds in which a rate of tokens says something

const turns = []; // {text, answers: [Answer, …]}
let under = null; // the AbortController of the answers that are under way
let chat = null; // id of the chat in the history
let edited = null; // the turn that the next message replaces

// Answer is a model's answer in a turn, and its element on the page.
class Answer {
  text = '';
  #model;
  #body = make('div', { class: 'text' });
  #about = make('p', { class: 'about' });
  #said = ''; // about the answer
  #frame = 0; // in which what has come is shown
  #next = 0; // time before which nothing is shown

  constructor(model) {
    this.#model = model;
    this.element = make('article', { class: 'answer', 'aria-label': `Answer of ${model}`, 'aria-busy': 'true' },
      make('h3', {}, model), this.#body, this.#about);
  }

  // run sends the request and shows the answer as it arrives.
  async run(path, request, signal) {
    const began = performance.now();
    let first = 0, tokens = 0, reason = '';
    this.#about.textContent = 'waiting …';
    try {
      for await (const part of stream(path, { ...request, model: this.#model }, signal)) {
        const choice = part.choices[0];
        const piece = choice?.delta?.content ?? choice?.text ?? '';
        if (piece) {
          if (!first) {
            first = performance.now();
            this.#about.textContent = 'writing …';
          }
          this.#add(piece);
        }
        reason = choice?.finish_reason ?? reason;
        tokens = part.usage?.completion_tokens ?? tokens;
      }
      const last = performance.now();
      const about = [plural(tokens, 'token')];
      if (last - first > shortest) about.push(`${short(((tokens - 1) * 1000) / (last - first))} a second`);
      if (first) about.push(`first token after ${((first - began) / 1000).toFixed(2)} s`);
      if (reason === 'length') about.push('cut: token limit reached');
      if (this.text === '') about.push('the model ended at once and wrote nothing');
      this.#end(about.join(' · '));
    } catch (error) {
      if (error.name === 'AbortError') this.#end('stopped');
      else this.#fail(words(error));
    }
  }

  #add(piece) {
    this.text += piece;
    this.#frame ||= requestAnimationFrame(() => this.#paint());
  }

  // paint shows the text, but spends at most a fifth of the time on that.
  #paint() {
    const began = performance.now();
    if (began < this.#next) {
      this.#frame = requestAnimationFrame(() => this.#paint());
      return;
    }
    this.#flush();
    this.#next = performance.now() + 4 * (performance.now() - began);
  }

  // show writes the text as Markdown or as it is.
  show() {
    const formatted = get('markdown').checked;
    this.#body.className = formatted ? 'text formatted' : 'text';
    this.#body.replaceChildren(...(formatted ? markdown(this.text) : [this.text]));
  }

  // restore shows an answer of the history.
  restore({ text, about }) {
    this.text = String(text ?? '');
    this.#end(String(about ?? ''));
    return this;
  }

  // saved returns the answer for the history.
  get saved() {
    return { model: this.#model, text: this.text, about: this.#said };
  }

  // flush shows the text received since the last frame: a page layout for each token
  // would delay a fast model.
  #flush() {
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    const log = get('log');
    const follow = log.scrollHeight - log.scrollTop - log.clientHeight < 60;
    this.show();
    if (follow) log.scrollTop = log.scrollHeight;
  }

  #end(about) {
    this.#said = about;
    this.#flush();
    this.element.setAttribute('aria-busy', 'false');
    this.#about.replaceChildren(about);
    const button = this.text && copier(() => this.text, `Copy the answer of ${this.#model}`);
    if (button) this.#about.append(' ', button);
  }

  #fail(message) {
    this.#end('');
    this.element.append(make('p', { class: 'error', role: 'alert' }, message));
  }
}

const chosen = () => [get('model-1').value, ...(get('compare').checked ? [get('model-2').value] : [])];

// conversation returns the messages for the model of one column: the turns that it
// has answered, and the last message.
function conversation(column, text) {
  const messages = [];
  const system = get('system').value.trim();
  if (system) messages.push({ role: 'system', content: system });
  for (const turn of turns) {
    const answer = turn.answers[column] ?? turn.answers[0];
    if (answer.text === '') continue;
    messages.push({ role: 'user', content: turn.text }, { role: 'assistant', content: answer.text });
  }
  messages.push({ role: 'user', content: text });
  return messages;
}

// settings returns the settings that are filled in.
function settings() {
  const request = {};
  for (const [id, field] of [['temperature', 'temperature'], ['top-p', 'top_p'], ['min-p', 'min_p'], ['max-tokens', 'max_tokens'], ['seed', 'seed']]) {
    const value = get(id).valueAsNumber;
    if (!Number.isNaN(value)) request[field] = value;
  }
  return request;
}

async function ask(text) {
  const chats = models.takes('chat/completions');
  const answers = chosen().map((model) => new Answer(model));
  const requests = answers.map((_, column) => ({
    ...settings(),
    ...(chats ? { messages: conversation(column, text) } : { prompt: text }),
  }));
  add(text, answers);
  keep();

  under = new AbortController();
  working(true);
  say('Waiting for the answer');
  const path = chats ? 'v1/chat/completions' : 'v1/completions';
  await Promise.all(answers.map((answer, i) => answer.run(path, requests[i], under.signal)));
  under = null;
  working(false);
  keep();
  say(answers.length > 1 ? 'Both answers have ended' : 'The answer has ended');
}

// working replaces the send button by a stop button.
function working(yes) {
  const focused = document.activeElement;
  get('send').hidden = yes;
  get('stop').hidden = !yes;
  if (focused === get('send') || focused === get('stop')) get('prompt').focus();
}

// add adds a turn to the page.
function add(text, answers) {
  const turn = { text, answers };
  turns.push(turn);
  get('welcome').hidden = true;
  turn.element = make('div', { class: 'turn' },
    make('div', { class: 'user' }, make('h3', { class: 'unseen' }, models.takes('chat/completions') ? 'You' : 'Your text'), make('div', { class: 'text' }, text)),
    make('p', { class: 'tools' },
      make('button', { type: 'button', class: 'link edit', onclick: () => edit(turn) }, 'Edit'), ' ',
      make('button', { type: 'button', class: 'link again', onclick: () => again(turn) }, 'Ask again')),
    make('div', { class: answers.length > 1 ? 'answers two' : 'answers' }, ...answers.map((answer) => answer.element)));
  const log = get('log');
  log.append(turn.element);
  log.scrollTop = log.scrollHeight;
}

// drop removes a turn and those after it.
function drop(turn) {
  const at = turns.indexOf(turn);
  if (at < 0) return;
  for (const { element } of turns.splice(at)) element.remove();
}

// edit puts the message of a turn back into the form; sending it replaces the turn.
function edit(turn) {
  if (under) return;
  edited = turn;
  get('prompt').value = turn.text;
  show(get('editing'), 'Sending replaces this message and all after it. Escape: keep them.');
  get('prompt').focus();
}

function keepTurns() {
  edited = null;
  show(get('editing'), null);
}

// again asks the message of a turn once more, in place of it and all after it.
function again(turn) {
  if (under) return;
  keepTurns();
  drop(turn);
  ask(turn.text);
}

// keep stores the chat in this browser.
function keep() {
  if (turns.length === 0) return;
  chat ??= crypto.randomUUID?.() ?? String(Date.now() + Math.random());
  history.save({ id: chat, system: get('system').value, turns: turns.map(({ text, answers }) => ({ text, answers: answers.map((answer) => answer.saved) })) });
  list();
}

// list shows the chats of this browser.
function list() {
  const chats = history.saved();
  get('history').replaceChildren(make('option', { value: '' }, 'New chat'), ...chats.map(({ id, ...rest }) => make('option', { value: id }, history.title(rest))));
  get('history').value = chat ?? '';
  get('past').hidden = chats.length === 0;
  get('forget').hidden = chat === null;
}

// open shows a chat of the history, or a new one.
function open(saved) {
  if (under) {
    under.abort();
    keep();
  }
  keepTurns();
  if (turns.length > 0) drop(turns[0]);
  chat = saved?.id ?? null;
  history.select(chat);
  get('welcome').hidden = false;
  if (typeof saved?.system === 'string') get('system').value = saved.system;
  for (const { text, answers } of saved?.turns ?? []) {
    if (!Array.isArray(answers) || answers.length === 0) continue;
    add(String(text ?? ''), answers.map((answer) => new Answer(String(answer?.model ?? '')).restore(answer ?? {})));
  }
  list();
}

function clear() {
  open(null);
  get('prompt').focus();
}

// describe shows the requests that the model supports.
function describe() {
  const base = models.base;
  if (!base) return;
  const text = models.takes('chat/completions') || models.takes('completions');
  const plain = text && !models.takes('chat/completions');
  const adapters = models.list.length - 1;
  let welcome = `${base.id} and ${plural(adapters, 'adapter')} of it. What you write here goes to this server and nowhere else.`;
  if (adapters === 0) welcome = `${base.id}. What you write here goes to this server and nowhere else.`;
  if (!text) welcome = `${base.id} makes vectors of texts and writes none: there is nothing to chat with. Ask it at /v1/embeddings.`;
  get('welcome').textContent = welcome;
  show(get('mode'), plain && 'This model has no chat template. It continues what you write, each text by itself.');
  get('prompt').placeholder = plain
    ? 'Begin a text. Shift+Enter: a new line.'
    : 'Ask something. Shift+Enter: a new line.';
  get('system').closest('label').hidden = plain;
  for (const id of ['prompt', 'send', 'compare', 'model-1']) get(id).disabled = !text;
}

// choose selects the model for further turns.
export function choose(model) {
  get('model-1').value = model;
  get('prompt').focus();
}

export function start() {
  offer(get('model-1'), 0);
  offer(get('model-2'), 1);
  models.addEventListener('change', describe);
  get('settings').open = matchMedia('(min-width: 60rem)').matches;
  get('compare').addEventListener('change', () => (get('second').hidden = !get('compare').checked));
  get('clear').addEventListener('click', clear);
  get('history').addEventListener('change', () => open(history.saved().find(({ id }) => id === get('history').value)));
  get('forget').addEventListener('click', () => {
    const id = chat;
    clear();
    history.remove(id);
    list();
  });
  get('markdown').addEventListener('change', () => turns.forEach(({ answers }) => answers.forEach((answer) => answer.show())));
  open(history.selected());
  get('stop').addEventListener('click', () => under?.abort());
  get('prompt').addEventListener('keydown', (event) => {
    if (event.key === 'Escape' && edited) keepTurns();
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    get('chat-form').requestSubmit();
  });
  get('chat-form').addEventListener('submit', (event) => {
    event.preventDefault();
    const prompt = get('prompt');
    if (under || prompt.disabled || prompt.value.trim() === '') return;
    const text = prompt.value;
    prompt.value = '';
    if (edited) drop(edited);
    keepTurns();
    ask(text);
  });
}
