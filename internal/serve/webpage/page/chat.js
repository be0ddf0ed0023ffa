// The chat: turns of a user's message and one answer, or two side by side.

import { stream, words } from './api.js';
import { get, make, plural, say, short, show } from './dom.js';
import { models, offer } from './models.js';

const shortest = 200; // milliseconds in which a rate of tokens says something

const turns = []; // {text, answers: [Answer, …]}
let under = null; // the AbortController of the answers that are under way

// Answer is a model's answer in a turn, and its element on the page.
class Answer {
  text = '';
  #model;
  #body = make('div', { class: 'text' });
  #about = make('p', { class: 'about' });
  #written = document.createTextNode('');
  #frame = 0; // in which what has come is shown

  constructor(model) {
    this.#model = model;
    this.#body.append(this.#written);
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
    this.#frame ||= requestAnimationFrame(() => this.#flush());
  }

  // flush shows the text received since the last frame: a page layout for each token
  // would delay a fast model.
  #flush() {
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    const log = get('log');
    const follow = log.scrollHeight - log.scrollTop - log.clientHeight < 60;
    this.#written.appendData(this.text.slice(this.#written.length));
    if (follow) log.scrollTop = log.scrollHeight;
  }

  #end(about) {
    this.#flush();
    this.element.setAttribute('aria-busy', 'false');
    this.#about.replaceChildren(about);
    if (this.text && navigator.clipboard) this.#about.append(' ', this.#copier());
  }

  #copier() {
    const button = make('button', { type: 'button', class: 'link', 'aria-label': `Copy the answer of ${this.#model}` }, 'Copy');
    button.addEventListener('click', async () => {
      await navigator.clipboard.writeText(this.text);
      button.textContent = 'Copied';
      say('Copied');
    });
    return button;
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
  for (const [id, field] of [['temperature', 'temperature'], ['max-tokens', 'max_tokens'], ['seed', 'seed']]) {
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
  turns.push({ text, answers });
  get('welcome').hidden = true;
  const log = get('log');
  log.append(make('div', { class: 'turn' },
    make('div', { class: 'user' }, make('h3', { class: 'unseen' }, chats ? 'You' : 'Your text'), make('div', { class: 'text' }, text)),
    make('div', { class: answers.length > 1 ? 'answers two' : 'answers' }, ...answers.map((answer) => answer.element))));
  log.scrollTop = log.scrollHeight;

  under = new AbortController();
  working(true);
  say('Waiting for the answer');
  const path = chats ? 'v1/chat/completions' : 'v1/completions';
  await Promise.all(answers.map((answer, i) => answer.run(path, requests[i], under.signal)));
  under = null;
  working(false);
  say(answers.length > 1 ? 'Both answers have ended' : 'The answer has ended');
}

// working replaces the send button by a stop button.
function working(yes) {
  const focused = document.activeElement;
  get('send').hidden = yes;
  get('stop').hidden = !yes;
  if (focused === get('send') || focused === get('stop')) get('prompt').focus();
}

function clear() {
  under?.abort();
  turns.length = 0;
  for (const turn of get('log').querySelectorAll('.turn')) turn.remove();
  get('welcome').hidden = false;
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
  get('stop').addEventListener('click', () => under?.abort());
  get('prompt').addEventListener('keydown', (event) => {
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
    ask(text);
  });
}
