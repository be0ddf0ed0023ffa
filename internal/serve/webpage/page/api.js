// The server's public HTTP API, as this page uses it.

import { get } from './dom.js';
import { events } from './sse.js';

// Failure is an answer of the server that is none; its message is for people.
export class Failure extends Error {
  constructor(status, message, code) {
    super(message);
    this.status = status; // 0 where there was no answer
    this.code = code;
  }
}

// words returns the message of an error.
export function words(error) {
  if (error instanceof Failure) return error.message;
  return `This page failed: ${error.message}`;
}

const unreachable = () => new Failure(0, 'The server cannot be reached. Is it still running?');

// failureOf reads an error in OpenAI's form.
function failureOf(status, body, retryAfter) {
  let error = {};
  try {
    error = JSON.parse(body).error ?? {};
  } catch {
    // no JSON: a proxy has answered
  }
  const said = error.message ? sentence(error.message) : '';
  const message = {
    401: 'The API key is missing or wrong.',
    404: said || 'The server does not have that.',
    413: said || 'That is more than the server takes.',
    429: `The server has too many requests${retryAfter ? `; try again in ${retryAfter} s` : ''}. ${said}`,
    503: `The server takes no requests at the moment. ${said}`,
  }[status] ?? (said || `The server answered ${status}, and does not say why.`);
  return new Failure(status, message.trim(), error.code);
}

function sentence(text) {
  return text[0].toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? '' : '.');
}

// The key is kept for as long as the tab is open.
const slot = 'lorafuse.key';
let asking = null; // the dialog that is open, as a promise
let declined = false; // the user has not given a key

const key = () => sessionStorage.getItem(slot) ?? '';
const authorization = () => (key() ? { Authorization: `Bearer ${key()}` } : {});

// askKey asks the user for a key, and returns whether there is one.
export function askKey(wrong = false) {
  if (asking) return asking;
  const dialog = get('key-dialog'), field = get('key');
  get('key-button').hidden = false;
  get('key-wrong').hidden = !wrong;
  field.value = '';
  asking = new Promise((done) => {
    dialog.addEventListener('close', () => {
      asking = null;
      const given = dialog.returnValue === 'use' ? field.value.trim() : '';
      field.value = '';
      declined = given === '';
      if (given) sessionStorage.setItem(slot, given);
      done(given !== '');
    }, { once: true });
  });
  dialog.returnValue = '';
  dialog.showModal();
  return asking;
}

// refused asks the user to replace the key that was sent, unless it has been
// replaced since.
const refused = (sent) => (sent === key() ? askKey(sent !== '') : Promise.resolve(true));

// send sends a request and returns its response, which is a good one. If a key is
// needed it asks for one; background requests (quiet) do not ask twice.
async function send(path, { quiet = false, ...init } = {}) {
  for (;;) {
    if (quiet && declined) throw new Failure(401, 'The server asks for an API key.');
    const sent = key();
    let response;
    try {
      response = await fetch(path, { ...init, headers: { ...init.headers, ...authorization() } });
    } catch (error) {
      throw error.name === 'AbortError' ? error : unreachable();
    }
    if (response.ok) return response;
    if (response.status === 401 && (await refused(sent))) continue;
    throw failureOf(response.status, await response.text().catch(() => ''), response.headers.get('Retry-After'));
  }
}

const json = (body) => ({ method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) });

// read returns JSON; read and text are done in the background.
export const read = async (path) => (await send(path, { quiet: true })).json();
export const text = async (path) => (await send(path, { quiet: true })).text();

// write sends JSON, or nothing, and returns JSON.
export const write = async (path, body) => (await send(path, body ? json(body) : { method: 'POST' })).json();

// stream sends JSON and yields what comes of the answer, as it comes.
export async function* stream(path, body, signal) {
  const response = await send(path, { ...json({ ...body, stream: true, stream_options: { include_usage: true } }), signal });
  try {
    for await (const data of events(response)) {
      if (data === '[DONE]') return;
      const part = JSON.parse(data);
      if (part.error) throw new Failure(response.status, sentence(part.error.message), part.error.code);
      yield part;
    }
  } catch (error) {
    throw error instanceof TypeError ? unreachable() : error;
  }
  throw new Failure(0, 'The answer was cut: the connection ended before it was complete.');
}

// upload sends a file of rows and returns what the server calls it. A fetch would not
// say how far it is.
export async function upload(file, progress) {
  for (;;) {
    const sent = key();
    const { status, body, retry } = await new Promise((done, fail) => {
      const request = new XMLHttpRequest();
      request.open('POST', 'v1/files');
      for (const [name, value] of Object.entries(authorization())) request.setRequestHeader(name, value);
      request.upload.onprogress = (event) => event.lengthComputable && progress(event.loaded / event.total);
      request.onload = () => done({ status: request.status, body: request.responseText, retry: request.getResponseHeader('Retry-After') });
      request.onerror = () => fail(unreachable());
      const form = new FormData();
      form.append('purpose', 'fine-tune');
      form.append('file', file, file.name);
      request.send(form);
    });
    if (status >= 200 && status < 300) return JSON.parse(body).id;
    if (status === 401 && (await refused(sent))) continue;
    throw failureOf(status, body, retry);
  }
}

get('key-cancel').addEventListener('click', () => get('key-dialog').close(''));
